"""Turns the outcomes of cases into points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.assignment import Band
from grader.report.model import UNDECIDED, BandResult, Outcome, Points


@dataclass(frozen=True)
class Graded:
    """The outcome of a case.

    Attributes:
        shows_values: passing the case shows that the kernel computes right values. A case with a degenerate answer does not, nor a
            case that checks only the addresses of reads and writes.
        follows: another group has lost its points to the same fault, so the case counts for nothing in its own.
    """

    outcome: Outcome
    shows_values: bool = True
    follows: bool = False


def values_are_right(part: Sequence[Graded]) -> bool:
    """Whether the cases of a part show that the kernel's values are right: one that shows values passed, and none went wrong."""
    went_wrong = any(one.outcome not in ("passed", *UNDECIDED) for one in part)
    return not went_wrong and any(one.outcome == "passed" and one.shows_values for one in part)


def group_points(possible: float, group: Sequence[Graded], part: Sequence[Graded]) -> tuple[Points, bool]:
    """The points of a group of cases, and whether they are provisional because some of its cases did not run.

    The points are lost if a case went wrong. They are not graded if no case ran, if one is an `infra_error`, or if no passed case of
    the group shows values and the part as a whole does not either (`values_are_right`). Otherwise they are earned. Cases that follow
    count for nothing, unless no other case of the group shows values.

    Args:
        part: all cases of the part, the group's among them.
    """
    open_ = Points(earned=0, graded=0, possible=possible), False
    own = [one for one in group if not one.follows]
    group = own if any(one.outcome == "passed" and one.shows_values for one in own) else group
    decided = [one for one in group if one.outcome not in UNDECIDED]
    if any(one.outcome != "passed" for one in decided):
        return Points(earned=0, graded=possible, possible=possible), False
    if not decided or any(one.outcome == "infra_error" for one in group):
        return open_
    if not any(one.shows_values for one in decided) and not values_are_right(part):
        return open_
    return Points(earned=possible, graded=possible, possible=possible), len(decided) < len(group)


def speed_points(bands: Sequence[Band], results: Sequence[BandResult], outcome: Outcome) -> Points:
    """The points of a speed case's reached bands: none after a failure, not graded if the case was skipped or is an
    `infra_error`.
    """
    possible = sum(band.points for band in bands)
    if outcome in UNDECIDED:
        return Points(earned=0, graded=0, possible=possible)
    earned = sum(one.points for one in results if one.reached) if outcome == "passed" else 0
    return Points(earned=earned, graded=possible, possible=possible)
