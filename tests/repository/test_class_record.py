"""The record of a class on several GPUs: its page is made from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks import class_record
from grader.classroom.folder import Attempt
from tests.conftest import ROOT

RECORD = json.loads(class_record.OUTPUT.with_suffix(".json").read_text(encoding="utf-8"))


def test_the_page_has_the_records_numbers() -> None:
    assert class_record.page(RECORD) == class_record.OUTPUT.with_suffix(".md").read_text(encoding="utf-8")


def test_hand_ins_that_were_graded_in_both_ways_are_compared() -> None:
    one, every = (
        {"seconds": seconds, "races_s": 1.0, "correctness": 50.0, "speed": 40.0, "open": 0.0, "bands": "+-"}
        for seconds in (30.0, 40.0)
    )
    handins = {
        "a": {"one": one, "all": every},
        "b": {"all": every | {"seconds": 400.0}},
        "c": {"one": one, "all": every | {"speed": 39.0}},
    }
    page = class_record.page({"gpu": "NVIDIA H100", "gpus": 2, "cores": 32, "handins": handins})
    assert "| hand-ins an hour | 120 | 180 (1.50 ×) |" in page
    assert "Points that differ between the two: c." in page
    assert "between two gradings" not in page
    assert "Spoilt" not in page
    for own in handins.values():
        own.update({way: facts | {"pause_s": 10.0} for way, facts in own.items()})
    handins["b"]["all"]["spoilt"] = ["the judge ended without a report (exit code -11);\nits last words"]
    page = class_record.page({"gpu": "NVIDIA H100", "gpus": 2, "cores": 32, "ahead": True, "handins": handins})
    assert "| between two gradings | 10.0 | 10.0 |" in page
    assert "| hand-ins an hour | 90 | 144 (1.60 ×) |" in page
    assert "graded again: b (the judge ended without a report (exit code -11); its last words).\n\n| hand-in" in page
    assert "Each GPU's next grading started before the one before had ended. Compared are" in page


def test_an_attempt_that_gave_no_grade_is_told_and_not_counted(tmp_path: Path) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    spoilt, graded = (
        Attempt(
            number=number,
            started=begin,
            ended=begin + timedelta(seconds=4),
            exit_code=code,
            place="node GPU-1",
            fault=why,
        )
        for number, code, why in ((1, 3, "no report"), (2, 0, ""))
    )
    sample = ROOT / "docs" / "sample" / "gpu"
    found = class_record.facts_of_class({"a": {spoilt: tmp_path / "without a report", graded: sample}})
    assert (found["a"]["seconds"], found["a"]["spoilt"]) == (4.0, ["no report"])
    assert found["a"]["correctness"] > 0


def test_a_pause_is_between_two_gradings_on_one_gpu() -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)

    def attempt(place: str, start: float, end: float) -> Attempt:
        moments = {"started": begin + timedelta(seconds=start), "ended": begin + timedelta(seconds=end)}
        return Attempt(number=1, exit_code=0, place=place, **moments)

    attempts = [attempt("node GPU-1", 11.5, 20), attempt("node GPU-2", 1, 12), attempt("node GPU-1", 0, 10)]
    pauses = class_record.pauses_before(attempts)
    assert list(pauses.values()) == pytest.approx([0, 0, 1.5])
