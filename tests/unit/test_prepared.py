"""Workers of the submission for what runs when no lane does: how many are started, and who waits for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import plugin
from grader.judge.cases import SpeedSizes
from grader.judge.plugin import PLACE, JudgePlugin
from grader.judge.state import Judge


class Items:
    """Tests of two assignments, `gelu` and `softmax`, as pytest has collected them."""

    def __init__(self, free_gib: float = 140.0, lanes: int = 12, absent: str = "") -> None:
        self.prepared: list[list[tuple[str, bool]]] = []
        self.plugin: Any = JudgePlugin.__new__(JudgePlugin)
        self.plugin.judge = SimpleNamespace(
            device_name="cuda",
            lane_count=lanes,
            free_gib=lambda: free_gib,
            is_there=lambda file: file != absent,
            prepare_races=self.prepared.append,
            gradients={("softmax", "backward"): True, ("softmax", "forward"): False, ("gelu", "forward"): False},
        )
        self.plugin.assignments = {
            name: SimpleNamespace(spec=SimpleNamespace(file=f"{name}.py")) for name in ("gelu", "softmax")
        }
        self.plugin._may_run_ahead = lambda item: item.ahead

    def wanted(self, *items: tuple[str, str]) -> int:
        listed = [
            SimpleNamespace(
                stash={
                    PLACE: SimpleNamespace(
                        assignment=name,
                        part="backward" if kind == "backward race" else "forward",
                        speed="a case" if "race" in kind else None,
                    )
                },
                ahead=kind == "ahead",
            )
            for name, kind in items
        ]
        self.plugin._prepare_for(listed)
        return len(self.prepared[-1]) if self.prepared else 0


RACES = (("gelu", "race"), ("softmax", "race"), ("softmax", "race"))


def test_one_for_each_race() -> None:
    items = Items()
    assert items.wanted(*RACES) == 3
    assert items.prepared == [[("gelu", False), ("softmax", False), ("softmax", False)]]


def test_those_for_backward_passes_import_what_these_need() -> None:
    items = Items()
    assert items.wanted(("gelu", "race"), ("softmax", "race"), ("softmax", "backward race")) == 3
    assert items.prepared == [[("gelu", False), ("softmax", True), ("softmax", True)]]


def test_who_has_not_been_called_may_be_asked_for_gradients() -> None:
    items = Items()
    items.plugin.judge.gradients = {}
    items.wanted(*RACES)
    assert items.prepared == [[("gelu", True), ("softmax", True), ("softmax", True)]]


def test_what_runs_alone_hands_its_worker_on_to_a_race() -> None:
    alone = (("gelu", "alone"), ("softmax", "alone"), ("softmax", "alone"), ("softmax", "ahead"))
    assert Items().wanted(*alone, *RACES) == 3
    assert Items().wanted(*alone) == 2
    assert Items().wanted(("gelu", "ahead")) == 0


def test_none_for_a_file_that_is_not_there() -> None:
    assert Items(absent="softmax.py").wanted(*RACES) == 1


@pytest.mark.parametrize(("free_gib", "lanes", "wanted"), [(17.0, 12, 2), (3.0, 12, 1), (140.0, 2, 2)])
def test_memory_and_lanes_bound_them(free_gib: float, lanes: int, wanted: int) -> None:
    assert plugin.GIB_PER_SPARE == 8
    assert Items(free_gib, lanes).wanted(*RACES) == wanted


def test_none_where_one_runs_after_another() -> None:
    items = Items(lanes=1)
    items.wanted(*RACES)
    assert not items.prepared


class Alone:
    """A GPU with so much free memory and 8 lanes, and what is waited for before a case that runs alone."""

    def __init__(self, free_gib: float, device: str = "cuda") -> None:
        self.done: list[str] = []
        self.plugin: Any = JudgePlugin.__new__(JudgePlugin)
        self.plugin.judge = SimpleNamespace(
            device_name=device,
            lane_count=8,
            free_gib=lambda: free_gib,
            lanes=SimpleNamespace(finish=lambda: self.done.append("lanes")),
            settle=lambda starts: self.done.extend(["baselines", *["starts"] * starts]),
        )

    def before(self, memory_gib: float | None, max_extra_mib: float | None = None) -> list[str]:
        case = SimpleNamespace(memory_gib=memory_gib, max_extra_mib=max_extra_mib)
        self.plugin._wait_for_others(SimpleNamespace(case=case))
        return self.done


def test_a_case_with_memory_to_spare_waits_for_no_start() -> None:
    assert plugin.GIB_PER_WORKER == 4
    assert Alone(free_gib=112.0).before(memory_gib=80.0) == ["lanes", "baselines"]


@pytest.mark.parametrize(
    ("free_gib", "memory_gib", "max_extra_mib"), [(111.9, 80.0, None), (140.0, 24.0, 512.0), (140.0, None, 512.0)]
)
def test_where_memory_is_short_or_measured_everybody_has_started(
    free_gib: float, memory_gib: float | None, max_extra_mib: float | None
) -> None:
    assert Alone(free_gib).before(memory_gib, max_extra_mib) == ["lanes", "baselines", "starts"]


def test_without_a_gpu_only_lanes_are_waited_for() -> None:
    assert Alone(1.0, device="cpu").before(memory_gib=80.0) == ["lanes"]


@pytest.mark.parametrize(
    ("starts", "done"), [(True, ["watched", "baselines", "pool"]), (False, ["watched", "baselines"])]
)
def test_the_courses_own_are_always_waited_for(starts: bool, done: list[str]) -> None:
    found: list[str] = []
    judge: Any = Judge.__new__(Judge)
    judge._pool = SimpleNamespace(end_watched=lambda: found.append("watched"), settle=lambda: found.append("pool"))
    judge.baselines = SimpleNamespace(settle=lambda: found.append("baselines"))
    judge.settle(starts)
    assert found == done


@pytest.mark.parametrize(("free_gib", "roomy"), [(140.0, ["large"]), (80.0, ["large"]), (79.9, ["small"]), (38.9, [])])
def test_what_there_is_memory_for_beside_all_lanes_may_be_called_early(free_gib: float, roomy: list[str]) -> None:
    begun: list[Any] = []
    alone = Alone(free_gib)
    sizes = SimpleNamespace(declared=SimpleNamespace(speed=SimpleNamespace(devices=("cuda",))), memory_gib=(48.0, 7.0))
    sizes.cases = ("large", "small")
    sizes.fitting = lambda free: SpeedSizes.fitting(sizes, free)  # type: ignore[arg-type]
    alone.plugin.speed_cases = [sizes]
    alone.plugin.judge.job = SimpleNamespace(contenders="needed")
    alone.plugin.judge.baselines = SimpleNamespace(begin=lambda *given: begun.append(given))
    alone.plugin.judge.expect_reference = lambda: None
    alone.plugin.start_the_courses_own()
    ((cases, everyone, found, _),) = begun
    assert cases == [sizes.declared]
    assert not everyone
    assert found == roomy
