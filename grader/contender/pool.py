"""Workers in reserve: processes that stand ready, so that the next assignment, or the case after a crash, need not wait for a start."""

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
SHARE_OF_CORES = 0.5  # two of them are one core's threads, the judge and who is starting need some, and each worker more has to start
GIB_PER_WORKER = 4
MAX_KERNELS_BYTES = 2 << 30  # that workers leave to those after them
# What a worker that stands ready is for: ("spare",); ("race", purpose), once it is alone; ("watched", the command of its tool).
Use: TypeAlias = tuple[Hashable, ...]
KINDS = ("spare", "race", "watched")


def workers_at_once(gpu_gib: float = math.inf) -> int:
    """How many of a submission's workers this machine is good for, with a GPU that has so much free memory."""
    cores = len(os.sched_getaffinity(0))
    return int(max(1, min(MAX_AT_ONCE, SHARE_OF_CORES * cores, gpu_gib / GIB_PER_WORKER)))


def end_all(workers: Iterable[Contender]) -> None:
    """End these, at the same time: each takes a while."""
    workers = list(workers)
    for worker in workers:
        worker.strike()
    for worker in workers:
        with suppress(OSError):  # the others are to end all the same
            worker.kill()


class _Shelf:
    """Workers that stand ready, each for a use; threads may share it."""

    def __init__(self) -> None:
        self._workers: list[tuple[Use, Contender]] = []
        self._lock = threading.Lock()

    def put(self, use: Use, worker: Contender) -> None:
        with self._lock:
            self._workers.append((use, worker))

    def pick(self, *uses: Use) -> Contender | None:
        """One that stands ready for the first of these uses that any is for."""
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

    def take_all(self, *kinds: str) -> list[Contender]:
        """All that stand ready for uses of these kinds."""
        with self._lock:
            found = [worker for use, worker in self._workers if use[0] in kinds]
            self._workers = [(use, worker) for use, worker in self._workers if use[0] not in kinds]
        return found


class WorkerPool:
    """Starts workers for one run; every one of them ends with the pool.

    Args:
        device: `cpu` or `cuda`.
        folder: the run's own folder; `runtime/` and `scratch/` are made in it.
        jail: what confines workers that see a submission.
        submission: the folder that those may read.
        worker: starts one.
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
        self._ready = _Shelf()  # those that nobody has taken
        self._given = False  # whether anything of the submission's may have run
        self._preparing = threading.Lock()  # held by whoever fills the spares, which takes a while
        self._reserving = threading.Lock()  # and by whoever fills the reserve
        # A worker dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)): all are started by one that stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="starter")

    def take(self, kind: WorkerKind | None = None, *, alone: bool = False, purpose: str = "") -> Contender:
        """A worker that is ready, and nobody else's; of the device's kind unless another is named.

        Args:
            alone: whether no other worker of the submission is needed any more, but for what it compiles beside. Then this may be one of
                the reserve, and where none starts, all of the submission is ended, and what it has left is removed: it may be in the way.
            purpose: what it is for; one of the reserve that is meant for that goes first.

        Raises:
            WorkerUnavailable: none starts. Where `alone`, that is not for anything that the submission holds or has left.
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
        """Start workers in the background, until so many stand ready; where none starts, `take` will tell."""
        with self._preparing, suppress(WorkerUnavailable):
            while self._ready.count("spare") < count:
                self._ready.put(("spare",), self.launch(self.device))

    @property
    def has_reserve(self) -> bool:
        """Whether somebody who is alone need not wait for a start."""
        return self._ready.count("race") > 0

    def reserve(self, wanted: Sequence[tuple[str, Sequence[str]]]) -> None:
        """As `prepare`, for calls of `take` with `alone`. Does nothing while some are left.

        Args:
            wanted: for each its purpose, and the modules that it imports before it is ready.
        """
        with self._reserving, suppress(WorkerUnavailable):
            for purpose, early in () if self.has_reserve else wanted:
                self._ready.put(("race", purpose), self.launch(self.device, early=early))

    def settle(self) -> None:
        """Wait for every worker that is on its way. Raises WorkerUnavailable for the course's own; `take` tells of the others."""
        for worker in list(self._workers):
            with nullcontext() if worker.trusted else suppress(WorkerUnavailable):
                if worker.lives():
                    worker.ready()

    def start(self, kind: WorkerKind, caches: Path | None = None, early: Sequence[str] = ()) -> Contender:
        """A worker that is on its way, for the course's own code: without a jail, and with caches that stay."""
        return self.launch(kind, trusted=True, caches=caches, early=early)

    def canary(self, kind: WorkerKind, folder: Path) -> Contender:
        """A worker that is on its way, in the submission's jail, for the staff's file in `folder`; it leaves the submission nothing."""
        return self.launch(kind, canary=folder)

    def watched(self, tool: Sequence[str]) -> Contender:
        """A worker for a submission that is on its way, run by a tool that watches it (see `Worker`)."""
        return self._ready.pick(("watched", tuple(tool))) or self.launch(self.device, tool=tool)

    def prepare_watched(self, tools: Iterable[Sequence[str]]) -> None:
        """Start such workers in the background, one for each of these commands; where one does not start, `watched` will tell."""
        with suppress(WorkerUnavailable):
            for tool in tools:
                self._ready.put(("watched", tuple(tool)), self.launch(self.device, tool=tool))

    def end_idle(self, *kinds: str) -> None:
        """End the workers that nobody has taken, of these kinds or of all."""
        end_all(self._ready.take_all(*(kinds or KINDS)))

    def evict(self) -> None:
        """End every worker that is not the course's, and remove what they have left. Who waits for one is told of a crash."""
        sentence: Future[Exception] = Future()
        sentence.set_result(ContenderFault("crashed", "stopped, because no other worker could do its work beside it"))
        self._ready.take_all(*KINDS)
        for worker in list(self._workers):
            if not worker.trusted:
                worker.evict(sentence)
        self.jail.empty_container()

    def clear(self) -> None:
        """As `evict`, and remove their folders and what they have compiled. Only where nobody waits for one of them."""
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
                if WatchedFolder.size(caches) > MAX_KERNELS_BYTES:  # no compiler's work
                    self.jail.empty(caches)
            worker = self._starter.submit(
                self._worker, kind, self.runtime, scratch, caches, jail, readable, tool, trusted, early
            ).result()
        except (OSError, RuntimeError) as error:  # no process, no thread, no room or no open file is left
            raise WorkerUnavailable(f"a worker did not start: {error}") from None
        self._workers.append(worker)
        return worker


def stage_runtime(target: Path) -> Path:
    """Copy the only part of `grader` that a worker may see, so that the wall between them is there on disk."""
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
