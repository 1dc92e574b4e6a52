"""The grade of each student: the attempt that counts, its points or a person's decision, or why there is no grade.

Grades are computed from the folder of a class each time. Points that could not be graded are open, and never counted as
lost. Decisions are added and never removed.
"""

from __future__ import annotations

import getpass
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from grader.classroom.folder import NOTHING, Attempt, ClassError, Decision, RunFolder, Student
from grader.classroom.roster import shown
from grader.console import EXIT_USAGE
from grader.report.json_file import REPORT, ReportError, read_report
from grader.report.model import Points

Basis = Literal["all", "correctness"]
NOTHING_HANDED_IN, NOT_GRADED_YET = "nothing was handed in", "not graded yet"


@dataclass(frozen=True)
class Ended:
    """An ended attempt with its points.

    Attributes:
        folder: of the attempt, with the report if there is one.
        points: all points, or those of correctness, by the basis of `Grades`; None without a report.
        fault: why the attempt counts only by a decision; empty for a whole attempt.
        fingerprint: of the grader's code and the course that graded; empty without a report.
    """

    attempt: Attempt
    folder: Path
    points: Points | None
    fault: str = ""
    fingerprint: str = ""

    @property
    def number(self) -> int:
        return self.attempt.number


@dataclass(frozen=True)
class Grade:
    """The grade of a student.

    Attributes:
        counting: the attempt that counts, or None.
        override: the decision that replaces the graded points, or None.
        missing: why no attempt counts; empty if one counts.
    """

    student: Student
    counting: Ended | None = None
    override: Decision | None = None
    missing: str = ""

    @property
    def points(self) -> Points | None:
        return self.counting.points if self.counting else None

    @property
    def earned(self) -> float | None:
        """The points that count; None if no point was graded and no decision overrides that."""
        if self.override is not None:
            return self.override.points
        return self.points.earned if self.points and self.points.graded else None

    @property
    def is_open(self) -> bool:
        """Whether some points were not graded, and no decision overrides them."""
        return self.override is None and self.points is not None and self.points.is_open

    @property
    def why(self) -> str:
        """Why some points are unknown; empty if all are known."""
        if self.override is not None:
            return ""
        if self.points is None:
            return self.missing
        if self.is_open:
            return f"{number(self.points.possible - self.points.graded)} of {number(self.points.possible)} points are not graded"
        return ""


def number(value: float) -> str:
    """A number for a gradebook: decimal, without an exponent, with at most four places."""
    return f"{value:.4f}".rstrip("0").rstrip(".")


class Grades:
    """The grades of a class, for each student of `students.json` in its order. Raises ClassError."""

    def __init__(self, folder: RunFolder, basis: Basis = "all") -> None:
        self.folder, self.basis = folder, basis
        self.students = folder.students().students
        self.decisions = folder.decisions()
        self._ended: dict[str, tuple[Ended, ...]] = {}

    def __iter__(self) -> Iterator[Grade]:
        return map(self.of, self.students)

    def of(self, student: Student) -> Grade:
        override = override_of(self.decisions, student)
        if not student.handin:
            return Grade(student, None, override, NOTHING if NOTHING in student.notes else NOTHING_HANDED_IN)
        attempts = self.ended(student.handin)
        if counting := counts(attempts, self.decisions, student):
            return Grade(student, counting, override)
        if not attempts:
            return Grade(student, None, override, NOT_GRADED_YET)
        kind = "unusable submission" if attempts[-1].attempt.exit_code == EXIT_USAGE else "machine fault"
        why = attempts[-1].fault or "the attempt that was decided to count has no report"
        return Grade(student, None, override, f"{kind}: {why}")

    def ended(self, handin: str) -> tuple[Ended, ...]:
        """The ended attempts at a hand-in in their order; read once."""
        if handin not in self._ended:
            attempts = self.folder.attempts(handin) if handin else {}
            self._ended[handin] = tuple(self._read(attempt, path) for attempt, path in attempts.items())
        return self._ended[handin]

    def _read(self, attempt: Attempt, path: Path) -> Ended:
        try:
            report = read_report(path / REPORT)
        except ReportError as error:
            return Ended(attempt, path, None, attempt.fault or str(error))
        fault = attempt.fault or (report.infra_errors[0] if report.infra_errors else "")
        if report.incomplete and not fault:
            fault = "the run was interrupted before everything was graded"
        points = report.score if self.basis == "all" else report.correctness
        return Ended(attempt, path, points, fault, report.fingerprint)


def override_of(decisions: Iterable[Decision], student: Student) -> Decision | None:
    """The last override of a student's points; None if there is none or it was taken back."""
    found = [one for one in decisions if one.kind == "points" and one.who == student.key]
    return found[-1] if found and found[-1].points is not None else None


def choices(decisions: Iterable[Decision], student: Student) -> list[Decision]:
    """The decisions about which attempt at the student's hand-in counts. Decisions about an earlier hand-in are void."""
    return [one for one in decisions if (one.kind, one.who, one.handin) == ("counts", student.key, student.handin)]


def counts(attempts: Sequence[Ended], decisions: Iterable[Decision], student: Student) -> Ended | None:
    """The attempt that counts: the latest whole attempt, unless the last decision names the best one or a number."""
    chosen = choices(decisions, student)
    wanted = chosen[-1].counts if chosen else "latest"
    if isinstance(wanted, int):
        return next((one for one in attempts if one.number == wanted and one.points), None)
    whole = [one for one in attempts if one.points and not one.fault]
    if wanted == "best":
        return max(whole, key=lambda one: (one.points.earned if one.points else 0, one.number), default=None)
    return whole[-1] if whole else None


# Decisions ------------------------------------------------------------------------------------------------------------


def decide_points(folder: RunFolder, student: Student, points: float | None, reason: str, by: str = "") -> Decision:
    """Override a student's points; None takes the override back. Raises ClassError, OSError."""
    if points is None and override_of(folder.decisions(), student) is None:
        raise ClassError(f"{shown(student)}: there is no override to take back")
    if points is not None and not (math.isfinite(points) and points >= 0):
        raise ClassError(f"--points {points}: a number from 0 on is wanted")
    return _decided(folder, student, reason, by, kind="points", points=points)


def decide_attempt(folder: RunFolder, student: Student, wanted: str, reason: str, by: str = "") -> Decision:
    """Decide which attempt at a student's hand-in counts: `latest`, `best` or a number. Raises ClassError, OSError."""
    if wanted not in ("latest", "best") and not (wanted.isascii() and wanted.isdecimal() and int(wanted) > 0):
        raise ClassError(f"--counts {wanted}: latest, best or an attempt's number is wanted")
    if not student.handin:
        raise ClassError(f"{shown(student)}: nothing was handed in, so no attempt can count")
    which = int(wanted) if wanted.isdecimal() else wanted
    with_points = [one.number for one in Grades(folder).ended(student.handin) if one.points]
    if isinstance(which, int) and which not in with_points:
        there = f"attempts with one: {', '.join(map(str, with_points))}" if with_points else "no attempt has one"
        raise ClassError(f"{shown(student)}: attempt {which} has no report; {there}")
    return _decided(folder, student, reason, by, kind="counts", counts=which, handin=student.handin)


def ask_again(folder: RunFolder, students: Sequence[Student], reason: str, by: str = "") -> list[Decision]:
    """Ask for one more attempt at each hand-in of these students, once for a shared hand-in. Raises ClassError, OSError."""
    handins = {one.handin: one for one in reversed(students) if one.handin}
    if not handins:
        raise ClassError("nothing was handed in by them, so there is nothing to grade again")
    asked = [one for one in students if handins.get(one.handin) is one]
    return [_decided(folder, one, reason, by, kind="regrade", handin=one.handin) for one in asked]


def _decided(folder: RunFolder, student: Student, reason: str, by: str, **fields: object) -> Decision:
    if not reason.strip():
        raise ClassError("--reason: a reason is wanted; the student may ask for it")
    if not by:
        try:
            by = getpass.getuser()
        except (KeyError, OSError):  # a container's user without a name
            by = "unknown"
    common = {"at": datetime.now(UTC), "by": by, "who": student.key, "reason": " ".join(reason.split())}
    decision = Decision.model_validate({**common, **fields})
    folder.decide(decision)
    return decision


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
