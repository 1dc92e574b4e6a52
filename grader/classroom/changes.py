"""Compares two attempts at each hand-in: the students whose points changed, and the cases that changed them.

The course may have changed between the attempts.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from grader.classroom.folder import Student
from grader.classroom.grades import Ended, Grades, choices, counts, number
from grader.classroom.roster import shown
from grader.report.json_file import REPORT, read_report
from grader.report.model import Points, Report
from grader.report.style import first_of

ABSENT = "not there"
MAX_CASES = 10  # that are counted at the end


Cases = dict[str, tuple[str, str, str]]  # by name: the title, the outcome, and words after it, of each case


class Scored(NamedTuple):
    """A group of cases, or a speed case, with its points."""

    title: str
    points: Points
    cases: Cases


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
        old, new = (_scored(read_report(one.folder / REPORT)) for one in pair)
        groups = [(one.title, old.get(key), new.get(key)) for key, one in (new | old | new).items()]
        groups = [(title, was, now) for title, was, now in groups if not (was and now and was.points == now.points)]
        if before.points == after.points and not groups:
            same += 1
            continue
        changed += 1
        held = "; the override holds" if grades.of(student).override is not None else ""
        attempts = f"attempt {before.number} → {after.number}"
        lines.append(f"{shown(student)}: {_told(before.points)} → {_told(after.points)} points ({attempts}{held})")
        for title, was, now in groups:
            lines.append(f"  {title}: {_told(was and was.points)} → {_told(now and now.points)}")
            cases = _ended_otherwise(was.cases if was else {}, now.cases if now else {})
            lines += [f"    {case}: {ends}" for case, ends in cases]
            lines += ["    each case ended as before: the course gives other points"] * (not cases)
            by_case.update(f"{title}: {case}" for case, _ in cases)
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
    chosen = choices(grades.decisions, student)
    history: list[Ended] = []  # what counted when an attempt had ended or a decision been made
    for moment in sorted({one.attempt.ended for one in attempts} | {one.at for one in chosen}):
        there = [one for one in attempts if one.attempt.ended <= moment]
        if counting := counts(there, [one for one in chosen if one.at <= moment], student):
            history.append(counting)
    after = by_number[to] if to is not None else history[-1] if history else None
    earlier = [one for one in history if one != after]
    before = by_number[start] if start is not None else earlier[-1] if earlier else None
    return (before, after) if before and after else ""


def _ended_otherwise(old: Cases, new: Cases) -> list[tuple[str, str]]:
    """The title of each case that ended differently, and how it ended before and after."""
    found = []
    for name, (title, _, _) in (new | old | new).items():
        ends = [cases.get(name) for cases in (old, new)]
        is_one = len({end[1] for end in ends if end}) == 1  # where two outcomes differ, they alone tell it
        was, now = (ABSENT if end is None else end[1] + end[2] * is_one for end in ends)
        if was != now:
            found.append((title, f"{was} → {now}"))
    return found


def _scored(report: Report) -> dict[tuple[str, ...], Scored]:
    """The groups and speed cases of a report, by assignment, part and name."""
    found: dict[tuple[str, ...], Scored] = {}
    for one, part in report.parts:
        title = one.title_of(part)
        for group in part.groups:
            cases = {case.name: (case.title, case.outcome.replace("_", " "), "") for case in group.cases}
            found[one.name, part.name, group.name] = Scored(f"{title}: {group.title}", group.points, cases)
        for speed in part.speed.cases:
            wanted = {band.vs for band in speed.bands}
            timed = speed.measured.entrants if speed.measured else ()
            ratios = [f", {one.speedup.median:.3g}× {one.name}" for one in timed if one.speedup and one.name in wanted]
            ended = {speed.name: (speed.name, speed.outcome.replace("_", " "), "".join(ratios))}
            found[one.name, part.name, "speed", speed.name] = Scored(f"{title}: speed", speed.points, ended)
    return found


def _told(points: Points | None) -> str:
    if points is None:
        return ABSENT
    opened = f", {number(points.possible - points.graded)} open" if points.is_open else ""
    return f"{number(points.earned)} of {number(points.possible)}{opened}"
