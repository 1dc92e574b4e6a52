"""Points from outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.assignment import Band
from grader.report.model import UNDECIDED, BandResult, Outcome, Points


@dataclass(frozen=True)
class Graded:
    """The outcome of a case, and whether passing it says anything of the values that the kernel computes: not where any answer is
    right, and not where only the addresses of its reads and writes were looked at.
    """

    outcome: Outcome
    shows_values: bool = True


def values_are_right(part: Sequence[Graded]) -> bool:
    """Whether the cases of a part vouch for the kernel's values: some were looked at and right, and no case went wrong."""
    went_wrong = any(one.outcome not in ("passed", *UNDECIDED) for one in part)
    return not went_wrong and any(one.outcome == "passed" and one.shows_values for one in part)


def group_points(possible: float, group: Sequence[Graded], part: Sequence[Graded]) -> tuple[Points, bool]:
    """The points of a group of cases, and whether they are provisional because some case could not run here.

    Earned when every case that ran passed; lost when one did not; not graded when none ran, when a fault of the grader leaves the
    group open, or when no case that passed shows values and the rest of the part does not vouch for them (`values_are_right`).

    Args:
        part: all cases of the part, the group's among them.
    """
    open_ = Points(earned=0, graded=0, possible=possible), False
    decided = [one for one in group if one.outcome not in UNDECIDED]
    if any(one.outcome != "passed" for one in decided):
        return Points(earned=0, graded=possible, possible=possible), False
    if not decided or any(one.outcome == "infra_error" for one in group):
        return open_
    if not any(one.shows_values for one in decided) and not values_are_right(part):
        return open_
    return Points(earned=possible, graded=possible, possible=possible), len(decided) < len(group)


def speed_points(bands: Sequence[Band], results: Sequence[BandResult], outcome: Outcome) -> Points:
    """The points of a speed case: those of the bands that are reached; none where it failed, not graded where that is nobody's fault."""
    possible = sum(band.points for band in bands)
    if outcome in UNDECIDED:
        return Points(earned=0, graded=0, possible=possible)
    earned = sum(one.points for one in results if one.reached) if outcome == "passed" else 0
    return Points(earned=earned, graded=possible, possible=possible)
