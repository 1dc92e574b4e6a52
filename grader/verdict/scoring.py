"""Points from outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from grader.report.model import UNDECIDED, Outcome, Points


def group_points(possible: float, outcomes: Sequence[Outcome]) -> tuple[Points, bool]:
    """The points of a group of cases, and whether they are provisional because some case could not run here.

    Earned when every case that ran passed; lost when one did not; not graded when none ran, or when a fault of the
    grader leaves it open.
    """
    decided = [outcome for outcome in outcomes if outcome not in UNDECIDED]
    if any(outcome != "passed" for outcome in decided):
        return Points(earned=0, graded=possible, possible=possible), False
    if not decided or "infra_error" in outcomes:
        return Points(earned=0, graded=0, possible=possible), False
    return Points(earned=possible, graded=possible, possible=possible), len(decided) < len(outcomes)
