"""Puts the report of a grading together from its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grader.assignment import Assignment, Part
from grader.fingerprint import fingerprint
from grader.judge.compilation import Compilation
from grader.judge.environment import describe_environment
from grader.judge.files import Files
from grader.judge.results import Results
from grader.judge.run import Run
from grader.report.model import (
    INTERRUPTED,
    AssignmentResult,
    CaseResult,
    GroupResult,
    Isolation,
    KernelResources,
    Outcome,
    PartResult,
    Points,
    Report,
    SpeedCaseResult,
    SpeedResult,
    worst,
)
from grader.verdict.advice import advice
from grader.verdict.causes import borne_out, with_maps_of_causes
from grader.verdict.resources import kernel_resources
from grader.verdict.scoring import Graded, group_points, speed_points

NOT_COLLECTED = "did not run: no test of this name was collected"


@dataclass(frozen=True)
class Gathering:
    """Makes the report.

    Attributes:
        interrupted: the grading ended before every case had run.
    """

    run: Run
    files: Files
    results: Results
    compilation: Compilation
    interrupted: bool

    def report(self, isolation: Isolation, started: datetime, duration_s: float) -> Report:
        results = [self._assignment(assignment) for assignment in self.run.assignments]
        return report_of(self.run, results, isolation, started, duration_s, self.interrupted)

    def _assignment(self, assignment: Assignment) -> AssignmentResult:
        spec = assignment.spec
        compiled = self.compilation.kernels.get(assignment.name, ())
        parts = tuple(self.part(assignment, part) for part in spec.parts)
        kernels = (*kernel_resources(self.files.ptxas(assignment)), *compiled)
        outcomes = {case.outcome for part in parts for case in part.cases}
        is_right = "passed" in outcomes and outcomes <= {"passed", "skipped"}
        return AssignmentResult(
            name=assignment.name,
            title=spec.title,
            file=spec.file,
            parts=parts,
            kernels=kernels,
            hints=self._hints(assignment, kernels) if is_right else (),
            log=self.files.log(assignment),
        )

    def _hints(self, assignment: Assignment, kernels: Sequence[KernelResources]) -> tuple[str, ...]:
        spec, files = assignment.spec, self.files
        graded = [one for one in kernels if not one.case or one.arch == spec.gpu.arch]
        stream = next((one.name for one in spec.signature if one.type == "cudaStream_t"), "")
        off_stream = files.off_stream(assignment) if stream else ()
        return advice(spec.file, stream, graded, files.ptxas(assignment), off_stream, files.same_value(assignment))

    def part(self, assignment: Assignment, part: Part) -> PartResult:
        shows = {case.name: case.shows_values(self.run.device_name) for case in part.cases}
        results = {name: self._case(assignment, part, name) for group in part.groups for name in group.names}
        told = borne_out(list(results.values()), self.results.kinds.get((assignment.name, part.name), {}))
        results = dict(zip(results, with_maps_of_causes(told), strict=True))
        graded = {name: Graded(_ended(result), shows.get(name, True)) for name, result in results.items()}
        groups = []
        for group in part.groups:
            own = [graded[name] for name in group.names]
            points, provisional = group_points(group.points, own, tuple(graded.values()))
            cases = tuple(results[name] for name in group.names)
            groups.append(
                GroupResult(name=group.name, title=group.title, points=points, provisional=provisional, cases=cases)
            )
        return PartResult(
            name=part.name,
            title=part.title,
            outcome=worst(result.outcome for result in results.values()),
            points=Points.total(group.points for group in groups),
            speed=self._speed(assignment, part),
            groups=tuple(groups),
        )

    def _case(self, assignment: Assignment, part: Part, name: str) -> CaseResult:
        found = self.results.cases.get((assignment.name, part.name, name))
        return found or CaseResult(name=name, tries="", **self._missing)

    def _speed(self, assignment: Assignment, part: Part) -> SpeedResult:
        if not self.run.request.speed:
            return SpeedResult(points=Points(earned=0, graded=0, possible=part.speed_points))
        cases = []
        for case in part.speed:
            found = self.results.speed.get((assignment.name, part.name, case.name))
            points = speed_points(case.bands, (), self._missing["outcome"])
            cases.append(found or SpeedCaseResult(name=case.name, size="", points=points, bands=(), **self._missing))
        return SpeedResult(points=Points.total(case.points for case in cases), cases=tuple(cases))

    @property
    def _missing(self) -> dict[str, Any]:
        outcome, message = ("skipped", INTERRUPTED) if self.interrupted else ("infra_error", NOT_COLLECTED)
        return {"outcome": outcome, "message": message}


def report_of(
    run: Run,
    results: Sequence[AssignmentResult],
    isolation: Isolation,
    started: datetime,
    duration_s: float,
    incomplete: bool = False,
) -> Report:
    """The report of these results, with the facts of the run."""
    parts = [part for result in results for part in result.parts]
    correctness = Points.total(part.points for part in parts)
    speed = Points.total(part.speed.points for part in parts)
    return Report(
        started=started,
        duration_s=duration_s,
        seed=run.seed,
        effort=run.request.effort,
        isolation=isolation,
        environment=describe_environment(run.device_name),
        fingerprint=fingerprint(run.request.course),
        submission=run.request.copied.info,
        score=Points.total([correctness, speed]),
        correctness=correctness,
        speed=speed,
        assignments=tuple(results),
        incomplete=incomplete,
        infra_errors=_infra_errors(results),
    )


def _infra_errors(results: Iterable[AssignmentResult]) -> tuple[str, ...]:
    """Each fault of the machine or the grader once, with the first case that met the fault."""
    places: dict[str, list[str]] = {}
    for one in results:
        for part in one.parts:
            named: list[tuple[str, CaseResult | SpeedCaseResult]] = [(case.name, case) for case in part.cases]
            for name, case in [*named, *((f"speed of {case.name}", case) for case in part.speed.cases)]:
                if case.outcome == "infra_error":
                    places.setdefault(case.message, []).append(f"{one.name}, {part.name}, {name}")
    more = {message: f" and {len(met) - 1} more" if len(met) > 1 else "" for message, met in places.items()}
    return tuple(f"{met[0]}{more[message]}: {message}" for message, met in places.items())


def _ended(result: CaseResult) -> Outcome:
    """The outcome that counts for points: an interrupted case leaves its group open, like a fault of the grader."""
    return "infra_error" if result.message == INTERRUPTED else result.outcome
