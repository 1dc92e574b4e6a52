"""Cases side by side: each once, with its own end, in the lane of its assignment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.cases import ReportPlace
from grader.judge.evidence import Evidence
from grader.judge.files import Hangs
from grader.judge.lanes import Done, Lanes, Work
from grader.judge.schedule import Works
from grader.pool import pool
from grader.pool.fault import Fault


class Stub:
    """Run, files, workers and trials in one: hands out lane numbers for entrants, and notes what was run where."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.ended: list[int] = []
        self.told: list[Any] = []
        self.together = 0
        self.alone: dict[str, bool] = {}
        self.hangs = Hangs()
        self.device_name = "cuda"
        self.lane_count = 1
        self.is_busy = False
        self._inside: set[str] = set()
        self._lock = threading.Lock()

    def worker(self, _assignment: Any, lane: int = 0) -> int:
        return lane

    def emit(self, event: Any) -> None:
        self.told.append(event)

    def end_lanes(self, lanes: Iterable[int]) -> None:
        self.ended += lanes

    def grade(self, case: Any, worker: int, _number: int, evidence: Evidence) -> None:
        with self._lock:
            self._inside.add(case.name)
            self.together = max(self.together, len(self._inside))
            self.alone[case.name] = len(self._inside) == 1
            self.ran.append((case.name, worker))
        time.sleep(0.002 if case.assignment.name == "gelu" else 0.02)
        with self._lock:
            self.alone[case.name] &= len(self._inside) == 1
            self._inside.remove(case.name)
        evidence.time_s += 1.0
        if case.fails:
            raise Fault.wrong(f"{case.name} is wrong")


def cases(
    count: int,
    *,
    of: str = "softmax",
    language: str = "triton",
    wrong: tuple[int, ...] = (),
) -> list[Any]:
    assignment = SimpleNamespace(name=of, spec=SimpleNamespace(language=language))
    part: Any = SimpleNamespace(name="part")
    return [
        SimpleNamespace(
            name=f"{of}-{index}",
            assignment=assignment,
            place=ReportPlace(assignment, part, f"{of}-{index}"),  # type: ignore[arg-type]
            fails=index in wrong,
            case=SimpleNamespace(calls=1, memory_gib=None, max_extra_mib=None, tool=None, tries="", cpu={}),
        )
        for index in range(count)
    ]


@pytest.fixture
def judge() -> Stub:
    return Stub()


def lanes_of(judge: Stub, count: int) -> Lanes:
    judge.lane_count = count
    stub: Any = judge
    return Lanes(stub, stub, stub)


def case_work(judge: Stub, case: Any) -> Work:
    stub: Any = judge
    hoarding: Any = SimpleNamespace(is_a_fault=lambda _assignment: nullcontext())
    return Works(stub, stub, stub, hoarding, stub, stub, {}).of_case(case)


def work(name: str, of: Any, run: Callable[[int, Evidence], None], part: str = "part", apart: bool = False) -> Work:
    of_part: Any = SimpleNamespace(name=part)
    return Work(ReportPlace(of, of_part, name), run, apart=apart)


def run(judge: Stub, count: int, works: Sequence[Work]) -> dict[str, Done]:
    """What became of each work, by its name."""
    lanes = lanes_of(judge, count)
    done = list(lanes.run(works))
    assert not judge.is_busy
    assert not list(lanes.done_already())
    by_name = {one.work.place.name: one for one in done}
    assert len(by_name) == len(done)
    return {one.place.name: by_name[one.place.name] for one in works}


def run_all(judge: Stub, count: int, listed: list[Any]) -> dict[str, Done]:
    """What became of each case, by its name."""
    return run(judge, count, [case_work(judge, case) for case in listed])


def test_every_case_runs_once_and_has_its_own_end(judge: Stub) -> None:
    ends = run_all(judge, 3, cases(12, wrong=(3, 7)))
    assert sorted(name for name, _ in judge.ran) == sorted(ends)
    assert {name: str(one.error) for name, one in ends.items() if one.error} == {
        "softmax-3": "softmax-3 is wrong",
        "softmax-7": "softmax-7 is wrong",
    }
    assert ends["softmax-4"].evidence.time_s == 1.0


def test_lanes_run_side_by_side_and_end_but_for_the_first(judge: Stub) -> None:
    run_all(judge, 3, cases(20))
    assert judge.together == 3
    assert {lane for _, lane in judge.ran} == {0, 1, 2}
    assert judge.ended == [1, 2]
    assert len(judge.told) == 20  # a watchdog ends a judge of whom nothing is heard


@pytest.mark.parametrize(
    "error", [pytest.skip.Exception("not here"), pytest.fail.Exception("no"), SystemExit(3)], ids=repr
)
def test_whatever_a_work_raises_is_told_and_nobody_waits_for_ever(judge: Stub, error: BaseException) -> None:
    def leave(_lane: int, _evidence: Evidence) -> None:
        raise error

    ends = run(judge, 2, [work(f"check-{index}", cases(1)[0].assignment, leave) for index in range(6)])
    assert all(isinstance(one.error, type(error)) for one in ends.values())


def test_cuda_is_not_built_in_every_lane(judge: Stub) -> None:
    run_all(judge, 3, cases(12, language="cuda"))
    assert judge.together == 1


def test_what_starts_its_own_worker_runs_in_any_lane_and_begins_at_once(judge: Stub) -> None:
    """A file in CUDA C++ stays in one lane; its cases under a tool do not wait there, nor for one another."""
    together = threading.Barrier(3 + 1, timeout=20)
    waited: list[str] = []

    def ordinary(_lane: int, _evidence: Evidence) -> None:
        if not waited:
            waited.append("for all that run under a tool to have begun")
            together.wait()

    def watched(_lane: int, _evidence: Evidence) -> None:
        together.wait()

    gelu = cases(1, of="gelu", language="cuda")[0].assignment
    works = [work(f"ordinary-{index}", gelu, ordinary) for index in range(12)]
    works += [work(f"tool-{index}", gelu, watched, apart=True) for index in range(3)]
    ends = run(judge, 4, works)
    assert not [one.error for one in ends.values() if one.error], "a BrokenBarrierError: one of them had to wait"
    assert waited


def test_what_has_to_be_built_by_its_own_worker_begins_first(judge: Stub) -> None:
    begun: list[str] = []
    triton, cuda = cases(1)[0].assignment, cases(1, of="gelu", language="cuda")[0].assignment
    works = [
        work(f"{of.name}-{index}", of, lambda *_, of=of: begun.append(of.name), apart=True)
        for index in range(4)
        for of in (triton, cuda)
    ]
    run(judge, 2, works)
    assert begun[:3] == ["gelu"] * 3  # the fourth and the next one begin at the same moment
    assert sorted(begun) == ["gelu"] * 4 + ["softmax"] * 4


def test_a_case_under_a_tool_starts_its_own_worker(judge: Stub) -> None:
    plain, watched = cases(2)
    watched.case.tool = "memcheck"
    assert [case_work(judge, one).apart for one in (plain, watched)] == [False, True]  # type: ignore[arg-type]


def test_no_assignment_has_a_second_lane_before_all_have_one(judge: Stub) -> None:
    listed = cases(60, of="attention") + cases(30, of="softmax") + cases(20, of="gelu", language="cuda")
    run_all(judge, 3, listed)
    assert {next(name for name, one in judge.ran if one == lane).split("-")[0] for lane in range(3)} == {
        "attention",
        "softmax",
        "gelu",
    }


def test_lanes_are_shared_out_and_each_stays_with_its_assignment(judge: Stub) -> None:
    """Three for the one with most work, one for each of the others; a lane that is done goes on elsewhere, with a new worker."""
    listed = cases(18, of="gelu", language="cuda") + cases(20, of="softmax") + cases(60, of="attention")
    run_all(judge, 5, listed)
    first = {lane: next(name for name, one in judge.ran if one == lane).split("-")[0] for lane in range(5)}
    assert sorted(first.values()) == ["attention"] * 3 + ["gelu", "softmax"]
    order: dict[int, list[str]] = {}
    for name, lane in judge.ran:
        assignment = name.split("-")[0]
        if order.setdefault(lane, [assignment])[-1] != assignment:
            order[lane].append(assignment)
    moved = [lane for lane, names in order.items() if len(names) > 1]
    assert moved == [lane for lane, name in first.items() if name == "gelu"]
    assert all(len(names) == len(set(names)) for names in order.values())
    assert sorted(judge.ended) == sorted([*moved, 1, 2, 3, 4])


def test_a_lane_takes_no_work_before_its_worker_is_there(judge: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or that work, and whoever waits for it, would wait for the start, while another lane could do it."""
    all_done = threading.Event()
    listed = cases(20)

    def worker(_assignment: Any, lane: int = 0) -> int:
        if lane == 1:
            assert all_done.wait(20)
        return lane

    monkeypatch.setattr(judge, "worker", worker)
    lanes = lanes_of(judge, 2)
    running = lanes.run([case_work(judge, case) for case in listed])
    for _ in listed:
        next(running)
    all_done.set()
    lanes.finish()
    assert {lane for _, lane in judge.ran} == {0}


def test_a_worker_that_does_not_start_is_told_by_the_work_that_needs_it(
    judge: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(_assignment: Any, lane: int = 0) -> int:
        raise OSError(f"no worker for lane {lane}")

    monkeypatch.setattr(judge, "worker", worker)
    ends = run_all(judge, 2, cases(12))
    assert all(str(one.error).startswith("no worker for lane") for one in ends.values())


def test_a_fault_of_a_lanes_first_load_is_told_by_the_work_that_needs_it_and_no_more(
    judge: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one file may load in the first worker and not in the second."""
    loaded: list[int] = []

    def worker(_assignment: Any, lane: int = 0) -> int:
        if lane not in loaded:
            loaded.append(lane)
            if len(loaded) == 2:
                raise Fault("crashed", "when it was loaded once more")
        return lane

    monkeypatch.setattr(judge, "worker", worker)
    told = [str(one.error) for one in run_all(judge, 2, cases(16)).values() if one.error]
    assert told == ["when it was loaded once more"]
    assert len(judge.ran) == 15


def test_a_worker_is_not_started_for_a_case_or_two(judge: Stub) -> None:
    run_all(judge, 3, cases(3))
    assert judge.together == 1


@pytest.mark.parametrize(("cut", "told"), [(1, None), (2, "ended together with other processes")])
def test_a_work_that_the_end_of_another_worker_cut_off_is_run_once_more_alone(
    judge: Stub, cut: int, told: str | None
) -> None:
    """The second time nobody else can be the reason."""
    (of,), tries, inside = cases(1), list[int](), list[str]()

    def cut_off(lane: int, evidence: Evidence) -> None:
        assert not (tries and inside), "it is not alone"
        tries.append(lane)
        evidence.time_s += 1.0
        if len(tries) <= cut:
            raise Fault("crashed", "ended together with other processes of the submission", cut_off=True)

    def other(_lane: int, _evidence: Evidence) -> None:
        inside.append("other")
        time.sleep(0.01)
        inside.remove("other")

    works = [work(f"other-{index}", of.assignment, other) for index in range(12)]
    works.insert(3, work("cut off", of.assignment, cut_off))
    ended = run(judge, 3, works)["cut off"]
    assert tries[1:] == [0]
    assert ended.evidence.time_s == 1.0
    assert (str(ended.error).partition(" of the")[0] if ended.error else None) == told


def test_nothing_begins_after_the_end(judge: Stub) -> None:
    lanes = lanes_of(judge, 2)
    running = lanes.run([case_work(judge, case) for case in cases(200)])
    next(running)
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


def test_lanes_leave_the_rest_of_a_part_that_hangs_and_run_the_others(judge: Stub) -> None:
    """Two lanes: when the second of two has hung, at most one more is under way."""
    (case,), ran = cases(1), list[str]()

    def hang_or_work(part: str, index: int) -> Work:
        def go(_lane: int, _evidence: Evidence) -> None:
            ran.append(f"{part}-{index}")
            if part == "hangs":
                raise Fault("timed_out", "no answer within 5 s: stopped")

        return work(f"{part}-{index}", case.assignment, go, part=part)

    works = [hang_or_work(part, index) for index in range(8) for part in ("hangs", "works")]
    ends = [str(one.error or "passed") for one in run(judge, 2, works).values()]
    assert ends[1::2] == ["passed"] * 8
    assert 2 <= ends.count("no answer within 5 s: stopped") <= 3
    assert len([one for one in ran if one.startswith("hangs")]) <= 3
    told = [words for words in ends if words.startswith("not run: ")]
    assert len(told) >= 5
    assert all(words.endswith(" of this part gave no answer within 5 s; mend these first") for words in told)
    assert {words.split()[2] for words in told} <= {f"hangs-{index}" for index in range(8)}, (
        "cases have their own names"
    )
