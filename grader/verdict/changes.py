"""The same work done otherwise: launches less one cause of their time, whose predicted time says what the cause costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar

from grader.protocol import TracedAccess, TracedDot, TracedLaunch, TracedTensor
from grader.verdict.prediction import Workload
from grader.verdict.traffic import Launch

WIDE_BYTES = 16  # the widest access of a lane
SHARED = 1.05  # times a tensor: blocks that write more than that in all would write it more than once
LANES = ("lanes", "lanes_of_all", "sectors", "least_sectors")
REQUESTS = ("requests", *LANES)
COPIES = {"contiguous", "clone", "copy_", "copy", "to", "_to_copy", "cudaMemcpy", "cudaMemcpyAsync"}
FILLS = {"zeros", "zeros_like", "fill_", "zero_", "full", "full_like", "ones", "cudaMemset", "cudaMemsetAsync"}
Change = Callable[[TracedAccess], TracedAccess]
Counts = TypeVar("Counts", TracedAccess, TracedTensor, TracedDot)


def with_launch(case: Workload, launch: Launch, other: Launch) -> Workload:
    """The case with another launch in place of one."""
    return replace(case, launches=tuple(other if one is launch else one for one in case.launches))


def with_traced(launch: Launch, **fields: Any) -> Launch:
    return replace(launch, traced=replace(launch.traced, **fields))


def with_facts(launch: Launch, **fields: Any) -> Launch:
    return replace(launch, facts=replace(launch.facts, **fields))


def changed(launch: Launch, chosen: Collection[TracedAccess], change: Change) -> Launch:
    return with_traced(launch, accesses=tuple(change(one) if one in chosen else one for one in launch.traced.accesses))


def scaled(counted: Counts, factor: float, *names: str) -> Counts:
    return replace(counted, **{name: round(getattr(counted, name) * factor) for name in names})


def as_shared(launch: TracedLaunch) -> TracedLaunch:
    """The launch as if all its blocks had run, if blocks take their work from a counter in memory; otherwise the launch itself.

    On a CPU blocks run one after another, so the first block takes work that on a GPU others do. Its share of the whole is the
    written share of the call's largest tensor, of those that no atomic writes.
    """
    atomic = {one.tensor for one in launch.accesses if one.atomic and one.space == "global"}
    written = [one for one in launch.tensors if one.is_of_call and one.written_once_bytes and one.name not in atomic]
    largest = max(written, key=lambda one: one.bytes, default=None)
    blocks = math.prod(launch.grid)
    if not atomic or largest is None or blocks * largest.written_once_bytes <= SHARED * launch.ran * largest.bytes:
        return launch
    factor = max(largest.bytes / largest.written_once_bytes, 1.0)
    return replace(
        launch,
        ran=blocks,
        cut=False,
        barriers=round(launch.barriers * factor),
        accesses=tuple(scaled(one, factor, *REQUESTS, "passes", "least_passes") for one in launch.accesses),
        tensors=tuple(scaled(one, factor, "read_once_bytes", "written_once_bytes") for one in launch.tensors),
        dots=tuple(scaled(one, factor, "flops") for one in launch.dots),
    )


def fewer_blocks(
    launch: Launch, blocks: int, chosen: Collection[TracedAccess] = (), change: Change | None = None
) -> Launch:
    """The same work in fewer blocks, each with more of it: counts of the blocks that ran grow accordingly. `chosen` are then changed."""
    factor, traced = launch.blocks / max(blocks, 1), launch.traced
    grown = ((one, scaled(one, factor, *LANES, "passes")) for one in traced.accesses)
    return with_traced(
        launch,
        grid=(blocks, 1, 1),
        accesses=tuple(change(more) if change and one in chosen else more for one, more in grown),
        tensors=tuple(scaled(one, factor, "read_once_bytes", "written_once_bytes") for one in traced.tensors),
        dots=tuple(scaled(one, factor, "flops") for one in traced.dots),
    )


def coalesced(launch: Launch, chosen: Collection[TracedAccess]) -> Launch:
    """With the fewest sectors in these accesses."""
    lines = {(one.verb, one.line) for one in chosen}
    ratios = {place: ratio for place, ratio in launch.facts.ratios.items() if place not in lines}
    dense = changed(launch, chosen, lambda one: replace(one, sectors=one.least_sectors, steps=()))
    return with_facts(dense, ratios=ratios)


def widened(launch: Launch, chosen: list[TracedAccess]) -> Launch:
    """The same bytes by fewer lanes, in these accesses, whose first says how many fewer blocks there are."""

    def wide(one: TracedAccess) -> TracedAccess:
        return replace(one, width_bytes=WIDE_BYTES, lanes=round(one.lanes * one.width_bytes / WIDE_BYTES))

    return fewer_blocks(launch, math.ceil(launch.blocks * chosen[0].width_bytes / WIDE_BYTES), chosen, wide)


def with_full_warps(launch: Launch, chosen: Collection[TracedAccess], busy: float) -> Launch:
    """The same bytes by as many fewer blocks as lanes are idle."""

    def full(one: TracedAccess) -> TracedAccess:
        return replace(one, lanes_of_all=one.lanes, sectors=one.least_sectors or one.sectors)

    return fewer_blocks(launch, max(math.ceil(launch.blocks * busy), 1), chosen, full)


def more_blocks(launch: Launch, blocks: int) -> Launch:
    """The same work in more blocks, each with fewer requests."""
    more = fewer_blocks(launch, blocks)
    factor = launch.blocks / more.blocks
    return with_traced(more, accesses=tuple(scaled(one, factor, *REQUESTS) for one in launch.traced.accesses))


def with_more_threads(launch: Launch, factor: int) -> Launch:
    """With so many times the threads in each block, and the requests of their warps."""
    more = changed(launch, launch.traced.accesses, lambda one: replace(one, requests=one.requests * factor))
    return with_traced(more, threads=launch.traced.threads * factor)


def by_one_lane_of_each_block(launch: Launch, chosen: Collection[TracedAccess]) -> Launch:
    ran = launch.traced.ran
    return changed(launch, chosen, lambda one: replace(one, lanes=min(one.lanes, ran), requests=min(one.requests, ran)))


def with_fewer_loads(launch: Launch, chosen: Collection[TracedAccess], keep: float) -> Launch:
    return changed(launch, chosen, lambda one: scaled(one, keep, *REQUESTS))


def fused(case: Workload) -> Workload:
    """The case's launches without temporary tensors, each tensor of the call moved once, and no operators but copies and fills."""
    seen: set[tuple[str, str]] = set()
    launches = []
    for launch in case.launches:
        gone = {one.name for one in launch.traced.tensors if not one.is_of_call}
        kept = tuple(
            one
            for one in launch.traced.accesses
            if one.space == "shared"
            or (one.tensor not in gone and not {(one.tensor, one.verb), (one.tensor, "writes")} & seen)
        )
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
            launches.append(with_traced(launch, accesses=kept, tensors=tensors))
    operators = tuple(one for one in case.operators if one.name in COPIES | FILLS)
    return replace(case, launches=tuple(launches), operators=operators)
