"""Judges that grade one submission after another, for a GPU: what has asked for one is no process to be forked from."""

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
from grader.contender.contender import Contender
from grader.contender.pool import WorkerPool
from grader.judge.crew import Crew
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.judge.standing import Standing
from grader.report.model import Report
from grader.runfolder import run_folder
from tests.support.warm_judge import CONTEXT, Task, report

MEASURES_MEMORY = "flash_attention"  # has cases that look at how much of the GPU's memory is free
REPORT_LIMIT_S = 500  # for one task: nothing takes as long that goes as it should
END_LIMIT_S = 15
MAX_PER_GPU = 8  # processes of more judges than that would take turns on it
CORES = 4  # for each judge: two workers, and what compiles for them
_STARTING = threading.Lock()  # the environment is the whole process's


@dataclass(frozen=True)
class Place:
    """Where a judge runs: the GPU of this number, and these cores, or all."""

    gpu: str
    cores: Collection[int] | None


def gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else list(map(str, range(torch.cuda.device_count())))


def good_count() -> int:
    """How many judges this machine is good for."""
    there = len(gpus())
    return max(there, min(len(os.sched_getaffinity(0)) // CORES, MAX_PER_GPU * there))


def places(count: int) -> list[Place]:
    """For so many judges: GPUs in turn, and to each its share of the cores that this process may use."""
    cores, there = sorted(os.sched_getaffinity(0)), gpus()
    bounds = [number * len(cores) // count for number in range(count + 1)]
    shares = [cores[low:high] or cores for low, high in pairwise(bounds)]
    return [Place(there[number % len(there)], share) for number, share in enumerate(shares)]


class SteadyJudge:
    """A process that grades what it is given, one after another, until this one ends."""

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
        """Have it end, whatever it does."""
        self._process.terminate()

    def close(self) -> None:
        """End it; returns when it has."""
        self.strike()
        self._process.join(END_LIMIT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@contextmanager
def confined(cores: Collection[int] | None) -> Iterator[None]:
    """What this thread starts in the block has only these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if cores is None else cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class SteadyJudges:
    """A judge for each of these places, started when first needed."""

    def __init__(self, wanted: Collection[Place]) -> None:
        self._free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for place in wanted:
            self._free.put(place)
        self._judges: dict[int, SteadyJudge] = {}  # by the identity of its place
        self._lock = threading.Lock()
        self._closed = False

    def grade(self, task: Task) -> Report:
        """By whichever is free; waits for one. Raises AssertionError where there is no report."""
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
        """End all of them, whatever they do."""
        with self._lock:
            self._closed = True
            ending, self._judges = list(self._judges.values()), {}
        for judge in ending:
            judge.strike()
        for judge in ending:
            judge.close()


_judges: list[SteadyJudges] = []  # the last are those that are asked


def grade(task: Task) -> Report:
    """By the judges of `several`; outside of it by one for each GPU, which end with this process."""
    if not _judges:
        _judges.append(SteadyJudges([Place(gpu, None) for gpu in gpus()]))
        atexit.register(_judges[0].close)
    return _judges[-1].grade(task)


@contextmanager
def several(wanted: Collection[Place]) -> Iterator[None]:
    """Judges at these places are those that grade in the block, and end with it."""
    judges = SteadyJudges(wanted)
    _judges.append(judges)
    try:
        yield
    finally:
        _judges.remove(judges)
        judges.close()


def _serve(tasks: Connection) -> None:
    """What the steady judge does: answer each task with a report, or with what went wrong, until it is told to end or nobody asks."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    from grader.judge import session

    with suppress(KeyboardInterrupt, EOFError, BrokenPipeError, session.Interrupted), ExitStack() as lasting:
        lasting.enter_context(patch.object(session, "Crew", _crew_with_a_lasting_reference(lasting)))
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
            # The next one's worker starts meanwhile, where nobody looks at how much memory of the GPU is free.
            looks = task.assignment == MEASURES_MEMORY and task.cases != "beside others"
            ready = None if looks else _place(stack, task.device)
            try:
                tasks.send(report(task, folder, pool))
            except (Interrupted, BrokenPipeError):
                raise
            except Exception:
                tasks.send(traceback.format_exc())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Only once: what ends because of it is not to be interrupted."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _crew_with_a_lasting_reference(stack: ExitStack) -> type[Crew]:
    """A crew whose workers with the reference kernels serve all gradings after it, until `stack` ends, and that keeps no spare."""
    lasting: dict[str, Contender] = {}
    folder = stack.enter_context(run_folder())

    class Lasting(Crew):
        def __init__(self, run: Run, standing: Standing, pool: WorkerPool) -> None:
            super().__init__(run, standing, pool)
            self.references = lasting
            self.device, self.course = run.device_name, run.job.course

        def reference(self, assignment: Assignment) -> Contender:
            kept = lasting.get(assignment.name)
            if kept is None or not kept.lives():
                pool = WorkerPool(self.device, folder / secrets.token_hex(8))
                stack.callback(pool.close)
                kept = load_file(pool.start(self.kind_of(assignment)), self.course / "reference", assignment)
                lasting[assignment.name] = kept
            return kept

        def needs_a_spare(self, _assignment: Assignment) -> bool:
            return self.has_crashed

    return Lasting


def _place(stack: ExitStack, device: Device) -> tuple[Path, WorkerPool]:
    """A run's folder with a worker that is on its way; both end with `stack`."""
    folder = stack.enter_context(run_folder())
    pool = WorkerPool(device, folder)
    stack.callback(pool.close)
    pool.prepare()
    return folder, pool
