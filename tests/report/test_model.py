"""The report's models forbid nonsense, survive JSON, and are what `grader schema` prints."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from grader.report.json_file import check_writable, write_report
from grader.report.model import (
    MAP_COLUMNS,
    MAP_ROWS,
    CaseResult,
    ErrorMap,
    OutputError,
    Points,
    Report,
    WorkerLog,
)
from grader.runfolder import alone_in
from tests.report.building import leaves, make_case, make_part, make_report, replaced, timed
from tests.report.test_golden import failing, speedy

INF = math.inf
SCHEMA = Report.model_json_schema(mode="serialization")
MAP = {
    "output": "y",
    "leading": (2,),
    "at": (1,),
    "rows": 3,
    "columns": 5,
    "cell_rows": 2,
    "cell_columns": 2,
    "cells": (".1u", "n9."),
    "after": "oo ",
    "matrices": ".u",
}
ERROR = {"output": "y", "worst_budget": 0.1, "rms_budget": 0.2, "pytorch_worst": 0.01, "pytorch_rms": 0.001}


@pytest.fixture
def rich_report() -> Report:
    """A report that uses every field."""
    wrong = OutputError(**ERROR, worst=INF, rms=INF, reference_worst=0.02, reference_rms=0.002)
    cases = [
        make_case("n-1", time_s=0.25, errors=(OutputError(**ERROR, worst=0.05, rms=0.01),)),
        make_case(
            "n-2", "failed", diagnosis=("why — ×√d",), traceback="  File x", errors=(wrong,), time_s=1.5, map=MAP
        ),
        make_case("n-3", "skipped"),
    ]
    part = make_part(*cases, points=Points(earned=0, graded=4, possible=4))
    return make_report(part, log="printed \x00 and \U0001f600", infra_errors=("driver lost",))


# Nonsense is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [(5, 4, 6), (1, 5, 4), (-1, 0, 0), (0, -1, 0), (0, 0, -1), (math.nan, 1, 1), (0, math.nan, 1)]
)
def test_points_out_of_order_are_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValidationError):
        Points(**dict(zip(("earned", "graded", "possible"), values, strict=True)))


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 50))))
def test_the_total_of_lawful_points_is_lawful(rows: list[tuple[float, float, float]]) -> None:
    every = [Points(**dict(zip(("earned", "graded", "possible"), sorted(row), strict=True))) for row in rows]
    assert Points.total(every).possible == pytest.approx(sum(one.possible for one in every))


@pytest.mark.parametrize("outcome", ["failed", "skipped", "infra_error", "not_implemented"])
def test_what_did_not_pass_must_say_why(outcome: str) -> None:
    with pytest.raises(ValidationError, match="without a message"):
        CaseResult(name="n-1", tries="one", outcome=outcome)
    assert CaseResult(name="n-1", tries="one", outcome="passed").message == ""
    with pytest.raises(ValueError, match="passed without a measurement"):
        timed(measured=None)


@pytest.mark.parametrize(
    "change",
    [
        {"cells": (".1u",)},
        {"cells": (".1u", "n9")},
        {"cells": (".1u", "n9x")},
        {"before": "oo"},
        {"at": (2,)},
        {"at": ()},
        {"rows": 0},
        {"rows": MAP_ROWS + 1, "cell_rows": 1, "cells": ("...",) * (MAP_ROWS + 1)},
        {"columns": MAP_COLUMNS + 1, "cell_columns": 1, "cells": ("." * (MAP_COLUMNS + 1),) * 2},
    ],
)
def test_a_map_has_the_cells_that_its_matrix_needs_and_no_more_than_fit(change: dict[str, Any]) -> None:
    assert ErrorMap.model_validate(MAP).cells == (".1u", "n9.")
    with pytest.raises(ValidationError):
        ErrorMap.model_validate(MAP | {"after": ""} | change)


# Fields with words of a submission, of its compiler or of the machine; whatever shows report.json need not know of control characters.
WORDS = "message diagnosis traceback text lines others notes infra_errors name problem hints"


def test_a_submissions_words_have_neither_control_characters_nor_addresses_of_reprs() -> None:
    letters = "".join(map(chr, (0, 7, 8, 9, 10, 11, 12, 27, 31, 127, 128, 155, 159)))
    words = (
        f"{letters} <function <lambda> at 0x7f21a2a0>, <bound method A.f of <A object at 0x7f00>> read 0x10 at 0x7f00"
    )
    told = set()
    for report in (failing(), speedy()):
        data = replaced(report, str, lambda _: words)[0].model_dump(mode="json")
        for at in leaves(data, str):
            text = functools.reduce(operator.getitem, at, data)
            if "\x1b" not in text and "read 0x10" in text:
                told.add(next(step for step in reversed(at) if isinstance(step, str)))
                assert "\t\n\N{REPLACEMENT CHARACTER}" in text
                assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) == []
                assert "<function <lambda>>, <bound method A.f of <A object>> read 0x10 at 0x7f00" in text
    assert told == set(WORDS.split())


def test_what_was_overwritten_on_the_screen_is_in_lines_of_its_own() -> None:
    assert WorkerLog(text="1 %\r2 %\r\n\tdone\n", total_bytes=1).text == "1 %\n2 %\n\tdone\n"


@pytest.mark.parametrize("score", [{"earned": 1}, {"graded": 5}, {"possible": 99}])
def test_a_score_that_does_not_add_up_is_refused(rich_report: Report, score: dict[str, float]) -> None:
    data = rich_report.model_dump()
    assert data["score"] == {"earned": 0, "graded": 4, "possible": 10}
    data["score"] |= score
    with pytest.raises(ValidationError, match="are not the sum"):
        Report.model_validate(data)


# JSON -----------------------------------------------------------------------------------------------------------------


def strict_json(text: str) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_report_survives_json(rich_report: Report) -> None:
    text = rich_report.model_dump_json()
    strict_json(text)
    assert Report.model_validate_json(text) == rich_report


@pytest.mark.parametrize("value", [math.nan, -INF, INF, 0.0, 1e-300])
def test_an_error_reads_as_it_was_written_and_what_is_not_finite_is_null(value: float) -> None:
    error = OutputError(**ERROR, worst=value, rms=0.5)
    assert strict_json(error.model_dump_json())["worst"] == (value if math.isfinite(value) else None)
    if value == value and value >= 0:
        assert OutputError.model_validate_json(error.model_dump_json()) == error


def test_json_is_written_whole_and_nothing_else_is_left(tmp_path: Path, rich_report: Report) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):  # a second report takes the first one's place
        path = write_report(rich_report, folder)
    assert [entry.name for entry in folder.iterdir()] == ["report.json"]
    assert Report.model_validate_json(path.read_bytes()) == rich_report


def of(report: Report, path: str) -> Report:
    return report.model_copy(update={"submission": report.submission.model_copy(update={"path": path})})


def owners(folder: Path) -> dict[str, str]:
    return {path.name: json.loads(path.read_text())["submission"]["path"] for path in folder.glob("report*.json")}


def test_a_report_of_another_submission_is_kept_with_its_benchmarks_and_its_page(
    tmp_path: Path, rich_report: Report
) -> None:
    told: list[str] = []
    for path in ("/subs/alice", "/subs/bob", "/subs/bob", "/other/alice", "/subs/alice", "/subs/bob", "/subs/alice"):
        write_report(of(rich_report, path), tmp_path, f"times of {path}", told.append)
        assert not (tmp_path / "report.html").exists(), "an earlier report's page never stands beside a new one"
        (tmp_path / "report.html").write_text(f"page of {path}")
    assert owners(tmp_path) == {
        "report.json": "/subs/alice",
        "report-alice.json": "/subs/alice",
        "report-bob.json": "/subs/bob",
        "report-alice-2.json": "/other/alice",
    }
    for name, owner in owners(tmp_path).items():
        assert (tmp_path / name.replace("report", "benchmark")).read_text() == f"times of {owner}"
        assert (tmp_path / name).with_suffix(".html").read_text() == f"page of {owner}"
    assert len(told) == 5, "nobody is told of their own"
    assert told[0] == f"{tmp_path}/report.json was of another submission; it is kept as {tmp_path}/report-alice.json"
    assert len(list(tmp_path.iterdir())) == 12


def test_a_whole_report_is_kept_where_the_next_one_is_incomplete(tmp_path: Path, rich_report: Report) -> None:
    told: list[str] = []
    whole = rich_report.model_copy(update={"incomplete": False})
    cut = rich_report.model_copy(update={"incomplete": True})
    for report in (cut, cut, whole, cut, whole):
        write_report(of(report, "/subs/alice"), tmp_path, tell=told.append)
    is_cut = {path.name: json.loads(path.read_text())["incomplete"] for path in tmp_path.glob("report*.json")}
    assert is_cut == {"report.json": False, "report-alice.json": False}
    assert told == [f"{tmp_path}/report.json was whole; it is kept as {tmp_path}/report-alice.json"]


def test_a_run_without_benchmarks_leaves_none_of_an_earlier_one(tmp_path: Path, rich_report: Report) -> None:
    write_report(rich_report, tmp_path, "times")
    write_report(rich_report, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, '{"submission": 1}', "\xff"], ids=range(6))
def test_a_file_that_is_no_report_is_kept_too(tmp_path: Path, rich_report: Report, content: str) -> None:
    for _ in range(2):
        (tmp_path / "report.json").write_text(content, encoding="latin-1")
        write_report(rich_report, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report-unknown.json", "report-unknown-2.json"}
    assert (tmp_path / "report-unknown.json").read_text(encoding="latin-1") == content


@pytest.mark.timeout(20)
def test_a_pipe_in_the_way_is_kept_and_not_waited_for(tmp_path: Path, rich_report: Report) -> None:
    os.mkfifo(tmp_path / "report.json")
    write_report(rich_report, tmp_path)
    assert (tmp_path / "report-unknown.json").is_fifo()


def test_the_name_of_a_kept_report_stays_in_its_folder(tmp_path: Path, rich_report: Report) -> None:
    for path in ("..", "/a/\x1b..\n", "/" + "x" * 300, "/a"):
        write_report(of(rich_report, path), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert len(owners(tmp_path / "out")) == 4


def test_many_runs_into_one_folder_do_not_mix(tmp_path: Path, rich_report: Report) -> None:
    """Whichever comes last, each report has its own benchmarks beside it."""
    names = [f"/subs/s{number}" for number in range(24)]

    def publish(name: str) -> None:
        with alone_in(tmp_path):
            write_report(of(rich_report, name), tmp_path, f"times of {name}")

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(publish, names))
    assert sorted(owners(tmp_path).values()) == sorted(names)
    for name, owner in owners(tmp_path).items():
        assert (tmp_path / name.replace("report", "benchmark")).read_text() == f"times of {owner}"


def test_a_folder_that_cannot_take_a_report_is_found_before_the_grading(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == [], "nothing is made before there is a report"
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        check_writable(tmp_path / "file" / "b")
    (tmp_path / "taken" / "report.json").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path / "taken")
    with pytest.raises(OSError, match="no folder can be made in /proc"):  # not even by root
        check_writable(Path("/proc/report"))


# The schema -----------------------------------------------------------------------------------------------------------


def test_a_report_is_valid_by_the_schema(rich_report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(strict_json(rich_report.model_dump_json()), SCHEMA, cls=jsonschema.Draft202012Validator)
