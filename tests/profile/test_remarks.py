"""Each cause is told first, with its number; a kernel below its threshold is not told so."""

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
SCATTERED = changed(elementwise(), sectors=16)
DOWN = changed(elementwise(), sectors=32)
THREE_PASSES = rows(3, warps=4)
COLUMNS = replace(
    ONE_PASS, accesses=tuple(replace(one, steps=(65536,)) for one in ONE_PASS.accesses), tensors=ONE_PASS.tensors
)
HALF = replace(changed(elementwise(), lanes=16, sectors=2, least_sectors=2), grid=(2 * N // 256, 1, 1))
HALF = replace(HALF, tensors=(tensor("x", 4 * N, 512), tensor("y", 4 * N, 0, 512)))
QUARTER = replace(
    ONE_PASS,
    grid=(N // 256, 1, 1),
    accesses=tuple(
        replace(of_programs(verb, name, 20, 1024), lanes=RAN * 256)
        for verb, name in (("reads", "x_ptr"), ("writes", "y_ptr"))
    ),
    tensors=(tensor("x_ptr", 4 * N, 1024), tensor("y_ptr", 4 * N, 0, 1024)),
)
TILE = of_warps(
    "writes", "tile", 14, 8 * RAN, space="shared", sectors=0, least_sectors=0, passes=256 * RAN, least_passes=8 * RAN
)
CONFLICTS = replace(FLOAT4, accesses=(*FLOAT4.accesses, replace(TILE, passes=1024 * RAN, least_passes=32 * RAN)))
NO_CONFLICTS = replace(FLOAT4, accesses=(*FLOAT4.accesses, replace(TILE, passes=8 * RAN)))
COUNT = of_warps("writes", "count", 12, RAN * 8, atomic=True, sectors=RAN * 8, least_sectors=RAN * 8)
COUNTER = replace(FLOAT4, accesses=(*FLOAT4.accesses, COUNT), tensors=(*FLOAT4.tensors, tensor("count", 4, 0, 4)))
PRIVATE = replace(COUNTER, tensors=(*FLOAT4.tensors, tensor("count", 4 * N, 0, 4)))
ONE_WARP = replace(rows(1, 4096, 65536, warps=1))
WARP_OF_SHORT_ROWS = rows(1, N // 1024, 1024, warps=1)
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
MEMORY = {"x": True, "y": True, "t": False}


def step(source: str, target: str) -> TracedLaunch:
    """A launch of a chain, by 16 bytes a thread."""
    accesses = (
        of_warps("reads", source, 5, 8 * RAN, width_bytes=16),
        of_warps("writes", target, 5, 8 * RAN, width_bytes=16),
    )
    tensors = (tensor(source, 4 * N, 4096, 0, MEMORY[source]), tensor(target, 4 * N, 0, 4096, MEMORY[target]))
    return replace(FLOAT4, accesses=accesses, tensors=tensors)


COPY = TracedOperator("clone", "kernel.py:33", 1, 4 * N, 4 * N)
ZEROS = TracedOperator("zeros", "kernel.py:34", 1, 0, 4 * N)
BY_PYTORCH = tuple(
    TracedOperator(name, "kernel.py:6", calls, calls * 4 * N, calls * 4 * N)
    for name, calls in (("mul", 6), ("tanh", 1))
)
# 16 programs with a stride of all programs; and 64 elements for the 128 threads of a program.
FEW = replace(rows(1, 16, N // 16), ran=16)
SHORT_BLOCKS = replace(
    rows(1, N // 64, 64, warps=4),
    accesses=tuple(of_programs(verb, name, 20, 64) for verb, name in (("reads", "x_ptr"), ("writes", "y_ptr"))),
    tensors=(tensor("x_ptr", 4 * N, 256), tensor("y_ptr", 4 * N, 0, 256)),
)
PIECES_OF_A_MILLION = replace(elementwise(n=N // 256), launches=256)
PIECES = replace(rows(1, 1, 16384), launches=16384)
FLOPS = 103e9


def products(flops: float, dtype: str = "bfloat16", queries: int = 128) -> TracedLaunch:
    """Attention's forward, (48, 4096, 64): programs of so many queries, each with all keys and values."""
    blocks = 48 * 4096 // queries
    size = 48 * 4096 * 64 * 2
    own = [
        replace(of_programs(verb, name, line, 64 * 64, times), width_bytes=2, steps=(128, 2), block=(64, 64))
        for verb, name, line, times in (
            ("reads", "k", 30, 64),
            ("reads", "v", 31, 64),
            ("writes", "o", 44, queries // 64 or 1),
        )
    ]
    tensors = (
        tensor("k", size, reads=4096 * 128),
        tensor("v", size, reads=4096 * 128),
        tensor("o", size, writes=queries * 128),
    )
    dots = (TracedDot(33, dtype, round(flops / blocks * RAN)),)
    return replace(ONE_PASS, grid=(blocks, 1, 1), accesses=tuple(own), tensors=tensors, dots=dots)


ATTENTION = {"needed_bytes": 101e6, "needed_flops": FLOPS, "dtype": "bfloat16"}


def product_case(traced: TracedLaunch, **facts: object) -> Work:
    return case(traced, facts=Facts(**({"registers": 32} | facts)), **ATTENTION)  # type: ignore[arg-type]


EARNED = {
    "uncoalesced": (case(SCATTERED), r"reads x .*4\.0 × the bytes it asks for through L2, in sectors"),
    "strided-by-rows": (case(COLUMNS), r"reads x_ptr .*8\.0 × .*65536 bytes apart"),
    "strided-by-rows in CUDA": (case(DOWN), r"8\.0 × the bytes"),
    "narrow-loads": (case(elementwise()), r"reads x with 4 bytes a thread, 4 in all"),
    "read-again": (case(THREE_PASSES), r"x_ptr three times \(lines 20, 25, 30\): 3\.0 × the bytes"),
    "reloads": (product_case(products(FLOPS, queries=16)), r"reads k \(and 1 more line\) again in each of many blocks"),
    "idle-lanes": (case(HALF), r"50% of the lanes do nothing, turned off by a branch"),
    "idle-lanes in Triton": (case(QUARTER), r"75% of the lanes do nothing, turned off by its mask"),
    "bank-conflicts": (case(CONFLICTS), r"writes tile in shared memory with bank conflicts, 32 passes"),
    "atomics-on-one-address": (case(COUNTER), r"one address of count"),
    "small-blocks": (
        case(elementwise(128)),
        r"gelu_kernel has 2097152 blocks of 128 threads, which start one after another and move 1\.02 KB each",
    ),
    "one-warp-for-a-long-row": (case(ONE_WARP), r"one warp of softmax_kernel reads 262 KB by itself"),
    "low-occupancy": (
        case(FLOAT4, facts=Facts(registers=32, shared_bytes=150_000)),
        r"12% .*limited by shared memory \(150 KB of shared memory a block, 256 threads a block\)",
    ),
    "spills": (
        case(ONE_PASS, facts=Facts(registers=64, spilled_bytes=2000)),
        r"each thread spills 2000 bytes to memory",
    ),
    "wave-tail": (
        case(ONE_BLOCK_MORE),
        r"529 blocks of gelu_kernel on 132 × 2 slots: wave 3 has one block, .*33% of all slots stay empty",
    ),
    "unfused": (
        case(step("x", "t"), step("t", "t"), step("t", "y")),
        r"3 kernels and 1 temporary tensor move 6\.44 GB where 2\.15",
    ),
    "unfused in PyTorch": (
        case(operators=BY_PYTORCH),
        r"7 operators of PyTorch and no kernel of yours move 15 GB where 2\.15 GB would do",
    ),
    "unfused in place": (case(step("x", "y"), step("y", "y")), r"2 kernels move 4\.29 GB"),
    "copies": (case(FLOAT4, operators=(COPY,)), r"copies by clone before a kernel runs, which moves 2\.15 GB"),
    "fills": (case(FLOAT4, operators=(ZEROS,)), r"fills memory by zeros .*torch\.empty"),
    "launch-per-piece": (case(PIECES), r"launched 16384 times with one block each"),
    "launch-per-piece with many blocks": (
        case(PIECES_OF_A_MILLION),
        r"256 times with 4096 blocks each: .*all their blocks",
    ),
    "few-blocks": (
        case(FEW),
        r"runs as 16 blocks of 256 threads, 2% of the threads that the GPU can hold: ",
    ),
    "few-blocks in blocks that were stopped": (
        case(replace(FEW, cut=True)),
        r"2% of the threads .*launch more blocks\.$",
    ),
    "few-blocks with one program": (
        case(replace(FEW, grid=(1, 1, 1), cut=True)),
        r"one block of 256 threads, less than 1% of",
    ),
    "strided-by-rows in blocks that were stopped": (
        case(replace(COLUMNS, grid=(128, 1, 1), cut=True)),
        r"8\.0 × .*column\.$",
    ),
    "small-blocks in Triton": (
        case(SHORT_BLOCKS),
        r"has 4194304 blocks of 64 elements, which start one after another and move 512 B each",
    ),
    "no-tensor-cores": (product_case(products(FLOPS, "float32")), r"tl\.dot takes float32.*pass it bfloat16"),
    "no-tensor-cores, whose tiles spill": (
        product_case(products(FLOPS, "float32"), spilled_bytes=34_336),
        r"tl\.dot takes float32",
    ),
    "no-tensor-cores at all": (product_case(products(FLOPS), texts=Compiled(has_dot=True)), r"without tensor cores"),
    "tiles-not-skipped": (product_case(products(2 * FLOPS)), r"206 GFLOP, 2\.0 × what is needed"),
    "doubles": (
        case(FLOAT4, facts=Facts(registers=32, texts=Compiled(instructions=900, doubles=400))),
        r"400 of 900 instructions in double precision",
    ),
    "doubles by the compiler's words": (
        case(elementwise(), in_double=("kernel.cu:8", "kernel.cu:9")),
        r"computes in double precision \(and 1 more line\)",
    ),
}


@pytest.mark.parametrize("name", EARNED)
def test_the_cause_comes_first(name: str) -> None:
    slow, words = EARNED[name]
    found = remarks(slow)
    cause = next(cause for cause in sorted(CAUSES, key=len, reverse=True) if name.startswith(cause))
    assert [one.cause for one in found][:1] == [cause], [one.sentence for one in found]
    assert re.search(words, found[0].sentence), found[0].sentence


CAUSES = {
    name.partition(" in ")[0].partition(" at ")[0].partition(" by ")[0].partition(" with ")[0].partition(",")[0]
    for name in EARNED
}


@pytest.mark.parametrize(
    "fast",
    [
        case(FLOAT4),
        case(ONE_PASS),
        case(rows(1, N // 1024, 1024, warps=1)),
        case(NO_CONFLICTS),
        case(PRIVATE, facts=Facts(registers=32)),
        case(WHOLE_WAVES, needed_bytes=1.1e9),
        case(WARP_OF_SHORT_ROWS),
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
