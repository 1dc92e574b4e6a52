"""Points follow from outcomes: earned only when all that ran passed, and never lost to the grader's own faults."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.report.model import SEVERITY, UNDECIDED, Outcome, Points, worst
from grader.verdict.scoring import group_points

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
LOSING = sorted(set(OUTCOMES) - UNDECIDED - {"passed"})


def points(earned: float, graded: float) -> Points:
    return Points(earned=earned, graded=graded, possible=5)


def test_all_passed_earns_the_points() -> None:
    assert group_points(5, ["passed", "passed"]) == (points(5, 5), False)


@pytest.mark.parametrize("outcome", LOSING)
def test_one_case_that_did_not_pass_loses_the_points(outcome: Outcome) -> None:
    assert group_points(5, ["passed", outcome, "passed"]) == (points(0, 5), False)


@pytest.mark.parametrize("outcome", LOSING)
@pytest.mark.parametrize("open_", sorted(UNDECIDED))
def test_a_lost_group_stays_lost_whatever_else_could_not_run(outcome: Outcome, open_: Outcome) -> None:
    assert group_points(5, [open_, outcome, "passed"]) == (points(0, 5), False)


def test_skipped_cases_leave_the_points_provisional() -> None:
    assert group_points(5, ["passed", "skipped"]) == (points(5, 5), True)


def test_nothing_ran_is_not_graded() -> None:
    assert group_points(5, ["skipped", "skipped"]) == (points(0, 0), False)
    assert group_points(5, []) == (points(0, 0), False)


def test_a_fault_of_the_grader_leaves_the_points_ungraded_and_never_lost() -> None:
    assert group_points(5, ["passed", "infra_error"]) == (points(0, 0), False)
    assert group_points(5, ["infra_error"]) == (points(0, 0), False)
    assert group_points(5, ["skipped", "infra_error", "passed"]) == (points(0, 0), False)


def test_an_interruption_leaves_the_points_ungraded_unless_they_are_lost() -> None:
    assert group_points(5, ["passed", "skipped"], complete=False) == (points(0, 0), False)
    assert group_points(5, ["failed", "skipped"], complete=False) == (points(0, 5), False)


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


def test_a_part_is_called_by_its_worst_case() -> None:
    assert worst(["passed", "skipped", "failed"]) == "failed"
    assert worst(["failed", "crashed"]) == "crashed"
    assert worst(["passed", "skipped"]) == "passed"
    assert worst(["failed", "infra_error"]) == "infra_error"
    assert worst(["not_implemented", "passed"]) == "not_implemented"
    assert worst([]) == "skipped"


def test_every_outcome_has_its_place_in_the_order_of_severity() -> None:
    assert sorted(SEVERITY) == sorted(OUTCOMES)
    assert all(worst([outcome]) == outcome for outcome in OUTCOMES)
