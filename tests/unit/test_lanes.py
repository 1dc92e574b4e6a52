"""Cases that are run ahead: each once, in order of report, alone where they must be, and with their own ends."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import lanes as module
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.lanes import Lanes, lanes_here


class StubJudge:
    """Hands out lane numbers for contenders, and notes what was run where."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, int]] = []
        self.ended: list[int] = []
        self.together = 0
        self.alone: dict[str, bool] = {}
        self._inside: set[str] = set()
        self._lock = threading.Lock()

    def contender(self, _assignment: Any, lane: int = 0) -> int:
        return lane

    def end_lane(self, lane: int) -> None:
        self.ended.append(lane)

    def run_trial(self, _judge: Any, case: Any, contender: int, _number: int, evidence: Evidence) -> None:
        with self._lock:
            self._inside.add(case.id)
            self.together = max(self.together, len(self._inside))
            self.alone[case.id] = len(self._inside) == 1
            self.ran.append((case.id, contender))
        time.sleep(0.02)
        with self._lock:
            self.alone[case.id] &= len(self._inside) == 1
            self._inside.remove(case.id)
        evidence.time_s += 1.0
        if case.fails:
            raise CheckFailed(f"{case.id} is wrong")


def cases(
    count: int, *, language: str = "triton", alone: tuple[int, ...] = (), wrong: tuple[int, ...] = ()
) -> list[Any]:
    assignment = SimpleNamespace(name="softmax", spec=SimpleNamespace(language=language))
    return [
        SimpleNamespace(
            id=f"case-{index}",
            assignment=assignment,
            fails=index in wrong,
            case=SimpleNamespace(calls=1, memory_gib=8.0 if index in alone else None, max_extra_mib=None),
        )
        for index in range(count)
    ]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StubJudge:
    stub = StubJudge()
    monkeypatch.setattr(module, "run_trial", stub.run_trial)
    return stub


def run_all(judge: StubJudge, count: int, listed: list[Any]) -> dict[str, str]:
    """What became of each case, in the order in which they are reported."""
    lanes = Lanes(judge, count)  # type: ignore[arg-type]
    ends = {}
    for case in listed:
        lanes.begin(case.assignment, listed)
        evidence = Evidence()
        try:
            lanes.run(case, evidence)
            ends[case.id] = f"passed after {evidence.time_s:g} s"
        except CheckFailed as failed:
            ends[case.id] = failed.message
    lanes.finish()
    return ends


@pytest.mark.parametrize("count", [1, 3])
def test_every_case_runs_once_and_has_its_own_end(judge: StubJudge, count: int) -> None:
    ends = run_all(judge, count, cases(10, wrong=(3, 7)))
    assert sorted(name for name, _ in judge.ran) == sorted(ends)
    assert {name for name, words in ends.items() if "wrong" in words} == {"case-3", "case-7"}
    assert ends["case-3"] == "case-3 is wrong"
    assert ends["case-4"] == "passed after 1 s"


def test_lanes_run_side_by_side_and_end_but_for_the_first(judge: StubJudge) -> None:
    run_all(judge, 3, cases(12))
    assert judge.together == 3
    assert {lane for _, lane in judge.ran} == {0, 1, 2}
    assert judge.ended == [1, 2]


def test_a_single_lane_runs_one_case_after_another_in_order(judge: StubJudge) -> None:
    run_all(judge, 1, cases(5))
    assert judge.ran == [(f"case-{index}", 0) for index in range(5)]
    assert judge.together == 1


def test_a_case_that_needs_memory_runs_alone(judge: StubJudge) -> None:
    run_all(judge, 3, cases(9, alone=(4, 8)))
    assert judge.alone["case-4"]
    assert judge.alone["case-8"]
    assert ("case-4", 0) in judge.ran


def test_cuda_is_not_built_in_every_lane(judge: StubJudge) -> None:
    run_all(judge, 3, cases(6, language="cuda"))
    assert judge.together == 1


def test_a_second_assignment_begins_when_the_first_has_ended(judge: StubJudge) -> None:
    lanes = Lanes(judge, 3)  # type: ignore[arg-type]
    first, second = cases(6), cases(6)
    other = SimpleNamespace(name="gelu", spec=SimpleNamespace(language="triton"))
    for case in second:
        case.id, case.assignment = f"other-{case.id}", other
    lanes.begin(first[0].assignment, first)
    lanes.begin(other, second)
    started = [name for name, _ in judge.ran]
    assert {one.id for one in first} <= set(started[:8])
    lanes.finish()


def test_a_laptop_has_one_lane() -> None:
    assert lanes_here(on_gpu=False, stop_early=False) == 1
    assert lanes_here(on_gpu=True, stop_early=True) == 1


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 1), (5, 1), (6, 2), (16, 4), (128, 4)])
def test_lanes_need_cores(monkeypatch: pytest.MonkeyPatch, cores: int, expected: int) -> None:
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert lanes_here(on_gpu=True, stop_early=False) == expected
