"""Writes the index of a class: the counting report of each hand-in, under the names of its students."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grader.classroom.folder import RunFolder
from grader.classroom.grades import Grade, Grades
from grader.classroom.people import shown
from grader.report.folder import Named, show_named
from grader.report.json_file import REPORT

MAX_NAMES = 4


def is_class(folder: Path) -> bool:
    return (folder / "run.json").is_file() and (folder / "students.json").is_file()


def show_class(folder: RunFolder, output: Path, redact: bool, tell: Callable[[str], None]) -> tuple[Path, int]:
    """Write the pages of the reports that count, and their index. Raises ClassError, OSError; otherwise as `show_named`."""
    return show_named(named(Grades(folder)), folder.path, output, redact, tell)


def named(grades: Grades) -> list[Named]:
    """The reports that count, each with the names of its students. Students who share a hand-in may count different
    attempts.
    """
    rows: dict[tuple[str, int], list[Grade]] = {}
    for grade in grades:
        if grade.student.handin:
            rows.setdefault((grade.student.handin, grade.counting.number if grade.counting else 0), []).append(grade)
    return [
        Named(_names(each), each[0].counting.folder / REPORT if each[0].counting else None, each[0].missing)
        for each in rows.values()
    ]


def _names(grades: list[Grade]) -> str:
    names = [shown(one.student) for one in grades]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
