"""The report of a grading, gathered from its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from grader.assignment import Assignment, Part
from grader.fingerprint import fingerprint
from grader.judge.compilation import Compilation
from grader.judge.environment import describe_environment
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.standing import Standing
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
from grader.verdict.causes import with_maps_of_causes
from grader.verdict.resources import kernel_resources
from grader.verdict.scoring import Graded, group_points, speed_points

NOT_COLLECTED = "did not run: no test of this name was collected"


class Gathering:
    """Makes the report.

    Args:
        interrupted: the grading was ended before every case had its turn.
    """

    def __init__(
        self, run: Run, standing: Standing, results: Results, compilation: Compilation, interrupted: bool
    ) -> None:
        self._run = run
        self._standing = standing
        self._results = results
        self._compilation = compilation
        self._interrupted = interrupted

    def report(
        self, isolation: Isolation, assignments: Sequence[Assignment], started: datetime, duration_s: float
    ) -> Report:
        run, job = self._run, self._run.job
        results = [self._assignment(assignment) for assignment in assignments]
        parts = [part for result in results for part in result.parts]
        correctness = Points.total(part.points for part in parts)
        speed = Points.total(part.speed.points for part in parts)
        return Report(
            started=started,
            duration_s=duration_s,
            seed=run.seed,
            effort=job.effort,
            isolation=isolation,
            environment=describe_environment(run.device_name),
            fingerprint=fingerprint(job.course),
            submission=job.info,
            score=Points.total([correctness, speed]),
            correctness=correctness,
            speed=speed,
            assignments=tuple(results),
            incomplete=self._interrupted,
            infra_errors=_infra_errors(results),
        )

    def _assignment(self, assignment: Assignment) -> AssignmentResult:
        spec = assignment.spec
        compiled = self._compilation.kernels.get(assignment.name, ())
        parts = tuple(self.part(assignment, part) for part in spec.parts)
        kernels = (*kernel_resources(self._standing.ptxas(assignment)), *compiled)
        outcomes = {case.outcome for part in parts for case in part.cases}
        is_right = "passed" in outcomes and outcomes <= {"passed", "skipped"}
        return AssignmentResult(
            name=assignment.name,
            title=spec.title,
            file=spec.file,
            parts=parts,
            kernels=kernels,
            hints=self._hints(assignment, kernels) if is_right else (),
            log=self._standing.log(assignment),
        )

    def _hints(self, assignment: Assignment, kernels: Sequence[KernelResources]) -> tuple[str, ...]:
        spec, standing = assignment.spec, self._standing
        graded = [one for one in kernels if not one.case or one.arch == spec.arch]
        stream = next((one.name for one in spec.signature if one.type == "cudaStream_t"), "")
        off_stream = standing.off_stream(assignment) if stream else ()
        return advice(spec.file, stream, graded, standing.ptxas(assignment), off_stream)

    def part(self, assignment: Assignment, part: Part) -> PartResult:
        shows = {case.name: case.shows_values(self._run.device_name) for case in part.cases}
        results = {name: self._case(assignment, part, name) for group in part.groups for name in group.names}
        results = dict(zip(results, with_maps_of_causes(list(results.values())), strict=True))
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
        found = self._results.cases.get((assignment.name, part.name, name))
        if found is not None:
            return found
        outcome, message = self._missing
        return CaseResult(name=name, tries="", outcome=outcome, message=message)

    def _speed(self, assignment: Assignment, part: Part) -> SpeedResult:
        if not self._run.job.speed:
            return SpeedResult(points=Points(earned=0, graded=0, possible=part.speed_points))
        cases = []
        for case in part.speed:
            found = self._results.speed.get((assignment.name, part.name, case.name))
            if found is None:
                outcome, message = self._missing
                points = speed_points(case.bands, (), outcome)
                found = SpeedCaseResult(
                    name=case.name, size="", outcome=outcome, message=message, points=points, bands=()
                )
            cases.append(found)
        return SpeedResult(points=Points.total(case.points for case in cases), cases=tuple(cases))

    @property
    def _missing(self) -> tuple[Outcome, str]:
        """Outcome and message of a case without a result."""
        return ("skipped", INTERRUPTED) if self._interrupted else ("infra_error", NOT_COLLECTED)


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


def _ended(result: CaseResult) -> Outcome:
    """The outcome by which points count: an interruption leaves a group open, as a fault of the grader does."""
    return "infra_error" if result.message == INTERRUPTED else result.outcome
