"""Rules: each knows one cause of a kernel's time, sees it in the numbers of the trace and of the compiler, and says it in a sentence.

What a rule finds comes with the same work less the cause (`changes.py`), from which `remarks.py` computes what the cause costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from grader.protocol import TracedAccess, TracedDot
from grader.report.profile import Occupancy
from grader.verdict.changes import (
    COPIES,
    FILLS,
    WIDE_BYTES,
    by_one_lane_of_each_block,
    changed,
    coalesced,
    fewer_blocks,
    fused,
    more_blocks,
    widened,
    with_facts,
    with_fewer_loads,
    with_full_warps,
    with_launch,
    with_more_threads,
    with_traced,
)
from grader.verdict.occupancy import occupancy, waves
from grader.verdict.prediction import SHORT, STARTS, Workload, colliding_warps, operator_bytes, seconds_by_cause
from grader.verdict.traffic import SECTOR, Launch, idle_share
from grader.verdict.units import bytes_words, ms_words

WORTH = 0.07  # of the predicted time
AGAIN_WORTH = 0.15  # for reading again: a second pass that finds its row in L2 may be the best there is
SCATTERED = 1.5  # sectors by the fewest possible
FAR_BYTES = 1024  # between neighbouring lanes
IDLE = 0.3  # of the lanes
AGAIN = 1.5  # bytes read by bytes needed
MANY_TIMES = 8  # bytes fetched from L2 by those of DRAM
LOADS_BY_PRODUCTS = 2.0  # seconds
CONFLICTS = 1.5  # passes by the fewest possible
LOW_OCCUPANCY = 0.3
ENOUGH_THREADS = 256
ENOUGH_LANES = 1024  # of a Triton program
FEW_THREADS = 0.25  # of those that the GPU can hold
LONG_BYTES = 16_384  # that a block reads
PLAINLY_LONG_BYTES = 65_536  # that one warp reads: told without a gain, too
MANY_LAUNCHES = 32
MOSTLY = 1.7  # FLOPs by those needed: without the tiles that a mask turns off whole, it may be half of them
SPILLS_BYTES = 256  # of a thread: fewer are told only with their gain
TIMES = {2: "twice", 3: "three times", 4: "four times"}
TORCH_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}  # by Triton's names
IN_FLOAT = ", which is slower than float on every GPU: write 0.5f, not 0.5, and tanhf, not tanh"


@dataclass(frozen=True)
class Found:
    """A cause that a rule has found.

    Attributes:
        place: a file and a line; 0 for the launch as a whole.
        without: the launch less the cause, or seconds of the case less the cause; None if they cannot be computed.
        worth: the least gain that is told, as a share of the predicted time.
        is_plain: whether it is told without a gain where the gain is less than that.
    """

    cause: str
    place: tuple[str, int]
    sentence: str
    without: Launch | float | None = None
    worth: float = WORTH
    is_plain: bool = False


def _at(launch: Launch) -> tuple[str, int]:
    """The place of a launch."""
    return _file(launch), launch.traced.line


def _file(launch: Launch) -> str:
    return next((one.file for one in launch.traced.accesses if one.file), "")


def _of_python(place: str) -> tuple[str, int]:
    """File and line of a place as `kernel.py:33`."""
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0


def _verbs(accesses: list[TracedAccess]) -> str:
    """What the first of them does, and how many more lines there are."""
    first = accesses[0]
    return f"{first.verb} {first.tensor or 'memory'}{_others(len({one.line for one in accesses}))}"


def _others(lines: int) -> str:
    return f" (and {lines - 1} more line{'s' * (lines > 2)})" if lines > 1 else ""


def _blocks(number: int) -> str:
    return "one block" if number == 1 else f"{number} blocks"


def _most(accesses: Iterable[TracedAccess], key: Callable[[TracedAccess], float]) -> list[TracedAccess]:
    return sorted(accesses, key=key, reverse=True)


# Accesses --------------------------------------------------------------------------------------------------------------


def uncoalesced(launch: Launch) -> Iterator[Found]:
    scattered = (one for one in launch.global_accesses() if (launch.ratio(one) or 1) >= SCATTERED)
    found = _most((one for one in scattered if idle_share(one) < IDLE), launch.fetched)
    if not found:
        return
    first = found[0]
    step = min((abs(one) for one in first.steps if one), default=0)
    is_far = step >= FAR_BYTES or _is_far_apart(launch, first)
    apart = f", for neighbouring lanes are {step} bytes apart" if step > first.width_bytes else ""
    hint = (
        "let neighbouring lanes go along a row, not down a column"
        if is_far
        else "let neighbouring threads take neighbouring elements"
    )
    yield Found(
        "strided-by-rows" if is_far else "uncoalesced",
        (first.file, first.line),
        f"{_verbs(found)} and moves {launch.ratio(first) or 1.0:.1f} × the bytes it asks for through L2, in sectors of 32 bytes"
        f"{apart}: {hint}",
        # Counts that are too low for a time are not too low for sectors.
        None if launch.traced.cut else coalesced(launch, found),
    )


def _is_far_apart(launch: Launch, access: TracedAccess) -> bool:
    """In CUDA, whether each lane asks for a sector of its own and does not come back for the rest of it."""
    warps = max(-(-launch.traced.threads // launch.gpu.warp), 1) * max(launch.traced.ran, 1)
    return (
        not launch.is_triton
        and access.sectors >= 0.9 * access.lanes
        and access.requests / warps < SECTOR / max(access.width_bytes, 1)
    )


def narrow_loads(launch: Launch) -> Iterator[Found]:
    reads = (one for one in launch.global_accesses() if one.verb == "reads" and 0 < one.width_bytes < WIDE_BYTES)
    found = _most((one for one in reads if (launch.ratio(one) or 1.0) < SCATTERED), launch.asked)
    if found and not launch.is_triton:  # a layout's loads are told by the compiled code
        yield Found(
            "narrow-loads",
            (found[0].file, found[0].line),
            f"{_verbs(found[:1])} with {found[0].width_bytes} bytes a thread, so too few bytes are on their way at once: "
            f"loads of {WIDE_BYTES} bytes (float4) keep memory busy",
            widened(launch, found),
        )


def read_again(launch: Launch) -> Iterator[Found]:
    for tensor in launch.traced.tensors:
        own = [one for one in launch.global_accesses() if (one.tensor, one.verb) == (tensor.name, "reads")]
        asked = sum(min(launch.asked(one), launch.fetched(one)) for one in own)
        once = tensor.read_once_bytes * launch.scale
        if not once or asked < AGAIN * once:
            continue
        times, first = asked / once, max(own, key=launch.asked)
        is_whole = abs(times - round(times)) < 0.1
        how = TIMES.get(round(times), f"{times:.0f} times") if is_whole else f"{times:.1f} times"
        lines = sorted({one.line for one in own if one.line})
        at = f" (lines {', '.join(map(str, lines))})" if len(lines) > 1 else ""
        cause, mend = (
            ("reloads", "change the order of the loops")
            if launch.traced.dots
            else ("read-again", "keep it in registers or shared memory, or combine the passes")
        )
        yield Found(
            cause,
            (first.file, first.line),
            f"each block reads its part of {tensor.name} {how}{at}: {times:.1f} × the bytes; {mend}",
            with_fewer_loads(launch, own, 1 / times),
            worth=AGAIN_WORTH,
        )


def reloads(launch: Launch) -> Iterator[Found]:
    """Inputs of products that each block fetches anew from L2, for few products."""
    parts, found = seconds_by_cause(launch), _most(_fetched_again(launch), launch.fetched)
    if found and launch.traced.dots and parts["L2"] >= LOADS_BY_PRODUCTS * parts["products"]:
        size = sum(one.least for (_, verb), one in launch.moved.items() if verb == "reads")
        yield Found(
            "reloads",
            (found[0].file, found[0].line),
            f"{_verbs(found)} again in each of many blocks, {bytes_words(sum(map(launch.fetched, found)))} for inputs of "
            f"{bytes_words(size)}: a block that computes more rows needs them fewer times",
            with_fewer_loads(launch, found, 0.25),
        )


def _fetched_again(launch: Launch) -> list[TracedAccess]:
    moved = {name: one for (name, verb), one in launch.moved.items() if verb == "reads"}
    many = {name for name, one in moved.items() if one.fetched >= MANY_TIMES * one.least}
    return [one for one in launch.global_accesses() if one.verb == "reads" and one.tensor in many]


def idle_lanes(launch: Launch) -> Iterator[Found]:
    found = _most((one for one in launch.global_accesses() if idle_share(one) >= IDLE), lambda one: one.lanes_of_all)
    every = sum(one.lanes_of_all for one in launch.global_accesses())
    if found and sum(one.lanes_of_all for one in found) >= every / 2:
        share, why = idle_share(found[0]), "its mask" if launch.is_triton else "a branch"
        mend = "take a block that fits the row" if launch.is_triton else "let whole warps take the same way"
        yield Found(
            "idle-lanes",
            (found[0].file, found[0].line),
            f"{_verbs(found)} while {share:.0%} of the lanes do nothing, turned off by {why}: {mend}",
            with_full_warps(launch, found, 1 - share),
        )


def bank_conflicts(launch: Launch) -> Iterator[Found]:
    shared = (one for one in launch.traced.accesses if one.space == "shared" and one.least_passes)
    found = _most((one for one in shared if one.passes >= CONFLICTS * one.least_passes), lambda one: one.passes)
    if found:
        yield Found(
            "bank-conflicts",
            (found[0].file, found[0].line),
            f"{_verbs(found)} in shared memory with bank conflicts, {found[0].passes / found[0].least_passes:.0f} passes where one "
            "would do: pad each row of the array by one element",
            changed(launch, found, lambda one: replace(one, passes=one.least_passes)),
        )


def atomics(launch: Launch) -> Iterator[Found]:
    if warps := colliding_warps(launch):
        found = _most((one for one in launch.global_accesses() if one.atomic), lambda one: one.lanes)
        yield Found(
            "atomics-on-one-address",
            (found[0].file, found[0].line),
            f"adds to one address of {found[0].tensor or 'memory'}, in {warps:.3g} warps one after another: "
            "add up within a block first, and let one thread add the block's sum",
            by_one_lane_of_each_block(launch, found),
        )


# Blocks and registers ---------------------------------------------------------------------------------------------------


def few_blocks(launch: Launch) -> Iterator[Found]:
    blocks, threads, gpu = launch.blocks, launch.traced.threads, launch.gpu
    share = blocks * threads / (gpu.multiprocessors * gpu.threads)
    is_few = 0 < share < FEW_THREADS and blocks < gpu.multiprocessors
    if is_few and launch.traced.launches < MANY_LAUNCHES and not launch.traced.dots:
        part = f"{share:.0%}" if share >= 0.01 else "less than 1%"
        yield Found(
            "few-blocks",
            _at(launch),
            f"{launch.traced.kernel} runs as {_blocks(blocks)} of {threads} threads, {part} of the threads that the GPU can hold: "
            "give each less work, and launch more blocks",
            None if launch.traced.cut else more_blocks(launch, math.ceil(blocks / share)),
        )


def small_blocks(launch: Launch) -> Iterator[Found]:
    seconds, size = seconds_by_cause(launch), _size(launch)
    enough, what = (ENOUGH_LANES, "elements") if launch.is_triton else (ENOUGH_THREADS, "threads")
    is_too_short = seconds[STARTS] >= (1 - WORTH) * seconds["all"]
    if 0 < size < enough and _reads_of_block(launch) < LONG_BYTES and is_too_short:
        factor = enough / size
        larger = launch if launch.is_triton else with_more_threads(launch, round(factor))
        yield Found(
            "small-blocks",
            _at(launch),
            f"{launch.traced.kernel} has {launch.blocks} blocks of {size} {what}, which start one after another, and that alone "
            f"takes {ms_words(seconds[STARTS] * 1e3)} ms: take blocks of {enough} {what}",
            fewer_blocks(larger, math.ceil(launch.blocks / factor)),
        )


def _size(launch: Launch) -> int:
    """Of a block: its threads; of a Triton program, the elements that it takes at a time."""
    if not launch.is_triton:
        return launch.traced.threads
    return max((one.lanes // max(one.requests, 1) for one in launch.global_accesses()), default=0)


def one_warp_for_a_long_row(launch: Launch) -> Iterator[Found]:
    read = _reads_of_block(launch)
    if launch.traced.threads <= launch.gpu.warp and read >= LONG_BYTES:
        yield Found(
            "one-warp-for-a-long-row",
            _at(launch),
            f"one warp of {launch.traced.kernel} reads {bytes_words(read)} by itself, and {launch.occupancy.share:.0%} of a "
            f"multiprocessor's threads are there: give each row {ENOUGH_THREADS // launch.gpu.warp} warps",
            with_traced(launch, threads=ENOUGH_THREADS),
            is_plain=read >= PLAINLY_LONG_BYTES,
        )


def _reads_of_block(launch: Launch) -> float:
    return sum(one.read_once_bytes for one in launch.traced.tensors) / max(launch.traced.ran, 1)


def low_occupancy(launch: Launch) -> Iterator[Found]:
    found = launch.occupancy
    if launch.facts.registers is not None and 0 < found.share < LOW_OCCUPANCY and found.limits != ("blocks",):
        full = with_facts(launch, registers=32, shared_bytes=0)
        yield Found(
            "low-occupancy",
            _at(launch),
            f"{launch.traced.kernel} keeps {found.share:.0%} of a multiprocessor's threads busy, limited by "
            f"{' and '.join(found.limits)} ({_needs(launch, found)}): too few loads are on their way at once",
            with_traced(full, shared_bytes=0, static_shared_bytes=0),
        )


def _needs(launch: Launch, found: Occupancy) -> str:
    told = []
    if "registers" in found.limits:
        told.append(f"{launch.facts.registers} registers a thread")
    if "shared memory" in found.limits:
        told.append(f"{bytes_words(launch.shared_bytes)} of shared memory a block")
    return ", ".join([*told, f"{launch.traced.threads} threads a block"])


def spills(launch: Launch) -> Iterator[Found]:
    if spilled := launch.facts.spilled_bytes:
        yield Found(
            "spills",
            _at(launch),
            f"{launch.traced.kernel} has too few registers for its values: each thread spills {spilled} bytes to memory, "
            f"{bytes_words(launch.spilled_bytes)} in all at the least; take a smaller block, or more warps",
            with_facts(launch, spilled_bytes=0),
            is_plain=spilled >= SPILLS_BYTES,
        )


def launch_per_piece(launch: Launch) -> Iterator[Found]:
    number, (x, y, z) = launch.traced.launches, launch.traced.grid
    if number >= MANY_LAUNCHES:
        why = (
            "a launch costs more than its work; one launch can take all, with a block for each"
            if launch.blocks < launch.gpu.multiprocessors
            else "each launch has a start and a last wave, while the GPU is not full; one launch can take all their blocks"
        )
        yield Found(
            "launch-per-piece",
            _at(launch),
            f"{launch.traced.kernel} is launched {number} times with {_blocks(launch.blocks)} each: {why}",
            with_traced(launch, grid=(x * number, y, z), launches=1),
        )


def doubles(launch: Launch) -> Iterator[Found]:
    if number := launch.facts.doubles:
        words = f"{launch.traced.kernel} has {number} instructions in double precision{IN_FLOAT}"
        yield Found("doubles", _at(launch), words, with_facts(launch, doubles=0))


# Work of a case ---------------------------------------------------------------------------------------------------------


def wave_tail(case: Workload) -> Iterator[Found]:
    for launch in case.launches:
        found = launch.waves
        if launch.facts.registers is not None and found.slots and found.waves > 1 and found.last != found.slots:
            yield Found(
                "wave-tail",
                _at(launch),
                f"{launch.blocks} blocks of {launch.traced.kernel} on {launch.gpu.multiprocessors} × {launch.occupancy.blocks} slots: "
                f"wave {math.ceil(found.waves)} has {_blocks(found.last)}, and the rest of the GPU waits for it{_doubled(launch)}",
                case.seconds - seconds_by_cause(launch)["tail"],
            )


def _doubled(launch: Launch) -> str:
    """What blocks of the next power of two would change."""
    threads = 1 << launch.traced.threads.bit_length()
    factor = threads / max(launch.traced.threads, 1)
    blocks, registers = math.ceil(launch.blocks / factor), launch.facts.registers or 0
    other = waves(launch.gpu, occupancy(launch.gpu, threads, registers, launch.shared_bytes), blocks)
    if not other.slots:
        return ""
    return f"; with {threads} threads a block there are {blocks} blocks on {other.slots} slots, {other.waves:.2f} waves"


def unfused(case: Workload) -> Iterator[Found]:
    steps = len(case.launches) + len([one for one in case.operators if one.name not in COPIES | FILLS])
    if steps < 2 or case.moved_bytes < AGAIN * case.needed_bytes:
        return
    names = {one.name for launch in case.launches for one in launch.traced.tensors if not one.is_of_call}
    if case.launches:
        place, seconds = _at(case.launches[0]), fused(case).seconds
        what = f"{steps} kernels" + (f" and {len(names)} temporary tensor{'s' * (len(names) != 1)}" if names else "")
    else:
        place, seconds = _of_python(max(case.operators, key=operator_bytes).place), case.least_seconds
        what = f"{sum(one.calls for one in case.operators)} operators of PyTorch and no kernel of yours"
    yield Found(
        "unfused",
        place,
        f"{what} move {bytes_words(case.moved_bytes)} where {bytes_words(case.needed_bytes)} would do: compute all steps in one "
        "kernel (fusion)",
        seconds,
    )


def copies(case: Workload) -> Iterator[Found]:
    is_added_to = any(one.atomic for launch in case.launches for one in launch.traced.accesses)
    for cause, names, verb, hint in (
        ("copies", COPIES, "copies", "a kernel that takes strides, or casts what it loads, needs no copy"),
        ("fills", FILLS, "fills memory", "torch.empty is enough where the kernel writes every element"),
    ):
        found = [one for one in case.operators if one.name in names]
        if not found or (cause == "fills" and is_added_to):
            continue
        first, moved = max(found, key=operator_bytes), sum(map(operator_bytes, found))
        yield Found(
            cause,
            _of_python(first.place),
            f"{verb} by {first.name} before a kernel runs, which moves {bytes_words(moved)}: {hint}",
            replace(case, operators=tuple(one for one in case.operators if one not in found)).seconds,
        )


def no_tensor_cores(case: Workload) -> Iterator[Found]:
    is_short = case.dtype in SHORT
    dtype = case.dtype if is_short else "float32"
    for launch in case.launches:
        found = [one for one in launch.traced.dots if _is_slow(launch, one, is_short)]
        if not found:
            continue
        name = _plain(found[0].dtype)
        dots = tuple(replace(one, dtype=dtype) if one in found else one for one in launch.traced.dots)
        faster = with_facts(with_traced(launch, dots=dots), tensor_cores=True, spilled_bytes=0)
        what = (
            f"products in {name} run without tensor cores"
            if launch.facts.tensor_cores is False
            else f"tl.dot takes {name}, which is slower on tensor cores than {dtype}"
        )
        mend = f"pass it {dtype}, and let it add up in float32" if is_short else "allow TF32"
        place = _file(launch), found[0].line
        yield Found("no-tensor-cores", place, f"{what}: {mend}", with_launch(case, launch, faster).seconds)


def _is_slow(launch: Launch, dot: TracedDot, is_short: bool) -> bool:
    return launch.facts.tensor_cores is False or (is_short and _plain(dot.dtype) not in SHORT)


def _plain(dtype: str) -> str:
    name = dtype.removeprefix("torch.")
    return TORCH_DTYPES.get(name, name)


def tiles_not_skipped(case: Workload) -> Iterator[Found]:
    flops = sum(dot.flops * launch.scale for launch in case.launches for dot in launch.traced.dots)
    if not case.needed_flops or flops < MOSTLY * case.needed_flops:
        return
    keep = case.needed_flops / flops
    busiest = max(case.launches, key=lambda one: sum(dot.flops for dot in one.traced.dots) * one.scale)
    yield Found(
        "tiles-not-skipped",
        (_file(busiest), busiest.traced.dots[0].line),
        f"products of tiles are {flops / 1e9:.0f} GFLOP, {flops / case.needed_flops:.1f} × what is needed: "
        "consistent with tiles that a mask turns off whole; end the loop before them",
        replace(case, launches=tuple(_with_fewer_tiles(launch, keep) for launch in case.launches)).seconds,
    )


def _with_fewer_tiles(launch: Launch, keep: float) -> Launch:
    """With that share of the products, and of what is loaded for them."""
    dots = tuple(replace(one, flops=round(one.flops * keep)) for one in launch.traced.dots)
    return with_traced(with_fewer_loads(launch, _fetched_again(launch) if dots else (), keep), dots=dots)


def doubles_by_line(case: Workload) -> Iterator[Found]:
    if lines := case.in_double:
        yield Found("doubles", _of_python(lines[0]), f"computes in double precision{_others(len(lines))}{IN_FLOAT}")


OF_LAUNCHES: tuple[Callable[[Launch], Iterable[Found]], ...] = (
    uncoalesced,
    narrow_loads,
    read_again,
    reloads,
    idle_lanes,
    bank_conflicts,
    atomics,
    few_blocks,
    small_blocks,
    one_warp_for_a_long_row,
    low_occupancy,
    spills,
    launch_per_piece,
    doubles,
)
OF_CASES: tuple[Callable[[Workload], Iterable[Found]], ...] = (
    wave_tail,
    unfused,
    copies,
    no_tensor_cores,
    tiles_not_skipped,
    doubles_by_line,
)
