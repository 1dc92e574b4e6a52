"""From times to a verdict: whose clock counts, what the machine's limit allows, and which bands are paid, with known numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.assignment import Band, Timing
from grader.report.model import UNDECIDED, Alone, BandResult, Outcome, Points, Round
from grader.verdict.scoring import speed_points
from grader.verdict.speed import (
    BEYOND_ROOFLINE,
    RESOLUTION_S,
    SUBMISSION,
    Roofline,
    SpeedRules,
    Verdict,
    milliseconds,
)
from grader.verdict.statistics import median_interval

MS = 1e-3
MARGIN = 0.05
BANDS = (Band(vs="eager", speedup=1.5, points=1), Band(vs="compile", speedup=1.0, points=2))
COPY = Roofline("copy", its_work=1.0, case_work=1.0)  # a copy of just the case's bytes


def rounds_of(times_ms: Mapping[str, Sequence[float]], judged_ms: Sequence[float] | None = None) -> list[Round]:
    """Rounds of one call, by entrant; without others the judge's clock agrees with every claim."""
    clock = times_ms[SUBMISSION] if judged_ms is None else judged_ms
    return [
        Round(
            order=(SUBMISSION,),
            times_s={name: times[at] * MS for name, times in times_ms.items()},
            batch_s=judged * MS,
            nothing_s=0.0,
        )
        for at, judged in enumerate(clock)
    ]


def times_of(
    claims: Sequence[float],
    judged: Sequence[float] | None = None,
    *,
    eager: float = 2.0,
    compiled: float = 1.0,
    copy: float = 0.5,
) -> list[Round]:
    others = {"eager": eager, "compile": compiled, "copy": copy}
    return rounds_of({name: [time] * len(claims) for name, time in others.items()} | {SUBMISSION: claims}, judged)


def verdict_on(rounds: Sequence[Round], bands: Sequence[Band] = BANDS, roofline: Roofline = COPY) -> Verdict:
    return SpeedRules(Timing(margin=MARGIN), bands, roofline, calls=1).verdict(rounds, Alone())


# Whose clock counts ---------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """The verdict on these times in milliseconds; the judge's clock agrees with every claim unless `judged` says otherwise.

    counted: the submission's time that counts, in each round. flags: what each is known by.
    """

    claims: Sequence[float]
    judged: Sequence[float] | None
    counted: Sequence[float]
    corroborated: bool = True
    flags: tuple[str, ...] = ()
    copy: float = 0.5


NOT_CORROBORATED, BEYOND, USELESS = "not corroborated: ", "beyond the roofline: ", "less than this machine can do: "
LONGER = (
    "by the judge's clock calls took longer in 3 of 5 rounds: the worker says 1 ms a call, 1.33 ms counts; "
    "batches may be too short for that clock"
)
VERDICTS = {
    # The worker's clock is the finer one: the judge's noise does not enter.
    "a claim that the judge confirms": Told([1.0] * 7, [0.98, 1.03, 1.0, 1.01, 0.99, 1.02, 1.0], [1.0] * 7),
    # Nobody overstates; where it happens it costs only the one who does.
    "a claim above the judge's time": Told([1.3] * 3, [1.0] * 3, [1.3] * 3),
    "a claim far below the judge's time": Told([0.6] * 3, [1.2] * 3, [1.2] * 3, False, (NOT_CORROBORATED,)),
    "a larger claim, in its round alone": Told(
        [0.6, 0.6, 1.5], [1.2] * 3, [1.2, 1.2, 1.5], False, (NOT_CORROBORATED, "undecided: ")
    ),
    "a claim within the margin": Told([0.9501] * 5, [1.0] * 5, [0.9501] * 5),
    "a claim beyond the margin": Told([0.9499] * 5, [1.0] * 5, [1.0] * 5, False, (NOT_CORROBORATED,)),
    # The judge's clock is coarse: where its interval goes from 0.9 to 1.1, a claim of 0.86 does not contradict it.
    "a claim within the margin of the interval": Told(
        [0.8551] * 3, [1.0, 0.9, 1.1], [0.95] * 3, True, ("took longer in 2 of 3 rounds",)
    ),
    "a claim beyond the margin of the interval": Told(
        [0.8549] * 3, [1.0, 0.9, 1.1], [1.0, 1.0, 1.1], False, (NOT_CORROBORATED, "undecided: ")
    ),
    # The lower end of the judge's interval agrees with the claim; most rounds do not.
    "a claim that stands, and far more that counts": Told(
        [1.0] * 5, [1.0, 1.0, 1.4, 1.4, 1.4], [1.33] * 5, True, (LONGER,)
    ),
    "a round that was faster by both clocks": Told([0.7] + [1.0] * 6, [0.7] + [1.0] * 6, [0.7] + [1.0] * 6),
    "a claim of nothing at all": Told([0.0] * 5, [1.0] * 5, [1.0] * 5, False, (NOT_CORROBORATED,)),
    # The null worker may seem slower than a tiny case: its noise must not be worth points.
    "less than nothing by the judge's clock": Told(
        [0.0] * 5, [-0.01, -0.02, 0.0, -0.01, -0.03], [0.5] * 5, True, (USELESS, BEYOND)
    ),
    "a clock that shows less than the machine can do": Told([1.0] * 5, [0.39] * 5, [1.0] * 5, True, (USELESS,)),
    "a clock that shows nearly what the machine can do": Told([1.0] * 5, [0.41] * 5, [1.0] * 5),
    "a useless clock, and one slow round": Told(
        [0.5] * 5, [0.05, 0.05, 0.05, 0.05, 2.0], [0.5] * 5, True, (USELESS,), copy=0.4
    ),
    "beyond the machine": Told(
        [0.4] * 3, None, [0.5] * 3, True, (f"{BEYOND}125% of what this machine does at most (copy); ",)
    ),
    # 0.5 / 1.05 = 0.47619
    "a few percent beyond the machine, its noise": Told([0.4763] * 3, None, [0.4763] * 3),
    "a little more than its noise": Told([0.4761] * 3, None, [0.5] * 3, True, (BEYOND,)),
    "one round beyond the machine": Told([0.4, 0.6, 0.6, 0.6, 0.6], None, [0.5, 0.6, 0.6, 0.6, 0.6]),
    "a forged claim, and a judge's time that is impossible too": Told(
        [0.1] * 3, [0.2] * 3, [0.5] * 3, False, (NOT_CORROBORATED, USELESS, BEYOND)
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_time_that_counts_in_each_round_and_what_is_told_of_it(name: str) -> None:
    told = VERDICTS[name]
    verdict = verdict_on(times_of(told.claims, told.judged, copy=told.copy))
    assert [one / MS for one in verdict.counted_s] == pytest.approx(told.counted)
    assert verdict.counted["submission"] == median_interval(verdict.counted_s)
    assert verdict.corroborated is told.corroborated
    assert len(verdict.flags) == len(told.flags), verdict.flags
    assert all(words in flag for words, flag in zip(told.flags, verdict.flags, strict=True))
    judged = told.claims if told.judged is None else told.judged
    assert verdict.judged == median_interval([one * MS for one in judged])
    assert verdict.claimed == median_interval([max(one * MS, RESOLUTION_S) for one in told.claims])


def test_speedups_and_bands_go_by_the_time_that_counts() -> None:
    verdict = verdict_on(times_of([0.6] * 3, [1.2345] * 3))
    assert verdict.flags == (
        "not corroborated: the worker says 0.6 ms a call, by the judge's clock it was 1.234 ms; the judge's time counts",
    )
    assert verdict.speedups["eager"].median == pytest.approx(2.0 / 1.2345)
    assert verdict.speedups["compile"].median == pytest.approx(1.0 / 1.2345)
    assert verdict.reached == (True, False)


@pytest.mark.parametrize("forged", [1, 2, 3])
@pytest.mark.parametrize("claim", [0.0, 0.3])
def test_claims_forged_in_a_few_rounds_gain_no_more_than_the_margin(forged: int, claim: float) -> None:
    """The medians agree, so the claims stand; but a band is held against the upper end of the interval."""
    verdict = verdict_on(
        times_of([claim] * forged + [1.0] * (7 - forged), [1.0] * 7, copy=0.1),
        [Band(vs="eager", speedup=2.2, points=1)],
    )
    assert verdict.corroborated
    assert verdict.speedups["eager"].high <= 2.0 / (1 - MARGIN) + 1e-9
    assert min(verdict.counted_s) >= (1 - MARGIN) * MS - 1e-12
    assert verdict.reached == (False,)


@pytest.mark.parametrize("lucky", [0.5, 0.0, -0.3])
@pytest.mark.parametrize("claim", [0.1, 0.5, 0.9])
def test_one_lucky_round_of_the_judges_clock_pays_no_lie(lucky: float, claim: float) -> None:
    """Of five rounds the interval's lower end is the shortest; what counts goes by their median."""
    bands = [Band(vs="eager", speedup=2.0, points=1), Band(vs="eager", speedup=2.2, points=1)]
    verdict = verdict_on(times_of([claim] * 5, [lucky, 1.0, 1.0, 1.0, 1.0], copy=0.001), bands)
    assert verdict.counted["submission"].median >= (1 - MARGIN) * MS
    assert verdict.speedups["eager"].high <= 2.0 / (1 - MARGIN) + 1e-9
    assert verdict.reached == (True, False)


def test_a_claim_that_the_roofline_alone_lifts_is_not_in_doubt() -> None:
    """A second race would not tell anything else."""
    verdict = verdict_on(times_of([0.45] * 5, [0.45] * 5, copy=0.5))
    assert verdict.counted["submission"].median == pytest.approx(0.5 * MS)
    assert (verdict.discrepancy, verdict.clocks_disagree) == (pytest.approx(0), False)
    lied = verdict_on(times_of([0.45] * 5, [0.5] * 5, copy=0.5))
    assert lied.discrepancy == pytest.approx(0.5 / 0.45 - 1)
    assert lied.clocks_disagree


# Laws ----------------------------------------------------------------------------------------------------------------

clocks = st.floats(-1.0, 3.0)
claims = st.one_of(st.just(0.0), st.floats(0.0, 3.0))


@given(st.lists(st.tuples(claims, clocks), min_size=1, max_size=12), st.floats(0.01, 1.0))
def test_no_claim_and_no_noise_gets_beyond_the_machines_limit(pairs: list[tuple[float, float]], copy: float) -> None:
    verdict = verdict_on(times_of(*zip(*pairs, strict=True), copy=copy))
    assert min(verdict.counted_s) >= copy * MS / BEYOND_ROOFLINE * (1 - 1e-12)
    assert verdict.speedups["eager"].high <= BEYOND_ROOFLINE * 2.0 / copy * (1 + 1e-12)
    assert verdict.shares["submission"] <= BEYOND_ROOFLINE * (1 + 1e-12)


@given(st.lists(st.tuples(claims, st.floats(0.1, 3.0)), min_size=1, max_size=12))
def test_a_claim_never_gains_more_than_the_margin_in_any_round(pairs: list[tuple[float, float]]) -> None:
    rounds = times_of(*zip(*pairs, strict=True), copy=0.001)
    low = median_interval([one.batch_s for one in rounds]).low
    for one, counted in zip(rounds, verdict_on(rounds).counted_s, strict=True):
        assert counted >= (1 - MARGIN) * min(one.batch_s, low) - 1e-15
        assert counted >= one.times_s[SUBMISSION]


@given(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=9), st.floats(0.0, 1.0))
def test_a_lower_claim_with_the_same_judge_is_never_paid_beyond_the_margin(clock: list[float], part: float) -> None:
    honest = verdict_on(times_of(clock, clock, copy=0.001))
    forged = verdict_on(times_of([part * one for one in clock], clock, copy=0.001))
    assert forged.speedups["eager"].median <= honest.speedups["eager"].high / (1 - MARGIN) * (1 + 1e-9)


# The roofline ---------------------------------------------------------------------------------------------------------


def test_flops_are_held_against_a_matrix_product() -> None:
    """8192³ products and sums in 1.5 ms are 733 TFLOP/s; a case of 2.2e11 FLOPs needs 0.3 ms, and takes 0.6."""
    work = 2 * 8192**3
    roofline = Roofline("matmul", its_work=work, case_work=work / 5)
    rounds = rounds_of({"eager": [1.2] * 3, "matmul": [1.5] * 3, "submission": [0.6] * 3})
    assert roofline.limit_s(1.5 * MS) == pytest.approx(0.3 * MS)
    verdict = verdict_on(rounds, [Band(vs="eager", speedup=2, points=1)], roofline)
    assert verdict.shares == pytest.approx({"submission": 0.5, "eager": 0.25, "matmul": 0.2})


def test_shares_are_taken_round_by_round() -> None:
    """When the copy slows down with everybody else, nobody's share changes."""
    slower = (1.0, 1.5, 3.0)
    shares = {"eager": 2, "copy": 0.5, "submission": 1}
    verdict = verdict_on(rounds_of({name: [share * by for by in slower] for name, share in shares.items()}), BANDS[:1])
    assert verdict.shares == pytest.approx({"submission": 0.5, "eager": 0.25, "copy": 1.0})
    assert verdict.speedups["eager"].high == pytest.approx(verdict.speedups["eager"].low)


def test_a_baseline_may_be_beyond_the_machine_without_a_word() -> None:
    verdict = verdict_on(times_of([1.0] * 3, compiled=0.25, copy=0.5))
    assert verdict.shares["compile"] == pytest.approx(2.0)
    assert verdict.flags == ()


# Bands ----------------------------------------------------------------------------------------------------------------


SPREAD = [0.8, 0.85, 0.9, 1.0, 1.1, 1.2, 1.25]  # 2 × eager in the median, anything from 1.6 to 2.5 in the rounds


@pytest.mark.parametrize(
    ("claims", "edges", "reached", "undecided"),
    [
        # 2 × eager, 1 × torch.compile.
        (
            [1.0] * 5,
            [("eager", 0.5), ("compile", 1.1), ("eager", 1.9), ("eager", 2.1), ("compile", 0.9), ("compile", 1.0)],
            (True, False, True, False, True, True),
            (False,) * 6,
        ),
        ([1.0], [("eager", 1.5), ("compile", 1.0)], (True, True), (False, False)),  # one round is enough
        (
            SPREAD,
            [("eager", 1.5), ("eager", 2.0), ("eager", 2.2), ("eager", 2.4)],
            (True, True, True, False),
            (False, True, True, False),
        ),
        (SPREAD, [("eager", 2.0), ("compile", 1.0)], (True, True), (True, True)),
    ],
)
def test_every_band_is_decided_in_its_order_and_paid_and_flagged_in_doubt(
    claims: list[float], edges: list[tuple[Any, float]], reached: tuple[bool, ...], undecided: tuple[bool, ...]
) -> None:
    verdict = verdict_on(times_of(claims), [Band(vs=vs, speedup=edge, points=1) for vs, edge in edges])
    assert (verdict.reached, verdict.undecided) == (reached, undecided)
    assert verdict.flags == tuple(
        f"undecided: {edge:g} × {vs} lies inside the interval even so; you have the band"
        for (vs, edge), doubt in zip(edges, undecided, strict=True)
        if doubt
    )


def test_speedups_are_of_everyone_but_the_submission() -> None:
    verdict = verdict_on(times_of([1.0] * 5))
    assert {name: one.median for name, one in verdict.speedups.items()} == pytest.approx(
        {"eager": 2.0, "compile": 1.0, "copy": 0.5}
    )
    assert set(verdict.counted) == {"eager", "compile", "copy", "submission"}


@given(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=9), st.sampled_from([1.5, 2.0, 8.0]))
def test_slower_code_reaches_no_band_that_faster_code_missed(times: list[float], by: float) -> None:
    bands = [Band(vs="eager", speedup=edge, points=1) for edge in (0.25, 0.5, 1.0, 2.0, 4.0)]
    fast, slow = (verdict_on(times_of([by * t for t in times], copy=0.01), bands) for by in (1.0, by))
    assert all(faster or not slower for faster, slower in zip(fast.reached, slow.reached, strict=True))


def test_times_are_told_in_milliseconds_with_four_digits() -> None:
    assert [milliseconds(s) for s in (1.23456e-4, 2.0, 1e-9)] == ["0.1235 ms", "2000 ms", "1e-06 ms"]


# Points ---------------------------------------------------------------------------------------------------------------

EDGES = (0.5, 0.9, 1.1)
WORTH = tuple(Band(vs="eager", speedup=edge, points=points) for edge, points in zip(EDGES, (1, 2, 1.5), strict=True))
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


def results(*reached: bool) -> list[BandResult]:
    return [BandResult(**band.model_dump(), reached=one) for band, one in zip(WORTH, reached, strict=True)]


@pytest.mark.parametrize(
    ("reached", "earned"),
    [((False, False, False), 0), ((True, False, False), 1), ((True, True, False), 3), ((True, True, True), 4.5)],
)
def test_each_band_that_is_reached_is_paid_also_where_it_is_in_doubt(reached: tuple[bool, ...], earned: float) -> None:
    for in_doubt in (False, True):
        bands = [one.model_copy(update={"undecided": in_doubt and one.reached}) for one in results(*reached)]
        assert speed_points(WORTH, bands, "passed") == Points(earned=earned, graded=4.5, possible=4.5)


@pytest.mark.parametrize("outcome", sorted(set(OUTCOMES) - UNDECIDED - {"passed"}))
def test_what_failed_earns_nothing_whatever_was_reached(outcome: Outcome) -> None:
    for bands in ((), results(True, True, True)):
        assert speed_points(WORTH, bands, outcome) == Points(earned=0, graded=4.5, possible=4.5)


@pytest.mark.parametrize("outcome", sorted(UNDECIDED))
def test_what_could_not_be_timed_is_not_graded_and_never_lost(outcome: Outcome) -> None:
    for bands in ((), results(True, True, True)):
        assert speed_points(WORTH, bands, outcome) == Points(earned=0, graded=0, possible=4.5)


@pytest.mark.parametrize("calls", [4, 128])
def test_calls_merged_into_one_launch_count_as_no_faster_than_a_copy_with_a_launch_each(calls: int) -> None:
    """Where a call is little more than its launch, a merged batch takes what one call does: by both clocks, for all of it is timed."""
    launch = 3e-3
    bands = [Band(vs="eager", speedup=1.9, points=1), Band(vs="eager", speedup=2.1, points=1)]
    verdict = verdict_on(times_of([launch / calls] * 5, eager=2 * launch, copy=launch), bands)
    assert verdict.counted[SUBMISSION].median == pytest.approx(launch * MS)
    assert verdict.reached == (True, False)
    assert any("beyond the roofline" in flag for flag in verdict.flags)
