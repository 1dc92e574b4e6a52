"""Points follow from outcomes: earned only when all that ran passed, and never lost to the grader's own faults."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.report.model import UNDECIDED, Outcome, Points, worst
from grader.verdict.scoring import Graded
from grader.verdict.scoring import group_points as points_of_group

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
LOSING = sorted(set(OUTCOMES) - UNDECIDED - {"passed"})


def group_points(possible: float, outcomes: list[Outcome]) -> tuple[Points, bool]:
    """Of a group of a part without others, all of whose cases show values."""
    group = [Graded(outcome) for outcome in outcomes]
    return points_of_group(possible, group, group)


def points(earned: float, graded: float) -> Points:
    return Points(earned=earned, graded=graded, possible=5)


@pytest.mark.parametrize(
    ("outcomes", "earned", "graded", "provisional"),
    [
        (["passed", "passed"], 5, 5, False),
        (["passed", "skipped"], 5, 5, True),
        # Nothing ran, or the grader had a fault: not graded, and never lost.
        (["skipped", "skipped"], 0, 0, False),
        ([], 0, 0, False),
        (["passed", "infra_error"], 0, 0, False),
        (["infra_error"], 0, 0, False),
        (["skipped", "infra_error", "passed"], 0, 0, False),
        # One case that did not pass loses the points, whatever else could not run.
        *((["passed", outcome, "passed"], 0, 5, False) for outcome in LOSING),
        *(([other, outcome, "passed"], 0, 5, False) for outcome in LOSING for other in sorted(UNDECIDED)),
    ],
)
def test_points_of_a_group(outcomes: list[Outcome], earned: float, graded: float, provisional: bool) -> None:
    assert group_points(5, outcomes) == (points(earned, graded), provisional)


@given(st.lists(st.sampled_from(OUTCOMES)), st.floats(0, 100))
def test_points_are_all_or_nothing_and_do_not_depend_on_the_order(outcomes: list[Outcome], possible: float) -> None:
    earned, provisional = group_points(possible, outcomes)
    assert (earned.earned, earned.graded) in {(0, 0), (0, possible), (possible, possible)}
    assert earned.possible == possible
    assert group_points(possible, sorted(outcomes)) == (earned, provisional)
    assert not provisional or earned.earned == earned.graded


@given(st.lists(st.sampled_from(OUTCOMES)))
def test_passing_one_more_case_never_costs_points(outcomes: list[Outcome]) -> None:
    improved: list[Outcome] = ["passed" if outcome in LOSING else outcome for outcome in outcomes]
    assert group_points(1, improved)[0].earned >= group_points(1, outcomes)[0].earned


SAMPLED = Graded("passed", shows_values=False)
RIGHT = Graded("passed")


@pytest.mark.parametrize(
    ("others", "counts"),
    [
        ([RIGHT], True),
        ([RIGHT, Graded("skipped")], True),
        ([], False),
        ([Graded("skipped")], False),
        ([Graded("passed", shows_values=False)], False),
        ([RIGHT, Graded("failed")], False),
        ([RIGHT, Graded("failed", shows_values=False)], False),
        ([RIGHT, Graded("infra_error")], True),
    ],
)
def test_values_that_nobody_saw_count_only_where_others_were_right_and_none_was_wrong(
    others: list[Graded], counts: bool
) -> None:
    expected = points(5, 5) if counts else points(0, 0)
    assert points_of_group(5, [SAMPLED], [SAMPLED, *others]) == (expected, False)


def test_one_case_of_a_group_that_shows_values_is_enough_for_the_group() -> None:
    group = [SAMPLED, RIGHT]
    assert points_of_group(5, group, [*group, Graded("failed")]) == (points(5, 5), False)


def test_where_reads_and_writes_were_wrong_the_points_are_lost_whatever_others_say() -> None:
    wrong = Graded("failed", shows_values=False)
    assert points_of_group(5, [wrong], [wrong]) == points_of_group(5, [wrong], [wrong, RIGHT]) == (points(0, 5), False)


def test_a_part_is_called_by_its_worst_case() -> None:
    assert worst(["passed", "skipped", "failed"]) == "failed"
    assert worst(["failed", "crashed"]) == "crashed"
    assert worst(["passed", "skipped"]) == "passed"
    assert worst(["failed", "infra_error"]) == "infra_error"
    assert worst(["not_implemented", "passed"]) == "not_implemented"
    assert worst([]) == "skipped"


def test_every_outcome_has_its_place_in_the_order_of_severity() -> None:
    assert all(worst([outcome]) == outcome for outcome in OUTCOMES)
