"""What a race found, as the report tells it."""

from __future__ import annotations

from grader.judge.cases import BoundSpeedCase
from grader.judge.race import Race
from grader.problem import Cost
from grader.protocol import MATRIX
from grader.report.model import BandResult, ContenderTime, Interval, RoundRecord, SpeedMeasurement
from grader.verdict.speed import Roofline, Verdict, milliseconds
from grader.verdict.statistics import Estimate


def band_results(case: BoundSpeedCase, verdict: Verdict) -> tuple[BandResult, ...]:
    """Each band of the case, and whether it is paid."""
    return tuple(
        BandResult(vs=band.vs, speedup=band.speedup, points=band.points, reached=reached, undecided=undecided)
        for band, reached, undecided in zip(case.speed.bands, verdict.reached, verdict.undecided, strict=True)
    )


def stopped(case: BoundSpeedCase, after_s: float) -> tuple[tuple[BandResult, ...], str]:
    """The bands of a submission that was stopped early, none of them paid, and a sentence for the student."""
    bands = tuple(
        BandResult(vs=band.vs, speedup=band.speedup, points=band.points, reached=False) for band in case.speed.bands
    )
    limit = case.assignment.spec.timing.slow_limit
    baselines = " or ".join(case.opponents)
    return bands, f"one call takes {milliseconds(after_s)}, more than {limit:g} times {baselines}: stopped there"


def measurement(case: BoundSpeedCase, race: Race, verdict: Verdict) -> SpeedMeasurement:
    """Every number of a race."""
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
                sm_clock_mhz=one.conditions.sm_clock_mhz,
                memory_clock_mhz=one.conditions.memory_clock_mhz,
                temperature_c=one.conditions.temperature_c,
                times_s=dict(lap.times_s),
                judged_s=lap.judged_s,
                repeats=one.repeats,
            )
            for one, lap in zip(race.rounds, race.laps, strict=True)
        ),
    )


def work_of(name: str, case: BoundSpeedCase, roofline: Roofline) -> Cost:
    """What one call of a contender does: the work of the case, or a yardstick's own."""
    if name != roofline.contender:
        return case.problem.cost(case.params, case.dtype)
    own = int(roofline.its_work)
    if name == "matmul":
        return Cost(bytes_moved=3 * 2 * MATRIX**2, flops=own)  # three matrices in bfloat16
    return Cost(bytes_moved=own, flops=0)


def _interval(estimate: Estimate) -> Interval:
    return Interval(median=estimate.median, low=estimate.low, high=estimate.high)
