"""What runs when: beside others or alone, refused or admitted, kept when it has ended; and which workers are started for the races."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from grader.contender.replies import ContenderFault
from grader.judge.cases import ReportPlace
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.lanes import Lanes, Work
from grader.judge.schedule import GIB_PER_RESERVED, Schedule, Works
from grader.judge.standing import Hangs

ASSIGNMENTS: Any = [
    SimpleNamespace(
        name=name, spec=SimpleNamespace(file=f"{name}.py", language="triton", parts=[SimpleNamespace(name="forward")])
    )
    for name in ("gelu", "softmax")
]


def case(of: str, name: str, *, needs_memory: bool = False, measured: bool = False) -> Any:
    declared = SimpleNamespace(
        calls=1,
        memory_gib=8.0 if needs_memory else None,
        max_extra_mib=512.0 if measured else None,
        tool=None,
        tries="",
        cpu={},
    )
    at = place(of, "forward", name)
    return SimpleNamespace(name=name, assignment=at.assignment, place=at, case=declared)


def place(of: str, part: str, name: str = "") -> ReportPlace:
    (assignment,) = (one for one in ASSIGNMENTS if one.name == of)
    of_part: Any = SimpleNamespace(name=part)
    return ReportPlace(assignment, of_part, name)


class Stage:
    """A schedule between stand-ins, which note what it does.

    Attributes:
        refused: why cases are refused, by name. wrong: errors that cases raise, by name.
        ran: names of the cases that ran, each with its lane. kept: how each ended.
    """

    def __init__(self, *cases: Any, lanes: int = 1, device: str = "cuda", free_gib: float = 140.0) -> None:
        self.refused: dict[str, Exception] = {}
        self.wrong: dict[str, BaseException] = {}
        self.ran: list[tuple[str, int]] = []
        self.kept: dict[str, str] = {}
        self.done: list[str] = []
        self.together = self._inside = 0
        self._lock = threading.Lock()
        self.prepared: list[list[tuple[str, bool]]] = []
        self.judge: Any = SimpleNamespace(
            device_name=device,
            lane_count=lanes,
            free_gib=lambda: free_gib,
            hangs=Hangs(),
            excused={},
            absent="",
            gradients={("softmax", "backward"): True, ("softmax", "forward"): False, ("gelu", "forward"): False},
            emit=lambda _event: None,
            finish_looking=lambda: self.done.append("looked"),
            gauge=SimpleNamespace(look_again=lambda: None),
            worker=lambda _assignment, lane=0: lane,
            grade=self.run_trial,
            cases=cases,
            assignments=ASSIGNMENTS,
            is_busy=False,
            prepare=lambda _count: None,
            end_lanes=lambda _lanes: None,
            settle=lambda starts=True: self.done.extend(["baselines", *["starts"] * starts]),
            end_idle=lambda: self.done.append("idle ended"),
            prepare_races=self.prepared.append,
            is_there=lambda file: file != self.judge.absent,
        )
        self.lanes = Lanes(self.judge, self.judge, self.judge)
        compilation: Any = SimpleNamespace(
            drop=lambda one: self.done.append(f"drop {one.name}"),
            start=lambda _assignment: None,
            check=lambda one: self.done.append(f"compile {one.name}"),
        )
        self.compilation = compilation
        admission: Any = SimpleNamespace(check=self._admit)
        results: Any = SimpleNamespace(keep=self.keep)
        problems: Any = {one.name: (None, None) for one in ASSIGNMENTS}
        hoarding: Any = SimpleNamespace(is_a_fault=lambda _assignment: nullcontext())
        stub = self.judge
        self.works = Works(stub, stub, stub, hoarding, stub, stub, problems)
        self.schedule = Schedule(stub, stub, stub, self.lanes, stub, self.works, admission, compilation, results)

    def _admit(self, place: ReportPlace, _case: Any) -> None:
        if place.name in self.refused:
            raise self.refused[place.name]

    def keep(
        self, place: ReportPlace, error: BaseException | None, _evidence: Evidence, is_check: bool = False
    ) -> None:
        assert place.name not in self.kept
        self.kept[place.name] = f"{'check ' if is_check else ''}{error or 'passed'}"

    def run_trial(self, case: Any, contender: int, _number: int, _evidence: Evidence) -> None:
        with self._lock:
            self._inside += 1
            self.together = max(self.together, self._inside)
            self.ran.append((case.name, contender))
        if case.name in self.wrong:
            raise self.wrong[case.name]
        with self._lock:
            self._inside -= 1


def run(stage: Stage, checks: Any = (), races: Any = ()) -> Stage:
    stage.schedule.run_all(checks, races)
    return stage


def law(stage: Stage, name: str, of: str, ran: list[str]) -> Work:
    def function(properties: object) -> None:
        assert properties is not None
        ran.append(name)

    return stage.works.of_check(place(of, "forward", name), function)


def test_one_lane_runs_each_assignments_cases_in_order_and_then_its_checks() -> None:
    ran: list[str] = []
    stage = Stage(*(case("gelu", f"g{i}") for i in range(3)), *(case("softmax", f"s{i}") for i in range(3)))
    run(stage, [law(stage, "law of softmax", "softmax", ran), law(stage, "law of gelu", "gelu", ran)])
    assert list(stage.kept) == ["g0", "g1", "g2", "law of gelu", "s0", "s1", "s2", "law of softmax"]
    assert set(stage.kept.values()) == {"passed", "check passed"}
    assert stage.ran == [(f"g{i}", 0) for i in range(3)] + [(f"s{i}", 0) for i in range(3)]
    assert ran == ["law of gelu", "law of softmax"]
    assert stage.done[0] == "looked"


@pytest.mark.parametrize("lanes", [1, 3])
def test_everything_ends_once_whatever_becomes_of_it(lanes: int) -> None:
    stage = Stage(*(case("softmax", f"s{i}", needs_memory=i in (4, 8)) for i in range(15)), lanes=lanes)
    stage.refused = {"s2": ContenderFault("skipped", "not here"), "s8": ContenderFault("skipped", "too large")}
    stage.wrong = {"s3": CheckFailed("it is wrong"), "s4": ContenderFault("crashed", "it crashed")}
    run(stage)
    told = {"s2": "not here", "s3": "it is wrong", "s4": "it crashed", "s8": "too large"}
    assert stage.kept == {f"s{i}": told.get(f"s{i}", "passed") for i in range(15)}
    assert {name for name, _ in stage.ran} == {f"s{i}" for i in range(15)} - {"s2", "s8"}
    assert stage.ran[-1] == ("s4", 0) or lanes == 1, "a case that needs memory runs alone, after the others"
    assert "compile s0" in stage.done
    assert "drop s3" in stage.done
    assert "compile s3" not in stage.done


def test_a_kernel_that_does_not_compile_fails_a_case_that_passed() -> None:
    def check(_case: Any) -> None:
        raise ContenderFault("failed", "does not compile for sm_90")

    stage = Stage(case("gelu", "g0"))
    stage.compilation.check = check
    assert run(stage).kept == {"g0": "does not compile for sm_90"}


def test_a_part_that_needs_a_gpu_is_excused_whatever_became_of_a_case() -> None:
    stage = Stage(case("gelu", "g0"))
    stage.judge.excused = {("gelu", "forward"): ContenderFault("skipped", "needs a GPU")}
    stage.wrong = {"g0": CheckFailed("it is wrong")}
    assert run(stage).kept == {"g0": "needs a GPU"}


def test_an_interrupted_schedule_keeps_what_has_ended_but_no_crash() -> None:
    """Whoever ended the grading may have ended workers too."""
    stage = Stage(*(case("softmax", f"s{i}") for i in range(30)), lanes=3)
    stage.wrong = {f"s{i}": ContenderFault("crashed", "SIGTERM") for i in range(30) if i % 3}
    keep, all_ran = stage.keep, threading.Event()

    def keep_and_be_interrupted(place: ReportPlace, error: Any, evidence: Evidence, is_check: bool = False) -> None:
        keep(place, error, evidence, is_check)
        if not all_ran.is_set():
            all_ran.set()
            stage.lanes.finish()
            raise KeyboardInterrupt

    stage.schedule.results.keep = keep_and_be_interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    assert len(stage.ran) == 30
    assert set(stage.kept) - {next(iter(stage.kept))} <= {f"s{i}" for i in range(0, 30, 3)}
    assert len(stage.kept) in (10, 11)


def test_nothing_is_run_of_a_submission_that_could_not_be_read() -> None:
    def finish_looking() -> None:
        raise TimeoutError("no turn for 300 s")

    stage = Stage(case("gelu", "g0"))
    stage.judge.finish_looking = finish_looking
    with pytest.raises(TimeoutError):
        run(stage)
    assert stage.kept == {}


@pytest.mark.parametrize(
    ("free_gib", "needs_memory", "measured", "waited"),
    [
        (120.0, True, False, ["baselines"]),
        (39.9, True, False, ["baselines", "starts"]),
        (140.0, True, True, ["baselines", "starts"]),
        (140.0, False, True, ["baselines", "starts"]),
    ],
)
def test_before_a_case_that_runs_alone_workers_have_started_where_memory_is_short_or_measured(
    free_gib: float, needs_memory: bool, measured: bool, waited: list[str]
) -> None:
    """8 lanes of 4 GiB, and the 8 GiB of the case: with 40 GiB there is room for all."""
    stage = Stage(case("gelu", "g0", needs_memory=needs_memory, measured=measured), lanes=8, free_gib=free_gib)
    done = run(stage).done
    assert done[1 : 1 + len(waited)] == waited
    assert done.count("starts") == waited.count("starts") + measured  # before its call too


def test_without_a_gpu_only_lanes_are_waited_for() -> None:
    assert "baselines" not in run(Stage(case("gelu", "g0", needs_memory=True), device="cpu")).done


RACES = (place("gelu", "forward"), place("softmax", "forward"), place("softmax", "forward"))


def prepared(
    *races: ReportPlace, gradients: Any = None, absent: str = "", **stage: Any
) -> list[list[tuple[str, bool]]]:
    found = Stage(**({"lanes": 12} | stage))
    found.judge.gradients = found.judge.gradients if gradients is None else gradients
    found.judge.absent = absent
    found.schedule.prepare_races(races)
    return found.prepared


def test_one_worker_for_each_race_imports_what_a_backward_pass_needs() -> None:
    """A part that has not been called may be asked for gradients."""
    gelu, softmax = ("gelu", False), ("softmax", False)
    assert prepared(*RACES) == [[gelu, softmax, softmax]]
    assert prepared(*RACES[:2], place("softmax", "backward")) == [[gelu, ("softmax", True), ("softmax", True)]]
    assert prepared(*RACES, gradients={}) == [[("gelu", True), ("softmax", True), ("softmax", True)]]
    assert prepared(*RACES, absent="softmax.py") == [[gelu]]


def test_cases_that_run_alone_have_a_worker_where_no_race_has_one() -> None:
    stage = Stage(case("gelu", "g0", needs_memory=True), case("softmax", "s0", needs_memory=True), lanes=12)
    run(stage, races=RACES[1:])
    assert stage.prepared == [[("gelu", False), ("softmax", False), ("softmax", False)]]


@pytest.mark.parametrize(("free_gib", "lanes", "wanted"), [(17.0, 12, 2), (3.0, 12, 1), (140.0, 2, 2)])
def test_memory_and_lanes_bound_the_workers_for_races(free_gib: float, lanes: int, wanted: int) -> None:
    assert GIB_PER_RESERVED == 8
    assert len(prepared(*RACES, free_gib=free_gib, lanes=lanes)[0]) == wanted
    assert not prepared(*RACES, lanes=1)
    assert not prepared(*RACES, device="cpu")


@pytest.mark.parametrize(("free_gib", "ended"), [(7.9, 1), (8.0, 0)])
def test_idle_workers_end_where_they_take_what_a_case_needs(free_gib: float, ended: int) -> None:
    stage = Stage(case("softmax", "huge", needs_memory=True), case("softmax", "small"), lanes=2, free_gib=free_gib)
    run(stage)
    assert stage.done.count("idle ended") == ended
    assert {name for name, _ in stage.ran} == {"huge", "small"}
