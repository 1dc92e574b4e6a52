"""Writes the index of a class: the counting report of each hand-in, under the names of its students."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grader.classroom.decisions import told
from grader.classroom.folder import RunFolder
from grader.classroom.grades import Grade, Grades
from grader.classroom.model import Decision
from grader.classroom.people import shown
from grader.report.folder import Named, show_named
from grader.report.index import Override
from grader.report.json_file import REPORT
from grader.report.style import first_of

MAX_NAMES = 4


def is_class(folder: Path) -> bool:
    return (folder / "run.json").is_file() and (folder / "students.json").is_file()


def show_class(folder: RunFolder, output: Path, redact: bool, tell: Callable[[str], None]) -> tuple[Path, int]:
    """Write the pages of the reports that count, and their index. Raises ClassError, OSError; otherwise as `show_named`."""
    return show_named(named(Grades(folder)), folder.path, output, redact, tell)


def named(grades: Grades) -> list[Named]:
    """The reports that count, each with the names of its students. Students who share a hand-in may count different
    attempts, or have their points by a decision.
    """
    rows: dict[tuple[str, int, Decision | None], list[Grade]] = {}
    for grade in grades:
        if grade.student.handin or grade.override:
            number = grade.counting.number if grade.counting else 0
            rows.setdefault((grade.student.handin, number, grade.override), []).append(grade)
    return [
        Named(
            first_of([shown(one.student) for one in each], MAX_NAMES),
            each[0].counting.folder / REPORT if each[0].counting else None,
            each[0].missing,
            _override(by),
        )
        for (_, _, by), each in rows.items()
    ]


def _override(decision: Decision | None) -> Override | None:
    return Override(decision.points or 0, told(decision)) if decision else None
