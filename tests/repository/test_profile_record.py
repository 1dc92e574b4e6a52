"""The record of predicted and measured times: what the profile says of its own errors is what was measured."""

from __future__ import annotations

import json

from benchmarks import profile_record
from grader.verdict.prediction import ERRORS
from tests.support.corpus import entries

WHOLE = json.loads(profile_record.RECORD.read_text(encoding="utf-8"))


def test_times_are_told_of_kernels_whose_predictions_were_good_with_their_error() -> None:
    assert profile_record.told_errors(WHOLE) == ERRORS


def test_every_slow_kernel_was_predicted_and_measured_and_its_cause_was_told_first() -> None:
    for entry in entries("slow"):
        part = entry.slow.case if "/" in entry.slow.case else f"/{entry.slow.case}"
        (found,) = (
            one for key, one in WHOLE["kernels"].items() if key.startswith(f"slow/{entry.id} ") and key.endswith(part)
        )
        assert found["measured_ms"], entry.id
        assert found["causes"][:1] == [entry.slow.cause], entry.id


def test_the_page_has_the_records_table() -> None:
    assert profile_record.table(WHOLE) in profile_record.PAGE.read_text(encoding="utf-8")
