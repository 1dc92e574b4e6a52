"""A traced launch with what its compiler told: the counts of the blocks that ran, for the whole launch.

Bytes are of whole sectors, as they come through the L2 cache. Which of them the cache fetched from DRAM is for a GPU's counters
to say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from grader.profile.compiled import Compiled, read
from grader.profile.model import Occupancy, Waves
from grader.profile.occupancy import occupancy, waves
from grader.protocol import CompiledKernel, Gpu, TracedAccess, TracedLaunch
from grader.verdict.resources import kernel_resources

SECTOR = 32  # Memory is moved in sectors of this many bytes.
# A thread of a kernel that was not compiled is taken to use these: they do not limit the occupancy.
USUAL_REGISTERS = 32
SHARED = 1.05  # Blocks that write more than this times a tensor's bytes would write it more than once.


@dataclass(frozen=True)
class Facts:
    """What the compiler's output tells of a kernel.

    Attributes:
        registers, spilled_bytes: of a thread; None if they are not known.
        shared_bytes: of a block, without what a CUDA launch adds.
        texts: what TTGIR and PTX say.
    """

    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int = 0
    texts: Compiled = field(default_factory=Compiled)


@dataclass(frozen=True)
class Launch:
    """A traced launch with what its compiler tells, on a GPU."""

    traced: TracedLaunch
    facts: Facts
    gpu: Gpu

    @property
    def blocks(self) -> int:
        return math.prod(self.traced.grid)

    @functools.cached_property
    def shared_work(self) -> float | None:
        """The share of a launch's work that its traced blocks did, if blocks take their work from a counter in memory; otherwise None.

        On a CPU blocks run one after another, so the first block takes work that on a GPU others do. The share is that which was
        written of the call's largest tensor, of those that no atomic writes.
        """
        atomic = {one.tensor for one in self.global_accesses() if one.atomic}
        written = (one for one in self.traced.tensors if one.is_of_call and one.written_once_bytes)
        largest = max((one for one in written if one.name not in atomic), key=lambda one: one.bytes, default=None)
        if not atomic or largest is None:
            return None
        is_shared = self.blocks * largest.written_once_bytes > SHARED * self.traced.ran * largest.bytes
        return 1 / max(largest.bytes / largest.written_once_bytes, 1.0) if is_shared else None

    @property
    def ran(self) -> float:
        """The number of blocks whose work the trace counts."""
        return max(self.traced.ran, 1) if self.shared_work is None else self.blocks * self.shared_work

    @property
    def is_cut(self) -> bool:
        """Whether counts are too low, because a block was stopped."""
        return self.traced.cut and self.shared_work is None

    @property
    def scale(self) -> float:
        """The factor from the blocks that ran to all blocks of all launches."""
        return self.blocks / self.ran * self.traced.launches

    @property
    def shared_bytes(self) -> int:
        # Without nvcc nobody but the trace tells a CUDA kernel's static shared memory.
        static = max(self.facts.shared_bytes, self.traced.static_shared_bytes)
        return static + self.traced.shared_bytes

    @property
    def is_triton(self) -> bool:
        """Whether a request is a block of pointers; in CUDA it is a warp's."""
        return any(one.block or one.file.endswith(".py") for one in self.traced.accesses)

    @property
    def file(self) -> str:
        return next((one.file for one in self.traced.accesses if one.file), "")

    @functools.cached_property
    def occupancy(self) -> Occupancy:
        """With USUAL_REGISTERS where registers are not known."""
        registers = USUAL_REGISTERS if self.facts.registers is None else self.facts.registers
        return occupancy(self.gpu, self.traced.threads, registers, self.shared_bytes)

    @functools.cached_property
    def waves(self) -> Waves:
        return waves(self.gpu, self.occupancy, self.blocks)

    @property
    def running(self) -> int:
        """Blocks that run at once."""
        return min(self.blocks, max(self.waves.slots, self.gpu.multiprocessors))

    @property
    def flops(self) -> float:
        """Of products of tiles."""
        return sum(one.flops for one in self.traced.dots) * self.scale

    def global_accesses(self, verb: str = "", tensor: str | None = None) -> list[TracedAccess]:
        return [
            one
            for one in self.traced.accesses
            if one.space == "global" and verb in ("", one.verb) and tensor in (None, one.tensor)
        ]

    def ratio(self, access: TracedAccess) -> float | None:
        """Sectors that an access moves, by the fewest possible; None if they are not known, or in shared memory.

        In Triton they are the fewest sectors that any layout of a block of pointers can have.
        """
        width = access.width_bytes
        if access.space == "global" and access.least_sectors:
            return max(access.sectors / access.least_sectors, 1.0)
        if access.space != "global" or not access.steps or not width:
            return None
        every = zip(access.steps, access.block, strict=False)
        axes = sorted((abs(step), length) for step, length in every if step and length > 1)
        if not axes:
            return 1.0
        if axes[0][0] > width:
            return max(min(axes[0][0], SECTOR) / width, 1.0)
        run = width  # bytes side by side
        for step, length in axes:
            if step > run:
                break
            run = step * (length - 1) + run
        return max(SECTOR / run, 1.0)

    def asked(self, access: TracedAccess) -> float:
        """Bytes that the lanes of the whole launch ask for."""
        return float(access.lanes) * access.width_bytes * self.scale

    def fetched(self, access: TracedAccess) -> float:
        """Bytes of the sectors of a global access; lanes that ask for the same bytes count once."""
        if access.sectors:
            return float(access.sectors) * SECTOR * self.scale
        return self.asked(access) * (self.ratio(access) or 1.0)

    def moved(self, access: TracedAccess) -> float:
        """As `fetched`; in shared memory what the lanes ask for, times the passes that bank conflicts make of one."""
        return self.fetched(access) if access.space == "global" else self.asked(access) * (conflicts(access) or 1.0)

    @property
    def moved_bytes(self) -> float:
        """Bytes of all sectors between L2 and the multiprocessors."""
        return sum(map(self.fetched, self.global_accesses()))

    @property
    def distinct_bytes(self) -> float:
        """Bytes that a launch must move if each byte of a tensor is read once and written once, over all launches."""
        every = float(self.traced.launches)
        return sum(
            min(once * self.scale, one.bytes * every if one.bytes else math.inf)
            for one in self.traced.tensors
            for once in (one.read_once_bytes, one.written_once_bytes)
        )


def conflicts(access: TracedAccess) -> float | None:
    """Passes through the banks of shared memory, by the fewest possible; None in global memory."""
    if access.space != "shared" or not access.least_passes:
        return None
    return max(access.passes / access.least_passes, 1.0)


def idle_share(access: TracedAccess) -> float:
    """Of the lanes, those that a branch or a mask turned off."""
    return min(max(1 - access.lanes / access.lanes_of_all, 0.0), 1.0) if access.lanes_of_all else 0.0


def launches(traced: Sequence[TracedLaunch], compiled: Sequence[CompiledKernel], gpu: Gpu) -> Iterator[Launch]:
    """Launches with the facts of their kernels. Of kernels of one name, the n-th belongs to the n-th different launch.

    A Triton kernel has the warps with which it was compiled: a submission that asks which GPU there is may choose others in
    the interpreter.
    """
    known = []
    for kernel in compiled:
        told = kernel_resources(kernel.ptxas)
        for one in told:
            is_own = len(told) == 1 and kernel.warps > 0
            facts = Facts(
                registers=one.registers,
                spilled_bytes=one.spill_store_bytes + one.spill_load_bytes,
                shared_bytes=kernel.shared_bytes if is_own else one.shared_bytes,
            )
            known.append((kernel.name if is_own else one.name, kernel, facts))
    seen: dict[str, int] = {}
    for launch in traced:
        name = launch.kernel.partition("<")[0].rpartition("::")[2].strip()  # without template arguments and namespace
        fitting = [one for one in known if one[0] == name]
        fitting = [one for one in fitting if one[1].warps * gpu.warp == launch.threads] or fitting
        facts = Facts()
        if fitting:
            _, kernel, facts = fitting[min(seen.get(name, 0), len(fitting) - 1)]
            file = next((one.file for one in launch.accesses if one.file), "")
            if kernel.texts and file:
                facts = replace(facts, texts=read(kernel, file))
            launch = replace(launch, threads=kernel.warps * gpu.warp or launch.threads)
        seen[name] = seen.get(name, 0) + 1
        yield Launch(launch, facts, gpu)
