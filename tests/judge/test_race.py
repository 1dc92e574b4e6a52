"""A whole race of contenders that live in this process: who runs when, on which inputs, how often, and who is looked at."""

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
from grader.contender.contender import CallLimits, Contender
from grader.contender.replies import ContenderFault
from grader.judge import batches as batches_module
from grader.judge import gpu
from grader.judge import race as race_module
from grader.judge.baselines import NULL
from grader.judge.batches import Batches, bytes_of_set
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.heats import Heat, run_heat
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB
from grader.judge.race import ALONE_BATCHES, FarTooSlow, Race, race, warm_up
from grader.judge.timing import Batch, Bench
from grader.judge.track import Lineup
from grader.judge.track import Track as RealTrack
from grader.problem import Call, Cost
from grader.protocol import RanOperator, Reply
from grader.verdict.speed import SUBMISSION
from grader.verdict.tally import HOST_NOISE_S, SHARE_OF_FREE_MEMORY, Conditions
from tests.judge.test_timing import Doubles

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
        self.may_end = self.ended = False

    def finish(self, calls: int, limits: CallLimits) -> Reply:
        reply = super().finish(calls, limits)
        self.inputs = [x + self.wrong / 2 for x in self.inputs]
        return replace(reply, times_s=(self.claim_s,) * calls, operators=self.operators)

    def kill(self) -> None:
        assert self.may_end, "nobody is to be ended"
        self.ended = True


class Track:
    """A judge with a case, and who takes part. Of each batch `log` has who ran it, how, and the number of its first inputs.

    looks: what looks at the GPU find after each batch of the submission, as long as there are some.
    walls_s: by the judge's clock, of a call of the submission; of a batch of the null contender as long as there are some.
    noted: who is kept compiled, and how many batches there were before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claim_s: float = EAGER_S, **rules: Any) -> None:
        self.log: list[dict[str, Any]] = []
        self.looks: list[bool] = []
        self.walls_s: dict[str, list[float]] = {}
        self.noted: dict[str, int] = {}
        self.racers = {
            name: Racer(name, seconds, name != SUBMISSION)
            for name, seconds in {SUBMISSION: claim_s, NULL: 1e-6, "eager": EAGER_S, "copy": COPY_S}.items()
        }
        track = self

        class Logged(Bench):
            def run(self, contender: Contender, calls: int, limits: CallLimits, **how: bool) -> Batch:
                entry = {"name": contender.name, "calls": calls, **how}  # type: ignore[attr-defined]
                track.log.append(entry)
                batch = super().run(contender, calls, limits, **how)
                entry["inputs"] = int(contender.inputs[0][0] - contender.wrong / 2)  # type: ignore[attr-defined]
                if walls_s := track.walls_s.get(contender.name):  # type: ignore[attr-defined]
                    wall_s = walls_s.pop(0) if len(walls_s) > 1 else walls_s[0]
                    batch = replace(batch, wall_s=wall_s * (calls if contender.name == SUBMISSION else 1))  # type: ignore[attr-defined]
                return batch

        class Doubled:
            def __init__(self, *_: Any) -> None: ...

            def accepts(self, call: Call, got: dict[str, torch.Tensor]) -> bool:
                return torch.equal(got["y"], 2 * call.args["x"])

        def compare(*_: Any) -> None:
            raise CheckFailed("it is wrong")

        monkeypatch.setattr(batches_module, "Bench", Logged)
        monkeypatch.setattr(race_module, "Ruler", Doubled)
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

    @property
    def submission(self) -> Contender:
        return cast("Contender", self.racers[SUBMISSION])

    @contextmanager
    def race(self) -> Iterator[Race]:
        lineup = Lineup(self.track, self.case, self.submission)
        with race(self.track, self.case, lineup, warm_up(self.track, self.case, lineup, Evidence())) as ready:
            yield ready

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


def test_a_claim_of_nothing_does_not_count_as_the_time_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or so many calls would be wanted that no memory is enough."""
    track = Track(monkeypatch, 0.0)
    track.walls_s = {SUBMISSION: [4 * EAGER_S], NULL: [0.0]}
    with track.race() as race:
        assert race.calls[SUBMISSION] == 8  # as the machine's limit allows; 16 would fit


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
    assert "eager" not in track.noted


@pytest.mark.parametrize("name", ["eager", "copy", NULL])
def test_nobody_is_left_out_on_whom_the_verdict_rests(track: Track, name: str) -> None:
    def refuse(asked: str, _case: Any) -> Racer:
        if asked == name:
            raise CaseRefused("the baseline cannot be loaded")
        return track.racers[asked]

    track.crew.baselines.contender = refuse
    with pytest.raises(CaseRefused, match="cannot be loaded"), track.race():
        pass


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
    track.rounds(race, 1)
    assert [one.repeats for one in race.rounds[-2:]] == [1, 0]
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


@pytest.mark.parametrize(("in_place", "collected", "copies"), [(False, True, 6), (False, False, 3), (True, False, 4)])
def test_memory_for_inputs_and_results_counts_as_often_as_there_are_copies(
    track: Track, in_place: bool, collected: bool, copies: int
) -> None:
    """Inputs lie in the arena and with the judge; results with both who make them, in their places, and with the judge."""
    track.case.assignment.spec.language = "cuda" if in_place else "triton"
    assert bytes_of_set(track.case, track.case.inputs(1, 0, CPU), collected) == copies * 4 * SIZE


def test_two_races_of_a_case_have_no_inputs_in_common(track: Track) -> None:
    seen = []
    for _ in range(2):
        before = len(track.log)
        with track.race() as race:
            track.rounds(race, 3)
        seen.append({batch["inputs"] for batch in track.log[before:]})
    assert not seen[0] & seen[1]


# Before the rounds, and after them ------------------------------------------------------------------------------------


def heat(track: Track) -> Heat:
    return run_heat(track.track, track.case, track.submission, Evidence())


def batches_of(track: Track, name: str) -> list[int]:
    return [batch["calls"] for batch in track.log if batch["name"] == name]


def test_who_is_far_too_slow_by_the_judges_clock_has_no_rounds(track: Track) -> None:
    track.walls_s = {SUBMISSION: [0.0, 0.5, 0.4], NULL: [0.0]}
    with pytest.raises(FarTooSlow) as slow:
        heat(track)
    assert slow.value.call_s == pytest.approx(0.4)
    assert batches_of(track, SUBMISSION) == [1, 1, 1]  # the first one may compile


def test_the_slowest_of_the_opponents_says_what_is_too_slow(track: Track) -> None:
    """No band names the vendor's kernel."""
    track.case.contenders = lambda **_: ["eager", "cudnn", "copy"]
    track.racers["cudnn"] = Racer("cudnn", 100 * EAGER_S, trusted=True)
    track.walls_s = {SUBMISSION: [0.5], NULL: [0.0]}
    with pytest.raises(FarTooSlow):
        heat(track)
    track.case.opponents = ["eager", "cudnn"]
    assert heat(track).verdict.counted[SUBMISSION].median == pytest.approx(0.5, rel=0.01)


def test_a_race_has_its_first_rounds_and_further_ones_if_the_clocks_disagree_a_little(track: Track) -> None:
    track.walls_s = {SUBMISSION: [EAGER_S], NULL: [0.0]}
    found = heat(track)
    assert len(found.measured.rounds) == 3
    track.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    found = heat(track)
    assert found.verdict.is_doubted
    assert len(found.measured.rounds) == 3 + 4


def test_a_submission_that_takes_its_time_between_batches_has_no_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it could have the doubt of a wide interval."""
    track = Track(monkeypatch, budget_s=1e-6)
    track.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    with track.race() as race:
        track.rounds(race, 3)
        assert not race.wants_another_round()
        race.bench.tidied_s = 100.0
        assert race.wants_another_round()


def test_after_a_quick_grading_three_rounds_are_enough(track: Track) -> None:
    track.walls_s = {SUBMISSION: [1.06 * EAGER_S], NULL: [0.0]}
    track.run.job.effort = "quick"
    found = heat(track)
    assert len(found.measured.rounds) == 3


def on_a_gpu(track: Track) -> Racer:
    """The submission, which may be ended, in a race that takes itself to be on a GPU."""
    track.run.device_name = "cuda"
    track.racers[SUBMISSION].may_end = True
    return track.racers[SUBMISSION]


def test_afterwards_the_others_take_turns_without_the_submission(track: Track) -> None:
    """A contender that runs twice in a row is faster the second time."""
    submission = on_a_gpu(track)
    with track.race() as race:
        track.rounds(race, 3)
        before = len(track.log)
        race.end_submission()
    assert submission.ended
    assert [batch["name"] for batch in track.log[before:]] == ["eager", NULL] * (1 + ALONE_BATCHES)


def test_no_time_counts_that_the_submission_has_made_longer(track: Track) -> None:
    """The lower of two times of the null contender, in the rounds and afterwards, is subtracted; of a baseline's the margin above."""
    submission = on_a_gpu(track)
    nothing_s, alone_s = 6e-3, [9e-3, 4e-3, 4e-3, 1e-3, 4e-3]
    track.walls_s = {SUBMISSION: [2 * EAGER_S], NULL: [nothing_s]}
    with track.race() as race:
        track.rounds(race, 3)
        calls = race.calls[SUBMISSION]
        beside = [lap.judged_s for lap in race.laps]
        assert beside == pytest.approx([2 * EAGER_S - nothing_s / calls] * 3)
        track.walls_s[NULL] = [0.0, *alone_s]
        track.racers["eager"].claim_s = EAGER_S / 2
        race.end_submission()
        assert submission.ended
        after = [lap.judged_s for lap in race.laps]
        assert after == pytest.approx([2 * EAGER_S - (4e-3 + HOST_NOISE_S) / calls] * 3)
        assert [lap.times_s["eager"] for lap in race.laps] == pytest.approx([1.05 * EAGER_S / 2] * 3)
        assert any(flag.startswith("eager took 1 ms a call in the rounds, and 0.5 ms") for flag in race.verdict().flags)


@pytest.mark.parametrize(
    ("held_gib", "room", "faulty"),
    [
        (HOARD_GIB + WORKER_GIB + 0.1, 5, True),
        (HOARD_GIB + WORKER_GIB - 0.1, 5, False),
        (100.0, 99, False),  # there was room for as many calls as are wanted
    ],
)
def test_memory_that_is_kept_must_not_make_batches_shorter(
    track: Track, monkeypatch: pytest.MonkeyPatch, held_gib: float, room: int, faulty: bool
) -> None:
    """Starting and ending a batch would be more of each call."""
    monkeypatch.setattr(race_module, "RELEASED_S", 0.0)
    submission = on_a_gpu(track)
    set_gib = bytes_of_set(track.case, track.case.inputs(1, 0, CPU), collected=True) / 2**30
    track.run.free_gib = lambda: (room + 0.5) * set_gib / SHARE_OF_FREE_MEMORY + held_gib * submission.ended
    with track.race() as race:
        assert race.calls[SUBMISSION] == min(room, 8)
        words = "there was room for 5 calls in a batch, and 8 are wanted"
        with pytest.raises(ContenderFault, match=words) if faulty else nullcontext():
            race.end_submission()


def test_batches_that_are_run_again_are_counted_by_contender(track: Track) -> None:
    """Work that it leaves running after a slow batch would let it choose among its batches unseen."""
    looks = iter([False, False, True, False, True])
    bench: Any = SimpleNamespace(
        run=lambda *_, **__: SimpleNamespace(collected=True, quiet=next(looks)), renew=lambda _draw: None
    )
    lineup = Lineup(track.track, track.case, track.submission)
    nobody: Any = None
    ran = Batches(track.track, track.case, lineup, nobody, Evidence())
    ran.run(bench, lineup.submission, 1)
    assert ran.repeats == {SUBMISSION: 2}
    ran.run(bench, lineup.others[0], 1)
    assert ran.repeats == {SUBMISSION: 2, lineup.others[0].name: 1}


def test_results_are_handed_in_one_way(track: Track) -> None:
    """A function that writes in place is not asked for its results, and the null contender is: they would be timed differently."""
    results = iter([True, True, False])
    bench: Any = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(collected=next(results), quiet=True))
    lineup = Lineup(track.track, track.case, track.submission)
    nobody: Any = None
    ran = Batches(track.track, track.case, lineup, nobody, Evidence())
    ran.run(bench, lineup.submission, 4)
    ran.run(bench, lineup.submission, 4)
    with pytest.raises(CheckFailed, match="in some batches"):
        ran.run(bench, lineup.submission, 4)


def test_a_heat_ends_with_a_watched_batch_and_without_the_submission(track: Track) -> None:
    submission = on_a_gpu(track)
    heat(track)
    last = [batch for batch in track.log if batch["name"] == SUBMISSION][-1]
    assert (last["calls"], last["watched"], last["check"]) == (8, True, True)
    assert submission.ended
