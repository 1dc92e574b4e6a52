"""One grading session: run pytest over the cases and checks, and gather the report."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from grader.assignment import Assignment, CourseError, Device, Part, load_course
from grader.contender.pool import WorkerPool
from grader.job import Benchmarked, Event, Finished, Job, Planned, PlannedPart
from grader.judge.cases import bind_cases, bind_speed_cases
from grader.judge.environment import describe_environment
from grader.judge.plugin import JudgePlugin, check_files
from grader.judge.state import Judge
from grader.report.model import (
    INTERRUPTED,
    AssignmentResult,
    CaseResult,
    GroupResult,
    Isolation,
    Outcome,
    PartResult,
    Points,
    Report,
    SpeedCaseResult,
    SpeedResult,
    worst,
)
from grader.verdict.resources import kernel_resources
from grader.verdict.scoring import Graded, group_points, speed_points

HERE = Path(__file__).parent


class Interrupted(Exception):
    """The session was asked to stop, and has nothing to report."""


def run_session(job: Job, pool: WorkerPool, isolation: Isolation, emit: Callable[[Event], None]) -> None:
    """Grade a job on the pool's device and emit its events, the report last.

    Raises:
        CourseError: the course is unusable.
        Interrupted: the session was asked to stop before anything was graded; no report is emitted.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    judge = Judge(job, pool, emit)
    assignments = sorted(load_course(job.course, job.assignments), key=lambda one: job.assignments.index(one.name))
    cases = bind_cases(assignments, pool.device)
    speed_cases = bind_speed_cases(assignments)
    judge.look(assignments)
    if pool.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True  # as students' `tl.dot` does: the yardstick is PyTorch with TF32
    parts = [
        PlannedPart(
            assignment=one.name,
            part=part.name,
            file=one.spec.file,
            title=f"{one.spec.title}: {part.title}",
            cases=_size(part, job.speed),
        )
        for one in assignments
        for part in one.spec.parts
    ]
    emit(Planned(device=pool.device, parts=tuple(parts), isolation=isolation))
    plugin = JudgePlugin(judge, assignments, cases, speed_cases if job.speed else [])
    plugin.start_the_courses_own()
    try:
        plugin.interrupted = not _run_pytest(plugin, assignments)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is left to do takes a moment
    finally:
        judge.lanes.abandon()
        plugin.compilation.abandon()
    if plugin.interrupted:
        plugin.keep_what_ran_ahead()
        if job.stop_early or not plugin.has_decided_something:
            raise Interrupted
    else:
        plugin.look_back()
    if plugin.benchmarks:
        emit(Benchmarked(json_text=plugin.benchmarks))
    emit(Finished(report=_gather(job, judge, plugin, isolation, assignments, started, time.monotonic() - clock)))


def choose_device(wanted: str) -> Device:
    """`auto` is the GPU where there is one. Raises CourseError for a GPU that is not there."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise CourseError("--device cuda or --gpu: PyTorch finds no CUDA GPU here, or not that one; use --device cpu")
    return "cuda" if available and wanted != "cpu" else "cpu"


def _run_pytest(plugin: JudgePlugin, assignments: Sequence[Assignment]) -> bool:
    """Run all tests. Returns False where it was interrupted."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed on this machine has no say in a grading
    os.environ.pop("PYTEST_ADDOPTS", None)
    files = [HERE / "test_correctness.py", *check_files(assignments)]
    arguments = ["-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE), "--import-mode=importlib"]
    if plugin.speed_cases:
        files.append(HERE / "test_speed.py")
        arguments += [
            "-p",
            "pytest_benchmark.plugin",
            "--benchmark-json",
            os.devnull,
        ]  # the plugin keeps what it is told
    arguments += map(str, files)
    code = pytest.main(arguments, plugins=[plugin])
    if plugin.refusal:
        raise CourseError(plugin.refusal)
    if plugin.failure is not None:
        raise plugin.failure
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        raise RuntimeError(f"the judge's pytest session ended with {pytest.ExitCode(code).name}")
    return code != pytest.ExitCode.INTERRUPTED


def _gather(
    job: Job,
    judge: Judge,
    plugin: JudgePlugin,
    isolation: Isolation,
    assignments: Sequence[Assignment],
    started: datetime,
    duration_s: float,
) -> Report:
    results = [_assignment_result(judge, plugin, assignment) for assignment in assignments]
    parts = [part for result in results for part in result.parts]
    correctness, speed = Points.total(part.points for part in parts), Points.total(part.speed.points for part in parts)
    return Report(
        started=started,
        duration_s=duration_s,
        seed=judge.seed,
        effort=job.effort,
        isolation=isolation,
        environment=describe_environment(judge.device_name),
        submission=job.info,
        score=Points.total([correctness, speed]),
        correctness=correctness,
        speed=speed,
        assignments=tuple(results),
        incomplete=plugin.interrupted,
        infra_errors=_infra_errors(results),
    )


def _infra_errors(results: Iterable[AssignmentResult]) -> tuple[str, ...]:
    """Each fault of the machine or of the grader once, with the first case that met it."""
    places: dict[str, list[str]] = {}
    for one in results:
        for part in one.parts:
            timed = [(f"speed of {case.name}", case.outcome, case.message) for case in part.speed.cases]
            for name, outcome, message in [*((case.name, case.outcome, case.message) for case in part.cases), *timed]:
                if outcome == "infra_error":
                    places.setdefault(message, []).append(f"{one.name}, {part.name}, {name}")
    more = {message: f" and {len(met) - 1} more" if len(met) > 1 else "" for message, met in places.items()}
    return tuple(f"{met[0]}{more[message]}: {message}" for message, met in places.items())


def _assignment_result(judge: Judge, plugin: JudgePlugin, assignment: Assignment) -> AssignmentResult:
    spec = assignment.spec
    return AssignmentResult(
        name=assignment.name,
        title=spec.title,
        file=spec.file,
        parts=tuple(_part_result(plugin, assignment, part) for part in spec.parts),
        kernels=(*kernel_resources(judge.ptxas(assignment)), *plugin.compilation.kernels.get(assignment.name, ())),
        log=judge.log(assignment),
    )


def _part_result(plugin: JudgePlugin, assignment: Assignment, part: Part) -> PartResult:
    device = plugin.judge.device_name
    shows = {case.name: case.shows_values(device) for case in part.cases}
    results = {name: _result(plugin, assignment, part, name) for group in part.groups for name in group.names}
    graded = {name: Graded(_ended(result), shows.get(name, True)) for name, result in results.items()}
    groups = []
    for group in part.groups:
        points, provisional = group_points(group.points, [graded[name] for name in group.names], tuple(graded.values()))
        cases = tuple(results[name] for name in group.names)
        groups.append(
            GroupResult(name=group.name, title=group.title, points=points, provisional=provisional, cases=cases)
        )
    return PartResult(
        name=part.name,
        title=part.title,
        outcome=worst(result.outcome for result in results.values()),
        points=Points.total(group.points for group in groups),
        speed=_speed_result(plugin, assignment, part),
        groups=tuple(groups),
    )


def _ended(result: CaseResult) -> Outcome:
    """The outcome by which points count: an interruption leaves a group open, as a fault of the grader does."""
    return "infra_error" if result.message == INTERRUPTED else result.outcome


def _result(plugin: JudgePlugin, assignment: Assignment, part: Part, name: str) -> CaseResult:
    found = plugin.results.get((assignment.name, part.name, name))
    if found is not None:
        return found
    if plugin.interrupted:
        return CaseResult(name=name, tries="", outcome="skipped", message=INTERRUPTED)
    message = "did not run: no test of this name was collected"
    return CaseResult(name=name, tries="", outcome="infra_error", message=message)


def _speed_result(plugin: JudgePlugin, assignment: Assignment, part: Part) -> SpeedResult:
    if not plugin.judge.job.speed:
        return SpeedResult(points=Points(earned=0, graded=0, possible=part.speed_points))
    cases = []
    for case in part.speed:
        found = plugin.speed_results.get((assignment.name, part.name, case.name))
        if found is None:
            outcome: Outcome = "skipped" if plugin.interrupted else "infra_error"
            message = INTERRUPTED if plugin.interrupted else "did not run: no test of this name was collected"
            points = speed_points(case.bands, (), outcome)
            found = SpeedCaseResult(name=case.name, size="", outcome=outcome, message=message, points=points, bands=())
        cases.append(found)
    return SpeedResult(points=Points.total(case.points for case in cases), cases=tuple(cases))


def _size(part: Part, speed: bool) -> int:
    return sum(len(group.cases) + len(group.checks) for group in part.groups) + (len(part.speed) if speed else 0)
