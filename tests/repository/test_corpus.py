"""A kernel that is graded in two halves is judged by both; a run of the corpus that ended goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grader.report.model import CaseResult, Outcome
from tests.support.corpus import Found, entries
from tests.support.quality import HALF, Record, entry_of
from tests.support.warm_judge import ELSEWHERE

RIGHT = next(one for one in entries("accepted") if one.assignment == "softmax")
WRONG = next(one for one in entries("mutants") if one.id == "softmax-base_two")  # failed at 1x7, by its mutant.toml
NO_MEMORY = "needs 24 GiB of GPU memory, 11 GiB are free"


def case(name: str, outcome: Outcome = "passed", message: str = "") -> tuple[str, CaseResult]:
    return "softmax", CaseResult(
        name=name, tries="", outcome=outcome, message=message or ("" if outcome == "passed" else "base 2")
    )


def beside(*cases: tuple[str, CaseResult], loses: bool = False) -> Found:
    """The first half: three cases, of which `huge` runs alone."""
    return Found(cases=cases, loses_points=loses)


HUGE = case("huge", "skipped", ELSEWHERE["alone"])
OTHER = ELSEWHERE["beside others"]
FIRST = beside(case("1x1"), HUGE, case("wide"))


def alone(huge: tuple[str, CaseResult], **more: object) -> Found:
    return Found.model_validate(
        {"cases": (case("1x1", "skipped", OTHER), huge, case("wide", "skipped", OTHER)), **more}
    )


def test_a_right_kernel_needs_both_halves() -> None:
    assert RIGHT.needs_those_alone("cuda", FIRST)
    assert RIGHT.fault("cuda", FIRST.with_those_alone(alone(case("huge")))) == ""
    assert "huge failed" in RIGHT.fault("cuda", FIRST.with_those_alone(alone(case("huge", "failed"))))


def test_a_case_that_there_was_no_memory_for_is_a_fault_and_not_passed_over() -> None:
    both = FIRST.with_those_alone(alone(case("huge", "skipped", NO_MEMORY)))
    assert RIGHT.fault("cuda", both) == f"huge was skipped: {NO_MEMORY}"
    assert WRONG.fault("cuda", both) == f"every case that ran passed; huge was skipped: {NO_MEMORY}"


def test_a_wrong_kernel_that_was_caught_as_expected_needs_no_second_half() -> None:
    caught = beside(case("1x1"), case("1x7", "failed"), HUGE, loses=True)
    assert WRONG.fault("cuda", caught) == ""
    assert not WRONG.needs_those_alone("cuda", caught)
    assert entry_of(WRONG, "cuda", caught)["left_out"] == ["huge"]
    assert WRONG.needs_those_alone("cuda", FIRST)  # nothing has caught it
    expected_there = next(one for one in entries("mutants") if one.id == "softmax-int32_rows")
    crashing = beside(case("beyond-2-31", "skipped", ELSEWHERE["alone"]), case("float16", "crashed"), loses=True)
    assert expected_there.needs_those_alone("cuda", crashing)


def test_a_run_goes_on_with_what_is_missing_or_has_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"cpu": {"kept": 1}}))

    def opened() -> Record:
        record = Record("cuda", path)
        record.begin("a GPU", "2", anew=False)
        return record

    def wanted(only: str = "softmax", again: bool = False) -> set[str]:
        return {one.id for one in opened().wanted(only, again)}

    everything = wanted()
    opened().put(RIGHT, entry_of(RIGHT, "cuda", FIRST, half=True))
    assert wanted() == everything
    assert opened().known(RIGHT)["fault"] == HALF
    assert Found.model_validate(opened().known(RIGHT)["half"]) == FIRST
    opened().put(RIGHT, entry_of(RIGHT, "cuda", FIRST.with_those_alone(alone(case("huge")))))
    assert wanted() == everything - {RIGHT.id}
    assert wanted(again=True) == everything
    assert json.loads(path.read_text())["cpu"] == {"kept": 1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(SystemExit, match="another machine"):
        Record("cuda", path).begin("another GPU", "2", anew=False)
