"""The pytest plugin of a grading: an assignment's own checks and the speed cases are pytest's tests, their ends the report's results.

An assignment may bring checks in `assignments/<name>/test_*.py`, whose docstring is what the student reads and whose points are those of
the group that names the check under `checks`. A check that takes `properties` alone is run by the schedule, before pytest's own tests.

Fixtures: `run` (seed, device), `assignment`, `contender` (the submission's worker, loaded), `properties` (tries properties of right
answers), `evidence` (where a check leaves what it measured); for speed cases `speed_case` (parametrised over them), `track`, `crew`,
`hoarding`, `replay` and pytest-benchmark's `benchmark`, whose timer is `replay`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import clear_frames
from typing import Any

import pytest

from grader.assignment import Assignment
from grader.contender.contender import Contender
from grader.job import CaseStarted
from grader.judge.admission import Admission
from grader.judge.cases import BoundSpeedCase, Place, SpeedSizes
from grader.judge.crew import Crew
from grader.judge.environment import describe_environment
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.properties import Properties
from grader.judge.replay import Replay
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.schedule import Race, Schedule
from grader.judge.standing import Standing
from grader.judge.track import Track
from grader.judge.works import PropertyCheck, Works
from grader.verdict.prints import heading

EVIDENCE = pytest.StashKey[Evidence]()
TEST = pytest.StashKey["Test"]()


@dataclass(frozen=True)
class Test:
    """What one of pytest's tests is in the grading; `sizes` of a speed case."""

    __test__ = False

    place: Place
    sizes: SpeedSizes | None = None


class JudgePlugin:
    """Binds tests to places in the report, and keeps their results.

    Attributes:
        benchmarks: pytest-benchmark's record as JSON, once the session has ended.
        refusal: why the assignments' own checks could not be collected.
        failure: why no case was run.
    """

    def __init__(
        self,
        track: Track,
        standing: Standing,
        hoarding: Hoarding,
        works: Works,
        assignments: Sequence[Assignment],
        speed_cases: Sequence[SpeedSizes],
        admission: Admission,
        schedule: Schedule,
        results: Results,
    ) -> None:
        self._track = track
        self._run = track.run
        self._standing = standing
        self._crew = track.crew
        self._hoarding = hoarding
        self._works = works
        self._assignments = {one.name: one for one in assignments}
        self._speed_cases = speed_cases
        self._admission = admission
        self._schedule = schedule
        self._results = results
        self._replay = Replay()
        self.benchmarks = ""
        self.refusal = ""
        self.failure: Exception | None = None

    # Fixtures
    # ---------------------------------------------------------------------------------------------------------------------

    @pytest.fixture
    def run(self) -> Run:
        return self._run

    @pytest.fixture
    def track(self) -> Track:
        return self._track

    @pytest.fixture
    def crew(self) -> Crew:
        return self._crew

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
        return self._assignments[request.node.stash[TEST].place.assignment]

    @pytest.fixture
    def contender(self, request: pytest.FixtureRequest, assignment: Assignment) -> Contender:
        test = request.node.stash[TEST]
        if test.sizes is not None:
            self._admission.check_timing(test.place, test.sizes)
        self._admission.check(test.place, None)
        contender = self._crew.worker(assignment)
        title = test.place.title if test.sizes is None else f"speed of {test.place.name}"
        contender.log.mark(heading(title, test.place.part, len(assignment.spec.parts)))
        return contender

    @pytest.fixture
    def properties(self, request: pytest.FixtureRequest) -> Properties:
        place = request.node.stash[TEST].place
        self._admission.check(place, None)
        return self._works.properties(place)

    @pytest.fixture
    def speed_case(self, request: pytest.FixtureRequest) -> BoundSpeedCase:
        """The largest size that this machine has the memory for."""
        test, items = request.node.stash[TEST], request.session.items
        assert test.sizes is not None
        if not self._crew.has_worker(self._assignments[test.place.assignment]):
            self._schedule.prepare_races(_races(items[items.index(request.node) :]))
        self._crew.settle()  # workers that are starting will hold memory too
        self._run.gauge.look_again()
        return self._admission.fitting(test.place, test.sizes)

    # Collection
    # -------------------------------------------------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "speed_case" in metafunc.fixturenames:
            ids = [sizes.declared.id for sizes in self._speed_cases]
            metafunc.parametrize("speed_case", self._speed_cases, ids=ids, indirect=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            sizes = item.callspec.params.get("speed_case") if hasattr(item, "callspec") else None
            if isinstance(sizes, SpeedSizes):
                case = sizes.declared
                item.stash[TEST] = Test(Place(case.assignment.name, case.part.name, case.name, case.case.tries), sizes)
                item.add_marker(pytest.mark.benchmark(timer=self._replay))
            else:
                item.stash[TEST] = Test(self._place_of_check(item))
        self._find_all_checks({item.stash[TEST].place.key for item in items if item.stash[TEST].sizes is None})
        # All tests of an assignment together, so that its worker is started once, and those that time it last.
        order = list(self._assignments)
        items.sort(
            key=lambda item: (order.index(item.stash[TEST].place.assignment), item.stash[TEST].sizes is not None)
        )

    def _find_all_checks(self, found: set[tuple[str, str, str]]) -> None:
        for assignment in self._assignments.values():
            for part in assignment.spec.parts:
                for name in (check for group in part.groups for check in group.checks):
                    if (assignment.name, part.name, name) not in found:
                        toml = assignment.folder / "problem.toml"
                        raise self._refuse(
                            f"{toml}: checks: there is no test {name!r} in {assignment.folder}/test_*.py"
                        )

    def _place_of_check(self, item: pytest.Item) -> Place:
        """A check from an assignment's own test file belongs to the part whose group names it."""
        assignment = next((one for one in self._assignments.values() if item.path.is_relative_to(one.folder)), None)
        if assignment is None:
            raise self._refuse(f"{item.path}: lies in no assignment's folder")
        name = getattr(item, "originalname", item.name)
        for part in assignment.spec.parts:
            if any(name in group.checks for group in part.groups):
                documentation = inspect.getdoc(getattr(item, "obj", None)) or name
                return Place(assignment.name, part.name, name, documentation.splitlines()[0])
        toml = assignment.folder / "problem.toml"
        raise self._refuse(f"{item.path}: no group in {toml} names the check {name!r} under `checks`")

    def _refuse(self, message: str) -> pytest.UsageError:
        self.refusal = message
        return pytest.UsageError(message)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.refusal = (
                f"{report.nodeid or 'a test file of an assignment'}: cannot be collected:\n{report.longreprtext}"
            )

    # Run
    # ----------------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """The schedule's work first, then the rest by pytest."""
        alone = [item for item in session.items if _takes_properties_alone(item)]
        session.items[:] = [item for item in session.items if item not in alone]
        checks = [PropertyCheck(item.stash[TEST].place, item.obj) for item in alone]  # type: ignore[attr-defined]
        try:
            self._schedule.run(checks, _races(session.items))
        except Exception as error:
            self.failure = error
            raise pytest.UsageError("the cases were not run") from None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        place, timed = item.stash[TEST].place, item.stash[TEST].sizes is not None
        name = f"speed of {place.name}" if timed else place.title
        self._run.emit(CaseStarted(assignment=place.assignment, part=place.part, case=name))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None or call.when == "call":
            test, evidence = item.stash[TEST], item.stash.get(EVIDENCE, Evidence())
            if test.sizes is None:
                self._standing.hangs.note(test.place.assignment, test.place.part, test.place.title, error)
                self._results.keep(test.place, error, evidence, is_check=True)
            else:
                timed = getattr(item, "funcargs", {}).get("speed_case", test.sizes.declared)
                self._results.keep_speed(test.place, test.sizes, timed, error, evidence, call.duration)
        if error is not None:
            # pytest keeps the last failure: its frames may hold most of the GPU's memory
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
            one["params"] = None  # whole objects of ours; what they are is in `param` and `group`
        self.benchmarks = json.dumps(output_json, default=str)


def _races(items: Sequence[pytest.Item]) -> list[Race]:
    """The speed cases among these tests."""
    places = [item.stash[TEST].place for item in items if item.stash[TEST].sizes is not None]
    return [Race(place.assignment, place.part) for place in places]


def _takes_properties_alone(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and list(inspect.signature(item.obj).parameters) == ["properties"]


def check_files(assignments: Sequence[Assignment]) -> list[Path]:
    """The test files that assignments bring along."""
    return [path for assignment in assignments for path in sorted(assignment.folder.glob("test_*.py"))]
