"""The pool: starts workers, and keeps some ready, so that an assignment, a race or a case after a crash need not wait
for a start.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

import grader
from grader.assignment import Device
from grader.contender.contender import Contender, WorkerUnavailable
from grader.contender.jail import NO_JAIL, Jail
from grader.contender.replies import ContenderFault
from grader.contender.surroundings import WatchedFolder, WorkerKind

RUNTIME_FILES = ("__init__.py", "protocol.py", "worker")
MAX_AT_ONCE = 12
SHARE_OF_CORES = 0.5  # two cores may be threads of one; the judge and starting workers need some too
GIB_PER_WORKER = 4
MAX_KERNELS_BYTES = 2 << 30  # more kernels than this are not kept for later workers
# The use of a waiting worker: ("spare",), ("race", purpose) in the reserve.
Use: TypeAlias = tuple[Hashable, ...]


def workers_at_once(gpu_gib: float = math.inf) -> int:
    """How many of a submission's workers this machine can run at once, with `gpu_gib` of free GPU memory."""
    cores = len(os.sched_getaffinity(0))
    return int(max(1, min(MAX_AT_ONCE, SHARE_OF_CORES * cores, gpu_gib / GIB_PER_WORKER)))


def end_all(workers: Iterable[Contender]) -> None:
    """End workers at the same time, because each end takes a while."""
    workers = list(workers)
    for worker in workers:
        worker.strike()
    for worker in workers:
        with suppress(OSError):  # the others must end all the same
            worker.kill()


class _Shelf:
    """Workers that wait for a use. Threads may share an instance."""

    def __init__(self) -> None:
        self._workers: list[tuple[Use, Contender]] = []
        self._lock = threading.Lock()

    def put(self, use: Use, worker: Contender) -> None:
        with self._lock:
            self._workers.append((use, worker))

    def pick(self, *uses: Use) -> Contender | None:
        """Take a worker for the first of these uses that has one; None if there is none."""
        with self._lock:
            self._workers = [(use, one) for use, one in self._workers if one.lives()]
            for wanted in uses:
                for index, (use, worker) in enumerate(self._workers):
                    if use[: len(wanted)] == wanted:
                        del self._workers[index]
                        return worker
        return None

    def count(self, kind: str) -> int:
        with self._lock:
            return sum(use[0] == kind and one.lives() for use, one in self._workers)

    def take_all(self) -> list[Contender]:
        """Take all workers."""
        with self._lock:
            found, self._workers = [worker for _, worker in self._workers], []
        return found


class WorkerPool:
    """Starts the workers of one run. Every worker ends with the pool.

    Args:
        device: `cpu` or `cuda`.
        folder: the run's own folder; `runtime/` and `scratch/` are created in it.
        jail: of workers that see a submission.
        submission: the folder that these workers may read.
        worker: starts a worker.
    """

    def __init__(
        self,
        device: Device,
        folder: Path,
        jail: Jail = NO_JAIL,
        submission: Path | None = None,
        worker: Callable[..., Contender] = Contender,
    ) -> None:
        self.jail, self._worker = jail, worker
        self._readable = () if submission is None else (submission,)
        self.device: Device = device
        self.runtime = stage_runtime(folder / "runtime")
        self._scratch = folder / "scratch"
        self._kernels = folder / "kernels"  # compiled by one worker of the submission, used by all
        self._numbers = count()
        self._workers: list[Contender] = []
        self._ready = _Shelf()  # started, and not taken yet
        self._given = False  # whether code of the submission may have run
        self._preparing = threading.Lock()  # held while spares are started, which takes a while
        self._reserving = threading.Lock()  # held while the reserve is filled
        # A worker dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)), so one lasting thread starts all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="starter")

    def take(self, kind: WorkerKind | None = None, *, alone: bool = False, purpose: str = "") -> Contender:
        """Take a ready worker, of the device's kind by default.

        Args:
            alone: whether no other worker of the submission is in use, but for compiling. Then a worker of the reserve
                may be taken. If none starts, the submission's other processes and files may be in the way: they are
                removed, and one more start is tried.
            purpose: the assignment's name; a reserved worker for that purpose goes first.

        Raises:
            WorkerUnavailable: no worker starts; if `alone`, not even without the submission's processes and files.
        """
        try:
            worker = self._take(kind, alone, purpose)
        except WorkerUnavailable:
            if not alone or not self._given:
                raise
            self.evict()
            worker = self._take(kind, alone, purpose)
        self._given = True
        return worker

    def _take(self, kind: WorkerKind | None, alone: bool, purpose: str) -> Contender:
        worker = None
        if kind in (None, self.device):
            worker = self._ready.pick(*((("race", purpose), ("race",)) if alone else ()), ("spare",))
        worker = worker or self.launch(kind or self.device)
        worker.ready()
        return worker

    def prepare(self, count: int = 1) -> None:
        """Start spares in the background until there are `count`. A failed start is raised by `take` later."""
        with self._preparing, suppress(WorkerUnavailable):
            while self._ready.count("spare") < count:
                self._ready.put(("spare",), self.launch(self.device))

    @property
    def has_reserve(self) -> bool:
        """Whether a race's worker is waiting, or starting."""
        return self._ready.count("race") > 0

    def reserve(self, wanted: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Start workers kept for the races, which only `take` with `alone` hands out. Does nothing while the reserve is
        not empty.

        Args:
            wanted: for each worker, its purpose and the modules that it imports before it is ready.
        """
        with self._reserving, suppress(WorkerUnavailable):
            for purpose, early in () if self.has_reserve else wanted:
                self._ready.put(("race", purpose), self.launch(self.device, early=early))

    def settle(self) -> None:
        """Wait for every starting worker. Raises WorkerUnavailable for the course's own; `take` raises for the
        others.
        """
        for worker in list(self._workers):
            with nullcontext() if worker.trusted else suppress(WorkerUnavailable):
                if worker.lives():
                    worker.ready()

    def start(self, kind: WorkerKind, caches: Path | None = None, early: Sequence[str] = ()) -> Contender:
        """Start a worker for the course's own code: without a jail, and with lasting caches. Does not wait for it."""
        return self.launch(kind, trusted=True, caches=caches, early=early)

    def canary(self, kind: WorkerKind, folder: Path) -> Contender:
        """Start a worker in the submission's jail for the staff's file in `folder`. It shares no cache with the
        submission.
        """
        return self.launch(kind, canary=folder)

    def watched(self, tool: Sequence[str]) -> Contender:
        """Start a worker for a submission under a tool (see `Worker`). Does not wait for it."""
        return self.launch(self.device, tool=tool)

    def end_idle(self) -> None:
        """End the waiting workers."""
        end_all(self._ready.take_all())

    def evict(self) -> None:
        """End every worker but the course's, and remove files from a container's shared folders. A call in progress
        ends as a crash.
        """
        sentence: Future[Exception] = Future()
        sentence.set_result(ContenderFault("crashed", "stopped, because no other worker could do its work beside it"))
        self._ready.take_all()
        for worker in list(self._workers):
            if not worker.trusted:
                worker.evict(sentence)
        self.jail.empty_container()

    def clear(self) -> None:
        """As `evict`, and remove the workers' folders and compiled kernels. Only if no thread waits for one of the
        workers.
        """
        self.evict()
        end_all(worker for worker in self._workers if not worker.trusted)
        if self._kernels.exists():
            self.jail.empty(self._kernels)

    def close(self) -> None:
        end_all(self._workers)
        if self._kernels.exists():
            self.jail.empty(self._kernels)
        self._starter.shutdown()

    def launch(
        self,
        kind: WorkerKind,
        *,
        trusted: bool = False,
        caches: Path | None = None,
        tool: Sequence[str] = (),
        early: Sequence[str] = (),
        canary: Path | None = None,
    ) -> Contender:
        """A worker that is on its way, of those that `take`, `start`, `canary` and `watched` hand out."""
        scratch = self._scratch / f"{next(self._numbers)}-{secrets.token_hex(8)}"
        jail = NO_JAIL if trusted else self.jail
        try:
            readable = self._readable if canary is None else (canary,)
            if kind == "cuda" and not trusted and canary is None:
                caches = self._kernels
                if WatchedFolder.size(caches) > MAX_KERNELS_BYTES:  # no compiler writes so much
                    self.jail.empty(caches)
            worker = self._starter.submit(
                self._worker, kind, self.runtime, scratch, caches, jail, readable, tool, trusted, early
            ).result()
        except (OSError, RuntimeError) as error:  # no process, thread, memory or open file is left
            raise WorkerUnavailable(f"a worker did not start: {error}") from None
        self._workers.append(worker)
        return worker


def stage_runtime(target: Path) -> Path:
    """Copy the only part of `grader` that a worker may see, so that the wall between the two exists on disk."""
    package = Path(grader.__file__).parent
    (target / "grader").mkdir(parents=True, exist_ok=True)
    for name in RUNTIME_FILES:
        source = package / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target / "grader" / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target / "grader" / name)
    return target
