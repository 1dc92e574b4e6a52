"""What the rounds of a speed case say of the submission by the judge's clock; pages draw it without numpy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from grader.report.model import Alone, Round

HOST_NOISE_S = 0.00015  # Two batches of calls that do nothing differ by up to this


def judged_times_s(rounds: Sequence[Round], alone: Alone, calls: int) -> list[float]:
    """Seconds of a call of the submission in each round by the judge's clock: its batch of `calls` calls without what a
    batch of nothing takes.
    """
    nothing_s = median(one.nothing_s for one in rounds)
    if alone.nothing_s is not None:
        nothing_s = min(nothing_s, alone.nothing_s + HOST_NOISE_S)
    return [(one.batch_s - nothing_s) / calls for one in rounds]
