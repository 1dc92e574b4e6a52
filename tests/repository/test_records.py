"""The records in the repository: compact JSON, pages that are made from them, and races that can be repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import class_record, peers_record, reference_record, sample_report, speed_record
from benchmarks.against_naive import Row as NaiveRow
from benchmarks.against_naive import shapes
from benchmarks.records import Kind, records, text_of
from benchmarks.reference_record import ROWS, Row, contest, table
from grader.assignment import load_course
from grader.report.model import Report
from tests.conftest import ROOT

GIB = 2**30
FOLDER = ROOT / "benchmarks"
RECORDS = list(records())
SAMPLES = sorted(path.parent for path in sample_report.SAMPLES.glob("*/report.json"))
PAGES: dict[str, Callable[[Any], str]] = {
    "class_record": class_record.page,
    "peers_h100": peers_record.page,
    "peers_h200": peers_record.page,
    "reference_record": reference_record.page,
    "speed_record": speed_record.page,
    "speed_record_slow": speed_record.page,
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def record(of: str) -> Any:
    return json.loads((FOLDER / f"{of}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "kind"), RECORDS, ids=[name(path) for path, _ in RECORDS])
def test_a_record_has_an_entry_a_line(path: Path, kind: Kind) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == text_of(json.loads(text), kind), "run: make records"


@pytest.mark.parametrize("of", PAGES)
def test_a_page_is_made_from_its_record(of: str) -> None:
    assert PAGES[of](record(of)) == (FOLDER / f"{of}.md").read_text(encoding="utf-8"), "run: make records"


def test_readmes_table_is_that_of_the_record() -> None:
    for path, text in reference_record.documents(record("reference_record")["rows"]).items():
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


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_a_row_of_the_reference_is_a_case_that_can_be_raced(row: Row) -> None:
    case = contest(row, load_course(ROOT, [row.assignment])[0])
    assert case.entrants(everyone=False) == case.opponents
    assert {case.speed.roofline, *row.goals} <= set(case.opponents)


def test_a_goal_that_was_missed_and_a_row_of_an_older_kernel_say_so() -> None:
    def measured(**speedups: float) -> dict[str, Any]:
        time = {"time_s": {"median": 1e-3}, "bytes_per_s": 4e12, "flops_per_s": 3e14, "roofline_share": 0.9}
        rows = [time | {"name": "submission", "speedup": None}]
        rows += [time | {"name": one, "speedup": {"median": value}} for one, value in speedups.items()]
        return {"entrants": rows, "claimed_s": {"median": 1e-3}}

    title = ROWS[0].title
    goals = {"sdpa_flash": 1.0, "sdpa_cudnn": 0.85}
    missed = {"title": title, "goals": goals, "measured": measured(sdpa_flash=1.1, sdpa_cudnn=0.8)}
    broken = {"title": "broken", "goals": {"copy": 1.0}, "failed": "no answer"}
    *_, first, second = [line for line in table([missed | {"version": "older"}, broken]) if line.startswith("| ")]
    assert first.startswith(f"| {title} ‡ | 1.000 | 4.00 TB/s |")
    assert first.endswith("| ✓ 1 × flash, ✗ 0.85 × cuDNN |")
    assert second.startswith("| broken | no answer |")


@pytest.mark.parametrize("what", ["gpu", "driver", "torch", "triton"])
def test_what_was_measured_elsewhere_is_not_put_beside_it(what: str) -> None:
    earlier = record("speed_record")
    new = {"command": "again", "environment": earlier["environment"], "submission": earlier["submission"], "cases": []}
    with pytest.raises(SystemExit, match=f"of another {what}"):
        speed_record.with_earlier(new | {"environment": earlier["environment"] | {what: "another"}}, earlier)
    with pytest.raises(SystemExit, match="of reference"):
        speed_record.with_earlier(new | {"submission": "slow"}, earlier)


def test_every_assignment_has_shapes_to_hold_against_plain_pytorch() -> None:
    found = list(shapes(load_course(ROOT), 8 * GIB))
    assert {case.assignment.name for case in found} == {one.name for one in load_course(ROOT)}
    assert all(0 < case.problem.cost(case.params, case.dtype).bytes_moved <= 8 * GIB for case in found)
    assert not NaiveRow("a", "", 1.04, 1.0, ratio=1 / 1.04, wall_ratio=0.1).is_slower
    assert NaiveRow("b", "", 1.06, 1.0, ratio=1 / 1.06, wall_ratio=9.0).is_slower
