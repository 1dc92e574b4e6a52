"""Causes of which tests/corpora/slow has no kernel are told first, with their number; a kernel below a threshold is not told so."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from grader.profile.compiled import Compiled
from grader.profile.launches import Facts, Launch
from grader.profile.model import MAX_REMARKS
from grader.profile.remarks import Work, remarks
from grader.protocol import TracedDot, TracedLaunch, TracedOperator
from tests.support.traces import H200, RAN, N, elementwise, of_programs, of_warps, rows, tensor

BYTES = 8.0 * N


def case(*launches: TracedLaunch, facts: Facts | None = None, **fields: object) -> Work:
    """A case of the GeLU of N floats."""
    found = tuple(Launch(one, facts or Facts(registers=32, spilled_bytes=0), H200) for one in launches)
    return Work(found, **({"needed_bytes": BYTES} | fields))  # type: ignore[arg-type]


def changed(traced: TracedLaunch, **fields: int) -> TracedLaunch:
    """With these counts in every access, times its requests."""
    accesses = (replace(one, **{name: each * one.requests for name, each in fields.items()}) for one in traced.accesses)
    return replace(traced, accesses=tuple(accesses))


FLOAT4 = elementwise(width=16)
ONE_PASS = rows(1)
SCATTERED, DOWN = changed(elementwise(), sectors=16), changed(elementwise(), sectors=32)
THREE_PASSES = rows(3, warps=4)
TILE = of_warps(
    "writes", "tile", 14, 8 * RAN, space="shared", sectors=0, least_sectors=0, passes=256 * RAN, least_passes=8 * RAN
)
CONFLICTS = replace(FLOAT4, accesses=(*FLOAT4.accesses, replace(TILE, passes=1024 * RAN, least_passes=32 * RAN)))
NO_CONFLICTS = replace(FLOAT4, accesses=(*FLOAT4.accesses, replace(TILE, passes=8 * RAN)))
COUNT = of_warps("writes", "count", 12, RAN * 8, atomic=True, sectors=RAN * 8, least_sectors=RAN * 8)
COUNTER = replace(FLOAT4, accesses=(*FLOAT4.accesses, COUNT), tensors=(*FLOAT4.tensors, tensor("count", 4, 0, 4)))
PRIVATE = replace(COUNTER, tensors=(*FLOAT4.tensors, tensor("count", 4 * N, 0, 4)))
# 264 slots; each of its blocks reads a megabyte, 16 bytes a thread.
LONG_BLOCKS = replace(
    FLOAT4,
    threads=1024,
    accesses=tuple(
        of_warps(verb, name, 10, RAN * 32 * 64, width_bytes=16) for verb, name in (("reads", "x"), ("writes", "y"))
    ),
    tensors=(tensor("x", 1e9, 1 << 20), tensor("y", 1e9, 0, 1 << 20)),
)
ONE_BLOCK_MORE, WHOLE_WAVES = (replace(LONG_BLOCKS, grid=(number, 1, 1)) for number in (529, 528))
COPY = TracedOperator("clone", "kernel.py:33", 1, 4 * N, 4 * N)
ZEROS = TracedOperator("zeros", "kernel.py:34", 1, 0, 4 * N)
BY_PYTORCH = tuple(
    TracedOperator(name, "kernel.py:6", calls, calls * 4 * N, calls * 4 * N)
    for name, calls in (("mul", 6), ("tanh", 1))
)
FEW = replace(rows(1, 16, N // 16), ran=16)  # 16 programs with a stride of all programs
FLOPS = 103e9


def products(flops: float, dtype: str = "bfloat16") -> TracedLaunch:
    """Attention's forward, (48, 4096, 64): programs of 128 queries, each with all keys and values."""
    blocks = 48 * 4096 // 128
    size = 48 * 4096 * 64 * 2
    own = [
        replace(of_programs(verb, name, line, 64 * 64, times), width_bytes=2, steps=(128, 2), block=(64, 64))
        for verb, name, line, times in (
            ("reads", "k", 30, 64),
            ("reads", "v", 31, 64),
            ("writes", "o", 44, 2),
        )
    ]
    tensors = (
        tensor("k", size, reads=4096 * 128),
        tensor("v", size, reads=4096 * 128),
        tensor("o", size, writes=128 * 128),
    )
    dots = (TracedDot(33, dtype, round(flops / blocks * RAN)),)
    return replace(ONE_PASS, grid=(blocks, 1, 1), accesses=tuple(own), tensors=tensors, dots=dots)


ATTENTION = {"needed_bytes": 101e6, "needed_flops": FLOPS, "dtype": "bfloat16"}


def product_case(traced: TracedLaunch, **facts: object) -> Work:
    return case(traced, facts=Facts(**({"registers": 32} | facts)), **ATTENTION)  # type: ignore[arg-type]


EARNED = [
    ("narrow-loads", case(elementwise()), r"reads x with 4 bytes a thread, 4 in all"),
    (
        "low-occupancy",
        case(FLOAT4, facts=Facts(registers=32, shared_bytes=150_000)),
        r"12% .*limited by shared memory \(150 KB of shared memory a block, 256 threads a block\)",
    ),
    (
        "wave-tail",
        case(ONE_BLOCK_MORE),
        r"529 blocks of gelu_kernel on 132 × 2 slots: wave 3 has one block, .*33% of all slots stay empty",
    ),
    ("unfused", case(replace(FLOAT4, line=1), FLOAT4), r"2 kernels move 4\.29 GB where 2\.15 GB would do"),
    (
        "unfused",
        case(operators=BY_PYTORCH),
        r"7 operators of PyTorch and no kernel of yours move 15 GB where 2\.15 GB would do",
    ),
    ("fills", case(FLOAT4, operators=(ZEROS,)), r"fills memory by zeros .*torch\.empty"),
    ("few-blocks", case(FEW), r"runs as 16 blocks of 256 threads, 2% of the threads that the GPU can hold: "),
    ("few-blocks", case(replace(FEW, cut=True)), r"2% of the threads .*launch more blocks\.$"),
    (
        "few-blocks",
        case(replace(FEW, grid=(1, 1, 1), cut=True)),
        r"one block of 256 threads, less than 1% of",
    ),
    ("no-tensor-cores", product_case(products(FLOPS), texts=Compiled(has_dot=True)), r"without tensor cores"),
    (
        "doubles",
        case(FLOAT4, facts=Facts(registers=32, texts=Compiled(instructions=900, doubles=400))),
        r"400 of 900 instructions in double precision",
    ),
]


@pytest.mark.parametrize(("cause", "slow", "words"), EARNED, ids=[f"{one[0]} {at}" for at, one in enumerate(EARNED)])
def test_the_cause_comes_first(cause: str, slow: Work, words: str) -> None:
    found = remarks(slow)
    assert [one.cause for one in found][:1] == [cause], [one.sentence for one in found]
    assert re.search(words, found[0].sentence), found[0].sentence


@pytest.mark.parametrize(
    "fast",
    [
        case(FLOAT4),
        case(ONE_PASS),
        case(rows(1, N // 1024, 1024, warps=1)),
        case(NO_CONFLICTS),
        case(PRIVATE, facts=Facts(registers=32)),
        case(WHOLE_WAVES, needed_bytes=1.1e9),
        case(ONE_PASS, facts=Facts(registers=64, spilled_bytes=16)),
        product_case(products(FLOPS)),
        product_case(products(1.2 * FLOPS)),
        product_case(replace(products(FLOPS), grid=(16, 1, 1))),  # a few blocks of products
        case(FLOAT4, operators=(TracedOperator("clone", "kernel.py:3", 1, 4096, 4096),)),
        case(FLOAT4, elementwise(width=16, n=1024)),
        case(replace(FLOAT4, launches=2)),
        case(*(replace(FLOAT4, line=line, grid=(N // 2048, 1, 1)) for line in (16, 17))),  # each takes half
        case(FLOAT4, facts=Facts(registers=32, texts=Compiled(functions={7: ["tanhf"]}))),
        case(),
    ],
    ids=lambda one: one.launches[0].traced.kernel if one.launches else "none",
)
def test_a_fast_kernel_gets_no_remark(fast: Work) -> None:
    assert remarks(fast) == ()


def test_a_place_is_told() -> None:
    (one,) = remarks(case(THREE_PASSES))
    assert (one.file, one.line) == ("kernel.py", 20)
    (launched,) = remarks(case(elementwise(32)))
    assert (launched.file, launched.line) == ("kernel.cu", 16)


def test_zeros_are_needed_where_atomics_add_to_them() -> None:
    added = replace(PRIVATE, accesses=PRIVATE.accesses)
    assert all(one.cause != "fills" for one in remarks(case(added, operators=(ZEROS,))))


def test_a_wave_tail_needs_known_registers() -> None:
    assert remarks(case(ONE_BLOCK_MORE, facts=Facts(), needed_bytes=1.1e9)) == ()


def test_what_moves_more_comes_first() -> None:
    found = remarks(case(changed(elementwise(), sectors=8), operators=(COPY, ZEROS)))
    assert [one.cause for one in found] == ["uncoalesced", "copies", "fills"]
    assert [one.bytes for one in found] == [2 * BYTES, BYTES, BYTES / 2]
    assert (found[1].file, found[1].line) == ("kernel.py", 33)


def test_of_two_remarks_about_the_same_bytes_the_cause_comes_before_its_effect() -> None:
    found = remarks(product_case(products(FLOPS, "float32"), spilled_bytes=34_336))
    assert [one.cause for one in found] == ["no-tensor-cores", "spills"]


def test_at_most_three_remarks_each_of_another_cause() -> None:
    worst = case(changed(elementwise(32), sectors=16), rows(3, warps=4), DOWN, SCATTERED, operators=(COPY, ZEROS))
    causes = [one.cause for one in remarks(worst)]
    assert len(causes) == MAX_REMARKS
    assert len(set(causes)) == MAX_REMARKS


def test_narrow_loads_are_told_only_of_kernels_of_which_nothing_else_is() -> None:
    assert [one.cause for one in remarks(case(elementwise(), operators=(COPY,)))] == ["copies"]


@pytest.mark.parametrize("grid", [(0, 0, 0), (1 << 40,) * 3])
def test_no_number_of_a_worker_raises(grid: tuple[int, int, int]) -> None:
    strange = replace(of_programs("reads", "x_ptr", 1, 0), steps=(1 << 62, -(1 << 62)), block=(0, 1 << 40))
    wild = [
        replace(one, grid=grid, ran=ran, threads=threads, accesses=(*one.accesses, strange), launches=1 << 40)
        for one in (elementwise(), rows(3), products(1e30), COUNTER, CONFLICTS)
        for ran in (0, 1 << 40)
        for threads in (0, 1 << 40)
    ]
    remarks(
        case(
            *wild,
            facts=Facts(
                registers=1 << 20, spilled_bytes=1 << 40, shared_bytes=1 << 40, texts=Compiled(doubles=1 << 40)
            ),
        )
    )
    remarks(Work((), (COPY,) * 3, needed_bytes=0.0))
