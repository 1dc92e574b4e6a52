"""What measured times say about a speed-up: paired ratios, a confidence interval, a threshold.

Times come in rounds: in each round every contender ran one batch, so what a round's clock, temperature and neighbours
did to one of them they did to all. A speed-up is therefore a ratio within a round, and only ratios are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 4000
SEED = 20251


@dataclass(frozen=True)
class Estimate:
    """A median and its 95% interval.

    How often that holds the true median, in simulations with normal noise: 0.95 of 5 rounds, 0.96 of 9, 0.91 of 13, 0.92 of 15; of 7 it
    would be 0.88, so that nobody should stop there.

    A band's edge is looked at again after further rounds, and the first look that leaves it outside decides. So code that lies exactly on
    an edge has the band in 87 of 100 gradings, by simulation; code that is slower by half of what a round's noise is in 9 where there is
    time for 57 rounds, in 22 where there is for 33, in 40 where there is for 25; code that is slower by all of it in 3 at most.
    """

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the interval's width, relative to the median."""
        return (self.high - self.low) / 2 / self.median


def median_interval(values: Sequence[float]) -> Estimate:
    """The median of independent values, with a bootstrap interval (Efron 1979; percentile method, fixed seed).

    The same values in the same order always give the same interval.

    Args:
        values: at least one; with fewer than three the interval is their range.
    """
    sample = np.asarray(values, dtype=np.float64)
    middle = float(np.median(sample))
    if sample.size < 3:
        return Estimate(middle, float(sample.min()), float(sample.max()))
    draws = np.random.default_rng(SEED).integers(0, sample.size, (RESAMPLES, sample.size))
    medians = np.median(sample[draws], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Estimate(middle, float(low), float(high))


def speedup(baseline_s: Sequence[float], submission_s: Sequence[float]) -> Estimate:
    """How many times as fast as the baseline, from one time of each for every round, in seconds."""
    return median_interval([slow / fast for slow, fast in zip(baseline_s, submission_s, strict=True)])


@dataclass(frozen=True)
class Reach:
    """Whether a threshold counts as reached, and whether it lies inside the interval."""

    reached: bool
    undecided: bool


def reach(estimate: Estimate, threshold: float) -> Reach:
    """Hold a speed-up against a threshold: it is missed only when the whole interval lies below, for the doubt is the grader's."""
    return Reach(estimate.high >= threshold, estimate.low < threshold <= estimate.high)
