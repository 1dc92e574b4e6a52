"""docs/GRADER_QUALITY.md says what its record says, and the record is of this corpus."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grader.assignment import Device
from tests.support import machine_mutants
from tests.support.corpus import entries
from tests.support.quality import KINDS, PAGE, RECORD, faults
from tests.support.quality_page import page, rows

DEVICES: tuple[Device, ...] = ("cpu", "cuda")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def test_the_page_is_made_from_the_record(record: dict[str, Any]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(record), (
        "run: python -m tests.support.quality --only NAME for a new kernel, --render if only the page is older"
    )


@pytest.mark.parametrize("device", DEVICES)
def test_the_record_is_of_this_corpus(record: dict[str, Any], device: Device) -> None:
    for kind in KINDS:
        wanted = {entry.id for entry in entries(kind) if entry.runs_on(device)}
        assert set(record[device][kind]) <= wanted, "run: python -m tests.support.quality"


@pytest.mark.parametrize("device", DEVICES)
def test_the_record_agrees_with_what_is_expected(record: dict[str, Any], device: Device) -> None:
    for entry in entries("mutants"):
        expected = entry.mutant.on(device)
        if expected is None or entry.id not in record.get(device, {}).get("mutants", {}):
            continue
        found = record[device]["mutants"][entry.id]
        assert found["outcome"] == expected.outcome, entry.id
        if expected.case is not None:
            prefix = "" if entry.mutant.part is None else f"{entry.mutant.part} "
            assert found["caught_by"][0] == prefix + expected.case, entry.id
    if device in record:
        assert faults(record[device]) == []
        wrongly = {name for name, one in record[device]["accepted"].items() if one["caught_by"]}
        assert wrongly == set()


def test_every_kernel_is_printed_with_what_is_wrong_or_special_with_it(record: dict[str, Any]) -> None:
    text = rows(record, DEVICES)
    for entry in entries("mutants"):
        assert f"| {entry.folder.name} | {entry.mutant.mistake} |" in text or f"- {entry.id}" in text, entry.id
    for entry in entries("accepted"):
        assert f"- {entry.id}: {entry.accepted.how}" in text
    assert "softmax" in (some := rows(record, ["cpu"], "mutants/softmax-"))
    assert "gelu" not in some


def test_the_sample_of_changes_by_a_machine_is_graded_and_what_passes_is_explained() -> None:
    stored = json.loads(machine_mutants.FOUND.read_text(encoding="utf-8"))
    rows = stored["mutants"]
    assert set(rows) == {one.id for one in machine_mutants.sample()}, "run: python -m tests.support.machine_mutants"
    assert set(stored["survivors"]) == {name for name, row in rows.items() if row["outcome"] == "passed"}
