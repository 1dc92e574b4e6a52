"""The profile of a submission: what its kernels do with the GPU, case by case, and why they are slow.

All of it comes from the student's process. A profile is shown and never graded.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from grader.protocol import TracedOperator
from grader.report.model import Model, SpeedMeasurement

MAX_REMARKS = 3  # A profile has at most this many remarks for each case.


def bytes_words(size: float) -> str:
    """As `2.15 GB`."""
    if size >= 1e18:  # of a submission that has made it up
        return f"{size:.3g} B"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size < 1000 * factor else f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"


class LineTraffic(Model):
    """The accesses in one line of a kernel, in one direction, to one tensor; counts are for the whole launch.

    Attributes:
        tensor: name of the kernel's parameter or shared variable; "" if it is not known.
        bytes: asked for by all lanes.
        sectors_ratio: sectors of 32 bytes that are moved, by the fewest possible; None if they are not known.
        idle_share: of the lanes, those that a branch or a mask turned off.
        conflicts: passes through the banks of shared memory, by the fewest possible; None in global memory.
    """

    file: str
    line: int
    source: str = ""
    verb: Literal["reads", "writes"]
    space: Literal["global", "shared"]
    tensor: str
    bytes: float
    sectors_ratio: float | None = None
    idle_share: float = 0.0
    conflicts: float | None = None
    atomic: bool = False


class Occupancy(Model):
    """How many blocks of a kernel a multiprocessor runs at once.

    Attributes:
        blocks: at once.
        share: of the warps that a multiprocessor can hold.
        limits: what allows no further block.
    """

    blocks: int
    share: float
    limits: tuple[Literal["registers", "shared memory", "threads", "blocks"], ...]


class Waves(Model):
    """How the blocks of a launch fill the GPU: `waves` times all its slots.

    Attributes:
        slots: blocks that the GPU runs at once.
        last: blocks of the last wave.
    """

    slots: int
    waves: float
    last: int


class LaunchProfile(Model):
    """A launch of a case.

    Attributes:
        threads: of a block.
        launches: how many launches in a row were alike.
        registers, spilled_bytes: of a thread; None if the kernel was not compiled here. shared_bytes: of a block.
        occupancy, waves: None where registers are not known.
        flops: of products of tiles (`tl.dot`), of all its `launches`.
        moved_bytes: of all its `launches`, in whole sectors between the L2 cache and the multiprocessors.
        notes: what the compiled code shows, as `tanh is a call`.
    """

    kernel: str
    line: int
    grid: tuple[int, int, int]
    threads: int
    launches: int = 1
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int = 0
    occupancy: Occupancy | None = None
    waves: Waves | None = None
    flops: float = 0.0
    moved_bytes: float = 0.0
    lines: tuple[LineTraffic, ...] = ()
    notes: tuple[str, ...] = ()


class Remark(Model):
    """One cause of a kernel's time.

    Attributes:
        cause: names the rule, as `uncoalesced`.
        sentence: for the student, with its number.
        file, line: where; line 0 if it is the launch as a whole.
        bytes: moved by the lines, launches or operators that it is about; remarks of a case stand in the order of these.
    """

    cause: str
    sentence: str
    file: str = ""
    line: int = 0
    bytes: float = 0.0


class RanLine(Model):
    """A kernel, copy or fill of a call on the GPU; several in a row that are alike count as one line.

    Attributes:
        own: whether it is the submission's own kernel; a library's otherwise.
        calls: how many there were. time_ms: of all of them together.
        share: of the time in which the GPU worked.
        threads: of a block. occupancy: by its registers, threads and shared memory; None for copies and fills.
    """

    name: str
    own: bool
    calls: int
    time_ms: float
    share: float
    grid: tuple[int, int, int]
    threads: int
    registers: int
    shared_bytes: int
    occupancy: float | None = None


class GpuRun(Model):
    """A case's call on a GPU, traced by PyTorch's profiler.

    Attributes:
        gpu: the GPU that it ran on.
        host_ms: until the function returned. device_ms: from the first kernel's start to the last one's end; busy_ms: of
            it, while a kernel ran.
        missing: kernels that are not in `kernels`, because there were so many.
    """

    gpu: str
    kernels: tuple[RanLine, ...]
    host_ms: float
    device_ms: float
    busy_ms: float
    missing: int = 0


class KernelCounters(Model):
    """What a GPU's counters say of a kernel, by Nsight Compute. Shares are of 1; None where a number is not known.

    Attributes:
        own: whether it is the submission's own kernel; a library's otherwise.
        grid: of its launch; None if it is not known.
        load_sectors, store_sectors: sectors of 32 bytes for each request of a warp to global memory.
        l1_hits, l2_hits: of the sectors that were asked for.
        bank_conflicts: passes through the banks of shared memory beyond the first.
        occupancy: of the warps that a multiprocessor can hold.
        dram_busy, l2_busy, tensor_busy, issue_busy: of what memory, cache, tensor cores and schedulers can do.
        stalls: what a warp waits for, with the share of its time, the longest first.
    """

    name: str
    own: bool
    time_ms: float
    grid: tuple[int, int, int] | None = None
    dram_read_bytes: float | None = None
    dram_written_bytes: float | None = None
    l2_bytes: float | None = None
    load_sectors: float | None = None
    store_sectors: float | None = None
    l1_hits: float | None = None
    l2_hits: float | None = None
    bank_conflicts: float | None = None
    occupancy: float | None = None
    dram_busy: float | None = None
    l2_busy: float | None = None
    tensor_busy: float | None = None
    issue_busy: float | None = None
    stalls: tuple[tuple[str, float], ...] = ()


class TimedSize(Model):
    """A speed case at one of its sizes, timed in rounds beside the other entrants.

    Attributes:
        size: in words.
        unknown: why it was not timed; "" if it was.
    """

    size: str
    measured: SpeedMeasurement | None = None
    unknown: str = ""


class CaseProfile(Model):
    """A speed case of a part, profiled.

    Attributes:
        size: the case's parameters, in words.
        gpu: the GPU that the profile is for.
        unknown: why there is no profile, or what is missing in it; "" otherwise.
        needed_bytes, needed_flops: the least work of the case (`cost` of problem.py).
        moved_bytes: what all launches move through the L2 cache, in whole sectors, and what operators read and write.
        is_cut: whether counts are too low, because a block made too many accesses and was stopped.
        ran, timed: on a machine with a GPU, a traced call and the times at every size.
        counters: of each kernel of that call, if they were asked for and are allowed.
        compiled: the same call of torch.compile's baseline. generated: the Triton kernels that it made.
    """

    assignment: str
    part: str
    case: str
    size: str
    dtype: str
    gpu: str
    unknown: str = ""
    needed_bytes: float = 0.0
    needed_flops: float = 0.0
    moved_bytes: float = 0.0
    is_cut: bool = False
    launches: tuple[LaunchProfile, ...] = ()
    operators: tuple[TracedOperator, ...] = ()
    ran: GpuRun | None = None
    counters: tuple[KernelCounters, ...] = ()
    compiled: GpuRun | None = None
    generated: str = ""
    timed: tuple[TimedSize, ...] = ()
    remarks: Annotated[tuple[Remark, ...], Field(max_length=MAX_REMARKS)] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the case has no numbers, only `unknown`."""
        return not (self.launches or self.operators or self.ran or self.counters or self.compiled or self.timed)


class Profile(Model):
    """The profile of a submission, as profile.json has it."""

    schema_version: Literal[1] = 1
    submission: str
    grader_version: str
    cases: tuple[CaseProfile, ...] = ()

    @property
    def missing(self) -> dict[str, list[CaseProfile]]:
        """The empty cases, by the reason."""
        found: dict[str, list[CaseProfile]] = {}
        for case in self.cases:
            if case.is_empty:
                found.setdefault(case.unknown, []).append(case)
        return found
