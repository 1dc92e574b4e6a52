"""The map of a wrong output: what each cell stands for, held against every element, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.protocol import FILL_BYTE
from grader.report.model import MAP_COLUMNS, MAP_ROWS, MARKS, ErrorMap
from grader.verdict import tolerance
from grader.verdict.error_map import Compared, error_map

LIMIT = 1e-3
POISON = torch.full((4,), FILL_BYTE, dtype=torch.uint8).view(torch.float32).item()
# By mark, the error of an element in budgets, or what was written there.
WRITTEN: dict[str, float] = {".": 0.5, "1": 5.0, "2": 50.0, "9": math.inf, "n": math.nan, "u": POISON}


def mapped(marks: list[str], shape: tuple[int, ...], **more: Any) -> ErrorMap:
    """The map of an output whose elements are to have these marks; what is right is 1 everywhere."""
    got = torch.tensor([1 + WRITTEN[one] * LIMIT if one in ".12" else WRITTEN[one] for one in marks]).reshape(shape)
    expected, unit = torch.ones(shape, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    bad = tolerance.beyond(got, expected, unit, "element", LIMIT)
    found = error_map("y", Compared(got, expected, unit, "element", LIMIT), bad, **more)
    assert found is not None
    return found


def worst(marks: list[str]) -> str:
    return max(marks, key=MARKS.index)


@given(
    st.data(), st.sampled_from([(7,), (64,), (65,), (1000,), (5, 9), (130, 3), (2, 400), (3, 4, 5), (2, 2, 70, 2), ()])
)
def test_a_cell_has_the_worst_mark_of_its_elements(data: st.DataObject, shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    wrong = data.draw(st.dictionaries(st.integers(0, count - 1), st.sampled_from("12nu9"), max_size=20))
    marks = [wrong.get(place, ".") for place in range(count)]
    found = mapped(marks, shape)
    size = math.prod(shape[-2:]) if len(shape) > 1 else count
    matrices = [marks[start : start + size] for start in range(0, count, size)]
    number = 0
    for place, length in zip(found.at, found.leading, strict=True):
        number = number * length + place
    counts = [sum(one != "." for one in matrix) for matrix in matrices]
    assert counts[number] == max(counts), "the matrix with the most wrong elements is shown"
    for row, cells in enumerate(found.cells):
        for column, cell in enumerate(cells):
            own = [
                matrices[number][y * found.columns + x]
                for y in range(row * found.cell_rows, min((row + 1) * found.cell_rows, found.rows))
                for x in range(column * found.cell_columns, min((column + 1) * found.cell_columns, found.columns))
                if y * found.columns + x < size
            ]
            assert cell == (worst(own) if own else " ")
    assert found.matrices == ("".join(map(worst, matrices)) if len(matrices) > 1 else "")
    assert found.folded == (len(shape) < 2)


@pytest.mark.parametrize(
    "shape", [(1_000_003,), (5000, 700), (3, 1025, 161), (40, 1, 1), (1, 1_000_000), (300, 2, 2, 2)]
)
def test_a_map_is_small_whatever_the_output_is(shape: tuple[int, ...]) -> None:
    found = mapped([".", "u"] * (math.prod(shape) // 2) + ["."] * (math.prod(shape) % 2), shape)
    assert len(found.cells) <= MAP_ROWS
    assert all(len(row) <= MAP_COLUMNS for row in found.cells)
    assert len(found.matrices) <= MAP_COLUMNS
    assert len(found.model_dump_json()) < 12_000


@pytest.mark.parametrize("shape", [(1000,), (50, 70), (3, 20, 30)])
@pytest.mark.parametrize("kind", ["element", "row", "all"])
def test_a_map_made_in_slices_is_the_same(shape: tuple[int, ...], kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    expected = torch.randn(shape, dtype=torch.float64)
    got = (expected + torch.randn(shape, dtype=torch.float64) ** 9 * 1e-5).float()
    scale = tolerance.scales({"y": expected}, {"y": kind}, 1.0)["y"]
    bad = tolerance.beyond(got, expected, scale, kind, LIMIT)
    compared = Compared(got, expected, scale, kind, LIMIT)
    whole = error_map("y", compared, bad)
    assert whole is not None
    assert {mark for row in whole.cells for mark in row} > {"."}
    sizes = []
    relative_errors = tolerance.relative_errors

    def watched(got: torch.Tensor, *others: Any) -> torch.Tensor:
        sizes.append(got.numel())
        return relative_errors(got, *others)

    monkeypatch.setattr(tolerance, "relative_errors", watched)
    monkeypatch.setattr(tolerance, "CHUNK", 256)
    assert error_map("y", compared, bad) == whole
    assert max(sizes) <= 512
    assert len(sizes) > 3


def test_a_missing_tail_is_the_end_of_a_folded_vector() -> None:
    found = mapped(["."] * 1024 + ["u"], (1025,))
    assert (found.rows, found.columns, found.cell_rows, found.cell_columns) == (17, 64, 1, 1)
    assert found.cells[:16] == ("." * 64,) * 16
    assert found.cells[16] == "u" + " " * 63


def test_a_dead_batch_entry_is_one_mark_among_the_matrices() -> None:
    found = mapped([*"." * 24, *"u" * 12, *"." * 12], (4, 3, 4))
    assert found.matrices == "..u."
    assert found.at == (2,)
    assert found.cells == ("uuuu",) * 3


@pytest.mark.parametrize(
    ("shape", "places", "before", "cells", "after"),
    [
        ((70,), [0, 1], "", "." * 6 + "oo" + " " * 56, ""),
        ((70,), [57, 58], "", "." * 6 + " " * 57 + "o", "o" + " " * 63),
        ((70,), [-1], " " * 63 + "o", "." * 6 + " " * 58, ""),
        ((64,), [0], "", "." * 64, "o" + " " * 63),
        ((2, 5), [1, 6], "", ".....", " o   "),
        ((2, 5), [-5, -1], "o   o", ".....", ""),
        ((2, 2, 5), [0], "", ".....", "o    "),
    ],
)
def test_what_was_written_outside_has_its_place(
    shape: tuple[int, ...], places: list[int], before: str, cells: str, after: str
) -> None:
    found = mapped(["."] * math.prod(shape), shape, outside=places)
    assert (found.before, found.cells[-1], found.after) == (before, cells, after)


def test_a_part_of_an_output_counts_from_the_outputs_beginning() -> None:
    assert mapped([*"..u"], (3,), before=2**31).first == 2**31
    assert mapped([*"..u."], (2, 2), before=5).first == 5
    found = mapped([*"..u."], (2, 1, 2), before=5)
    assert (found.first, found.leading, found.at, found.matrices) == (0, (7,), (6,), "")


def test_nothing_has_no_map() -> None:
    empty = torch.empty((0, 4), dtype=torch.float64)
    assert error_map("y", Compared(empty, empty, torch.tensor(1.0), "element", LIMIT), empty.bool()) is None


def test_marks_count_in_powers_of_ten_and_infinity_is_the_last() -> None:
    got = torch.tensor([1.0, 1 + 2e-3, 1 + 2e-2, 3.0, 1e30, math.inf])
    expected = torch.ones(6, dtype=torch.float64)
    bad = torch.ones(6, dtype=torch.bool)
    found = error_map("y", Compared(got, expected, torch.tensor(1.0, dtype=torch.float64), "element", LIMIT), bad)
    assert found is not None
    assert found.cells == (".12499",)
