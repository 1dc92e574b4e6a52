"""The comparison of a map with its diagnosis (`tests/support/maps.py`) notices a map that shows another place."""

from __future__ import annotations

from typing import Any

import pytest

from grader.report.model import CaseResult, ErrorMap
from tests.support.maps import contradictions
from tests.verdict.test_causes import a_map

FIRST = "y[2, 1] is the first wrong element: expected 1, got never written; {} elements (9%) are wrong"
ROWS, COLUMNS = "only rows 2–3 of 4 are wrong", "only column 1 of 3 is wrong"
RIGHT = a_map("...", "...", ".u.", ".1.")


def case(found: ErrorMap | None, count: str = "2 of 12", diagnosis: Any = (ROWS, COLUMNS), **more: Any) -> CaseResult:
    fields = {"message": FIRST.format(count), "diagnosis": diagnosis, "map": found} | more
    return CaseResult(name="n", tries="", outcome="failed", **fields)


def test_a_map_that_shows_what_is_said_is_right() -> None:
    assert contradictions(case(RIGHT)) == []
    assert contradictions(case(a_map("..", "u.", columns=3, rows=4, cell_rows=2, cell_columns=2))) == []
    assert contradictions(case(None, message="y has shape (3,), expected (4,)")) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (case(None), "no map"),
        (case(RIGHT.model_copy(update={"output": "z"})), "map is of z"),
        (case(a_map("...", ".1.", ".u.", ".1.")), "first marked cell is"),
        (case(a_map("...", "...", "u..", ".1.")), "first marked cell is"),
        (case(a_map("...", "...", ".1.", ".1.")), "the cell of the first wrong element is '1'"),
        (case(RIGHT, "1 of 12"), "2 cells are marked"),
        (case(RIGHT, "3 of 12"), "do not fit"),
        (case(a_map("...", "...", ".u.", "...")), "the rows of cells 2–2"),
        (case(a_map("...", "...", ".u.", "1..")), "the columns of cells 0–1"),
        (case(RIGHT, diagnosis=("2 of 4 rows have wrong elements, the first is 1, the last 3",)), "says 1–3"),
        (case(RIGHT, diagnosis=("only every 2nd column is wrong, from 0 to 2 of 3",)), "says 0–2"),
    ],
)
def test_a_map_that_shows_another_place_is_noticed(changed: CaseResult, words: str) -> None:
    assert words in "; ".join(contradictions(changed))


def test_elements_and_batch_entries_are_found_in_their_maps() -> None:
    message = "y[64] is the first wrong element: expected 1, got 2; 2 of 66 elements (3%) are wrong"
    folded = a_map("." * 64, "11" + " " * 62, folded=True)
    assert contradictions(case(folded, message=message, diagnosis=("only elements 64–65 of 66 are wrong",))) == []
    assert contradictions(case(folded, message=message, diagnosis=("only elements 1–65 of 66 are wrong",)))
    message = "y[1, 0, 0] is the first wrong element: expected 1, got 2; 2 of 6 elements (33%) are wrong"
    batch = a_map("11", leading=(3,), at=(1,), matrices=".1.")
    assert contradictions(case(batch, message=message, diagnosis=("only batch entry 1 of 3 is wrong",))) == []
    assert contradictions(case(batch, message=message, diagnosis=("only batch entries 1–2 of 3 are wrong",)))


def test_a_map_of_a_piece_begins_where_the_piece_does() -> None:
    """The message counts from the output's first element, the map from the piece's."""
    message = "y[2147483712] is the first wrong element: expected 1, got 0; of y[2147483648:2147483714] 2 of 66 elements (3%) are wrong"
    folded = a_map("." * 64, "11" + " " * 62, folded=True, first=2**31)
    assert contradictions(case(folded, message=message, diagnosis=())) == []
    assert contradictions(case(folded.model_copy(update={"first": 2**31 - 64}), message=message, diagnosis=()))
    message = (
        "y[7, 1] is the first wrong element: expected 1, got never written; of y[5:9] 2 of 12 elements (17%) are wrong"
    )
    assert contradictions(case(RIGHT.model_copy(update={"first": 5}), message=message, diagnosis=())) == []
