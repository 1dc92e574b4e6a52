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
    """

    blocks: int
    shared_granule: int
    shared_reserved: int


MULTIPROCESSORS = {
    (7, 5): Multiprocessor(16, 256, 0),
    (8, 0): Multiprocessor(32, 128, 1024),
    (8, 6): Multiprocessor(16, 128, 1024),
    (8, 9): Multiprocessor(24, 128, 1024),
    (9, 0): Multiprocessor(32, 128, 1024),
    (10, 0): Multiprocessor(32, 128, 1024),
    (12, 0): Multiprocessor(24, 128, 1024),
}


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
