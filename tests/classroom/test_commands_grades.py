"""The verbs about grades, as they are typed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from grader.classroom.grades import Grades
from grader.classroom.record import show
from grader.cli import app
from tests.support.classes import MadeClass, class_of, ending, sample, softmax

GPU = sample("gpu")


def typed(*words: object) -> Result:
    return CliRunner().invoke(app, ["class", *map(str, words)])


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    made = class_of(tmp_path / "RUN", [ending(GPU, "softmax", "lengths", "1x1", "failed"), GPU])
    made.student("lazy")
    return made


def test_a_complaint_from_its_first_look_to_the_new_grade(made: MadeClass) -> None:
    run = made.folder.path
    looked = typed("show", run, "First0 Last0")
    assert looked.exit_code == 0, looked.output
    assert "grade: 98 of 100 points by attempt 1" in looked.output
    asked = typed("regrade", run, "s0", "lazy", "--reason", "complaint", "--by", "ta")
    assert "one attempt more of 1 hand-in: grader class run" in asked.output
    assert "nothing was handed in by 1: lazy" in asked.output
    made.attempt(made.students[0], GPU)
    assert "1x1: failed → passed" in typed("diff", run).output
    assert "1x1: passed → failed" in typed("diff", run, "--from", 2, "--to", 1).output
    counted = typed("decide", run, "s0", "--counts", "1", "--reason", "as agreed")
    assert "grade: 98 of 100 points by attempt 1" in counted.output
    decided = typed("decide", run, "s0", "--points", "99.5", "--reason", "half of it", "--by", "ta")
    assert "s0 (First0 Last0): 20" in decided.output
    assert "grade: 99.5 points by decision instead of 98 of 100" in decided.output
    assert "in all" not in decided.output
    assert "there are 100 points in all" in typed("decide", run, "s1", "--points", "995", "--reason", "x").output
    assert "grade: 98 of 100" in typed("decide", run, "s0", "--withdraw", "--reason", "no").output
    kinds = [(one.kind, one.who, one.by == "ta") for one in made.folder.decisions()]
    assert kinds == [
        ("regrade", "s0", True),
        ("counts", "s0", False),
        ("points", "s0", True),
        ("points", "s1", False),
        ("points", "s0", False),
    ]


def test_the_whole_class_is_graded_again(made: MadeClass) -> None:
    assert (
        "one attempt more of 2 hand-ins"
        in typed("regrade", made.folder.path, "--all", "--reason", "a new course").output
    )
    assert [one.who for one in made.folder.decisions()] == ["s0", "s1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "RUN", "nobody"), "no student has the key, name, email or id 'nobody'"),
        (("show", "RUN", "First"), "email or id 'First'; there is s0 (First0 Last0) or s1 (First1 Last1)"),
        (("show", "elsewhere", "s0"), "there is no such folder; `grader class new` makes the folder"),
        (("decide", "RUN", "s0", "--reason", "x"), "one of --points, --counts and --withdraw is wanted"),
        (("decide", "RUN", "s0", "--points", "1", "--withdraw", "--reason", "x"), "one of --points, --counts and"),
        (("decide", "RUN", "s0", "--points", "nan", "--reason", "x"), "a number from 0 on is wanted"),
        (("decide", "RUN", "s0", "--counts", "worst", "--reason", "x"), "latest, best or an attempt's number"),
        (("decide", "RUN", "s0", "--counts", "0", "--reason", "x"), "latest, best or an attempt's number"),
        (("decide", "RUN", "s0", "--counts", "9", "--reason", "x"), "attempt 9 has no report; attempts with one: 1"),
        (("decide", "RUN", "s0", "--points", "1", "--reason", " "), "a reason is wanted"),
        (
            ("decide", "RUN", "s0", "--withdraw", "--reason", "x"),
            "s0 (First0 Last0): there is no override to take back",
        ),
        (("decide", "RUN", "lazy", "--counts", "best", "--reason", "x"), "nothing was handed in, so no attempt can"),
        (("regrade", "RUN", "lazy", "--reason", "x"), "nothing was handed in by them"),
        (("decide", "RUN", "s0", "--points", "1"), "--reason"),
        (("regrade", "RUN", "--reason", "x"), "name students, or the whole class by --all"),
        (("regrade", "RUN", "s0", "--all", "--reason", "x"), "name students, or the whole class by --all"),
        (("regrade", "RUN", "s0", "nobody", "--reason", "x"), "'nobody'"),
        (("leaderboard", "RUN", "--csv", "--markdown"), "one of --markdown and --csv is wanted"),
        (("export", "RUN", "excel"), "excel"),
        (("export", "RUN", "canvas"), "canvas needs the CSV file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_2(
    made: MadeClass, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(made.folder.path.parent)
    ended = typed(*words)
    assert ended.exit_code == 2
    assert told in ended.output
    assert made.folder.decisions() == []


def test_exports_and_boards_are_written(made: MadeClass) -> None:
    run = made.folder.path
    written = typed("export", run, "csv", "--into", run.parent / "g.csv")
    assert written.exit_code == 0, written.output
    assert f"{run.parent / 'g.csv'}: 2 students with a grade; 1 without: nothing was handed in" in written.output
    assert (run.parent / "g.csv").read_text(encoding="utf-8-sig").startswith("key,name,email,points")
    assert "the machine's limit" in typed("leaderboard", run).output
    assert typed("leaderboard", run, "--markdown").output.startswith("## GeLU in CUDA C++, on NVIDIA H100")
    assert typed("leaderboard", run, "--csv").output.startswith("gpu,part,sizes,baseline,rank,name,speedup,low,high\n")


@pytest.mark.parametrize("form", [(), ("--markdown",), ("--csv",)])
def test_a_board_without_a_speed_says_so_beside_what_is_redirected(tmp_path: Path, form: tuple[str, ...]) -> None:
    told = typed("leaderboard", class_of(tmp_path / "RUN", []).folder.path, *form)
    assert told.stderr == "note: no report has a measured speed: speed needs a GPU\n"
    assert "note" not in told.stdout


def test_a_board_without_students_says_why(made: MadeClass) -> None:
    """A new TA's roster has no aliases."""
    words = "note: no student has an alias: the roster's column `alias` says who is listed, and under which name\n"
    assert typed("leaderboard", made.folder.path, "--csv").stderr == words
    made.student("zoe", alias="Z")
    assert typed("leaderboard", made.folder.path, "--csv").stderr == ""


# What is shown of one student -----------------------------------------------------------------------------------------


def shown(made: MadeClass, at: int) -> str:
    text = io.StringIO()
    show(Grades(made.folder), made.students[at], Console(file=text, width=160, force_terminal=False))
    return text.getvalue()


def test_a_student_is_shown_with_report_attempts_and_decisions(tmp_path: Path) -> None:
    made = MadeClass(tmp_path / "RUN")
    ada = made.student(
        "ada", files=softmax(1), name="Ada [bold]L\x1b[2J", ids={"email": "a@x"}, late=True, notes=("it came twice",)
    )
    made.attempt(ada, ending(GPU, "softmax", "lengths", "1x1", "failed"))
    made.attempt(ada, None, fault="no [red]GPU", exit_code=3)
    made.decide(ada.model_copy(update={"handin": "0" * 16}), "counts", counts=7)
    made.decide(ada, "points", points=99, reason="[link=x]agreed")
    other = made.student("bob")
    made.decide(other, "points", points=1, reason="another's")
    page = made.folder.tasks(ada.handin) / "attempt.1" / "report.html"
    page.write_text("a page")
    text = shown(made, 0)
    assert "Score  98 of 100 points graded in this run" in text
    assert "ada  Ada [bold]L\N{REPLACEMENT CHARACTER}[2J  email a@x  late" in text
    assert "note: it came twice" in text
    assert "grade: 99 points by decision instead of 98 of 100 points by attempt 1: [link=x]agreed" in text
    attempts = [line.split() for line in text.splitlines() if line.startswith(("1  ", "2  "))]
    assert attempts[0][3:] == ["98", "of", "100", "graded", "node", "gpu", "counts"]
    assert attempts[1][3:] == ["node", "gpu", "no", "[red]GPU"]
    assert "ta: attempt 7 counts: so (of an earlier hand-in)" in text
    assert "ta: 99 points instead of the graded ones: [link=x]agreed\n" in text
    assert "another's" not in text
    assert f"page: {page}\n" in text


def test_a_student_without_a_grade_is_shown(tmp_path: Path) -> None:
    made = MadeClass(tmp_path / "RUN")
    made.student("ada")
    made.attempt(made.student("bob", files=softmax(1)), None, fault="there is no softmax.py", exit_code=2)
    assert shown(made, 0) == "ada  \ngrade: none: nothing was handed in\n"
    assert "grade: none: unusable submission: there is no softmax.py\n" in shown(made, 1)
