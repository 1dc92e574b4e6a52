"""Compares two attempts at each hand-in: the students whose points changed, and the cases that changed them.

The course may have changed between the attempts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grader.classroom.grades import Ended, Grades, changes_of_counting, number
from grader.classroom.model import Student
from grader.report.json_file import REPORT, read_report
from grader.report.model import Outcome, Points, Report, SpeedCaseResult
from grader.report.style import first_of

ABSENT = "not there"
MAX_CASES = 10  # that are counted at the end


@dataclass(frozen=True)
class CaseChange:
    """A case or check that ended differently. A report without the case counts as ABSENT."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class GroupChange:
    """A group of cases, or a speed case, whose points changed."""

    title: str
    before: Points | None
    after: Points | None
    cases: tuple[CaseChange, ...]


@dataclass(frozen=True)
class Change:
    """A student's changed groups between two attempts."""

    student: Student
    before: Ended
    after: Ended
    groups: tuple[GroupChange, ...]
    is_overridden: bool = False


@dataclass(frozen=True)
class Differences:
    """The students whose points changed, the number of others, and sentences about attempts that cannot be compared."""

    changed: tuple[Change, ...]
    same: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Scored:
    """The points and the ends of the cases of a group, or of a speed case."""

    title: str
    points: Points
    cases: dict[str, tuple[str, Outcome, str]]  # by name: title, outcome, and words after the outcome


def differences(grades: Grades, start: int | None = None, to: int | None = None) -> Differences:
    """Compare the attempt that counted before with the attempt that counts now. Raises ReportError.

    Args:
        start, to: numbers of attempts to compare instead.
    """
    changed: list[Change] = []
    missing: dict[str, list[str]] = {}
    same = 0
    for student in grades.students:
        pair = _pair(grades, student, start, to)
        if isinstance(pair, str):
            missing.setdefault(pair, []).append(student.key)
            continue
        before, after = pair
        groups = tuple(compared(read_report(before.folder / REPORT), read_report(after.folder / REPORT)))
        if before.points == after.points and not groups:
            same += 1
            continue
        changed.append(Change(student, before, after, groups, grades.of(student).override is not None))
    notes = tuple(f"{why}: {first_of(keys)}" for why, keys in missing.items() if why)
    return Differences(tuple(changed), same, notes)


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
    if before is None or after is None:
        return ""
    return before, after


def compared(before: Report, after: Report) -> Iterator[GroupChange]:
    """The groups and speed cases whose points changed, in the order of the reports."""
    old, new = _scored(before), _scored(after)
    for key in [*new, *(key for key in old if key not in new)]:
        was, now = old.get(key), new.get(key)
        if was and now and was.points == now.points:
            continue
        names = dict.fromkeys([*(now.cases if now else ()), *(was.cases if was else ())])
        cases = [_case(name, was, now) for name in names]
        ended = tuple(one for one in cases if one.before != one.after)
        yield GroupChange((new | old)[key].title, was.points if was else None, now.points if now else None, ended)


def _case(name: str, was: _Scored | None, now: _Scored | None) -> CaseChange:
    old, new = (one.cases.get(name) if one else None for one in (was, now))
    title = (new or old or (name,))[0]
    if old and new and old[1] != new[1]:  # the outcomes alone tell it
        return CaseChange(title, *(_outcome(one[1]) for one in (old, new)))
    return CaseChange(title, *(f"{_outcome(one[1])}{one[2]}" if one else ABSENT for one in (old, new)))


def _outcome(outcome: Outcome) -> str:
    return outcome.replace("_", " ")


def _scored(report: Report) -> dict[tuple[str, ...], _Scored]:
    found: dict[tuple[str, ...], _Scored] = {}
    for one, part in report.parts:
        title = one.title_of(part)
        for group in part.groups:
            cases = {case.name: (case.title, case.outcome, "") for case in group.cases}
            found[one.name, part.name, "group", group.name] = _Scored(f"{title}: {group.title}", group.points, cases)
        for speed in part.speed.cases:
            ended = {speed.name: (speed.name, speed.outcome, _speed(speed))}
            found[one.name, part.name, "speed", speed.name] = _Scored(f"{title}: speed", speed.points, ended)
    return found


def _speed(case: SpeedCaseResult) -> str:
    """The measured speed-ups over the baselines of the bands."""
    if case.measured is None:
        return ""
    wanted = dict.fromkeys(band.vs for band in case.bands)
    ratios = {one.name: one.speedup.median for one in case.measured.contenders if one.speedup and one.name in wanted}
    return "".join(f", {ratio:.3g}× {name}" for name, ratio in ratios.items())


def told(found: Differences) -> Iterable[str]:
    """The differences in lines."""
    for change in found.changed:
        name = f"{change.student.key} ({change.student.name})" if change.student.name else change.student.key
        held = "; the override holds" if change.is_overridden else ""
        attempts = f"attempt {change.before.number} → {change.after.number}"
        yield f"{name}: {_points(change.before.points)} → {_points(change.after.points)} points ({attempts}{held})"
        for group in change.groups:
            yield f"  {group.title}: {_points(group.before)} → {_points(group.after)}"
            yield from (f"    {case.name}: {case.before} → {case.after}" for case in group.cases)
            if not group.cases:
                yield "    each case ended as before: the course gives other points"
    for name, count in list(by_case(found.changed).items())[:MAX_CASES]:
        if count > 1:
            yield f"{count} students: {name}"
    yield f"{len(found.changed)} changed, {found.same} the same; students with one attempt are not compared"


def _points(points: Points | None) -> str:
    if points is None:
        return ABSENT
    opened = f", {number(points.possible - points.graded)} open" if points.is_open else ""
    return f"{number(points.earned)} of {number(points.possible)}{opened}"


def by_case(found: Sequence[Change]) -> dict[str, int]:
    """How many students' points changed with each case, the most first."""
    counted = Counter(
        f"{group.title}: {case.name}" for change in found for group in change.groups for case in group.cases
    )
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))
