"""What the terminal shows of one student."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from grader.classroom.grades import Grades
from grader.classroom.record import show
from tests.support.classes import MadeClass, ending, sample, softmax

GPU = sample("gpu")


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    return MadeClass(tmp_path / "RUN")


def shown(made: MadeClass, at: int = 0) -> str:
    text = io.StringIO()
    show(Grades(made.folder), made.students[at], Console(file=text, width=160, force_terminal=False))
    return text.getvalue()


def test_a_student_is_shown_with_report_attempts_and_decisions(made: MadeClass) -> None:
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
    text = shown(made)
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


def test_a_student_without_a_grade_is_shown(made: MadeClass) -> None:
    made.student("ada")
    made.attempt(made.student("bob", files=softmax(1)), None, fault="there is no softmax.py", exit_code=2)
    assert shown(made) == "ada  \ngrade: none: nothing was handed in\n"
    assert "grade: none: unusable submission: there is no softmax.py\n" in shown(made, 1)
