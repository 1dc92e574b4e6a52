"""Records a person's decisions about a student's grade: points, the attempt that counts, or one more attempt.

Decisions are added and never removed.
"""

from __future__ import annotations

import getpass
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.grades import Grades, number, override_of
from grader.classroom.model import Decision, Student
from grader.classroom.roster import shown


def decide_points(folder: RunFolder, student: Student, points: float | None, reason: str, by: str = "") -> Decision:
    """Override a student's points; None takes the override back. Raises ClassError, OSError."""
    if points is None and override_of(folder.decisions(), student) is None:
        raise ClassError(f"{shown(student)}: there is no override to take back")
    if points is not None and not (math.isfinite(points) and points >= 0):
        raise ClassError(f"--points {points}: a number from 0 on is wanted")
    return _decided(folder, student, "points", reason, by, points=points)


def decide_attempt(
    folder: RunFolder, student: Student, wanted: Literal["latest", "best"] | int, reason: str, by: str = ""
) -> Decision:
    """Decide which attempt at a student's hand-in counts. Raises ClassError, OSError."""
    if not student.handin:
        raise ClassError(f"{shown(student)}: nothing was handed in, so no attempt can count")
    if isinstance(wanted, int):
        with_points = [one.number for one in Grades(folder).ended(student.handin) if one.points]
        if wanted not in with_points:
            there = f"attempts with one: {', '.join(map(str, with_points))}" if with_points else "no attempt has one"
            raise ClassError(f"{shown(student)}: attempt {wanted} has no report; {there}")
    return _decided(folder, student, "counts", reason, by, counts=wanted)


def ask_again(folder: RunFolder, students: Sequence[Student], reason: str, by: str = "") -> list[Decision]:
    """Ask for one more attempt at each hand-in of these students, once for a shared hand-in. Raises ClassError, OSError."""
    handins = {one.handin: one for one in reversed(students) if one.handin}
    if not handins:
        raise ClassError("nothing was handed in by them, so there is nothing to grade again")
    asked = [one for one in students if handins.get(one.handin) is one]
    return [_decided(folder, one, "regrade", reason, by) for one in asked]


def told(decision: Decision) -> str:
    """A decision in a sentence."""
    match decision.kind:
        case "points" if decision.points is None:
            words = "the override is taken back"
        case "points":
            words = f"{number(decision.points or 0)} points instead of the graded ones"
        case "counts":
            which = decision.counts
            words = f"attempt {which} counts" if isinstance(which, int) else f"the {which} whole attempt counts"
        case _:
            words = "one attempt more"
    return f"{decision.at:%Y-%m-%d %H:%M} {decision.by}: {words}: {decision.reason}"


def _decided(
    folder: RunFolder,
    student: Student,
    kind: Literal["points", "counts", "regrade"],
    reason: str,
    by: str,
    points: float | None = None,
    counts: Literal["latest", "best"] | int | None = None,
) -> Decision:
    if not reason.strip():
        raise ClassError("--reason: a reason is wanted; the student may ask for it")
    decision = Decision(
        at=datetime.now(UTC),
        by=by or _user(),
        who=student.key,
        kind=kind,
        reason=" ".join(reason.split()),
        points=points,
        counts=counts,
        handin=student.handin if kind != "points" else "",
    )
    folder.decide(decision)
    return decision


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
