"""Why a kernel is slow, in sentences: rules, each with the same work less one cause, so that a remark has its gain.

A rule sees numbers of the trace and of the compiler. Its remark is made if the predicted time is shorter without the cause
by at least `WORTH`. A cause whose gain cannot be computed is told without one, after the others, where its evidence is
plain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from grader.protocol import TracedAccess, TracedDot
from grader.report.profile import MAX_REMARKS, Occupancy, Remark
from grader.verdict.occupancy import occupancy, waves
from grader.verdict.prediction import SHORT, STARTS, Case, colliding_warps, operator_bytes, seconds_by_cause
from grader.verdict.traffic import SECTOR, Launch, idle_share

WORTH = 0.07  # of the predicted time
AGAIN_WORTH = 0.15  # for reading again: a second pass that finds its row in L2 may be the best there is
SCATTERED = 1.5  # sectors by the fewest possible
FAR_BYTES = 1024  # between neighbouring lanes
IDLE = 0.3  # of the lanes
AGAIN = 1.5  # bytes read by bytes needed
MANY_TIMES = 8  # bytes fetched from L2 by those of DRAM
LOADS_BY_PRODUCTS = 2.0  # seconds
CONFLICTS = 1.5  # passes by the fewest possible
WIDE_BYTES = 16
LOW_OCCUPANCY = 0.3
ENOUGH_THREADS = 256
ENOUGH_LANES = 1024  # of a Triton program
FEW_THREADS = 0.25  # of those that the GPU can hold
LONG_BYTES = 16_384  # that a block reads
PLAINLY_LONG_BYTES = 65_536  # that one warp reads: told without a gain, too
MANY_LAUNCHES = 32
MOSTLY = 1.7  # FLOPs by those needed: without the tiles that a mask turns off whole, it may be half of them
SPILLS_BYTES = 256  # of a thread: fewer are told only with their gain
COPIES = {"contiguous", "clone", "copy_", "copy", "to", "_to_copy", "cudaMemcpy", "cudaMemcpyAsync"}
FILLS = {"zeros", "zeros_like", "fill_", "zero_", "full", "full_like", "ones", "cudaMemset", "cudaMemsetAsync"}
TIMES = {2: "twice", 3: "three times", 4: "four times"}


@dataclass(frozen=True)
class Found:
    """A cause that a rule has found.

    Attributes:
        place: a file and a line; 0 for the launch as a whole.
        seconds: the predicted time of the same work less the cause; None if it cannot be computed.
        worth: the least gain that is told, as a share of the predicted time.
    """

    cause: str
    sentence: str
    place: tuple[str, int]
    seconds: float | None = None
    worth: float = WORTH


def remarks(case: Case) -> tuple[Remark, ...]:
    """At most MAX_REMARKS, first those that cost the most; of one cause in several launches the costliest."""
    told = [one for rule in RULES for it in rule(case) if (one := _remark(case, it)) is not None]
    causes = {one.cause for one in told}
    told = [one for one in told if not causes & BEFORE.get(one.cause, set())]
    told.sort(key=lambda one: -(one.costs_ms or 0.0))
    first: dict[str, Remark] = {}
    for one in told:
        first.setdefault(one.cause, one)
    kept = tuple(first.values())[:MAX_REMARKS]
    return tuple(one.model_copy(update={"costs_ms": None}) for one in kept) if not case.is_told else kept


def _remark(case: Case, found: Found) -> Remark | None:
    file, line = found.place
    if found.seconds is None:
        return Remark(cause=found.cause, sentence=f"{found.sentence}.", file=file, line=line)
    now, then = case.seconds, found.seconds
    if now - then < found.worth * now:
        return None
    gain = "" if not case.is_told else f" Predicted: {_ms(now)} ms as it is, {_ms(then)} ms without that."
    sentence, costs_ms = f"{found.sentence}.{gain}", (now - then) * 1e3
    return Remark(cause=found.cause, sentence=sentence, file=file, line=line, costs_ms=costs_ms)


def _is_worth(case: Case, seconds: float) -> bool:
    """Whether a remark with this time less its cause is made."""
    return case.seconds - seconds >= WORTH * case.seconds


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _gb(size: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} bytes"


# Work less a cause -----------------------------------------------------------------------------------------------------


def _with(case: Case, launch: Launch, other: Launch) -> float:
    """The seconds of a case with another launch in place of one."""
    return replace(case, launches=tuple(other if one is launch else one for one in case.launches)).seconds


def _changed(launch: Launch, found: Collection[TracedAccess], change: Callable[[TracedAccess], TracedAccess]) -> Launch:
    accesses = tuple(change(one) if one in found else one for one in launch.traced.accesses)
    return replace(launch, traced=replace(launch.traced, accesses=accesses))


def _place(access: TracedAccess) -> tuple[str, int]:
    return access.file, access.line


def _at(launch: Launch) -> tuple[str, int]:
    """The place of a launch."""
    return _file(launch), launch.traced.line


def _file(launch: Launch) -> str:
    return next((one.file for one in launch.traced.accesses if one.file), "")


def _name(access: TracedAccess) -> str:
    return access.tensor or "memory"


def _verbs(access: TracedAccess) -> str:
    return f"{access.verb} {_name(access)}"


def _others(accesses: list[TracedAccess]) -> str:
    more = len({one.line for one in accesses}) - 1
    return f" (and {more} more line{'s' * (more > 1)})" if more > 0 else ""


# Accesses --------------------------------------------------------------------------------------------------------------


def uncoalesced(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = [
            one for one in launch.global_accesses() if (launch.ratio(one) or 1) >= SCATTERED and idle_share(one) < IDLE
        ]
        found.sort(key=lambda one: -launch.fetched(one))
        if not found:
            continue
        first, ratio = found[0], launch.ratio(found[0]) or 1.0

        lines = {(one.verb, one.line) for one in found}
        ratios: dict[tuple[str, int], float] = {
            place: known for place, known in launch.facts.ratios.items() if place not in lines
        }
        seconds: float | None = _with(
            case, launch, replace(_changed(launch, found, _dense), facts=replace(launch.facts, ratios=ratios))
        )
        if launch.traced.cut:
            seconds = None  # its counts are too low for a time, but not for sectors
        step = min((abs(one) for one in first.steps if one), default=0)
        apart = f", for neighbouring lanes are {step} bytes apart" if step > first.width_bytes else ""
        moved = f"{_verbs(first)}{_others(found)} and moves {ratio:.1f} × the bytes it asks for through L2, in sectors of 32 bytes{apart}"
        if step >= FAR_BYTES or _is_far_apart(launch, first):
            hint = "let neighbouring lanes go along a row, not down a column"
            yield Found("strided-by-rows", f"{moved}: {hint}", seconds=seconds, place=_place(first))
        else:
            hint = "let neighbouring threads take neighbouring elements"
            yield Found("uncoalesced", f"{moved}: {hint}", seconds=seconds, place=_place(first))


def _is_far_apart(launch: Launch, access: TracedAccess) -> bool:
    """In CUDA, whether each lane asks for a sector of its own and does not come back for the rest of it."""
    warps = max(-(-launch.traced.threads // launch.gpu.warp), 1) * max(launch.traced.ran, 1)
    return (
        not launch.is_triton
        and access.sectors >= 0.9 * access.lanes
        and access.requests / warps < SECTOR / max(access.width_bytes, 1)
    )


def _dense(access: TracedAccess) -> TracedAccess:
    return replace(access, sectors=access.least_sectors, steps=())


def narrow_loads(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        if launch.is_triton:
            continue  # a layout's loads are told by the compiled code
        found = [
            one
            for one in launch.global_accesses()
            if one.verb == "reads" and 0 < one.width_bytes < WIDE_BYTES and (launch.ratio(one) or 1.0) < SCATTERED
        ]
        found.sort(key=lambda one: -launch.asked(one))
        if not found:
            continue

        wider = _fewer_blocks(launch, math.ceil(launch.blocks * found[0].width_bytes / WIDE_BYTES))
        lines = {(one.line, one.verb) for one in found}
        wider = _changed(wider, [one for one in wider.traced.accesses if (one.line, one.verb) in lines], _wide)
        yield Found(
            "narrow-loads",
            f"{_verbs(found[0])} with {found[0].width_bytes} bytes a thread, so too few bytes are on their way at once: "
            f"loads of {WIDE_BYTES} bytes (float4) keep memory busy",
            seconds=_with(case, launch, wider),
            place=_place(found[0]),
        )


def _wide(access: TracedAccess) -> TracedAccess:
    """The same bytes by fewer lanes."""
    return replace(access, width_bytes=WIDE_BYTES, lanes=round(access.lanes * access.width_bytes / WIDE_BYTES))


def _fewer_blocks(launch: Launch, blocks: int) -> Launch:
    """The same work in fewer blocks, each with more of it; counts of the blocks that ran grow accordingly."""
    factor = launch.blocks / max(blocks, 1)

    def more(one: TracedAccess) -> TracedAccess:
        grown = {
            name: round(getattr(one, name) * factor) for name in ("lanes", "lanes_of_all", "sectors", "least_sectors")
        }
        return replace(one, **grown, passes=round(one.passes * factor))

    tensors = tuple(
        replace(
            one,
            read_once_bytes=round(one.read_once_bytes * factor),
            written_once_bytes=round(one.written_once_bytes * factor),
        )
        for one in launch.traced.tensors
    )
    dots = tuple(replace(one, flops=round(one.flops * factor)) for one in launch.traced.dots)
    changed = _changed(launch, launch.traced.accesses, more)
    return replace(changed, traced=replace(changed.traced, grid=(blocks, 1, 1), tensors=tensors, dots=dots))


def read_again(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        for tensor in launch.traced.tensors:
            own = [one for one in launch.global_accesses() if (one.tensor, one.verb) == (tensor.name, "reads")]
            asked = sum(min(launch.asked(one), launch.fetched(one)) for one in own)
            once = tensor.read_once_bytes * launch.scale
            if not once or asked < AGAIN * once:
                continue
            times = asked / once
            how = (
                TIMES.get(round(times), f"{times:.0f} times")
                if abs(times - round(times)) < 0.1
                else f"{times:.1f} times"
            )
            first = max(own, key=launch.asked)
            lines = sorted({one.line for one in own if one.line})
            at = f" (lines {', '.join(map(str, lines))})" if len(lines) > 1 else ""
            dots = bool(launch.traced.dots)
            mend = (
                "change the order of the loops"
                if dots
                else "keep it in registers or shared memory, or combine the passes"
            )
            yield Found(
                "reloads" if dots else "read-again",
                f"each block reads its part of {tensor.name} {how}{at}: {times:.1f} × the bytes; {mend}",
                seconds=_with(case, launch, _changed(launch, own, partial(_scaled, factor=1 / times))),
                worth=AGAIN_WORTH,
                place=_place(first),
            )


def reloads(case: Case) -> Iterator[Found]:
    """Inputs of products that each block fetches anew from L2, for few products."""
    for launch in case.launches:
        parts = seconds_by_cause(launch)
        if not launch.traced.dots or parts["L2"] < LOADS_BY_PRODUCTS * parts["products"]:
            continue
        own = [one for one in launch.global_accesses() if one.verb == "reads" and _fetches_again(launch, one)]
        if not own:
            continue
        own.sort(key=lambda one: -launch.fetched(one))
        size = sum(one.least for (_, verb), one in launch.moved.items() if verb == "reads")
        fetched = sum(map(launch.fetched, own))
        yield Found(
            "reloads",
            f"{_verbs(own[0])}{_others(own)} again in each of many blocks, {_gb(fetched)} for inputs of {_gb(size)}: a block "
            "that computes more rows needs them fewer times",
            seconds=_with(case, launch, _changed(launch, own, partial(_scaled, factor=0.25))),
            place=_place(own[0]),
        )


def _fetches_again(launch: Launch, access: TracedAccess) -> bool:
    moved = launch.moved.get((access.tensor, "reads"))
    return moved is not None and moved.fetched >= MANY_TIMES * moved.least


def _scaled(access: TracedAccess, factor: float) -> TracedAccess:
    names = ("requests", "lanes", "lanes_of_all", "sectors", "least_sectors")
    return replace(access, **{name: round(getattr(access, name) * factor) for name in names})


def idle_lanes(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = [one for one in launch.global_accesses() if idle_share(one) >= IDLE]
        found.sort(key=lambda one: -one.lanes_of_all)
        every = sum(one.lanes_of_all for one in launch.global_accesses())
        if sum(one.lanes_of_all for one in found) < every / 2 or not found:
            continue

        share, why = idle_share(found[0]), "its mask" if launch.is_triton else "a branch"
        mend = "take a block that fits the row" if launch.is_triton else "let whole warps take the same way"
        yield Found(
            "idle-lanes",
            f"{_verbs(found[0])}{_others(found)} while {share:.0%} of the lanes do nothing, turned off by {why}: {mend}",
            seconds=_with(case, launch, _by_full_warps(launch, found, 1 - share)),
            place=_place(found[0]),
        )


def _by_full_warps(launch: Launch, found: list[TracedAccess], busy: float) -> Launch:
    """The same bytes by as many fewer blocks as lanes are idle."""
    lines = {(one.line, one.verb, one.tensor) for one in found}
    fewer = _fewer_blocks(launch, max(math.ceil(launch.blocks * busy), 1))
    own = [one for one in fewer.traced.accesses if (one.line, one.verb, one.tensor) in lines]
    return _changed(
        fewer, own, lambda one: replace(one, lanes_of_all=one.lanes, sectors=one.least_sectors or one.sectors)
    )


def bank_conflicts(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = [
            one
            for one in launch.traced.accesses
            if one.space == "shared" and one.least_passes and one.passes >= CONFLICTS * one.least_passes
        ]
        found.sort(key=lambda one: -one.passes)
        if not found:
            continue

        ways = found[0].passes / found[0].least_passes
        yield Found(
            "bank-conflicts",
            f"{_verbs(found[0])}{_others(found)} in shared memory with bank conflicts, {ways:.0f} passes where one would do: "
            "pad each row of the array by one element",
            seconds=_with(case, launch, _changed(launch, found, lambda one: replace(one, passes=one.least_passes))),
            place=_place(found[0]),
        )


def atomics(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        warps = colliding_warps(launch)
        if not warps:
            continue
        own = [one for one in launch.global_accesses() if one.atomic]
        first = max(own, key=lambda one: one.lanes)

        yield Found(
            "atomics-on-one-address",
            f"adds to one address of {_name(first)}, in {warps:.3g} warps one after another: "
            "add up within a block first, and let one thread add the block's sum",
            seconds=_with(case, launch, _changed(launch, own, partial(_by_blocks, blocks=launch.traced.ran))),
            place=_place(first),
        )


def _by_blocks(access: TracedAccess, blocks: int) -> TracedAccess:
    """One lane of each block that ran."""
    return replace(access, lanes=min(access.lanes, blocks), requests=min(access.requests, blocks))


# Blocks and registers ---------------------------------------------------------------------------------------------------


def few_blocks(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        blocks, threads, gpu = launch.blocks, launch.traced.threads, launch.gpu
        share = blocks * threads / (gpu.multiprocessors * gpu.threads)
        is_few = 0 < share < FEW_THREADS and blocks < gpu.multiprocessors
        if launch.traced.launches >= MANY_LAUNCHES or launch.traced.dots or not is_few:
            continue
        part = f"{share:.0%}" if share >= 0.01 else "less than 1%"
        more = _fewer_blocks(launch, math.ceil(blocks / share))
        each = tuple(_scaled(one, blocks / more.blocks) for one in launch.traced.accesses)
        more = replace(more, traced=replace(more.traced, accesses=each))
        yield Found(
            "few-blocks",
            f"{launch.traced.kernel} runs as {_blocks(blocks)} of {threads} threads, {part} of the threads that the GPU can hold: "
            "give each less work, and launch more blocks",
            seconds=None if launch.traced.cut else _with(case, launch, more),
            place=_at(launch),
        )


def small_blocks(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        starts_s, size = seconds_by_cause(launch)[STARTS], _size(launch)
        enough, what = (ENOUGH_LANES, "elements") if launch.is_triton else (ENOUGH_THREADS, "threads")
        too_short = starts_s >= (1 - WORTH) * seconds_by_cause(launch)["all"]
        if not 0 < size < enough or _reads_of_block(launch) >= LONG_BYTES or not too_short:
            continue
        factor = enough / size
        threads = launch.traced.threads * (1 if launch.is_triton else round(factor))
        larger = replace(launch, traced=replace(launch.traced, threads=threads))
        larger = _fewer_blocks(_requests(larger, round(factor)), math.ceil(launch.blocks / factor))
        yield Found(
            "small-blocks",
            f"{launch.traced.kernel} has {launch.blocks} blocks of {size} {what}, which start one after another, and that alone "
            f"takes {_ms(starts_s)} ms: take blocks of {enough} {what}",
            seconds=_with(case, launch, larger),
            place=_at(launch),
        )


def _size(launch: Launch) -> int:
    """Of a block: its threads; of a Triton program, the elements that it takes at a time."""
    if not launch.is_triton:
        return launch.traced.threads
    return max((one.lanes // max(one.requests, 1) for one in launch.global_accesses()), default=0)


def one_warp_for_a_long_row(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        read = _reads_of_block(launch)
        if launch.traced.threads > launch.gpu.warp or read < LONG_BYTES:
            continue
        more = replace(launch, traced=replace(launch.traced, threads=ENOUGH_THREADS))
        seconds = _with(case, launch, _requests(more, 1))
        costs = _is_worth(case, seconds)
        if not costs and read < PLAINLY_LONG_BYTES:
            continue
        yield Found(
            "one-warp-for-a-long-row",
            f"one warp of {launch.traced.kernel} reads {_gb(read)} by itself, and {launch.occupancy.share:.0%} of a "
            f"multiprocessor's threads are there: give each row {ENOUGH_THREADS // launch.gpu.warp} warps",
            seconds=seconds if costs else None,
            place=_at(launch),
        )


def _reads_of_block(launch: Launch) -> float:
    return sum(one.read_once_bytes for one in launch.traced.tensors) / max(launch.traced.ran, 1)


def _requests(launch: Launch, factor: int) -> Launch:
    """With so many times the requests, for more warps that ask at once."""
    if launch.is_triton:
        return launch
    return _changed(launch, launch.traced.accesses, lambda one: replace(one, requests=one.requests * factor))


def low_occupancy(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = launch.occupancy
        if launch.facts.registers is None or not 0 < found.share < LOW_OCCUPANCY or found.limits == ("blocks",):
            continue
        full = replace(launch, facts=replace(launch.facts, registers=32, shared_bytes=0))
        full = replace(full, traced=replace(full.traced, shared_bytes=0, static_shared_bytes=0))
        what = " and ".join(found.limits)
        yield Found(
            "low-occupancy",
            f"{launch.traced.kernel} keeps {found.share:.0%} of a multiprocessor's threads busy, limited by {what} "
            f"({_needs(launch, found)}): too few loads are on their way at once",
            seconds=_with(case, launch, full),
            place=_at(launch),
        )


def _needs(launch: Launch, found: Occupancy) -> str:
    told = []
    if "registers" in found.limits:
        told.append(f"{launch.facts.registers} registers a thread")
    if "shared memory" in found.limits:
        told.append(f"{_gb(launch.shared_bytes)} of shared memory a block")
    return ", ".join([*told, f"{launch.traced.threads} threads a block"])


def spills(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        spilled = launch.facts.spilled_bytes or 0
        if not spilled:
            continue
        sentence = (
            f"{launch.traced.kernel} has too few registers for its values: each thread spills {spilled} bytes to memory, "
            f"{_gb(launch.spilled_bytes)} in all at the least; take a smaller block, or more warps"
        )
        seconds = _with(case, launch, replace(launch, facts=replace(launch.facts, spilled_bytes=0)))
        costs = _is_worth(case, seconds)
        if costs or spilled >= SPILLS_BYTES:
            yield Found("spills", sentence, seconds=seconds if costs else None, place=_at(launch))


def wave_tail(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = launch.waves
        if launch.facts.registers is None or not found.slots or found.waves <= 1 or found.last == found.slots:
            continue
        number = math.ceil(found.waves)
        last = "one block" if found.last == 1 else f"{found.last} blocks"
        yield Found(
            "wave-tail",
            f"{launch.blocks} blocks of {launch.traced.kernel} on {launch.gpu.multiprocessors} × {launch.occupancy.blocks} slots: "
            f"wave {number} has {last}, and the rest of the GPU waits for it{_doubled(launch)}",
            seconds=case.seconds - seconds_by_cause(launch)["tail"],
            place=_at(launch),
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


# Work -------------------------------------------------------------------------------------------------------------------


def unfused(case: Case) -> Iterator[Found]:
    steps = len(case.launches) + len([one for one in case.operators if one.name not in COPIES | FILLS])
    if steps < 2:
        return
    if case.moved_bytes < AGAIN * case.needed_bytes:
        return
    names = {one.name for launch in case.launches for one in launch.traced.tensors if not one.is_of_call}
    many = f" and {len(names)} temporary tensor{'s' * (len(names) != 1)}" if names else ""
    if not case.launches:
        calls, place = sum(one.calls for one in case.operators), max(case.operators, key=operator_bytes).place
        yield Found(
            "unfused",
            f"{calls} operators of PyTorch and no kernel of yours move {_gb(case.moved_bytes)} where {_gb(case.needed_bytes)} would "
            "do: compute all steps in one kernel (fusion)",
            seconds=case.least_seconds,
            place=_of_python(place),
        )
        return
    yield Found(
        "unfused",
        f"{steps} kernels{many} move {_gb(case.moved_bytes)} where {_gb(case.needed_bytes)} would do: compute all steps in "
        "one kernel (fusion)",
        seconds=_fused(case).seconds,
        place=_at(case.launches[0]),
    )


def _fused(case: Case) -> Case:
    """The case's launches without temporary tensors, each tensor of the call moved once, and no operators but copies and fills."""
    seen: set[tuple[str, str]] = set()
    launches = []
    for launch in case.launches:
        gone = {one.name for one in launch.traced.tensors if not one.is_of_call}
        kept = [
            one
            for one in launch.traced.accesses
            if one.space == "shared"
            or (one.tensor not in gone and not {(one.tensor, one.verb), (one.tensor, "writes")} & seen)
        ]
        tensors = tuple(
            replace(
                one,
                read_once_bytes=0 if {(one.name, "reads"), (one.name, "writes")} & seen else one.read_once_bytes,
                written_once_bytes=0 if (one.name, "writes") in seen else one.written_once_bytes,
            )
            for one in launch.traced.tensors
            if one.name not in gone
        )
        seen |= {(one.tensor, one.verb) for one in kept}
        if kept or launch.traced.dots:
            launches.append(replace(launch, traced=replace(launch.traced, accesses=tuple(kept), tensors=tensors)))
    operators = tuple(one for one in case.operators if one.name in COPIES | FILLS)
    return replace(case, launches=tuple(launches), operators=operators)


def copies(case: Case) -> Iterator[Found]:
    for cause, names, hint in (
        ("copies", COPIES, "a kernel that takes strides, or casts what it loads, needs no copy"),
        ("fills", FILLS, "torch.empty is enough where the kernel writes every element"),
    ):
        found = [one for one in case.operators if one.name in names]
        if not found or (
            cause == "fills" and any(one.atomic for launch in case.launches for one in launch.traced.accesses)
        ):
            continue
        first = max(found, key=operator_bytes)
        moved = sum(map(operator_bytes, found))
        verb = "copies" if cause == "copies" else "fills memory"
        yield Found(
            cause,
            f"{verb} by {first.name} before a kernel runs, which moves {_gb(moved)}: {hint}",
            seconds=replace(case, operators=tuple(one for one in case.operators if one not in found)).seconds,
            place=_of_python(first.place),
        )


def _of_python(place: str) -> tuple[str, int]:
    """File and line of an operator's place, as `kernel.py:33`."""
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdecimal() else 0


def launch_per_piece(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        number = launch.traced.launches
        if number < MANY_LAUNCHES:
            continue
        grid = (launch.traced.grid[0] * number, *launch.traced.grid[1:])
        together = replace(launch, traced=replace(launch.traced, grid=grid, launches=1))
        why = (
            "a launch costs more than its work; one launch can take all, with a block for each"
            if launch.blocks < launch.gpu.multiprocessors
            else "each launch has a start and a last wave, while the GPU is not full; one launch can take all their blocks"
        )
        yield Found(
            "launch-per-piece",
            f"{launch.traced.kernel} is launched {number} times with {_blocks(launch.blocks)} each: {why}",
            seconds=_with(case, launch, together),
            place=_at(launch),
        )


def _blocks(number: int) -> str:
    return "one block" if number == 1 else f"{number} blocks"


def no_tensor_cores(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        found = [one for one in launch.traced.dots if _is_slow(launch, one, case.dtype)]
        if not found:
            continue
        first, short = found[0], case.dtype in SHORT
        dtype = case.dtype if short else "float32"
        dots = tuple(replace(one, dtype=dtype) if one in found else one for one in launch.traced.dots)
        faster = replace(
            launch,
            traced=replace(launch.traced, dots=dots),
            facts=replace(launch.facts, tensor_cores=True, spilled_bytes=0),
        )
        if launch.facts.tensor_cores is False:
            what = f"products in {_plain(first.dtype)} run without tensor cores"
        else:
            what = f"tl.dot takes {_plain(first.dtype)}, which is slower on tensor cores than {dtype}"
        mend = f"pass it {dtype}, and let it add up in float32" if short else "allow TF32"
        yield Found(
            "no-tensor-cores",
            f"{what}: {mend}",
            seconds=_with(case, launch, faster),
            place=(_file(launch), first.line),
        )


def _is_slow(launch: Launch, dot: TracedDot, dtype: str) -> bool:
    return launch.facts.tensor_cores is False or (dtype in SHORT and _plain(dot.dtype) not in SHORT)


def _plain(dtype: str) -> str:
    return {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}.get(
        dtype.removeprefix("torch."), dtype.removeprefix("torch.")
    )


def tiles_not_skipped(case: Case) -> Iterator[Found]:
    flops = sum(dot.flops * launch.scale for launch in case.launches for dot in launch.traced.dots)
    if not case.needed_flops or flops < MOSTLY * case.needed_flops:
        return
    keep = case.needed_flops / flops
    launches = tuple(_with_fewer_tiles(launch, keep) for launch in case.launches)
    busiest = max(case.launches, key=lambda one: sum(dot.flops for dot in one.traced.dots) * one.scale)
    yield Found(
        "tiles-not-skipped",
        f"products of tiles are {flops / 1e9:.0f} GFLOP, {flops / case.needed_flops:.1f} × what is needed: "
        "consistent with tiles that a mask turns off whole; end the loop before them",
        seconds=replace(case, launches=launches).seconds,
        place=(_file(busiest), busiest.traced.dots[0].line),
    )


def _with_fewer_tiles(launch: Launch, keep: float) -> Launch:
    """With that share of the products, and of what is loaded for them."""
    dots = tuple(replace(one, flops=round(one.flops * keep)) for one in launch.traced.dots)
    own = [one for one in launch.global_accesses() if one.verb == "reads" and _fetches_again(launch, one)]
    fewer = _changed(launch, own if dots else (), partial(_scaled, factor=keep))
    return replace(fewer, traced=replace(fewer.traced, dots=dots))


def doubles(case: Case) -> Iterator[Found]:
    for launch in case.launches:
        if number := launch.facts.doubles:
            yield Found(
                "doubles",
                f"{launch.traced.kernel} has {number} instructions in double precision{IN_FLOAT}",
                seconds=_with(case, launch, replace(launch, facts=replace(launch.facts, doubles=0))),
                place=_at(launch),
            )
    if case.in_double:
        file, _, line = case.in_double[0].rpartition(":")
        more = len(case.in_double) - 1
        others = f" (and {more} more line{'s' * (more > 1)})" if more else ""
        yield Found("doubles", f"computes in double precision{others}{IN_FLOAT}", place=(file, int(line)))


IN_FLOAT = ", which is slower than float on every GPU: write 0.5f, not 0.5, and tanhf, not tanh"


RULES: tuple[Callable[[Case], Iterable[Found]], ...] = (
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
    wave_tail,
    unfused,
    copies,
    launch_per_piece,
    no_tensor_cores,
    tiles_not_skipped,
    doubles,
)
# A cause is not told beside one of these, whose effect it is, or which hides its own.
BEFORE = {
    "narrow-loads": {
        "uncoalesced",
        "strided-by-rows",
        "few-blocks",
        "small-blocks",
        "low-occupancy",
        "one-warp-for-a-long-row",
        "idle-lanes",
        "launch-per-piece",
        "doubles",
        "atomics-on-one-address",
    },
    "spills": {"no-tensor-cores"},
    "low-occupancy": {"small-blocks", "one-warp-for-a-long-row", "spills"},
    "small-blocks": {"one-warp-for-a-long-row"},
    "wave-tail": {"launch-per-piece"},
}
