"""GPU memory as the judge sees it: the least that was free while a contender worked, and who has it when there is none left."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from traceback import clear_frames
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from grader.assignment import Assignment
from grader.contender.contender import WorkerUnavailable
from grader.contender.replies import ContenderFault
from grader.judge.evidence import CaseRefused

if TYPE_CHECKING:
    from grader.judge.state import Judge

INTERVAL_S = 0.001
HOARD_GIB = 8.0  # that a submission's workers may hold between calls before it is their fault when the judge finds none
WORKER_GIB = 1.0  # more for each of them: a context, and what PyTorch keeps
RELEASE_LIMIT_S = 10.0  # for the driver to take back what killed processes held


@contextmanager
def hoarding_is_a_fault(judge: Judge, assignment: Assignment) -> Iterator[None]:
    """Where the judge, or a worker that starts, finds no GPU memory in the `with` block because the submission keeps it: its fault.

    To know, its workers for the assignment are ended, in all lanes; who waits for one of them is told the same, and so is a lane that
    finds no memory meanwhile.

    Raises:
        ContenderFault: `out_of_memory`, if that has set free more than a submission may hold.
        CaseRefused: if it has not; WorkerUnavailable where it was a worker that did not start.
    """
    began = time.monotonic()
    try:
        yield
    except (MemoryError, RuntimeError, WorkerUnavailable) as error:
        if judge.device_name != "cuda" or not is_out_of_memory(error):
            raise
        clear_frames(error.__traceback__)  # they may hold GPU memory
        with judge.sentencing:
            at, told = judge.sentences.get(assignment.name, (0.0, error))
            if at < began:
                told = _sentence(judge, assignment, error)
                judge.sentences[assignment.name] = time.monotonic(), told
        raise told from None


def room_for(judge: Judge, assignment: Assignment, needed_gib: float) -> float:
    """How much of the GPU's memory is free, in GiB: where that is too little, and the GPU has as much as is needed, without the
    submission's workers for the assignment. Who keeps memory must not be spared the cases that need it.

    Raises:
        ContenderFault: `out_of_memory`, if those held more than a submission may.
    """
    free_gib = judge.free_gib()
    if judge.device_name != "cuda" or not free_gib < needed_gib <= judge.total_gib:
        return free_gib
    with judge.sentencing:
        told = _sentence(judge, assignment, MemoryError(f"{needed_gib:g} GiB are needed"))
    if isinstance(told, ContenderFault):
        raise told
    return judge.free_gib()


def too_little(needed_gib: float, free_gib: float) -> str:
    """Says so; never that as much is free as is needed."""
    return f"needs {needed_gib:g} GiB of GPU memory, {math.floor(free_gib)} GiB are free"


def _sentence(judge: Judge, assignment: Assignment, error: Exception) -> Exception:
    """End the submission's workers, and say whose fault it was that there was no memory."""
    sentence: Future[Exception] = Future()
    unavailable = isinstance(error, WorkerUnavailable)
    told: Exception = error if unavailable else CaseRefused(f"the judge found no GPU memory: {error}")
    try:
        judge.baselines.settle()  # what one of them gives back meanwhile is not the submission's
        before_gib = judge.free_gib()
        ended = judge.condemn(assignment, sentence)
        allowed_gib = HOARD_GIB + WORKER_GIB * ended
        freed_gib = freed_since(judge, before_gib, allowed_gib, RELEASE_LIMIT_S if ended else 0.0)
        if freed_gib >= allowed_gib:
            told = ContenderFault(
                "out_of_memory",
                f"still held {freed_gib:.0f} GiB of GPU memory after its calls, and left none for the next call's tensors: stopped",
            )
    finally:
        sentence.set_result(told)  # whatever happens: others wait for it
    return told


def freed_since(judge: Judge, before_gib: float, enough_gib: float, limit_s: float) -> float:
    """How much more memory is free than it was, in GiB, once that is enough; the driver may be at it for so long."""
    deadline = time.monotonic() + limit_s
    while (freed_gib := judge.free_gib() - before_gib) < enough_gib and time.monotonic() < deadline:
        time.sleep(0.05)
    return freed_gib


def is_out_of_memory(error: Exception) -> bool:
    """Whether there was no GPU memory, perhaps: a worker that did not start does not say why."""
    if isinstance(error, MemoryError | WorkerUnavailable | torch.OutOfMemoryError):
        return True
    return "out of memory" in str(error)  # the driver's own words, by whatever library


class DeviceMemoryWatch:
    """Measures by how much the GPU's free memory fell at most, in MiB, while the `with` block ran.

    Counted from the most that was free, for a worker may give back old memory before it takes new.

    It asks the driver, not the worker, whose own count could be wrong on purpose. Memory that was taken and given
    back between two looks, a millisecond apart, is missed; PyTorch's allocator keeps what it once took.
    """

    def __init__(self, device: torch.device, enabled: bool) -> None:
        self._device = device
        self._enabled = enabled and device.type == "cuda"
        self._stop = threading.Event()
        self._lowest = self._highest = 0
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def extra_mib(self) -> float:
        return (self._highest - self._lowest) / 2**20

    def __enter__(self) -> DeviceMemoryWatch:
        if self._enabled:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            self._lowest = self._highest = torch.cuda.mem_get_info(self._device)[0]
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._stop.set()
            self._thread.join()
            self._note()

    def _look(self) -> None:
        while not self._stop.is_set():
            self._note()
            time.sleep(INTERVAL_S)

    def _note(self) -> None:
        free = torch.cuda.mem_get_info(self._device)[0]
        self._lowest, self._highest = min(self._lowest, free), max(self._highest, free)
