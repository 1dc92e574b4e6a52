"""Shows what is known: of one student, on a terminal; of a class, as an index with a page for each report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grader.classroom.folder import Decision, RunFolder, Student
from grader.classroom.grades import NOTHING_HANDED_IN, Grade, Grades, number, told
from grader.classroom.roster import shown
from grader.report.folder import Named, show_named
from grader.report.index import Override
from grader.report.json_file import PAGE, REPORT, read_report
from grader.report.style import first_of, plain
from grader.report.terminal import print_report

MAX_NAMES = 4  # of a row


def show(grades: Grades, student: Student, console: Console, verbose: bool = False) -> None:
    """Print the report that counts, the grade, the attempts and the decisions. Raises ClassError, ReportError."""
    grade = grades.of(student)
    if grade.counting is not None:
        print_report(read_report(grade.counting.folder / REPORT), console, verbose)
    ids = "".join(f"  {kind} {value}" for kind, value in student.ids.items())
    console.print(
        plain(f"{student.key}  {student.name}{ids}{'  late' if student.late else ''}", "bold"), soft_wrap=True
    )
    for words in student.notes:
        console.print(plain(f"note: {words}", "yellow"), soft_wrap=True)
    console.print(plain(f"grade: {told_grade(grade)}"), soft_wrap=True)
    if student.handin:
        console.print(plain(f"hand-in: {grades.folder.handins / student.handin}"), soft_wrap=True)
        table = Table("attempt", "ended", "points", "on", "", box=None, pad_edge=False)
        for column in table.columns:
            column.overflow = "fold"
        for one in grades.ended(student.handin):
            points = "" if one.points is None else f"{number(one.points.earned)} of {number(one.points.graded)} graded"
            words = "; ".join(filter(None, ["counts" if one == grade.counting else "", one.fault]))
            ended = f"{one.attempt.ended:%Y-%m-%d %H:%M}"
            table.add_row(str(one.number), ended, points, plain(one.attempt.place), plain(words))
        console.print(table)
    for decision in grades.decisions:
        if decision.who == student.key:
            void = "" if decision.handin in ("", student.handin) else " (of an earlier hand-in)"
            console.print(plain(f"decision: {told(decision)}{void}"), soft_wrap=True)
    if grade.counting is not None and (page := grade.counting.folder / PAGE).is_file():
        console.print(plain(f"page: {page}"), soft_wrap=True)


def told_grade(grade: Grade) -> str:
    """A grade in a sentence."""
    graded = ""
    if grade.counting is not None and grade.points is not None:
        graded = f"{number(grade.points.earned)} of {number(grade.points.possible)} points by attempt {grade.counting.number}"
    if grade.override is not None:
        instead = f" instead of {graded}" if graded else ""
        return f"{number(grade.earned or 0)} points by decision{instead}: {grade.override.reason}"
    return ", ".join(filter(None, [graded, grade.why])) if graded else f"none: {grade.why}"


def is_class(folder: Path) -> bool:
    return (folder / "run.json").is_file() and (folder / "students.json").is_file()


def show_class(folder: RunFolder, output: Path, redact: bool, tell: Callable[[str], None]) -> tuple[Path, int]:
    """Write the pages of the reports that count, and their index. Raises ClassError, OSError; otherwise as `show_named`."""
    return show_named(named(Grades(folder)), folder.path, output, redact, tell)


def named(grades: Grades) -> list[Named]:
    """The reports that count, each with the names of its students, and a row for each who handed in nothing. Students who
    share a hand-in may count different attempts, or have their points by a decision.
    """
    rows: dict[tuple[str, int, Decision | None], list[Grade]] = {}
    for grade in grades:
        number = grade.counting.number if grade.counting else 0
        rows.setdefault((grade.student.handin or grade.student.key, number, grade.override), []).append(grade)
    return [
        Named(
            first_of([shown(one.student) for one in each], MAX_NAMES),
            each[0].counting.folder / REPORT if each[0].counting else None,
            each[0].missing,
            Override(by.points or 0, told(by)) if by else None,
            "open: no report" if each[0].student.handin else NOTHING_HANDED_IN,
        )
        for (_, _, by), each in rows.items()
    ]
