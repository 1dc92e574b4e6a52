"""A race: contenders in interleaved rounds on one speed case, from the lineup to the verdict.

In every round each contender runs one batch; the order rotates. The submission's inputs are new in that round. A contender after the
submission has the same, one before it those of the round before. What a round's clock, temperature or neighbours did to one contender
they did to all, so a speed-up is a ratio within a round.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from grader.contender.replies import ContenderFault
from grader.judge.baselines import NULL, YARDSTICKS
from grader.judge.batches import bytes_of_results, open_bench
from grader.judge.cases import BoundSpeedCase
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB, freed_since
from grader.judge.timing import Batch
from grader.judge.track import Lineup, Runner, Track
from grader.judge.warmup import Warm
from grader.verdict.speed import SUBMISSION, Lap, Verdict
from grader.verdict.statistics import median_interval
from grader.verdict.tally import Alone, Round, Tally, batch_sizes

ALONE_BATCHES = 5
RELEASED_S = 0.5  # until the driver has back what a process held that was killed


@contextmanager
def race(track: Track, case: BoundSpeedCase, lineup: Lineup, warm: Warm) -> Iterator[Race]:
    """A race that is ready for its first round. Holds GPU memory until its end. Raises as `Race` does."""
    ready = Race(track, case, lineup, warm)
    with ready.bench:
        ready.invite_all()
        yield ready


class Race:
    """The rounds of a race, then `look_again` and `end_submission`.

    Attributes:
        bench: takes GPU memory until it is closed.
        calls: of a batch, by contender.

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
        """Let all contenders map the bench and run a batch: a round is no place to take the memory for a batch's results."""
        for runner in [self._lineup.null, *self._lineup.others, self._lineup.submission]:
            collects = runner in (self._lineup.null, self._lineup.submission)
            self._batches.invite(self.bench, runner, collects)
            self._run(runner)

    def wants_another_round(self) -> bool:
        # A submission that takes its time between batches has no fewer rounds for it.
        spent_s = time.monotonic() - self._started - self.bench.tidied_s
        return self._tally.wants_another_round(self.rounds, spent_s, self._track.run.job.effort == "quick")

    def round(self) -> None:
        """One batch of every contender; the submission's on inputs that nobody has had yet, every output of it checked."""
        order = self._lineup.order(len(self.rounds))
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
        self.rounds.append(Round(names, conditions, times_s, batches[SUBMISSION].wall_s, batches[NULL].wall_s))

    def look_again(self) -> None:
        """After the rounds, one more batch as in a round, on new inputs, but watched: it must still be the submission's own work."""
        self.bench.renew(self._batches.draw)
        self._run(self._lineup.submission, check=True, watched=True)

    def end_submission(self) -> None:
        """At last, on a GPU, end the submission's process, and run the null contender and the baselines without it: frozen, it may have
        work on the GPU's queue that starts when theirs does.

        By turns, as in the rounds: what runs again at once finds its host awake.
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
        """Raises ContenderFault where it kept memory without which a batch had fewer calls than the judge's clock is made for."""
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
        """The times of each round that count."""
        return self._tally.laps(self.rounds, self._alone)

    def verdict(self) -> Verdict:
        """The verdict on the rounds so far."""
        verdict = self._tally.verdict(self.rounds, self._alone)
        repeats = self._batches.repeats
        busy = f"the GPU was busy after batches of your code, which were run again: {repeats} times"
        return replace(verdict, flags=(*verdict.flags, *([busy] if repeats else []), *self._lineup.left_out))
