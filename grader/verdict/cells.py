"""The cells of an error map: fewer of them for a smaller picture, and whether there is something to see."""

from __future__ import annotations

from collections.abc import Sequence

from grader.report.model import LEVELS, MARKS, NO_ELEMENT, ErrorMap

GLANCE = (16, 64)  # A picture in a terminal has at most this many rows and columns.


def worst_of(cells: Sequence[str], high: int, wide: int) -> list[str]:
    """Cells of `high` × `wide` cells, each with the worst mark among them."""
    rows = ["".join(max(row[at : at + wide], key=MARKS.index) for at in range(0, len(row), wide)) for row in cells]
    return [
        "".join(max(column, key=MARKS.index) for column in zip(*rows[at : at + high], strict=True))
        for at in range(0, len(rows), high)
    ]


def shrunk(found: ErrorMap, rows: int, columns: int) -> ErrorMap:
    """The same map in at most so many rows and columns of cells."""
    high, wide = factor(len(found.cells), rows), factor(len(found.cells[0]), columns)
    around = {side: "".join(worst_of([row], 1, wide)) for side in ("before", "after") if (row := getattr(found, side))}
    sizes = {"cell_rows": found.cell_rows * high, "cell_columns": found.cell_columns * wide}
    return found.model_copy(update={"cells": tuple(worst_of(found.cells, high, wide))} | around | sizes)


def factor(size: int, most: int) -> int:
    """The smallest power of two that brings `size` elements or cells down to `most`, so that tiles of a kernel end at
    ends of cells.
    """
    return 1 << (-(-size // max(1, most)) - 1).bit_length()


def is_telling(found: ErrorMap | None, rows: int = GLANCE[0]) -> bool:
    """Whether a picture of a map, so many rows high, shows more than one kind of marks; all digits are one kind."""
    if found is None:
        return False
    small = shrunk(found, rows, GLANCE[1])
    marks = "".join([*small.cells, small.before, small.after, small.matrices])
    return len({LEVELS if mark in LEVELS else mark for mark in marks if mark != NO_ELEMENT}) > 1
