"""Folders of classes, made from the reports in docs/sample: who handed in what, how often it was graded, and what it came to."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from grader.classroom.folder import Attempt, ClassRun, Decision, RunFolder, Student, Students
from grader.classroom.lookup import content_hash
from grader.report.model import UNDECIDED, AssignmentResult, Outcome, Points, Report
from tests.conftest import ROOT

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
WANTED = ("flash_attention.py", "gelu.cu", "softmax.py", "triton_gelu.py")


@functools.cache
def sample(name: Literal["gpu", "cpu", "wrong"]) -> Report:
    return Report.model_validate_json((ROOT / "docs" / "sample" / name / "report.json").read_bytes())


def summed(report: Report, assignments: Iterable[AssignmentResult]) -> Report:
    """The report with these assignments, and the points that they add up to."""
    parts = [part for one in assignments for part in one.parts]
    correctness = Points.total(part.points for part in parts)
    speed = Points.total(part.speed.points for part in parts)
    whole = report.model_copy(
        update={
            "assignments": tuple(assignments),
            "correctness": correctness,
            "speed": speed,
            "score": Points.total([correctness, speed]),
        }
    )
    return Report.model_validate(whole.model_dump())


def with_part(report: Report, part: str, edit: Callable[[dict[str, Any]], object]) -> Report:
    """The report after an edit of a part of that name, as `softmax`, and its groups' points added up anew."""
    assignments = report.model_dump()["assignments"]
    for one in (each for assignment in assignments for each in assignment["parts"] if each["name"] == part):
        edit(one)
        one["points"] = Points.total(Points(**group["points"]) for group in one["groups"])
        one["speed"]["points"] = Points.total(Points(**case["points"]) for case in one["speed"]["cases"])
    return summed(report, [AssignmentResult.model_validate(one) for one in assignments])


def named(parts: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """The group or case of that name."""
    return next(one for one in parts if one["name"] == name)


def ending(report: Report, part: str, group: str, case: str, outcome: Outcome, message: str = "wrong at [0]") -> Report:
    """The report with a case that ended otherwise; its group loses its points, or has them open."""

    def edit(one: dict[str, Any]) -> None:
        its = named(one["groups"], group)
        named(its["cases"], case).update(outcome=outcome, message=message)
        its["points"].update(earned=0, graded=0 if outcome in UNDECIDED else its["points"]["possible"])

    return with_part(report, part, edit)


def faster(report: Report, part: str, factor: float, **measured: object) -> Report:
    """The report with all speed-ups of a part multiplied, and other fields of its measurements."""

    def edit(one: dict[str, Any]) -> None:
        for case in one["speed"]["cases"]:
            case["measured"].update(measured)
            for speedup in filter(None, (each["speedup"] for each in case["measured"]["entrants"])):
                speedup.update({end: value * factor for end, value in speedup.items()})

    return with_part(report, part, edit)


class MadeClass:
    """A class in a folder; hand-ins and attempts are added to it."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.students: list[Student] = []
        self._minutes = 0
        path.mkdir(parents=True)
        self.folder.write(ClassRun(made=START, grader="1", fingerprint="f" * 64, seed=7))
        self.folder.write(Students(students=()))

    def student(self, key: str, *, files: dict[str, str] | None = None, handin: str = "", **fields: object) -> Student:
        """Add a student with these files; without files, or a hand-in that is there, nothing was handed in."""
        if files is not None:
            draft = self.folder.path / "draft"
            for name, text in files.items():
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                (draft / name).write_text(text)
            handin = content_hash(draft, WANTED, ())[:16]
            shutil.copytree(draft, self.folder.handins / handin, dirs_exist_ok=True)
            shutil.rmtree(draft)
        student = Student.model_validate({"key": key, "handin": handin, **fields})
        self.students.append(student)
        self.folder.write(Students(students=tuple(self.students)))
        return student

    def later(self) -> datetime:
        """A moment after all others."""
        self._minutes += 10
        return START + timedelta(minutes=self._minutes)

    def attempt(self, student: Student, report: Report | None, *, fault: str = "", exit_code: int = 0) -> int:
        """Add an ended attempt; return its number."""
        number = len(self.folder.attempts(student.handin)) + 1
        path = self.folder.tasks(student.handin) / f"attempt.{number}"
        path.mkdir(parents=True)
        ended = self.later()
        attempt = Attempt(
            number=number,
            started=ended - timedelta(minutes=1),
            ended=ended,
            exit_code=exit_code,
            place="node gpu",
            fault=fault,
        )
        (path / "attempt.json").write_text(attempt.model_dump_json())
        if report is not None:
            (path / "report.json").write_text(report.model_dump_json())
        return number

    def decide(self, student: Student, kind: Literal["points", "counts", "regrade"], **fields: object) -> None:
        decision = {
            "at": self.later(),
            "by": "ta",
            "who": student.key,
            "kind": kind,
            "reason": "so",
            "handin": student.handin if kind != "points" else "",
        }
        self.folder.decide(Decision.model_validate({**decision, **fields}))


def softmax(version: object) -> dict[str, str]:
    """A hand-in of one file; each version is another hand-in."""
    return {"softmax.py": f"VERSION = {version!r}\n"}


def class_of(path: Path, reports: Sequence[Report | None]) -> MadeClass:
    """Students `s0`, `s1`, ... with a hand-in of their own each, graded once with these reports; None: not graded yet."""
    made = MadeClass(path)
    for number, report in enumerate(reports):
        student = made.student(f"s{number}", files=softmax(number), name=f"First{number} Last{number}")
        if report is not None:
            made.attempt(student, report)
    return made
