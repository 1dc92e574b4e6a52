"""The time that a GPU needs for a call, from what its launches move and compute.

DRAM, L2, shared memory, the wait for loads, instructions, products of tiles and atomics on one address work side by side:
a launch takes as long as the slowest, and longer where several are nearly as slow (`POWER`). The wait follows Little's law:
the bytes in flight come in `LATENCY_S`. No launch is shorter than the starts of its blocks, one after another. Blocks of
the last wave that are alone wait for their own loads. Of instructions those are counted that the compiler's output has,
each once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from grader.gpu_table import Rates, rates
from grader.protocol import Gpu, TracedAccess, TracedOperator
from grader.verdict.occupancy import PARTITIONS
from grader.verdict.traffic import SECTOR, Launch

POWER = 4  # of the norm that adds what works side by side
# Between a load and its data while memory is busy. Measured: a thread for each float, full occupancy, takes 0.835 ms for the
# elementwise kernel of 2²⁸ floats on an H200; 1.08 MB are in flight there.
LATENCY_S = 0.81e-6
L2_LATENCY_S = 0.35e-6
# Of the GPU, between the starts of two blocks. Measured: kernels of 1.4, 2.1 and 8.4 million blocks, of 96, 128 and 32 threads, take
# 0.605 ns for each on an H200 at 1.98 GHz.
BLOCK_CLOCKS = 1.2
# Between two warps that add to one address. Measured: 8.4 million of them take 6.8 to 7.5 ms on an H100 and on an H200 at 1.98 GHz.
ATOMIC_CLOCKS = 1.7
STARTS = "starts of blocks"
LAUNCH_S = 2.5e-6  # what a launch adds on the GPU
HOST_S = {True: 20e-6, False: 2.5e-6}  # what a launch takes the host, in Triton and in CUDA
LAUNCHES_AHEAD = 256  # the host may be so many launches ahead of the GPU
UNROLLED = 4  # loads of a loop that nvcc lets run ahead
TARGET_BYTES = 32  # a block that adds to less than that adds to one address,
MAX_TARGET_BYTES = 256  # in a tensor of at most that many


# By what bounds a kernel's time (`Workload.bound`): the median error of its predictions, as docs/PROFILE.md has it. A time that is bound by
# anything else is not told: its predictions are off by more than a quarter.
ERRORS = {"DRAM": 0.02, "atomics": 0.04, "latency": 0.05, "launches": 0.13, STARTS: 0.01}


@dataclass(frozen=True)
class Workload:
    """The work of a call on a GPU.

    Attributes:
        dtype: of the case's inputs.
        needed_bytes, needed_flops: the least work.
        in_double: places computed in double precision, as `kernel.cu:12`, by the compiler's words.
    """

    launches: tuple[Launch, ...]
    operators: tuple[TracedOperator, ...]
    gpu: Gpu
    dtype: str = "float32"
    needed_bytes: float = 0.0
    needed_flops: float = 0.0
    in_double: tuple[str, ...] = ()

    @property
    def moved_bytes(self) -> float:
        return sum(one.dram_bytes for one in self.launches) + sum(map(operator_bytes, self.operators))

    @property
    def is_cut(self) -> bool:
        """Whether counts are too low, because a block was stopped."""
        return any(one.traced.cut for one in self.launches)

    @property
    def is_told(self) -> bool:
        """Whether predicted times are told. Of arithmetic in double precision the compiler names the lines, but not how much it is."""
        return not self.is_cut and not self.in_double and self.bound in ERRORS

    @cached_property
    def seconds(self) -> float:
        """The time of the call: the GPU's, or the host's where there are too many launches to wait in a queue."""
        return max(self._busy_seconds, self._host_seconds)

    @property
    def bound(self) -> str:
        """What takes the largest part of the time: `launches`, `operators`, or a cause of `seconds_by_cause`."""
        if self._host_seconds > self._busy_seconds:
            return "launches"
        found = {"operators": self._operator_seconds}
        for launch in self.launches:
            of_launch = seconds_by_cause(launch)
            main = max((name for name in of_launch if name != "all"), key=lambda name: of_launch[name])
            found[main] = found.get(main, 0.0) + of_launch["all"]
        return max(found, key=lambda name: found[name])

    @property
    def _operator_seconds(self) -> float:
        here = rates(self.gpu)
        return sum(operator_bytes(one) / here.copy + one.calls * LAUNCH_S for one in self.operators)

    @cached_property
    def _busy_seconds(self) -> float:
        return sum(launch_seconds(one) for one in self.launches) + self._operator_seconds

    @property
    def _host_seconds(self) -> float:
        counted = sum(one.traced.launches for one in self.launches)
        by_host = sum(one.traced.launches * HOST_S[one.is_triton] for one in self.launches)
        return by_host if counted > LAUNCHES_AHEAD else 0.0

    @property
    def least_seconds(self) -> float:
        here = rates(self.gpu)
        return max(self.needed_bytes / here.copy, self.needed_flops / here.matmul)


def operator_bytes(operator: TracedOperator) -> float:
    return float(operator.read_bytes) + operator.written_bytes


def launch_seconds(launch: Launch) -> float:
    """The time of all launches that this one stands for."""
    return seconds_by_cause(launch)["all"]


def seconds_by_cause(launch: Launch) -> dict[str, float]:
    """Seconds by what takes them, and of `all`."""
    here, launches = rates(launch.gpu), launch.traced.launches
    clocks = launch.gpu.clock_khz * 1e3 * launch.gpu.multiprocessors
    busy = min(launch.blocks / launch.gpu.multiprocessors, 1.0) or 1.0
    found = {
        "DRAM": launch.dram_bytes / dram_rate(here),
        "L2": launch.l2_bytes / (here.l2 * busy),
        "shared memory": _shared_passes(launch) / (clocks * busy),
        "latency": _rounds(launch) * _latency_s(launch) * launches,
        "products": product_seconds(launch) / busy,
        "double": launch.facts.doubles
        * float(launch.traced.threads)
        * launch.blocks
        * launches
        / (here.doubles * busy),
        "instructions": _issued(launch) / (clocks * busy),
        "atomics": ATOMIC_CLOCKS * colliding_warps(launch) / (launch.gpu.clock_khz * 1e3),
    }
    started = BLOCK_CLOCKS * launch.blocks * launches / (launch.gpu.clock_khz * 1e3)
    main = max(sum(one**POWER for one in found.values()) ** (1 / POWER), started)
    found[STARTS] = started
    return found | {"tail": _tail(launch, main), "all": main + _tail(launch, main) + LAUNCH_S * launches}


def dram_rate(here: Rates) -> float:
    """Bytes a second of DRAM alone: a copy takes the time of DRAM and of L2."""
    return float((here.copy**-POWER - here.l2**-POWER) ** (-1 / POWER))


def product_seconds(launch: Launch) -> float:
    here = rates(launch.gpu)
    return sum(one.flops * launch.scale / _product_rate(launch, one.dtype, here) for one in launch.traced.dots)


SHORT = {"float16", "bfloat16", "fp16", "bf16"}


def _product_rate(launch: Launch, dtype: str, here: Rates) -> float:
    if launch.facts.tensor_cores is False:
        return here.cores
    return here.tiles if dtype.removeprefix("torch.") in SHORT else here.tiles_tf32


def bytes_in_flight(launch: Launch) -> float:
    """Of loads, by all blocks that run at once."""
    by_tensor: dict[str, float] = {}
    for one in launch.global_accesses():
        if one.verb == "reads" and one.requests:
            waits = lanes_of_block(launch, one) * one.width_bytes
            by_tensor[one.tensor] = max(by_tensor.get(one.tensor, 0.0), waits)
    return sum(by_tensor.values()) * launch.running


def lanes_of_block(launch: Launch, access: TracedAccess) -> float:
    """Lanes of a block that wait at once for one access."""
    lanes = access.lanes / access.requests
    if launch.is_triton:
        return lanes
    warps = max(-(-launch.traced.threads // launch.gpu.warp), 1)
    of_warp = access.requests / (max(launch.traced.ran, 1) * warps)  # requests; less than 1 if not every warp has one
    return lanes * warps * min(of_warp, UNROLLED)


def _rounds(launch: Launch) -> float:
    """How often one after another all loads in flight are waited for, in one launch."""
    read = sum(launch.asked(one) for one in launch.global_accesses() if one.verb == "reads")
    in_flight = bytes_in_flight(launch)
    return read / launch.traced.launches / in_flight if in_flight else 0.0


def _latency_s(launch: Launch) -> float:
    """Of a load, by how many find their bytes in L2."""
    reads = [one for (_, verb), one in launch.moved.items() if verb == "reads"]
    fetched = sum(one.fetched for one in reads)
    least = sum(one.least for one in reads)
    if not fetched:
        return LATENCY_S
    of_dram = min((least + max(fetched - least, 0.0) * launch.missed) / fetched, 1.0)
    return LATENCY_S * of_dram + L2_LATENCY_S * (1 - of_dram)


def _issued(launch: Launch) -> float:
    """Cycles of a multiprocessor in which all warps issue their instructions."""
    warps = -(-launch.traced.threads // launch.gpu.warp) * launch.blocks * launch.traced.launches
    return launch.facts.instructions * float(warps) / PARTITIONS


def _tail(launch: Launch, main: float) -> float:
    """What blocks of the last wave add, because they work alone."""
    found, blocks, launches = launch.waves, launch.blocks, launch.traced.launches
    if not found.slots or found.last == found.slots or blocks <= found.slots:
        return 0.0
    share = launch.gpu.multiprocessors / blocks  # of one block, if a multiprocessor is its own
    alone = max(
        _rounds(launch) * launch.running / blocks * _latency_s(launch),
        product_seconds(launch) * share / launches,
        launch.l2_bytes / launches * share / rates(launch.gpu).l2,
    )
    wave = main / launches * found.slots / blocks
    part = main / launches * found.last / blocks
    return max(min(alone, wave) - part, 0.0) * launches


def _shared_passes(launch: Launch) -> float:
    return sum(one.passes for one in launch.traced.accesses if one.space == "shared") * launch.scale


def colliding_warps(launch: Launch) -> float:
    """Warps whose atomics meet at one address of global memory. A warp's own lanes are added up before, or at once."""
    ran = max(launch.traced.ran, 1)
    small = {
        one.name
        for one in launch.traced.tensors
        if one.written_once_bytes <= TARGET_BYTES * ran and one.bytes <= MAX_TARGET_BYTES
    }
    named = {one.name for one in launch.traced.tensors}
    own = [
        one
        for one in launch.global_accesses()
        if one.atomic
        and one.verb == "writes"
        and (one.tensor in small or (one.tensor not in named and _is_one_address(one)))
    ]
    return sum(max(one.lanes / launch.gpu.warp, 0 if launch.is_triton else one.requests) for one in own) * launch.scale


def _is_one_address(access: TracedAccess) -> bool:
    """Whether the lanes of each request lie in fewer sectors than so many different addresses could."""
    return (
        bool(access.sectors)
        and access.sectors <= access.requests
        and access.lanes * access.width_bytes > 2 * SECTOR * access.requests
    )
