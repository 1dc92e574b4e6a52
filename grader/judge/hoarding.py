"""GPU memory as the judge sees it: who has it when there is none left."""

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
from grader.contender.contender import WorkerUnavailable
from grader.contender.replies import ContenderFault
from grader.judge.crew import Crew
from grader.judge.evidence import CaseRefused
from grader.judge.run import Run

HOARD_GIB = 8.0  # that a submission's workers may hold between calls before it is their fault when the judge finds none
WORKER_GIB = 1.0  # more for each of them: a context, and what PyTorch keeps
RELEASE_LIMIT_S = 10.0  # for the driver to take back what killed processes held


@dataclass
class Hoarding:
    """Tells a submission that keeps the GPU's memory from a GPU that has too little. Threads may share it."""

    run: Run
    crew: Crew
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    # The last sentence for each assignment, and when it was told.
    _told: dict[str, tuple[float, Exception]] = field(init=False, default_factory=dict)

    @contextmanager
    def is_a_fault(self, assignment: Assignment) -> Iterator[None]:
        """Where the judge, or a worker that starts, finds no GPU memory in the `with` block because the submission keeps it: its fault.

        To know, its workers for the assignment are ended, in all lanes; who waits for one of them is told the same, and so is a lane
        that finds no memory meanwhile.

        Raises:
            ContenderFault: `out_of_memory`, if that has set free more than a submission may hold.
            CaseRefused: if it has not; WorkerUnavailable where it was a worker that did not start.
        """
        began = time.monotonic()
        try:
            yield
        except (MemoryError, RuntimeError, WorkerUnavailable) as error:
            if self.run.device_name != "cuda" or not is_out_of_memory(error):
                raise
            clear_frames(error.__traceback__)  # they may hold GPU memory
            with self._lock:
                at, told = self._told.get(assignment.name, (0.0, error))
                if at < began:
                    told = self._sentence(assignment, error)
                    self._told[assignment.name] = time.monotonic(), told
            raise told from None

    def room_for(self, assignment: Assignment, needed_gib: float) -> float:
        """How much of the GPU's memory is free, in GiB: where that is too little, and the GPU has as much as is needed, without the
        submission's workers for the assignment. Who keeps memory must not be spared the cases that need it.

        Raises:
            ContenderFault: `out_of_memory`, if those held more than a submission may.
        """
        free_gib = self.run.free_gib()
        if self.run.device_name != "cuda" or not free_gib < needed_gib <= self.run.total_gib:
            return free_gib
        with self._lock:
            told = self._sentence(assignment, MemoryError(f"{needed_gib:g} GiB are needed"))
        if isinstance(told, ContenderFault):
            raise told
        return self.run.free_gib()

    def _sentence(self, assignment: Assignment, error: Exception) -> Exception:
        """End the submission's workers, and say whose fault it was that there was no memory."""
        sentence: Future[Exception] = Future()
        unavailable = isinstance(error, WorkerUnavailable)
        told: Exception = error if unavailable else CaseRefused(f"the judge found no GPU memory: {error}")
        try:
            self.crew.baselines.settle()  # what one of them gives back meanwhile is not the submission's
            before_gib = self.run.free_gib()
            ended = self.crew.condemn(assignment, sentence)
            allowed_gib = HOARD_GIB + WORKER_GIB * ended
            freed_gib = freed_since(self.run, before_gib, allowed_gib, RELEASE_LIMIT_S if ended else 0.0)
            if freed_gib >= allowed_gib:
                held = f"still held {freed_gib:.0f} GiB of GPU memory after its calls"
                told = ContenderFault("out_of_memory", f"{held}, and left none for the next call's tensors: stopped")
        finally:
            sentence.set_result(told)  # whatever happens: others wait for it
        return told


def too_little(needed_gib: float, free_gib: float) -> str:
    """A sentence that never says that as much is free as is needed."""
    return f"needs {needed_gib:g} GiB of GPU memory, {math.floor(free_gib)} GiB are free"


def freed_since(run: Run, before_gib: float, enough_gib: float, limit_s: float) -> float:
    """How much more memory is free than it was, in GiB, once that is enough; the driver may be at it for so long."""
    deadline = time.monotonic() + limit_s
    while (freed_gib := run.free_gib() - before_gib) < enough_gib and time.monotonic() < deadline:
        time.sleep(0.05)
    return freed_gib


def is_out_of_memory(error: Exception) -> bool:
    """Whether there was no GPU memory, perhaps: a worker that did not start does not say why."""
    if isinstance(error, MemoryError | WorkerUnavailable | torch.OutOfMemoryError):
        return True
    return "out of memory" in str(error)  # the driver's own words, by whatever library
