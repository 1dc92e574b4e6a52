"""A speed case from its first race to its verdict, with a second race where the judge's clock has counted more than was claimed.

That clock is a few percent off now and then: it counts how long results take to be collected, which differs from batch to batch and from
worker to worker. On an H200 an honest claim was lifted in 1 of 80 races. So a race that it lifts a little has further rounds
(`Race.is_worth_another_round`), and where that does not settle it there is a second race, with a new worker. A false claim is as far off
there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from grader.contender.contender import Contender
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.measurement import measurement
from grader.judge.race import Race
from grader.judge.track import Track
from grader.report.model import SpeedMeasurement
from grader.verdict.speed import Verdict, milliseconds


@dataclass(frozen=True)
class Heat:
    """What a race found. `stopped_after_s` is all there is where a call takes so long that there were no rounds."""

    verdict: Verdict | None = None
    measured: SpeedMeasurement | None = None
    stopped_after_s: float | None = None

    @property
    def is_doubted(self) -> bool:
        """Whether the judge's clock counts, and not the claim."""
        return self.verdict is not None and self.verdict.is_doubted


def run_heat(track: Track, case: BoundSpeedCase, contender: Contender, evidence: Evidence) -> Heat:
    """One race. Raises as `Race` does. What it held of the GPU's memory is free afterwards."""
    with Race(track, case, contender, evidence) as race:
        if race.stopped_after_s is not None:
            return Heat(stopped_after_s=race.stopped_after_s)
        while len(race.rounds) < race.first_rounds:
            race.round()
        while race.is_worth_another_round():
            race.round()
        race.look_again()
        race.end_submission()
        verdict = race.verdict()
    return Heat(verdict, measurement(case, race, verdict))


def run_second_heat(
    track: Track, case: BoundSpeedCase, doubted: Heat, contender: Contender, evidence: Evidence
) -> Heat:
    """The race of a new worker after one whose claim was lifted: the one of both that lifts it less.

    So a forger has two draws of the clock's noise. Raises as `Race` does.
    """
    second = run_heat(track, case, contender, evidence)
    if second.verdict is None or doubted.verdict is None:
        return doubted
    if second.verdict.lift >= doubted.verdict.lift:
        return _told(doubted, "second", second.verdict)
    return _told(second, "first", doubted.verdict)


def _told(heat: Heat, number: str, other: Verdict) -> Heat:
    """The race that counts, with what was found in the other one."""
    assert heat.verdict is not None
    assert heat.measured is not None
    flags = (
        *heat.verdict.flags,
        f"raced twice: in the {number} race the worker said {milliseconds(other.claimed.median)} a call, by the judge's clock it was "
        f"{milliseconds(other.judged.median)}",
    )
    return Heat(replace(heat.verdict, flags=flags), heat.measured.model_copy(update={"flags": flags}))
