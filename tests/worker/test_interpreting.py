"""Triton's interpreter refuses the grids that a GPU refuses, and runs all others."""

from __future__ import annotations

from typing import Any

import pytest
from triton.runtime.interpreter import GridExecutor, InterpretedFunction

from grader.worker.interpreting import GridTooLarge, check_grid, refuse_grids_that_a_gpu_refuses

RAN: list[int] = []


def kernel() -> None:
    RAN.append(1)


@pytest.fixture
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GridExecutor, "__call__", GridExecutor.__call__)
    refuse_grids_that_a_gpu_refuses()
    RAN.clear()


@pytest.mark.parametrize("grid", [(2**31 - 1,), (1, 65535), (3, 1, 65535), (70000, 65535, 65535), [70000, 3]])
def test_a_grid_within_cudas_limits_is_taken(grid: Any) -> None:
    assert check_grid("kernel", grid) == tuple(grid)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((1, 65536), "65536 programs along axis 1 of its grid; a GPU allows 65535"),
        ((1, 1, 70000), "70000 programs along axis 2 of its grid; a GPU allows 65535"),
        ((2**31,), "2147483648 programs along axis 0 of its grid; a GPU allows 2147483647"),
    ],
)
def test_a_larger_one_is_refused_with_kernel_axis_number_and_limit(grid: tuple[int, ...], words: str) -> None:
    with pytest.raises(GridTooLarge, match=f"^kernel is launched with {words} there"):
        check_grid("kernel", grid)


def test_a_grid_without_programs_launches_nothing_as_on_a_gpu() -> None:
    assert check_grid("kernel", (0, 70000)) == (0, 70000)


@pytest.mark.usefixtures("_checked")
@pytest.mark.parametrize("grid", [(1, 65536), lambda _: (1, 65536)])
def test_the_interpreter_refuses_it_before_any_program_runs(grid: Any) -> None:
    with pytest.raises(GridTooLarge, match="kernel is launched with 65536"):
        InterpretedFunction(kernel).run(grid=grid, warmup=False)
    assert RAN == []


@pytest.mark.usefixtures("_checked")
@pytest.mark.parametrize("grid", [(2, 3), lambda _: (2, 3), (0, 70000)])
def test_the_interpreter_runs_the_others(grid: Any) -> None:
    InterpretedFunction(kernel).run(grid=grid, warmup=False)
    count = 0 if isinstance(grid, tuple) and 0 in grid else 6
    assert len(RAN) == count
