"""The pool: starts and ends the workers of a grading. Fork servers fork them, but for those that run under a tool."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Literal, TypeAlias

import grader
from grader.assignment import Device
from grader.pool.fault import Fault
from grader.pool.jail import NO_JAIL, Jail
from grader.pool.server import ForkServer
from grader.pool.surroundings import WatchedFolder, WorkerKind, environment
from grader.pool.worker import Worker

Owner: TypeAlias = Literal["submission", "course", "canary"]

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
        self._servers: dict[tuple[WorkerKind, Owner], ForkServer] = {}
        self._lock = threading.RLock()
        self._given = False  # whether code of the submission may have run
        # A program that the judge starts dies with the thread that started it (PR_SET_PDEATHSIG, prctl(2)), so one
        # lasting thread starts all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="starter")

    def start(
        self,
        kind: WorkerKind | None = None,
        owner: Owner = "submission",
        *,
        imports: Sequence[str] = (),
        caches: Path | None = None,
        folder: Path | None = None,
        alone: bool = False,
        tool: Sequence[str] = (),
    ) -> Worker:
        """Start a worker, of the device's kind by default, and wait until it is ready.

        Args:
            owner: whose file the worker will run. Workers of the `submission` share a jail and compiled kernels; workers
                of the `course` have no jail. The `canary`, the staff's file in a jail like the submission's, shares that
                jail with nobody.
            imports: modules that it finds imported.
            caches: of a worker of the course: a folder that outlasts the pool.
            folder: of the canary's file.
            alone: whether no other worker of the submission is in use, but for compiling. If none starts, the
                submission's other processes and files may be in the way: they are removed, and one more start is tried.
            tool: a program with options that runs the submission's worker under its eyes (see `Worker`).

        Raises:
            Fault: no worker starts; if `alone`, not even without the submission's processes and files.
        """
        kind = kind or self.device

        used: ForkServer | None = None

        def once() -> Worker:
            nonlocal used
            if owner == "canary" or tool:
                kernels = self._kernels_folder(kind) if owner == "submission" else None
                readable = self._readable if folder is None else (folder,)
                arguments = kind, self.runtime, self._new_folder(), kernels, self.jail, readable, tool
                with _none_started():
                    worker = self._starter.submit(Worker, *arguments).result()
            else:
                server = used = self.server(kind, owner)
                own, shared = server.folder / secrets.token_hex(8), caches if server.trusted else server.caches
                with _none_started():
                    worker = Worker(kind, self.runtime, own, shared, server=server, imports=imports)
            self._workers.append(worker)
            worker.ready()
            return worker

        def twice() -> Worker:
            try:
                return once()
            except Fault:
                if not self._given or used is None or used.lives():
                    raise
                return once()  # a worker may have stopped or ended its server

        try:
            worker = twice()
        except Fault:
            if not alone or not self._given:
                raise
            self.evict()
            worker = twice()
        self._given |= owner == "submission"
        return worker

    def server(self, kind: WorkerKind | None = None, owner: Owner = "submission") -> ForkServer:
        """The fork server of the workers of a kind, for the submission or the course; a new one if the last one has
        ended. Raises Fault.
        """
        kind = kind or self.device
        trusted = owner == "course"
        jail, readable = (NO_JAIL, ()) if trusted else (self.jail, self._readable)
        caches = None if trusted else self._kernels_folder(kind)
        with self._lock:
            server = self._servers.get((kind, owner))
            if server is None or not server.lives():
                if server is not None:
                    server.end()
                folder = self._new_folder()
                for one in filter(None, (folder, caches)):
                    jail.prepare(self.runtime.parent, one)
                surroundings = environment(kind, self.runtime, folder, caches, trusted)
                arguments = (kind, folder, caches, jail, [self.runtime, *readable], surroundings, trusted)
                with _none_started():
                    server = self._servers[kind, owner] = self._starter.submit(ForkServer, *arguments).result()
            return server

    def _new_folder(self) -> Path:
        return self._scratch / f"{next(self._numbers)}-{secrets.token_hex(8)}"

    def _kernels_folder(self, kind: WorkerKind) -> Path | None:
        """The folder of the submission's compiled kernels, which its workers on a GPU share."""
        if kind != "cuda":
            return None
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


@contextmanager
def _none_started() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # no process, thread, memory or open file is left
        raise Fault.no_worker(f"a worker did not start: {error}") from None


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
