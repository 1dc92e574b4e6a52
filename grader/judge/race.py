"""A race: contenders in interleaved rounds on one speed case, from warming up to the verdict.

Before the rounds every contender runs until its times settle; a submission that is far too slow is stopped. In a round
each contender runs one batch, in rotating order. The submission gets new inputs in each round; contenders after it run
on the same inputs, contenders before it on those of the round before. Clock, temperature and neighbours of a round
affect all contenders alike, so a speed-up is a ratio within a round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from grader.contender.replies import ContenderFault
from grader.judge.baselines import NULL, YARDSTICKS
from grader.judge.batches import Batches, bytes_of_results, bytes_of_set, open_bench
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.gpu import wait_for_quiet
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB, freed_since
from grader.judge.ruler import Ruler
from grader.judge.timing import Batch, Bench
from grader.judge.track import Lineup, Runner, Track
from grader.problem import Call
from grader.protocol import MATRIX
from grader.verdict.speed import SUBMISSION, Lap, Roofline, Verdict
from grader.verdict.statistics import median_interval
from grader.verdict.tally import WARM_SETS, Alone, Round, Tally, batch_sizes

ALONE_BATCHES = 5
SETTLED = 0.03  # two batches in a row that differ by less are warm
SETTLE_BATCHES = 12
SETTLE_LIMIT_S = 1.0
NOISE_S = 0.05  # error of a single call's time by the judge's clock, on a bad day
RELEASED_S = 0.5  # the driver needs some time to free a killed process's memory


class FarTooSlow(Exception):
    """The submission is too slow for rounds: a call takes `call_s` seconds."""

    def __init__(self, call_s: float) -> None:
        super().__init__(f"a call takes {call_s:.3g} s")
        self.call_s = call_s


@dataclass(frozen=True)
class Warm:
    """Results of warming up.

    Attributes:
        batches: runs the batches of the rounds, too.
        set_bytes: bytes of the tensors of one call.
        call_s: seconds of a warm call, by contender.
    """

    batches: Batches
    roofline: Roofline
    set_bytes: int
    call_s: dict[str, float]


def warm_up(track: Track, case: BoundSpeedCase, lineup: Lineup, evidence: Evidence) -> Warm:
    """Warm up every contender. Contenders that fail leave the lineup if no verdict needs them.

    Raises as `Batches` does, and FarTooSlow.
    """
    if not track.run.gauge.is_quiet():
        wait_for_quiet(track.run.gauge, lineup.submission.contender, was_running=True, attempt=1)
    with open_bench(track, case, WARM_SETS, WARM_SETS) as bench:
        batches = Batches(track, case, lineup, Ruler(track.run.device_name, case, bench.calls[0]), evidence)
        call_s: dict[str, float] = {}
        for runner in [lineup.null, *lineup.others]:
            track.note(f"warming up {runner.name}")
            with lineup.may_leave_out(runner.name):
                batches.invite(bench, runner, collects=True)
                if runner.name not in YARDSTICKS:
                    batches.check_baseline(bench, runner)
                call_s[runner.name] = _settled_s(batches, bench, runner)
                track.crew.baselines.note_compiled(runner.name, case)
        lineup.others = [runner for runner in lineup.others if runner.name in call_s]
        del call_s[NULL]  # the null contender's batches are as large as the submission's
        track.note("warming up your code")
        submission = lineup.submission
        batches.invite(bench, submission, collects=True)
        first = batches.run(bench, submission, 1, check=True, watched=True)  # the first call may compile
        roofline, set_bytes = roofline_of(case, bench.calls[0]), bytes_of_set(case, bench.calls[0], first.collected)

        def by_both_clocks(calls: int) -> float:
            nothing = batches.run(bench, lineup.null, calls)
            batch = batches.run(bench, submission, calls)
            return max(batch.claimed_s, (batch.wall_s - nothing.wall_s) / calls)

        limit_s = case.assignment.spec.timing.slow_limit * max(call_s[name] for name in case.opponents)
        took_s = shortest_s(by_both_clocks, limit_s)
        if took_s > limit_s:
            raise FarTooSlow(took_s)
        # A claim of 0 s would make batches that need all memory.
        call_s[SUBMISSION] = max(_settled_s(batches, bench, submission), took_s / 2)
    return Warm(batches, roofline, set_bytes, call_s)


def shortest_s(call_s: Callable[[int], float], limit_s: float) -> float:
    """Seconds of a call of the submission, measured again if they are near the limit or above.

    Args:
        call_s: measures a call in a batch of the given number of calls.
    """
    took_s = call_s(1)
    if took_s > limit_s:
        took_s = min(took_s, call_s(1))  # one stall of the host costs no points
    if took_s < limit_s + NOISE_S:
        took_s = min(call_s(WARM_SETS) for _ in range(2))
    return took_s


def _settled_s(batches: Batches, bench: Bench, runner: Runner) -> float:
    """Seconds of a call in the second of two batches that took about the same."""
    last, started = math.inf, time.monotonic()
    for _ in range(SETTLE_BATCHES):
        call_s = batches.run(bench, runner, len(bench.calls)).claimed_s
        if abs(call_s - last) <= SETTLED * call_s:
            break
        if math.isfinite(last) and time.monotonic() - started > SETTLE_LIMIT_S:
            break
        last = call_s
    return call_s


def roofline_of(case: BoundSpeedCase, call: Call) -> Roofline:
    """The yardstick of a case, with its own work and the case's."""
    cost = case.problem.cost(case.params, case.dtype)
    if case.speed.roofline == "matmul":
        return Roofline("matmul", 2 * MATRIX**3, cost.flops)
    first = next(iter(call.args.values()))
    return Roofline("copy", 2 * first.numel() * first.element_size(), cost.bytes_moved)


@contextmanager
def race(track: Track, case: BoundSpeedCase, lineup: Lineup, warm: Warm) -> Iterator[Race]:
    """A race, ready for its first round. Holds GPU memory until the block ends. Raises as `Race` does."""
    ready = Race(track, case, lineup, warm)
    with ready.bench:
        ready.invite_all()
        yield ready


class Race:
    """The rounds of a race, then `look_again` and `end_submission`.

    Attributes:
        bench: holds GPU memory until it is closed.
        calls: number of calls in a batch, by contender.

    Raises (all methods): as `Batches` does.
    """

    def __init__(self, track: Track, case: BoundSpeedCase, lineup: Lineup, warm: Warm) -> None:
        self._started = time.monotonic()
        self._track, self._case, self._lineup = track, case, lineup
        self._batches = warm.batches
        self._alone = Alone()
        self.roofline = warm.roofline
        self.rounds: list[Round] = []
        rules, gauge, free_bytes = case.assignment.spec.timing, track.run.gauge, track.run.free_gib() * 2**30
        sizes = batch_sizes(warm.call_s, warm.set_bytes, gauge.cache_bytes, free_bytes, rules, warm.roofline)
        self.calls, self._wanted = sizes.calls, sizes.wanted
        self._tally = Tally(rules, case.speed.bands, warm.roofline, self.calls[SUBMISSION])
        collected = self.calls[SUBMISSION] if warm.batches.collects else 0
        self.bench = open_bench(track, case, max(self.calls.values()), collected)

    def invite_all(self) -> None:
        """Have all contenders map the bench and run a batch, so that no round has to allocate memory for results."""
        for runner in [self._lineup.null, *self._lineup.others, self._lineup.submission]:
            collects = runner in (self._lineup.null, self._lineup.submission)
            self._batches.invite(self.bench, runner, collects)
            self._run(runner)

    def wants_another_round(self) -> bool:
        # Time between batches is not counted: a submission that is slow there would otherwise get fewer rounds.
        spent_s = time.monotonic() - self._started - self.bench.tidied_s
        return self._tally.wants_another_round(self.rounds, spent_s, self._track.run.job.effort == "quick")

    def round(self) -> None:
        """Run one batch of every contender. The submission's inputs are new, and all its outputs are checked."""
        order = self._lineup.order(len(self.rounds))
        before = self._batches.repeats.total()
        conditions = self._track.run.gauge.conditions()
        batches: dict[str, Batch] = {}
        for runner in order:
            ours = runner is self._lineup.submission
            if ours:
                self.bench.renew(self._batches.draw)
            self._track.note(f"round {len(self.rounds) + 1}: {runner.name}")
            batches[runner.name] = self._run(runner, check=ours)
        names = tuple(runner.name for runner in order)
        times_s = {name: batches[name].claimed_s for name in self.calls}
        repeats = self._batches.repeats.total() - before
        self.rounds.append(Round(names, conditions, times_s, batches[SUBMISSION].wall_s, batches[NULL].wall_s, repeats))

    def look_again(self) -> None:
        """Run one more batch after the rounds, on new inputs and watched: the work must still be the submission's
        own.
        """
        self.bench.renew(self._batches.draw)
        self._run(self._lineup.submission, check=True, watched=True)

    def end_submission(self) -> None:
        """End the submission's process (on a GPU), and time the null contender and the baselines without it.

        A frozen process may have queued work on the GPU that starts when a baseline's does. The contenders run by
        turns, as in the rounds: the host is awake for a contender that runs again at once.
        """
        if self._track.run.device_name != "cuda":
            return
        self._track.note("timing the others without your code")
        self._kill_submission()
        ring = [*(one for one in self._lineup.others if one.name not in YARDSTICKS), self._lineup.null]
        for runner in ring:
            self._run(runner)  # the GPU has rested
        turns = [{runner.name: self._run(runner) for runner in ring} for _ in range(ALONE_BATCHES)]
        nothing_s = median_interval([batches.pop(NULL).wall_s for batches in turns]).median
        times_s = {name: median_interval([one[name].claimed_s for one in turns]).median for name in turns[0]}
        self._alone = Alone(times_s, nothing_s)

    def _kill_submission(self) -> None:
        """End the submission's process. Raises ContenderFault if it kept so much memory that batches became too
        small.
        """
        before_gib, calls = self._track.run.free_gib(), self.calls[SUBMISSION]
        self._lineup.submission.contender.kill()
        if calls >= self._wanted:
            return
        results_gib = calls * bytes_of_results(self._case, self.bench.calls[0]) / 2**30
        allowed_gib = HOARD_GIB + WORKER_GIB + results_gib
        if (freed_gib := freed_since(self._track.run, before_gib, allowed_gib, RELEASED_S)) >= allowed_gib:
            held = f"still held {freed_gib:.0f} GiB of GPU memory after its calls"
            words = f"there was room for {calls} calls in a batch, and {self._wanted} are wanted"
            raise ContenderFault("out_of_memory", f"{held}: {words}")

    def _run(self, runner: Runner, *, check: bool = False, watched: bool = False) -> Batch:
        calls = self.calls[SUBMISSION if runner.name == NULL else runner.name]
        return self._batches.run(self.bench, runner, calls, check=check, watched=watched)

    @property
    def laps(self) -> list[Lap]:
        """The times that count, of each round."""
        return self._tally.laps(self.rounds, self._alone)

    def verdict(self) -> Verdict:
        """The verdict on the rounds so far, with flags."""
        verdict = self._tally.verdict(self.rounds, self._alone)
        repeats = self._batches.repeats[SUBMISSION]
        busy = f"the GPU was busy after batches of your code, which were run again: {repeats} times"
        return replace(verdict, flags=(*verdict.flags, *([busy] if repeats else []), *self._lineup.left_out))
