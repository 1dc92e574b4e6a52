"""Sizes and times in words."""

from __future__ import annotations

import pytest

from grader.profile.units import bytes_words, ms_words


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1024, "1.02 KB"), (2.147e9, "2.15 GB"), (3.2e15, "3200 TB"), (1e300, "1e+300 B")],
)
def test_bytes_are_in_units_of_a_thousand(size: float, said: str) -> None:
    assert bytes_words(size) == said


@pytest.mark.parametrize(("ms", "said"), [(0.5163, "0.516"), (327.68, "328"), (1e300, "1e+300")])
def test_milliseconds_have_three_digits(ms: float, said: str) -> None:
    assert ms_words(ms) == said
