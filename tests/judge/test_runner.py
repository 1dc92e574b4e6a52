"""What runs when: beside others or alone, refused or run, kept when it has ended."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from grader.assignment import Case
from grader.judge.cases import BoundCase, BoundCheck, ReportPlace
from grader.judge.evidence import Evidence
from grader.judge.files import Hangs
from grader.judge.lanes import Lanes
from grader.judge.runner import Runner
from grader.pool.fault import Fault
from tests.verdict.test_contract import FULL

ASSIGNMENTS: Any = [
    SimpleNamespace(
        name=name, spec=SimpleNamespace(file=f"{name}.py", language="triton", parts=[SimpleNamespace(name="forward")])
    )
    for name in ("gelu", "softmax")
]


def case(of: str, name: str, **declared: Any) -> BoundCase:
    at = place(of, "forward", name)
    nobody: Any = None
    return BoundCase(at.assignment, nobody, at.part, Case(name=name, tries="tries it", **declared), nobody)


def place(of: str, part: str, name: str = "") -> ReportPlace:
    (assignment,) = (one for one in ASSIGNMENTS if one.name == of)
    of_part: Any = SimpleNamespace(name=part)
    return ReportPlace(assignment, of_part, name)


class Stage:
    """A runner between stand-ins, which note what it does.

    Attributes:
        refused: why cases are refused, by name. wrong: errors that cases raise, by name.
        ran: names of the cases that ran, each with its lane. kept: how each ended.
    """

    def __init__(
        self, *cases: Any, lanes: int = 1, device: str = "cuda", free_gib: float = 140.0, stop_early: bool = False
    ) -> None:
        self.refused: dict[str, Exception] = {}
        self.wrong: dict[str, BaseException] = {}
        self.ran: list[tuple[str, int]] = []
        self.kept: dict[str, str] = {}
        self.tries: dict[str, str] = {}
        self.done: list[str] = []
        self.together = self._inside = 0
        self._lock = threading.Lock()
        self.judge: Any = SimpleNamespace(
            device_name=device,
            lane_count=lanes,
            free_gib=lambda: free_gib,
            hangs=Hangs(),
            excused={},
            emit=lambda _event: None,
            request=SimpleNamespace(stop_early=stop_early),
            finish_looking=lambda: self.done.append("looked"),
            gauge=SimpleNamespace(look_again=lambda: None),
            worker=lambda _assignment, lane=0: lane,
            beside=self.no_worker,
            kind_of=lambda _assignment: "cpu",
            grade=self.run_trial,
            cases=cases,
            checks=[],
            assignments=ASSIGNMENTS,
            is_busy=False,
            end_lanes=lambda _lanes: None,
            baselines=SimpleNamespace(settle=lambda: self.done.append("baselines")),
            end_idle=lambda: self.done.append("idle ended"),
        )
        self.lanes = Lanes(lanes, self.judge)
        compilation: Any = SimpleNamespace(
            drop=lambda one: self.done.append(f"drop {one.name}"),
            start=lambda _assignment: None,
            check=lambda one: self.done.append(f"compile {one.name}"),
        )
        self.compilation = compilation
        skip: Any = SimpleNamespace(check=self._admit)
        self.results: Any = SimpleNamespace(keep=self.keep, stopped={})
        hoarding: Any = SimpleNamespace(is_a_fault=lambda _assignment: nullcontext())
        stub = self.judge
        self.runner = Runner(stub, stub, stub, hoarding, stub, stub, self.lanes, skip, compilation, self.results)

    def no_worker(self, *_: Any, **__: Any) -> Any:
        raise Fault.no_worker("no second worker starts")

    def _admit(self, place: ReportPlace, _case: Any) -> None:
        if place.assignment.name in self.results.stopped:
            raise Fault("skipped", "stopped")
        if place.name in self.refused:
            raise self.refused[place.name]

    def keep(
        self, place: ReportPlace, error: BaseException | None, _evidence: Evidence, is_check: bool = False
    ) -> None:
        assert place.name not in self.kept
        if error is not None and self.judge.request.stop_early:
            self.results.stopped.setdefault(place.assignment.name, place.name)
        self.tries[place.name] = place.tries
        self.kept[place.name] = f"{'check ' if is_check else ''}{error or 'passed'}"

    def run_trial(self, case: Any, worker: int, evidence: Evidence) -> None:
        with self._lock:
            self._inside += 1
            self.together = max(self.together, self._inside)
            self.ran.append((case.name, worker))
        evidence.time_s += 1.0
        if case.name in self.wrong:
            raise self.wrong[case.name]
        with self._lock:
            self._inside -= 1


def run(stage: Stage, *checks: BoundCheck) -> Stage:
    stage.judge.checks = checks
    stage.runner.run_all()
    return stage


def law(name: str, of: str, ran: list[Any]) -> BoundCheck:
    at = place(of, "forward", name)
    nobody: Any = None
    return BoundCheck(
        at.assignment, at.part, name, lambda properties: ran.append(properties.check.name), nobody, nobody
    )


def test_one_lane_runs_each_assignments_cases_in_order_and_then_its_checks() -> None:
    ran: list[Any] = []
    stage = Stage(*(case("gelu", f"g{i}") for i in range(3)), *(case("softmax", f"s{i}") for i in range(3)))
    run(stage, law("law of softmax", "softmax", ran), law("law of gelu", "gelu", ran))
    assert list(stage.kept) == ["g0", "g1", "g2", "law of gelu", "s0", "s1", "s2", "law of softmax"]
    assert set(stage.kept.values()) == {"passed", "check passed"}
    assert stage.ran == [(f"g{i}", 0) for i in range(3)] + [(f"s{i}", 0) for i in range(3)]
    assert ran == ["law of gelu", "law of softmax"]
    assert stage.done[0] == "looked"


@pytest.mark.parametrize("lanes", [1, 3])
def test_everything_ends_once_whatever_becomes_of_it(lanes: int) -> None:
    stage = Stage(*(case("softmax", f"s{i}", memory_gib=8.0 if i in (4, 8) else None) for i in range(15)), lanes=lanes)
    stage.refused = {"s2": Fault("skipped", "not here"), "s8": Fault("skipped", "too large")}
    stage.wrong = {"s3": Fault.wrong("it is wrong"), "s4": Fault("crashed", "it crashed")}
    run(stage)
    told = {"s2": "not here", "s3": "it is wrong", "s4": "it crashed", "s8": "too large"}
    assert stage.kept == {f"s{i}": told.get(f"s{i}", "passed") for i in range(15)}
    assert {name for name, _ in stage.ran} == {f"s{i}" for i in range(15)} - {"s2", "s8"}
    assert stage.ran[-1] == ("s4", 0) or lanes == 1, "a case that needs memory runs alone, after the others"
    assert "compile s0" in stage.done
    assert "drop s3" in stage.done
    assert "compile s3" not in stage.done


def test_a_part_that_needs_a_gpu_is_excused_whatever_became_of_a_case() -> None:
    stage = Stage(case("gelu", "g0"))
    stage.judge.excused = {("gelu", "forward"): Fault("skipped", "needs a GPU")}
    stage.wrong = {"g0": Fault.wrong("it is wrong")}
    assert run(stage).kept == {"g0": "needs a GPU"}


def test_an_interrupted_schedule_keeps_what_has_ended_but_no_crash() -> None:
    """Whoever ended the grading may have ended workers too."""
    stage = Stage(*(case("softmax", f"s{i}") for i in range(30)), lanes=3)
    stage.wrong = {f"s{i}": Fault("crashed", "SIGTERM") for i in range(30) if i % 3}
    keep, all_ran = stage.keep, threading.Event()

    def keep_and_be_interrupted(place: ReportPlace, error: Any, evidence: Evidence, is_check: bool = False) -> None:
        keep(place, error, evidence, is_check)
        if not all_ran.is_set():
            all_ran.set()
            stage.lanes.finish()
            raise KeyboardInterrupt

    stage.results.keep = keep_and_be_interrupted
    with pytest.raises(KeyboardInterrupt):
        run(stage)
    assert len(stage.ran) == 30
    assert set(stage.kept) - {next(iter(stage.kept))} <= {f"s{i}" for i in range(0, 30, 3)}
    assert len(stage.kept) in (10, 11)


@pytest.mark.parametrize(("free_gib", "ended"), [(7.9, 1), (8.0, 0)])
def test_idle_workers_end_where_they_take_what_a_case_needs(free_gib: float, ended: int) -> None:
    stage = Stage(case("softmax", "huge", memory_gib=8.0), case("softmax", "small"), lanes=2, free_gib=free_gib)
    run(stage)
    assert stage.done.count("idle ended") == ended
    assert {name for name, _ in stage.ran} == {"huge", "small"}


@pytest.mark.parametrize(
    "error", [pytest.skip.Exception("not here"), pytest.fail.Exception("no"), ZeroDivisionError("grader")], ids=repr
)
def test_whatever_a_check_raises_is_its_end(error: BaseException) -> None:
    def function(properties: object) -> None:
        assert properties is not None
        raise error

    at = place("gelu", "forward", "law")
    nobody: Any = None
    done = Stage().runner.do(BoundCheck(at.assignment, at.part, "law", function, nobody, nobody))
    assert done.error is error


def test_the_first_that_fails_stops_its_assignment_and_nobody_waits_for_the_rest() -> None:
    """What runs beside it, as a slow tool, ends with its worker."""
    go_on = threading.Event()
    names = [f"s{i}" for i in range(12)]
    stage = Stage(*(case("softmax", name) for name in names), *(case("gelu", "g0"),), lanes=3, stop_early=True)
    stage.wrong = {"s1": Fault.wrong("it is wrong")}
    trial = stage.judge.grade

    def grade(one: Any, worker: int, evidence: Evidence) -> None:
        if one.name == "s5":
            assert go_on.wait(20)
        trial(one, worker, evidence)

    stage.judge.grade = grade
    run(stage)
    go_on.set()
    assert stage.kept == {"s0": "passed", "s1": "it is wrong", "g0": "passed"} | dict.fromkeys(names[2:], "stopped")


def test_a_check_asks_for_its_sentence_until_a_case_gives_no_answer() -> None:
    """What is asked after the first wrong answer gets no result."""
    nobody: Any = None
    cases = [BoundCase(ASSIGNMENTS[1], nobody, FULL, one, nobody) for one in FULL.cases]
    stage = Stage(*cases, device="cpu", stop_early=True)
    stage.results.of_part = lambda _place: []
    stage.wrong = {"transposed": Fault.wrong("it is wrong"), "float16": Fault("crashed", "it crashed")}
    run(stage)
    assert [name for name, _ in stage.ran] == ["transposed", "float16"]
    assert stage.kept == {one.name: "stopped" for one in cases} | {"transposed": "it is wrong"}
    of_no_level = Stage(case("softmax", "s0"), case("softmax", "s1"), device="cpu", stop_early=True)
    of_no_level.wrong = {"s0": Fault.wrong("it is wrong")}
    assert [name for name, _ in run(of_no_level).ran] == ["s0"], "no sentence about levels explains it"


def test_what_is_smaller_on_a_cpu_says_so() -> None:
    stage = run(Stage(case("gelu", "g0", cpu={"n": 7}), case("gelu", "g1"), device="cpu"))
    assert stage.tries == {"g0": "tries it; smaller on the CPU", "g1": "tries it"}


@pytest.mark.parametrize("declared", [{"memory_gib": 8.0}, {"max_extra_mib": 512.0}])
def test_a_case_that_runs_alone_waits_for_what_is_loaded_in_the_background(declared: dict[str, float]) -> None:
    assert run(Stage(case("gelu", "g0", **declared))).done[:2] == ["looked", "baselines"]
    assert "baselines" not in run(Stage(case("gelu", "g0"))).done
