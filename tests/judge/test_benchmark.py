"""Whole benchmark runs of entrants that live in this process: who runs when, on which inputs, how often, and who is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grader.assignment import Band, Timing
from grader.judge import gpu
from grader.judge.baselines import NULL
from grader.judge.evidence import Evidence
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB
from grader.judge.speed import benchmark
from grader.judge.speed.benchmark import (
    ALONE_BATCHES,
    NOISE_S,
    BenchmarkRun,
    Benchmarks,
    FarTooSlow,
    bytes_of_set,
    shortest_s,
    the_better,
    work_of,
)
from grader.judge.speed.clock import Batch, InputSets
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call, Cost
from grader.protocol import MATRIX, RanOperator, Reply
from grader.report.model import Alone, Interval, Round, SpeedMeasurement
from grader.verdict.speed import (
    HOST_NOISE_S,
    SHARE_OF_FREE_MEMORY,
    SUBMISSION,
    WARM_SETS,
    Roofline,
    SpeedRules,
    Verdict,
)
from tests.judge.test_clock import Doubles

CPU = torch.device("cpu")
SIZE = 8
EAGER_S, COPY_S = 1e-3, 0.5e-3
BATCH_S = 0.008


class Double(Doubles):
    """Claims that a call takes `claim_s`. `wrong`: what is added to its answers."""

    def __init__(self, name: str, claim_s: float, trusted: bool) -> None:
        super().__init__(trusted=trusted)
        self.name, self.claim_s = name, claim_s
        self.operators: tuple[RanOperator, ...] = ()
        self.wrong = 0.0
        self.may_end = self.ended = False

    def finish(self, calls: int, limits: CallLimits) -> Reply:
        reply = super().finish(calls, limits)
        self.inputs = [x + self.wrong / 2 for x in self.inputs]
        return replace(reply, times_s=(self.claim_s,) * calls, operators=self.operators)

    def kill(self) -> None:
        assert self.may_end, "nobody is to be ended"
        self.ended = True


class Course:
    """A judge with a case, and who takes part. Of each batch `log` has who ran it, how, and the number of its first inputs.

    looks: what looks at the GPU find after each batch of the submission, as long as there are some.
    walls_s: by the judge's clock, of a call of the submission; of a batch of the null entrant as long as there are some.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claim_s: float = EAGER_S, **rules: Any) -> None:
        self.log: list[dict[str, Any]] = []
        self.looks: list[bool] = []
        self.walls_s: dict[str, list[float]] = {}
        self.entrants = {
            name: Double(name, seconds, name != SUBMISSION)
            for name, seconds in {SUBMISSION: claim_s, NULL: 1e-6, "eager": EAGER_S, "copy": COPY_S}.items()
        }
        course = self

        class Logged(InputSets):
            def run(self, worker: Worker, calls: int, limits: CallLimits, **how: bool) -> Batch:
                entry = {"name": worker.name, "calls": calls, **how}  # type: ignore[attr-defined]
                course.log.append(entry)
                batch = super().run(worker, calls, limits, **how)
                entry["inputs"] = int(worker.inputs[0][0] - worker.wrong / 2)  # type: ignore[attr-defined]
                if walls_s := course.walls_s.get(worker.name):  # type: ignore[attr-defined]
                    wall_s = walls_s.pop(0) if len(walls_s) > 1 else walls_s[0]
                    batch = replace(batch, wall_s=wall_s * (calls if worker.name == SUBMISSION else 1))  # type: ignore[attr-defined]
                return batch

        class Doubled:
            def __init__(self, *_: Any) -> None: ...

            def accepts(self, call: Call, got: dict[str, torch.Tensor]) -> bool:
                return torch.equal(got["y"], 2 * call.args["x"])

        def compare(*_: Any) -> None:
            raise Fault.wrong("it is wrong")

        monkeypatch.setattr(benchmark, "InputSets", Logged)
        monkeypatch.setattr(benchmark, "QuickCheck", Doubled)
        monkeypatch.setattr(gpu.time, "sleep", lambda _seconds: None)
        timing = Timing(rounds=3, max_rounds=11, batch_s=BATCH_S, max_calls=16, **rules)
        spec = SimpleNamespace(
            timing=timing,
            limits=SimpleNamespace(time_limit_s={"cpu": 1.0, "cuda": 1.0}, memory_gib=1.0),
            language="triton",
            policy=SimpleNamespace(operators=()),
        )
        self.case: Any = SimpleNamespace(
            id="double-speed-one",
            assignment=SimpleNamespace(spec=spec, name="double"),
            problem=SimpleNamespace(
                outputs=lambda _call: {"y": (SIZE,)}, cost=lambda *_: Cost(bytes_moved=8 * SIZE, flops=SIZE)
            ),
            params={},
            dtype=torch.float32,
            opponents=["eager"],
            entrants=lambda **_: ["eager", "copy"],
            speed=SimpleNamespace(bands=[Band(vs="eager", speedup=0.5, points=1)], roofline="copy"),
            inputs=lambda _seed, number, _device: Call({"x": torch.arange(SIZE) * 0.0 + number}),
        )
        self.run: Any = SimpleNamespace(
            device_name="cpu",
            device=CPU,
            seed=1,
            request=SimpleNamespace(entrants="needed", effort="full"),
            gauge=SimpleNamespace(cache_bytes=0, is_quiet=self._is_quiet, clocks=dict, others=lambda: []),
            free_gib=lambda: 1.0,
            emit=lambda _event: None,
        )
        self.workers: Any = SimpleNamespace(
            baselines=SimpleNamespace(worker=lambda name, _case: self.entrants[name], settle=lambda: None),
            worker=lambda _assignment: self.submission,
        )
        comparison: Any = SimpleNamespace(compare=compare)
        self.benchmarks = Benchmarks(self.run, self.workers, comparison)

    def _is_quiet(self, thoroughly: bool = False) -> bool:
        return not self.looks or not thoroughly or self.looks.pop(0)

    @property
    def submission(self) -> Worker:
        return cast("Worker", self.entrants[SUBMISSION])

    def new(self) -> BenchmarkRun:
        return BenchmarkRun(self.benchmarks, self.case, self.submission, Evidence())

    @contextmanager
    def ready(self) -> Iterator[BenchmarkRun]:
        """A run that is warmed up, before its first round."""
        run = self.new()
        run.warm_up()
        with run.ready():
            yield run

    def rounds(self, run: BenchmarkRun, count: int) -> list[list[dict[str, Any]]]:
        """The batches of so many rounds."""
        found = []
        for _ in range(count):
            before = len(self.log)
            run.round()
            found.append(self.log[before:])
        return found


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch) -> Course:
    return Course(monkeypatch)


@pytest.fixture
def ready(course: Course) -> Iterator[tuple[Course, BenchmarkRun]]:
    with course.ready() as run:
        yield course, run


def test_everyone_runs_once_in_each_round_and_the_order_rotates(ready: tuple[Course, BenchmarkRun]) -> None:
    course, run = ready
    orders = [[batch["name"] for batch in batches] for batches in course.rounds(run, 4)]
    assert orders == [
        ["eager", "copy", NULL, SUBMISSION],
        ["copy", NULL, SUBMISSION, "eager"],
        [NULL, SUBMISSION, "eager", "copy"],
        ["eager", "copy", NULL, SUBMISSION],
    ]
    assert [list(one.order) for one in run.rounds] == orders


@pytest.mark.parametrize("claim_s", [EAGER_S * 10, 0.0])
def test_nobody_chooses_how_many_calls_there_are(monkeypatch: pytest.MonkeyPatch, claim_s: float) -> None:
    """Whoever claims to be slow has as many as the machine's limit allows; whoever claims to be fast no more than `max_calls`."""
    course = Course(monkeypatch, claim_s)
    with course.ready() as run:
        batches = course.rounds(run, 1)[0]
        calls = {batch["name"]: batch["calls"] for batch in batches}
    likely = math.ceil(BATCH_S / (2 * COPY_S))
    assert calls[SUBMISSION] == calls[NULL] >= likely
    assert calls[SUBMISSION] <= 16


def test_a_claim_of_nothing_does_not_count_as_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or so many calls would be wanted that no memory is enough."""
    course = Course(monkeypatch, 0.0)
    course.walls_s = {SUBMISSION: [4 * EAGER_S], NULL: [0.0]}
    with course.ready() as run:
        assert run.calls[SUBMISSION] == 8  # as the machine's limit allows; 16 would fit


@pytest.mark.parametrize("name", ["eager", "copy", NULL])
def test_nobody_is_left_out_on_whom_the_verdict_rests(course: Course, name: str) -> None:
    def refuse(asked: str, _case: Any) -> Double:
        if asked == name:
            raise Fault.of_machine("the baseline cannot be loaded")
        return course.entrants[asked]

    course.workers.baselines.worker = refuse
    with pytest.raises(Fault, match="cannot be loaded"), course.ready():
        pass


def test_who_is_only_shown_beside_the_others_may_fail(course: Course) -> None:
    """A vendor's kernel that this GPU cannot run, or that is wrong on it, costs nobody the measurement."""
    course.case.entrants = lambda **_: ["eager", "cudnn", "flash", "copy"]
    course.entrants["flash"] = Double("flash", EAGER_S, trusted=True)
    course.entrants["flash"].wrong = 1.0

    def worker(asked: str, _case: Any) -> Double:
        if asked == "cudnn":
            raise Fault.of_machine("the baseline cudnn cannot be loaded")
        return course.entrants[asked]

    course.workers.baselines.worker = worker
    with course.ready() as run:
        (batches,) = course.rounds(run, 1)
        assert [batch["name"] for batch in batches] == ["eager", "copy", NULL, SUBMISSION]
        flags = run.verdict().flags
    assert flags[-2:] == (
        "left out: the baseline cudnn cannot be loaded",
        "left out: the baseline flash gives wrong answers in double-speed-one",
    )


def test_a_batch_after_which_the_gpu_was_busy_is_run_again_on_other_inputs(ready: tuple[Course, BenchmarkRun]) -> None:
    course, run = ready
    course.looks = [False, True]
    (batches,) = course.rounds(run, 1)
    course.rounds(run, 1)
    assert [one.repeats for one in run.rounds[-2:]] == [1, 0]
    ours = [batch for batch in batches if batch["name"] == SUBMISSION]
    assert len(ours) == 2
    assert ours[1]["inputs"] > ours[0]["inputs"]
    assert ours[1]["check"]
    assert any(
        "the GPU was busy after batches of your code, which were run again: 1 times" in flag
        for flag in run.verdict().flags
    )


def test_a_run_begins_when_the_gpu_is_quiet(course: Course) -> None:
    looks = [False, True, True, True]
    course.run.gauge.is_quiet = lambda **how: bool(how) or not looks or looks.pop(0)
    with course.ready():
        assert looks == []


@pytest.mark.parametrize(("in_place", "collected", "copies"), [(False, True, 6), (False, False, 3), (True, False, 4)])
def test_memory_for_inputs_and_results_counts_as_often_as_there_are_copies(
    course: Course, in_place: bool, collected: bool, copies: int
) -> None:
    """Inputs lie in the arena and with the judge; results with both who make them, in their places, and with the judge."""
    course.case.assignment.spec.language = "cuda" if in_place else "triton"
    assert bytes_of_set(course.case, course.case.inputs(1, 0, CPU), collected) == copies * 4 * SIZE


def test_two_runs_of_a_case_have_no_inputs_in_common(course: Course) -> None:
    seen = []
    for _ in range(2):
        before = len(course.log)
        with course.ready() as run:
            course.rounds(run, 3)
        seen.append({batch["inputs"] for batch in course.log[before:]})
    assert not seen[0] & seen[1]


# Before the rounds, and after them ------------------------------------------------------------------------------------


def measured(course: Course) -> tuple[Verdict, SpeedMeasurement]:
    return course.new().measure()


def batches_of(course: Course, name: str) -> list[int]:
    return [batch["calls"] for batch in course.log if batch["name"] == name]


def test_the_slowest_of_the_opponents_says_what_is_too_slow(course: Course) -> None:
    """No band names the vendor's kernel."""
    course.case.entrants = lambda **_: ["eager", "cudnn", "copy"]
    course.entrants["cudnn"] = Double("cudnn", 100 * EAGER_S, trusted=True)
    course.walls_s = {SUBMISSION: [0.5], NULL: [0.0]}
    with pytest.raises(FarTooSlow):
        measured(course)
    course.case.opponents = ["eager", "cudnn"]
    assert measured(course)[0].counted[SUBMISSION].median == pytest.approx(0.5, rel=0.01)


def test_a_run_has_its_first_rounds_and_further_ones_if_the_clocks_disagree_a_little(course: Course) -> None:
    course.walls_s = {SUBMISSION: [EAGER_S], NULL: [0.0]}
    _, found = measured(course)
    assert len(found.rounds) == 3
    course.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    verdict, found = measured(course)
    assert verdict.clocks_disagree
    assert len(found.rounds) == 3 + 4


def test_a_submission_that_takes_its_time_between_batches_has_no_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it could have the doubt of a wide interval."""
    course = Course(monkeypatch, budget_s=1e-6)
    course.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    with course.ready() as run:
        course.rounds(run, 3)
        assert not run.wants_another_round()
        run.sets.tidied_s = 100.0
        assert run.wants_another_round()


def test_after_a_quick_grading_three_rounds_are_enough(course: Course) -> None:
    course.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    course.run.request.effort = "quick"
    _, found = measured(course)
    assert len(found.rounds) == 3


def on_a_gpu(course: Course) -> Double:
    """The submission, which may be ended, in a run that takes itself to be on a GPU."""
    course.run.device_name = "cuda"
    course.entrants[SUBMISSION].may_end = True
    return course.entrants[SUBMISSION]


def test_afterwards_the_others_take_turns_without_the_submission(course: Course) -> None:
    """An entrant that runs twice in a row is faster the second time."""
    submission = on_a_gpu(course)
    with course.ready() as run:
        course.rounds(run, 3)
        before = len(course.log)
        run.end_submission()
    assert submission.ended
    assert [batch["name"] for batch in course.log[before:]] == ["eager", NULL] * (1 + ALONE_BATCHES)


def test_no_time_counts_that_the_submission_has_made_longer(course: Course) -> None:
    """The lower of two times of the null entrant, in the rounds and afterwards, is subtracted; of a baseline's the margin above."""
    submission = on_a_gpu(course)
    nothing_s, alone_s = 6e-3, [9e-3, 4e-3, 4e-3, 1e-3, 4e-3]
    course.walls_s = {SUBMISSION: [2 * EAGER_S], NULL: [nothing_s]}
    with course.ready() as run:
        course.rounds(run, 3)
        calls = run.calls[SUBMISSION]
        _, judged_s = run.rules.times(run.rounds, run.alone)
        assert judged_s == pytest.approx([2 * EAGER_S - nothing_s / calls] * 3)
        course.walls_s[NULL] = [0.0, *alone_s]
        course.entrants["eager"].claim_s = EAGER_S / 2
        run.end_submission()
        assert submission.ended
        of, judged_s = run.rules.times(run.rounds, run.alone)
        assert judged_s == pytest.approx([2 * EAGER_S - (4e-3 + HOST_NOISE_S) / calls] * 3)
        assert of["eager"] == pytest.approx([1.05 * EAGER_S / 2] * 3)
        assert any(flag.startswith("eager took 1 ms a call in the rounds, and 0.5 ms") for flag in run.verdict().flags)


@pytest.mark.parametrize(
    ("held_gib", "room", "faulty"),
    [
        (HOARD_GIB + WORKER_GIB + 0.1, 5, True),
        (HOARD_GIB + WORKER_GIB - 0.1, 5, False),
        (100.0, 99, False),  # there was room for as many calls as are wanted
    ],
)
def test_memory_that_is_kept_must_not_make_batches_shorter(
    course: Course, monkeypatch: pytest.MonkeyPatch, held_gib: float, room: int, faulty: bool
) -> None:
    """Starting and ending a batch would be more of each call."""
    monkeypatch.setattr(benchmark, "RELEASED_S", 0.0)
    submission = on_a_gpu(course)
    set_gib = bytes_of_set(course.case, course.case.inputs(1, 0, CPU), collected=True) / 2**30
    course.run.free_gib = lambda: (room + 0.5) * set_gib / SHARE_OF_FREE_MEMORY + held_gib * submission.ended
    with course.ready() as run:
        assert run.calls[SUBMISSION] == min(room, 8)
        words = "there was room for 5 calls in a batch, and 8 are wanted"
        with pytest.raises(Fault, match=words) if faulty else nullcontext():
            run.end_submission()


def test_batches_that_are_run_again_are_counted_by_entrant(course: Course) -> None:
    """Work that it leaves running after a slow batch would let it choose among its batches unseen."""
    looks = iter([False, False, True, False, True])
    sets: Any = SimpleNamespace(
        run=lambda *_, **__: SimpleNamespace(collected=True, quiet=next(looks)), renew=lambda _draw: None
    )
    run = course.new()
    run.batch(sets, run.submission, 1)
    assert run.repeats == {SUBMISSION: 2}
    run.batch(sets, run.others[0], 1)
    assert run.repeats == {SUBMISSION: 2, run.others[0].name: 1}


def test_results_are_handed_in_one_way(course: Course) -> None:
    """A function that writes in place is not asked for its results, and the null entrant is: they would be timed differently."""
    results = iter([True, True, False])
    sets: Any = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(collected=next(results), quiet=True))
    run = course.new()
    run.batch(sets, run.submission, 4)
    run.batch(sets, run.submission, 4)
    with pytest.raises(Fault, match="in some batches"):
        run.batch(sets, run.submission, 4)


def test_a_run_ends_with_a_watched_batch_and_without_the_submission(course: Course) -> None:
    submission = on_a_gpu(course)
    measured(course)
    last = [batch for batch in course.log if batch["name"] == SUBMISSION][-1]
    assert (last["calls"], last["watched"], last["check"]) == (8, True, True)
    assert submission.ended


# A second run ---------------------------------------------------------------------------------------------------------

MS = 1e-3
ONE = Interval(median=MS, low=MS, high=MS)
MEASURED = SpeedMeasurement(
    roofline="copy", entrants=(), claimed_s=ONE, judged_s=ONE, corroborated=True, flags=("as it was",), rounds=()
)


def ended(judged_ms: float) -> tuple[Verdict, SpeedMeasurement]:
    """A run of a submission that says 1 ms; the baseline takes 2."""
    times_s = {"submission": MS, "eager": 2 * MS, "copy": 0.5 * MS}
    rounds = [Round(order=(SUBMISSION,), times_s=times_s, batch_s=judged_ms * MS, nothing_s=0.0)] * 5
    rules = SpeedRules(
        Timing(margin=0.05), [Band(vs="eager", speedup=1.9, points=1)], Roofline("copy", 1.0, 1.0), calls=1
    )
    verdict = rules.verdict(rounds, Alone())
    return verdict, MEASURED.model_copy(update={"corroborated": verdict.corroborated, "flags": verdict.flags})


def test_who_is_believed_in_a_second_run_has_what_that_found() -> None:
    second = ended(1.01)
    verdict, measurement = the_better(ended(1.15), second)
    assert verdict.reached == (True,)
    assert verdict.speedups == second[0].speedups
    assert verdict.flags == measurement.flags
    assert verdict.flags[-1] == (
        "timed twice: in the first run the worker said 1 ms a call, by the judge's clock it was 1.15 ms"
    )


@pytest.mark.parametrize("judged_ms", [1.15, 3.0])
def test_who_is_not_keeps_the_first_verdict_and_is_told_of_the_second(judged_ms: float) -> None:
    first = ended(1.15)
    verdict, measurement = the_better(first, ended(judged_ms))
    assert verdict.reached == (False,)
    assert verdict.counted_s == first[0].counted_s
    assert verdict.flags == measurement.flags
    assert verdict.flags == (
        *first[0].flags,
        f"timed twice: in the second run the worker said 1 ms a call, by the judge's clock it was {judged_ms:g} ms",
    )


def test_a_false_claim_is_as_far_off_in_both_and_counts_as_the_judge_says() -> None:
    verdict, _ = the_better(ended(3.0), ended(2.9))
    assert verdict.counted["submission"].median == pytest.approx(2.9 * MS)
    assert [flag.partition(":")[0] for flag in verdict.flags] == ["not corroborated", "timed twice"]


def timed(course: Course, *walls_s: float) -> tuple[Verdict, Evidence]:
    """A measurement whose runs find these times of a call by the judge's clock."""
    found = iter(walls_s)

    def worker(_assignment: object) -> Worker:
        course.walls_s = {SUBMISSION: [next(found)], NULL: [0.0]}
        return course.submission

    course.workers.worker = worker
    course.entrants[SUBMISSION].may_end = True
    evidence = Evidence()
    verdict = course.benchmarks.measure(course.case, evidence)
    assert next(found, None) is None, "fewer runs than expected"
    assert verdict is not None
    return verdict, evidence


def test_only_a_doubted_verdict_has_a_second_run(course: Course) -> None:
    assert timed(course, EAGER_S)[1].bands[0].reached
    assert not course.entrants[SUBMISSION].ended
    verdict, evidence = timed(course, 1.5 * EAGER_S, EAGER_S)
    assert course.entrants[SUBMISSION].ended
    assert evidence.measured is not None
    assert verdict.flags[-1] == evidence.measured.flags[-1]
    assert verdict.flags[-1].startswith("timed twice: in the first run")
    course.run.request.effort = "quick"
    timed(course, 1.5 * EAGER_S)


def test_who_is_stopped_in_the_second_run_keeps_the_first_verdict(course: Course) -> None:
    verdict, _ = timed(course, 1.5 * EAGER_S, 0.5)
    assert verdict.counted[SUBMISSION].median == pytest.approx(1.5 * EAGER_S)


# The numbers in the report --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roofline", "work"),
    [
        (Roofline("copy", its_work=800, case_work=1000), Cost(bytes_moved=800, flops=0)),
        (Roofline("matmul", 2 * MATRIX**3, 9), Cost(bytes_moved=3 * 2 * MATRIX**2, flops=2 * MATRIX**3)),
    ],
)
def test_a_yardsticks_rates_are_its_own(roofline: Roofline, work: Cost) -> None:
    of_case = Cost(bytes_moved=1000, flops=9)
    case: Any = SimpleNamespace(problem=SimpleNamespace(cost=lambda *_: of_case), params={}, dtype=None)
    assert work_of(roofline.yardstick, case, roofline) == work
    assert work_of("eager", case, roofline) == of_case


def test_the_report_has_each_round_as_it_was_measured(ready: tuple[Course, BenchmarkRun]) -> None:
    course, run = ready
    course.looks = [False, True]
    course.run.gauge.clocks = lambda: {"sm_clock_mhz": 1980, "temperature_c": 45}
    course.rounds(run, 2)
    first, second = run.measurement().rounds
    assert (first.repeats, second.repeats, first.sm_clock_mhz, first.memory_clock_mhz) == (1, 0, 1980, None)
    assert first.times_s == pytest.approx({"eager": EAGER_S, "copy": COPY_S, SUBMISSION: EAGER_S})
    assert first.batch_s > 0 < first.nothing_s


# What a call of the submission takes before the rounds ----------------------------------------------------------------

LIMIT_S = 0.2


class Looks:
    """Calls that take what `took` says, one look after another; `calls` is of how many calls the looks were."""

    def __init__(self, *took: float) -> None:
        self.took, self.calls = list(took), []  # type: ignore[var-annotated]

    def __call__(self, calls: int) -> float:
        self.calls.append(calls)
        return self.took.pop(0)


def test_a_call_that_is_far_too_slow_twice_is_stopped_with_the_shorter_time() -> None:
    looks = Looks(2.5, 2.0)
    assert shortest_s(looks, LIMIT_S) == 2.0
    assert looks.calls == [1, 1]
    assert shortest_s(Looks(2.0, 2.5), LIMIT_S) == 2.0


def test_one_hiccup_of_the_host_stops_nobody() -> None:
    looks = Looks(2.5, 0.01, 0.01, 0.01)
    assert shortest_s(looks, LIMIT_S) == 0.01
    assert looks.took == []


def test_near_the_limit_whole_batches_decide_and_the_shorter_one() -> None:
    """A single call by the judge's clock may be off by `NOISE_S`."""
    looks = Looks(LIMIT_S + NOISE_S / 2, LIMIT_S + NOISE_S / 3, LIMIT_S / 2, 3 * LIMIT_S)
    assert shortest_s(looks, LIMIT_S) == LIMIT_S / 2
    assert looks.calls == [1, 1, WARM_SETS, WARM_SETS]
    assert shortest_s(Looks(LIMIT_S / 2, 1.5 * LIMIT_S, 1.2 * LIMIT_S), LIMIT_S) == pytest.approx(1.2 * LIMIT_S)
