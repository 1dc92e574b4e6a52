"""The times of a race as a clock, which pytest-benchmark reads: one of its rounds takes one of these times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Replay:
    """A timer that is at 0 before a round and, after `step`, at the seconds that the round took."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque()
        self._shown_s = 0.0

    def load(self, times_s: Iterable[float]) -> None:
        """Times of the rounds to come, in seconds."""
        self._times_s = deque(times_s)

    def step(self) -> None:
        """One round. Raises IndexError where no time is left."""
        self._shown_s = self._times_s.popleft()

    def __call__(self) -> float:
        shown_s, self._shown_s = self._shown_s, 0.0
        return shown_s
