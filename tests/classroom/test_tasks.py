"""The state of a hand-in, from its attempts and from what people decided."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from grader.classroom.folder import NOTHING, ClassError, Decision, RunFolder, Student, Students
from grader.classroom.lock import NAME, lock
from grader.classroom.tasks import Task, duration, print_status, read_tasks
from tests.support.gradings import AT, attempted

A, B, C = "a" * 16, "b" * 16, "c" * 16


# Exit code and fault of an attempt: graded, unusable, spoilt, killed, and one without a report.
WAYS = {
    "g": (0, ""),
    "u": (2, "is empty"),
    "s": (3, "no memory \x1b[31m[b]"),
    "k": (-9, "was killed"),
    "n": (0, "no report"),
}


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
def test_state(letters: str, wanted: int, state: str, tmp_path: Path) -> None:
    attempts = [attempted(RunFolder(tmp_path), A, number, *WAYS[one]) for number, one in enumerate(letters, 1)]
    assert Task(A, ("alice",), wanted, tuple(attempts)).state == state


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


def test_some_are_chosen_by_hand_in_or_student(folder: RunFolder) -> None:
    assert [one.handin for one in read_tasks(folder, ["carl"])] == [A]
    assert [one.handin for one in read_tasks(folder, [A, "dora"])] == [B, A]
    assert [one.handin for one in read_tasks(folder, ["CARL"])] == [A], "as `grader class show` finds a student"
    with pytest.raises(ClassError, match="bob: no hand-in that counts"):
        read_tasks(folder, ["bob", "carl"])
    with pytest.raises(ClassError, match="nobody: no hand-in that counts; no student has the key, name, email or id"):
        read_tasks(folder, ["nobody"])


# The status -----------------------------------------------------------------------------------------------------------


def shown(folder: RunFolder) -> list[str]:
    output = io.StringIO()
    print_status(folder, Console(file=output, width=100, highlight=False, _environ={}))
    return output.getvalue().splitlines()


def test_the_status_tells_states_faults_and_who_has_no_hand_in(folder: RunFolder) -> None:
    (folder.path / "students.json").unlink()
    keys = ("anna", "bert", "carl", "dora", "emil")
    students = [Student(key=key, handin=f"{number:016x}") for number, key in enumerate(keys)]
    students += [Student(key="nina"), Student(key="otto", notes=("x.png: ignored", NOTHING))]
    folder.write(Students(students=tuple(students)))
    assert shown(folder) == ["5 hand-ins: 5 left", "  handed in nothing: nina", f"  {NOTHING}: otto"]
    for student, letters in zip(students, ("g", "u", "sss", "sg", ""), strict=False):
        for number, letter in enumerate(letters, 1):
            attempted(folder, student.handin, number, *WAYS[letter])
    asked = Decision(at=AT, by="ta", who="anna", kind="regrade", reason="", handin=students[0].handin)
    folder.decide(asked)
    fault = "on node7 cpu: no memory \N{REPLACEMENT CHARACTER}[31m[b]"
    assert shown(folder)[:-2] == [
        "5 hand-ins: 1 graded, 1 cannot be graded, 1 failed: the machine spoilt 3 attempts, 2 left",
        "  cannot be graded: bert: is empty",
        *(f"  fault of the machine: carl, attempt {number} {fault}" for number in (1, 2, 3)),
        f"  fault of the machine: dora, attempt 1 {fault}",
    ]


def test_the_status_tells_what_another_process_grades_and_not_what_a_killed_one_left(folder: RunFolder) -> None:
    for one in (A, B):
        (folder.tasks(one) / ".attempt.1-x").mkdir(parents=True)
    path = folder.tasks(B) / NAME
    code = f"from pathlib import Path; from grader.classroom.lock import lock; c = lock(Path({str(path)!r}), 'node3 GPU-7')"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(1, flush=True); input()"], stdin=-1, stdout=-1
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        assert [line for line in shown(folder) if "running" in line] == ["  running: dora on node3 GPU-7 for 0 s"]
        assert lock(path) is None  # the look took nothing away, and gave nothing
        other.kill()
    assert "running" not in " ".join(shown(folder))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (119, "119 s"), (120, "2 min"), (3569, "59 min"), (3600, "1 h 0 min"), (7530, "2 h 6 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
