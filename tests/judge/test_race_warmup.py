"""What a call of the submission takes before the rounds, and whether that is far too slow."""

from __future__ import annotations

import pytest

from grader.judge.race import NOISE_S, shortest_s
from grader.verdict.tally import WARM_SETS

LIMIT_S = 0.2


class Looks:
    """Calls that take what `took` says, one look after another; `calls` is of how many calls the looks were."""

    def __init__(self, *took: float) -> None:
        self.took, self.calls = list(took), []  # type: ignore[var-annotated]

    def __call__(self, calls: int) -> float:
        self.calls.append(calls)
        return self.took.pop(0)


def test_a_call_that_is_far_too_slow_twice_is_stopped_with_the_shorter_time() -> None:
    looks = Looks(2.5, 2.0)
    assert shortest_s(looks, LIMIT_S) == 2.0
    assert looks.calls == [1, 1]
    assert shortest_s(Looks(2.0, 2.5), LIMIT_S) == 2.0


def test_one_hiccup_of_the_host_stops_nobody() -> None:
    looks = Looks(2.5, 0.01, 0.01, 0.01)
    assert shortest_s(looks, LIMIT_S) == 0.01
    assert looks.took == []


def test_near_the_limit_whole_batches_decide_and_the_shorter_one() -> None:
    """A single call by the judge's clock may be off by `NOISE_S`."""
    looks = Looks(LIMIT_S + NOISE_S / 2, LIMIT_S + NOISE_S / 3, LIMIT_S / 2, 3 * LIMIT_S)
    assert shortest_s(looks, LIMIT_S) == LIMIT_S / 2
    assert looks.calls == [1, 1, WARM_SETS, WARM_SETS]
    assert shortest_s(Looks(LIMIT_S / 2, 1.5 * LIMIT_S, 1.2 * LIMIT_S), LIMIT_S) == pytest.approx(1.2 * LIMIT_S)
