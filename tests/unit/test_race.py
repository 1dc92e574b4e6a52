"""What a race decides before and between batches: whose fault a busy GPU is, and who is too slow to be timed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.contender.contender import Limits
from grader.contender.replies import ContenderFault
from grader.judge import race as module
from grader.judge.evidence import CaseRefused, CheckFailed
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB
from grader.judge.race import (
    ALONE_BATCHES,
    MAX_REPEATS,
    NOISE_S,
    PATIENCE_S,
    WARM_SETS,
    Race,
    Round,
    Runner,
)
from grader.problem import Cost
from grader.protocol import MATRIX
from grader.verdict.speed import DOUBT, SUBMISSION, Roofline, Verdict

LIMITS = Limits(1.0, 1.0)


class Worker:
    """A submission's process; ending it is followed by `after` looks at a GPU that is still busy."""

    def __init__(self, looks: list[bool], after: int) -> None:
        self._looks, self._after = looks, after
        self.alive = True

    def lives(self) -> bool:
        return self.alive

    def kill(self) -> None:
        self.alive = False
        self._looks[:] = [False] * self._after + [True]


def race_on(
    monkeypatch: pytest.MonkeyPatch, looks: list[bool], after: int = 1000, others: tuple[int, ...] = ()
) -> tuple[Race, Worker]:
    """A race where looks at the GPU find what `looks` says, its last one for ever; `others` is who the driver says uses it."""
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    worker = Worker(looks, after)

    def found() -> Iterator[bool]:
        while True:
            yield looks.pop(0) if len(looks) > 1 else looks[0]

    looked = found()
    gauge = SimpleNamespace(is_quiet=lambda: next(looked), others=lambda: list(others))
    race = Race.__new__(Race)
    race._track = SimpleNamespace(run=SimpleNamespace(device_name="cuda"))  # type: ignore[assignment]
    race._gauge = gauge  # type: ignore[assignment]
    race._submission = SimpleNamespace(contender=worker)  # type: ignore[assignment]
    return race, worker


def test_a_gpu_that_becomes_quiet_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    race, worker = race_on(monkeypatch, [False, False, True])
    race._wait_for_quiet(race._submission, attempt=1)
    assert worker.alive


@pytest.mark.parametrize("after", range(len(PATIENCE_S)))
def test_work_that_ends_with_the_submissions_process_is_its_fault(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The driver may take a moment to end what the process has left running."""
    race, worker = race_on(monkeypatch, [False], after)
    other: Any = SimpleNamespace()
    with pytest.raises(CheckFailed, match="kernels of your code still ran"):
        race._wait_for_quiet(other, attempt=1)
    assert not worker.alive


def test_work_that_goes_on_without_the_submission_is_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [False], others=(4711,))
    with pytest.raises(CaseRefused, match=r"another program is using this GPU \(processes 4711\)"):
        race._wait_for_quiet(race._submission, attempt=1)


def test_a_neighbour_that_rests_now_and_then_is_not_the_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known to the driver, it is named; unknown, as in a container, a quiet moment is not enough to blame anyone."""
    race, _ = race_on(monkeypatch, [False], after=0, others=(4711,))
    with pytest.raises(CaseRefused, match="4711"):
        race._wait_for_quiet(race._submission, attempt=1)
    race, worker = race_on(monkeypatch, [False])
    monkeypatch.setattr(worker, "kill", lambda: worker._looks.__setitem__(slice(None), [True, True, False] * 9))
    with pytest.raises(CaseRefused, match="another program"):
        race._wait_for_quiet(race._submission, attempt=1)


def test_a_gpu_that_is_busy_after_each_batch_of_the_submission_is_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [True])
    race._wait_for_quiet(race._submission, attempt=MAX_REPEATS)
    with pytest.raises(CheckFailed, match="again and again"):
        race._wait_for_quiet(race._submission, attempt=MAX_REPEATS + 1)


def test_batches_that_were_run_again_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the submission alone: whoever leaves work running after a slow batch would choose among them unseen."""
    race, _ = race_on(monkeypatch, [True])
    race._repeats, race._collects, race._check = 0, True, lambda *_: None  # type: ignore[method-assign]
    quiet = iter([False, False, True, False, True])
    batch = SimpleNamespace(collected=True)
    bench: Any = SimpleNamespace(
        run=lambda *_, **__: SimpleNamespace(**vars(batch), quiet=next(quiet)), renew=lambda _draw: None
    )
    other: Any = SimpleNamespace(contender=None, limits=LIMITS)
    race._submission.limits, race._null = LIMITS, other
    race._run(bench, race._submission, 1)
    assert race._repeats == 2
    race._run(bench, other, 1)
    assert race._repeats == 2


def test_a_gpu_that_is_busy_after_each_batch_of_a_baseline_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [True])
    other: Any = SimpleNamespace()
    with pytest.raises(CaseRefused, match="another program"):
        race._wait_for_quiet(other, attempt=MAX_REPEATS + 1)


# Too slow ------------------------------------------------------------------------------------------------------------

BASELINE_S = 0.01
SLOW_LIMIT = 20.0


class Judged(Race):
    """A race of so many rounds, that many seconds ago begun, with a claim that the judge's clock lifts by so much."""

    def __init__(
        self, rounds: int, lift: float, undecided: bool = False, began_s: float = 0.0, tidied_s: float = 0.0
    ) -> None:
        self._track = SimpleNamespace(run=SimpleNamespace(job=SimpleNamespace(effort="full")))  # type: ignore[assignment]
        self._rules = SimpleNamespace(rounds=5, max_rounds=60, budget_s=12.0)  # type: ignore[assignment]
        self.rounds = [None] * rounds  # type: ignore[list-item]
        self._started = module.time.monotonic() - began_s
        self._bench_of_rounds: Any = SimpleNamespace(tidied_s=tidied_s)
        self._verdict: Any = SimpleNamespace(lift=lift, is_doubted=lift > DOUBT, undecided=(False, undecided))

    def verdict(self) -> Verdict:
        verdict: Verdict = self._verdict
        return verdict


@pytest.mark.parametrize(
    ("rounds", "lift", "undecided", "began_s", "worth"),
    [
        (5, 0.0, False, 0.0, False),
        (5, 0.004, False, 0.0, False),
        (5, 0.06, False, 0.0, True),  # noise, perhaps
        (6, 0.06, False, 0.0, True),  # looked at after four more
        (8, 0.06, False, 0.0, True),
        (9, 0.06, False, 0.0, False),  # and once only
        (5, 0.5, False, 0.0, False),  # a lie
        (5, 0.06, False, 20.0, False),
        (5, 0.0, True, 0.0, True),
        (9, 0.5, True, 0.0, True),
        (9, 0.0, True, 20.0, False),
        (60, 0.06, True, 0.0, False),
    ],
)
def test_further_rounds_are_for_bands_in_doubt_and_once_for_a_claim_that_is_lifted_a_little(
    rounds: int, lift: float, undecided: bool, began_s: float, worth: bool
) -> None:
    race = Judged(rounds, lift, undecided, began_s)
    assert race.is_worth_another_round() is worth
    race._track.run.job.effort = "quick"  # type: ignore[misc]
    assert not race.is_worth_another_round()


def test_a_submission_that_takes_its_time_between_batches_has_no_fewer_rounds() -> None:
    """Or it could have the doubt of a wide interval."""
    assert not Judged(9, 0.0, undecided=True, began_s=20.0, tidied_s=7.9).is_worth_another_round()
    assert Judged(9, 0.0, undecided=True, began_s=20.0, tidied_s=8.1).is_worth_another_round()


class Warming(Race):
    """A race that is only warmed up, on a submission whose calls take what `took` says, one look after another."""

    def __init__(self, took: list[float]) -> None:
        self.took, self.looks = took, []  # type: ignore[var-annotated]
        self.settled: list[str] = []
        self.stopped_after_s = None
        self._others = [Runner("eager", SimpleNamespace(), LIMITS, warm_s=BASELINE_S)]  # type: ignore[arg-type]
        self._null = Runner("null", SimpleNamespace(), LIMITS)  # type: ignore[arg-type]
        self._submission = Runner("submission", SimpleNamespace(), LIMITS)  # type: ignore[arg-type]
        self._rules = SimpleNamespace(slow_limit=SLOW_LIMIT)  # type: ignore[assignment]
        self._case = SimpleNamespace(opponents=["eager"])  # type: ignore[assignment]
        baselines = SimpleNamespace(note_compiled=lambda *_: None)
        run = SimpleNamespace(device_name="cpu")
        self._track = SimpleNamespace(run=run, crew=SimpleNamespace(baselines=baselines))  # type: ignore[assignment]

    def _bench(self, _sets: int, collected: int) -> Any:
        return contextlib.nullcontext(SimpleNamespace(calls=[None] * collected))

    def _roofline_of(self, *_: Any) -> Any:
        return None

    def _count_bytes(self, *_: Any) -> int:
        return 0

    def _note(self, text: str) -> None:
        pass

    def _invite(self, *_: Any, **__: Any) -> None:
        pass

    def _check_baseline(self, *_: Any) -> None:
        pass

    def _settle(self, _bench: Any, runner: Runner) -> None:
        self.settled.append(runner.name)

    def _run(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(collected=True)

    def _call_s(self, _bench: Any, calls: int) -> float:
        self.looks.append(calls)
        return self.took.pop(0)


def warmed_up(monkeypatch: pytest.MonkeyPatch, *took: float) -> Warming:
    monkeypatch.setattr(module, "Ruler", lambda *_: None)
    race = Warming(list(took))
    race._warm_up()
    assert race.took == []
    return race


def test_a_call_that_is_far_too_slow_twice_is_stopped_with_the_shorter_time(monkeypatch: pytest.MonkeyPatch) -> None:
    race = warmed_up(monkeypatch, 2.5, 2.0)
    assert race.stopped_after_s == 2.0
    assert race.looks == [1, 1]
    assert "submission" not in race.settled


def test_the_slowest_of_the_opponents_says_what_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Ruler", lambda *_: None)
    race = Warming([0.5, 0.5, 0.5, 0.5])
    race._others += [Runner(name, race._null.contender, LIMITS, warm_s=3 * BASELINE_S) for name in ("compile", "copy")]
    race._case.opponents.append("compile")  # no band names the other
    race._others[-1].warm_s = 1.0
    race._warm_up()
    assert race.stopped_after_s is None
    race.took, race.stopped_after_s = [SLOW_LIMIT * 4 * BASELINE_S] * 2, None
    race._warm_up()
    assert race.stopped_after_s == SLOW_LIMIT * 4 * BASELINE_S


def test_one_hiccup_of_the_host_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    race = warmed_up(monkeypatch, 2.5, 0.01, 0.01, 0.01)
    assert race.stopped_after_s is None
    assert race.settled[-1] == "submission"


def test_near_the_limit_whole_batches_decide_and_the_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single call by the judge's clock may be off by `NOISE_S`."""
    limit_s = SLOW_LIMIT * BASELINE_S
    race = warmed_up(monkeypatch, limit_s + NOISE_S / 2, limit_s + NOISE_S / 3, limit_s / 2, 3 * limit_s)
    assert race.stopped_after_s is None
    assert race.looks == [1, 1, WARM_SETS, WARM_SETS]
    slow = warmed_up(monkeypatch, limit_s / 2, 1.5 * limit_s, 1.2 * limit_s)
    assert slow.stopped_after_s == pytest.approx(1.2 * limit_s)


def test_a_claim_of_nothing_does_not_count_as_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or so many calls would be wanted that no memory is enough."""
    race = warmed_up(monkeypatch, 0.04, 0.03, 0.05)
    assert race._submission.warm_s == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("roofline", "work"),
    [
        (Roofline("copy", its_work=800, case_work=1000), Cost(bytes_moved=800, flops=0)),
        (Roofline("matmul", 2 * MATRIX**3, 9), Cost(bytes_moved=3 * 2 * MATRIX**2, flops=2 * MATRIX**3)),
    ],
)
def test_a_yardsticks_rates_are_its_own(roofline: Roofline, work: Cost) -> None:
    race = Race.__new__(Race)
    race._roofline = roofline
    of_case = Cost(bytes_moved=1000, flops=9)
    race._case = SimpleNamespace(problem=SimpleNamespace(cost=lambda *_: of_case), params={}, dtype=None)  # type: ignore[assignment]
    assert race.work_of(roofline.contender) == work
    assert race.work_of("eager") == of_case


# The null contender ---------------------------------------------------------------------------------------------------


class Timed(Race):
    """A race on a GPU of two calls in a batch; each round's batch of nothing, and those of afterwards, take so many milliseconds."""

    def __init__(self, nothing_ms: list[float], alone_ms: list[float], held_gib: float = 0.0, wanted: int = 2) -> None:
        self.ran: list[str] = []
        self._left = {"null": [0.0, *alone_ms]}
        self._wanted = wanted
        outputs = {"y": (1 << 28,)}  # a GiB
        self._case = SimpleNamespace(problem=SimpleNamespace(outputs=lambda _call: outputs), dtype=torch.float32)  # type: ignore[assignment]
        killed: Any = SimpleNamespace(kill=lambda: self.ran.append("the end"))
        run = SimpleNamespace(
            device_name="cuda",
            emit=lambda _event: None,
            free_gib=lambda: 10.0 + held_gib * ("the end" in self.ran),
        )
        self._track = SimpleNamespace(run=run)  # type: ignore[assignment]
        self._rules = SimpleNamespace(margin=0.05)  # type: ignore[assignment]
        self._submission = Runner(SUBMISSION, killed, LIMITS, calls=2)
        self._null = Runner("null", killed, LIMITS)
        self._others = [Runner(name, killed, LIMITS) for name in ("eager", "copy", "compile")]
        self._alone_s, self._nothing_alone_s = {}, math.inf
        self._bench_of_rounds: Any = SimpleNamespace(calls=[None])
        conditions: Any = None
        self.rounds = [Round((), conditions, {SUBMISSION: 1e-3, "eager": 3e-3}, 10e-3, ms / 1e3) for ms in nothing_ms]

    def _run(self, _bench: Any, runner: Runner, *_: Any, **__: Any) -> Any:
        self.ran.append(runner.name)
        return SimpleNamespace(wall_s=self._left.get(runner.name, [0.0] * 99).pop(0) / 1e3, claimed_s=2e-3)


@pytest.mark.parametrize(
    ("nothing_ms", "alone_ms", "judged_ms"),
    [
        ([4.0, 4.2, 3.8, 9.0, 4.0], [4.0] * ALONE_BATCHES, 3.0),  # the usual one
        ([4.1] * 5, [4.0] * ALONE_BATCHES, 2.95),  # no longer alone than a host's noise may be
        ([6.0] * 5, [9.0, 4.0, 4.0, 1.0, 4.0], 3.0 - 0.15 / 2),  # somebody has slowed it down
        ([4.0] * 5, [6.0] * ALONE_BATCHES, 3.0),
    ],
)
def test_what_nothing_takes_in_the_rounds_counts_but_no_more_than_without_the_submission(
    nothing_ms: list[float], alone_ms: list[float], judged_ms: float
) -> None:
    race = Timed(nothing_ms, alone_ms)
    before = [lap.judged_s for lap in race.laps]
    assert before == pytest.approx([(10e-3 - sorted(nothing_ms)[2] / 1e3) / 2] * 5)
    race.end_submission()
    assert [lap.judged_s for lap in race.laps] == pytest.approx([judged_ms / 1e3] * 5)
    assert [lap.times_s["eager"] for lap in race.laps] == pytest.approx([2.1e-3] * 5)


def test_afterwards_the_others_take_turns_as_in_the_rounds() -> None:
    """Who runs twice in a row is faster the second time."""
    race = Timed([4.0], [4.0] * ALONE_BATCHES)
    race.end_submission()
    assert race.ran == ["the end", *["eager", "compile", "null"] * (1 + ALONE_BATCHES)]


@pytest.mark.parametrize(
    ("held_gib", "wanted", "faulty"),
    [
        (HOARD_GIB + WORKER_GIB + 2.1, 3, True),
        (HOARD_GIB + WORKER_GIB + 1.9, 3, False),  # two calls' results may take two
        (100.0, 2, False),  # there was room for as many calls as are wanted
    ],
)
def test_memory_that_is_kept_must_not_make_batches_shorter(
    monkeypatch: pytest.MonkeyPatch, held_gib: float, wanted: int, faulty: bool
) -> None:
    """What starting and ending a batch takes would be more of each call."""
    monkeypatch.setattr(module, "RELEASED_S", 0.0)
    race = Timed([4.0], [4.0] * ALONE_BATCHES, held_gib, wanted)
    expected = (
        pytest.raises(ContenderFault, match="there was room for 2 calls in a batch, and 3 are wanted")
        if faulty
        else contextlib.nullcontext()
    )
    with expected:
        race.end_submission()
