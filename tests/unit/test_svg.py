"""Axes: values to pixels, and round ticks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.report.svg import MOST_TICKS, Axis, spanning, written


def test_ends_and_middle_are_where_they_belong() -> None:
    up, log = Axis(0, 10, 100, 0), Axis(0.01, 100, 0, 40, log=True)
    assert [up.at(one) for one in (0, 5, 10)] == [100, 50, 0]
    assert [log.at(one) for one in (0.01, 0.1, 1, 10, 100)] == [0, 10, 20, 30, 40]


def test_a_value_beyond_the_axis_lies_on_its_end() -> None:
    for axis in (Axis(1, 10, 0, 90), Axis(1, 10, 0, 90, log=True)):
        assert [axis.at(one) for one in (-5, 0, 11, math.inf, math.nan)] == [0, 0, 90, 90, 90]


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 10, 0, 1), [0, 2, 4, 6, 8, 10]),
        (Axis(-0.3, 0.3, 0, 1), [-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3]),
        (Axis(0.3, 14, 0, 1, log=True), [0.5, 1, 2, 5, 10]),
        (Axis(1e-4, 20, 0, 1, log=True), [1e-4, 1e-3, 1e-2, 0.1, 1, 10]),
        (Axis(7, 7, 0, 1), [7]),
    ],
)
def test_ticks_are_round(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)


@given(st.floats(1e-30, 1e30), st.floats(1, 1e30), st.booleans())
def test_ticks_are_few_and_on_the_axis(low: float, factor: float, log: bool) -> None:
    axis = Axis(low, low * factor, 0, 700, log)
    ticks = axis.ticks()
    assert len(ticks) <= 2 * MOST_TICKS
    slack = 1e-6 * low * (1 if log else factor)
    assert all(low - slack <= tick <= low * factor * (1 + 1e-6) for tick in ticks)
    assert all(0 <= axis.at(tick) <= 700 for tick in ticks)


def test_a_logarithmic_axis_leaves_room_at_both_ends() -> None:
    axis = spanning([3.0, 0.5], 2, 0, 1)
    assert (axis.low, axis.high) == (0.25, 6)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (20000, "20000"), (1e-4, "10⁻⁴"), (5e6, "5·10⁶"), (1e12, "10¹²")]
)
def test_a_small_or_large_tick_is_a_power_of_ten(value: float, text: str) -> None:
    assert written(value) == text


def test_an_axis_of_values_beyond_all_measure_is_an_axis() -> None:
    axis = spanning([0.0, 5e-324, math.inf], 2, 0, 100)
    assert all(math.isfinite(one) for one in (axis.low, axis.high, axis.at(1.0), *axis.ticks()))
