"""The state of a hand-in, from its attempts and from what people decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.model import Attempt, Decision, Student, Students
from grader.classroom.task import Task, chosen, read_tasks
from tests.support.gradings import AT

A, B, C = "a" * 16, "b" * 16, "c" * 16


def attempts(letters: str) -> tuple[Attempt, ...]:
    """By letter: graded, unusable, spoilt (exit code 3), killed, no report (0 with a fault)."""
    ways = {"g": (0, ""), "u": (2, "is empty"), "s": (3, "no memory"), "k": (-9, "was killed"), "n": (0, "no report")}
    return tuple(
        Attempt(number=number, started=AT, ended=AT, exit_code=ways[one][0], place="node cpu", fault=ways[one][1])
        for number, one in enumerate(letters, 1)
    )


@pytest.mark.parametrize(
    ("letters", "wanted", "state"),
    [
        ("", 1, "left"),
        ("g", 1, "graded"),
        ("u", 1, "unusable"),
        ("s", 1, "left"),
        ("sk", 1, "left"),
        ("skn", 1, "failed"),
        ("sng", 1, "graded"),
        ("ssu", 1, "unusable"),
        ("g", 2, "left"),
        ("gg", 2, "graded"),
        ("ug", 2, "graded"),
        ("gu", 2, "unusable"),
        ("ssg", 2, "left"),
        ("ssgss", 2, "left"),
        ("ssgsss", 2, "failed"),
        ("sss", 2, "left"),
        ("ssss", 2, "left"),
        ("ssssss", 2, "failed"),
        ("sssg", 2, "left"),
        ("sssgg", 2, "graded"),
    ],
)
def test_state(letters: str, wanted: int, state: str) -> None:
    assert Task(A, ("alice",), wanted, attempts(letters)).state == state


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    students = [("dora", B), ("alice", A), ("bob", ""), ("carl", A)]
    made = RunFolder(tmp_path)
    made.write(Students(students=tuple(Student(key=key, handin=handin) for key, handin in students)))
    return made


def test_a_hand_in_of_several_students_is_one_task(folder: RunFolder) -> None:
    assert [(one.handin, one.students, one.wanted) for one in read_tasks(folder)] == [
        (B, ("dora",), 1),
        (A, ("alice", "carl"), 1),
    ]


def test_regrades_of_a_hand_in_are_counted(folder: RunFolder) -> None:
    for who, kind, handin in [
        ("alice", "regrade", A),
        ("carl", "regrade", A),
        ("alice", "points", A),
        ("dora", "regrade", C),
    ]:
        folder.decide(Decision(at=AT, by="ta", who=who, kind=kind, reason="", handin=handin))  # type: ignore[arg-type]
    assert {one.handin: one.wanted for one in read_tasks(folder)} == {B: 1, A: 3}


def test_attempts_are_read_from_the_files(folder: RunFolder) -> None:
    for one in attempts("sg"):
        path = folder.tasks(A) / f"attempt.{one.number}"
        path.mkdir(parents=True)
        (path / "attempt.json").write_text(one.model_dump_json())
    (folder.tasks(A) / ".attempt.3-cut-off").mkdir()
    assert {one.handin: one.state for one in read_tasks(folder)} == {B: "left", A: "graded"}


def test_some_are_chosen_by_hand_in_or_student(folder: RunFolder) -> None:
    tasks, students = read_tasks(folder), folder.students().students
    assert [one.handin for one in chosen(tasks, (), students)] == [B, A]
    assert [one.handin for one in chosen(tasks, ["carl"], students)] == [A]
    assert [one.handin for one in chosen(tasks, [A, "dora"], students)] == [B, A]
    assert [one.handin for one in chosen(tasks, ["CARL"], students)] == [A], "as `grader class show` finds a student"
    with pytest.raises(ClassError, match="bob: no hand-in that counts"):
        chosen(tasks, ["bob", "carl"], students)
    with pytest.raises(
        ClassError, match="nobody: no hand-in that counts; no student has the key, name, email or id 'nobody'"
    ):
        chosen(tasks, ["nobody"], students)


def test_words_name_the_first_students() -> None:
    assert Task(A, ("a", "b", "c"), 1).words == "a, b, c"
    assert Task(A, ("a", "b", "c", "d", "e"), 1).words == "a, b, c and 2 more"
