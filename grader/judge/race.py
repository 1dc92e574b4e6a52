"""A race: contenders in interleaved rounds on one speed case.

In every round each contender runs one batch; the order rotates. The submission's inputs are new in that round, and whoever runs
after it has the same; whoever runs before it, those of the round before. What a round's clock, temperature or neighbours did
to one contender they did to all, so a speed-up is a ratio within a round.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType
from typing import Self

from grader import protocol
from grader.contender.contender import Contender, Limits
from grader.contender.replies import ContenderFault
from grader.job import CaseNote
from grader.judge.asking import check_returned
from grader.judge.baselines import LIMITS as BASELINE_LIMITS
from grader.judge.baselines import NULL, YARDSTICKS
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.gpu import Conditions
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB, freed_since
from grader.judge.ownership import check_operators
from grader.judge.ruler import Ruler
from grader.judge.timing import Batch, Bench
from grader.judge.track import Track
from grader.problem import Call, Cost
from grader.verdict.speed import SUBMISSION, Lap, Roofline, Verdict, judge_laps, milliseconds
from grader.verdict.statistics import median_interval

WARM_SETS = 4
SETTLED = 0.03  # two batches in a row that differ by no more are warm
SETTLE_BATCHES = 12
SETTLE_LIMIT_S = 1.0
SHARE_OF_FREE_MEMORY = 0.7  # for input sets; the contenders' own memory and the checks need the rest
PATIENCE_S = (0.02, 0.1, 0.5, 2.0)  # how long to wait for a busy GPU
QUIET_LOOKS = 3  # one after another
NOISE_S = 0.05  # of a single call by the judge's clock, on a bad day
MAX_REPEATS = 3
QUICK_ROUNDS = 3
ALONE_BATCHES = 5
HOST_NOISE_S = 0.00015  # by so much a batch of nothing differs from one time to the next
RELEASED_S = 0.5  # until the driver has back what a process held that was killed
SHARE_OF_LIMIT = 2  # times what the machine's limit allows: nobody's batch is shorter than half of a batch
UNDER_TIMING = (
    "right in its correctness cases, wrong in a batch of calls that are queued before the inputs are there: also consistent with a "
    "stream that does not wait for the current one, or with results kept from earlier calls"
)
NOISY_LIFT = 0.15  # of the claim
FURTHER_ROUNDS = 4  # at a time: whoever looks after each round will at some time see what they hope for


@dataclass
class Runner:
    """One contender in a race. `calls` of a batch; `warm_s` seconds of a call once warm."""

    name: str
    contender: Contender
    limits: Limits
    calls: int = WARM_SETS
    warm_s: float = 0.0


@dataclass(frozen=True)
class Round:
    """What one round found, and how the GPU stood in it.

    order: that in which the contenders ran.
    wall_s, nothing_s: of the submission's batch and of the null contender's, by the judge's clock.
    """

    order: tuple[str, ...]
    conditions: Conditions
    times_s: dict[str, float]
    wall_s: float
    nothing_s: float


class Race:
    """Times one speed case. A context manager: it holds memory and frozen workers.

    `open_round`, `run_submission` and `close_round` make one round; after the last one come `look_again` and `end_submission`.
    `stopped_after_s` is set instead when a call of the submission takes so
    long that there is no point in rounds.

    Args:
        track: where the race takes place.
        case: what is timed.
        submission: the submission's contender, loaded.
        evidence: takes what a comparison measures.

    Raises (all methods):
        CheckFailed: the submission's answers are wrong under timing.
        ContenderFault: the submission gave no answer, or let PyTorch do the work.
        CaseRefused: a baseline failed, or the GPU is not ours alone.
    """

    def __init__(self, track: Track, case: BoundSpeedCase, submission: Contender, evidence: Evidence) -> None:
        self.rounds: list[Round] = []
        self.stopped_after_s: float | None = None
        self._track = track
        self._gauge = track.run.gauge
        self._case = case
        self._evidence = evidence
        self._rules = case.assignment.spec.timing
        self._stack = ExitStack()
        self._collects: bool | None = None  # whether the submission's results are collected, once that is known
        self._alone_s: dict[str, float] = {}  # seconds of a call of the baselines when its process had been ended
        self._nothing_alone_s = math.inf  # and of a batch of the null contender
        self._repeats = 0  # of batches of the submission, after which the GPU was not quiet
        self._batches: dict[str, Batch] = {}
        self._order: list[Runner] = []
        track.crew.settle()
        submission.freeze()  # until it is its turn
        limits = case.assignment.spec.limits
        own = Limits(limits.time_limit_s[track.run.device_name], limits.memory_gib)
        self._submission = Runner(SUBMISSION, submission, own)
        self._left_out: list[str] = []  # why some are not in the race who were only to be shown beside the others
        self._others: list[Runner] = []
        for name in case.contenders(everyone=track.run.job.contenders == "all"):
            with self._may_be_left_out(name):
                self._others.append(Runner(name, track.crew.baselines.contender(name, case), BASELINE_LIMITS))
        self._null = Runner(NULL, track.crew.baselines.contender(NULL, case), BASELINE_LIMITS)

    def __enter__(self) -> Self:
        try:
            if not self._gauge.is_quiet():
                self._wait_for_quiet(self._submission, 1)
            self._warm_up()
            if self.stopped_after_s is None:
                self._line_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def first_rounds(self) -> int:
        """How many rounds there are before anyone asks whether more would help."""
        return QUICK_ROUNDS if self._track.run.job.effort == "quick" else self._rules.rounds

    def is_worth_another_round(self) -> bool:
        """Whether there is time left for making an interval smaller in which a band's edge lies; or for asking once more where the judge's
        clock, after the first rounds, says more than the worker, but no more than the noise of a busy host may be.
        """
        if self._track.run.job.effort == "quick" or len(self.rounds) >= self._rules.max_rounds:
            return False
        if (len(self.rounds) - self._rules.rounds) % FURTHER_ROUNDS > 0:
            return True
        # A submission that takes its time between batches has no fewer rounds for it.
        if time.monotonic() - self._started - self._bench_of_rounds.tidied_s >= self._rules.budget_s:
            return False
        verdict = self.verdict()
        may_be_noise = verdict.is_doubted and verdict.lift <= NOISY_LIFT
        return any(verdict.undecided) or (may_be_noise and len(self.rounds) == self._rules.rounds)

    def verdict(self) -> Verdict:
        """What the rounds so far say."""
        verdict = judge_laps(self.laps, self._case.speed.bands, self._roofline, self._rules.margin)
        slowed = [
            f"{name} took {milliseconds(beside_s)} a call in the rounds, and {milliseconds(alone_s)} when the submission's process had "
            "been ended: no more than the margin above that counts"
            for name, alone_s in self._alone_s.items()
            if (beside_s := median_interval([one.times_s[name] for one in self.rounds]).median) > self._slack * alone_s
        ]
        if self._repeats:
            slowed.append(f"the GPU was busy after batches of your code, which were run again: {self._repeats} times")
        return replace(verdict, flags=(*verdict.flags, *slowed, *self._left_out))

    @property
    def laps(self) -> list[Lap]:
        """The rounds' times: those of others no longer than they are without the submission, for it may have slowed them down."""
        beside_s = median_interval([one.nothing_s for one in self.rounds]).median
        nothing_s = min(beside_s, self._nothing_alone_s + HOST_NOISE_S)
        return [
            Lap(
                {
                    name: min(time_s, self._slack * self._alone_s.get(name, math.inf))
                    for name, time_s in one.times_s.items()
                },
                (one.wall_s - nothing_s) / self._submission.calls,
            )
            for one in self.rounds
        ]

    @property
    def _slack(self) -> float:
        return 1 + self._rules.margin

    def _note(self, text: str) -> None:
        self._track.run.emit(CaseNote(text=text))

    @property
    def calls(self) -> dict[str, int]:
        """Calls in a batch of each contender."""
        return {runner.name: runner.calls for runner in self._everyone}

    # Before the rounds
    # -----------------------------------------------------------------------------------------------------------------

    @property
    def _everyone(self) -> list[Runner]:
        return [*self._others, self._submission]

    def _warm_up(self) -> None:
        """Run everyone until its time settles; a submission that is far too slow is stopped here."""
        with self._bench(WARM_SETS, collected=WARM_SETS) as bench:
            self._ruler = Ruler(self._track.run.device_name, self._case, bench.calls[0])
            self._roofline = self._roofline_of(bench.calls[0])
            ready = []
            for runner in [self._null, *self._others]:
                self._note(f"warming up {runner.name}")
                with self._may_be_left_out(runner.name):
                    self._invite(bench, runner, collects=True)
                    if runner.name not in YARDSTICKS:
                        self._check_baseline(bench, runner)
                    self._settle(bench, runner)
                    self._track.crew.baselines.note_compiled(runner.name, self._case)
                    ready.append(runner)
            self._others = ready[1:]
            self._note("warming up your code")
            self._invite(bench, self._submission, collects=True)
            first = self._run(bench, self._submission, 1, check=True, watched=True)  # it may compile
            self._collects = first.collected
            self._set_bytes = self._count_bytes(bench.calls[0], first.collected)
            limit_s = self._rules.slow_limit * max(
                runner.warm_s for runner in self._others if runner.name in self._case.opponents
            )
            took_s = self._call_s(bench, 1)
            if took_s > limit_s:
                took_s = min(took_s, self._call_s(bench, 1))  # nobody loses points for one hiccup of the host
            if took_s < limit_s + NOISE_S:
                took_s = min(self._call_s(bench, WARM_SETS) for _ in range(2))
            if took_s > limit_s:
                self.stopped_after_s = took_s
            else:
                self._settle(bench, self._submission)
                # A claim of nothing would ask for all the memory there is.
                self._submission.warm_s = max(self._submission.warm_s, took_s / 2)

    @contextmanager
    def _may_be_left_out(self, name: str) -> Iterator[None]:
        """A vendor's kernel that this GPU cannot run, say, costs nobody a measurement that does without it."""
        try:
            yield
        except CaseRefused as refused:
            if name in (NULL, self._case.speed.roofline, *self._case.opponents):
                raise
            self._left_out.append(f"left out: {refused}")

    def work_of(self, name: str) -> Cost:
        """What one call of a contender does: that of the case, or a yardstick's own."""
        own = int(self._roofline.its_work)
        yardsticks = {
            "copy": Cost(bytes_moved=own, flops=0),
            "matmul": Cost(bytes_moved=3 * 2 * protocol.MATRIX**2, flops=own),  # three in bfloat16
        }
        if name == self._roofline.contender:
            return yardsticks[name]
        return self._case.problem.cost(self._case.params, self._case.dtype)

    def _roofline_of(self, call: Call) -> Roofline:
        cost = self._case.problem.cost(self._case.params, self._case.dtype)
        if self._case.speed.roofline == "matmul":
            return Roofline("matmul", 2 * protocol.MATRIX**3, cost.flops)
        first = next(iter(call.args.values()))
        return Roofline("copy", 2 * first.numel() * first.element_size(), cost.bytes_moved)

    def _call_s(self, bench: Bench, calls: int) -> float:
        """What a call of the submission takes, by a batch of so many: as it claims, or by the judge's clock if that says more."""
        nothing = self._run(bench, self._null, calls)
        batch = self._run(bench, self._submission, calls)
        return max(batch.claimed_s, (batch.wall_s - nothing.wall_s) / calls)

    def _check_baseline(self, bench: Bench, runner: Runner) -> None:
        """A baseline that is wrong is none."""
        self._run(bench, runner, 1, collect=True)
        if not self._ruler.accepts(bench.calls[0], bench.output(0)):
            raise CaseRefused(f"the baseline {runner.name} gives wrong answers in {self._case.id}")

    def _settle(self, bench: Bench, runner: Runner) -> None:
        """Batches until two in a row took about the same."""
        last, started = math.inf, time.monotonic()
        for _ in range(SETTLE_BATCHES):
            batch = self._run(bench, runner, len(bench.calls))
            runner.warm_s = batch.claimed_s
            if abs(batch.claimed_s - last) <= SETTLED * batch.claimed_s:
                break
            if math.isfinite(last) and time.monotonic() - started > SETTLE_LIMIT_S:
                break
            last = batch.claimed_s

    def _line_up(self) -> None:
        """Lay out the arena for the rounds: as many calls in a batch as it takes to last long enough."""
        fewest = max(WARM_SETS, math.ceil(4 * self._gauge.cache_bytes / self._set_bytes))
        fit = max(WARM_SETS, int(SHARE_OF_FREE_MEMORY * self._track.run.free_gib() * 2**30 / self._set_bytes))
        most = min(fit, self._rules.max_calls)
        for runner in self._everyone:
            wanted = math.ceil(self._rules.batch_s / max(runner.warm_s, 1e-7))
            runner.calls = min(max(fewest, wanted), most)
        # What it costs to start and end a batch is more of each call where there are few: who was slow until now is not paid for that.
        limit_s = self._roofline.limit_s(Lap({runner.name: runner.warm_s for runner in self._others}, 0.0))
        likely = math.ceil(self._rules.batch_s / max(SHARE_OF_LIMIT * limit_s, 1e-7))
        self._submission.calls = max(self._submission.calls, min(likely, most))
        self._wanted = min(max(fewest, likely), self._rules.max_calls)
        self._null.calls = self._submission.calls
        self._started = time.monotonic()
        bench = self._bench(
            max(runner.calls for runner in self._everyone), self._submission.calls if self._collects else 0
        )
        self._bench_of_rounds = self._stack.enter_context(bench)
        for runner in [self._null, *self._everyone]:
            self._invite(bench, runner, collects=runner in (self._null, self._submission))
            # The memory that a whole batch's results take is taken here, not in a round.
            self._run(bench, runner, runner.calls)

    def _bench(self, sets: int, collected: int) -> Bench:
        calls = self._draw(sets)
        outputs, in_place = self._case.problem.outputs(calls[0]), self._case.assignment.spec.language == "cuda"
        return Bench(calls, outputs, self._case.dtype, self._track.run.device, self._gauge, in_place, collected)

    def _draw(self, sets: int) -> list[Call]:
        return self._track.draw(self._case, sets)

    def _count_bytes(self, call: Call, collected: bool) -> int:
        """Bytes that one set takes.

        Inputs lie in the arena and are the judge's own. Outputs are the judge's own, and lie beside the inputs where they may be written
        there; where they are collected, the submission and the null contender make them, and there is a place for them.
        """
        tensors = [*call.args.values(), *([] if call.upstream is None else [call.upstream])]
        inputs = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        copies = (self._case.assignment.spec.language == "cuda") + 1 + 3 * collected
        return 2 * inputs + copies * self._bytes_of_results(call)

    def _bytes_of_results(self, call: Call) -> int:
        return sum(math.prod(shape) for shape in self._case.problem.outputs(call).values()) * self._case.dtype.itemsize

    # Rounds
    # -----------------------------------------------------------------------------------------------------------------

    def open_round(self) -> None:
        """Whoever runs before the submission in this round, on inputs that it has seen."""
        number = len(self.rounds)
        # The null contender always runs just before the submission: their difference is the judge's time of it.
        ring = [[runner] for runner in self._others] + [[self._null, self._submission]]
        turn = number % len(ring)
        self._order = [runner for group in ring[turn:] + ring[:turn] for runner in group]
        self._conditions = self._gauge.conditions()
        self._batches = {}
        for runner in self._order[: self._order.index(self._submission)]:
            self._run_in_round(runner)

    def run_submission(self) -> None:
        """The submission's batch, on inputs that nobody has had yet, every output of it checked."""
        self._bench_of_rounds.renew(self._draw)
        self._run_in_round(self._submission)

    def close_round(self) -> None:
        """Whoever runs after the submission; then the round is kept."""
        for runner in self._order[self._order.index(self._submission) + 1 :]:
            self._run_in_round(runner)
        times_s = {runner.name: self._batches[runner.name].claimed_s for runner in self._everyone}
        order = tuple(runner.name for runner in self._order)
        self.rounds.append(
            Round(
                order,
                self._conditions,
                times_s,
                self._batches[SUBMISSION].wall_s,
                self._batches[self._null.name].wall_s,
            )
        )

    def round(self) -> None:
        """A whole round."""
        self.open_round()
        self.run_submission()
        self.close_round()

    def look_again(self) -> None:
        """After the rounds, one more batch as in a round, on new inputs, but watched: it must still be the submission's own work."""
        self._bench_of_rounds.renew(self._draw)
        self._run(self._bench_of_rounds, self._submission, self._submission.calls, check=True, watched=True)

    def end_submission(self) -> None:
        """At last, on a GPU, end the submission's process, and run the null contender and the baselines without it: frozen, it may have
        work on the GPU's queue that starts when theirs does.

        By turns, as in the rounds: what runs again at once finds its host awake: on an H200 a batch of nothing is 0.2 ms shorter.
        """
        if self._track.run.device_name != "cuda":
            return
        self._note("timing the others without your code")
        self._kill_submission()
        ring = [*(one for one in self._others if one.name not in YARDSTICKS), self._null]
        for runner in ring:
            self._run(self._bench_of_rounds, runner, runner.calls)  # the GPU has rested
        turns = [
            {runner.name: self._run(self._bench_of_rounds, runner, runner.calls) for runner in ring}
            for _ in range(ALONE_BATCHES)
        ]
        self._nothing_alone_s = median_interval([batches.pop(NULL).wall_s for batches in turns]).median
        for name in turns[0]:
            self._alone_s[name] = median_interval([batches[name].claimed_s for batches in turns]).median

    def _kill_submission(self) -> None:
        """Raises ContenderFault where it kept memory without which a batch had fewer calls than the judge's clock is made for."""
        before_gib = self._track.run.free_gib()
        self._submission.contender.kill()
        if self._submission.calls >= self._wanted:
            return
        results_gib = self._submission.calls * self._bytes_of_results(self._bench_of_rounds.calls[0]) / 2**30
        allowed_gib = HOARD_GIB + WORKER_GIB + results_gib
        if (freed_gib := freed_since(self._track.run, before_gib, allowed_gib, RELEASED_S)) >= allowed_gib:
            raise ContenderFault(
                "out_of_memory",
                f"still held {freed_gib:.0f} GiB of GPU memory after its calls: there was room for {self._submission.calls} calls in a "
                f"batch, and {self._wanted} are wanted",
            )

    def _run_in_round(self, runner: Runner) -> None:
        self._note(f"round {len(self.rounds) + 1}: {runner.name}")
        self._batches[runner.name] = self._run(
            self._bench_of_rounds, runner, runner.calls, check=runner is self._submission
        )

    def _invite(self, bench: Bench, runner: Runner, collects: bool) -> None:
        with self._faults_of(runner):
            bench.invite(runner.contender, collects)

    @contextmanager
    def _faults_of(self, runner: Runner) -> Iterator[None]:
        """A fault of the submission is its own; one of a baseline is the grader's."""
        try:
            yield
        except ContenderFault as fault:
            if runner is self._submission:
                raise
            words = f"the baseline {runner.name} failed in {self._case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self._track.run.device_name == "cuda":
                raise MemoryError(words) from None  # perhaps the submission has it
            raise CaseRefused(words) from None

    def _run(
        self,
        bench: Bench,
        runner: Runner,
        calls: int,
        collect: bool = False,
        check: bool = False,
        watched: bool = False,
    ) -> Batch:
        """One batch on a quiet GPU. The submission's outputs are collected, and with `check` checked; a baseline's with `collect`."""
        collect = collect or (runner in (self._submission, self._null) and self._collects is not False)
        for attempt in count(1):
            with self._faults_of(runner):
                batch = bench.run(
                    runner.contender,
                    calls,
                    runner.limits,
                    judged=runner in (self._submission, self._null),
                    collect=collect,
                    check=check,
                    watched=watched,
                )
            if runner is self._submission and self._collects not in (None, batch.collected):
                raise CheckFailed("returned results in some batches, and wrote them to the given outputs in others")
            if runner is self._submission and check:
                self._check(bench, batch)
            if watched:
                check_operators(batch.operators, self._case.assignment)
            if batch.quiet:
                break
            self._wait_for_quiet(runner, attempt)
            self._repeats += runner is self._submission
            bench.renew(self._draw)  # nobody runs twice on the same inputs
        return batch

    def _wait_for_quiet(self, runner: Runner, attempt: int) -> None:
        """The GPU was busy when everybody should have stood still: wait until it is quiet, or say who it was. `attempt` counts from 1."""
        quiet = self._becomes_quiet()
        if quiet and attempt <= MAX_REPEATS:
            return
        if not quiet and self._submission.contender.lives():
            self._submission.contender.kill()
            # The driver ends what a process has left running a little after the process.
            if not self._gauge.others() and self._becomes_quiet():
                raise CheckFailed(
                    "kernels of your code still ran on the GPU after your function had returned and its stream was done"
                )
        elif runner is self._submission:
            raise CheckFailed(
                "again and again the GPU was still busy when your function had returned and its stream was done: "
                "consistent with work on a stream or in a thread that nothing waits for"
            )
        others = self._gauge.others()
        who = f" (processes {', '.join(map(str, others))})" if others else ""
        raise CaseRefused(f"another program is using this GPU{who}: no time measured now would be fair")

    def _becomes_quiet(self) -> bool:
        """Whether the GPU is quiet within a few seconds, and stays so: a neighbour that works now and then has quiet moments too."""
        for pause_s in PATIENCE_S:
            time.sleep(pause_s)
            if all(self._gauge.is_quiet() for _ in range(QUIET_LOOKS)):
                return True
        return False

    def _check(self, bench: Bench, batch: Batch) -> None:
        """Every output of a batch by the correctness rule, and what else the batch touched. Raises CheckFailed."""
        case = self._case
        for kind in batch.kinds:
            check_returned(kind, case.problem.outputs(bench.calls[0]), case.dtype, self._track.run.device)
        bench.check_memory()
        for index, call in enumerate(bench.calls[: batch.calls]):
            got = bench.output(index)
            if not self._ruler.accepts(call, got):
                try:
                    self._track.comparison.compare(case, call, got, self._evidence)
                except CheckFailed as failed:
                    place = f"in call {index + 1} of {batch.calls} in a timed batch, each on new data: "
                    raise CheckFailed(place + failed.message, (*failed.details, UNDER_TIMING)) from None
