"""How many blocks of a kernel run at once, on a multiprocessor and on the GPU."""

from __future__ import annotations

import math
from typing import Literal

from grader.gpu_table import multiprocessor
from grader.profile.model import Occupancy, Waves
from grader.protocol import Gpu

MAX_THREADS = 1024  # CUDA allows no more threads in a block.
MAX_REGISTERS = 255  # CUDA allows no more registers for a thread.
REGISTER_GRANULE = 256  # A warp gets its registers in groups of this many.
PARTITIONS = 4  # A multiprocessor has four; each holds whole warps and a fourth of the registers.


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The blocks that a multiprocessor runs at once, as NVIDIA's calculator counts them; 0 blocks if none fits.

    Args:
        threads, shared_bytes: of a block.
        registers: of a thread.
    """
    own, warps = multiprocessor(gpu), max(math.ceil(threads / gpu.warp), 1)
    registers_of_warp = max(_rounded(registers * gpu.warp, REGISTER_GRANULE), 1)
    by_registers = gpu.registers // PARTITIONS // registers_of_warp * PARTITIONS // warps
    shared = shared_bytes + own.shared_reserved
    limits: dict[Literal["registers", "shared memory", "threads", "blocks"], int] = {
        "registers": by_registers if registers <= MAX_REGISTERS else 0,
        "shared memory": gpu.shared_bytes_of_all // _rounded(shared, own.shared_granule) if shared else gpu.threads,
        "threads": gpu.threads // gpu.warp // warps if threads <= MAX_THREADS else 0,
        "blocks": own.blocks,
    }
    blocks = min(limits.values())
    share = blocks * warps * gpu.warp / gpu.threads
    return Occupancy(blocks=blocks, share=share, limits=tuple(name for name, most in limits.items() if most == blocks))


def waves(gpu: Gpu, found: Occupancy, blocks: int) -> Waves:
    """How so many blocks fill a GPU that runs `found.blocks` on each multiprocessor."""
    slots = found.blocks * gpu.multiprocessors
    if slots == 0 or blocks == 0:
        return Waves(slots=slots, waves=0.0, last=0)
    return Waves(slots=slots, waves=blocks / slots, last=blocks % slots or slots)


def _rounded(number: int, granule: int) -> int:
    return math.ceil(number / granule) * granule
