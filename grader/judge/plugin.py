"""The pytest plugin of a grading: an assignment's own checks and the speed cases are pytest's tests, their ends the report's results.

An assignment may bring checks in `assignments/<name>/test_*.py`, whose docstring is what the student reads and whose points are those of
the group that names the check under `checks`. A check that takes `properties` alone is run by the schedule, before pytest's own tests.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from traceback import clear_frames
from typing import Any

import pytest

from grader.assignment import Assignment, CourseError
from grader.judge.cases import Place, SpeedSizes
from grader.judge.environment import describe_environment
from grader.judge.evidence import Evidence
from grader.judge.fixtures import EVIDENCE, PLACE, races
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.schedule import Schedule, Works
from grader.judge.standing import Standing


class JudgePlugin:
    """Binds tests to places in the report, and keeps their results.

    Attributes:
        benchmarks: pytest-benchmark's record as JSON, once the session has ended.
        failure: why no case was run, as CourseError where the assignments' own checks could not be collected.
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
        # All tests of an assignment together, so that its worker is started once, and those that time it last.
        order = self._run.assignments
        items.sort(key=lambda item: (order.index(item.stash[PLACE].assignment), item.stash[PLACE].sizes is not None))

    def _find_all_checks(self, found: set[tuple[str, str, str]]) -> None:
        for assignment in self._run.assignments:
            for part in assignment.spec.parts:
                for name in (check for group in part.groups for check in group.checks):
                    if (assignment.name, part.name, name) not in found:
                        words = f"checks: there is no test {name!r} in {assignment.folder}/test_*.py"
                        raise self._refuse(f"{assignment.folder / 'problem.toml'}: {words}")

    def _place_of_check(self, item: pytest.Item) -> Place:
        """A check from an assignment's own test file belongs to the part whose group names it."""
        # `check_files` has named no other files.
        assignment = next(one for one in self._run.assignments if item.path.is_relative_to(one.folder))
        name = getattr(item, "originalname", item.name)
        for part in assignment.spec.parts:
            if any(name in group.checks for group in part.groups):
                documentation = inspect.getdoc(getattr(item, "obj", None)) or name
                return Place(assignment, part, name, documentation.splitlines()[0])
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
        """The schedule's work first, then the rest by pytest."""
        alone = [item for item in session.items if isinstance(item, pytest.Function) and _takes_properties_alone(item)]
        session.items[:] = [item for item in session.items if item not in alone]
        checks = [self._works.of_check(item.stash[PLACE], item.obj) for item in alone]
        try:
            self._schedule.run_all(checks, races(session.items))
        except Exception as error:
            self.failure = self.failure or error
            raise pytest.UsageError("the cases were not run") from None
        return (yield)

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


def _takes_properties_alone(item: pytest.Function) -> bool:
    return list(inspect.signature(item.obj).parameters) == ["properties"]


def check_files(assignments: Sequence[Assignment]) -> list[Path]:
    """The test files that assignments bring along."""
    return [path for assignment in assignments for path in sorted(assignment.folder.glob("test_*.py"))]
