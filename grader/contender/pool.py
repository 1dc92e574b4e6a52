"""Workers in reserve: one idle process stands ready, so that a crash costs no start-up time."""

from __future__ import annotations

import secrets
import shutil
from itertools import count
from pathlib import Path

import grader
from grader.assignment import Device
from grader.contender.contender import Contender, WorkerKind

RUNTIME_FILES = ("__init__.py", "protocol.py", "worker")


class WorkerPool:
    """Starts workers for one run; every one of them ends with the pool.

    Args:
        device: `cpu` or `cuda`.
        folder: the run's own folder; `runtime/` and `scratch/` are made in it.
    """

    def __init__(self, device: Device, folder: Path) -> None:
        self.device: Device = device
        self.runtime = stage_runtime(folder / "runtime")
        self._scratch = folder / "scratch"
        self._numbers = count()
        self._workers: list[Contender] = []
        self._spare: Contender | None = None

    def take(self, kind: WorkerKind | None = None) -> Contender:
        """A worker that is ready, and nobody else's; of the device's kind unless another is named. Raises WorkerUnavailable."""
        if kind in (None, self.device):
            worker = self._spare or self._start(self.device)
            self._spare = None
        else:
            worker = self._start(kind)
        worker.ready()
        return worker

    def prepare(self) -> None:
        """Start a worker in the background for the next `take`."""
        if self._spare is None:
            self._spare = self._start(self.device)

    def start(self, caches: Path | None) -> Contender:
        """A worker of the device's kind that is on its way (see `Contender.ready`), for code that keeps its caches."""
        return self._start(self.device, caches)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _start(self, kind: WorkerKind, caches: Path | None = None) -> Contender:
        worker = Contender(kind, self.runtime, self._scratch / f"{next(self._numbers)}-{secrets.token_hex(8)}", caches)
        self._workers.append(worker)
        return worker


def stage_runtime(target: Path) -> Path:
    """Copy the only part of `grader` that a worker may see, so that the wall between them is there on disk."""
    package = Path(grader.__file__).parent
    (target / "grader").mkdir(parents=True)
    for name in RUNTIME_FILES:
        source = package / name
        if source.is_dir():
            shutil.copytree(source, target / "grader" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target / "grader" / name)
    return target
