"""Maps of wrong outputs: pure functions from tensors to the report's `ErrorMap`.

A map is computed on the tensors' device, in slices of bounded size; only its cells, at most 64 × 160 bytes, leave a
GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from grader.assignment import Scale
from grader.report.model import (
    FINE,
    IS_NAN,
    LEVELS,
    MAP_COLUMNS,
    MAP_ROWS,
    MARKS,
    NO_ELEMENT,
    OUTSIDE,
    UNWRITTEN,
    ErrorMap,
)
from grader.verdict import tolerance
from grader.verdict.cells import factor
from grader.verdict.fill import holds_fill

NARROWEST = 64  # A vector is folded into rows of at least this many elements, if it has them.


@dataclass(frozen=True)
class Compared:
    """An output, its right values, and its budget.

    got: the submission's output, in its dtype.
    expected: the oracle's answer, float64, same shape.
    scale, kind: of errors, as `grader.verdict.tolerance.scales` makes them.
    limit: the budget of the worst error.
    """

    got: torch.Tensor
    expected: torch.Tensor
    scale: torch.Tensor
    kind: Scale
    limit: float

    def as_rows(self) -> Compared:
        """The same elements as a matrix of all rows, (…, columns); a vector stays a vector, and a number becomes a
        vector.
        """
        columns = self.expected.shape[-1:]
        shape = (-1, *columns) if self.expected.ndim > 1 else (self.expected.numel(),)
        scale = self.scale.reshape(-1, 1) if self.kind == "row" and self.expected.ndim > 1 else self.scale.reshape(-1)
        return Compared(self.got.reshape(shape), self.expected.reshape(shape), scale, self.kind, self.limit)

    def part(self, start: int, end: int) -> Compared:
        """Entries of dimension 0."""
        scale = self.scale[start:end] if self.scale.ndim > 1 else self.scale
        return Compared(self.got[start:end], self.expected[start:end], scale, self.kind, self.limit)

    def marks(self) -> torch.Tensor:
        """For each element the place of its mark in MARKS, uint8."""
        error = tolerance.relative_errors(self.got, self.expected, self.scale, self.kind)
        limits = self.limit * 10.0 ** torch.arange(len(LEVELS), dtype=torch.float64, device=error.device)
        found = torch.bucketize(error.contiguous(), limits, out_int32=True).to(torch.uint8) + MARKS.index(FINE)
        is_wrong = found > MARKS.index(FINE)
        found[is_wrong & self.got.isnan()] = MARKS.index(IS_NAN)
        found[is_wrong & holds_fill(self.got)] = MARKS.index(UNWRITTEN)
        return found


def error_map(
    name: str, whole: Compared, bad: torch.Tensor, before: int | None = None, outside: Iterable[int] = ()
) -> ErrorMap | None:
    """The map of an output; None for an output without elements.

    Args:
        whole: the whole output, or a part.
        bad: bool, same shape: the wrong elements. The matrix with the most of them is shown.
        before: for a part, the number of entries of dimension 0 before the part.
        outside: written places outside the output, in elements from its first element: negative, or beyond the number
            of elements.
    """
    if not bad.numel():
        return None
    leading, height = bad.shape[:-2], (bad.shape[-2] if bad.ndim > 1 else 1)
    number = int(bad.reshape(math.prod(leading), -1).sum(-1).argmax()) if leading else 0
    at = [int(one) for one in np.unravel_index(number, leading)] if leading else []
    rows = whole.as_rows()
    matrix = rows.part(number * height, (number + 1) * height) if leading else rows
    columns = bad.shape[-1] if bad.ndim > 1 else _fold(bad.numel())
    high, wide = -(-matrix.expected.numel() // columns), columns
    cell_rows, cell_columns = factor(high, MAP_ROWS), factor(wide, MAP_COLUMNS)
    step = max(1, tolerance.CHUNK // (columns * cell_rows)) * cell_rows
    found = torch.cat([_worst(one, cell_rows, cell_columns) for one in _slices(matrix, columns, step)])
    matrices, cell_matrices = _of_each_matrix(rows, math.prod(leading)) if before is None else ("", 1)
    if leading and before is not None:
        at[0] += before
        leading = torch.Size([leading[0] + before, *leading[1:]])
    cells = _surrounded([_text(row) for row in found.tolist()], bad.numel(), columns, cell_columns, outside)
    return ErrorMap(
        output=name,
        leading=tuple(leading),
        at=tuple(at),
        rows=high,
        columns=wide,
        first=0 if leading else before or 0,
        folded=bad.ndim < 2,
        cell_rows=cell_rows,
        cell_columns=cell_columns,
        before=cells[0],
        cells=tuple(cells[1:-1]),
        after=cells[-1],
        matrices=matrices,
        cell_matrices=cell_matrices,
    )


def _fold(elements: int) -> int:
    """The elements of a folded vector's row: a power of two, so that blocks of a kernel end at ends of rows."""
    return elements if elements <= NARROWEST else max(NARROWEST, 1 << (math.isqrt(2 * elements - 1)).bit_length())


def _slices(matrix: Compared, columns: int, step: int) -> Iterator[torch.Tensor]:
    """The marks of a matrix, `step` rows at a time; of a vector folded into rows, the last one filled up."""
    length = step if matrix.expected.ndim > 1 else step * columns
    for start in range(0, len(matrix.expected), length):
        found = matrix.part(start, start + length).marks()
        if found.ndim == 1:
            found = torch.nn.functional.pad(found, (0, -len(found) % columns))
        yield found.reshape(-1, columns)


def _worst(marks: torch.Tensor, high: int, wide: int) -> torch.Tensor:
    """The worst mark of each cell of `high` × `wide` elements."""
    rows, columns = marks.shape
    filled = torch.nn.functional.pad(marks, (0, -columns % wide, 0, -rows % high))
    return filled.reshape(filled.shape[0], -1, wide).amax(-1).reshape(-1, high, filled.shape[1] // wide).amax(1)


def _of_each_matrix(rows: Compared, count: int) -> tuple[str, int]:
    """The worst mark of each matrix, and the number of matrices for each mark; "" for a single matrix."""
    if count < 2:
        return "", 1
    columns = rows.expected.shape[-1]
    worst = [one.amax(-1) for one in _slices(rows, columns, max(1, tolerance.CHUNK // columns))]
    each = torch.cat(worst).reshape(count, -1).amax(-1, keepdim=True)
    size = factor(count, MAP_COLUMNS)
    return _text(_worst(each, size, 1).flatten().tolist()), size


def _text(marks: Iterable[int]) -> str:
    return "".join(MARKS[one] for one in marks)


def _surrounded(cells: list[str], elements: int, columns: int, wide: int, outside: Iterable[int]) -> list[str]:
    """The cells with a row above for writes before the output, and a row below for writes past its end; empty without
    such writes.

    Writes past the end of a folded vector may lie in the rest of its last row.
    """
    blank = NO_ELEMENT * len(cells[0])
    around, rest = [blank, *cells, blank], -elements % columns
    for place in outside:
        row = 0 if place < 0 else len(cells) if place < rest else len(cells) + 1
        column = (place if place < 0 else elements + place) % columns // wide
        around[row] = around[row][:column] + OUTSIDE + around[row][column + 1 :]
    return ["" if row == blank and index in (0, len(around) - 1) else row for index, row in enumerate(around)]
