"""`grader show RUN`: the report that counts of each hand-in, under its students' names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grader.classroom.grades import Grades
from grader.classroom.record import named
from grader.cli import app
from tests.report.parsing import Parsed
from tests.support.classes import MadeClass, ending, sample, softmax

GPU = sample("gpu")
WORSE = ending(GPU, "softmax", "lengths", "1x1", "failed")


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    """Two with one hand-in, one of whom has the best attempt count; one with a machine fault; one who handed in nothing."""
    made = MadeClass(tmp_path / "RUN")
    ada = made.student("ada", files=softmax(1), name="Ada L")
    bob = made.student("bob", handin=ada.handin, name="Bob <b>")
    eve = made.student("eve", files=softmax(2))
    made.student("lazy")
    made.attempt(ada, GPU)
    made.attempt(ada, WORSE)
    made.attempt(eve, None, fault="no GPU here", exit_code=3)
    made.decide(bob, "counts", counts="best")
    return made


def test_the_index_has_names_and_counts_each_hand_in_once(made: MadeClass) -> None:
    made.student("eli", handin=made.students[0].handin, name="Eli")
    made.student("idle")
    shown = CliRunner().invoke(app, ["show", str(made.folder.path)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.replace("\n", "") == f"index of 2 submissions: {made.folder.path / 'index.html'}"
    page = (made.folder.path / "index.html").read_text(encoding="utf-8")
    index = Parsed(page)
    folder = f"tasks/{made.students[0].handin}"
    assert list(dict.fromkeys(one["href"] for one in index.all("a") if one["href"].startswith("tasks"))) == [
        f"{folder}/attempt.2/report.html",
        f"{folder}/attempt.1/report.html",
    ]
    assert "ada (Ada L), eli (Eli)" in page
    assert "bob (Bob &lt;b&gt;)" in page
    assert "machine fault: no GPU here" in page
    assert "3 more do not count" in page
    assert rows_of(page)["lazy"] == rows_of(page)["idle"] == ["nothing was handed in"]
    assert (made.folder.path / folder / "attempt.1" / "report.html").is_file()


def test_students_may_see_a_redacted_index(made: MadeClass, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(made.folder.path), "--redact", "--output", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.output
    assert "Ada L" not in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_report_that_is_gone_is_a_row_with_its_reason(made: MadeClass) -> None:
    shutil.rmtree(made.folder.tasks(made.students[0].handin))
    assert [(one.path, one.fault) for one in named(Grades(made.folder))] == [
        (None, "not graded yet"),
        (None, "machine fault: no GPU here"),
        (None, "nothing was handed in"),
    ]


def rows_of(page: str) -> dict[str, list[str]]:
    """The cells of each row of the submissions, without markup, by the row's name."""
    table = page[page.index('id="submissions"') :]
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    ]
    plain = [[" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in row] for row in rows]
    return {row[0]: row[1:] for row in plain}


def test_the_points_that_a_person_decided_on_are_those_of_the_index(made: MadeClass) -> None:
    ada, _, eve, lazy = made.students
    eli = made.student("eli", handin=ada.handin, name="Eli")
    for student, points in ((ada, 12.5), (eve, 40), (lazy, 101)):
        made.decide(student, "points", points=points, reason="see <b>mail</b>")
    shown = CliRunner().invoke(app, ["show", str(made.folder.path)])
    assert shown.exit_code == 0, shown.output
    page = (made.folder.path / "index.html").read_text(encoding="utf-8")
    assert "see &lt;b&gt;mail&lt;/b&gt;" in page
    rows = rows_of(page)
    told = "2026-11-01 {} ta: {} points instead of the graded ones: see &lt;b&gt;mail&lt;/b&gt;"
    times = [f"{one.at:%H:%M}" for one in made.folder.decisions() if one.kind == "points"]
    assert rows[f"ada (Ada L) {told.format(times[0], '12.5')}"][0] == "12.5 by decision"
    assert rows["eli (Eli)"][0] == "98/100"
    assert rows[f"eve {told.format(times[1], 40)}"] == ["40 by decision", "no report"]
    assert rows[f"lazy {told.format(times[2], 101)}"] == ["101 by decision", "no report"]
    assert "1 of 2 fail" in page, "a shared report's cases count once"
    assert "The median of the 3 graded in full is 98." in page
    made.decide(ada, "points", points=None)
    assert named(Grades(made.folder))[0].name == f"ada (Ada L), {eli.key} (Eli)"
