"""The stations of a machine: each of its GPUs, or else its CPU. A station runs one grading at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from itertools import chain, groupby
from pathlib import Path

from grader.classroom.folder import ClassRun
from grader.classroom.lock import lock, lock_of
from grader.nvidia import ListedGpu
from grader.sandbox.base import InfraError, UsageError

MAX_ROW = 3  # different hand-ins with a fault in a row, after which the station is taken for the cause


@dataclass
class Station:
    """A GPU or the CPU, on which gradings run one after another.

    Attributes:
        gpu: None for the CPU.
        locks: the folder of the locks of GPUs; None for the machine's.
        cores: the numbers of the cores for its gradings; all that this process has if empty.
        held: the lock of the GPU, from its first grading to the last one that follows without a pause.
        out: why the station is out of service; "" while it is in service.
        waits: whether another run on this machine held the GPU at the last call of `lock`.
        row: the hand-ins of the last gradings, as far as each had a fault of the machine.
    """

    gpu: ListedGpu | None
    locks: Path | None = None
    cores: Sequence[int] = ()
    held: FileIO | None = None
    out: str = ""
    waits: bool = False
    row: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.gpu.uuid if self.gpu else "cpu"

    @property
    def place(self) -> str:
        """The machine and the station, for people."""
        return f"{socket.gethostname()} {self.name}"

    def lock(self) -> bool:
        """Lock the station for its gradings; False if another run on this machine holds the GPU. Runs may share a CPU."""
        if self.gpu is not None and self.held is None:
            self.held = lock(lock_of(self.gpu.uuid, self.locks), self.place)
            self.waits = self.held is None
        return not self.waits

    def release(self) -> None:
        if self.held is not None:
            self.held.close()
        self.held = None

    def note(self, handin: str, fault: str) -> None:
        """Note the end of a grading: `fault` is the machine's fault, "" if there was none."""
        self.row = [*self.row, handin] if fault else []
        if len(set(self.row)) >= MAX_ROW:
            self.out = f"{self.place} is taken out: {len(self.row)} faults of the machine in a row, the last: {fault}"


def stations(
    run: ClassRun, found: Sequence[ListedGpu], wanted: Sequence[str], locks: Path | None = None
) -> list[Station]:
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
    shares = shares_of_cores(os.sched_getaffinity(0), len(chosen))
    return [Station(gpu, locks, cores) for gpu, cores in zip(chosen, shares, strict=True)] or [Station(None)]


def place_of_core(core: int) -> tuple[int, int]:
    """The numbers of the processor and of the physical core, as Linux has them (sysfs, `topology`)."""
    folder = Path(f"/sys/devices/system/cpu/cpu{core}/topology")
    try:
        return int(folder.joinpath("physical_package_id").read_text()), int(folder.joinpath("core_id").read_text())
    except (OSError, ValueError):
        return 0, core


def shares_of_cores(
    cores: Iterable[int], count: int, place_of: Callable[[int], tuple[int, int]] = place_of_core
) -> list[list[int]]:
    """Divide the cores of this process among `count` stations, so that no grading slows one on another GPU.

    Threads of one physical core stay together, and cores of one processor as far as shares are equal. Shares are empty
    where there are fewer than two cores for each station.
    """
    ordered = sorted(cores, key=lambda core: (place_of(core), core))
    physical = [[*threads] for _, threads in groupby(ordered, place_of)]
    if len(ordered) < 2 * count or len(physical) < count:
        return [[] for _ in range(count)]
    total = len(physical)
    return [[*chain(*physical[total * n // count : total * (n + 1) // count])] for n in range(count)]
