"""Whether the GPU is quiet, on a simulated one whose time runs by itself."""

from __future__ import annotations

import time

import pytest
import torch

from grader.judge.gpu import LOOK_NS, PAUSE_NS, Gauge, memory_watched

WORK_NS, LAUNCH_NS, HICCUP_NS = 500_000, 10_000, 50_000_000


class Simulated(Gauge):
    """A GPU that another program shares in turns, the first of which is the judge's; it has it for itself where turn_ns is 0.

    tick_ns: the step of the GPU's clock.
    """

    def __init__(self, turn_ns: int, phase: float = 0.0, hiccups: tuple[int, ...] = (), tick_ns: int = 32) -> None:
        super().__init__(torch.device("cpu"))
        self.tick_ns = tick_ns
        self.turn_ns, self._now, self._probes, self._hiccups = turn_ns, int(2 * turn_ns * phase), 0, ()
        self._work = torch.zeros(1)
        self.usual_s = min(self.probe() for _ in range(20))
        self.pause_ns = self.find_pause()
        self._probes, self._hiccups = 0, hiccups

    def _rest_of_turn(self) -> int:
        """What the judge has left of its turn; nothing in one of the other's."""
        return max(0, self.turn_ns - self._now % (2 * self.turn_ns))

    def _wait_for_turn(self) -> int:
        waited = 2 * self.turn_ns - self._now % (2 * self.turn_ns)
        self._now += waited
        return waited

    def probe(self) -> float:
        started, left = self._now, WORK_NS
        while self.turn_ns and left > (rest := self._rest_of_turn()):
            self._now += rest
            left -= rest
            self._wait_for_turn()
        self._now += left + LAUNCH_NS
        self._probes += 1
        return (self._now - started + HICCUP_NS * (self._probes in self._hiccups)) / 1e9

    def time_away_ns(self, pause_ns: int) -> int:
        if self.tick_ns > pause_ns:
            self._now += LOOK_NS
            return LOOK_NS  # each step of the clock is taken for time in which somebody else had the GPU
        if not self.turn_ns:
            return 0
        away, end = 0, self._now + LOOK_NS
        while self._now < end:
            self._now += self._rest_of_turn()
            if self._now < end:
                waited = self._wait_for_turn()
                away += waited if waited > pause_ns else 0
        return away


@pytest.mark.parametrize("turn_ns", [200_000, 600_000, 1_000_000, 2_000_000, 3_000_000])
@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6, 0.9])
def test_a_neighbour_that_works_all_the_time_is_seen_whenever_one_looks(turn_ns: int, phase: float) -> None:
    """Though it was there when the gauge was made, and all that the judge's work has ever taken was twice as long."""
    assert not Simulated(turn_ns, phase).is_quiet()


def test_another_look_makes_nothing_longer() -> None:
    """Whoever has the GPU then cannot make the judge's work take longer than it did before any of the student's code ran."""
    gauge = Simulated(0)
    usual_s = gauge.usual_s
    gauge.turn_ns = 200_000
    gauge.look_again()
    assert gauge.usual_s == usual_s
    disturbed = Simulated(200_000)
    assert disturbed.usual_s > usual_s
    disturbed.turn_ns = 0
    disturbed.look_again()
    assert disturbed.usual_s == usual_s


def test_a_pause_that_was_found_beside_others_becomes_shorter_and_never_longer() -> None:
    gauge = Simulated(0)
    shortest = gauge.pause_ns
    for disturbed in (None, 50 * PAUSE_NS):
        gauge.pause_ns = disturbed
        gauge.look_again()
        assert gauge.pause_ns == shortest == PAUSE_NS
    coarse = Simulated(0, tick_ns=100_000)
    found = coarse.pause_ns
    assert found is not None
    assert found > PAUSE_NS
    coarse.tick_ns = 10_000_000
    coarse.look_again()
    assert coarse.pause_ns == found


def test_a_gpu_that_nobody_shares_is_quiet() -> None:
    assert Simulated(0).is_quiet()


def test_after_a_baseline_nobody_looks_for_neighbours_that_take_turns() -> None:
    """That takes as long as a batch; after each of the submission's it is done. A kernel that still runs is seen all the same."""
    gauge = Simulated(1_000_000)
    gauge.usual_s = 1.0
    assert gauge.is_quiet(thoroughly=False)
    assert not gauge.is_quiet()
    gauge.usual_s = 0.0
    assert not gauge.is_quiet(thoroughly=False)


@pytest.mark.parametrize("hiccups", [(1,), (2,)])
def test_one_hiccup_of_the_host_is_no_neighbour(hiccups: tuple[int, ...]) -> None:
    assert Simulated(0, hiccups=hiccups).is_quiet()
    assert not Simulated(0, hiccups=(1, 2)).is_quiet()


def test_a_screen_that_is_drawn_now_and_then_is_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = Simulated(0)
    monkeypatch.setattr(gauge, "time_away_ns", lambda _pause_ns: 1_000_000)
    assert gauge.is_quiet()


@pytest.mark.parametrize("tick_ns", [1_000, 30_000, 500_000])
def test_a_clock_of_longer_steps_still_tells_who_has_the_gpu(tick_ns: int) -> None:
    assert Simulated(0, tick_ns=tick_ns).is_quiet()
    assert not Simulated(2_000_000, tick_ns=tick_ns).is_quiet()


def test_a_clock_that_is_too_coarse_accuses_nobody() -> None:
    assert Simulated(0, tick_ns=2_000_000).is_quiet()


@pytest.mark.parametrize(
    ("device", "enabled", "mib"), [("cuda", True, 700.0), ("cuda", False, 0.0), ("cpu", True, 0.0)], ids=str
)
def test_memory_that_a_call_takes_counts_from_the_most_that_was_free(
    monkeypatch: pytest.MonkeyPatch, device: str, enabled: bool, mib: float
) -> None:
    """A worker may give back old memory before it takes new; and what it still holds at the end is seen at the last look."""
    free_mib = [1000, 1200]  # at first, and when the call has begun
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**20 * free_mib[0], 0))
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    with memory_watched(torch.device(device), enabled) as taken:
        del free_mib[0]
        deadline = time.monotonic() + 10
        while mib and taken.mib < 200 and time.monotonic() < deadline:
            time.sleep(0.001)
        free_mib[0] = 500
    assert taken.mib == mib
