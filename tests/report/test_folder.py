"""`grader show FOLDER`: what is written where, and what becomes of files that are no reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.report.json_file import write_report
from grader.report.model import Report
from tests.report.building import make_case, make_part, make_report
from tests.report.parsing import Parsed

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the report of a submission to a folder below `class`."""

    def write(folder: str, submission: str = "", **fields: Any) -> Path:
        report: Report = make_report(make_part(make_case(), make_case("n-2", "failed")), **fields)
        info = report.submission.model_copy(update={"path": submission or f"/subs/{folder}"})
        return write_report(report.model_copy(update={"submission": info}), tmp_path / "class" / folder)

    return write


def show(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["show", *map(str, arguments)])


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_pages_lie_beside_their_reports_and_the_index_links_to_them(write: Write, tmp_path: Path) -> None:
    write("alice")
    write("deep/down/bob")
    done = show(tmp_path / "class")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.output.replace("\n", "") == f"index of 2 submissions: {tmp_path / 'class/index.html'}"
    pages = ["alice/report.html", "deep/down/bob/report.html"]
    assert files(tmp_path / "class") == sorted([*pages, "alice/report.json", "deep/down/bob/report.json", "index.html"])
    index = Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8"))
    assert {one["href"] for one in index.all("a")} == set(pages)
    assert "bob: 4/4 points" in (tmp_path / "class/deep/down/bob/report.html").read_text(encoding="utf-8")


def test_pages_go_to_another_folder_on_request(write: Write, tmp_path: Path) -> None:
    path = write("alice")
    assert show(tmp_path / "class", "--output", tmp_path / "out/of/class").exit_code == 0
    assert files(tmp_path / "out/of/class") == ["alice/report.html", "index.html"]
    assert files(tmp_path / "class") == ["alice/report.json"]
    assert show(path, "--output", tmp_path / "one").exit_code == 0
    assert files(tmp_path / "one") == ["report.html"]


def test_a_name_is_a_link_whatever_letters_it_has(write: Write, tmp_path: Path) -> None:
    names = ["a b", "ü", "#1?x=%20", "<b>\u202e\"'&", "javascript:alert(1)", os.fsdecode(b"\xff\xfe")]
    for name in names:
        write(name, "/subs/x" + name.encode(errors="replace").hex())
    assert show(tmp_path / "class").exit_code == 0
    links = {one["href"] for one in Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8")).all("a")}
    expected = {(tmp_path / "class" / name / "report.html").as_uri() for name in names}
    assert {f"{(tmp_path / 'class').as_uri()}/{link}" for link in links} == expected
    assert all(":" not in link.partition("/")[0] for link in links)


def test_redacted_pages_go_elsewhere(write: Write, tmp_path: Path) -> None:
    path = write("alice", seed=987654)
    for arguments in (
        [tmp_path / "class"],
        [path],
        [path, "-o", tmp_path / "class/alice"],
        [tmp_path / "class", "-o", tmp_path / "class"],
        [tmp_path / "class/alice", "-o", tmp_path / "class"],
        [tmp_path / "class/alice", "-o", tmp_path],
    ):
        done = show(*arguments, "--redact")
        assert done.exit_code == 2
        assert "--redact: name a folder without reports by --output" in done.stderr
    assert files(tmp_path / "class") == ["alice/report.json"]
    assert show(tmp_path / "class", "--redact", "-o", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out/alice/report.html").read_text(encoding="utf-8")
    assert "alice" in page
    assert "987654" not in page
    assert "alice" not in (tmp_path / "out/index.html").read_text(encoding="utf-8")
    assert show(path, "--redact", "-o", tmp_path / "one").exit_code == 0
    assert (tmp_path / "one/report.html").read_text(encoding="utf-8") == page


def test_what_is_no_report_costs_the_others_nothing(write: Write, tmp_path: Path) -> None:
    text = write("alice").read_text()
    folder = tmp_path / "class"
    newer = json.dumps(json.loads(text) | {"schema_version": 2, "further": 1})
    for name, content in {"cut": text[:400], "newer": newer, "deep": "[" * 100_000, "empty": "", "list": "[]"}.items():
        (folder / name).mkdir()
        (folder / name / "report.json").write_text(content)
    (folder / "absent").mkdir()
    (folder / "absent/report.json").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.json")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe/report.json")
    done = show(folder)
    assert done.exit_code == 1
    told = dict(line.split(": ", 1) for line in done.stderr.splitlines())
    assert set(told) == {
        str(folder / name / "report.json") for name in ("cut", "newer", "deep", "empty", "list", "absent", "pipe")
    }
    assert told[str(folder / "newer/report.json")].startswith("its schema version is not 1, the only one known here")
    index = Parsed((folder / "index.html").read_text(encoding="utf-8")).text
    assert "1 submission" in index
    assert "7 more do not count" in index
    assert "newer open: not read" in index
    assert (folder / "alice/report.html").exists()


def test_a_folder_that_cannot_be_read_is_told(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("alice")
    (tmp_path / "class/shut").mkdir()
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may read everything
    done = show(tmp_path / "class")
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'class/shut'}: cannot be read (Permission denied)\n"
    assert "shut open: not read" in Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8")).text


def test_a_page_that_cannot_be_written_costs_no_marks(write: Write, tmp_path: Path) -> None:
    write("alice")
    write("bob")
    (tmp_path / "class/bob/report.html").mkdir()
    done = show(tmp_path / "class")
    assert done.exit_code == 1
    assert done.stderr == f"{tmp_path / 'class/bob/report.html'}: the page cannot be written (Is a directory)\n"
    index = Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8"))
    assert [one["href"] for one in index.all("a") if "bob" in one["href"]] == []
    assert "bob 4/4" in index.text


def test_a_submission_counts_once_by_its_latest_whole_report(write: Write, tmp_path: Path) -> None:
    write("first", "/subs/alice", started="2026-11-20T12:00:00Z")
    write("second", "/subs/alice", started="2026-11-21T12:00:00Z")
    write("third", "/subs/alice", started="2026-11-22T12:00:00Z", incomplete=True)
    write("bob", started="2026-11-21T12:00:00")
    done = show(tmp_path / "class")
    assert done.exit_code == 1
    words = "a report of the same submission as second, which is whole, has more graded, or is later, and counts"
    assert done.stderr.splitlines() == [
        f"{tmp_path / 'class' / name / 'report.json'}: {words}" for name in ("first", "third")
    ]
    assert "index of 2 submissions" in done.output
    index = Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8")).text
    assert "first counted once" in index
    assert "second 4/4" in index
    assert len(list((tmp_path / "class").rglob("report.html"))) == 4


def test_of_two_reports_the_one_with_more_graded_counts(write: Write, tmp_path: Path) -> None:
    """A later look on a laptop does not replace a grading on a GPU."""
    on_a_gpu = write("gpu", "/subs/alice", started="2026-11-20T12:00:00Z")
    write("laptop", "/subs/alice", started="2026-11-21T12:00:00Z")
    text = json.loads((tmp_path / "class/laptop/report.json").read_text())
    for points in (text["score"], text["correctness"]):
        points |= {"graded": points["graded"] - 1, "earned": points["earned"] - 1}
    (tmp_path / "class/laptop/report.json").write_text(json.dumps(text))
    done = show(tmp_path / "class")
    assert on_a_gpu.is_file()
    assert "class/laptop/report.json: a report of the same submission as gpu" in done.stderr.replace("\n", "")
    assert "gpu 4/4" in Parsed((tmp_path / "class/index.html").read_text(encoding="utf-8")).text


def test_a_folder_without_reports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty/alice").mkdir(parents=True)
    done = show(tmp_path / "empty", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stderr.startswith(f"{tmp_path / 'empty'}: there is no report.json in it, at any depth")
    assert not (tmp_path / "out").exists()


def test_an_index_that_cannot_be_written_is_a_fault_of_the_machine(write: Write, tmp_path: Path) -> None:
    write("alice")
    (tmp_path / "file").touch()
    done = show(tmp_path / "class", "-o", tmp_path / "file")
    assert done.exit_code == 3
    assert "infra_error" in done.stderr
