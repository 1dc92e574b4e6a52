"""`grader class run` in its order: refusals before anything is graded, what is graded, what is told at the end."""

from __future__ import annotations

import errno
import fcntl
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from grader.assignment import CourseError
from grader.classroom import grading
from grader.classroom.dispatch import Options
from grader.classroom.folder import ClassError
from grader.classroom.running import grade_class
from grader.nvidia import ListedGpu
from grader.sandbox.base import InfraError
from tests.conftest import Course
from tests.support.gradings import Scripted


class Room:
    """A class, and a machine with the given GPUs."""

    def __init__(self, folder: Path, course: Path) -> None:
        self.folder = folder
        self.course = course
        self.output = io.StringIO()
        self.gpus: list[ListedGpu] = []

    def make(self, scripts: dict[str, str], **fields: object) -> Scripted:
        return Scripted(self.folder, self.course, scripts, **fields)

    def grade(self, made: Scripted, **options: object) -> bool:
        console = Console(file=self.output, width=200, highlight=False)
        options = {"command": made.command, "found": lambda: self.gpus, "locks": self.folder} | options
        return grade_class(made.run, console, Options(**options))  # type: ignore[arg-type]


@pytest.fixture
def room(tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch) -> Room:
    course.add("double")
    monkeypatch.setattr(grading, "clean_up", lambda: "")
    return Room(tmp_path, course.folder)


def test_a_class_is_graded_and_told(room: Room) -> None:
    room.gpus = [ListedGpu("GPU-1", "H100"), ListedGpu("GPU-2", "H100")]
    made = room.make({"alice": "graded_on H100", "bob": "graded_on H100; true", "nina": ""})
    assert room.grade(made)
    assert room.output.getvalue().splitlines()[-1] == "2 hand-ins: 2 graded"
    assert re.search(r"^alice: graded in \d+ s on \S+ GPU-\d$", room.output.getvalue(), re.MULTILINE)
    assert room.grade(made)
    assert len(made.started) == 2


def test_one_task_alone(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    assert room.grade(made, only=("bob",))
    assert [handin for handin, _ in made.started] == [made.handin("bob")]
    assert room.output.getvalue().splitlines()[-1] == "1 hand-in: 1 graded"
    with pytest.raises(ClassError, match="zoe: no hand-in that counts; no student"):
        room.grade(made, only=("zoe",))


def test_one_gpu_alone(room: Room) -> None:
    room.gpus = [ListedGpu("GPU-1", "H100"), ListedGpu("GPU-2", "T4")]
    made = room.make({name: f"true {name}; graded_on T4" for name in ("alice", "bob")})
    with pytest.raises(ClassError, match=r"several models \(H100, T4\)"):
        room.grade(made)
    room.grade(made, gpus=("GPU-2",))
    assert {gpu for _, gpu in made.started} == {"GPU-2"}


def test_grades_that_the_machine_spoilt_for_good_are_a_fault_of_the_machine(room: Room) -> None:
    made = room.make({"alice": "spoilt 'no memory'", "bob": "graded"})
    assert not room.grade(made)
    assert "attempt 3 was spoilt on" in room.output.getvalue()
    assert room.output.getvalue().splitlines()[-1].endswith("1 graded, 1 failed: the machine spoilt 3 attempts")


def test_a_limited_run_tells_that_the_machine_spoilt_its_grading(room: Room) -> None:
    """A cluster starts the task again then, on another node."""
    made = room.make({"alice": "once && spoilt 'no memory'; graded"})
    assert not room.grade(made, limit=1)
    assert room.output.getvalue().splitlines()[-1] == "1 hand-in: 1 left"
    assert room.grade(made, limit=1)


def test_the_tally_is_told_when_a_run_ends_early(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; spoilt 'no CUDA'" for number in range(4)})
    with pytest.raises(InfraError, match="nothing is left to grade on"):
        room.grade(made)
    assert room.output.getvalue().splitlines()[-1] == "4 hand-ins: 4 left"


def test_another_machine_is_refused_or_told(room: Room) -> None:
    made = room.make({"alice": "graded_on H100", "bob": "graded_on H200; true"})
    room.gpus = [ListedGpu("GPU-1", "H100")]
    room.grade(made, limit=1)
    room.gpus = [ListedGpu("GPU-1", "H200")]
    with pytest.raises(ClassError, match=r"graded on H100 so far, and this is H200\. .*--anyway"):
        room.grade(made)
    assert len(made.started) == 1
    room.grade(made, anyway=True)
    assert "warning: the class has been graded on H100 so far, and this is H200" in room.output.getvalue()
    assert room.output.getvalue().splitlines()[-1] == "2 hand-ins: 2 graded"


def test_another_machine_is_refused_before_its_first_grading(room: Room) -> None:
    """Where another machine's first grading has just ended, or was cut off after it completed run.json."""
    made = room.make({"alice": "graded_on H200"}, gpu="H100")
    room.gpus = [ListedGpu("GPU-1", "H200")]
    with pytest.raises(ClassError, match="and this is H200"):
        room.grade(made)
    assert made.started == []


def test_another_grader_is_refused_or_told(room: Room) -> None:
    made = room.make({"alice": "graded"}, grader="0.0.9")
    with pytest.raises(ClassError, match=r"made by grader 0\.0\.9"):
        room.grade(made)
    assert made.started == []
    assert room.grade(made, anyway=True)


def test_a_class_on_the_cpu_asks_no_driver(room: Room) -> None:
    def sick() -> list[ListedGpu]:
        raise OSError("NVIDIA's driver does not answer")

    with pytest.raises(OSError, match="does not answer"):
        room.grade(room.make({"alice": "graded"}), found=sick)
    again = Room(room.folder / "again", room.course)
    again.folder.mkdir()
    assert again.grade(again.make({"alice": "graded"}, device="cpu"), found=sick)


def test_a_class_that_cannot_be_graded_is_refused_at_once(room: Room) -> None:
    made = room.make({"alice": "graded"}, assignments=("nothing",))
    with pytest.raises(CourseError, match="nothing"):
        room.grade(made)
    assert made.started == []


def test_a_hand_in_without_its_files_is_no_empty_hand_in(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    lost = made.run.handins / made.handin("bob")
    lost.rename(room.folder / "elsewhere")
    with pytest.raises(ClassError, match=f"{lost.name}: the files of a hand-in that counts are not there"):
        room.grade(made)
    assert room.grade(made, only=("alice",))


def test_without_locks_a_run_is_refused_or_told(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    made = room.make({"alice": "graded"})

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ClassError, match="without locks"):
        room.grade(made)
    assert made.started == []
    assert room.grade(made, anyway=True)
    assert "lies on a file system without locks: see to it that one run alone is at work" in room.output.getvalue()
    assert len(made.attempts("alice")) == 1


def test_what_killed_runs_left_is_removed_though_nothing_is_left_to_grade(room: Room) -> None:
    made = room.make({"alice": "graded"})
    room.grade(made)
    (made.run.tasks(made.handin("alice")) / ".attempt.2-killed").mkdir()
    room.grade(made)
    assert made.leftovers == []


def test_a_machine_that_cannot_be_cleaned_is_told(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "clean_up", lambda: "`grader cleanup`: no daemon")
    assert room.grade(room.make({"alice": "graded"}))
    assert "warning: `grader cleanup`: no daemon" in room.output.getvalue()
