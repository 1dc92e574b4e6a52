"""Estimates a speed-up from measured times: paired ratios, a confidence interval, a threshold.

Times come in rounds, in which every entrant ran one batch: a round's clock, temperature and neighbours affect all entrants alike.
A speed-up is therefore a ratio within a round, and only ratios are averaged. How well the interval covers the true median, and how
often code at a band's edge is paid, stands in benchmarks/NOTES.md ("How sure a speed verdict is").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grader.report.model import Interval

CONFIDENCE = 0.95
RESAMPLES = 4000
SEED = 20251


def median_interval(values: Sequence[float]) -> Interval:
    """The median of independent values, with a bootstrap interval (Efron 1979; percentile method, fixed seed).

    The same values in the same order always give the same interval.

    Args:
        values: at least one; the interval of fewer than three is their range.
    """
    sample = np.asarray(values, dtype=np.float64)
    middle = float(np.median(sample))
    if sample.size < 3:
        return Interval(median=middle, low=float(sample.min()), high=float(sample.max()))
    draws = np.random.default_rng(SEED).integers(0, sample.size, (RESAMPLES, sample.size))
    medians = np.median(sample[draws], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(median=middle, low=float(low), high=float(high))


def speedup(baseline_s: Sequence[float], submission_s: Sequence[float]) -> Interval:
    """The ratio baseline time / submission time. Both sequences have one time, in seconds, for each round."""
    return median_interval([slow / fast for slow, fast in zip(baseline_s, submission_s, strict=True)])


@dataclass(frozen=True)
class Reach:
    """Whether a threshold counts as reached, and whether it lies inside the interval."""

    reached: bool
    undecided: bool


def reach(interval: Interval, threshold: float) -> Reach:
    """Compare a speed-up with a threshold, which is missed only if the whole interval lies below: a student gets the doubtful points."""
    return Reach(interval.high >= threshold, interval.low < threshold <= interval.high)
