"""Watches a waiting worker's limits: time, processes, memory, files. Each look takes milliseconds.

Each call has a time limit, and all workers of an assignment share an allowance. Without the allowance, a submission
that takes nearly its whole limit in every case would keep a machine busy for an hour.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.pool import processes, usage
from grader.pool.fault import Fault
from grader.pool.surroundings import MAX_FILES, WatchedFolder
from grader.pool.usage import LOOK_LIMIT_S, Look, LookCutShort, LookTooLong

INTERVAL_S = 0.05
TIMED_FIRST_LOOK_S = 1.0  # no look should fall into a timed batch
MOST_GIVEN_BACK = 3.0  # Waiting for a core extends a call's limit by at most 3 times that limit.
MAX_PROCESSES = 256
GIB = 1 << 30


@dataclass(frozen=True)
class CallLimits:
    """Limits of a call: seconds of wall time, and GiB of host memory for the worker's whole tree."""

    time_s: float
    memory_gib: float


class Allowance:
    """Seconds of wall time in which the judge may wait for workers of an assignment. Threads may share an instance."""

    def __init__(self, time_s: float) -> None:
        self.time_s = time_s
        self._lock = threading.Lock()
        self._waiting = 0  # threads that wait for a worker now
        self._since = 0.0  # when the first of these threads began to wait
        self._taken_s = 0.0  # seconds before `_since`

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in this block. Threads that wait at the same time count once."""
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
        """Seconds that are left, at least 0."""
        with self._lock:
            running_s = time.monotonic() - self._since if self._waiting else 0.0
            return max(self.time_s - self._taken_s - running_s, 0.0)

    @property
    def words(self) -> str:
        """The reason, for the student, when no time is left."""
        return f"what your code did for this assignment has taken {self.time_s:g} s in all, as long as it may"


class Watch:
    """Watches the tree of one worker, and the folders that the worker writes to."""

    def __init__(self, process: processes.Process, folder: WatchedFolder) -> None:
        self._process, self._folder = process, folder
        self._own: Sequence[int] = ()  # threads of the worker and its jail before any code of the submission ran
        self._expendable = False  # whether the kernel would end all of `_own` first
        self._looked = time.monotonic()

    def begin(self) -> None:
        """Note the processes that exist before a submission's code runs."""
        self._own = self._tree()
        self._expendable = not usage.spared(self._own)

    def has_started_more(self) -> bool:
        """Whether the tree has more processes than at `begin`."""
        return len(self._tree()) > len(self._own)

    def waited_s(self) -> float:
        """Seconds that the worker has waited for a core."""
        return usage.waited_s(self._own)

    def look_if_due(self, limits: CallLimits, left_s: float) -> None:
        """Look at the worker, unless the last look was less than INTERVAL_S ago. Raises Fault if a limit is exceeded; the
        caller must then end the worker.

        A look ends without a result `left_s` seconds from now, when the call is late, or after LOOK_LIMIT_S if that is
        longer: in time that is added to a call, looks must not be too short for a result.
        """
        if time.monotonic() < self._looked + INTERVAL_S:
            return
        try:
            self._check(limits, max(left_s, LOOK_LIMIT_S))
        except LookCutShort:
            return
        except LookTooLong:
            words = "has so many processes or mappings of memory that what they hold cannot be told in time"
            raise Fault("crashed", f"{words}: stopped") from None
        except OSError as error:  # no file can be opened or no process started; the submission may be the reason
            words = f"what its processes use could not be told ({error.strerror})"
            raise Fault("crashed", f"{words}: stopped") from None
        self._looked = time.monotonic()

    def _check(self, limits: CallLimits, limit_s: float) -> None:
        tree, allowed = self._tree(age_s=INTERVAL_S / 2), int(limits.memory_gib * GIB)
        look = Look(tree, limit_s)
        if len(tree) > MAX_PROCESSES:
            raise Fault("crashed", f"started more than {MAX_PROCESSES} processes: stopped")
        if look.hold_more_than(allowed):
            raise Fault("out_of_memory", f"used more than {limits.memory_gib:g} GiB of host memory: stopped")
        if self._expendable and usage.spared(tree):
            raise Fault("crashed", "asked the kernel to spare it where memory runs out: stopped")
        if usage.container_is_full():
            raise Fault("out_of_memory", "used nearly all memory of the container: stopped")
        if self._folder.grown_beyond(files := self._folder.allowed(allowed), look):
            raise Fault("out_of_memory", f"wrote more than {files / GIB:.3g} GiB of files: stopped")
        if self._folder.holds_more_than(MAX_FILES, look):
            raise Fault("out_of_memory", f"wrote more than {MAX_FILES} files: stopped")

    def _tree(self, age_s: float = 0.0) -> list[int]:
        """The worker's tree, as one thread id for each process."""
        return [one.thread for one in processes.tree(self._process.pid, age_s)]
