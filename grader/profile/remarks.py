"""Remarks: each rule knows one cause that makes kernels slow, sees it in the numbers of the trace and of the compiler, and says it in
a sentence with its number.

A rule compares a fact with a number whose reason stands beside it. A remark has the bytes that its lines move, or its launches,
or the whole case: where they are a small share of all bytes it is not made, and remarks stand in the order of their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from grader.profile.launches import SECTOR, Launch, conflicts, idle_share
from grader.profile.model import MAX_REMARKS, Remark, bytes_words
from grader.protocol import TracedAccess, TracedOperator

SMALL = 0.1  # Nothing is said of less than this share of a case's bytes: it cannot be what makes the case slow.
# Sectors, passes, bytes read again, bytes of all kernels: half as much again as would do. What a mask cuts at the ends of rows stays below.
TOO_MUCH = 1.5
FAR_BYTES = 1024  # Lanes that access memory farther apart than a tile's row read a column.
# Idle lanes are told from this share on: a row of 781 leaves 0.24 of a block of 1024 idle, and no block fits it better.
IDLE = 0.3
# The last wave is told from this share of empty slots on: one block beyond two waves leaves a third of three empty.
EMPTY = 0.3
WIDE_BYTES = 16  # A thread's widest load has this many bytes.
# Blocks that move less are told: a GPU starts about one block in a clock, in which its memory moves as much.
BLOCK_BYTES = 2048
FEW_THREADS = 0.25  # Too few blocks are told below this share of the threads that the GPU can hold.
# Below this share of a multiprocessor's warps fewer loads are on their way than memory can answer.
LOW_OCCUPANCY = 0.25
WARP_BYTES = 65_536  # A block of one warp that reads as much makes 128 of its widest loads, one after another.
SPILLS_BYTES = 256  # Spills are told from these bytes a thread on: a quarter of the registers that it may have.
MANY_LAUNCHES = 32  # As many launches in a row that are alike could be one launch with all their blocks.
# Atomics on one address are told from this share of the accesses on: adding up in a block of 8 warps first leaves one of 17.
COLLIDING = 0.1
CACHE_SHARE = 0.5  # What is read may fill this share of L2; results pass through the rest.
# Reloads are told below as many FLOPs for each byte: in 16 bits a tile has as many rows as FLOPs for each byte.
ROWS_OF_TILE = 32
MANY_TIMES = 8  # Reloads are told where blocks fetch the inputs of their products this many times.
# Doubles are told from this share of the instructions on; each takes 2 to 64 times as long as a float's.
DOUBLES = 0.05
# FLOPs by those needed: between 1.5, of a kernel that computes its scores twice, and 2, of one that skips no tile of a causal mask
MOSTLY = 1.75
TARGET_BYTES, MAX_TARGET_BYTES = 32, 256  # a block that adds to less than that, in a small tensor, adds to one address
SHORT = {"float16", "bfloat16", "fp16", "bf16"}
TIMES = {2: "twice", 3: "three times", 4: "four times"}
# Triton's names of dtypes, and PyTorch's.
TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
IN_FLOAT = ", which is slower than float on every GPU: write 0.5f, not 0.5, and tanhf, not tanh"
COPIES = {"contiguous", "clone", "copy_", "copy", "to", "_to_copy", "cudaMemcpy", "cudaMemcpyAsync"}
FILLS = {"zeros", "zeros_like", "fill_", "zero_", "full", "full_like", "ones", "cudaMemset", "cudaMemsetAsync"}


@dataclass(frozen=True)
class Work:
    """The work of a call.

    Attributes:
        dtype: of the case's inputs.
        needed_bytes, needed_flops: the least work.
        in_double: places computed in double precision, as `kernel.cu:12`, by the compiler's words.
    """

    launches: tuple[Launch, ...]
    operators: tuple[TracedOperator, ...] = ()
    dtype: str = "float32"
    needed_bytes: float = 0.0
    needed_flops: float = 0.0
    in_double: tuple[str, ...] = ()

    @property
    def moved_bytes(self) -> float:
        return sum(one.moved_bytes for one in self.launches) + self.operator_bytes

    @property
    def operator_bytes(self) -> float:
        return sum(map(operator_bytes, self.operators))

    @property
    def all_bytes(self) -> float:
        """With those of shared memory."""
        return sum(map(launch_bytes, self.launches)) + self.operator_bytes


def remarks(work: Work) -> tuple[Remark, ...]:
    """At most MAX_REMARKS, each of another cause, first those about the most bytes; of equal ones, those of the earlier rule."""

    def large(found: Iterable[Remark]) -> list[Remark]:
        return [one for one in found if one.bytes >= SMALL * work.all_bytes]

    found = large(one for rule in OF_WORK for one in rule(work))
    found += large(one for rule in OF_LAUNCH for launch in work.launches for one in rule(launch))
    found = found or large(one for launch in work.launches for one in narrow_loads(launch))
    first: dict[str, Remark] = {}
    for one in sorted(found, key=lambda one: -one.bytes):
        first.setdefault(one.cause, one)
    return tuple(first.values())[:MAX_REMARKS]


def operator_bytes(operator: TracedOperator) -> float:
    return float(operator.read_bytes) + operator.written_bytes


def launch_bytes(launch: Launch) -> float:
    """Of all its accesses, shared memory's too."""
    return sum(map(launch.moved, launch.traced.accesses))


def of_launch(cause: str, launch: Launch, sentence: str, lines: Sequence[TracedAccess] = ()) -> Remark:
    """About lines of a kernel, at the first of them; without lines, about the launch."""
    file, line = (lines[0].file, lines[0].line) if lines else (launch.file, launch.traced.line)
    size = sum(map(launch.moved, lines or launch.traced.accesses))
    return Remark(cause=cause, sentence=f"{sentence}.", file=file, line=line, bytes=size)


def of_place(cause: str, place: str, sentence: str, size: float) -> Remark:
    """About a place as `kernel.py:33`."""
    file, _, line = place.rpartition(":")
    return Remark(
        cause=cause, sentence=f"{sentence}.", file=file, line=int(line) if line.isdecimal() else 0, bytes=size
    )


def _verbs(accesses: list[TracedAccess]) -> str:
    """What the first of them does, and how many more lines there are."""
    first = accesses[0]
    return f"{first.verb} {first.tensor or 'memory'}{_others(len({one.line for one in accesses}))}"


def _others(lines: int) -> str:
    return f" (and {lines - 1} more line{'s' * (lines > 2)})" if lines > 1 else ""


def _blocks(number: int) -> str:
    return "one block" if number == 1 else f"{number} blocks"


# Accesses --------------------------------------------------------------------------------------------------------------


def uncoalesced(launch: Launch) -> Iterator[Remark]:
    scattered = (one for one in launch.global_accesses() if (launch.ratio(one) or 1) >= TOO_MUCH)
    found = sorted((one for one in scattered if idle_share(one) < IDLE), key=launch.fetched, reverse=True)
    if not found:
        return
    first = found[0]
    step = min((abs(one) for one in first.steps if one), default=0)
    # In CUDA each lane asks for a sector of its own, and does not come back for the rest of it.
    warps = max(-(-launch.traced.threads // launch.gpu.warp), 1) * launch.ran
    is_far = step >= FAR_BYTES or (
        not launch.is_triton
        and first.sectors >= 0.9 * first.lanes
        and first.requests / warps * first.width_bytes < SECTOR
    )
    apart = f", for neighbouring lanes are {step} bytes apart" if step > first.width_bytes else ""
    hint = (
        "let neighbouring lanes go along a row, not down a column"
        if is_far
        else "let neighbouring threads take neighbouring elements"
    )
    yield of_launch(
        "strided-by-rows" if is_far else "uncoalesced",
        launch,
        f"{_verbs(found)} and moves {launch.ratio(first) or 1.0:.1f} × the bytes it asks for through L2, in sectors of 32 bytes"
        f"{apart}: {hint}",
        found,
    )


def idle_lanes(launch: Launch) -> Iterator[Remark]:
    every = sum(one.lanes_of_all for one in launch.global_accesses())
    idle = (one for one in launch.global_accesses() if idle_share(one) >= IDLE)
    found = sorted(idle, key=lambda one: one.lanes_of_all, reverse=True)
    if found and sum(one.lanes_of_all for one in found) >= every / 2:
        why = "its mask" if launch.is_triton else "a branch"
        mend = "take a block that fits the row" if launch.is_triton else "let whole warps take the same way"
        yield of_launch(
            "idle-lanes",
            launch,
            f"{_verbs(found)} while {idle_share(found[0]):.0%} of the lanes do nothing, turned off by {why}: {mend}",
            found,
        )


def bank_conflicts(launch: Launch) -> Iterator[Remark]:
    found = [one for one in launch.traced.accesses if (conflicts(one) or 1) >= TOO_MUCH]
    found.sort(key=lambda one: one.passes, reverse=True)
    if found:
        yield of_launch(
            "bank-conflicts",
            launch,
            f"{_verbs(found)} in shared memory with bank conflicts, {conflicts(found[0]):.0f} passes where one would do: "
            "pad each row of the array by one element",
            found,
        )


def atomics(launch: Launch) -> Iterator[Remark]:
    """Warps whose atomics meet at one address of global memory. A warp's own lanes are added up before, or at once."""

    def warps(accesses: Iterable[TracedAccess]) -> float:
        own = (max(one.lanes / launch.gpu.warp, 0 if launch.is_triton else one.requests) for one in accesses)
        return sum(own) * launch.scale

    def is_one_address(access: TracedAccess) -> bool:
        if target := next((one for one in launch.traced.tensors if one.name == access.tensor), None):
            return target.written_once_bytes <= TARGET_BYTES * launch.ran and target.bytes <= MAX_TARGET_BYTES
        # The lanes of each request lie in fewer sectors than so many different addresses could.
        return (
            0 < access.sectors <= access.requests and access.lanes * access.width_bytes > 2 * SECTOR * access.requests
        )

    found = sorted((one for one in launch.global_accesses() if one.atomic), key=lambda one: one.lanes, reverse=True)
    meeting = warps(one for one in found if one.verb == "writes" and is_one_address(one))
    if meeting and meeting >= COLLIDING * warps(launch.global_accesses()):
        words = (
            f"adds to one address of {found[0].tensor or 'memory'}, in {meeting:.3g} warps one after another: "
            "add up within a block first, and let one thread add the block's sum"
        )
        yield of_launch("atomics-on-one-address", launch, words, found).model_copy(
            update={"bytes": launch_bytes(launch)}  # all of it waits
        )


def read_again(launch: Launch) -> Iterator[Remark]:
    """Blocks that read the same bytes again when L2, which all running blocks share, has lost them."""
    for tensor in launch.traced.tensors:
        own = launch.global_accesses("reads", tensor.name)
        asked = sum(min(launch.asked(one), launch.fetched(one)) for one in own)
        once = tensor.read_once_bytes * launch.scale
        between = min(tensor.read_once_bytes / launch.ran * launch.running, tensor.bytes or math.inf)
        if not once or asked < TOO_MUCH * once or between < CACHE_SHARE * launch.gpu.l2_mib * (1 << 20):
            continue
        times = asked / once
        is_whole = abs(times - round(times)) < 0.1
        how = TIMES.get(round(times), f"{times:.0f} times") if is_whole else f"{times:.1f} times"
        lines = sorted({one.line for one in own if one.line})
        at = f" (lines {', '.join(map(str, lines))})" if len(lines) > 1 else ""
        own.sort(key=launch.asked, reverse=True)
        yield of_launch(
            "read-again",
            launch,
            f"each block reads its part of {tensor.name} {how}{at}: {times:.1f} × the bytes, while the {bytes_words(between)} that "
            "running blocks read do not stay in L2; keep it in registers or shared memory, or combine the passes",
            own,
        )


def reloads(launch: Launch) -> Iterator[Remark]:
    """Inputs of products that each block fetches anew from L2, for few products."""
    reads = launch.global_accesses("reads")
    if not launch.traced.dots or launch.flops >= ROWS_OF_TILE * sum(map(launch.fetched, reads)):
        return
    sizes = {one.name: one.bytes * float(launch.traced.launches) for one in launch.traced.tensors if one.bytes}
    again = {
        name
        for name, size in sizes.items()
        if sum(map(launch.fetched, launch.global_accesses("reads", name))) >= MANY_TIMES * size
    }
    found = sorted((one for one in reads if one.tensor in again), key=launch.fetched, reverse=True)
    if found:
        fetched = sum(map(launch.fetched, found))
        yield of_launch(
            "reloads",
            launch,
            f"{_verbs(found)} again in each of many blocks, {bytes_words(fetched)} for inputs of "
            f"{bytes_words(sum(sizes[name] for name in again))}, and computes {launch.flops / max(fetched, 1):.0f} FLOP for each "
            "byte: a block that computes more rows needs them fewer times",
            found,
        )


def narrow_loads(launch: Launch) -> Iterator[Remark]:
    """Threads of CUDA C++ that read too little each. A Triton layout's loads are told by the compiled code."""
    reads = launch.global_accesses("reads")
    threads = launch.traced.threads * float(launch.blocks) * launch.traced.launches
    if reads and threads and not launch.is_triton:
        found = sorted(reads, key=launch.asked, reverse=True)
        each = sum(map(launch.asked, reads)) / threads
        if found[0].width_bytes and each < WIDE_BYTES:
            yield of_launch(
                "narrow-loads",
                launch,
                f"{_verbs(found)} with {found[0].width_bytes} bytes a thread, {each:.3g} in all, so few bytes are on their way at "
                f"once: loads of {WIDE_BYTES} bytes (float4) keep memory busy",
                found,
            )


# Blocks and registers ---------------------------------------------------------------------------------------------------


def launch_per_piece(launch: Launch) -> Iterator[Remark]:
    number = launch.traced.launches
    if number >= MANY_LAUNCHES:
        why = (
            "a launch costs more than its work; one launch can take all, with a block for each"
            if launch.blocks < launch.gpu.multiprocessors
            else "each launch has a start and a last wave, while the GPU is not full; one launch can take all their blocks"
        )
        words = f"{launch.traced.kernel} is launched {number} times with {_blocks(launch.blocks)} each: {why}"
        yield of_launch("launch-per-piece", launch, words)


def few_blocks(launch: Launch) -> Iterator[Remark]:
    blocks, threads, gpu = launch.blocks, launch.traced.threads, launch.gpu
    share = blocks * threads / (gpu.multiprocessors * gpu.threads)
    is_few = 0 < share < FEW_THREADS and blocks < gpu.multiprocessors
    if is_few and launch.traced.launches < MANY_LAUNCHES and not launch.traced.dots:
        part = f"{share:.0%}" if share >= 0.01 else "less than 1%"
        yield of_launch(
            "few-blocks",
            launch,
            f"{launch.traced.kernel} runs as {_blocks(blocks)} of {threads} threads, {part} of the threads that the GPU can hold: "
            "give each less work, and launch more blocks",
        )


def small_blocks(launch: Launch) -> Iterator[Remark]:
    """Blocks whose lanes, idle ones too, ask for so few bytes that memory waits for their starts."""
    if launch.blocks <= launch.running or launch.traced.dots:
        return
    asked = sum(one.lanes_of_all * one.width_bytes for one in launch.global_accesses())
    each = asked / launch.ran
    if 0 < each < BLOCK_BYTES:
        elements = max((one.lanes_of_all // max(one.requests, 1) for one in launch.global_accesses()), default=0)
        size = f"{elements} elements" if launch.is_triton else f"{launch.traced.threads} threads"
        yield of_launch(
            "small-blocks",
            launch,
            f"{launch.traced.kernel} has {launch.blocks} blocks of {size}, which start one after another and move "
            f"{bytes_words(each)} each: give a block at least {bytes_words(4 * BLOCK_BYTES)}",
        )


def spills(launch: Launch) -> Iterator[Remark]:
    spilled = launch.facts.spilled_bytes or 0
    if spilled >= SPILLS_BYTES:
        yield of_launch(
            "spills",
            launch,
            f"{launch.traced.kernel} has too few registers for its values: each thread spills {spilled} bytes to memory; take a "
            "smaller block, or more warps",
        )


def one_warp_for_a_long_row(launch: Launch) -> Iterator[Remark]:
    each = sum(one.read_once_bytes for one in launch.traced.tensors) / launch.ran
    if launch.traced.threads <= launch.gpu.warp and each >= WARP_BYTES:
        yield of_launch(
            "one-warp-for-a-long-row",
            launch,
            f"one warp of {launch.traced.kernel} reads {bytes_words(each)} by itself, and "
            f"{launch.occupancy.share:.0%} of a multiprocessor's threads are there: give each row 8 warps",
        )


def low_occupancy(launch: Launch) -> Iterator[Remark]:
    """Not of products of tiles, whose few large blocks keep tensor cores busy, nor of threads that wait for their spills."""
    found, facts = launch.occupancy, launch.facts
    is_low = facts.registers is not None and 0 < found.share < LOW_OCCUPANCY and found.limits != ("blocks",)
    if is_low and not launch.traced.dots and (facts.spilled_bytes or 0) < SPILLS_BYTES:
        needs = {
            "registers": f"{facts.registers} registers a thread, ",
            "shared memory": f"{bytes_words(launch.shared_bytes)} of shared memory a block, ",
        }
        yield of_launch(
            "low-occupancy",
            launch,
            f"{launch.traced.kernel} keeps {found.share:.0%} of a multiprocessor's threads busy, limited by "
            f"{' and '.join(found.limits)} ({''.join(words for limit, words in needs.items() if limit in found.limits)}"
            f"{launch.traced.threads} threads a block): too few loads are on their way at once",
        )


def wave_tail(launch: Launch) -> Iterator[Remark]:
    found = launch.waves
    if launch.facts.registers is None or not found.slots or found.waves <= 1:
        return
    whole = math.ceil(found.waves)
    empty = 1 - found.waves / whole
    if empty >= EMPTY and launch.traced.launches < MANY_LAUNCHES:
        yield of_launch(
            "wave-tail",
            launch,
            f"{launch.blocks} blocks of {launch.traced.kernel} on {launch.gpu.multiprocessors} × {launch.occupancy.blocks} slots: "
            f"wave {whole} has {_blocks(found.last)}, and the rest of the GPU waits for it, so {empty:.0%} of all slots stay empty",
        )


def doubles(launch: Launch) -> Iterator[Remark]:
    number, every = launch.facts.texts.doubles, launch.facts.texts.instructions
    if number and number >= DOUBLES * every:
        words = f"{launch.traced.kernel} has {number} of {every} instructions in double precision{IN_FLOAT}"
        yield of_launch("doubles", launch, words)


# Work of a case ---------------------------------------------------------------------------------------------------------


def unfused(work: Work) -> Iterator[Remark]:
    """Steps that each move whole tensors. What a kernel's blocks read several times is not counted."""
    steps = len(work.launches) + len([one for one in work.operators if one.name not in COPIES | FILLS])
    moved = sum(one.distinct_bytes for one in work.launches) + work.operator_bytes
    if steps < 2 or moved < TOO_MUCH * work.needed_bytes:
        return
    names = {one.name for launch in work.launches for one in launch.traced.tensors if not one.is_of_call}
    if work.launches:
        place = f"{work.launches[0].file}:{work.launches[0].traced.line}"
        what = f"{steps} kernels" + (f" and {len(names)} temporary tensor{'s' * (len(names) != 1)}" if names else "")
    else:
        place = max(work.operators, key=operator_bytes).place
        what = f"{sum(one.calls for one in work.operators)} operators of PyTorch and no kernel of yours"
    yield of_place(
        "unfused",
        place,
        f"{what} move {bytes_words(moved)} where {bytes_words(work.needed_bytes)} would do: compute all steps in one kernel (fusion)",
        work.all_bytes,
    )


def no_tensor_cores(work: Work) -> Iterator[Remark]:
    is_short = work.dtype in SHORT
    dtype = work.dtype if is_short else "float32"
    mend = f"pass it {dtype}, and let it add up in float32" if is_short else "allow TF32"
    for launch in work.launches:
        lacks = launch.facts.texts.lacks_tensor_cores
        for dot in launch.traced.dots:
            name = dot.dtype.removeprefix("torch.")
            if lacks:
                what = f"products in {TORCH_DTYPES.get(name, name)} run without tensor cores"
            elif is_short and name not in SHORT:
                what = f"tl.dot takes {TORCH_DTYPES.get(name, name)}, which is slower on tensor cores than {dtype}"
            else:
                continue
            yield of_place("no-tensor-cores", f"{launch.file}:{dot.line}", f"{what}: {mend}", launch_bytes(launch))


def copies(work: Work) -> Iterator[Remark]:
    is_added_to = any(one.atomic for launch in work.launches for one in launch.traced.accesses)
    for cause, names, verb, hint in (
        ("copies", COPIES, "copies", "a kernel that takes strides, or casts what it loads, needs no copy"),
        ("fills", FILLS, "fills memory", "torch.empty is enough where the kernel writes every element"),
    ):
        found = [one for one in work.operators if one.name in names]
        if not found or (cause == "fills" and is_added_to):
            continue
        first, moved = max(found, key=operator_bytes), sum(map(operator_bytes, found))
        words = f"{verb} by {first.name} before a kernel runs, which moves {bytes_words(moved)}: {hint}"
        yield of_place(cause, first.place, words, moved)


def tiles_not_skipped(work: Work) -> Iterator[Remark]:
    flops = sum(one.flops for one in work.launches)
    if work.needed_flops and flops >= MOSTLY * work.needed_flops:
        busiest = max(work.launches, key=lambda one: one.flops)
        yield of_place(
            "tiles-not-skipped",
            f"{busiest.file}:{busiest.traced.dots[0].line}",
            f"products of tiles are {flops / 1e9:.0f} GFLOP, {flops / work.needed_flops:.1f} × what is needed: "
            "consistent with tiles that a mask turns off whole; end the loop before them",
            work.all_bytes,
        )


def doubles_by_line(work: Work) -> Iterator[Remark]:
    if lines := work.in_double:
        words = f"computes in double precision{_others(len(lines))}{IN_FLOAT}"
        yield of_place("doubles", lines[0], words, work.all_bytes)


# Of two remarks about the same bytes the earlier rule's comes first: causes stand before what they bring about.
OF_WORK = (unfused, tiles_not_skipped, doubles_by_line, no_tensor_cores, copies)
OF_LAUNCH = (
    launch_per_piece,
    uncoalesced,
    idle_lanes,
    atomics,
    spills,
    doubles,
    read_again,
    reloads,
    few_blocks,
    small_blocks,
    one_warp_for_a_long_row,
    wave_tail,
    low_occupancy,
    bank_conflicts,
)
