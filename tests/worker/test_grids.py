"""The grids that CUDA launches. That the interpreter holds to them is tried in test_triton_cpu_language.py."""

from __future__ import annotations

from typing import Any

import pytest

from grader.worker.grids import GridTooLarge, check_grid


@pytest.mark.parametrize(
    "grid", [(2**31 - 1,), (1, 65535), (3, 1, 65535), (70000, 65535, 65535), [70000, 3], (0, 70000)]
)
def test_a_grid_within_cudas_limits_or_without_programs_is_taken(grid: Any) -> None:
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
