"""The stations of a machine: each of its GPUs, or the CPU where there is none. One grading at a time is at a station."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from grader.classroom.grading import Grading
from grader.classroom.lock import Lock, lock, lock_of
from grader.classroom.model import Run
from grader.nvidia import Gpu
from grader.sandbox.base import InfraError, UsageError

MAX_ROW = 3  # faults in a row under different hand-ins after which the station is what they have in common


class Station:
    """Where gradings run.

    Args:
        gpu: None for the CPU.
        locks: the folder of the locks of GPUs; None for the machine's.

    Attributes:
        grading: the one that goes on here, if any.
        out: why nothing more is graded here; "" while the station is in service.
        waits: whether another run on this machine had the GPU when it was last asked for.
    """

    def __init__(self, gpu: Gpu | None, locks: Path | None = None) -> None:
        self.gpu = gpu
        self.name = gpu.uuid if gpu else "cpu"
        self.place = f"{socket.gethostname()} {self.name}"
        self.grading: Grading | None = None
        self.out = ""
        self.waits = False
        self._lock = lock_of(gpu.uuid, locks) if gpu else None
        self._row: list[str] = []

    def lock(self) -> Lock | None:
        """The station for one grading; None while another run on this machine has the GPU. Two runs may share a CPU."""
        held = lock(self._lock, self.place) if self._lock else Lock(None)
        self.waits = held is None
        return held

    def note(self, handin: str, fault: str) -> None:
        """Note how a grading ended: with a fault of the machine, or (no words) without."""
        self._row = [*self._row, handin] if fault else []
        if len(set(self._row)) >= MAX_ROW:
            self.out = f"{self.place} is taken out: {len(self._row)} faults of the machine in a row, the last: {fault}"


def stations(run: Run, found: Sequence[Gpu], wanted: Sequence[str], locks: Path | None = None) -> list[Station]:
    """The stations of this machine that grade as `run` says.

    Args:
        found: this machine's GPUs.
        wanted: UUIDs of those to be used; all if empty.

    Raises:
        UsageError: a GPU is wanted that is not here, or one for gradings on a CPU.
        InfraError: there is no GPU, and the gradings need one.
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
