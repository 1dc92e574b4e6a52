"""Steady judges: processes that grade one submission after another on a GPU. A process that has used a GPU cannot be
forked.
"""

from __future__ import annotations

import atexit
import os
import queue
import secrets
import signal
import threading
import traceback
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import torch

from grader.assignment import Assignment, Device
from grader.judge.files import Files
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.pool.pool import WorkerPool
from grader.pool.worker import Worker
from grader.report.model import Report
from grader.runfolder import run_folder
from tests.support.warm_judge import CONTEXT, Task, report

REPORT_LIMIT_S = 500  # seconds for one task; a task that goes well takes less
END_LIMIT_S = 15
MAX_PER_GPU = 8  # more judges' processes would only take turns on the GPU
CORES = 4  # for each judge: two workers, and their compilers
_STARTING = threading.Lock()  # the environment belongs to the whole process


@dataclass(frozen=True)
class Place:
    """A judge's place: the number of its GPU, and its cores (None: all)."""

    gpu: str
    cores: Collection[int] | None


def gpus() -> list[str]:
    """The GPUs, in the names of CUDA_VISIBLE_DEVICES."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else list(map(str, range(torch.cuda.device_count())))


def good_count() -> int:
    """The number of judges that this machine can run well."""
    there = len(gpus())
    return max(there, min(len(os.sched_getaffinity(0)) // CORES, MAX_PER_GPU * there))


def places(count: int) -> list[Place]:
    """Places for `count` judges: GPUs in turn, and for each a share of this process's cores."""
    cores, there = sorted(os.sched_getaffinity(0)), gpus()
    bounds = [number * len(cores) // count for number in range(count + 1)]
    shares = [cores[low:high] or cores for low, high in pairwise(bounds)]
    return [Place(there[number % len(there)], share) for number, share in enumerate(shares)]


class SteadyJudge:
    """A process that grades one task after another, until this process ends."""

    def __init__(self, place: Place) -> None:
        self._pipe, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_serve, args=(theirs,))
        with _STARTING, patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": place.gpu}), confined(place.cores):
            self._process.start()
        theirs.close()

    def grade(self, task: Task) -> Report:
        try:
            self._pipe.send(task)
            assert self._pipe.poll(REPORT_LIMIT_S), f"no report from the judge within {REPORT_LIMIT_S} s"
            answer: bytes | str = self._pipe.recv()
        except (EOFError, OSError):
            raise AssertionError("the judge ended without a report") from None
        if isinstance(answer, str):
            raise AssertionError(f"{answer.strip().splitlines()[-1]}\n{answer}")
        return Report.model_validate_json(answer)

    def strike(self) -> None:
        """Make the process end, in whatever state."""
        self._process.terminate()

    def close(self) -> None:
        """End the process, and wait for its end."""
        self.strike()
        self._process.join(END_LIMIT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def confined(cores: Collection[int] | None) -> Iterator[None]:
    """Give processes that this thread starts in the block only these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if cores is None else cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class SteadyJudges:
    """A judge for each of these places, started on its first task."""

    def __init__(self, wanted: Collection[Place]) -> None:
        self._free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for place in wanted:
            self._free.put(place)
        self._judges: dict[int, SteadyJudge] = {}  # by the identity of its place
        self._lock = threading.Lock()
        self._closed = False

    def grade(self, task: Task) -> Report:
        """Grade a task in a free judge; waits for one. Raises AssertionError if there is no report."""
        place = self._free.get()
        try:
            return self._judge(place).grade(task)
        except AssertionError:
            with self._lock:
                failed = self._judges.pop(id(place), None)
            if failed is not None:
                failed.close()
            raise
        finally:
            self._free.put(place)

    def _judge(self, place: Place) -> SteadyJudge:
        with self._lock:
            assert not self._closed, "the judges have been told to end"
            if id(place) not in self._judges:
                self._judges[id(place)] = SteadyJudge(place)
            return self._judges[id(place)]

    def close(self) -> None:
        """End all judges, in whatever state."""
        with self._lock:
            self._closed = True
            ending, self._judges = list(self._judges.values()), {}
        for judge in ending:
            judge.strike()
        for judge in ending:
            judge.close()


_judges: list[SteadyJudges] = []  # the last item grades


def grade(task: Task) -> Report:
    """Grade a task by the judges of `several`, or else by one judge for each GPU, which ends with this process."""
    if not _judges:
        _judges.append(SteadyJudges([Place(gpu, None) for gpu in gpus()]))
        atexit.register(_judges[0].close)
    return _judges[-1].grade(task)


@contextmanager
def several(wanted: Collection[Place]) -> Iterator[None]:
    """Grade in this block by judges at these places. They end with the block."""
    judges = SteadyJudges(wanted)
    _judges.append(judges)
    try:
        yield
    finally:
        _judges.remove(judges)
        judges.close()


def _serve(tasks: Connection) -> None:
    """The steady judge's loop: answers each task with a report or a traceback, until it is interrupted or the
    connection closes.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    from grader.judge import session
    from grader.judge.__main__ import keep_environment

    keep_environment()
    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError, session.Interrupted), ExitStack() as lasting:
        lasting.enter_context(patch.object(session, "Workers", _crew_with_a_lasting_reference(lasting)))
        with ExitStack() as stack:
            _serve_all(tasks, stack)


def _serve_all(tasks: Connection, stack: ExitStack) -> None:
    from grader.judge.session import Interrupted

    ready: tuple[Path, WorkerPool] | None = None
    while True:
        task: Task = tasks.recv()
        with ExitStack() as own:
            folder, pool = ready or _place(own, task.device)
            if ready is not None:
                own.enter_context(stack.pop_all())
            ready = _place(stack, task.device)  # starts the next task's fork server meanwhile, which uses no GPU
            try:
                tasks.send(report(task, folder, pool))
            except (Interrupted, BrokenPipeError):
                raise
            except Exception:
                tasks.send(traceback.format_exc())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Interrupt once: further signals must not disturb the end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _crew_with_a_lasting_reference(stack: ExitStack) -> type[Workers]:
    """A workers class whose reference workers serve all later gradings, until `stack` ends."""
    lasting: dict[str, Worker] = {}
    folder = stack.enter_context(run_folder())

    class Lasting(Workers):
        def __init__(self, run: Run, files: Files, pool: WorkerPool) -> None:
            super().__init__(run, files, pool)
            self.references = lasting
            self.device, self.course = run.device_name, run.request.course

        def reference(self, assignment: Assignment) -> Worker:
            kept = lasting.get(assignment.name)
            if kept is None or not kept.lives():
                pool = WorkerPool(self.device, folder / secrets.token_hex(8))
                stack.callback(pool.close)
                kept = load_file(pool.start(self.kind_of(assignment), "course"), self.course / "reference", assignment)
                lasting[assignment.name] = kept
            return kept

    return Lasting


def _place(stack: ExitStack, device: Device) -> tuple[Path, WorkerPool]:
    """A run's folder, and a pool with a starting fork server; both end with `stack`."""
    folder = stack.enter_context(run_folder())
    pool = WorkerPool(device, folder)
    stack.callback(pool.close)
    pool.server()
    return folder, pool
