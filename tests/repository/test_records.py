"""Records are compact: an entry a line, no file of more than a thousand lines; and pages are made from them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks import sample_report
from benchmarks.records import KINDS, Kind, records, text_of
from benchmarks.reference_record import documents, page
from grader.report.model import Report
from tests.conftest import ROOT

MAX_LINES = 1000
FOLDERS = ("assignments", "benchmarks", "docs", "grader", "reference", "scripts", "starter", "tests")
RECORDS = list(records())
SAMPLES = sorted(path.parent for path in sample_report.SAMPLES.glob("*/report.json"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_json_file_is_longer_than_a_thousand_lines() -> None:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.json")]
    assert {path for path, _ in RECORDS} <= set(found)
    lines = {name(path): path.read_bytes().count(b"\n") for path in found}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}, "run: make records"


@pytest.mark.parametrize(("path", "kind"), RECORDS, ids=[name(path) for path, _ in RECORDS])
def test_a_record_is_in_its_form(path: Path, kind: Kind) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == text_of(json.loads(text), kind), "run: make records"


def test_every_kind_has_a_record() -> None:
    assert {kind for _, kind in RECORDS} == set(KINDS)


def test_an_entry_is_a_line_and_nothing_is_lost() -> None:
    known = {"theft/é": {"host, cpu": "failed", "host, cuda": ["a", {}]}, "theft/b": {}, "theft/c": {"host, cpu": None}}
    text = text_of(known, "attacks")
    assert json.loads(text) == known
    assert text.splitlines() == [
        "{",
        ' "theft/é": {"host, cpu": "failed", "host, cuda": ["a", {}]},',
        ' "theft/b": {},',
        ' "theft/c": {"host, cpu": null}',
        "}",
    ]
    assert text_of({"rows": [], "environment": {"gpu": "G"}}, "reference_record") == (
        '{\n "rows": [],\n "environment": {"gpu": "G"}\n}\n'
    )


def test_the_pages_of_the_reference_are_those_of_its_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "reference_record.json").read_text(encoding="utf-8"))
    pages = {ROOT / "benchmarks" / "reference_record.md": page(record), **documents(record["rows"])}
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{name(path)}: run: make records"


@pytest.mark.parametrize("folder", SAMPLES, ids=name)
def test_a_sample_is_a_report_as_the_terminal_shows_it(folder: Path) -> None:
    text = (folder / "report.json").read_text(encoding="utf-8")
    report = Report.model_validate_json(text)
    assert report.score.graded > 0
    assert not report.infra_errors
    assert os.fspath(ROOT) not in text
    assert (folder / "terminal.txt").read_text(encoding="utf-8") == sample_report.shown(folder), "run: make records"
    assert f"({folder.name}/terminal.txt)" in (sample_report.SAMPLES / "README.md").read_text(encoding="utf-8")
