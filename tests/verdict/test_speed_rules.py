"""The arithmetic of a benchmark run: how many calls make a batch, what the rounds come to, and when they have come to enough."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.assignment import Band, Timing
from grader.report.model import Alone, Round
from grader.verdict.speed import (
    HOST_NOISE_S,
    QUICK_ROUNDS,
    SHARE_OF_FREE_MEMORY,
    SHARE_OF_LIMIT,
    SUBMISSION,
    WARM_SETS,
    Roofline,
    SpeedRules,
    batch_sizes,
)
from grader.verdict.statistics import median_interval

MS = 1e-3
COPY = Roofline("copy", 1.0, 1.0)
SECONDS = st.floats(1e-6, 1.0)
CALLS = 10


def rules(*edges: float, **timing: Any) -> SpeedRules:
    return SpeedRules(Timing(**timing), [Band(vs="eager", speedup=edge, points=1) for edge in edges], COPY, CALLS)


def one(
    wall_ms: float = 14.0, nothing_ms: float = 4.0, eager_ms: float = 2.0, claim_ms: float = 1.0, copy_ms: float = 0.5
) -> Round:
    times_s = {"eager": eager_ms * MS, "copy": copy_ms * MS, SUBMISSION: claim_ms * MS}
    return Round(order=(SUBMISSION,), times_s=times_s, batch_s=wall_ms * MS, nothing_s=nothing_ms * MS)


def judged_ms(rounds: list[Round], alone: Alone | None = None) -> list[float]:
    return [judged_s / MS for judged_s in rules().times(rounds, alone or Alone())[1]]


# The rounds -----------------------------------------------------------------------------------------------------------


def test_what_a_batch_of_nothing_takes_is_subtracted() -> None:
    assert judged_ms([one(14.0), one(15.0)]) == pytest.approx([1.0, 1.1])


def test_one_stall_of_the_null_entrant_changes_nothing() -> None:
    assert judged_ms([one(), one(nothing_ms=20.0), one()]) == pytest.approx([1.0] * 3)


@pytest.mark.parametrize(
    ("nothing_ms", "alone_ms", "expected_ms"),
    [
        ([4.0, 4.2, 3.8, 9.0, 4.0], 4.0, 1.0),  # the usual one
        ([4.1] * 5, 4.0, 0.99),  # no longer alone than a host's noise may be
        ([6.0] * 5, 4.0, 1.0 - HOST_NOISE_S / MS / CALLS),  # somebody has slowed it down
        ([4.0] * 5, 6.0, 1.0),
    ],
)
def test_what_nothing_takes_in_the_rounds_counts_but_no_more_than_without_the_submission(
    nothing_ms: list[float], alone_ms: float, expected_ms: float
) -> None:
    rounds = [one(nothing_ms=each) for each in nothing_ms]
    assert judged_ms(rounds) == pytest.approx([1.4 - sorted(nothing_ms)[2] / CALLS] * 5)
    assert judged_ms(rounds, Alone(nothing_s=alone_ms * MS)) == pytest.approx([expected_ms] * 5)


def test_a_baseline_that_is_faster_without_the_submission_counts_as_that() -> None:
    rounds, alone = [one()] * 3, Alone(times_s={"eager": 1 * MS})
    of, _ = rules().times(rounds, alone)
    assert of["eager"] == pytest.approx([1.05 * MS] * 3)
    assert of[SUBMISSION] == [1 * MS] * 3
    verdict = rules().verdict(rounds, alone)
    assert verdict.speedups["eager"].high == pytest.approx(1.05)
    (flag,) = verdict.flags
    assert flag.startswith(
        "eager took 2 ms a call in the rounds, and 1 ms when the submission's process had been ended"
    )


@pytest.mark.parametrize("alone_s", [1.95 * MS, 2 * MS, 3 * MS, math.inf])
def test_a_baseline_that_is_no_faster_without_the_submission_counts_as_it_was(alone_s: float) -> None:
    rounds, alone = [one()] * 3, Alone(times_s={"eager": alone_s})
    assert rules().times(rounds, alone)[0]["eager"] == [2 * MS] * 3
    assert rules().verdict(rounds, alone).flags == ()


@given(
    st.lists(st.builds(one, st.floats(5, 50), st.floats(0.1, 5), st.floats(0.1, 50)), min_size=1, max_size=9),
    st.floats(0.1, 50),
    st.floats(0.1, 5),
)
def test_slowing_the_others_down_gains_no_more_than_the_margin_and_the_hosts_noise(
    rounds: list[Round], eager_ms: float, nothing_ms: float
) -> None:
    alone = Alone(times_s={"eager": eager_ms * MS}, nothing_s=nothing_ms * MS)
    held = rules()
    of, judged_s = held.times(rounds, alone)
    for eager_s, own_s, of_judge_s, one_round in zip(of["eager"], of[SUBMISSION], judged_s, rounds, strict=True):
        assert eager_s <= one_round.times_s["eager"]
        assert eager_s <= (1 + held.timing.margin) * eager_ms * MS + 1e-12
        assert own_s == one_round.times_s[SUBMISSION]
        assert of_judge_s >= (one_round.batch_s - nothing_ms * MS - HOST_NOISE_S) / CALLS - 1e-12
    beside = median_interval([each.nothing_s for each in rounds]).median
    quick = held.times(rounds, Alone(nothing_s=beside))[1]
    assert quick == pytest.approx(held.times(rounds, Alone())[1])


# Another round? -------------------------------------------------------------------------------------------------------

NOISE = one(14.6)  # lifts a claim of 1 ms by 6 %
LIE = one(19.0)
EDGE = (2.0,)  # of a band


@pytest.mark.parametrize(
    ("rounds", "spent_s", "worth"),
    [
        ([], 99.0, True),
        ([one()] * 4, 99.0, True),
        ([one()] * 5, 0.0, False),
        ([NOISE] * 5, 0.0, True),
        ([NOISE] * 6, 0.0, True),  # looked at after four more
        ([NOISE] * 8, 99.0, True),
        ([NOISE] * 9, 0.0, False),  # and once only
        ([NOISE] * 5, 12.0, False),
        ([LIE] * 5, 0.0, False),
        ([one(eager_ms=1.9), one(eager_ms=2.2)] * 3, 0.0, True),
        ([one(eager_ms=1.9), *[one(eager_ms=each) for each in (2.2, 1.9, 2.2, 2.1)]], 0.0, True),  # an edge in between
        ([one(eager_ms=1.9), *[one(eager_ms=each) for each in (2.2, 1.9, 2.2, 2.1)]], 12.0, False),
        ([one(eager_ms=each) for each in (2.5, 2.6, 2.5, 2.4, 2.6)], 0.0, False),
        ([NOISE] * 60, 0.0, False),
    ],
)
def test_further_rounds_are_for_bands_in_doubt_and_once_for_a_claim_that_is_lifted_a_little(
    rounds: list[Round], spent_s: float, worth: bool
) -> None:
    edges = EDGE if len({each.times_s["eager"] for each in rounds}) > 1 else ()
    held = rules(*edges)
    assert held.wants_another_round(rounds, spent_s, quick=False) is worth
    assert held.wants_another_round(rounds, spent_s, quick=True) is (len(rounds) < QUICK_ROUNDS)


@given(st.lists(st.builds(one, st.floats(5, 50), st.floats(0.1, 5), st.floats(1, 4)), min_size=60, max_size=60))
def test_a_run_has_an_end(rounds: list[Round]) -> None:
    held = rules(*EDGE)
    number = next(n for n in range(61) if not held.wants_another_round(rounds[:n], 0.0, quick=False))
    assert 5 <= number <= 60
    assert held.wants_another_round(rounds[:5], 99.0, quick=False) is False


# The size of a batch --------------------------------------------------------------------------------------------------

MANY = 1e15  # bytes, more than any batch takes


def test_a_batch_lasts_as_long_as_it_should() -> None:
    warm_s = {"eager": 1 * MS, "copy": 0.5 * MS, SUBMISSION: 2 * MS}
    sizes = batch_sizes(warm_s, 1, 0, MANY, Timing(batch_s=0.016), COPY)
    assert sizes.calls == {"eager": 16, "copy": 32, SUBMISSION: 16}  # as many as at twice the machine's limit
    assert sizes.wanted == 16


def test_where_memory_is_short_fewer_calls_fit_than_are_wanted() -> None:
    sizes = batch_sizes({"copy": 0.5 * MS, SUBMISSION: 1 * MS}, 1 << 30, 0, 10 * 2**30, Timing(batch_s=0.016), COPY)
    assert sizes.calls[SUBMISSION] == int(10 * SHARE_OF_FREE_MEMORY)
    assert sizes.wanted == 16


@given(
    st.fixed_dictionaries({"eager": SECONDS, "copy": SECONDS, SUBMISSION: st.floats(0, 1)}),
    st.integers(1, 1 << 32),
    st.integers(0, 1 << 26),
    st.floats(0, 2e11),
)
def test_a_submission_does_not_choose_how_many_calls_there_are(
    warm_s: dict[str, float], set_bytes: int, cache_bytes: int, free_bytes: float
) -> None:
    rules = Timing()
    sizes = batch_sizes(warm_s, set_bytes, cache_bytes, free_bytes, rules, COPY)
    others = batch_sizes(warm_s | {SUBMISSION: 1.0}, set_bytes, cache_bytes, free_bytes, rules, COPY)
    assert sizes.wanted == others.wanted <= rules.max_calls
    most = max(sizes.calls.values())
    assert most * set_bytes <= max(SHARE_OF_FREE_MEMORY * free_bytes * (1 + 1e-9), WARM_SETS * set_bytes)
    room = int(SHARE_OF_FREE_MEMORY * free_bytes / set_bytes)
    for calls in sizes.calls.values():
        assert WARM_SETS <= calls <= rules.max_calls
        assert calls * set_bytes >= 4 * cache_bytes or calls in (rules.max_calls, max(room, WARM_SETS))
    lasts_s = sizes.calls[SUBMISSION] * SHARE_OF_LIMIT * warm_s["copy"]
    assert lasts_s >= rules.batch_s or sizes.calls[SUBMISSION] in (rules.max_calls, max(room, WARM_SETS))
