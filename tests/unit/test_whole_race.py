"""A whole race of contenders that live in this process: who runs when, on which inputs, how often, and who is looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grader.assignment import Band, Timing
from grader.contender.contender import Contender, Limits
from grader.judge import race as module
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.gpu import Conditions
from grader.judge.race import NULL, SUBMISSION, Race
from grader.judge.timing import Batch, Bench
from grader.judge.track import Track as RealTrack
from grader.problem import Call, Cost
from grader.protocol import RanOperator, Reply
from tests.unit.test_bench import Doubles

CPU = torch.device("cpu")
SIZE = 8
EAGER_S, COPY_S = 1e-3, 0.5e-3
BATCH_S = 0.008


class Racer(Doubles):
    """Claims that a call takes `claim_s`. `wrong`: what is added to its answers."""

    def __init__(self, name: str, claim_s: float, trusted: bool) -> None:
        super().__init__(trusted=trusted)
        self.name, self.claim_s = name, claim_s
        self.operators: tuple[RanOperator, ...] = ()
        self.wrong = 0.0

    def finish(self, calls: int, limits: Limits) -> Reply:
        reply = super().finish(calls, limits)
        self.inputs = [x + self.wrong / 2 for x in self.inputs]
        return replace(reply, times_s=(self.claim_s,) * calls, operators=self.operators)

    def kill(self) -> None:
        raise AssertionError("nobody is to be ended")


class Track:
    """A judge with a case, and who takes part. Of each batch `log` has who ran it, how, and the number of its first inputs.

    looks: what looks at the GPU find after each batch of the submission, as long as there are some.
    noted: who is kept compiled, and how many batches there were before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claim_s: float = EAGER_S, **rules: Any) -> None:
        self.log: list[dict[str, Any]] = []
        self.looks: list[bool] = []
        self.noted: dict[str, int] = {}
        self.racers = {
            name: Racer(name, seconds, name != SUBMISSION)
            for name, seconds in {SUBMISSION: claim_s, NULL: 1e-6, "eager": EAGER_S, "copy": COPY_S}.items()
        }
        track = self

        class Logged(Bench):
            def run(self, contender: Contender, calls: int, limits: Limits, **how: bool) -> Batch:
                entry = {"name": contender.name, "calls": calls, **how}  # type: ignore[attr-defined]
                track.log.append(entry)
                batch = super().run(contender, calls, limits, **how)
                entry["inputs"] = int(contender.inputs[0][0] - contender.wrong / 2)  # type: ignore[attr-defined]
                return batch

        class Doubled:
            def __init__(self, *_: Any) -> None: ...

            def accepts(self, call: Call, got: dict[str, torch.Tensor]) -> bool:
                return torch.equal(got["y"], 2 * call.args["x"])

        def compare(*_: Any) -> None:
            raise CheckFailed("it is wrong")

        monkeypatch.setattr(module, "Bench", Logged)
        monkeypatch.setattr(module, "Ruler", Doubled)
        monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
        timing = Timing(rounds=3, max_rounds=11, batch_s=BATCH_S, max_calls=16, **rules)
        spec = SimpleNamespace(
            timing=timing,
            limits=SimpleNamespace(time_limit_s={"cpu": 1.0}, memory_gib=1.0),
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
            contenders=lambda **_: ["eager", "copy"],
            speed=SimpleNamespace(bands=[Band(vs="eager", speedup=0.5, points=1)], roofline="copy"),
            inputs=lambda _seed, number, _device: Call({"x": torch.arange(SIZE) * 0.0 + number}),
        )
        self.run: Any = SimpleNamespace(
            device_name="cpu",
            device=CPU,
            seed=1,
            job=SimpleNamespace(contenders="needed", effort="full"),
            gauge=SimpleNamespace(
                cache_bytes=0, is_quiet=self._is_quiet, conditions=lambda: Conditions(), others=lambda: []
            ),
            free_gib=lambda: 1.0,
            emit=lambda _event: None,
        )
        self.crew: Any = SimpleNamespace(
            baselines=SimpleNamespace(
                contender=lambda name, _case: self.racers[name],
                note_compiled=lambda name, _case: self.noted.update({name: len(self.log)}),
            ),
            settle=lambda: None,
        )
        comparison: Any = SimpleNamespace(compare=compare)
        self.track = RealTrack(self.run, self.crew, comparison)

    def _is_quiet(self, thoroughly: bool = False) -> bool:
        return not self.looks or not thoroughly or self.looks.pop(0)

    def race(self) -> Race:
        return Race(self.track, self.case, cast("Contender", self.racers[SUBMISSION]), Evidence())

    def rounds(self, race: Race, count: int) -> list[list[dict[str, Any]]]:
        """The batches of so many rounds."""
        found = []
        for _ in range(count):
            before = len(self.log)
            race.round()
            found.append(self.log[before:])
        return found


@pytest.fixture
def track(monkeypatch: pytest.MonkeyPatch) -> Track:
    return Track(monkeypatch)


@pytest.fixture
def ready(track: Track) -> Iterator[tuple[Track, Race]]:
    with track.race() as race:
        yield track, race


def test_who_was_right_and_is_warm_is_noted_as_compiled(ready: tuple[Track, Race]) -> None:
    track, _ = ready
    names = [batch["name"] for batch in track.log]
    assert names[: track.noted["eager"]].count("eager") > 1
    assert "eager" not in names[track.noted["eager"] : names.index(SUBMISSION)]


def test_a_baseline_that_is_wrong_is_not_noted(track: Track) -> None:
    track.racers["eager"].wrong = 1.0
    with pytest.raises(CaseRefused, match="the baseline eager gives wrong answers"):
        track.race().__enter__()
    assert "eager" not in track.noted


def test_everyone_runs_once_in_each_round_and_the_order_rotates(ready: tuple[Track, Race]) -> None:
    track, race = ready
    orders = [[batch["name"] for batch in batches] for batches in track.rounds(race, 4)]
    assert orders == [
        ["eager", "copy", NULL, SUBMISSION],
        ["copy", NULL, SUBMISSION, "eager"],
        [NULL, SUBMISSION, "eager", "copy"],
        ["eager", "copy", NULL, SUBMISSION],
    ]
    assert [list(one.order) for one in race.rounds] == orders


def test_nobody_has_met_the_submissions_inputs(ready: tuple[Track, Race]) -> None:
    """Those who run after it in a round have them too, and those who run before have the last round's."""
    track, race = ready
    for batches in track.rounds(race, 4):
        at = next(i for i, batch in enumerate(batches) if batch["name"] == SUBMISSION)
        earlier = {batch["inputs"] for batch in track.log[: track.log.index(batches[at])]}
        assert batches[at]["inputs"] > max(earlier)
        assert {batch["inputs"] for batch in batches[at:]} == {batches[at]["inputs"]}


def test_every_batch_of_the_submission_is_judged_collected_and_checked(ready: tuple[Track, Race]) -> None:
    track, race = ready
    for batches in track.rounds(race, 3):
        for batch in batches:
            ours = batch["name"] in (SUBMISSION, NULL)
            how = (batch["judged"], batch["collect"], batch["check"], batch["watched"])
            assert how == (ours, ours, batch["name"] == SUBMISSION, False)


def test_the_null_contender_makes_as_many_calls_as_the_submission(ready: tuple[Track, Race]) -> None:
    track, race = ready
    calls = {batch["name"]: batch["calls"] for batch in track.rounds(race, 1)[0]}
    assert calls == {"eager": 8, "copy": 16, NULL: 8, SUBMISSION: 8}


def test_a_batch_touches_more_memory_than_the_cache_holds(track: Track) -> None:
    """Nothing that a call reads is left of an earlier one, whoever calls."""
    cache_bytes = track.run.gauge.cache_bytes = 700
    with track.race() as race:
        touched = [batch["calls"] * 2 * 4 * SIZE for batch in track.rounds(race, 1)[0]]
    assert min(touched) > cache_bytes


@pytest.mark.parametrize("claim_s", [EAGER_S * 10, 0.0])
def test_nobody_chooses_how_many_calls_there_are(monkeypatch: pytest.MonkeyPatch, claim_s: float) -> None:
    """Whoever claims to be slow has as many as the machine's limit allows; whoever claims to be fast no more than `max_calls`."""
    track = Track(monkeypatch, claim_s)
    with track.race() as race:
        batches = track.rounds(race, 1)[0]
        calls = {batch["name"]: batch["calls"] for batch in batches}
    likely = math.ceil(BATCH_S / (2 * COPY_S))
    assert calls[SUBMISSION] == calls[NULL] >= likely
    assert calls[SUBMISSION] <= 16


def test_a_wrong_answer_in_any_round_ends_the_race(ready: tuple[Track, Race]) -> None:
    track, race = ready
    track.rounds(race, 2)
    track.racers[SUBMISSION].wrong = 1.0
    with pytest.raises(CheckFailed, match="in call 1 of 8 in a timed batch, each on new data: it is wrong"):
        race.round()


def test_a_wrong_answer_while_warming_up_does_too(track: Track) -> None:
    track.racers[SUBMISSION].wrong = 1.0
    with pytest.raises(CheckFailed, match="in call 1 of 1 in a timed batch"), track.race():
        pass


def test_a_baseline_that_is_wrong_is_none(track: Track) -> None:
    track.racers["eager"].wrong = 1.0
    with pytest.raises(CaseRefused, match="the baseline eager gives wrong answers in double-speed-one"), track.race():
        pass


@pytest.mark.parametrize("name", ["eager", "copy", NULL])
def test_nobody_is_left_out_on_whom_the_verdict_rests(track: Track, name: str) -> None:
    def refuse(asked: str, _case: Any) -> Racer:
        if asked == name:
            raise CaseRefused("the baseline cannot be loaded")
        return track.racers[asked]

    track.crew.baselines.contender = refuse
    with pytest.raises(CaseRefused, match="cannot be loaded"):
        track.race()


def test_who_is_only_shown_beside_the_others_may_fail(track: Track) -> None:
    """A vendor's kernel that this GPU cannot run, or that is wrong on it, costs nobody the measurement."""
    track.case.contenders = lambda **_: ["eager", "cudnn", "flash", "copy"]
    track.racers["flash"] = Racer("flash", EAGER_S, trusted=True)
    track.racers["flash"].wrong = 1.0

    def contender(asked: str, _case: Any) -> Racer:
        if asked == "cudnn":
            raise CaseRefused("the baseline cudnn cannot be loaded")
        return track.racers[asked]

    track.crew.baselines.contender = contender
    with track.race() as race:
        (batches,) = track.rounds(race, 1)
        assert [batch["name"] for batch in batches] == ["eager", "copy", NULL, SUBMISSION]
        flags = race.verdict().flags
    assert flags[-2:] == (
        "left out: the baseline cudnn cannot be loaded",
        "left out: the baseline flash gives wrong answers in double-speed-one",
    )


def test_the_first_batch_and_the_last_are_watched_for_who_does_the_work(ready: tuple[Track, Race]) -> None:
    track, race = ready
    first = next(batch for batch in track.log if batch["name"] == SUBMISSION)
    assert (first["watched"], first["check"]) == (True, True)
    track.rounds(race, 3)
    seen = max(batch["inputs"] for batch in track.log)
    race.look_again()
    last = track.log[-1]
    assert (last["name"], last["calls"], last["watched"], last["check"]) == (SUBMISSION, 8, True, True)
    assert last["inputs"] > seen
    track.racers[SUBMISSION].operators = (RanOperator(name="mul", place="double.py:3"),)
    with pytest.raises(Exception, match="PyTorch's operator `mul` ran"):
        race.look_again()


def test_a_batch_after_which_the_gpu_was_busy_is_run_again_on_other_inputs(ready: tuple[Track, Race]) -> None:
    track, race = ready
    track.looks = [False, True]
    (batches,) = track.rounds(race, 1)
    ours = [batch for batch in batches if batch["name"] == SUBMISSION]
    assert len(ours) == 2
    assert ours[1]["inputs"] > ours[0]["inputs"]
    assert ours[1]["check"]
    assert any(
        "the GPU was busy after batches of your code, which were run again: 1 times" in flag
        for flag in race.verdict().flags
    )


def test_a_race_begins_when_the_gpu_is_quiet(track: Track) -> None:
    looks = [False, True, True, True]
    track.run.gauge.is_quiet = lambda **how: bool(how) or not looks or looks.pop(0)
    with track.race():
        assert looks == []


def test_a_call_takes_what_the_judges_clock_says_where_that_is_more(ready: tuple[Track, Race]) -> None:
    _, race = ready
    walls = {NULL: 0.002, SUBMISSION: 0.010}
    race._run = lambda _bench, runner, _calls: SimpleNamespace(wall_s=walls[runner.name], claimed_s=1e-3)  # type: ignore[method-assign, assignment]
    assert race._call_s(cast("Bench", None), 4) == pytest.approx(0.002)
    walls[SUBMISSION] = 0.004
    assert race._call_s(cast("Bench", None), 4) == pytest.approx(0.001)


def test_memory_for_inputs_and_results_counts_as_often_as_there_are_copies(ready: tuple[Track, Race]) -> None:
    """Inputs lie in the arena and with the judge; results with both who make them, in their places, and with the judge."""
    track, race = ready
    call = track.case.inputs(1, 0, CPU)
    nbytes = 4 * SIZE
    assert race._count_bytes(call, collected=True) == (2 + 4) * nbytes
    assert race._count_bytes(call, collected=False) == (2 + 1) * nbytes
    track.case.assignment.spec.language = "cuda"
    assert race._count_bytes(call, collected=False) == (2 + 2) * nbytes


def test_two_races_of_a_case_have_no_inputs_in_common(track: Track) -> None:
    seen = []
    for _ in range(2):
        before = len(track.log)
        with track.race() as race:
            track.rounds(race, 3)
        seen.append({batch["inputs"] for batch in track.log[before:]})
    assert not seen[0] & seen[1]
