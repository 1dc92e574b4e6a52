"""The arithmetic of a speed case: how many calls make a batch, whether another round is worth its time, and the verdict on the
rounds: the clock that counts, the speed-ups, the reached bands, and flags for a TA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.assignment import Band, Timing
from grader.report.model import Alone, Interval, Round
from grader.verdict.statistics import median_interval, reach, speedup

SUBMISSION = "submission"
BEYOND_ROOFLINE = 1.05  # A larger share of the roofline than this is not believed
RESOLUTION_S = 1e-9  # The least time that a claim counts as, so that ratios are finite
DISAGREEMENT = 0.005  # The judge's clock lifts the claim by more than this share of it: the verdict is doubted
IMPOSSIBLE = 0.8  # No code takes less than this share of the roofline's time
WARM_SETS = 4  # Input sets while the entrants warm up, and the fewest that a batch of a round has
SHARE_OF_FREE_MEMORY = (
    0.7  # Input sets may fill this share of the free memory; the entrants' own memory and the checks need the rest
)
SHARE_OF_LIMIT = 2  # A batch is sized for a call that takes this many times the roofline's time
HOST_NOISE_S = 0.00015  # Two batches of calls that do nothing differ by up to this
QUICK_ROUNDS = 3
# Rounds between two looks at the verdict: looks after every round would by chance meet a verdict to stop at.
FURTHER_ROUNDS = 4
NOISY_DISCREPANCY = 0.15  # A busy host lifts an honest claim by no more than this share of it


@dataclass(frozen=True)
class Roofline:
    """The machine's limit: the yardstick that shows it, the work of a call of that yardstick, and the work of a call of the case.

    Work is in bytes if the yardstick is a device copy, in FLOPs if it is a matrix product.
    """

    yardstick: str
    its_work: float
    case_work: float

    def limit_s(self, yardstick_s: float) -> float:
        """Seconds that a call of the case takes at the rate of a yardstick whose call takes `yardstick_s`."""
        return yardstick_s * self.case_work / self.its_work


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run's rounds. Times are seconds of a call.

    claimed, judged: the submission's time by its worker's clock and by the judge's.
    corroborated: whether the claim counts; otherwise the judge's time does.
    counted_s: the submission's time that counts, by round. counted: the time that counts, by entrant.
    speedups: baseline time / submission time, by baseline.
    reached, undecided: by band, whether its points are earned, and whether its edge lies inside the interval.
    shares: of the roofline, by entrant.
    discrepancy: by how much the judge's clock lifts the claim, as a share of the claim; the roofline may lift the claim
        further.
    flags: sentences for a TA.
    """

    claimed: Interval
    judged: Interval
    corroborated: bool
    counted_s: tuple[float, ...]
    counted: Mapping[str, Interval]
    speedups: Mapping[str, Interval]
    reached: tuple[bool, ...]
    undecided: tuple[bool, ...]
    shares: Mapping[str, float]
    discrepancy: float
    flags: tuple[str, ...]

    @property
    def clocks_disagree(self) -> bool:
        """Whether the judge's clock lifts the claim by more than DISAGREEMENT."""
        return self.discrepancy > DISAGREEMENT


@dataclass(frozen=True)
class Sizes:
    """Calls of a batch: `calls` by entrant; `wanted` of the submission if memory were no bound."""

    calls: Mapping[str, int]
    wanted: int


def batch_sizes(
    warm_s: Mapping[str, float], set_bytes: int, cache_bytes: int, free_bytes: float, rules: Timing, roofline: Roofline
) -> Sizes:
    """The calls of each entrant's batch: enough to last `batch_s`, and to touch more memory than the cache holds.

    Args:
        warm_s: seconds of a warm call, by entrant.
        set_bytes: bytes of the tensors of one call.
    """
    fewest = max(WARM_SETS, math.ceil(4 * cache_bytes / set_bytes))
    most = min(max(WARM_SETS, int(SHARE_OF_FREE_MEMORY * free_bytes / set_bytes)), rules.max_calls)

    def lasting(call_s: float) -> int:
        return max(fewest, math.ceil(rules.batch_s / max(call_s, 1e-7)))

    calls = {name: min(lasting(call_s), most) for name, call_s in warm_s.items()}
    # A batch of few calls has a larger share of its start and end in each. A submission must not gain from being slow
    # while warming up.
    likely = lasting(SHARE_OF_LIMIT * roofline.limit_s(warm_s[roofline.yardstick]))
    calls[SUBMISSION] = max(calls[SUBMISSION], min(likely, most))
    return Sizes(calls, min(likely, rules.max_calls))


@dataclass(frozen=True)
class SpeedRules:
    """The rules by which the rounds of a speed case are judged.

    Attributes:
        timing: [timing] of problem.toml.
        calls: of a batch of the submission.
    """

    timing: Timing
    bands: Sequence[Band]
    roofline: Roofline
    calls: int

    def times(self, rounds: Sequence[Round], alone: Alone) -> tuple[dict[str, list[float]], list[float]]:
        """Seconds of a call in each round: by entrant, and of the submission by the judge's clock, its batch without what a
        batch of nothing takes. A baseline's and the null entrant's time is bounded by `alone`, because the submission may
        have slowed them down.
        """
        most_s = {name: self._slack * alone_s for name, alone_s in alone.times_s.items()}
        nothing_s = median_interval([one.nothing_s for one in rounds]).median
        if alone.nothing_s is not None:
            nothing_s = min(nothing_s, alone.nothing_s + HOST_NOISE_S)
        of = {
            name: [min(one.times_s[name], most_s.get(name, math.inf)) for one in rounds] for name in rounds[0].times_s
        }
        return of, [(one.batch_s - nothing_s) / self.calls for one in rounds]

    def verdict(self, rounds: Sequence[Round], alone: Alone) -> Verdict:
        """The verdict on at least one round; its flags name each baseline that was slower beside the submission."""
        of, judged_s = self.times(rounds, alone)
        roofline, margin = self.roofline, self.timing.margin
        claims = [max(time_s, RESOLUTION_S) for time_s in of[SUBMISSION]]
        claimed, judged = median_interval(claims), median_interval(judged_s)
        limits = [roofline.limit_s(time_s) for time_s in of[roofline.yardstick]]
        corroborated = claimed.median >= (1 - margin) * judged.low
        by_clocks, flags = _by_both_clocks(claims, judged_s, corroborated, margin)
        if judged.median < IMPOSSIBLE * median_interval(limits).median:
            flags.append(
                f"the judge's clock found {milliseconds(judged.median)} a call, less than this machine can do: it says nothing about "
                "the claim"
            )
        share = median_interval([limit / time for limit, time in zip(limits, by_clocks, strict=True)]).median
        beyond = share > BEYOND_ROOFLINE
        counted = [
            limit if limit > (1 if beyond else BEYOND_ROOFLINE) * time else time
            for limit, time in zip(limits, by_clocks, strict=True)
        ]
        if beyond:
            flags.append(
                f"beyond the roofline: {share:.0%} of what this machine does at most ({roofline.yardstick}); "
                "no time below that limit counts"
            )
        by_name = of | {SUBMISSION: counted}
        speedups = {name: speedup(by_name[name], counted) for name in by_name if name != SUBMISSION}
        verdicts = [reach(speedups[band.vs], band.speedup) for band in self.bands]
        flags += [
            f"undecided: {one.speedup:g} × {one.vs} lies inside the interval even so; you have the band"
            for one, verdict in zip(self.bands, verdicts, strict=True)
            if verdict.undecided
        ]
        flags += [
            f"{name} took {milliseconds(beside_s)} a call in the rounds, and {milliseconds(alone_s)} when the submission's process had "
            "been ended: no more than the margin above that counts"
            for name, alone_s in alone.times_s.items()
            if (beside_s := median_interval([one.times_s[name] for one in rounds]).median) > self._slack * alone_s
        ]
        return Verdict(
            claimed=claimed,
            judged=judged,
            corroborated=corroborated,
            counted_s=tuple(counted),
            counted={name: median_interval(values) for name, values in by_name.items()},
            speedups=speedups,
            reached=tuple(one.reached for one in verdicts),
            undecided=tuple(one.undecided for one in verdicts),
            shares={
                name: median_interval([limit / value for limit, value in zip(limits, values, strict=True)]).median
                for name, values in by_name.items()
            },
            discrepancy=median_interval(by_clocks).median / claimed.median - 1,
            flags=tuple(flags),
        )

    def wants_another_round(self, rounds: Sequence[Round], spent_s: float, quick: bool) -> bool:
        """Whether to run another round. The first rounds always run. Further rounds run, while there is time, if the
        edge of a band lies in the interval of a speed-up; and once if the judge's clock lifts the claim, but by no more
        than a busy host's noise.
        """
        first = QUICK_ROUNDS if quick else self.timing.rounds
        further = len(rounds) - first
        if further < 0:
            return True
        if quick or len(rounds) >= self.timing.max_rounds:
            return False
        if further % FURTHER_ROUNDS:
            return True
        if spent_s >= self.timing.budget_s:
            return False
        verdict = self.verdict(rounds, Alone())
        may_be_noise = verdict.clocks_disagree and verdict.discrepancy <= NOISY_DISCREPANCY
        return any(verdict.undecided) or (may_be_noise and further == 0)

    @property
    def _slack(self) -> float:
        return 1 + self.timing.margin


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
