"""Hints for right kernels: each has its place and a next step, and a kernel without a fault gets none."""

from __future__ import annotations

import pytest

from grader.report.model import KernelResources
from grader.verdict.advice import advice


def resources(**numbers: int | str) -> KernelResources:
    return KernelResources.model_validate(
        {"name": "tile", "arch": "sm_90", "registers": 32, "shared_bytes": 0} | numbers
    )


def hints(*kernels: KernelResources, told: str = "", off_stream: tuple[str, ...] = ()) -> tuple[str, ...]:
    return advice("tile.cu", "stream", kernels, told, off_stream)


def test_a_kernel_without_spills_and_doubles_gets_no_hint() -> None:
    assert hints(resources(), told="ptxas info    : Used 32 registers\n") == ()


def test_doubles_are_told_with_their_line_and_the_float_to_write() -> None:
    (hint,) = hints(told="computed in double: tile.cu:9: 0.5 1e-3\ncomputed in double: lib/a b.cuh:4: \n")
    assert hint.startswith("tile.cu:9: computed in double precision")
    assert "write 0.5f, 1e-3f" in hint
    assert hint.endswith("(also lib/a b.cuh:4)")


def test_a_double_without_a_literal_asks_for_its_type() -> None:
    (hint,) = hints(told="computed in double: tile.cu:9: \n")
    assert "is a value or a function here a double?" in hint


def test_of_many_lines_the_first_few_are_named() -> None:
    (hint,) = hints(told="".join(f"computed in double: tile.cu:{line}: 0.5\n" for line in range(1, 9)))
    assert hint.endswith("(also tile.cu:2, tile.cu:3, tile.cu:4 ...)")


@pytest.mark.parametrize(
    "told", ["computed in double: \x1b[31m.cu:9: 0.5\n", "in double: tile.cu:9: 0.5\n", "x" * 20_000]
)
def test_other_words_of_a_worker_give_no_hint(told: str) -> None:
    assert hints(told=told) == ()


@pytest.mark.parametrize(
    ("case", "mend"), [("", "keep fewer values"), ("large", "smaller tiles")], ids=["cuda", "triton"]
)
def test_spills_are_told_with_their_bytes(case: str, mend: str) -> None:
    (hint,) = hints(resources(spill_store_bytes=60, spill_load_bytes=56, stack_bytes=64, case=case))
    assert hint.startswith("tile.cu: tile ")
    assert "spills 116 bytes" in hint
    assert mend in hint


def test_local_memory_without_spills_is_told_with_what_it_is_consistent_with() -> None:
    (hint,) = hints(resources(stack_bytes=256))
    assert "256 bytes of each thread in local memory" in hint
    assert "consistent with an array whose index" in hint


def test_a_kernel_of_several_cases_is_told_once() -> None:
    assert len(hints(*(resources(spill_load_bytes=8, case=case) for case in ("small", "large")))) == 1


def test_of_a_kernels_launches_the_one_that_spills_most_is_told() -> None:
    """As of a softmax that takes every row as one block: 1024 columns fit, 131072 do not."""
    spills = {"4096x1024": 0, "8x131072": 35000, "many-rows": 8}
    (hint,) = hints(*(resources(spill_load_bytes=spilled, case=case) for case, spilled in spills.items()))
    assert "spills 35000 bytes to memory (sm_90, in 8x131072)" in hint


def test_work_on_another_stream_is_told_as_what_a_gpu_will_grade() -> None:
    (hint,) = hints(off_stream=("tile.cu:12: the launch of tile",))
    assert hint.startswith("tile.cu:12: the launch of tile neither names `stream` nor waits for it")
    assert "graded on the GPU" in hint
