"""The pool: starts and ends the workers of a grading. Fork servers fork them, but for those that run under a tool."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import grader
from grader.assignment import Device
from grader.pool.fault import Fault
from grader.pool.jail import NO_JAIL, Jail
from grader.pool.server import ForkServer
from grader.pool.surroundings import WatchedFolder, WorkerKind, environment
from grader.pool.worker import Worker

T = TypeVar("T")

RUNTIME_FILES = ("__init__.py", "protocol.py", "worker")
MAX_AT_ONCE = 12
SHARE_OF_CORES = 0.5  # two cores may be threads of one; the judge and starting workers need some too
GIB_PER_WORKER = 4
MAX_KERNELS_BYTES = 2 << 30  # more kernels than this are not kept for later workers


def workers_at_once(gpu_gib: float = math.inf) -> int:
    """How many of a submission's workers this machine can run at once, with `gpu_gib` of free GPU memory."""
    cores = len(os.sched_getaffinity(0))
    return int(max(1, min(MAX_AT_ONCE, SHARE_OF_CORES * cores, gpu_gib / GIB_PER_WORKER)))


def end_all(workers: Iterable[Worker]) -> None:
    """End workers at the same time, because each end takes a while."""
    workers = [worker for worker in workers if worker.alive]

    def end(worker: Worker) -> None:
        with suppress(OSError):  # the others must end all the same
            worker.kill()

    if workers:
        with ThreadPoolExecutor(len(workers), thread_name_prefix="ending") as threads:
            list(threads.map(end, workers))


class WorkerPool:
    """Starts the workers of one run. Every worker ends with the pool. Threads may share an instance.

    Args:
        device: `cpu` or `cuda`.
        folder: the run's own folder; `runtime/`, `scratch/` and `kernels/` are created in it.
        jail: of workers that see a submission.
        submission: the folder that these workers may read.
    """

    def __init__(self, device: Device, folder: Path, jail: Jail = NO_JAIL, submission: Path | None = None) -> None:
        self.jail = jail
        self.device: Device = device
        self._readable = () if submission is None else (submission,)
        self.runtime = stage_runtime(folder / "runtime")
        self._scratch = folder / "scratch"
        self._kernels = folder / "kernels"  # compiled by one worker of the submission, used by all
        self._numbers = count()
        self._workers: list[Worker] = []
        self._servers: dict[tuple[WorkerKind, bool], ForkServer] = {}  # by kind, and whether they are the course's own
        self._lock = threading.RLock()
        self._given = False  # whether code of the submission may have run
        # A program that the judge starts dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)), so one
        # lasting thread starts all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="starter")

    def start(
        self,
        kind: WorkerKind | None = None,
        *,
        imports: Sequence[str] = (),
        alone: bool = False,
        tool: Sequence[str] = (),
    ) -> Worker:
        """Start a worker for the submission, of the device's kind by default, and wait until it is ready.

        Args:
            imports: modules that it finds imported.
            alone: whether no other worker of the submission is in use, but for compiling. If none starts, the
                submission's other processes and files may be in the way: they are removed, and one more start is tried.
            tool: a program with options that runs the worker under its eyes (see `Worker`).

        Raises:
            Fault: no worker starts; if `alone`, not even without the submission's processes and files.
        """
        kind = kind or self.device
        try:
            worker = self._start(kind, imports, tool)
        except Fault:
            if not alone or not self._given:
                raise
            self.evict()
            worker = self._start(kind, imports, tool)
        self._given = True
        return worker

    def _start(self, kind: WorkerKind, imports: Sequence[str], tool: Sequence[str]) -> Worker:
        caches = self._kernels_folder() if kind == "cuda" else None
        if tool:
            worker = self._worker(kind, self._new_folder(), caches, self.jail, self._readable, tool=tool)
            worker.ready()
            return worker
        server = self.server(kind)
        try:
            worker = self._forked(server, kind, caches, imports)
            worker.ready()
        except Fault:
            if not self._given or server.lives():
                raise
            # A worker may have stopped or ended its server.
            worker = self._forked(self.server(kind), kind, caches, imports)
            worker.ready()
        return worker

    def start_own(self, kind: WorkerKind, caches: Path | None = None, imports: Sequence[str] = ()) -> Worker:
        """Start a worker for the course's own code: without a jail, and with lasting caches. Does not wait until it is
        ready.
        """
        return self._forked(self.own_server(kind), kind, caches, imports, trusted=True)

    def canary(self, kind: WorkerKind, folder: Path) -> Worker:
        """Start a worker for the staff's file in `folder`: in a jail like the submission's, which it shares with
        nobody. Waits until it is ready.
        """
        worker = self._worker(kind, self._new_folder(), None, self.jail, (folder,))
        worker.ready()
        return worker

    def server(self, kind: WorkerKind | None = None) -> ForkServer:
        """The fork server of the submission's workers of a kind; a new one if the last one has ended."""
        kind = kind or self.device
        return self._server(kind, self._kernels_folder() if kind == "cuda" else None)

    def own_server(self, kind: WorkerKind) -> ForkServer:
        """The fork server of the course's own workers of a kind."""
        return self._server(kind, None, trusted=True)

    def _server(self, kind: WorkerKind, caches: Path | None, trusted: bool = False) -> ForkServer:
        jail, readable = (NO_JAIL, ()) if trusted else (self.jail, self._readable)
        with self._lock:
            server = self._servers.get((kind, trusted))
            if server is None or not server.lives():
                if server is not None:
                    server.end()
                folder = self._new_folder()
                for one in filter(None, (folder, caches)):
                    jail.prepare(self.runtime.parent, one)
                surroundings = environment(kind, self.runtime, folder, caches, trusted)
                arguments = (kind, folder, caches, jail, [self.runtime, *readable], surroundings, trusted)
                server = self._servers[kind, trusted] = self._started(lambda: ForkServer(*arguments))
            return server

    def _forked(
        self, server: ForkServer, kind: WorkerKind, caches: Path | None, imports: Sequence[str], trusted: bool = False
    ) -> Worker:
        folder = server.folder / secrets.token_hex(8)
        try:
            worker = Worker(
                kind, self.runtime, folder, caches, server.jail, trusted=trusted, server=server, imports=imports
            )
        except OSError as error:  # no memory or open file is left
            raise Fault.no_worker(f"a worker did not start: {error}") from None
        self._workers.append(worker)
        return worker

    def _worker(
        self,
        kind: WorkerKind,
        folder: Path,
        caches: Path | None,
        jail: Jail,
        readable: Sequence[Path],
        tool: Sequence[str] = (),
    ) -> Worker:
        worker = self._started(lambda: Worker(kind, self.runtime, folder, caches, jail, readable, tool))
        self._workers.append(worker)
        return worker

    def _started(self, start: Callable[[], T]) -> T:
        """What `start` returns, called in the thread that starts programs."""
        try:
            return self._starter.submit(start).result()
        except (OSError, RuntimeError) as error:  # no process, thread, memory or open file is left
            raise Fault.no_worker(f"a worker did not start: {error}") from None

    def _new_folder(self) -> Path:
        return self._scratch / f"{next(self._numbers)}-{secrets.token_hex(8)}"

    def _kernels_folder(self) -> Path:
        if WatchedFolder.size(self._kernels) > MAX_KERNELS_BYTES:  # no compiler writes so much
            self.jail.empty(self._kernels)
        return self._kernels

    def evict(self) -> None:
        """End every worker and fork server but the course's, and remove files from a container's shared folders. A call
        in progress ends as a crash.
        """
        reason: Future[Exception] = Future()
        reason.set_result(Fault("crashed", "stopped, because no other worker could do its work beside it"))
        for worker in list(self._workers):
            if not worker.trusted:
                worker.evict(reason)
        with self._lock:
            for server in self._servers.values():
                if not server.trusted:
                    server.end()
        self.jail.empty_shared_folders()

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
        with self._lock:
            for server in self._servers.values():
                server.end()
                server.jail.empty(server.folder)
        if self._kernels.exists():
            self.jail.empty(self._kernels)
        self.jail.empty_shared_folders()
        self._starter.shutdown()


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
