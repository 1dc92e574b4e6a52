"""A batch by the judge's clock, with a worker that lives in this process: what it may see when, and what is believed of its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch

from grader.judge.gpu import Gauge
from grader.judge.speed.clock import InputSets
from grader.pool.arena import Arena
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call
from grader.protocol import FILL_BYTE, GUARD_BYTE, Prepare, Reply, Request, Returned, Tidy, Time
from grader.worker.memory import mapped, tensor_at

CPU = torch.device("cpu")
LIMITS = CallLimits(1.0, 1.0)
WRITTEN = Returned(kind="written")


def entries(arena: Arena, name: str) -> torch.Tensor:
    """An input or output, where it lies."""
    return arena.entries(name, 0, 1 << 30)


def arena_bytes(arena: Arena, name: str) -> torch.Tensor:
    return entries(arena, name).view(torch.uint8)


class Doubles:
    """y = 2 x, by what `prepare` has told it. `late` is called when results have been collected, or written in place."""

    def __init__(self, in_place: bool = False, trusted: bool = False) -> None:
        self.in_place, self.trusted = in_place, trusted
        self.waits_s: list[float] = []
        self.seen: list[str] = []
        self.order: list[int] = []
        self.late: Callable[[], object] = lambda: None

    def do(self, request: Request, _limits: CallLimits, files: tuple[int, ...] = ()) -> None:
        if isinstance(request, Tidy):
            self.tidy()
        if not isinstance(request, Prepare):
            return
        assert request.gate is None, "there is no GPU"
        with mapped(request.arena, [files[0]], "cpu") as memory:
            self.sets = [[tensor_at(memory, ref) for ref in (*one.args, *one.outputs)] for one in request.sets]
        self.places = []
        if request.places is not None:
            with mapped(request.places, [files[-1]], "cpu") as memory:
                self.places = [tensor_at(memory, y) for (y,) in request.results]

    def send(self, request: Request) -> None:
        assert isinstance(request, Time)
        self.keep = request.keep
        self.gate, self.saw_nothing = request.gate, self.is_blank(request.calls)

    def wait_until_queued(self, limit_s: float) -> None:
        assert self.gate > 0
        assert self.is_blank(len(self.sets))
        self.waits_s.append(limit_s)

    def finish(self, calls: int, _limits: CallLimits) -> Reply:
        self.inputs = [x.clone() for x, *_ in self.sets[:calls]]
        if self.in_place:
            for x, (_, y) in zip(self.inputs, self.sets, strict=False):
                y.copy_(2 * x)
            self.late()
        return Reply(times_s=(1.0,) * calls, kinds=((WRITTEN,),) if self.in_place else ())

    def collect(self, order: Sequence[int], _limits: CallLimits) -> tuple[tuple[Returned, ...], ...]:
        self.order = list(order)
        self.blank = self.is_blank(len(order))
        for x, number in zip(self.inputs, order, strict=True):
            self.places[number].copy_(2 * x)
        self.late()
        return ((WRITTEN,),)

    def tidy(self) -> None: ...
    def freeze(self) -> None: ...
    def lives(self) -> bool:
        return True

    def is_blank(self, calls: int) -> bool:
        return all(holds_only(x, GUARD_BYTE) for x, *_ in self.sets[:calls])

    def last(self) -> torch.Tensor:
        """The place of the last call's result, to be written to behind the judge's back."""
        return self.sets[-1][1] if self.in_place else self.places[self.order[-1]]


def holds_only(tensor: torch.Tensor, byte: int) -> bool:
    return bool((tensor.view(torch.uint8) == byte).all())


def calls_of(count: int, size: int) -> list[Call]:
    generator = torch.Generator().manual_seed(count)
    return [Call({"x": torch.randn(size, generator=generator)}) for _ in range(count)]


def sets_with(worker: Doubles, count: int, size: int = 33) -> InputSets:
    collected = 0 if worker.in_place else count
    sets = InputSets(calls_of(count, size), {"y": (size,)}, torch.float32, CPU, Gauge(CPU), worker.in_place, collected)
    sets.invite(cast("Worker", worker), collects=True)
    return sets


def run(sets: InputSets, worker: Doubles, calls: int, **how: bool) -> Any:
    return sets.run(cast("Worker", worker), calls, LIMITS, judged=True, collect=True, **how)


def test_time_that_a_worker_takes_between_batches_is_known() -> None:
    worker = Doubles()
    worker.tidy = lambda: time.sleep(0.03)  # type: ignore[method-assign]
    with sets_with(worker, 2) as sets:
        for _ in range(2):
            run(sets, worker, 2)
        assert sets.tidied_s >= 0.06


def test_who_comes_next_does_not_find_the_answers_of_who_was_there() -> None:
    first, second = Doubles(trusted=True), Doubles()
    with sets_with(first, 5) as sets:
        run(sets, first, 5)
        assert torch.equal(first.last(), 2 * first.inputs[-1])
        sets.invite(cast("Worker", second), collects=True)
        assert all(holds_only(place, FILL_BYTE) for place in second.places)


def test_all_results_are_kept_that_are_collected_and_of_others_as_many_as_the_cache_does_not_hold() -> None:
    worker, gauge = Doubles(), Gauge(CPU)
    gauge.cache_bytes = 99  # results of 132 bytes: three take four times that
    with InputSets(calls_of(8, 33), {"y": (33,)}, torch.float32, CPU, gauge, False, 8) as sets:
        sets.invite(cast("Worker", worker), collects=True)
        run(sets, worker, 8)
        assert worker.keep == 8
        sets.run(cast("Worker", worker), 8, LIMITS, judged=True)
        assert worker.keep == 3


def test_nobody_knows_before_where_a_result_goes() -> None:
    worker = Doubles()
    orders = []
    with sets_with(worker, 20) as sets:
        for _ in range(3):
            run(sets, worker, 20)
            orders.append(worker.order)
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_on_a_cpu_nobody_is_asked_before_the_inputs_are_there_and_they_are_gone_when_results_are_collected() -> None:
    worker = Doubles()
    with sets_with(worker, 4) as sets:
        run(sets, worker, 4)
    assert (worker.gate, worker.saw_nothing, worker.waits_s, worker.blank) == (0, False, [], True)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_result_that_is_written_after_the_seal_does_not_count(in_place: bool) -> None:
    """As work does that was left on a GPU's queue: the answer is right when it is looked at, and was not when the clock stopped."""
    worker = Doubles(in_place)
    with sets_with(worker, 4) as sets:
        worker.late = lambda: worker.last().zero_()
        run(sets, worker, 4)
        worker.last().copy_(2 * worker.inputs[-1])
        assert torch.equal(sets.output(2)["y"], 2 * worker.inputs[2])
        with pytest.raises(Fault, match="still written when your function had returned"):
            sets.output(3)


class FakeGate:
    """Notes whether the inputs were there when it was opened."""

    def __init__(self, worker: Doubles) -> None:
        self.worker = worker
        self.inputs_were_there: list[bool] = []

    def close_again(self) -> int:
        return len(self.inputs_were_there) + 1

    def open(self, forever: bool = False) -> None:
        if not forever:
            self.inputs_were_there.append(not self.worker.is_blank(4))

    def close(self) -> None: ...


def test_on_a_gpu_calls_are_queued_before_the_inputs_are_there_and_wait_for_the_gate() -> None:
    worker = Doubles()
    with sets_with(worker, 4) as sets:
        gate = FakeGate(worker)
        sets.gates[cast("Worker", worker)] = cast("Any", gate)
        for number in (1, 2):
            run(sets, worker, 4)
            assert (worker.gate, worker.saw_nothing) == (number, True)
            assert torch.equal(sets.output(3)["y"], 2 * sets.calls[3].args["x"])
    assert gate.inputs_were_there == [True, True]
    assert len(worker.waits_s) == 2
    assert max(worker.waits_s) < 0.1


def test_after_a_submission_one_looks_thoroughly_whether_the_gpu_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []
    monkeypatch.setattr(Gauge, "is_quiet", lambda _self, thoroughly=True: looks.append(thoroughly) or thoroughly)
    for trusted in (True, False):
        worker = Doubles(trusted=trusted)
        with sets_with(worker, 4) as sets:
            assert run(sets, worker, 4).quiet is not trusted
    assert looks == [False, True]


def test_what_the_courses_own_code_leaves_in_memory_is_gone_when_a_submission_has_its_turn() -> None:
    """Nothing is wiped for baselines themselves: that takes longer than their batches."""
    course, worker = Doubles(trusted=True), Doubles()
    with sets_with(course, 4) as sets:
        sets.invite(cast("Worker", worker), collects=True)
        run(sets, course, 4)
        sets.gates[cast("Worker", worker)] = cast("Any", FakeGate(worker))  # asked before the inputs are there
        send = worker.send
        answers: list[bool] = []

        def look(request: Request) -> None:
            send(request)
            answers.extend(holds_only(place, FILL_BYTE) for place in worker.places)

        worker.send = look  # type: ignore[method-assign]
        run(sets, worker, 4, check=True)
        sets.check_memory()
    assert worker.saw_nothing
    assert answers == [True] * 4


@pytest.mark.parametrize("judged", [True, False])
@pytest.mark.parametrize("trusted", [True, False])
def test_before_a_batch_is_timed_the_device_has_done_all_else(
    judged: bool, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is being wiped, for a submission and the null worker alike, and inputs that are still being drawn."""
    done: list[str] = []
    worker = Doubles(trusted=trusted)
    with sets_with(worker, 4) as sets:
        wipe, settle, fill = Arena.wipe, Arena.settle, Arena.fill
        monkeypatch.setattr(Arena, "wipe", lambda *how, **more: (done.append("wipe"), wipe(*how, **more)))
        monkeypatch.setattr(Arena, "settle", lambda *how: (done.append("settle"), settle(*how)))
        monkeypatch.setattr(Arena, "fill", lambda *how: (done.append("fill"), fill(*how)))
        sets.run(cast("Worker", worker), 4, LIMITS, judged=judged)
        monkeypatch.undo()
    assert done == [*["wipe"] * (judged or not trusted), "settle", "fill"]


def test_inputs_that_were_changed_are_told_of_watched_batches() -> None:
    worker = Doubles()
    with sets_with(worker, 4) as sets:
        finish = worker.finish

        def change(*arguments: Any) -> Reply:
            reply = finish(*arguments)
            worker.sets[1][0][0] = 7.0
            return reply

        worker.finish = change  # type: ignore[method-assign]
        run(sets, worker, 4, check=True, watched=True)
        with pytest.raises(Fault, match="x of call 1"):
            sets.check_memory()
