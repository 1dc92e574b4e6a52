"""What the workers of an assignment may take in all."""

from __future__ import annotations

import pytest

from grader.pool.watch import Allowance


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def test_only_time_in_which_a_worker_is_waited_for_is_taken_and_once(clock: Clock) -> None:
    allowance = Allowance(10.0)
    clock.now_s += 50
    assert allowance.left_s == 10.0
    with allowance.waiting():
        clock.now_s += 1
        with allowance.waiting():  # for another worker
            clock.now_s += 2
        assert allowance.left_s == 7.0
        clock.now_s += 3
    clock.now_s += 50
    assert allowance.left_s == 4.0
    with allowance.waiting():
        clock.now_s += 11
    assert allowance.left_s == 0.0
    assert "10 s in all" in allowance.words
