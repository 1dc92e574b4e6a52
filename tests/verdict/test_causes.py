"""Failures are grouped by what they have in common, and only the examples of a part's first causes keep their maps."""

from __future__ import annotations

from typing import Any

import pytest

from grader.report.model import CaseResult, ErrorMap, OutputError
from grader.verdict.causes import MAX_MAPS, OF_INFINITY, OF_NAN, borne_out, causes, with_maps_of_causes
from grader.verdict.cells import is_telling, shrunk, worst_of
from tests.report.building import make_case


def a_map(*cells: str, **more: Any) -> ErrorMap:
    sizes = {"rows": len(cells), "columns": len(cells[0]), "cell_rows": 1, "cell_columns": 1}
    return ErrorMap.model_validate({"output": "y", "cells": cells} | sizes | more)


ERROR = OutputError(output="y", worst=1, worst_budget=0, rms=1, rms_budget=0, pytorch_worst=0, pytorch_rms=0)
TELLING, UNIFORM = a_map("..", ".u"), a_map("11", "22")


def wrong(index: int, *diagnosis: str) -> dict[str, Any]:
    """A wrong output that begins at this element."""
    message = f"y[{index}] is the first wrong element: expected {index / 7}, got {-index}; {index} of 900 elements (1e-05%) are wrong"
    return {"message": message, "diagnosis": diagnosis}


def names(found: list[Any]) -> list[list[str]]:
    return [[cause.example.name, *(case.name for case in cause.others)] for cause in found]


def test_a_cause_is_the_same_whatever_numbers_a_sentence_has() -> None:
    mask = "only rows {}–{} are wrong, what is left after full blocks of {}: consistent with a block of {} that is not masked"
    cases = [
        make_case("a", "failed", **wrong(1, mask.format(1, 2, 3, 4))),
        make_case("b", "passed"),
        make_case("c", "skipped"),
        make_case("d", "failed", **wrong(9, "something else", mask.format(1e9, -2, "0.5", 64))),
        make_case("e", "failed", **wrong(5, "got is 2 times expected: consistent with a missing scale")),
    ]
    found = causes(cases)
    assert names(found) == [["a", "d"], ["e"]]
    assert [cause.sentence for cause in found] == [mask.format(1, 2, 3, 4), cases[4].diagnosis[0]]
    assert len(found[0].others) == 1


def test_a_shape_is_a_number_however_many_dimensions_it_has() -> None:
    said = "returned a list; y must be a torch.Tensor of shape {} and dtype float32"
    cases = [
        make_case(shape, "failed", message=said.format(shape)) for shape in ("()", "(0,)", "(65, 130)", "(3, 5, 7)")
    ]
    assert [len(cause.others) for cause in causes(cases)] == [3]


def test_the_cause_of_most_comes_first_and_takes_what_others_share_with_it() -> None:
    one, two, three = (f"{where}: consistent with {where}" for where in ("one", "two", "three"))
    cases = [
        make_case("a", "failed", **wrong(1, one, two)),
        make_case("b", "failed", **wrong(2, one)),
        make_case("c", "failed", **wrong(3, three, two)),
        make_case("d", "failed", **wrong(4, two)),
    ]
    assert names(causes(cases)) == [["a", "c", "d"], ["b"]]
    assert causes(cases)[0].sentence == two


def test_of_causes_that_explain_as_many_the_earlier_sentence_counts() -> None:
    cases = [make_case(name, "failed", **wrong(1, "x: consistent with b", "x: consistent with a")) for name in "pq"]
    assert causes(cases)[0].sentence == "x: consistent with b"


def test_a_general_cause_yields_to_a_nearer_one() -> None:
    nan, infinite = (f"3 of 9 elements are so: consistent with {words}" for words in (OF_NAN, OF_INFINITY))
    near, other = "y is so: consistent with a missing maximum", "y is so: consistent with a sum too many"
    cases = [
        make_case("a", "failed", **wrong(1, nan)),
        make_case("b", "failed", **wrong(2, near, nan)),
        make_case("c", "failed", **wrong(3, near, nan)),
        make_case("d", "failed", **wrong(4, other, nan)),
        make_case("e", "failed", **wrong(5, infinite)),
        make_case("f", "crashed", **wrong(6, nan)),
    ]
    found = causes(cases)
    assert names(found) == [["b", "a", "c"], ["d"], ["e"], ["f"]]
    assert [cause.sentence for cause in found] == [near, other, infinite, nan]
    assert [cause.sentence for cause in causes([cases[0], cases[4]])] == [nan, infinite]


def output(case: str, *diagnosis: str, **fields: Any) -> CaseResult:
    """A case with a wrong number."""
    return make_case(case, "failed", errors=(ERROR,), diagnosis=diagnosis, **fields)


ALONE = "y is what comes out as relu(x); or with 2 for 3: consistent with ReLU; or a constant, or with whatever else gives this one number"
SURE = "y is what comes out {}: consistent with what it is"


@pytest.mark.parametrize(
    ("others", "kept"),
    [
        ([output("n-9", SURE.format("with 2 for 3"))], SURE.format("with 2 for 3")),
        ([output("n-9", "x"), output("n-10", "x", SURE.format("as relu(x)"))], SURE.format("as relu(x)")),
        ([output("n-9", SURE.format("by half"))], ""),
        ([output("n-9")], ""),
        ([make_case("n-9"), make_case("n-10", "crashed"), output("n-2", ALONE)], ALONE),
    ],
)
def test_a_cause_from_one_number_is_kept_if_others_bear_it_out(others: list[CaseResult], kept: str) -> None:
    first, *left = borne_out([output("n-1", ALONE), *others])
    assert first.diagnosis == ((kept,) if kept else ())
    assert left == others


def test_failures_without_a_cause_go_by_their_messages() -> None:
    cases = [
        make_case("a", "failed", **wrong(1)),
        make_case("b", "crashed", message="segmentation fault at step 3"),
        make_case("c", "failed", message="y[700] is the first wrong element: expected 0, got nan; it is wrong"),
        make_case("d", "crashed", message="segmentation fault at step 4"),
        make_case("e", "timed_out", message="segmentation fault at step 4"),
        make_case("f", "failed", message="z[0] is the first wrong element: expected 0, got 1; it is wrong"),
    ]
    found = causes(cases)
    assert names(found) == [["a", "c"], ["b", "d"], ["e"], ["f"]]
    assert {cause.sentence for cause in found} == {""}


def test_a_cause_has_the_same_key_in_another_part() -> None:
    first, other = (
        causes([make_case("a", "failed", **wrong(number, f"{number} wrong: consistent with {number} blocks"))])[0]
        for number in (1, 2)
    )
    assert first.key == other.key
    assert first.key != causes([make_case("a", "crashed", message="x: consistent with 1 blocks")])[0].key


def test_the_example_is_the_first_case_whose_map_tells_something() -> None:
    maps = {"a": None, "b": UNIFORM, "c": TELLING, "d": TELLING}
    cases = [make_case(name, "failed", **wrong(1), map=one) for name, one in maps.items()]
    assert names(causes(cases)) == [["c", "a", "b", "d"]]
    assert names(causes(cases[:2])) == [["a", "b"]]


def test_only_the_examples_of_the_first_causes_keep_their_maps() -> None:
    cases = [
        make_case(f"{cause}{number}", "failed", **wrong(1, f"x: consistent with {cause}"), map=TELLING)
        for number in range(2)
        for cause in "abcde"
    ]
    kept = with_maps_of_causes([make_case("right"), *cases])
    assert [case.name for case in kept] == ["right", *(case.name for case in cases)]
    assert [case.name for case in kept if case.map is not None] == [f"{cause}0" for cause in "abcde"[:MAX_MAPS]]
    assert names(causes(kept)) == names(causes(cases)), "the examples stay the examples"


# Cells ----------------------------------------------------------------------------------------------------------------


def test_fewer_cells_have_the_worst_marks() -> None:
    assert worst_of(["..1.n", ".2...", "....u"], 2, 2) == ["21n", "..u"]
    small = shrunk(a_map("." * 64 + "u", after=" " * 64 + "o", cell_columns=3, columns=195), 16, 64)
    assert (small.cells, small.after, small.cell_columns) == (("." * 32 + "u",), " " * 32 + "o", 6)
    assert shrunk(TELLING, 16, 64) == TELLING


@pytest.mark.parametrize(
    ("found", "telling"),
    [
        (None, False),
        (UNIFORM, False),
        (a_map("9"), False),
        (TELLING, True),
        (a_map("1u"), True),
        (a_map("1."), True),
        (a_map("1 "), False),
        (a_map("..", after="o "), True),
        (a_map("uu", leading=(2,), at=(1,), matrices=".u"), True),
        (a_map(*[".1" * 40, "1." * 40] * 9), False),
    ],
)
def test_a_map_tells_something_if_a_small_picture_has_two_kinds_of_marks(found: ErrorMap, telling: bool) -> None:
    assert is_telling(found) == telling
