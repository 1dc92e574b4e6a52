"""Hints for right kernels: each has its place and a next step, and a kernel without a fault gets none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from grader.report.model import KernelResources
from grader.verdict.advice import advice


def resources(**numbers: int | str) -> KernelResources:
    return KernelResources.model_validate(
        {"name": "tile", "arch": "sm_90", "registers": 32, "shared_bytes": 0} | numbers
    )


DOUBLE = "computed in double: tile.cu:9: "
SPILLING = {"spill_store_bytes": 60, "spill_load_bytes": 56, "stack_bytes": 64}
# As of a softmax that takes every row as one block: 1024 columns fit, 131072 do not.
SPILLS = {"4096x1024": 0, "8x131072": 35000, "many-rows": 8}
# What is known of a right kernel, and the hint that it gets, as a pattern.
HINTS: list[tuple[dict[str, Any], str]] = [
    (
        {"told": f"{DOUBLE}0.5 1e-3\n"},
        r"^tile.cu:9: computed in double precision, .*: write 0.5f, 1e-3f, for without the f each is a double$",
    ),
    ({"told": f"{DOUBLE}\n"}, r"is a value or a function here a double\?$"),
    ({"told": f"{DOUBLE}0.5\ncomputed in double: lib/a b.cuh:4: \n"}, r"\(also lib/a b.cuh:4\)$"),
    (
        {"told": "".join(f"computed in double: tile.cu:{line}: 0.5\n" for line in range(1, 9))},
        r"^tile.cu:1: .*\(also tile.cu:2, tile.cu:3, tile.cu:4 \.\.\.\)$",
    ),
    ({"kernels": [resources(**SPILLING)]}, r"^tile.cu: tile .*spills 116 bytes .*\(sm_90\): keep fewer values"),
    ({"kernels": [resources(**SPILLING, case="large")]}, r"spills 116 bytes .*\(sm_90, in large\): take smaller tiles"),
    (
        {"kernels": [resources(stack_bytes=256)]},
        r"256 bytes of each thread in local memory, .*\(sm_90\): consistent with an array whose index",
    ),
    # Of a kernel's launches the one that spills most is told, and only that one.
    (
        {"kernels": [resources(spill_load_bytes=spilled, case=case) for case, spilled in SPILLS.items()]},
        r"spills 35000 bytes to memory \(sm_90, in 8x131072\)",
    ),
    (
        {"off_stream": ["tile.cu:12: the launch of tile"]},
        r"^tile.cu:12: the launch of tile neither names `stream` nor waits for it.* graded on the GPU$",
    ),
    (
        {"same_value": ["tile.cu:12: y[4]", "tile.cu:12: y[5]"]},
        r"^tile.cu:12: two threads write y\[4\], and both write the same value: the result is right",
    ),
]


def hints(told: str = "", **known: Any) -> tuple[str, ...]:
    return advice("tile.cu", "stream", **{"kernels": (), "told": told, "off_stream": ()} | known)


@pytest.mark.parametrize(("known", "words"), HINTS)
def test_a_hint_has_its_place_and_a_next_step(known: dict[str, Any], words: str) -> None:
    (hint,) = hints(**known)
    assert re.search(words, hint)


@pytest.mark.parametrize(
    "told",
    [
        "ptxas info    : Used 32 registers\n",
        "computed in double: \x1b[31m.cu:9: 0.5\n",
        "in double: tile.cu:9: 0.5\n",
        "x" * 20_000,
    ],
)
def test_a_kernel_without_a_fault_gets_no_hint_whatever_its_worker_says(told: str) -> None:
    assert hints(told=told, kernels=[resources()]) == ()
