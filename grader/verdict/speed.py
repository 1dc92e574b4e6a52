"""Turns the times of a race into a verdict: the clock that counts, the speed-ups, the reached bands, and flags for a TA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.assignment import Band
from grader.verdict.statistics import Estimate, median_interval, reach, speedup

SUBMISSION = "submission"
BEYOND_ROOFLINE = 1.05
RESOLUTION_S = 1e-9
DOUBT = 0.005  # A verdict is doubted where the judge's clock raises the claim by more than this share.
IMPOSSIBLE = 0.8  # No code takes less than this share of the roofline's time.


@dataclass(frozen=True)
class Lap:
    """One round of a race.

    times_s: seconds of a call by contender, as its worker claims.
    judged_s: seconds of a call of the submission, by the judge's clock.
    """

    times_s: Mapping[str, float]
    judged_s: float


@dataclass(frozen=True)
class Roofline:
    """The machine's limit: the yardstick that shows it, the work of a call of that yardstick, and the work of a call of the case.

    Work is in bytes if the yardstick is a device copy, in FLOPs if it is a matrix product.
    """

    contender: str
    its_work: float
    case_work: float

    def limit_s(self, lap: Lap) -> float:
        """Seconds that a call of the case takes at the yardstick's rate in this round."""
        return lap.times_s[self.contender] * self.case_work / self.its_work


@dataclass(frozen=True)
class Verdict:
    """The verdict on a race's rounds. Times are seconds of a call.

    claimed, judged: the submission's time by its worker's clock and by the judge's.
    corroborated: whether the claim counts; otherwise the judge's time does.
    counted_s: the submission's time that counts, by round. counted: the time that counts, by contender.
    speedups: baseline time / submission time, by baseline.
    reached, undecided: by band, whether its points are earned, and whether its edge lies inside the interval.
    shares: of the roofline, by contender.
    lift: by how much the judge's clock lifts the claim, as a share of the claim; the roofline may lift the claim
        further.
    flags: sentences for a TA.
    """

    claimed: Estimate
    judged: Estimate
    corroborated: bool
    counted_s: tuple[float, ...]
    counted: Mapping[str, Estimate]
    speedups: Mapping[str, Estimate]
    reached: tuple[bool, ...]
    undecided: tuple[bool, ...]
    shares: Mapping[str, float]
    lift: float
    flags: tuple[str, ...]

    @property
    def is_doubted(self) -> bool:
        """Whether the judge's clock lifts the claim by more than DOUBT."""
        return self.lift > DOUBT


def judge_laps(laps: Sequence[Lap], bands: Sequence[Band], roofline: Roofline, margin: float) -> Verdict:
    """The verdict on one case.

    Args:
        laps: at least one.
        bands: as problem.toml has them; every lap has the baseline of each band.
        margin: how far below the judge's time a claim may lie, relative to the judge's time.
    """
    claims = [max(lap.times_s[SUBMISSION], RESOLUTION_S) for lap in laps]
    claimed, judged = median_interval(claims), median_interval([lap.judged_s for lap in laps])
    limits = [roofline.limit_s(lap) for lap in laps]
    corroborated = claimed.median >= (1 - margin) * judged.low
    by_clocks, flags = _by_both_clocks(claims, [lap.judged_s for lap in laps], corroborated, margin)
    if judged.median < IMPOSSIBLE * median_interval(limits).median:
        flags.append(
            f"the judge's clock found {milliseconds(judged.median)} a call, less than this machine can do: it says nothing about the claim"
        )
    share = median_interval([limit / time for limit, time in zip(limits, by_clocks, strict=True)]).median
    beyond = share > BEYOND_ROOFLINE
    times = [
        limit if limit > (1 if beyond else BEYOND_ROOFLINE) * time else time
        for limit, time in zip(limits, by_clocks, strict=True)
    ]
    if beyond:
        flags.append(
            f"beyond the roofline: {share:.0%} of what this machine does at most ({roofline.contender}); "
            "no time below that limit counts"
        )
    by_name = {name: [lap.times_s[name] for lap in laps] for name in laps[0].times_s} | {SUBMISSION: times}
    speedups = {name: speedup(by_name[name], times) for name in by_name if name != SUBMISSION}
    verdicts = [reach(speedups[band.vs], band.speedup) for band in bands]
    flags += [
        f"undecided: {one.speedup:g} × {one.vs} lies inside the interval even so; you have the band"
        for one, verdict in zip(bands, verdicts, strict=True)
        if verdict.undecided
    ]
    return Verdict(
        claimed=claimed,
        judged=judged,
        corroborated=corroborated,
        counted_s=tuple(times),
        counted={name: median_interval(values) for name, values in by_name.items()},
        speedups=speedups,
        reached=tuple(one.reached for one in verdicts),
        undecided=tuple(one.undecided for one in verdicts),
        shares={
            name: median_interval([limit / value for limit, value in zip(limits, values, strict=True)]).median
            for name, values in by_name.items()
        },
        lift=median_interval(by_clocks).median / claimed.median - 1,
        flags=tuple(flags),
    )


def _by_both_clocks(
    claims: Sequence[float], full_s: Sequence[float], corroborated: bool, margin: float
) -> tuple[list[float], list[str]]:
    """The submission's time in each round as far as the claim and the judge's time `full_s` say, and flags."""
    claimed, judged = median_interval(claims), median_interval(full_s)
    # If the clocks usually agree, a round that is faster by both was faster. If they disagree, a round with a low judge's time must not
    # pay a false claim: bands are held against the interval's upper end.
    agree = claimed.median >= (1 - margin) * judged.median
    likely_s = full_s if agree else [max(full, judged.median) for full in full_s]
    if not corroborated:
        words = (
            f"not corroborated: the worker says {milliseconds(claimed.median)} a call, by the judge's clock it was "
            f"{milliseconds(judged.median)}; the judge's time counts"
        )
        return [max(claim, likely) for claim, likely in zip(claims, likely_s, strict=True)], [words]
    # Each round is bounded too: a few forged rounds would lift the interval's upper end, which bands are held against.
    floors = [(1 - margin) * min(judged.median, likely) for likely in likely_s]
    times = [max(claim, floor) for claim, floor in zip(claims, floors, strict=True)]
    if (counted := median_interval(times).median) <= claimed.median * (1 + margin):
        return times, []
    raised = sum((1 - margin) * full > claim for full, claim in zip(full_s, claims, strict=True))
    words = (
        f"by the judge's clock calls took longer in {raised} of {len(claims)} rounds: the worker says "
        f"{milliseconds(claimed.median)} a call, {milliseconds(counted)} counts; batches may be too short for that clock"
    )
    return times, [words]


def milliseconds(seconds: float) -> str:
    """As 0.1234 ms."""
    return f"{seconds * 1e3:.4g} ms"
