"""How long all workers of one assignment may keep the judge waiting, together.

Each call has a limit of its own. Who takes nearly all of it in every case, or has each worker take long to end, would otherwise keep a
node busy for an hour, until the grading is given up without a report.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class Allowance:
    """Seconds of wall time in which at least one worker is waited for. Threads may share it.

    Args:
        time_s: how many there are.
    """

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s
        self._lock = threading.Lock()
        self._waiting = 0  # threads that wait for a worker now
        self._since = 0.0  # when the first of them began
        self._taken_s = 0.0  # until then

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """In here a worker is waited for; two that are waited for at the same time take the time once."""
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._taken_s += time.monotonic() - self._since

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 when they are used up."""
        with self._lock:
            running_s = time.monotonic() - self._since if self._waiting else 0.0
            return max(self.time_s - self._taken_s - running_s, 0.0)

    @property
    def words(self) -> str:
        """What a student is told when nothing is left."""
        return f"what your code did for this assignment has taken {self.time_s:g} s in all, as long as it may"
