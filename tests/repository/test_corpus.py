"""A kernel that is graded in two halves is judged by both; a run of the corpus that ended goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.report.model import CaseResult, Outcome
from tests.support import quality, steady
from tests.support.corpus import Entry, Found, entries
from tests.support.quality import HALF, Record, entry_of
from tests.support.quality_page import not_run, page, tables
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


def test_both_halves_together_are_in_the_order_of_problem_toml() -> None:
    failing = beside(case("1x1"), HUGE, case("wide", "failed"), loses=True)
    both = failing.with_those_alone(alone(case("huge", "crashed"), loses_points=True))
    said = entry_of(WRONG, "cuda", both)
    assert (said["ran"], said["outcome"], said["caught_by"]) == (3, "crashed", ["huge", "wide"])
    assert "left_out" not in said
    assert both.loses_points
    assert failing.with_those_alone(alone(case("huge"))).loses_points


def test_a_right_kernel_needs_both_halves() -> None:
    assert RIGHT.needs_those_alone("cuda", FIRST)
    assert RIGHT.fault("cuda", FIRST.with_those_alone(alone(case("huge")))) == ""
    assert "huge failed" in RIGHT.fault("cuda", FIRST.with_those_alone(alone(case("huge", "failed"))))


def test_a_case_that_there_was_no_memory_for_is_a_fault_and_not_passed_over() -> None:
    both = FIRST.with_those_alone(alone(case("huge", "skipped", NO_MEMORY)))
    assert RIGHT.fault("cuda", both) == f"huge was skipped: {NO_MEMORY}"
    assert WRONG.fault("cuda", both) == f"every case that ran passed; huge was skipped: {NO_MEMORY}"


def test_a_fault_of_the_grader_in_either_half_is_told() -> None:
    for both in (
        FIRST.model_copy(update={"infra_errors": ("why",)}).with_those_alone(alone(case("huge"))),
        FIRST.with_those_alone(alone(case("huge"), infra_errors=("why",))),
        FIRST.with_those_alone(Found(infra_errors=("why",))),
    ):
        assert "why" in RIGHT.fault("cuda", both)
        assert len(both.cases) == 3


def test_a_wrong_kernel_that_was_caught_as_expected_needs_no_second_half() -> None:
    caught = beside(case("1x1"), case("1x7", "failed"), HUGE, loses=True)
    assert WRONG.fault("cuda", caught) == ""
    assert not WRONG.needs_those_alone("cuda", caught)
    assert entry_of(WRONG, "cuda", caught)["left_out"] == ["huge"]
    assert WRONG.needs_those_alone("cuda", FIRST)  # nothing has caught it
    expected_there = next(one for one in entries("mutants") if one.id == "softmax-int32_rows")
    crashing = beside(case("beyond-2-31", "skipped", ELSEWHERE["alone"]), case("float16", "crashed"), loses=True)
    assert expected_there.needs_those_alone("cuda", crashing)


def test_a_wrong_kernel_that_loses_no_points_is_a_fault() -> None:
    assert WRONG.fault("cuda", beside(case("1x7", "failed"))) == "full points"


def test_the_page_says_what_did_not_run_everywhere() -> None:
    one = {"ran": 2, "outcome": "failed", "caught_by": ["1x7"], "left_out": ["huge"]}
    text = "\n".join(tables("GPU", "softmax", {WRONG.id: one}))
    assert "- huge: left out for 1\n" in text
    assert "left out" not in "\n".join(tables("GPU", "softmax", {WRONG.id: one | {"left_out": []}}))


def test_the_only_case_that_ran_is_not_called_the_only_one() -> None:
    one = {"ran": 2, "outcome": "failed", "caught_by": ["1x7"], "left_out": ["huge"]}
    other = next(entry for entry in entries("mutants") if entry.id == "softmax-in_place")
    text = "\n".join(tables("GPU", "softmax", {WRONG.id: one, other.id: one | {"left_out": []}}))
    assert "| of which no other does | of which no other that ran does; those left out were not tried |" in text
    assert "| 1x7 | 2 | in_place | base_two |" in text


def test_what_has_not_been_run_is_named_and_counts_nowhere() -> None:
    one = {"ran": 2, "outcome": "failed", "caught_by": ["1x7"]}
    mutants = {WRONG.id: one, "softmax-in_place": one | {"fault": "unsaid"}}
    text = page({"cuda": {"machine": "a GPU", "torch": "2", "mutants": mutants, "accepted": {}}})
    (told,) = (line for line in text.splitlines() if line.startswith(not_run("cuda")))
    assert f"`{RIGHT.id}`" in told
    assert f"`{WRONG.id}`" not in told
    assert "| a GPU, torch 2 | softmax | 1 of 2 | 0 of 0 |" in text


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


def test_one_that_fails_to_be_graded_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def grade(entry: Entry, *_: object, **__: object) -> Found:
        assert entry.id != WRONG.id, "no judge"
        return FIRST

    monkeypatch.setattr(Entry, "grade", grade)
    found = {one.id: it for one, it, _ in quality.graded([WRONG, RIGHT], "cpu", 1, "all", float("inf"))}
    assert found[RIGHT.id] == FIRST
    assert "no judge" in found[WRONG.id].infra_errors[0]
    assert list(quality.graded([WRONG, RIGHT], "cpu", 1, "all", 0)) == []


def test_judges_share_gpus_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    assert steady.good_count() == 8
    places = steady.places(8)
    assert [place.gpu for place in places] == ["4", "7"] * 4
    assert [len(place.cores or ()) for place in places] == [4] * 8
    assert {core for place in places for core in place.cores or ()} == set(range(32))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert steady.good_count() == 2
    assert [list(place.cores or ()) for place in steady.places(2)] == [[5], [5]]


def test_what_is_started_confined_has_only_these_cores() -> None:
    before = os.sched_getaffinity(0)
    with steady.confined([min(before)]):
        code = "import os; print(*os.sched_getaffinity(0))"
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(min(before))]
    assert os.sched_getaffinity(0) == before
