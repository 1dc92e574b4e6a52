"""The report's models forbid nonsense, survive JSON, and are what `grader schema` prints."""

from __future__ import annotations

import json
import math
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
    KernelResources,
    KernelTime,
    OutputError,
    Points,
    Report,
    SpeedCaseResult,
    SubmissionInfo,
    WorkerLog,
)
from grader.runfolder import alone_in
from tests.report.building import make_case, make_part, make_report

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


NOTHING = {"earned": 0, "graded": 0, "possible": 0}
WORDS_OF_OTHERS = {
    "log": lambda words: WorkerLog(text=words, total_bytes=1),
    "message": lambda words: CaseResult(name="n", tries="", outcome="failed", message=words),
    "diagnosis": lambda words: CaseResult(name="n", tries="", outcome="passed", diagnosis=(words,)),
    "traceback": lambda words: CaseResult(name="n", tries="", outcome="passed", traceback=words),
    "speed": lambda words: SpeedCaseResult(
        name="n",
        size="",
        outcome="failed",
        message=words,
        diagnosis=(words,),
        traceback=words,
        points=NOTHING,
        bands=(),
    ),
    "kernel on the GPU": lambda words: KernelTime(name=words, own=True, calls=1, share=1),
    "kernel": lambda words: KernelResources(name=words, arch="sm_90", registers=None, problem=words),
    "note": lambda words: SubmissionInfo(path="", sha256="", files=(), notes=(words,)),
}


@pytest.mark.parametrize("place", WORDS_OF_OTHERS)
def test_a_submissions_words_have_no_control_characters(place: str) -> None:
    """Whatever shows report.json to somebody need not know of them."""
    told = json.dumps(WORDS_OF_OTHERS[place]("".join(map(chr, range(160)))).model_dump(mode="json"))
    assert "\\t\\n\\ufffd" in told
    assert re.findall(r"\\u00[0189]|\\[bfr]|\x7f", told) == []


@pytest.mark.parametrize("place", WORDS_OF_OTHERS)
def test_a_submissions_words_have_no_addresses_of_reprs(place: str) -> None:
    words = "<function <lambda> at 0x7f21a2a0>, <bound method A.f of <A object at 0x7f00>> read 0x10 at 0x7f00"
    told = json.dumps(WORDS_OF_OTHERS[place](words).model_dump(mode="json"))
    assert "<function <lambda>>, <bound method A.f of <A object>> read 0x10 at 0x7f00" in told


def test_a_grading_that_fails_tells_so_without_control_characters() -> None:
    """The last words of a worker that did not start are in it."""
    (words,) = make_report(make_part(), infra_errors=("a worker did not start\n\x1b[2J",)).infra_errors
    assert words == "a worker did not start\n\N{REPLACEMENT CHARACTER}[2J"


def test_what_was_overwritten_on_the_screen_is_in_lines_of_its_own() -> None:
    assert WorkerLog(text="1 %\r2 %\r\n\tdone\n", total_bytes=1).text == "1 %\n2 %\n\tdone\n"


@pytest.mark.parametrize("score", [{"earned": 1}, {"graded": 5}, {"possible": 99}])
def test_a_score_that_does_not_add_up_is_refused(rich_report: Report, score: dict[str, float]) -> None:
    data = rich_report.model_dump()
    assert data["score"] == {"earned": 0, "graded": 4, "possible": 10}
    data["score"] |= score
    with pytest.raises(ValidationError, match="are not the sum"):
        Report.model_validate(data)


def test_another_version_of_the_schema_is_refused(rich_report: Report) -> None:
    with pytest.raises(ValidationError):
        Report.model_validate(rich_report.model_dump() | {"schema_version": 2})


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


@pytest.mark.parametrize("value", [math.nan, -INF])
def test_other_non_finite_errors_are_null_too(value: float) -> None:
    error = OutputError(**ERROR, worst=value, rms=0.5)
    assert strict_json(error.model_dump_json())["worst"] is None
    assert error.model_dump()["worst"] is None


@given(st.floats(0, allow_infinity=True))
def test_every_error_reads_as_it_was_written(value: float) -> None:
    error = OutputError(**ERROR | {"pytorch_worst": value}, worst=value, rms=value)
    assert OutputError.model_validate_json(error.model_dump_json()) == error


def test_json_is_written_whole_and_nothing_else_is_left(tmp_path: Path, rich_report: Report) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):  # a second report takes the first one's place
        path = write_report(rich_report, folder)
    assert [entry.name for entry in folder.iterdir()] == ["report.json"]
    assert Report.model_validate_json(path.read_bytes()) == rich_report


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, rich_report: Report) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError):
        write_report(rich_report, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def of(report: Report, path: str) -> Report:
    return report.model_copy(update={"submission": report.submission.model_copy(update={"path": path})})


def owners(folder: Path) -> dict[str, str]:
    return {path.name: json.loads(path.read_text())["submission"]["path"] for path in folder.glob("report*.json")}


def test_a_report_of_another_submission_is_kept_with_its_benchmarks(tmp_path: Path, rich_report: Report) -> None:
    told: list[str] = []
    for path in ("/subs/alice", "/subs/bob", "/subs/bob", "/other/alice", "/subs/alice", "/subs/bob", "/subs/alice"):
        write_report(of(rich_report, path), tmp_path, f"times of {path}", told.append)
    assert owners(tmp_path) == {
        "report.json": "/subs/alice",
        "report-alice.json": "/subs/alice",
        "report-bob.json": "/subs/bob",
        "report-alice-2.json": "/other/alice",
    }
    for name, owner in owners(tmp_path).items():
        assert (tmp_path / name.replace("report", "benchmark")).read_text() == f"times of {owner}"
    assert len(told) == 5, "nobody is told of their own"
    assert told[0] == f"{tmp_path}/report.json was of another submission; it is kept as {tmp_path}/report-alice.json"
    assert len(list(tmp_path.iterdir())) == 8


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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["seed"], -1),
        (["schema_version"], 2),
        (["surprise"], 1),
        (["score", "earned"], "all"),
        (["assignments", 0, "parts", 0, "outcome"], "great"),
        (["assignments", 0, "log", "total_bytes"], -1),
    ],
)
def test_the_schema_refuses_what_the_models_refuse(rich_report: Report, path: list[Any], value: object) -> None:
    data = strict_json(rich_report.model_dump_json())
    *way, last = path
    place = data
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(ValidationError):
        Report.model_validate(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA, cls=jsonschema.Draft202012Validator)
