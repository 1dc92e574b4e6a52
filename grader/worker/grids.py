"""The grids that CUDA launches."""

from __future__ import annotations

from collections.abc import Sequence

GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA's largest grid, along its axes 0, 1 and 2.


class GridTooLarge(RuntimeError):
    """A grid has more programs along an axis than CUDA allows; the message names kernel, axis, number and limit."""


def check_grid(kernel: str, grid: Sequence[int]) -> tuple[int, ...]:
    """The grid of a launch, one to three numbers of programs. A grid with a 0 launches nothing, as on a GPU.

    Raises:
        GridTooLarge: an axis has more programs than CUDA allows.
    """
    for axis, (programs, limit) in enumerate(zip(grid, GRID_LIMITS, strict=False)):
        if programs > limit and 0 not in grid:
            raise GridTooLarge(
                f"{kernel} is launched with {programs} programs along axis {axis} of its grid; a GPU allows {limit} there: "
                "put the large number on axis 0"
            )
    return tuple(grid)
