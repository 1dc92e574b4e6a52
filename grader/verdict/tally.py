"""The arithmetic of a race: the calls of a batch, the laps and the verdict of its rounds, and whether it needs another
round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.assignment import Band, Timing
from grader.verdict.speed import SUBMISSION, Lap, Roofline, Verdict, judge_laps, milliseconds
from grader.verdict.statistics import median_interval

WARM_SETS = 4  # A warm-up uses this many sets of inputs; no batch has fewer.
SHARE_OF_FREE_MEMORY = 0.7  # Sets of inputs may fill this share of the free memory; the rest is for results and checks.
# A batch has the calls that last `batch_s` at this many times the machine's limit: at the limit it lasts half of it.
SHARE_OF_LIMIT = 2
HOST_NOISE_S = 0.00015  # Two batches that compute nothing differ by about this much.
QUICK_ROUNDS = 3
# Rounds between two looks at the verdict: looks after every round would by chance meet a verdict to stop at.
FURTHER_ROUNDS = 4
NOISY_LIFT = 0.15  # A doubted claim that is lifted by up to this share may be noise.


@dataclass(frozen=True)
class Conditions:
    """The GPU's clocks and temperature at a moment; None if the driver does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None


@dataclass(frozen=True)
class Round:
    """One batch of every contender.

    order: in which the contenders ran.
    times_s: seconds of a call by contender, as its worker claims.
    wall_s, nothing_s: of the submission's batch and of the null contender's, by the judge's clock.
    repeats: batches that were run again, because the GPU was busy after them.
    """

    order: tuple[str, ...]
    conditions: Conditions
    times_s: Mapping[str, float]
    wall_s: float
    nothing_s: float
    repeats: int = 0


@dataclass(frozen=True)
class Alone:
    """Times measured after the end of the submission's process. The defaults bound nothing, as on a CPU.

    times_s: seconds of a call, by baseline.
    nothing_s: of a batch of the null contender.
    """

    times_s: Mapping[str, float] = field(default_factory=dict)
    nothing_s: float = math.inf


@dataclass(frozen=True)
class Sizes:
    """Calls of a batch: `calls` by contender; `wanted` of the submission if memory were no bound."""

    calls: Mapping[str, int]
    wanted: int


def batch_sizes(
    warm_s: Mapping[str, float], set_bytes: int, cache_bytes: int, free_bytes: float, rules: Timing, roofline: Roofline
) -> Sizes:
    """The calls of each contender's batch: enough to last `batch_s`, and to touch more memory than the cache holds.

    Args:
        warm_s: seconds of a warm call, by contender.
        set_bytes: bytes of the tensors of one call.
    """
    fewest = max(WARM_SETS, math.ceil(4 * cache_bytes / set_bytes))
    most = min(max(WARM_SETS, int(SHARE_OF_FREE_MEMORY * free_bytes / set_bytes)), rules.max_calls)

    def lasting(call_s: float) -> int:
        return max(fewest, math.ceil(rules.batch_s / max(call_s, 1e-7)))

    calls = {name: min(lasting(call_s), most) for name, call_s in warm_s.items()}
    # A batch of few calls has a larger share of its start and end in each. A submission must not gain from being slow
    # while warming up.
    likely = lasting(SHARE_OF_LIMIT * roofline.limit_s(Lap(warm_s, 0.0)))
    calls[SUBMISSION] = max(calls[SUBMISSION], min(likely, most))
    return Sizes(calls, min(likely, rules.max_calls))


@dataclass(frozen=True)
class Tally:
    """The rules by which the rounds of a race are judged.

    Attributes:
        rules: [timing] of problem.toml.
        calls: of a batch of the submission.
    """

    rules: Timing
    bands: Sequence[Band]
    roofline: Roofline
    calls: int

    def laps(self, rounds: Sequence[Round], alone: Alone) -> list[Lap]:
        """The times of each round that count. A baseline's and the null contender's time is bounded by `alone`, because
        the submission may have slowed them down.
        """
        beside_s = median_interval([one.nothing_s for one in rounds]).median
        nothing_s = min(beside_s, alone.nothing_s + HOST_NOISE_S)
        most_s = {name: self._slack * alone_s for name, alone_s in alone.times_s.items()}
        return [
            Lap(
                {name: min(time_s, most_s.get(name, math.inf)) for name, time_s in one.times_s.items()},
                (one.wall_s - nothing_s) / self.calls,
            )
            for one in rounds
        ]

    def verdict(self, rounds: Sequence[Round], alone: Alone) -> Verdict:
        """The verdict on at least one round; its flags name each baseline that was slower beside the submission."""
        verdict = judge_laps(self.laps(rounds, alone), self.bands, self.roofline, self.rules.margin)
        slowed = [
            f"{name} took {milliseconds(beside_s)} a call in the rounds, and {milliseconds(alone_s)} when the submission's process had "
            "been ended: no more than the margin above that counts"
            for name, alone_s in alone.times_s.items()
            if (beside_s := median_interval([one.times_s[name] for one in rounds]).median) > self._slack * alone_s
        ]
        return replace(verdict, flags=(*verdict.flags, *slowed))

    def wants_another_round(self, rounds: Sequence[Round], spent_s: float, quick: bool) -> bool:
        """Whether to run another round. The first rounds always run. Further rounds run, while there is time, if the
        edge of a band lies in the interval of a speed-up; and once if the judge's clock lifts the claim, but by no more
        than a busy host's noise.
        """
        first = QUICK_ROUNDS if quick else self.rules.rounds
        further = len(rounds) - first
        if further < 0:
            return True
        if quick or len(rounds) >= self.rules.max_rounds:
            return False
        if further % FURTHER_ROUNDS:
            return True
        if spent_s >= self.rules.budget_s:
            return False
        verdict = self.verdict(rounds, Alone())
        may_be_noise = verdict.is_doubted and verdict.lift <= NOISY_LIFT
        return any(verdict.undecided) or (may_be_noise and further == 0)

    @property
    def _slack(self) -> float:
        return 1 + self.rules.margin
