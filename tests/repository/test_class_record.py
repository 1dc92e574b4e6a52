"""The record of a class on several GPUs: its page is made from it."""

from __future__ import annotations

import json

from benchmarks import class_record

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
