"""Work done otherwise is the same work: it moves the same bytes and computes the same products, but for what was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from grader.protocol import TracedAccess, TracedLaunch
from grader.verdict import changes
from grader.verdict.prediction import bytes_in_flight, colliding_warps
from grader.verdict.traffic import Facts, Launch, idle_share
from tests.support.traces import H200, RAN, N, elementwise
from tests.verdict.test_rules import CONFLICTS, COUNTER, DOWN, FLOPS, HALF, ONE_PASS, THREE_PASSES, case, products, step


def launch(traced: TracedLaunch) -> Launch:
    return Launch(traced, Facts(registers=32), H200)


def work(one: Launch) -> list[float]:
    """What the whole launch asks for, and for how many products."""
    asked = [one.asked(access) for access in one.traced.accesses]
    once = [
        size * one.scale
        for tensor in one.traced.tensors
        for size in (tensor.read_once_bytes, tensor.written_once_bytes)
    ]
    return [*asked, *once, *(dot.flops * one.scale for dot in one.traced.dots)]


EVERY = (elementwise(), DOWN, ONE_PASS, THREE_PASSES, HALF, CONFLICTS, products(FLOPS))
SAME_WORK: dict[str, Callable[[Launch], Launch]] = {
    "fewer blocks": lambda one: changes.fewer_blocks(one, one.blocks // 4),
    "more blocks": lambda one: changes.more_blocks(one, one.blocks * 4),
    "wide loads": lambda one: changes.widened(one, one.global_accesses()),
    "full warps": lambda one: changes.with_full_warps(one, one.global_accesses(), 0.5),
    "more threads": lambda one: changes.with_more_threads(one, 2),
    "coalesced": lambda one: changes.coalesced(one, one.global_accesses()),
}


@pytest.mark.parametrize("name", SAME_WORK)
@pytest.mark.parametrize("traced", EVERY, ids=lambda one: f"{one.kernel}-{len(one.accesses)}")
def test_the_work_is_the_same(name: str, traced: TracedLaunch) -> None:
    before = launch(traced)
    after = SAME_WORK[name](before)
    assert work(after) == pytest.approx(work(before), rel=1e-3)


def test_blocks_are_fewer_or_more() -> None:
    before = launch(elementwise())
    blocks = before.blocks
    after = {name: change(before) for name, change in SAME_WORK.items()}
    assert after["fewer blocks"].blocks == after["wide loads"].blocks == blocks // 4
    assert (after["more blocks"].blocks, after["full warps"].blocks) == (4 * blocks, blocks // 2)
    assert after["more threads"].traced.threads == 2 * before.traced.threads
    requests = [[one.requests for one in each.traced.accesses] for each in (before, after["more threads"])]
    assert requests[1] == [2 * one for one in requests[0]]
    assert bytes_in_flight(after["wide loads"]) > bytes_in_flight(before)


def test_only_chosen_accesses_change() -> None:
    before = launch(DOWN)
    chosen, other = before.traced.accesses
    after = changes.coalesced(before, [chosen])
    assert (before.ratio(chosen), after.ratio(after.traced.accesses[0])) == (8.0, 1.0)
    assert after.traced.accesses[1] == other


def test_what_the_compiler_told_of_a_line_is_gone_with_its_sectors() -> None:
    facts = Facts(ratios={("reads", 20): 4.0, ("writes", 20): 2.0})
    before = replace(launch(ONE_PASS), facts=facts)
    read, written = before.traced.accesses[0], before.traced.accesses[-1]
    assert (read.verb, before.ratio(read)) == ("reads", 4.0)
    after = changes.coalesced(before, [read])
    assert after.facts.ratios == {("writes", 20): 2.0}
    assert after.ratio(written) == before.ratio(written)


def test_full_warps_have_no_idle_lane() -> None:
    before = launch(HALF)
    after = changes.with_full_warps(before, before.global_accesses(), 0.5)
    assert {idle_share(one) for one in before.global_accesses()} == {0.5}
    assert {idle_share(one) for one in after.global_accesses()} == {0.0}


def test_one_lane_of_each_block_adds_to_an_address() -> None:
    before = launch(COUNTER)
    added: list[TracedAccess] = [one for one in before.global_accesses() if one.atomic]
    after = changes.by_one_lane_of_each_block(before, added)
    assert colliding_warps(before) == 8 * before.blocks
    assert colliding_warps(after) == before.blocks
    assert {one.lanes for one in after.global_accesses() if one.atomic} == {RAN}


def test_fused_kernels_move_each_tensor_of_the_call_once() -> None:
    before = case(step("x", "t"), step("t", "t"), step("t", "y"))
    after = changes.fused(before)
    kept = [(one.verb, one.tensor) for each in after.launches for one in each.traced.accesses]
    assert kept == [("reads", "x"), ("writes", "y")]
    assert (before.moved_bytes, after.moved_bytes) == pytest.approx((6 * 4 * N, 2 * 4 * N))
    through_y = changes.fused(case(step("x", "y"), step("y", "x")))  # what was written need not be read again
    assert through_y.moved_bytes == pytest.approx(3 * 4 * N)
