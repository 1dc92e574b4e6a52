"""A speed case from its first race to its verdict, with a second race where the judge's clock has counted more than was claimed.

That clock is a few percent off now and then: it counts how long results take to be collected, which differs from batch to batch and from
worker to worker. On an H200 an honest claim was lifted in 1 of 80 races. So a race that it lifts a little has further rounds
(`Tally.wants_another_round`), and where that does not settle it there is a second race, with a new worker. A false claim is as far off
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from grader.contender.contender import Contender
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.lineup import Lineup
from grader.judge.measurement import measurement
from grader.judge.race import race
from grader.judge.track import Track
from grader.judge.warmup import FarTooSlow, warm_up
from grader.report.model import SpeedMeasurement
from grader.verdict.speed import Verdict, milliseconds


@dataclass(frozen=True)
class Heat:
    """The verdict on a race, and its numbers for the report."""

    verdict: Verdict
    measured: SpeedMeasurement


def run_heat(track: Track, case: BoundSpeedCase, contender: Contender, evidence: Evidence) -> Heat:
    """One race. What it held of the GPU's memory is free afterwards. Raises as `Batches` does, and FarTooSlow."""
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
    """The race of a new worker after one whose claim was lifted: the one of both that lifts it less.

    So a forger has two draws of the clock's noise. Raises as `Batches` does.
    """
    try:
        second = run_heat(track, case, contender, evidence)
    except FarTooSlow:
        return doubted
    if second.verdict.lift >= doubted.verdict.lift:
        return _told(doubted, "second", second.verdict)
    return _told(second, "first", doubted.verdict)


def _told(heat: Heat, number: str, other: Verdict) -> Heat:
    """The race that counts, with what was found in the other one."""
    flags = (
        *heat.verdict.flags,
        f"raced twice: in the {number} race the worker said {milliseconds(other.claimed.median)} a call, by the judge's clock it was "
        f"{milliseconds(other.judged.median)}",
    )
    return Heat(replace(heat.verdict, flags=flags), heat.measured.model_copy(update={"flags": flags}))
