"""The stations of a machine: each of its GPUs, or else its CPU. A station runs one grading at a time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from grader.classroom.grading import Grading
from grader.classroom.lock import Lock, lock, lock_of
from grader.classroom.model import Run
from grader.nvidia import Gpu
from grader.sandbox.base import InfraError, UsageError

MAX_ROW = 3  # different hand-ins with a fault in a row, after which the station is taken for the cause


class Station:
    """A GPU or the CPU, on which gradings run one after another.

    Args:
        gpu: None for the CPU.
        locks: the folder of the locks of GPUs; None for the machine's.

    Attributes:
        grading: the current grading; None if the station is free.
        next: a grading that waits for the end of `grading`, and has not used the GPU.
        held: the lock of the GPU, from its first grading to the last one that follows without a pause.
        out: why the station is out of service; "" while it is in service.
        waits: whether another run on this machine held the GPU at the last call of `lock`.
    """

    def __init__(self, gpu: Gpu | None, locks: Path | None = None) -> None:
        self.gpu = gpu
        self.name = gpu.uuid if gpu else "cpu"
        self.place = f"{socket.gethostname()} {self.name}"
        self.grading: Grading | None = None
        self.next: Grading | None = None
        self.held: Lock | None = None
        self.out = ""
        self.waits = False
        self._lock = lock_of(gpu.uuid, locks) if gpu else None
        self._row: list[str] = []

    def lock(self) -> Lock | None:
        """Lock the station for its gradings; None if another run on this machine holds the GPU. Runs may share a CPU."""
        self.held = lock(self._lock, self.place) if self._lock else Lock(None)
        self.waits = self.held is None
        return self.held

    def release(self) -> None:
        if self.held is not None:
            self.held.release()
        self.held = None

    def note(self, handin: str, fault: str) -> None:
        """Note the end of a grading: `fault` is the machine's fault, "" if there was none."""
        self._row = [*self._row, handin] if fault else []
        if len(set(self._row)) >= MAX_ROW:
            self.out = f"{self.place} is taken out: {len(self._row)} faults of the machine in a row, the last: {fault}"


def stations(run: Run, found: Sequence[Gpu], wanted: Sequence[str], locks: Path | None = None) -> list[Station]:
    """The stations of this machine for the device of `run`.

    Args:
        found: this machine's GPUs.
        wanted: UUIDs of the GPUs to use; all if empty.

    Raises:
        UsageError: a wanted GPU is not in this machine, or the class is graded on a CPU.
        InfraError: the class is graded on a GPU, and this machine has none.
    """
    if run.device == "cpu":
        if wanted:
            raise UsageError("--gpu: run.json says that this class is graded on the CPU")
        return [Station(None)]
    if unknown := [one for one in wanted if one not in {gpu.uuid for gpu in found}]:
        listed = ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in found) or "none"
        raise UsageError(f"--gpu {unknown[0]}: no such GPU; this machine has: {listed}")
    if not found and run.device == "cuda":
        raise InfraError(
            "run.json says that this class is graded on a GPU, and this machine has none; see `grader doctor`"
        )
    chosen = [gpu for gpu in found if not wanted or gpu.uuid in wanted]
    return [Station(gpu, locks) for gpu in chosen] or [Station(None)]
