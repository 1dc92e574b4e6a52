"""Speed-ups are medians of ratios within a round, with an interval that says how sure they are: known answers and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.report.model import Interval
from grader.verdict.statistics import Reach, median_interval, reach, speedup

times = st.floats(1e-7, 10.0)
rounds = st.lists(times, min_size=1, max_size=20)


def interval(median: float, low: float, high: float) -> Interval:
    return Interval(median=median, low=low, high=high)


def width(found: Interval) -> float:
    """The interval's width, relative to the median."""
    return (found.high - found.low) / found.median


# The median and its interval ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4.0], interval(4.0, 4.0, 4.0)),
        ([4.0, 1.0], interval(2.5, 1.0, 4.0)),
        ([4.0, 1.0, 2.0], interval(2.0, 1.0, 4.0)),  # two of three draws are the lowest in 7 of 27 resamples
        ([1.0, 2.0, 3.0, 9.0], interval(2.5, 1.0, 9.0)),  # 13 of 256
        # A resample's median is the lowest of seven in 1 % of the resamples, one of the two lowest in 10 %.
        ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], interval(8.0, 2.0, 32.0)),
        ([0.25] * 7, interval(0.25, 0.25, 0.25)),
    ],
)
def test_the_interval_of_a_few_values_goes_as_far_as_resamples_do(values: list[float], expected: Interval) -> None:
    assert median_interval(values) == expected


@given(rounds)
def test_the_interval_holds_the_median_lies_in_the_range_and_is_always_the_same(values: list[float]) -> None:
    given_values = list(values)
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.median == pytest.approx(float(np.median(values)))
    assert values == given_values
    assert median_interval(given_values) == found


@given(rounds, st.integers(-30, 30).map(lambda power: 2.0**power))
def test_the_interval_does_not_depend_on_the_unit(values: list[float], by: float) -> None:
    found, scaled = median_interval(values), median_interval([by * value for value in values])
    assert (scaled.median, scaled.low, scaled.high) == pytest.approx(
        (by * found.median, by * found.low, by * found.high)
    )


@pytest.mark.parametrize("outlier", [1e-9, 1e9])
def test_one_odd_round_moves_the_median_by_no_more_than_a_place(outlier: float) -> None:
    values = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06]
    for place in range(len(values)):
        found = median_interval([*values[:place], outlier, *values[place + 1 :]])
        assert 1.02 <= found.median <= 1.04
        assert 1.00 <= found.low <= found.high <= 1.06


@pytest.mark.parametrize(
    ("count", "measured"),
    [
        (7, 0.8765),  # by theory, from the second to the sixth value: 1 - 2 · 8/128 = 0.875
        (15, 0.9185),  # from the fourth to the eleventh: 1 - 576/32768 - 1941/32768 = 0.923
    ],
)
def test_the_interval_holds_the_true_median_about_as_often_as_it_says(count: int, measured: float) -> None:
    """Of 2000 samples of normal noise. Few rounds make the percentile bootstrap a little too sure of itself."""
    samples = np.random.default_rng(7).normal(1.0, 0.02, (2000, count))
    found = [median_interval(sample) for sample in samples]
    share = sum(one.low <= 1.0 <= one.high for one in found) / len(found)
    assert share == pytest.approx(measured, abs=0.02)


# Speed-ups ------------------------------------------------------------------------------------------------------------


def test_a_speedup_says_how_many_times_as_fast_as_the_baseline() -> None:
    """The ratio is taken within each round; the medians of the first line have the ratio 2."""
    assert speedup([0.3, 0.4, 0.6], [0.1, 0.2, 0.2]).median == pytest.approx(3.0)
    assert speedup([1e-3] * 5, [2e-3] * 5) == interval(0.5, 0.5, 0.5)


def test_a_drift_that_both_share_cancels() -> None:
    """The GPU gets slower from round to round, by half in all: unpaired times would leave the band 1.1 in doubt."""
    noise = np.random.default_rng(5).normal(1.0, 0.002, (2, 15))
    drift = np.linspace(1.0, 1.5, 15)
    eager, submission = 1.2e-3 * drift * noise[0], 1.0e-3 * drift * noise[1]
    paired = speedup(eager, submission)
    assert paired.median == pytest.approx(1.2, rel=0.005)
    assert width(paired) < 0.01
    assert reach(paired, 1.1) == Reach(reached=True, undecided=False)
    top, bottom = median_interval(eager), median_interval(submission)
    unpaired = interval(top.median / bottom.median, top.low / bottom.high, top.high / bottom.low)
    assert width(unpaired) > 0.2
    assert reach(unpaired, 1.1).undecided


@pytest.mark.parametrize(("slow", "fast"), [([1.0, 2.0], [1.0]), ([1.0], [1.0, 2.0])])
def test_rounds_without_a_partner_are_refused(slow: list[float], fast: list[float]) -> None:
    with pytest.raises(ValueError, match="zip"):
        speedup(slow, fast)


# Thresholds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "threshold", "reached", "undecided"),
    [
        (0.9, 0.5, True, False),
        (0.9, 0.9, True, False),  # the lower end itself: the whole interval is there
        (0.9, math.nextafter(0.9, 1), True, True),
        (0.9, 1.0, True, True),
        (0.9, 1.05, True, True),
        (0.9, 1.1, True, True),  # the upper end itself
        (0.9, math.nextafter(1.1, 2), False, False),
        (0.9, 2.0, False, False),
        (1.1, 1.1, True, False),  # no doubt at all
        (1.1, math.nextafter(1.1, 2), False, False),
    ],
)
def test_a_threshold_is_missed_only_when_the_whole_interval_lies_below(
    low: float, threshold: float, reached: bool, undecided: bool
) -> None:
    assert reach(interval(max(low, 1.0), low, 1.1), threshold) == Reach(reached, undecided)


@given(rounds, times, times)
def test_a_higher_threshold_is_never_easier_and_doubt_is_always_paid(
    values: list[float], one: float, other: float
) -> None:
    estimate = median_interval(values)
    lower, higher = reach(estimate, min(one, other)), reach(estimate, max(one, other))
    assert lower.reached or not higher.reached
    assert all(found.reached for found in (lower, higher) if found.undecided)
