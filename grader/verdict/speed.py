"""From the times of a race to a verdict: which clock counts, how many times as fast, which bands, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.assignment import Band
from grader.verdict.statistics import Estimate, median_interval, reach, speedup

SUBMISSION = "submission"
BEYOND_ROOFLINE = 1.05
RESOLUTION_S = 1e-9
DOUBT = 0.005  # of the claim
IMPOSSIBLE = 0.8  # of the machine's limit: no code takes less


@dataclass(frozen=True)
class Lap:
    """One round, in seconds of a call.

    times_s: of each contender, as its worker claims.
    judged_s: of the submission, by the judge's clock.
    """

    times_s: Mapping[str, float]
    judged_s: float


@dataclass(frozen=True)
class Roofline:
    """What a machine does at most: the contender that shows it, the work of one of its calls, and the work of the case.

    Work is counted in bytes where the limit is a device copy, in FLOPs where it is a matrix product.
    """

    contender: str
    its_work: float
    case_work: float

    def limit_s(self, lap: Lap) -> float:
        """What the case would take at that rate, in the same round."""
        return lap.times_s[self.contender] * self.case_work / self.its_work


@dataclass(frozen=True)
class Verdict:
    """What laps say.

    claimed, judged: the submission's time by its worker's clock and by the judge's, seconds.
    corroborated: whether the claim stands; otherwise the judge's time counts.
    counted: the time that counts, of each contender, seconds.
    speedups: baseline time / submission time, by baseline.
    reached, undecided: for each band, whether it is paid, and whether the interval lies across its edge.
    shares: of the roofline, by contender.
    lift: by how much the judge's clock lifts the claim, as a share of it; the roofline may lift it further.
    flags: what a TA should look at.
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
        """Whether the judge's clock counts, and not the claim."""
        return self.lift > DOUBT


def judge_laps(laps: Sequence[Lap], bands: Sequence[Band], roofline: Roofline, margin: float) -> Verdict:
    """The verdict on one case.

    Args:
        laps: at least one.
        bands: as problem.toml has them; each one's baseline is in every lap.
        roofline: the machine's limit.
        margin: how far below the judge's time a claim may lie, relative to it.
    """
    claims = [max(lap.times_s[SUBMISSION], RESOLUTION_S) for lap in laps]
    claimed = median_interval(claims)
    limits = [roofline.limit_s(lap) for lap in laps]
    full_s = [lap.judged_s for lap in laps]
    judged = median_interval(full_s)
    # Where the clocks usually agree, a round that was faster by both was faster. Where they do not, one in which the judge's was lucky
    # must not pay a lie: bands are held against the interval's upper end.
    agree = claimed.median >= (1 - margin) * judged.median
    likely_s = full_s if agree else [max(full, judged.median) for full in full_s]
    flags = []
    corroborated = claimed.median >= (1 - margin) * judged.low
    if corroborated:
        # Round by round too: bands are held against the interval's upper end, which a few forged rounds would lift.
        floors = [(1 - margin) * min(judged.median, likely) for likely in likely_s]
        times = [max(claim, floor) for claim, floor in zip(claims, floors, strict=True)]
        if (counted := median_interval(times).median) > claimed.median * (1 + margin):
            raised = sum((1 - margin) * full > claim for full, claim in zip(full_s, claims, strict=True))
            flags.append(
                f"by the judge's clock calls took longer in {raised} of {len(laps)} rounds: the worker says "
                f"{milliseconds(claimed.median)} a call, {milliseconds(counted)} counts; batches may be too short for that clock"
            )
    else:
        times = [max(claim, likely) for claim, likely in zip(claims, likely_s, strict=True)]
        flags.append(
            f"not corroborated: the worker says {milliseconds(claimed.median)} a call, by the judge's clock it was "
            f"{milliseconds(judged.median)}; the judge's time counts"
        )
    if judged.median < IMPOSSIBLE * median_interval(limits).median:
        flags.append(
            f"the judge's clock found {milliseconds(judged.median)} a call, less than this machine can do: it says nothing about the claim"
        )
    lift = median_interval(times).median / claimed.median - 1
    share = median_interval([limit / time for limit, time in zip(limits, times, strict=True)]).median
    beyond = share > BEYOND_ROOFLINE
    times = [
        limit if limit > (1 if beyond else BEYOND_ROOFLINE) * time else time
        for limit, time in zip(limits, times, strict=True)
    ]
    if beyond:
        flags.append(
            f"beyond the roofline: {share:.0%} of what this machine does at most ({roofline.contender}); "
            "no time below that limit counts"
        )
    names = [name for name in laps[0].times_s if name != SUBMISSION]
    by_name = {name: [lap.times_s[name] for lap in laps] for name in names} | {SUBMISSION: times}
    speedups = {name: speedup(by_name[name], times) for name in names}
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
        lift=lift,
        flags=tuple(flags),
    )


def milliseconds(seconds: float) -> str:
    """As 0.1234 ms."""
    return f"{seconds * 1e3:.4g} ms"
