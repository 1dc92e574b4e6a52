"""The GPUs that a course may be graded on or compile for: facts, as PyTorch and CUDA report them.

Memory, L2, multiprocessors and clocks are what each GPU's driver tells, or NVIDIA's data sheet; what a block and a multiprocessor
may have is in the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grader.protocol import Gpu

KIB = 1 << 10
# By the name that problem.toml has. In this order: capability, multiprocessors, memory in MiB; shared memory of a block and of a
# multiprocessor, its threads; L2 in MiB; clock, memory's clock, memory's width in bits.
GPUS = {
    "T4": Gpu("Tesla T4", (7, 5), 40, 14_913, 64 * KIB, 64 * KIB, 1024, 4, 1_590_000, 5_001_000, 256),
    "A100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 81_153, 163 * KIB, 164 * KIB, 2048, 40, 1_410_000, 1_593_000, 5120),
    "A10G": Gpu("NVIDIA A10G", (8, 6), 80, 22_502, 99 * KIB, 100 * KIB, 1536, 6, 1_710_000, 6_251_000, 384),
    "RTX 3090": Gpu("NVIDIA GeForce RTX 3090", (8, 6), 82, 24_117, 99 * KIB, 100 * KIB, 1536, 6, 1_695_000, 9_751_000, 384),
    "L4": Gpu("NVIDIA L4", (8, 9), 58, 22_563, 99 * KIB, 100 * KIB, 1536, 48, 2_040_000, 6_251_000, 192),
    "RTX 4090": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 24_210, 99 * KIB, 100 * KIB, 1536, 72, 2_520_000, 10_501_000, 384),
    "H100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 81_089, 227 * KIB, 228 * KIB, 2048, 50, 1_980_000, 2_619_000, 5120),
    "H200": Gpu("NVIDIA H200", (9, 0), 132, 143_156, 227 * KIB, 228 * KIB, 2048, 60, 1_980_000, 3_201_000, 6144),
    "B200": Gpu("NVIDIA B200", (10, 0), 148, 182_642, 227 * KIB, 228 * KIB, 2048, 126, 1_965_000, 3_996_000, 7680),
    "RTX 5090": Gpu("NVIDIA GeForce RTX 5090", (12, 0), 170, 32_120, 99 * KIB, 100 * KIB, 1536, 96, 2_407_000, 14_001_000, 512),
}  # fmt: skip


@dataclass(frozen=True)
class Multiprocessor:
    """What Gpu lacks of a multiprocessor of one compute capability.

    Attributes:
        blocks: most of them at once.
        shared_granule, shared_reserved: bytes in whose multiples a block gets shared memory, and that it gets besides.
        product_flops, flops: of tensor cores, in 16-bit products, and of the other cores in float32, for each clock.
        doubles: instructions in float64 of one thread, for each clock.
    """

    blocks: int
    shared_granule: int
    shared_reserved: int
    product_flops: int
    flops: int
    doubles: int


MULTIPROCESSORS = {
    (7, 5): Multiprocessor(16, 256, 0, 1024, 128, 2),
    (8, 0): Multiprocessor(32, 128, 1024, 2048, 128, 32),
    (8, 6): Multiprocessor(16, 128, 1024, 1024, 256, 2),
    (8, 9): Multiprocessor(24, 128, 1024, 1024, 256, 2),
    (9, 0): Multiprocessor(32, 128, 1024, 4096, 256, 64),
    (10, 0): Multiprocessor(32, 128, 1024, 8192, 256, 64),
    (12, 0): Multiprocessor(24, 128, 1024, 1024, 256, 2),
}


@dataclass(frozen=True)
class Rates:
    """How fast a GPU works, for predictions.

    Attributes:
        copy: bytes a second of a device copy, read and written.
        l2: bytes a second between L2 and the multiprocessors.
        matmul: FLOPs a second of an 8192 x 8192 matrix product in bfloat16.
        tiles, tiles_tf32: FLOPs a second of `tl.dot` between other work, in 16 bits and in float32 by TF32.
        cores: FLOPs a second in float32 without tensor cores.
        doubles: float64 instructions of a thread, a second.
    """

    copy: float
    l2: float
    matmul: float
    tiles: float
    tiles_tf32: float
    cores: float
    doubles: float


# Measured: `copy` and `matmul` in gradings (docs/sample/gpu, benchmarks/reference_record.json); `tiles` with the staff's products.
COPY = {"NVIDIA H100 80GB HBM3": 3.00e12, "NVIDIA H200": 4.21e12}
MATMUL = {"NVIDIA H100 80GB HBM3": 799e12, "NVIDIA H200": 779e12}
TILES = {"NVIDIA H100 80GB HBM3": (430e12, 130e12), "NVIDIA H200": (430e12, 130e12)}
# Of what a GPU could do by its clocks. An H100's and an H200's copies reach 0.90 and 0.86, their products 0.75 and 0.73.
COPY_SHARE, MATMUL_SHARE, L2_SHARE, CORES_SHARE = 0.87, 0.73, 0.35, 0.6
L2_BYTES = 64  # a multiprocessor's, for each clock
L2_BY_COPY = 1.4  # times a copy's rate, at the least
TILES_SHARES = (0.55, 0.17)  # of `matmul`


def rates(gpu: Gpu) -> Rates:
    """The rates of a GPU: those of an H100 and an H200 are measured, but for `l2`, `cores` and `doubles`; all others are shares of what
    the GPU could do by its clocks.
    """
    clocks, own = gpu.clock_khz * 1e3 * gpu.multiprocessors, multiprocessor(gpu)
    matmul = MATMUL.get(gpu.name, MATMUL_SHARE * own.product_flops * clocks)
    tiles, tf32 = TILES.get(gpu.name, (matmul * TILES_SHARES[0], matmul * TILES_SHARES[1]))
    by_clock = 2 * gpu.memory_clock_khz * 1e3 * gpu.memory_bits / 8  # two transfers for each clock
    copy = COPY.get(gpu.name, COPY_SHARE * by_clock)
    return Rates(
        copy=copy,
        l2=max(L2_SHARE * L2_BYTES * clocks, L2_BY_COPY * copy),
        matmul=matmul,
        tiles=tiles,
        tiles_tf32=tf32,
        cores=CORES_SHARE * own.flops * clocks,
        doubles=CORES_SHARE * own.doubles * clocks,
    )


def multiprocessor(gpu: Gpu) -> Multiprocessor:
    """Of the GPU's capability; of the nearest older one if it is not in the table."""
    older = [one for one in MULTIPROCESSORS if one <= gpu.capability]
    return MULTIPROCESSORS[max(older, default=min(MULTIPROCESSORS))]


SPOKEN_WITH_A_VOWEL = "AEFHILMNORSX"  # these letters: an H100, a B200


def gpus_of(arch: str) -> dict[str, Gpu]:
    """The table's GPUs of an architecture, as `sm_90` or `sm_90a`, by their names."""
    return {name: one for name, one in GPUS.items() if one.arch == arch.rstrip("af")}


def with_article(names: Iterable[str]) -> str:
    """As `an H100 or H200`."""
    words = " or ".join(names)
    return f"{'an' if words[:1] in SPOKEN_WITH_A_VOWEL else 'a'} {words}"
