"""Runs the heats of a speed case: a race, and a second race with a new worker if the verdict of the first is doubted.

The judge's clock is a few percent off now and then, because collecting results takes a varying time. So it sometimes
doubts an honest claim. A race whose claim is lifted a little has further rounds (`Tally.wants_another_round`). If these
do not settle the doubt, a second race decides: a false claim is as far off there as in the first.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from grader.contender.contender import Contender
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.race import FarTooSlow, Race, race, warm_up
from grader.judge.track import Lineup, Track
from grader.problem import Cost
from grader.protocol import MATRIX
from grader.report.model import BandResult, ContenderTime, Interval, RoundRecord, SpeedMeasurement
from grader.verdict.speed import Roofline, Verdict, milliseconds
from grader.verdict.statistics import Estimate


@dataclass(frozen=True)
class Heat:
    """A race that has ended: its verdict, and its numbers for the report."""

    verdict: Verdict
    measured: SpeedMeasurement


def run_heat(track: Track, case: BoundSpeedCase, contender: Contender, evidence: Evidence) -> Heat:
    """Run one race. Raises as `Batches` does, and FarTooSlow. The race has freed its GPU memory afterwards."""
    lineup = Lineup(track, case, contender)
    warm = warm_up(track, case, lineup, evidence)
    with race(track, case, lineup, warm) as timed:
        while timed.wants_another_round():
            timed.round()
        timed.look_again()
        timed.end_submission()
        verdict = timed.verdict()
    return Heat(verdict, measurement(case, timed, verdict))


def run_second_heat(
    track: Track, case: BoundSpeedCase, doubted: Heat, contender: Contender, evidence: Evidence
) -> Heat:
    """Race again with a new worker after a race whose claim was lifted. Returns the race with the smaller lift, and a
    flag about the other.

    So a forger gets two draws of the clock's noise. Raises as `Batches` does.
    """
    try:
        second = run_heat(track, case, contender, evidence)
    except FarTooSlow:
        return doubted
    heat, number, other = second, "first", doubted.verdict
    if second.verdict.lift >= doubted.verdict.lift:
        heat, number, other = doubted, "second", second.verdict
    claimed, judged = milliseconds(other.claimed.median), milliseconds(other.judged.median)
    words = f"raced twice: in the {number} race the worker said {claimed} a call, by the judge's clock it was {judged}"
    flags = (*heat.verdict.flags, words)
    return Heat(replace(heat.verdict, flags=flags), heat.measured.model_copy(update={"flags": flags}))


def band_results(case: BoundSpeedCase, verdict: Verdict) -> tuple[BandResult, ...]:
    """The case's bands, each with whether it was reached."""
    ends = zip(case.speed.bands, verdict.reached, verdict.undecided, strict=True)
    return tuple(BandResult(**dict(band), reached=reached, undecided=undecided) for band, reached, undecided in ends)


def stopped(case: BoundSpeedCase, after_s: float) -> tuple[tuple[BandResult, ...], str]:
    """The bands of a submission that is far too slow, none reached, and a sentence for the student."""
    bands = tuple(BandResult(**dict(band), reached=False) for band in case.speed.bands)
    limit = case.assignment.spec.timing.slow_limit
    baselines = " or ".join(case.opponents)
    return bands, f"one call takes {milliseconds(after_s)}, more than {limit:g} times {baselines}: stopped there"


def measurement(case: BoundSpeedCase, race: Race, verdict: Verdict) -> SpeedMeasurement:
    """A race's numbers for the report."""
    contenders = tuple(
        ContenderTime(
            name=name,
            time_s=_interval(counted),
            calls=race.calls[name],
            bytes_per_s=(work := work_of(name, case, race.roofline)).bytes_moved / counted.median,
            flops_per_s=work.flops / counted.median,
            roofline_share=verdict.shares[name],
            speedup=_interval(verdict.speedups[name]) if name in verdict.speedups else None,
        )
        for name, counted in sorted(verdict.counted.items(), key=lambda pair: pair[1].median)
    )
    return SpeedMeasurement(
        roofline=case.speed.roofline,
        contenders=contenders,
        claimed_s=_interval(verdict.claimed),
        judged_s=_interval(verdict.judged),
        corroborated=verdict.corroborated,
        flags=verdict.flags,
        rounds=tuple(
            RoundRecord(
                order=one.order,
                times_s=dict(lap.times_s),
                judged_s=lap.judged_s,
                repeats=one.repeats,
                **asdict(one.conditions),
            )
            for one, lap in zip(race.rounds, race.laps, strict=True)
        ),
    )


def work_of(name: str, case: BoundSpeedCase, roofline: Roofline) -> Cost:
    """The work of one call of a contender: the case's, or the yardstick's own."""
    if name != roofline.contender:
        return case.problem.cost(case.params, case.dtype)
    own = int(roofline.its_work)
    if name == "matmul":
        return Cost(bytes_moved=3 * 2 * MATRIX**2, flops=own)  # three matrices in bfloat16
    return Cost(bytes_moved=own, flops=0)


def _interval(estimate: Estimate) -> Interval:
    return Interval(**asdict(estimate))
