"""The pytest plugin of a grading: runs an assignment's own checks and the speed cases as tests, and turns their ends
into results.

An assignment may have checks in `assignments/<name>/test_*.py`. A check's docstring is shown to the student; a group
names the check under `checks` and gives its points. A check that takes only `properties` is run by the schedule, before
pytest's own tests.

Fixtures of a check: `run` (seed, device), `assignment`, `contender` (the submission's worker, loaded), `properties`
(laws of right answers), `evidence` (takes measurements). A speed case also has `speed_case` (`test_speed` is
parametrised over them), `track`, `hoarding`, `replay`, and pytest-benchmark's `benchmark`, whose timer is `replay`.
"""

from __future__ import annotations

import inspect
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from traceback import clear_frames
from typing import Any

import pytest

from grader.assignment import Assignment, CourseError
from grader.contender.contender import Contender
from grader.judge.admission import Admission
from grader.judge.cases import BoundSpeedCase, ReportPlace, SpeedSizes
from grader.judge.environment import describe_environment
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.properties import Properties
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.schedule import Schedule, Works
from grader.judge.standing import Standing
from grader.judge.track import Track

EVIDENCE = pytest.StashKey[Evidence]()
PLACE = pytest.StashKey[ReportPlace]()  # of a test, in the report


class Replay:
    """A timer that replays the times of a race: 0 before each round and, after `step`, the seconds of the round."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque()
        self._shown_s = 0.0

    def load(self, times_s: Iterable[float]) -> None:
        """Set the times of the coming rounds, in seconds."""
        self._times_s = deque(times_s)

    def step(self) -> None:
        """Take the next round. Raises IndexError if there is none."""
        self._shown_s = self._times_s.popleft()

    def __call__(self) -> float:
        shown_s, self._shown_s = self._shown_s, 0.0
        return shown_s


@dataclass(eq=False)
class Fixtures:
    """The pytest plugin with the fixtures of checks and speed cases."""

    _track: Track
    _hoarding: Hoarding
    _works: Works
    _admission: Admission
    _replay: Replay = field(init=False, default_factory=Replay)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "speed_case" in metafunc.fixturenames:
            timed = pytest.mark.benchmark(timer=self._replay)
            sizes = self._track.run.speed_cases
            cases = [pytest.param(one, id=one.declared.id, marks=timed) for one in sizes]
            metafunc.parametrize("speed_case", cases, indirect=True)

    @pytest.fixture
    def run(self) -> Run:
        return self._track.run

    @pytest.fixture
    def track(self) -> Track:
        return self._track

    @pytest.fixture
    def hoarding(self) -> Hoarding:
        return self._hoarding

    @pytest.fixture
    def replay(self) -> Replay:
        return self._replay

    @pytest.fixture
    def evidence(self, request: pytest.FixtureRequest) -> Evidence:
        evidence: Evidence = request.node.stash.setdefault(EVIDENCE, Evidence())
        return evidence

    @pytest.fixture
    def assignment(self, request: pytest.FixtureRequest) -> Assignment:
        place: ReportPlace = request.node.stash[PLACE]
        return place.assignment

    @pytest.fixture
    def contender(self, request: pytest.FixtureRequest) -> Contender:
        place: ReportPlace = request.node.stash[PLACE]
        if place.sizes is not None:
            self._admission.check_timing(place, place.sizes)
        self._admission.check(place, None)
        contender = self._track.crew.worker(place.assignment)
        contender.log.mark(place.heading)
        return contender

    @pytest.fixture
    def properties(self, request: pytest.FixtureRequest) -> Properties:
        place = request.node.stash[PLACE]
        self._admission.check(place, None)
        return self._works.properties(place)

    @pytest.fixture
    def speed_case(self, request: pytest.FixtureRequest) -> BoundSpeedCase:
        """The speed case in the largest size that fits into this machine's memory."""
        place = request.node.stash[PLACE]
        self._track.crew.settle()  # starting workers will hold memory too
        self._track.run.gauge.look_again()
        return self._admission.fitting(place, place.sizes)


class JudgePlugin:
    """The pytest plugin that finds each test's place in the report, and keeps its result.

    Attributes:
        benchmarks: pytest-benchmark's JSON, after the session.
        failure: why no case was run; a CourseError if checks could not be collected.
    """

    def __init__(self, run: Run, standing: Standing, works: Works, schedule: Schedule, results: Results) -> None:
        self._run, self._standing = run, standing
        self._works, self._schedule, self._results = works, schedule, results
        self.benchmarks = ""
        self.failure: Exception | None = None

    # Collection
    # -------------------------------------------------------------------------------------------------------------------

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            sizes = item.callspec.params.get("speed_case") if hasattr(item, "callspec") else None
            item.stash[PLACE] = sizes.place if isinstance(sizes, SpeedSizes) else self._place_of_check(item)
        self._find_all_checks({item.stash[PLACE].key for item in items if item.stash[PLACE].sizes is None})
        # Tests of one assignment together, so that its worker starts once; timed tests last.
        order = self._run.assignments
        items.sort(key=lambda item: (order.index(item.stash[PLACE].assignment), item.stash[PLACE].sizes is not None))

    def _find_all_checks(self, found: set[tuple[str, str, str]]) -> None:
        for assignment in self._run.assignments:
            for part in assignment.spec.parts:
                for name in (check for group in part.groups for check in group.checks):
                    if (assignment.name, part.name, name) not in found:
                        words = f"checks: there is no test {name!r} in {assignment.folder}/test_*.py"
                        raise self._refuse(f"{assignment.folder / 'problem.toml'}: {words}")

    def _place_of_check(self, item: pytest.Item) -> ReportPlace:
        """The place of a check: in the part whose group names the check."""
        # pytest collects only files that `check_files` names.
        assignment = next(one for one in self._run.assignments if item.path.is_relative_to(one.folder))
        name = getattr(item, "originalname", item.name)
        for part in assignment.spec.parts:
            if any(name in group.checks for group in part.groups):
                documentation = inspect.getdoc(getattr(item, "obj", None)) or name
                return ReportPlace(assignment, part, name, documentation.splitlines()[0])
        toml = assignment.folder / "problem.toml"
        raise self._refuse(f"{item.path}: no group in {toml} names the check {name!r} under `checks`")

    def _refuse(self, message: str) -> pytest.UsageError:
        self.failure = CourseError(message)
        return pytest.UsageError(message)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            file = report.nodeid or "a test file of an assignment"
            self.failure = CourseError(f"{file}: cannot be collected:\n{report.longreprtext}")

    # Run
    # ----------------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Run the schedule, then pytest's remaining tests."""
        alone = [item for item in session.items if isinstance(item, pytest.Function) and _takes_properties_alone(item)]
        session.items[:] = [item for item in session.items if item not in alone]
        checks = [self._works.of_check(item.stash[PLACE], item.obj) for item in alone]
        try:
            try:
                self._schedule.run_all(checks)
            except Exception as error:
                self.failure = self.failure or error
                raise pytest.UsageError("the cases were not run") from None
            return (yield)
        except KeyboardInterrupt:
            # pytest shows the arguments of every function below, of which a few are the whole course: that takes minutes
            raise KeyboardInterrupt from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._run.emit(item.stash[PLACE].started)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None or call.when == "call":
            place, evidence = item.stash[PLACE], item.stash.get(EVIDENCE, Evidence())
            if place.sizes is None:
                self._standing.hangs.note(place, error)
                self._results.keep(place, error, evidence, is_check=True)
            else:
                timed = getattr(item, "funcargs", {}).get("speed_case", place.sizes.declared)
                self._results.keep_speed(place, timed, error, evidence, call.duration)
        if error is not None:
            # pytest keeps the last failure, whose frames may hold most of the GPU's memory.
            clear_frames(error.__traceback__)
        return report

    # pytest-benchmark
    # -------------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_machine_info(self) -> dict[str, object]:
        return describe_environment(self._run.device_name).model_dump()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_commit_info(self) -> dict[str, object]:
        return {"id": self._run.job.info.sha256, "dirty": False}

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        for one in output_json["benchmarks"]:
            one["params"] = None  # objects of the grader; `param` and `group` name them
        self.benchmarks = json.dumps(output_json, default=str)


def _takes_properties_alone(item: pytest.Function) -> bool:
    return list(inspect.signature(item.obj).parameters) == ["properties"]
