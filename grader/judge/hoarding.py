"""Decides whose fault it is when the judge finds no GPU memory: the submission's, if its workers keep too much between
calls.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import clear_frames

import torch

from grader.assignment import Assignment
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.pool.fault import Fault

HOARD_GIB = 8.0  # GPU memory that a submission's workers may keep between calls
WORKER_GIB = 1.0  # more for each worker: a context and PyTorch's cache
RELEASE_LIMIT_S = 10.0  # the driver needs some time to free the memory of killed processes


@dataclass
class Hoarding:
    """Tells a submission that keeps GPU memory from a GPU that has too little. Threads may share an instance."""

    run: Run
    workers: Workers
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    # By assignment: the last reason, and when it was found.
    _told: dict[str, tuple[float, Exception]] = field(init=False, default_factory=dict)

    @contextmanager
    def is_a_fault(self, assignment: Assignment) -> Iterator[None]:
        """In this block, turn a lack of GPU memory into the submission's fault if the submission keeps too much.

        To find out, the submission's workers for the assignment are ended in all lanes. Calls in progress, and other
        lanes that lack memory at this time, raise the same error.

        Raises:
            Fault: `out_of_memory`, if ending the workers freed more than a submission may keep; otherwise the machine's.
        """
        began = time.monotonic()
        try:
            yield
        except (MemoryError, RuntimeError, Fault) as error:
            if self.run.device_name != "cuda" or not is_out_of_memory(error):
                raise
            clear_frames(error.__traceback__)  # frames may hold GPU memory
            with self._lock:
                at, told = self._told.get(assignment.name, (0.0, error))
                if at < began:
                    told = self._reason(assignment, error)
                    self._told[assignment.name] = time.monotonic(), told
            raise told from None

    def room_for(self, assignment: Assignment, needed_gib: float) -> float:
        """Free GPU memory in GiB. If that is too little, the submission's workers end first: keeping memory must not
        spare them cases.

        Raises:
            Fault: `out_of_memory`, if the workers kept more than a submission may.
        """
        free_gib = self.run.free_gib()
        if self.run.device_name != "cuda" or not free_gib < needed_gib <= self.run.total_gib:
            return free_gib
        with self._lock:
            told = self._reason(assignment, MemoryError(f"{needed_gib:g} GiB are needed"))
        if isinstance(told, Fault) and told.whose != "machine":
            raise told
        return self.run.free_gib()

    def _reason(self, assignment: Assignment, error: Exception) -> Exception:
        """End the submission's workers, and return the error that says whose fault the lack of memory is: the
        reason.
        """
        reason: Future[Exception] = Future()
        told: Exception = (
            error if isinstance(error, Fault) else Fault.of_machine(f"the judge found no GPU memory: {error}")
        )
        try:
            self.workers.baselines.settle()  # memory that a loading baseline frees is not the submission's
            before_gib = self.run.free_gib()
            ended = self.workers.terminate(assignment, reason)
            allowed_gib = HOARD_GIB + WORKER_GIB * ended
            freed_gib = freed_since(self.run, before_gib, allowed_gib, RELEASE_LIMIT_S if ended else 0.0)
            if freed_gib >= allowed_gib:
                held = f"still held {freed_gib:.0f} GiB of GPU memory after its calls"
                told = Fault("out_of_memory", f"{held}, and left none for the next call's tensors: stopped")
        finally:
            reason.set_result(told)  # also after an error: terminated workers' calls wait for the reason
        return told


def too_little(needed_gib: float, free_gib: float) -> str:
    """A sentence about a lack of memory. Free memory is rounded down, so that it never looks enough."""
    return f"needs {needed_gib:g} GiB of GPU memory, {math.floor(free_gib)} GiB are free"


def freed_since(run: Run, before_gib: float, enough_gib: float, limit_s: float) -> float:
    """Wait until at least `enough_gib` of GPU memory came free since `before_gib`, or `limit_s` have passed. Returns
    GiB.
    """
    deadline = time.monotonic() + limit_s
    while (freed_gib := run.free_gib() - before_gib) < enough_gib and time.monotonic() < deadline:
        time.sleep(0.05)
    return freed_gib


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error may be a lack of GPU memory; a worker that does not start gives no reason."""
    if isinstance(error, Fault):
        return error.of_start
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "out of memory" in str(error)  # the driver's words, in errors of any library
