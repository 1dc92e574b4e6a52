"""Whether the GPU is quiet, on a simulated one whose time runs by itself."""

from __future__ import annotations

import pytest
import torch

from grader.judge import gpu
from grader.judge.gpu import PROBE_PASSES, Gauge

PASS_NS, LAUNCH_NS, HICCUP_NS = 33_000, 10_000, 50_000_000


class Simulated(Gauge):
    """A GPU that another program shares in turns, the first of which is the judge's; it has it for itself where turn_ns is 0."""

    def __init__(self, turn_ns: int, phase: float = 0.0, hiccups: tuple[int, ...] = ()) -> None:
        super().__init__(torch.device("cpu"))
        self._turn_ns, self._now, self._probes, self._hiccups = turn_ns, int(2 * turn_ns * phase), 0, ()
        self._work = torch.zeros(1)
        self.usual_s = min(self._probe(PROBE_PASSES) for _ in range(20))
        self._probes, self._hiccups = 0, hiccups

    def _probe(self, passes: int) -> float:
        started, left = self._now, passes * PASS_NS
        while left:
            ran = left
            if self._turn_ns:
                at = self._now % (2 * self._turn_ns)
                ran = min(left, max(0, self._turn_ns - at))
                self._now += 0 if ran else 2 * self._turn_ns - at
            self._now += ran
            left -= ran
        self._now += LAUNCH_NS
        self._probes += 1
        return (self._now - started + HICCUP_NS * (self._probes in self._hiccups)) / 1e9


@pytest.mark.parametrize("turn_ns", [600_000, 1_000_000, 2_000_000, 3_000_000])
@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6, 0.9])
def test_a_neighbour_that_works_all_the_time_is_seen_whenever_one_looks(turn_ns: int, phase: float) -> None:
    assert not Simulated(turn_ns, phase).is_quiet()


def test_a_gpu_that_nobody_shares_is_quiet() -> None:
    assert Simulated(0).is_quiet()


@pytest.mark.parametrize("probe", [1, 2])
def test_one_hiccup_of_the_host_is_no_neighbour(probe: int) -> None:
    assert Simulated(0, hiccups=(probe,)).is_quiet()
    assert not Simulated(0, hiccups=(probe, probe + 1)).is_quiet()


def test_on_a_gpu_where_the_small_piece_is_long_it_is_not_made_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    gauge = Simulated(0)
    gauge.usual_s = 2 * gpu.LONG_S
    seen: list[int] = []
    monkeypatch.setattr(gauge, "_probe", lambda passes: seen.append(passes) or 0.0)
    assert gauge.is_quiet()
    assert seen == [PROBE_PASSES, PROBE_PASSES]
