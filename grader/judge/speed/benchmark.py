"""A benchmark run of a speed case: the submission beside baselines and yardsticks in interleaved rounds, up to the verdict.

Before the rounds every entrant runs until its times settle; a submission that is far too slow is stopped. In a round
each entrant runs one batch, in rotating order. The submission gets new inputs in each round; entrants after it run on
the same inputs, entrants before it on those of the round before. Clock, temperature and neighbours of a round affect
all entrants alike, so a speed-up is a ratio within a round.

The judge's clock is a few percent off now and then, because collecting results takes a varying time. So it sometimes
doubts an honest claim. A run whose clocks disagree a little has further rounds (`SpeedRules.wants_another_round`). If
these do not settle the doubt, a second run with a new worker decides: a false claim is as far off there as in the first.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from grader.judge.asking import check_returned
from grader.judge.baselines import LIMITS as BASELINE_LIMITS
from grader.judge.baselines import NULL, YARDSTICKS
from grader.judge.cases import BoundSpeedCase
from grader.judge.comparison import Comparison
from grader.judge.evidence import Evidence
from grader.judge.gpu import wait_for_quiet
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB, freed_since
from grader.judge.ownership import check_operators
from grader.judge.run import Run
from grader.judge.speed.clock import Batch, InputSets
from grader.judge.speed.quick_check import QuickCheck
from grader.judge.workers import Workers
from grader.messages import CaseNote
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call, Cost
from grader.protocol import MATRIX
from grader.report.model import Alone, BandResult, EntrantTime, Round, SpeedMeasurement
from grader.verdict.speed import SUBMISSION, WARM_SETS, Roofline, SpeedRules, Verdict, batch_sizes, milliseconds
from grader.verdict.statistics import median_interval

ALONE_BATCHES = 5
SETTLED = 0.03  # two batches in a row that differ by less are warm
SETTLE_BATCHES = 12
SETTLE_LIMIT_S = 1.0
NOISE_S = 0.05  # error of a single call's time by the judge's clock, on a bad day
RELEASED_S = 0.5  # the driver needs some time to free a killed process's memory
UNDER_TIMING = (
    "right in its correctness cases, wrong in a batch of calls that are queued before the inputs are there: also consistent with a "
    "stream that does not wait for the current one, or with results kept from earlier calls"
)


class FarTooSlow(Exception):
    """The submission is too slow for rounds: a call takes `call_s` seconds."""

    def __init__(self, call_s: float) -> None:
        super().__init__(f"a call takes {call_s:.3g} s")
        self.call_s = call_s


@dataclass
class Benchmarks:
    """Runs the benchmarks of a grading, and draws their inputs."""

    run: Run
    workers: Workers
    comparison: Comparison
    _drawn: Counter[str] = field(init=False, default_factory=Counter)

    def measure(
        self, case: BoundSpeedCase, evidence: Evidence, worker_of: Callable[[], Worker] | None = None
    ) -> Verdict | None:
        """Time the submission: in one run, and in a second run with a new worker if the verdict on the first is doubted.
        Returns the verdict; None if the submission was stopped as far too slow.

        Of two runs the one with the smaller discrepancy counts, with a flag about the other. So a forger gets two draws of the
        clock's noise.

        Args:
            evidence: gets the bands, the measurement, or a sentence for the student why it was stopped.
            worker_of: a loaded worker for each run; that of the submission by default.

        Raises:
            Fault: the submission's answers are wrong under timing, it gave no answer, or let PyTorch do the work; or a baseline
                failed, or another program uses the GPU.
        """
        worker_of = worker_of or (lambda: self.workers.worker(case.assignment))
        worker = worker_of()
        try:
            verdict, measured = BenchmarkRun(self, case, worker, evidence).measure()
        except FarTooSlow as slow:
            limit, baselines = case.assignment.spec.timing.slow_limit, " or ".join(case.opponents)
            evidence.words = (
                f"one call takes {milliseconds(slow.call_s)}, more than {limit:g} times {baselines}: stopped there"
            )
            evidence.bands = tuple(BandResult(**dict(band), reached=False) for band in case.speed.bands)
            return None
        if verdict.clocks_disagree and self.run.request.effort != "quick":
            worker.kill()
            try:
                second = BenchmarkRun(self, case, worker_of(), evidence).measure()
            except FarTooSlow:
                pass
            else:
                verdict, measured = the_better((verdict, measured), second)
        ends = zip(case.speed.bands, verdict.reached, verdict.undecided, strict=True)
        evidence.measured = measured
        evidence.bands = tuple(
            BandResult(**dict(band), reached=reached, undecided=undecided) for band, reached, undecided in ends
        )
        return verdict

    def note(self, text: str) -> None:
        """Tell the student how far the run is."""
        self.run.emit(CaseNote(text=text))

    def draw(self, case: BoundSpeedCase, sets: int) -> list[Call]:
        """New inputs of a speed case. No run of the grading has used them: a worker could know inputs of an earlier run."""
        first = self._drawn[case.id]
        self._drawn[case.id] += sets
        return [case.inputs(self.run.seed, number, self.run.device) for number in range(first, first + sets)]


def the_better(
    first: tuple[Verdict, SpeedMeasurement], second: tuple[Verdict, SpeedMeasurement]
) -> tuple[Verdict, SpeedMeasurement]:
    """Of two runs the one with the smaller discrepancy, with a flag about the other."""
    (verdict, measured), number, other = second, "first", first[0]
    if verdict.discrepancy >= other.discrepancy:
        (verdict, measured), number, other = first, "second", verdict
    claimed, judged = milliseconds(other.claimed.median), milliseconds(other.judged.median)
    words = f"timed twice: in the {number} run the worker said {claimed} a call, by the judge's clock it was {judged}"
    flags = (*verdict.flags, words)
    return replace(verdict, flags=flags), measured.model_copy(update={"flags": flags})


@dataclass(frozen=True)
class Entrant:
    """One worker in a benchmark run, with its limits."""

    name: str
    worker: Worker
    limits: CallLimits


class BenchmarkRun:
    """One benchmark run, by `measure`: the entrants, their warming up, the rounds, and the times after the submission's end.

    Attributes:
        submission: its worker is loaded, and frozen until its turn.
        others: the baselines and yardsticks, each in a worker of its own.
        left_out: why entrants are missing that no band needs.
        collects: whether the submission's results are collected; None before its first batch.
        repeats: how many batches ran again because the GPU was busy after them, by entrant.
        sets: the inputs of the rounds; they hold GPU memory.
        calls: number of calls in a batch, by entrant.

    Raises (the constructor too): as `Benchmarks.measure`; FarTooSlow from `warm_up`.
    """

    sets: InputSets

    def __init__(self, shared: Benchmarks, case: BoundSpeedCase, submission: Worker, evidence: Evidence) -> None:
        self._shared, self._run, self._case, self._evidence = shared, shared.run, case, evidence
        self.left_out: list[str] = []
        self.collects: bool | None = None
        self.repeats: Counter[str] = Counter()
        self.rounds: list[Round] = []
        self.alone = Alone()
        self.calls: dict[str, int] = {}
        submission.freeze()
        limits = case.assignment.spec.limits
        own = CallLimits(limits.time_limit_s[self._run.device_name], limits.memory_gib)
        baselines = shared.workers.baselines
        self.submission = Entrant(SUBMISSION, submission, own)
        self.others: list[Entrant] = []
        baselines.settle()
        for name in case.entrants(everyone=self._run.request.entrants == "all"):
            with self._may_leave_out(name):
                self.others.append(Entrant(name, baselines.worker(name, case), BASELINE_LIMITS))
        self.null = Entrant(NULL, baselines.worker(NULL, case), BASELINE_LIMITS)

    def measure(self) -> tuple[Verdict, SpeedMeasurement]:
        """Do the whole run. Afterwards it has freed its GPU memory."""
        self.warm_up()
        with self.ready():
            while self.wants_another_round():
                self.round()
            self.look_again()
            self.end_submission()
            return self.verdict(), self.measurement()

    @contextmanager
    def _may_leave_out(self, name: str) -> Iterator[None]:
        """Leave an entrant out that fails in this block, unless a verdict needs it: this GPU may lack, say, a vendor's
        kernel.
        """
        try:
            yield
        except Fault as refused:
            if (
                refused.whose != "machine"
                or refused.of_start
                or name in (NULL, self._case.speed.roofline, *self._case.opponents)
            ):
                raise
            self.left_out.append(f"left out: {refused}")

    def warm_up(self) -> None:
        """Run every entrant until its times settle, and decide how many calls make a batch. Entrants that fail leave if no
        verdict needs them.
        """
        run, case, gauge = self._run, self._case, self._run.gauge
        if not gauge.is_quiet():
            wait_for_quiet(gauge, self.submission.worker, was_running=True, attempt=1)
        with self._open(WARM_SETS, WARM_SETS) as sets:
            self._check = QuickCheck(run.device_name, case, sets.calls[0])
            call_s: dict[str, float] = {}
            for entrant in [self.null, *self.others]:
                self._shared.note(f"warming up {entrant.name}")
                with self._may_leave_out(entrant.name):
                    self._invite(sets, entrant, collects=True)
                    if entrant.name not in YARDSTICKS:
                        self.batch(sets, entrant, 1, collect=True)
                        if not self._check.accepts(sets.calls[0], sets.output(0)):
                            raise Fault.of_machine(f"the baseline {entrant.name} gives wrong answers in {case.id}")
                    call_s[entrant.name] = self._settled_s(sets, entrant)
            self.others = [entrant for entrant in self.others if entrant.name in call_s]
            del call_s[NULL]  # the null entrant's batches are as large as the submission's
            self._shared.note("warming up your code")
            self._invite(sets, self.submission, collects=True)
            first = self.batch(sets, self.submission, 1, check=True, watched=True)  # the first call may compile
            self.roofline = roofline_of(case, sets.calls[0])
            set_bytes = bytes_of_set(case, sets.calls[0], first.collected)

            def by_both_clocks(calls: int) -> float:
                nothing = self.batch(sets, self.null, calls)
                batch = self.batch(sets, self.submission, calls)
                return max(batch.claimed_s, (batch.wall_s - nothing.wall_s) / calls)

            limit_s = case.assignment.spec.timing.slow_limit * max(call_s[name] for name in case.opponents)
            took_s = shortest_s(by_both_clocks, limit_s)
            if took_s > limit_s:
                raise FarTooSlow(took_s)
            # A claim of 0 s would make batches that need all memory.
            call_s[SUBMISSION] = max(self._settled_s(sets, self.submission), took_s / 2)
        self._started = time.monotonic()
        timing, free_bytes = case.assignment.spec.timing, run.free_gib() * 2**30
        sizes = batch_sizes(call_s, set_bytes, gauge.cache_bytes, free_bytes, timing, self.roofline)
        self.calls, self._wanted = dict(sizes.calls), sizes.wanted
        self.rules = SpeedRules(timing, case.speed.bands, self.roofline, self.calls[SUBMISSION])

    def _settled_s(self, sets: InputSets, entrant: Entrant) -> float:
        """Seconds of a call in the second of two batches that took about the same."""
        last, started = math.inf, time.monotonic()
        for _ in range(SETTLE_BATCHES):
            call_s = self.batch(sets, entrant, len(sets.calls)).claimed_s
            if abs(call_s - last) <= SETTLED * call_s:
                break
            if math.isfinite(last) and time.monotonic() - started > SETTLE_LIMIT_S:
                break
            last = call_s
        return call_s

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Hold the inputs of the rounds. All entrants map them and run a batch, so that no round has to allocate memory
        for results.
        """
        collected = self.calls[SUBMISSION] if self.collects else 0
        with self._open(max(self.calls.values()), collected) as self.sets:
            for entrant in [self.null, *self.others, self.submission]:
                self._invite(self.sets, entrant, collects=entrant in (self.null, self.submission))
                self._run_batch(entrant)
            yield

    def wants_another_round(self) -> bool:
        # Time between batches is not counted: a submission that is slow there would otherwise get fewer rounds.
        spent_s = time.monotonic() - self._started - self.sets.tidied_s
        return self.rules.wants_another_round(self.rounds, spent_s, self._run.request.effort == "quick")

    def round(self) -> None:
        """Run one batch of every entrant. The submission's inputs are new, and all its outputs are checked."""
        ring = [[entrant] for entrant in self.others] + [[self.null, self.submission]]
        turn = len(self.rounds) % len(ring)  # the null entrant stays before the submission: their difference counts
        order = [entrant for group in ring[turn:] + ring[:turn] for entrant in group]
        before, clocks = self.repeats.total(), self._run.gauge.clocks()
        batches: dict[str, Batch] = {}
        for entrant in order:
            ours = entrant is self.submission
            if ours:
                self.sets.renew(self._draw)
            self._shared.note(f"round {len(self.rounds) + 1}: {entrant.name}")
            batches[entrant.name] = self._run_batch(entrant, check=ours)
        self.rounds.append(
            Round(
                order=tuple(entrant.name for entrant in order),
                **clocks,
                times_s={name: batches[name].claimed_s for name in self.calls},
                batch_s=batches[SUBMISSION].wall_s,
                nothing_s=batches[NULL].wall_s,
                repeats=self.repeats.total() - before,
            )
        )

    def look_again(self) -> None:
        """Run one more batch after the rounds, on new inputs and watched: the work must still be the submission's own."""
        self.sets.renew(self._draw)
        self._run_batch(self.submission, check=True, watched=True)

    def end_submission(self) -> None:
        """On a GPU, end the submission's process and time baselines and the null entrant without it.

        A frozen process may have queued work on the GPU that starts when a baseline's does. That would make the baseline
        look slower, and the judge's time, of which the null entrant's is subtracted, shorter. The entrants run by turns, as
        in the rounds: the host is awake for an entrant that runs again at once.
        """
        if self._run.device_name != "cuda":
            return
        self._shared.note("timing the others without your code")
        before_gib, calls = self._run.free_gib(), self.calls[SUBMISSION]
        self.submission.worker.kill()
        if calls < self._wanted:
            results_gib = calls * bytes_of_results(self._case, self.sets.calls[0]) / 2**30
            allowed_gib = HOARD_GIB + WORKER_GIB + results_gib
            if (freed_gib := freed_since(self._run, before_gib, allowed_gib, RELEASED_S)) >= allowed_gib:
                held = f"still held {freed_gib:.0f} GiB of GPU memory after its calls"
                words = f"there was room for {calls} calls in a batch, and {self._wanted} are wanted"
                raise Fault("out_of_memory", f"{held}: {words}")
        ring = [*(one for one in self.others if one.name not in YARDSTICKS), self.null]
        for entrant in ring:
            self._run_batch(entrant)  # the GPU has rested
        turns = [{entrant.name: self._run_batch(entrant) for entrant in ring} for _ in range(ALONE_BATCHES)]
        nothing_s = median_interval([batches.pop(NULL).wall_s for batches in turns]).median
        times_s = {name: median_interval([one[name].claimed_s for one in turns]).median for name in turns[0]}
        self.alone = Alone(times_s=times_s, nothing_s=nothing_s)

    def verdict(self) -> Verdict:
        """The verdict on the rounds so far, with flags."""
        verdict = self.rules.verdict(self.rounds, self.alone)
        repeats = self.repeats[SUBMISSION]
        busy = f"the GPU was busy after batches of your code, which were run again: {repeats} times"
        return replace(verdict, flags=(*verdict.flags, *([busy] if repeats else []), *self.left_out))

    def measurement(self) -> SpeedMeasurement:
        """The run's numbers for the report."""
        case, verdict = self._case, self.verdict()
        entrants = []
        for name, counted in sorted(verdict.counted.items(), key=lambda pair: pair[1].median):
            work = work_of(name, case, self.roofline)
            entrants.append(
                EntrantTime(
                    name=name,
                    time_s=counted,
                    calls=self.calls[name],
                    bytes_per_s=work.bytes_moved / counted.median,
                    flops_per_s=work.flops / counted.median,
                    roofline_share=verdict.shares[name],
                    speedup=verdict.speedups.get(name),
                )
            )
        return SpeedMeasurement(
            roofline=case.speed.roofline,
            entrants=tuple(entrants),
            claimed_s=verdict.claimed,
            judged_s=verdict.judged,
            corroborated=verdict.corroborated,
            flags=verdict.flags,
            rounds=tuple(self.rounds),
            alone=self.alone,
        )

    # Batches ----------------------------------------------------------------------------------------------------------

    def _open(self, sets: int, collected: int) -> InputSets:
        """`sets` sets of new inputs, and places for `collected` results."""
        case, calls = self._case, self._draw(sets)
        in_place = case.assignment.spec.language == "cuda"
        return InputSets(
            calls, case.problem.outputs(calls[0]), case.dtype, self._run.device, self._run.gauge, in_place, collected
        )

    def _draw(self, sets: int) -> list[Call]:
        return self._shared.draw(self._case, sets)

    def _invite(self, sets: InputSets, entrant: Entrant, collects: bool) -> None:
        with self._faults_of(entrant):
            sets.invite(entrant.worker, collects)

    def _run_batch(self, entrant: Entrant, *, check: bool = False, watched: bool = False) -> Batch:
        calls = self.calls[SUBMISSION if entrant.name == NULL else entrant.name]
        return self.batch(self.sets, entrant, calls, check=check, watched=watched)

    def batch(
        self,
        sets: InputSets,
        entrant: Entrant,
        calls: int,
        *,
        collect: bool = False,
        check: bool = False,
        watched: bool = False,
    ) -> Batch:
        """Run one batch until the GPU is quiet after it.

        Args:
            collect: whether to collect a baseline's outputs; the submission's always are.
            check: whether to check every output of the submission.
            watched: whether to check which of PyTorch's operators ran; such a batch is no measure of time.
        """
        ours = entrant is self.submission
        judged = ours or entrant is self.null
        how = {"judged": judged, "collect": collect or (judged and self.collects is not False)}
        for attempt in count(1):
            with self._faults_of(entrant):
                batch = sets.run(entrant.worker, calls, entrant.limits, check=check, watched=watched, **how)
            if ours and self.collects is None:
                self.collects = batch.collected
            if ours and self.collects != batch.collected:
                raise Fault.wrong("returned results in some batches, and wrote them to the given outputs in others")
            if ours and check:
                self._check_outputs(sets, batch)
            if watched:
                check_operators(batch.operators, self._case.assignment)
            if batch.quiet:
                break
            wait_for_quiet(self._run.gauge, self.submission.worker, ours, attempt)
            self.repeats[entrant.name] += 1
            sets.renew(self._draw)  # no worker runs twice on the same inputs
        return batch

    def _check_outputs(self, sets: InputSets, batch: Batch) -> None:
        """Check every output of a batch by the correctness rule, and the memory around them."""
        case = self._case
        for kind in batch.kinds:
            check_returned(kind, case.problem.outputs(sets.calls[0]), case.dtype, self._run.device)
        sets.check_memory()
        for index, call in enumerate(sets.calls[: batch.calls]):
            got = sets.output(index)
            if not self._check.accepts(call, got):
                try:
                    self._shared.comparison.compare(case, call, got, self._evidence)
                except Fault as failed:
                    if failed.whose != "answer":
                        raise
                    place = f"in call {index + 1} of {batch.calls} in a timed batch, each on new data: "
                    raise Fault.wrong(place + failed.message, (*failed.details, UNDER_TIMING)) from None

    @contextmanager
    def _faults_of(self, entrant: Entrant) -> Iterator[None]:
        """Let a fault of the submission pass; turn a fault of a baseline into the grader's."""
        try:
            yield
        except Fault as fault:
            if entrant is self.submission or fault.whose == "machine":
                raise
            words = f"the baseline {entrant.name} failed in {self._case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self._run.device_name == "cuda":
                raise MemoryError(words) from None  # the submission may hold the memory
            raise Fault.of_machine(words) from None


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


def roofline_of(case: BoundSpeedCase, call: Call) -> Roofline:
    """The yardstick of a case, with its own work and the case's."""
    cost = case.problem.cost(case.params, case.dtype)
    if case.speed.roofline == "matmul":
        return Roofline("matmul", 2 * MATRIX**3, cost.flops)
    first = next(iter(call.args.values()))
    return Roofline("copy", 2 * first.numel() * first.element_size(), cost.bytes_moved)


def work_of(name: str, case: BoundSpeedCase, roofline: Roofline) -> Cost:
    """The work of one call of an entrant: the case's, or the yardstick's own."""
    if name != roofline.yardstick:
        return case.problem.cost(case.params, case.dtype)
    own = int(roofline.its_work)
    if name == "matmul":
        return Cost(bytes_moved=3 * 2 * MATRIX**2, flops=own)  # three matrices in bfloat16
    return Cost(bytes_moved=own, flops=0)


def bytes_of_set(case: BoundSpeedCase, call: Call, collected: bool) -> int:
    """Bytes that the tensors of one call take.

    Inputs lie in the arena and in the judge's memory. Outputs lie in the judge's memory, and beside the inputs if
    functions may write to given outputs. If outputs are collected, the submission and the null entrant hold them too,
    and each has a place in the arena.
    """
    tensors = [*call.args.values(), *([] if call.upstream is None else [call.upstream])]
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    copies = (case.assignment.spec.language == "cuda") + 1 + 3 * collected
    return 2 * inputs + copies * bytes_of_results(case, call)


def bytes_of_results(case: BoundSpeedCase, call: Call) -> int:
    """Bytes of one call's outputs."""
    return sum(math.prod(shape) for shape in case.problem.outputs(call).values()) * case.dtype.itemsize
