"""Points from outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from grader.assignment import Band
from grader.report.model import UNDECIDED, BandResult, Outcome, Points


def group_points(possible: float, outcomes: Sequence[Outcome], complete: bool = True) -> tuple[Points, bool]:
    """The points of a group of cases, and whether they are provisional because some case could not run here.

    Earned when every case that ran passed; lost when one did not; not graded when none ran, or when a fault of the
    grader leaves it open, or an interruption, after which the group is not `complete`.
    """
    decided = [outcome for outcome in outcomes if outcome not in UNDECIDED]
    if any(outcome != "passed" for outcome in decided):
        return Points(earned=0, graded=possible, possible=possible), False
    if not decided or "infra_error" in outcomes or not complete:
        return Points(earned=0, graded=0, possible=possible), False
    return Points(earned=possible, graded=possible, possible=possible), len(decided) < len(outcomes)


def speed_points(bands: Sequence[Band], results: Sequence[BandResult], outcome: Outcome) -> Points:
    """The points of a speed case: those of the bands that are reached; none where it failed, not graded where that is nobody's fault."""
    possible = sum(band.points for band in bands)
    if outcome in UNDECIDED:
        return Points(earned=0, graded=0, possible=possible)
    earned = sum(one.points for one in results if one.reached) if outcome == "passed" else 0
    return Points(earned=earned, graded=possible, possible=possible)
