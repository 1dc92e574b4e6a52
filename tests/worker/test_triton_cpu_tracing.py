"""What a traced call counts of a Triton kernel: numbers known by hand, and at sizes that no interpreter gets through."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "traced_kernels.py"
LARGE = 1 << 28


@cache
def _replies() -> dict[str, Any]:
    """The replies to all traced calls, in a process of its own: that kernels are interpreted is decided when Triton is
    imported.
    """
    variables = os.environ | {"MALLOC_PERTURB_": "132"}  # as a worker sets it
    run = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=180, env=variables)
    assert run.returncode == 0, run.stderr[-2000:]
    replies: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return replies


def _launches(name: str) -> list[dict[str, Any]]:
    reply = _replies()[name]
    assert reply["error"] is None, reply["error"]
    launches: list[dict[str, Any]] = reply["trace"]["launches"]
    return launches


def _launch(name: str) -> dict[str, Any]:
    (launch,) = _launches(name)
    return launch


def _accesses(launch: dict[str, Any], tensor: str) -> list[dict[str, Any]]:
    return [one for one in launch["accesses"] if one["tensor"] == tensor]


def _access(launch: dict[str, Any], tensor: str) -> dict[str, Any]:
    (access,) = _accesses(launch, tensor)
    return access


def _tensors(launch: dict[str, Any]) -> dict[str, tuple[int, bool, int, int]]:
    keys = ("bytes", "is_of_call", "read_once_bytes", "written_once_bytes")
    return {one["name"]: tuple(one[key] for key in keys) for one in launch["tensors"]}  # type: ignore[misc]


def _line_of(text: str) -> int:
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if text in line]
    return found


def test_lanes_that_a_mask_turns_off_are_counted_apart() -> None:
    launch = _launch("masked_tail")
    assert (launch["kernel"], launch["grid"], launch["threads"], launch["ran"]) == ("copy", [4, 1, 1], 128, 4)
    assert launch["line"] == _line_of("copy[(triton.cdiv(x.numel(), block),)](x, y")
    read = _access(launch, "x_ptr")
    assert (read["requests"], read["lanes"], read["lanes_of_all"]) == (4, 1000, 1024)
    assert (read["file"], read["line"]) == (PROGRAM.name, _line_of("x = tl.load(x_ptr + at, mask=at < n)"))
    assert (read["verb"], read["width_bytes"], read["steps"], read["block"]) == ("reads", 4, [4], [256])
    assert _tensors(launch) == {"x_ptr": (4000, True, 4000, 0), "y_ptr": (4000, True, 0, 4000)}


@pytest.mark.parametrize(("name", "width", "threads"), [("large", 4, 256), ("half", 2, 64)])
def test_a_sample_of_a_large_launch_scales_to_all_of_it(name: str, width: int, threads: int) -> None:
    launch = _launch(name)
    assert (launch["grid"], launch["ran"], launch["threads"]) == ([LARGE // 1024, 1, 1], 16, threads)
    scale = LARGE // 1024 // 16
    for tensor, verb in (("x_ptr", "reads"), ("y_ptr", "writes")):
        access = _access(launch, tensor)
        assert (access["verb"], access["width_bytes"], access["steps"]) == (verb, width, [width])
        assert access["lanes"] * scale == LARGE
    x, y = LARGE * width, 16 * 1024 * width
    assert _tensors(launch) == {"x_ptr": (x, True, y, 0), "y_ptr": (x, True, 0, y)}


@pytest.mark.parametrize("name", ["large", "half", "large_operators"])
def test_memory_of_gibibytes_stays_untouched(name: str) -> None:
    reply = _replies()[name]
    assert reply["touched_bytes"] < 4 << 20
    assert reply["more_bytes"] < 128 << 20  # of which imports are most


def test_a_line_in_a_helper_counts_each_pass_and_bytes_count_once() -> None:
    launch = _launch("three_passes")
    helper, third = _accesses(launch, "x_ptr")
    assert (helper["line"], helper["requests"], helper["lanes"]) == (_line_of("return tl.load(x_ptr + tl."), 14, 1400)
    assert (third["requests"], third["lanes"], third["lanes_of_all"]) == (7, 700, 7 * 128)
    assert _tensors(launch)["x_ptr"] == (2800, True, 2800, 0)


def test_steps_tell_a_transposed_access() -> None:
    launch = _launch("transposed")
    read, write = _access(launch, "x_ptr"), _access(launch, "y_ptr")
    assert (read["steps"], write["steps"], read["block"]) == ([4, 512], [256, 4], [16, 16])
    assert launch["ran"] == 16


def test_steps_are_unknown_where_distances_vary() -> None:
    launch = _launch("gathered")
    assert (_access(launch, "x_ptr")["steps"], _access(launch, "x_ptr")["block"]) == ([], [])
    assert _access(launch, "index_ptr")["steps"] == [4]
    # Two lanes read each element of x.
    assert _tensors(launch) == {
        "index_ptr": (256, False, 256, 0),
        "x_ptr": (256, True, 128, 0),
        "y_ptr": (256, True, 0, 256),
    }


def test_what_each_program_reads_counts_for_each() -> None:
    launch = _launch("keys_reread")
    size = 128 * 32 * 2
    assert _tensors(launch) == {
        "q_ptr": (size, True, size, 0),
        "k_ptr": (size, True, 8 * size, 0),
        "y_ptr": (size, True, 0, size),
    }
    assert _access(launch, "k_ptr")["requests"] == 8 * 8


def test_products_of_tiles_are_counted_with_their_inputs_dtype() -> None:
    line = _line_of("y += tl.dot(")
    dots = [(one["line"], one["dtype"], one["flops"]) for one in _launch("keys_reread")["dots"]]
    assert dots == [(line, "float16", 2 * 2 * 128 * 128 * 32)]
    dots = [(one["line"], one["dtype"]) for one in _launch("causal_of_many")["dots"]]
    assert dots == [(line, "tf32"), (line, "float32")]  # Triton's default, and what `ieee` asks for


def test_a_sample_under_a_causal_mask_scales_to_all_tiles() -> None:
    launch = _launch("causal_of_many")
    tiles = 64
    scale = tiles / launch["ran"]
    assert (launch["ran"], launch["cut"]) == (16, False)
    assert _access(launch, "k_ptr")["requests"] * scale == tiles * (tiles + 1) / 2
    assert sum(one["flops"] for one in launch["dots"]) * scale == 2 * 2 * 16**3 * tiles * (tiles + 1) / 2


def test_two_programs_run_at_least_and_scale_too() -> None:
    launch = _launch("hurried")
    assert launch["ran"] == 2
    assert _access(launch, "k_ptr")["requests"] * 64 / 2 == 64 * 65 / 2


def test_no_program_runs_when_the_time_of_a_call_is_up() -> None:
    launch = _launch("out of time")
    assert (launch["ran"], launch["grid"], launch["accesses"]) == (0, [64, 1, 1], [])


def test_atomics_are_told_and_several_lanes_at_an_element_count_once() -> None:
    launch = _launch("atomics")
    update = _access(launch, "y_ptr")
    assert (update["verb"], update["atomic"], update["lanes"]) == ("writes", True, 1024)
    assert not _access(launch, "x_ptr")["atomic"]
    assert _tensors(launch)["y_ptr"] == (16, True, 0, 8 * 16)


def test_launches_alike_fold_into_one() -> None:
    launch = _launch("launch_for_each_row")
    assert (launch["launches"], launch["ran"], launch["grid"]) == (1000, 6, [2, 1, 1])
    assert _access(launch, "x_ptr")["lanes"] * 2 * launch["launches"] / launch["ran"] == 1000 * 64


def test_a_program_that_waits_for_another_is_stopped() -> None:
    waiting, copying = _launches("waits_for_nobody")
    assert waiting["cut"]
    assert not copying["cut"]
    assert _access(copying, "x_ptr")["lanes"] == 4


def test_backward_passes_are_traced_too() -> None:
    forward, backward = _launches("with_a_backward")
    assert (forward["grid"], backward["grid"]) == ([16, 1, 1], [8, 1, 1])
    for launch in (forward, backward):
        assert _tensors(launch) == {"x_ptr": (16384, True, 16384, 0), "y_ptr": (16384, True, 0, 16384)}


def test_an_autotuned_kernel_runs_its_first_configuration() -> None:
    launch = _launch("autotuned")
    assert (launch["grid"], launch["threads"]) == ([8, 1, 1], 32)


def test_a_failed_call_tells_the_launches_before_its_error() -> None:
    reply = _replies()["out_of_bounds"]
    assert reply["error"]["message"].startswith("out of bounds: program 3 of copy reads x_ptr[1000]")
    assert [one["ran"] for one in reply["trace"]["launches"]] == [4, 3]


def test_a_launch_of_no_programs_is_none() -> None:
    assert _launches("no_programs") == []


def test_the_next_call_is_checked_again() -> None:
    assert _replies()["checked again"].startswith("out of bounds: program 3 of copy reads x_ptr[1000]")
    assert _replies()["filled again"]


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 2, 1), (16, 1, 1), (17, 1, 1), (32, 48, 1), (5, 7, 9), (1, 1, 2**20)])
def test_programs_are_chosen_evenly(grid: tuple[int, int, int]) -> None:
    chosen = _replies()["samples"][str(grid)]
    assert len({tuple(one) for one in chosen}) == len(chosen) == min(16, math.prod(grid))
    for axis in range(3):
        assert all(0 <= one[axis] < grid[axis] for one in chosen)
        middle = (grid[axis] - 1) / 2
        assert sum(one[axis] for one in chosen) / len(chosen) == middle
        quarters = {one[axis] * 4 // grid[axis] for one in chosen}
        assert grid[axis] < 4 or quarters == {0, 1, 2, 3}
