"""Cases side by side: each once, with its own end, in the lane of its assignment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.cases import ReportPlace
from grader.judge.evidence import Evidence
from grader.judge.lanes import Done, Lanes, Work
from grader.pool import pool
from grader.pool.fault import Fault


class Stub:
    """Stands for the workers, and runs works: notes which ran where."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.ended: list[int] = []
        self.together = 0
        self.is_busy = False
        self._inside: set[str] = set()
        self._lock = threading.Lock()

    def end_lanes(self, lanes: Iterable[int]) -> None:
        self.ended += lanes

    def do(self, work: Work, lane: int) -> Done:
        with self._lock:
            self._inside.add(work.name)
            self.together = max(self.together, len(self._inside))
            self.ran.append((work.name, lane))
        time.sleep(0.002 if work.assignment.name == "gelu" else 0.02)
        with self._lock:
            self._inside.remove(work.name)
        return Done(work, None, Evidence())


def works(count: int, of: str = "softmax", language: str = "triton", *, apart: bool = False) -> list[Any]:
    """Works of an assignment, as `softmax-0`, `softmax-1`, and so on."""
    assignment: Any = SimpleNamespace(name=of, spec=SimpleNamespace(language=language))
    part: Any = SimpleNamespace(name="part")
    names = [f"{of}{' apart' if apart else ''}-{index}" for index in range(count)]
    common = {"assignment": assignment, "is_apart": apart}
    return [SimpleNamespace(name=one, place=ReportPlace(assignment, part, one), **common) for one in names]


@pytest.fixture
def judge() -> Stub:
    return Stub()


def lanes_of(judge: Stub, count: int) -> Lanes:
    stub: Any = judge
    return Lanes(count, stub)


def run(
    judge: Stub, count: int, listed: Sequence[Any], do: Callable[[Any, int], Done] | None = None
) -> dict[str, Done]:
    """What became of each work, by its name."""
    lanes = lanes_of(judge, count)
    done = list(lanes.run(listed, do or judge.do))
    assert not judge.is_busy
    assert not list(lanes.done_already())
    by_name = {one.work.name: one for one in done}
    assert len(by_name) == len(done) == len(listed)
    return {one.name: by_name[one.name] for one in listed}


def ended(work: Any, error: BaseException | None = None) -> Done:
    return Done(work, error, Evidence())


def test_every_work_runs_once_and_has_its_own_end(judge: Stub) -> None:
    wrong = {f"softmax-{index}": Fault.wrong(f"{index} is wrong") for index in (3, 7)}
    ends = run(judge, 3, works(12), lambda work, _lane: ended(work, wrong.get(work.name)))
    assert {name: one.error for name, one in ends.items() if one.error} == wrong


def test_lanes_run_side_by_side_and_end_but_for_the_first(judge: Stub) -> None:
    run(judge, 3, works(20))
    assert judge.together == 3
    assert {lane for _, lane in judge.ran} == {0, 1, 2}
    assert judge.ended == [1, 2]


def test_whatever_a_work_raises_is_told_and_nobody_waits_for_ever(judge: Stub) -> None:
    def leave(_work: Any, _lane: int) -> Done:
        raise SystemExit(3)

    ends = run(judge, 2, works(6), leave)
    assert all(isinstance(one.error, SystemExit) for one in ends.values())


def test_cuda_is_not_built_in_every_lane(judge: Stub) -> None:
    run(judge, 3, works(12, language="cuda"))
    assert judge.together == 1


def test_what_starts_its_own_worker_runs_in_any_lane_and_begins_at_once(judge: Stub) -> None:
    """A file in CUDA C++ stays in one lane; its cases under a tool do not wait there, nor for one another."""
    together = threading.Barrier(3 + 1, timeout=20)
    waited: list[str] = []

    def do(work: Any, _lane: int) -> Done:
        if work.is_apart:
            together.wait()
        elif not waited:
            waited.append("for all that run under a tool to have begun")
            together.wait()
        return ended(work)

    ends = run(judge, 4, [*works(12, "gelu", "cuda"), *works(3, "gelu", "cuda", apart=True)], do)
    assert not [one.error for one in ends.values() if one.error], "a BrokenBarrierError: one of them had to wait"
    assert waited


def test_what_has_to_be_built_by_its_own_worker_begins_first(judge: Stub) -> None:
    triton, cuda = works(4, apart=True), works(4, "gelu", "cuda", apart=True)
    run(judge, 2, [one for pair in zip(triton, cuda, strict=True) for one in pair])
    begun = [name.split()[0] for name, _ in judge.ran]
    assert begun[:3] == ["gelu"] * 3  # the fourth and the next one begin at the same moment
    assert sorted(begun) == ["gelu"] * 4 + ["softmax"] * 4


def test_no_assignment_has_a_second_lane_before_all_have_one(judge: Stub) -> None:
    run(judge, 3, works(60, "attention") + works(30) + works(20, "gelu", "cuda"))
    first = {next(name for name, one in judge.ran if one == lane).split("-")[0] for lane in range(3)}
    assert first == {"attention", "softmax", "gelu"}


def test_lanes_are_shared_out_and_each_stays_with_its_assignment(judge: Stub) -> None:
    """Three for the one with most work, one for each of the others; a lane that is done goes on elsewhere, with a new worker."""
    run(judge, 5, works(18, "gelu", "cuda") + works(20) + works(60, "attention"))
    order: dict[int, list[str]] = {}
    for name, lane in judge.ran:
        assignment = name.split("-")[0]
        if order.setdefault(lane, [assignment])[-1] != assignment:
            order[lane].append(assignment)
    first = {lane: names[0] for lane, names in order.items()}
    assert sorted(first.values()) == ["attention"] * 3 + ["gelu", "softmax"]
    moved = [lane for lane, names in order.items() if len(names) > 1]
    assert moved == [lane for lane, name in first.items() if name == "gelu"]
    assert all(len(names) == len(set(names)) for names in order.values())
    assert sorted(judge.ended) == sorted([*moved, 1, 2, 3, 4])


def test_a_work_that_waits_for_its_worker_holds_up_no_other(judge: Stub) -> None:
    all_done, slow = threading.Event(), threading.Event()
    listed = works(20)

    def do(work: Any, lane: int) -> Done:
        if lane == 1:
            slow.set()
            assert all_done.wait(20)
        else:
            assert slow.wait(20)
        return judge.do(work, lane)

    lanes = lanes_of(judge, 2)
    running = lanes.run(listed, do)
    for _ in listed[:-1]:
        next(running)
    all_done.set()
    lanes.finish()
    assert [lane for _, lane in judge.ran].count(1) == 1


def test_a_worker_is_not_started_for_a_case_or_two(judge: Stub) -> None:
    run(judge, 3, works(3))
    assert judge.together == 1


@pytest.mark.parametrize("cut", [1, 2])
def test_a_work_that_the_end_of_another_worker_cut_off_is_run_once_more_alone(judge: Stub, cut: int) -> None:
    """The second time nobody else can be the reason."""
    tries, inside = list[int](), list[str]()

    def do(work: Any, lane: int) -> Done:
        if work.name != "softmax-3":
            inside.append(work.name)
            time.sleep(0.01)
            inside.remove(work.name)
            return ended(work)
        assert not (tries and inside), "it is not alone"
        tries.append(lane)
        return ended(work, Fault("crashed", "ended together", cut_off=True) if len(tries) <= cut else None)

    found = run(judge, 3, works(13), do)["softmax-3"]
    assert tries[1:] == [0]
    assert (found.error is None) == (cut == 1)


def test_nothing_begins_after_the_end(judge: Stub) -> None:
    lanes = lanes_of(judge, 2)
    next(lanes.run(works(200), judge.do))
    lanes.abandon()
    lanes.finish()
    assert len(judge.ran) < 20
    assert len(list(lanes.done_already())) == len(judge.ran) - 1


def test_memory_and_cores_bound_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, gib, expected in [
        (1, 80, 1),
        (2, 80, 1),
        (4, 80, 2),
        (8, 80, 4),
        (16, 80, 8),
        (24, 80, 12),
        (128, 140, 12),
        (16, 23, 5),
        (16, 0, 1),
    ]:
        monkeypatch.setattr(pool.os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert pool.workers_at_once(gib) == expected
