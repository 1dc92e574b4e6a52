"""Where the course's compiled kernels are kept, and what the workers of baselines load."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.assignment import load_course
from grader.judge import baselines
from grader.judge.baselines import NULL, Baselines, kept_caches
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
from grader.pool.fault import Fault
from grader.protocol import Yardstick
from tests.conftest import ROOT


@pytest.mark.parametrize("there_already", [False, True])
def test_no_other_user_may_enter_the_courses_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_already: bool
) -> None:
    """In a container workers are another user, and the caches' place is known to anybody who reads this."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(baselines, "_toolchain", lambda: "H200-1-2-3")
    there = tmp_path / "gpu-lab-grader" / "H200-1-2-3"
    if there_already:
        there.mkdir(parents=True, mode=0o755)
    assert kept_caches("cuda") == there
    assert there.stat().st_mode & 0o777 == 0o700
    assert kept_caches("cpu") is None


def test_who_has_no_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")
    assert kept_caches("cuda") is None


class StandIn:
    """A worker without a process, which notes what is loaded into it."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.loaded: list[object] = []
        self.alive, self._fault = True, fault

    def lives(self) -> bool:
        return self.alive

    def do(self, request: Yardstick, _limits: object) -> None:
        self.loaded.append(request.name)

    def load(self, file: Path, entry: str, *_: object, compiled: bool) -> None:
        if self._fault is not None:
            raise self._fault
        self.loaded.append((file.name, entry, compiled))


@pytest.fixture
def case() -> BoundSpeedCase:
    return bind_speed_cases(load_course(ROOT, ["flash_attention"]))[0].declared


def test_each_baseline_has_a_worker_which_loads_once_for_a_case(case: BoundSpeedCase) -> None:
    started: list[Any] = []

    def start(**_: object) -> StandIn:
        started.append(StandIn())
        return started[-1]

    pool: Any = SimpleNamespace(device="cuda", start=start)
    baselines = Baselines(pool, ROOT, None)
    for _ in range(2):
        found = [baselines.worker(name, case) for name in ("compile", "copy", "eager")]
    assert found == started
    assert [one.loaded for one in started] == [
        [("baselines.py", "eager", True)],
        ["copy"],
        [("baselines.py", "eager", False)],
    ]
    started[0].alive = False
    assert baselines.worker("compile", case) is started[3]
    assert started[3].loaded == [("baselines.py", "eager", True)]


def test_baselines_are_loaded_side_by_side_in_the_background_and_nobody_is_timed_beside_it(
    case: BoundSpeedCase,
) -> None:
    names = {NULL, *case.entrants(everyone=False)}
    together, started = threading.Barrier(len(names), timeout=20), list[Any]()

    def start(**_: object) -> StandIn:
        together.wait()
        started.append(StandIn())
        return started[-1]

    pool: Any = SimpleNamespace(device="cuda", start=start)
    baselines = Baselines(pool, ROOT, None)
    baselines.load_ahead([case], everyone=False)
    baselines.settle()
    assert baselines.workers.keys() == names
    assert len(started) == len(names)
    assert baselines.worker(NULL, case).loaded == [NULL]  # type: ignore[attr-defined]
    assert len(started) == len(names), "one that lives is not started again"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("failed", "no such function"), "the baseline eager of {} cannot be loaded: no such function"),
        (Fault.no_worker("no memory is left"), "no memory is left"),
    ],
)
def test_a_baseline_that_cannot_be_loaded_is_the_graders_fault(case: BoundSpeedCase, fault: Fault, words: str) -> None:
    pool: Any = SimpleNamespace(device="cuda", start=lambda **_: StandIn(fault))
    with pytest.raises(Fault) as told:
        Baselines(pool, ROOT, None).worker("eager", case)
    assert told.value.whose == "machine"
    assert told.value.message == words.format(case.id)
