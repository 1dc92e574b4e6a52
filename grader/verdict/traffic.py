"""What launches move: the counts of the blocks that ran, for the whole launch.

DRAM moves less than the blocks ask for, because the L2 cache answers a part of what is read again. How much that is
depends on the bytes that the blocks in flight read: nothing misses up to `KEPT` of L2, everything from `LOST` on, and in
between the share grows evenly. So it fits the staff's kernel of long rows on an H200 (benchmarks/NOTES.md): nothing misses
with 35 MB in flight, two thirds with 69.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from grader.protocol import Gpu, TracedAccess, TracedLaunch, TracedOperator, TracedTensor
from grader.report.profile import LaunchProfile, LineTraffic, Occupancy, OperatorTraffic, TensorTraffic, Waves
from grader.verdict import text
from grader.verdict.occupancy import occupancy, waves

SECTOR = 32  # bytes
MIB = 1 << 20
KEPT, LOST = 0.55, 1.33  # of L2
USUAL_REGISTERS = 32  # of a thread, where the kernel was not compiled
MAX_SOURCE = 200  # characters of a line


@dataclass(frozen=True)
class Facts:
    """What the compiler's output tells of a kernel.

    Attributes:
        registers, spilled_bytes: of a thread; None if they are not known.
        shared_bytes: of a block, without what a CUDA launch adds.
        instructions, doubles: in the code of a thread, each counted once; `doubles` are those on float64.
        tensor_cores: whether an instruction uses them; None if that is not known.
        notes: sentences, as `tanh is a call`.
        widths, ratios: by verb and line, the bytes of a lane's access, and sectors by the fewest possible.
    """

    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int = 0
    instructions: int = 0
    doubles: int = 0
    tensor_cores: bool | None = None
    notes: tuple[str, ...] = ()
    widths: Mapping[tuple[str, int], int] = field(default_factory=dict)
    ratios: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Moved:
    """Bytes of one tensor, read or written by a whole launch.

    Attributes:
        fetched: in whole sectors, between L2 and the multiprocessors.
        once: as `fetched`, if no block moved a byte twice and every sector were used whole.
        least: of DRAM, if L2 kept all that is needed again.
        in_flight: of `least`, what the blocks use that run at once.
    """

    fetched: float
    once: float
    least: float
    in_flight: float


@dataclass(frozen=True)
class Launch:
    """A traced launch with what its compiler tells, on a GPU."""

    traced: TracedLaunch
    facts: Facts
    gpu: Gpu

    @property
    def blocks(self) -> int:
        return math.prod(self.traced.grid)

    @property
    def scale(self) -> float:
        """The factor from the blocks that ran to all blocks of all launches."""
        return self.blocks / max(self.traced.ran, 1) * self.traced.launches

    @property
    def shared_bytes(self) -> int:
        # Without nvcc nobody but the trace tells a CUDA kernel's static shared memory.
        static = max(self.facts.shared_bytes, self.traced.static_shared_bytes)
        return static + self.traced.shared_bytes

    @property
    def is_triton(self) -> bool:
        """Whether a request is a block of pointers; in CUDA it is a warp's."""
        return any(one.block or one.file.endswith(".py") for one in self.traced.accesses)

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

    def ratio(self, access: TracedAccess) -> float | None:
        """Sectors that an access moves, by the fewest possible; None if they are not known, or in shared memory."""
        if access.space != "global":
            return None
        if access.least_sectors:
            return max(access.sectors / access.least_sectors, 1.0)
        return self.facts.ratios.get((access.verb, access.line)) or _ratio_of_steps(access)

    def asked(self, access: TracedAccess) -> float:
        """Bytes that the lanes of the whole launch ask for."""
        return float(access.lanes) * access.width_bytes * self.scale

    def fetched(self, access: TracedAccess) -> float:
        """Bytes of the sectors of a global access."""
        if access.sectors:
            return float(access.sectors) * SECTOR * self.scale
        return self.asked(access) * (self.ratio(access) or 1.0)

    def useful(self, access: TracedAccess) -> float:
        """Bytes that a global access would move in the fewest sectors; lanes that ask for the same bytes count once."""
        return self.fetched(access) / (self.ratio(access) or 1.0)

    @functools.cached_property
    def moved(self) -> Mapping[tuple[str, str], Moved]:
        """By tensor and verb."""
        found = {}
        for tensor in self.traced.tensors:
            for verb, once in (("reads", tensor.read_once_bytes), ("writes", tensor.written_once_bytes)):
                own = [one for one in self.global_accesses() if one.tensor == tensor.name and one.verb == verb]
                if own or once:
                    found[tensor.name, verb] = self._moved(tensor, own, float(once))
        return found

    def global_accesses(self) -> list[TracedAccess]:
        return [one for one in self.traced.accesses if one.space == "global"]

    def _moved(self, tensor: TracedTensor, own: list[TracedAccess], once: float) -> Moved:
        useful = sum(map(self.useful, own))
        once = once * self.scale or useful
        fetched = sum(map(self.fetched, own)) or once
        size = float(tensor.bytes) or math.inf
        distinct = min(once, size)
        least = min(distinct * max(fetched / useful, 1.0), size) if useful else distinct
        sharers = once / distinct if distinct else 1.0
        every = float(self.blocks) * self.traced.launches
        return Moved(fetched, once, least, least * min(max(self.running, sharers) / max(every, 1.0), 1.0))

    @property
    def missed(self) -> float:
        """The share that L2 does not have of what is moved again."""
        in_flight = sum(one.in_flight for (_, verb), one in self.moved.items() if verb == "reads")
        return _lost(in_flight, self.gpu.l2_mib * MIB)

    @property
    def dram_bytes(self) -> float:
        return sum(one.least + max(one.fetched - one.least, 0.0) * self.missed for one in self.moved.values())

    @property
    def spilled_bytes(self) -> float:
        """Of all threads, if each spill happens once; what L1 keeps for the blocks of a multiprocessor goes no further."""
        spilled, own = float(self.facts.spilled_bytes or 0), self.occupancy.blocks or 1
        held = spilled / 2 * self.traced.threads * own  # stored, and loaded again
        left = max(self.gpu.shared_bytes_of_all - own * self.shared_bytes, 1)
        return spilled * self.traced.threads * self.blocks * self.traced.launches * _lost(held, left)

    @property
    def l2_bytes(self) -> float:
        return sum(map(self.fetched, self.global_accesses())) + self.spilled_bytes


def _lost(used: float, size: float) -> float:
    """The share of `used` bytes that a cache of this size loses before they are needed again."""
    return min(max((used / size - KEPT) / (LOST - KEPT), 0.0), 1.0)


def _ratio_of_steps(access: TracedAccess) -> float | None:
    """In Triton, the fewest sectors that any layout of a block of pointers can have, by the fewest possible."""
    width = access.width_bytes
    axes = sorted((abs(step), length) for step, length in zip(access.steps, access.block, strict=False) if length > 1)
    axes = [(step, length) for step, length in axes if step]
    if not access.steps or not width:
        return None
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


def launch_profile(launch: Launch, sources: Mapping[str, str], seconds: float | None) -> LaunchProfile:
    """A launch as the profile has it; `seconds` is its predicted time."""
    traced, facts = launch.traced, launch.facts
    grid = (traced.grid[0], traced.grid[1], traced.grid[2])
    known = facts.registers is not None
    return LaunchProfile(
        kernel=traced.kernel,
        line=traced.line,
        grid=grid,
        threads=traced.threads,
        sampled=traced.ran,
        launches=traced.launches,
        registers=facts.registers,
        spilled_bytes=facts.spilled_bytes,
        shared_bytes=launch.shared_bytes,
        occupancy=launch.occupancy if known else None,
        waves=launch.waves if known and launch.waves.slots else None,
        barriers=traced.barriers * launch.scale,
        flops=sum(one.flops for one in traced.dots) * launch.scale,
        dot_dtypes=tuple(dict.fromkeys(one.dtype for one in traced.dots)),
        lines=tuple(line_traffic(launch, one, sources) for one in traced.accesses),
        tensors=tuple(_tensor_traffic(launch, one) for one in traced.tensors),
        notes=facts.notes,
        dram_bytes=launch.dram_bytes,
        predicted_ms=None if seconds is None else seconds * 1e3,
    )


def line_traffic(launch: Launch, access: TracedAccess, sources: Mapping[str, str]) -> LineTraffic:
    shared = access.space == "shared"
    return LineTraffic(
        file=access.file,
        line=access.line,
        source=source_line(sources, access.file, access.line),
        verb=access.verb,
        space=access.space,
        tensor=access.tensor,
        width_bytes=launch.facts.widths.get((access.verb, access.line), access.width_bytes),
        bytes=launch.asked(access),
        sectors_ratio=launch.ratio(access),
        idle_share=idle_share(access),
        conflicts=max(access.passes / access.least_passes, 1.0) if shared and access.least_passes else None,
        atomic=access.atomic,
    )


def idle_share(access: TracedAccess) -> float:
    return min(max(1 - access.lanes / access.lanes_of_all, 0.0), 1.0) if access.lanes_of_all else 0.0


def source_line(sources: Mapping[str, str], file: str, line: int) -> str:
    lines = text.lines(sources.get(file, ""))
    return lines[line - 1].strip()[:MAX_SOURCE] if 0 < line <= len(lines) else ""


def _tensor_traffic(launch: Launch, tensor: TracedTensor) -> TensorTraffic:
    asked = {
        verb: sum(
            launch.asked(one) for one in launch.global_accesses() if (one.tensor, one.verb) == (tensor.name, verb)
        )
        for verb in ("reads", "writes")
    }
    return TensorTraffic(
        name=tensor.name,
        bytes=float(tensor.bytes),
        read_bytes=asked["reads"],
        written_bytes=asked["writes"],
        read_once_bytes=tensor.read_once_bytes * launch.scale,
        is_of_call=tensor.is_of_call,
    )


def operator_traffic(operator: TracedOperator) -> OperatorTraffic:
    return OperatorTraffic(
        name=operator.name,
        place=operator.place,
        calls=operator.calls,
        read_bytes=float(operator.read_bytes),
        written_bytes=float(operator.written_bytes),
    )
