"""Occupancy as NVIDIA's calculator counts it, and waves."""

from __future__ import annotations

import csv
import lzma
from collections import Counter
from pathlib import Path

from grader.gpu_table import GPUS, MULTIPROCESSORS
from grader.profile.model import Occupancy
from grader.profile.occupancy import occupancy, waves
from grader.protocol import Gpu

# Rows of compute capability, threads of a block, registers of a thread, bytes of shared memory, blocks, and a sum of LIMITS: drawn at
# random and computed by cuda_occupancy.h of CUDA 13.0, with a block's shared memory as large as the GPU allows.
CASES = Path(__file__).parent / "occupancy.csv.xz"
LIMITS = {"threads": 1, "registers": 2, "shared memory": 4, "blocks": 8}
H100 = GPUS["H100"]


def gpu_of(capability: str) -> Gpu:
    return next(one for one in GPUS.values() if "{}.{}".format(*one.capability) == capability)


def test_the_formula_is_nvidias_in_thousands_of_kernels() -> None:
    with lzma.open(CASES, "rt") as rows:
        cases = list(csv.reader(rows))
    assert len(cases) >= 2800
    assert len({row[0] for row in cases}) == len(MULTIPROCESSORS)
    told = Counter[str]()
    for capability, threads, registers, shared, blocks, limits in cases:
        found = occupancy(gpu_of(capability), int(threads), int(registers), int(shared))
        where = f"{capability}: {threads} threads, {registers} registers, {shared} bytes"
        assert found.blocks == int(blocks), where
        assert sum(LIMITS[one] for one in found.limits) == int(limits), where
        told.update(found.limits)
    assert min(told[one] for one in LIMITS) > 50, "each limit is the smallest somewhere"


def test_occupancy_is_the_share_of_warps() -> None:
    full = occupancy(H100, 256, 32, 0)
    assert (full.blocks, full.share, full.limits) == (8, 1.0, ("registers", "threads"))
    small = occupancy(H100, 32, 32, 0)
    assert (small.blocks, small.share, small.limits) == (32, 0.5, ("blocks",))
    assert occupancy(H100, 1024, 128, 0).blocks == 0, "more registers than there are"
    assert occupancy(H100, 48, 8, 0).share == 1.0, "a block of 48 threads has two warps"


def test_waves_are_blocks_by_slots() -> None:
    eight = Occupancy(blocks=8, share=1.0, limits=("threads",))
    tail = waves(H100, eight, 1057)
    assert (tail.slots, tail.last) == (1056, 1)
    assert 1.0 < tail.waves < 1.001
    assert waves(H100, eight, 2112).last == 1056, "a full last wave"
    assert waves(H100, eight, 0).waves == 0
    none = waves(H100, Occupancy(blocks=0, share=0.0, limits=("registers",)), 5)
    assert (none.slots, none.waves, none.last) == (0, 0.0, 0)
