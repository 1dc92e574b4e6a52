"""The record of speed: cases that are measured again take the place of earlier ones, and each says by what it was made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import speed_record
from benchmarks.speed_record import page, put, with_earlier
from tests.conftest import ROOT

EARLIER: dict[str, Any] = json.loads((ROOT / "benchmarks" / "speed_record.json").read_text(encoding="utf-8"))
ORDER = [case["id"] for case in EARLIER["cases"]]


def new(**environment: str) -> dict[str, Any]:
    return {
        "command": "python benchmarks/speed_record.py --again",
        "environment": EARLIER["environment"] | environment,
        "submission": EARLIER["submission"],
        "cases": [],
    }


@pytest.mark.parametrize("name", ["speed_record", "speed_record_slow"])
def test_the_tables_are_those_of_what_was_measured(name: str) -> None:
    folder = ROOT / "benchmarks"
    record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert page(record) == (folder / f"{name}.md").read_text(encoding="utf-8")


def test_a_case_measured_again_takes_the_place_of_the_earlier_one() -> None:
    again = {**EARLIER["cases"][5], "size": "measured again"}
    record = with_earlier(new(), EARLIER)
    record["cases"] = put(again, record["cases"], ORDER)
    assert [case["id"] for case in record["cases"]] == ORDER
    text = page(record)
    assert text.count("measured again") == 1
    assert text.count("Made by `") == len(ORDER) - 1
    assert record["command"] in text


def test_a_case_keeps_the_command_it_was_made_by() -> None:
    twice = with_earlier(new() | {"command": "the third"}, with_earlier(new(), EARLIER))
    commands = [case["command"] for case in EARLIER["cases"] if "command" in case] or [EARLIER["command"]]
    assert {case["command"] for case in twice["cases"]} >= set(commands)
    assert not any(case["command"] == new()["command"] for case in twice["cases"])


@pytest.mark.parametrize("what", ["gpu", "driver", "torch", "triton"])
def test_what_was_measured_elsewhere_is_not_put_beside_it(what: str) -> None:
    with pytest.raises(SystemExit, match=f"of another {what}"):
        with_earlier(new(**{what: "another"}), EARLIER)
    with pytest.raises(SystemExit, match="of reference"):
        with_earlier(new() | {"submission": "slow"}, EARLIER)


def test_a_record_lies_beside_the_others_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["speed_record.py"])
    assert speed_record.parse().output == str(ROOT / "benchmarks" / "speed_record")
