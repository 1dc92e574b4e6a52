"""Remarks come in the order of what they cost, at most three, each of another cause, and no effect beside its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.report.profile import MAX_REMARKS, Remark
from grader.verdict.remarks import BEFORE, remarks
from grader.verdict.rules import SPILLS_BYTES, WORTH
from grader.verdict.traffic import Facts
from tests.support.traces import elementwise, of_programs, rows
from tests.verdict.test_rules import (
    BYTES,
    CAUSES,
    CONFLICTS,
    COPY,
    COUNTER,
    DOWN,
    FLOAT4,
    ONE_PASS,
    PIECES,
    THREE_PASSES,
    ZEROS,
    case,
    changed,
    products,
)


def test_what_costs_more_comes_first_and_costs_are_of_the_prediction() -> None:
    slow = case(elementwise(), operators=(COPY, ZEROS))
    found = remarks(slow)
    costs = [one.costs_ms or 0.0 for one in found]
    assert costs == sorted(costs, reverse=True)
    assert {one.cause for one in found} == {"copies", "narrow-loads", "fills"}
    copied = next(one for one in found if one.cause == "copies")
    assert copied.costs_ms == pytest.approx((slow.seconds - replace(slow, operators=(ZEROS,)).seconds) * 1e3)
    assert (copied.file, copied.line) == ("kernel.py", 33)


def test_at_most_three_remarks_each_of_another_cause() -> None:
    worst = case(changed(elementwise(32), sectors=16), rows(3), DOWN, operators=(COPY, ZEROS))
    found = remarks(worst)
    assert len(found) == MAX_REMARKS
    assert len({one.cause for one in found}) == MAX_REMARKS


def test_no_time_is_told_where_counts_are_too_low() -> None:
    (one,) = remarks(case(replace(THREE_PASSES, cut=True)))
    assert (one.cause, one.costs_ms) == ("read-again", None)
    assert "Predicted" not in one.sentence


def test_a_plain_cause_is_told_without_a_gain_where_its_gain_is_small() -> None:
    both = case(ONE_PASS, FLOAT4, needed_bytes=2 * BYTES)
    few, many = (
        replace(
            both,
            launches=(replace(both.launches[0], facts=Facts(registers=64, spilled_bytes=spilled)), both.launches[1]),
        )
        for spilled in (SPILLS_BYTES - 1, SPILLS_BYTES)
    )
    assert 0 < many.seconds - both.seconds < WORTH * many.seconds
    assert remarks(few) == ()
    (told,) = remarks(many)
    assert (told.cause, told.costs_ms) == ("spills", None)
    assert "Predicted" not in told.sentence


def test_an_effect_is_not_told_beside_its_cause() -> None:
    assert [one.cause for one in remarks(case(elementwise(32)))] == ["small-blocks"], "and not narrow loads"
    assert [one.cause for one in remarks(case(DOWN))] == ["strided-by-rows"]
    told = CAUSES | {"reloads"}
    assert all({cause, *others} <= told for cause, others in BEFORE.items()), "each name is of a rule"


@pytest.mark.parametrize("grid", [(0, 0, 0), (1 << 40,) * 3])
def test_no_number_of_a_worker_raises(grid: tuple[int, int, int]) -> None:
    strange = replace(of_programs("reads", "x_ptr", 1, 0), steps=(1 << 62, -(1 << 62)), block=(0, 1 << 40))
    wild = [
        replace(one, grid=grid, ran=ran, threads=threads, accesses=(*one.accesses, strange), launches=1 << 40)
        for one in (FLOAT4, COUNTER, CONFLICTS, products(1e30), PIECES)
        for ran in (0, 1 << 40)
        for threads in (0, 1 << 40)
    ]
    for one in wild:
        found: tuple[Remark, ...] = remarks(case(one, facts=Facts(registers=255, doubles=1, spilled_bytes=1 << 40)))
        assert len(found) <= MAX_REMARKS
