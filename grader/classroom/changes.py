"""Compares two attempts at each hand-in: the students whose points changed, and the cases that changed them.

The course may have changed between the attempts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from grader.classroom.folder import Student
from grader.classroom.grades import Ended, Grades, changes_of_counting, number
from grader.classroom.roster import shown
from grader.report.json_file import REPORT, read_report
from grader.report.model import Points, Report
from grader.report.style import first_of

ABSENT = "not there"
MAX_CASES = 10  # that are counted at the end


@dataclass(frozen=True)
class GroupChange:
    """A group of cases, or a speed case, whose points changed; a report without it has None.

    cases: title, and how the case ended before and after, of each that ended differently.
    """

    title: str
    before: Points | None
    after: Points | None
    cases: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class _Scored:
    """The points and the ends of the cases of a group, or of a speed case."""

    title: str
    points: Points
    cases: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # by name: title, outcome, words after it


def differences(grades: Grades, start: int | None = None, to: int | None = None) -> tuple[list[str], list[str]]:
    """Compare the attempt that counted before with the attempt that counts now. Raises ReportError.

    Args:
        start, to: numbers of attempts to compare instead.

    Returns:
        The differences in lines, and sentences about attempts that cannot be compared.
    """
    lines: list[str] = []
    missing: dict[str, list[str]] = {}
    by_case: Counter[str] = Counter()
    changed = same = 0
    for student in grades.students:
        pair = _pair(grades, student, start, to)
        if isinstance(pair, str):
            missing.setdefault(pair, []).append(student.key)
            continue
        before, after = pair
        groups = compared(read_report(before.folder / REPORT), read_report(after.folder / REPORT))
        if before.points == after.points and not groups:
            same += 1
            continue
        changed += 1
        held = "; the override holds" if grades.of(student).override is not None else ""
        attempts = f"attempt {before.number} → {after.number}"
        lines.append(f"{shown(student)}: {_told(before.points)} → {_told(after.points)} points ({attempts}{held})")
        for group in groups:
            lines.append(f"  {group.title}: {_told(group.before)} → {_told(group.after)}")
            lines += [f"    {title}: {was} → {now}" for title, was, now in group.cases]
            lines += ["    each case ended as before: the course gives other points"] * (not group.cases)
            by_case.update(f"{group.title}: {title}" for title, _, _ in group.cases)
    most = sorted(by_case.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_CASES]
    lines += [f"{count} students: {name}" for name, count in most if count > 1]
    lines.append(f"{changed} changed, {same} the same; students with one attempt are not compared")
    return lines, [f"{why}: {first_of(keys)}" for why, keys in missing.items() if why]


def _pair(grades: Grades, student: Student, start: int | None, to: int | None) -> tuple[Ended, Ended] | str:
    """The two attempts to compare; or a sentence about a missing one, "" if a student has had only one that counts."""
    attempts = grades.ended(student.handin)
    by_number = {one.number: one for one in attempts if one.points}
    for wanted in (start, to):
        if wanted is not None and wanted not in by_number:
            return f"there is no report of attempt {wanted}" if student.handin else ""
    history = [one for one in changes_of_counting(attempts, grades.decisions, student) if one is not None]
    after = by_number[to] if to is not None else history[-1] if history else None
    earlier = [one for one in history if one != after]
    before = by_number[start] if start is not None else earlier[-1] if earlier else None
    return (before, after) if before and after else ""


def compared(before: Report, after: Report) -> list[GroupChange]:
    """The groups and speed cases whose points changed, in the order of the reports."""
    old, new = _scored(before), _scored(after)
    found = []
    for key in [*new, *(key for key in old if key not in new)]:
        was, now = old.get(key), new.get(key)
        if was and now and was.points == now.points:
            continue
        cases = []
        for name in dict.fromkeys([*(now.cases if now else ()), *(was.cases if was else ())]):
            ends = [one.cases.get(name) if one else None for one in (was, now)]
            outcomes = {end[1] for end in ends if end}
            # Where two outcomes differ, they alone tell it.
            words = [ABSENT if not end else end[1] + end[2] * (len(outcomes) == 1) for end in ends]
            title = (ends[1] or ends[0] or (name,))[0]
            cases += [(title, words[0], words[1])] * (words[0] != words[1])
        title = (new | old)[key].title
        found.append(GroupChange(title, was.points if was else None, now.points if now else None, tuple(cases)))
    return found


def _scored(report: Report) -> dict[tuple[str, ...], _Scored]:
    found: dict[tuple[str, ...], _Scored] = {}
    for one, part in report.parts:
        title = one.title_of(part)
        for group in part.groups:
            cases = {case.name: (case.title, case.outcome.replace("_", " "), "") for case in group.cases}
            found[one.name, part.name, group.name] = _Scored(f"{title}: {group.title}", group.points, cases)
        for speed in part.speed.cases:
            wanted = dict.fromkeys(band.vs for band in speed.bands)
            timed = speed.measured.entrants if speed.measured else ()
            ratios = [f", {one.speedup.median:.3g}× {one.name}" for one in timed if one.speedup and one.name in wanted]
            ended = {speed.name: (speed.name, speed.outcome.replace("_", " "), "".join(ratios))}
            found[one.name, part.name, "speed", speed.name] = _Scored(f"{title}: speed", speed.points, ended)
    return found


def _told(points: Points | None) -> str:
    if points is None:
        return ABSENT
    opened = f", {number(points.possible - points.graded)} open" if points.is_open else ""
    return f"{number(points.earned)} of {number(points.possible)}{opened}"
