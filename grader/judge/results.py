"""The results of a grading: kept as they come in, each as an event too, and put together into the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeAlias

import pytest

from grader.assignment import Assignment, AssignmentSpec, Part
from grader.fingerprint import fingerprint
from grader.judge.canary import Canary
from grader.judge.cases import ReportPlace, SpeedSizes
from grader.judge.compilation import Compilation
from grader.judge.environment import describe_environment
from grader.judge.evidence import Evidence, with_input
from grader.judge.files import Files
from grader.judge.ownership import in_words_of_the_source
from grader.judge.run import Run
from grader.messages import CaseDone, SpeedDone
from grader.pool.fault import Fault
from grader.report.model import (
    INTERRUPTED,
    NOT_COMBINED,
    UNDECIDED,
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
from grader.verdict.advice import advice
from grader.verdict.causes import borne_out, with_maps_of_causes
from grader.verdict.contract import fails_alone_too, pattern
from grader.verdict.hints import hints
from grader.verdict.policy import about_import
from grader.verdict.resources import kernel_resources
from grader.verdict.scoring import Graded, group_points, speed_points

PLACES_TOLD = 4
Missing: TypeAlias = dict[str, Any]  # of a case without a result: outcome and message
MISSING: dict[bool, Missing] = {  # by whether the grading was interrupted
    True: {"outcome": "skipped", "message": INTERRUPTED},
    False: {"outcome": "infra_error", "message": "did not run: no test of this name was collected"},
}
# Outcomes that a fault of the machine does not explain.
NOT_OF_THE_MACHINE = ("passed", "skipped", "not_implemented", "forbidden", "infra_error")


@dataclass
class Results:
    """Keeps the result of each case, check and speed case, and decides whose fault a failure is.

    Attributes:
        canary: asked if a failure may be the machine's.
        cases, speed: results by assignment, part and name.
        stopped: title of the first failed case by assignment, if the request stops early.
    """

    run: Run
    files: Files
    canary: Canary
    compilation: Compilation
    cases: dict[tuple[str, str, str], CaseResult] = field(init=False, default_factory=dict)
    speed: dict[tuple[str, str, str], SpeedCaseResult] = field(init=False, default_factory=dict)
    stopped: dict[str, str] = field(init=False, default_factory=dict)

    def keep(self, place: ReportPlace, error: BaseException | None, evidence: Evidence, is_check: bool = False) -> None:
        """Keep the result of a case or check, and emit it.

        Args:
            error: how the case ended; None if it passed. An AssertionError of a check is the submission's failure.
        """
        end = _end(self._looked_into(place, error), place.assignment.spec, asserts=is_check)
        if evidence.given and end["outcome"] not in NOT_OF_THE_MACHINE:
            end["diagnosis"] = with_input(end["diagnosis"], end["message"], evidence.given, place.title)
        end["message"] = end["message"] or evidence.words
        result = CaseResult(
            name=place.name,
            tries=place.tries,
            errors=tuple(evidence.errors),
            gpu_time=evidence.gpu_time,
            time_s=evidence.time_s,
            **end,
        )
        self.cases[place.key] = result
        if self.run.request.stop_early and result.outcome not in ("passed", "skipped"):
            self.stopped.setdefault(place.assignment.name, place.title)
        so_far = borne_out(self.of_part(place))
        (shown,) = (one for one in so_far if one.name == place.name)
        name, part = place.of_part
        self.run.emit(CaseDone(assignment=name, part=part, result=shown, pattern=evidence.pattern))

    def keep_speed(
        self,
        sizes: SpeedSizes,
        error: BaseException | None,
        evidence: Evidence,
        time_s: float,
    ) -> None:
        """Keep the result of a speed case, and emit it.

        Args:
            error: how the case ended; None if it passed.
            time_s: seconds that timing took.
        """
        place, declared = sizes.place, sizes.declared
        if place.key in self.speed and error is None:
            return  # the test's teardown adds nothing
        end = _end(self._looked_into(place, error), place.assignment.spec)
        end["message"] = end["message"] or evidence.words
        result = SpeedCaseResult(
            name=place.name,
            size=evidence.size or declared.case.tries,
            points=speed_points(declared.speed.bands, evidence.bands, end["outcome"]),
            bands=evidence.bands,
            measured=evidence.measured,
            time_s=time_s,
            **{name: value for name, value in end.items() if name in SpeedCaseResult.model_fields},
        )
        self.speed[place.key] = result
        self.run.emit(SpeedDone(assignment=place.assignment.name, part=place.part.name, result=result))

    def of_part(self, place: ReportPlace) -> list[CaseResult]:
        """Results so far of the part's cases and checks."""
        return [one for key, one in list(self.cases.items()) if key[:2] == place.of_part]  # lanes ask meanwhile

    @property
    def has_decided_something(self) -> bool:
        outcomes = {one.outcome for one in self.cases.values()} | {one.outcome for one in self.speed.values()}
        return not outcomes <= UNDECIDED

    def look_back(self) -> None:
        """Revise results in the light of all results of their assignment."""
        for assignment in self.run.assignments:
            own = [one for key, one in self.cases.items() if key[0] == assignment.name]
            if (fault := self.canary.look_back(assignment, own)) is None:
                continue
            # Every failure of the assignment becomes the machine's.
            revised = {"outcome": "infra_error", "message": fault.message, "diagnosis": fault.details, "traceback": ""}
            for key, result in self.cases.items():
                if key[0] == assignment.name and result.outcome not in NOT_OF_THE_MACHINE:
                    self.cases[key] = result.model_copy(update=revised | {"map": None})
            for key, timed in self.speed.items():
                if key[0] == assignment.name and timed.outcome not in NOT_OF_THE_MACHINE:
                    points = timed.points.model_copy(update={"earned": 0, "graded": 0})
                    self.speed[key] = timed.model_copy(update=revised | {"points": points})
        for key, result in self.cases.items():
            excuse = self.files.excused.get(key[:2])
            # Passed without the GPU that the rest of the part needs
            if excuse is not None and result.outcome == "passed":
                self.cases[key] = result.model_copy(update={"outcome": "skipped", "message": excuse.message})

    def _looked_into(self, place: ReportPlace, error: BaseException | None) -> BaseException | None:
        """The error of a case, or the machine's fault behind it."""
        if not isinstance(error, Fault) or error.whose in ("answer", "machine"):
            return error
        if error.operators:
            error = in_words_of_the_source(error, self.files.hints(place.assignment))
        if error.outcome == "skipped" and error.whose == "submission":
            self.files.excused.setdefault(place.of_part, error)
        if (found := self.canary.look_into(place.assignment, error)) is not None:
            self.compilation.kernels.pop(place.assignment.name, None)  # from the broken tools
        return found or error

    # The report --------------------------------------------------------------------------------------------------------

    def report(self, isolation: Isolation, started: datetime, duration_s: float, interrupted: bool) -> Report:
        """The report of the grading; `interrupted` if it ended before every case had run."""
        results = []
        for assignment in self.run.assignments:
            spec, files = assignment.spec, self.files
            parts = tuple(self.part(assignment, part, MISSING[interrupted]) for part in spec.parts)
            compiled, ptxas = self.compilation.kernels.get(assignment.name, ()), files.ptxas(assignment)
            kernels = (*kernel_resources(ptxas), *compiled)
            outcomes = {case.outcome for part in parts for case in part.cases}
            told: tuple[str, ...] = ()
            if "passed" in outcomes and outcomes <= {"passed", "skipped"}:
                graded = [one for one in kernels if not one.case or one.arch == spec.gpu.arch]
                stream = next((one.name for one in spec.signature if one.type == "cudaStream_t"), "")
                off_stream, same_value = files.reported(assignment)
                told = advice(spec.file, stream, graded, ptxas, off_stream if stream else (), same_value)
            results.append(
                AssignmentResult(
                    name=assignment.name,
                    title=spec.title,
                    file=spec.file,
                    parts=parts,
                    kernels=kernels,
                    hints=told,
                    log=files.log(assignment),
                )
            )
        return report_of(self.run, results, isolation, started, duration_s, interrupted)

    def part(self, assignment: Assignment, part: Part, missing: Missing) -> PartResult:
        """The result of a part. A case without a result has `missing`."""
        shows = {case.name: case.shows_values(self.run.device_name) for case in part.cases}
        results = {
            name: self.cases.get((assignment.name, part.name, name)) or CaseResult(name=name, tries="", **missing)
            for group in part.groups
            for name in group.names
        }
        telling = [
            results[case.name].outcome for case in part.cases if not case.is_combination and case.degenerate is None
        ]
        all_wrong = "passed" not in telling and not set(telling) <= UNDECIDED
        outcomes = {name: _ended(result, all_wrong) for name, result in results.items()}
        for case in (case for group in part.groups if group.pairs for case in group.cases):
            if results[case.name].outcome not in ("passed", *UNDECIDED):
                follows = fails_alone_too(part, case, outcomes)
                results[case.name] = results[case.name].model_copy(update={"follows": follows})
        told = borne_out(list(results.values()))
        results = dict(zip(results, with_maps_of_causes(told), strict=True))
        graded = {
            name: Graded(outcomes[name], shows.get(name, True), bool(result.follows))
            for name, result in results.items()
        }
        groups = []
        for group in part.groups:
            own = [graded[name] for name in group.names]
            points, provisional = group_points(group.points, own, tuple(graded.values()))
            cases = tuple(results[name] for name in group.names)
            groups.append(
                GroupResult(name=group.name, title=group.title, points=points, provisional=provisional, cases=cases)
            )
        if self.run.request.speed:
            timed = tuple(
                self.speed.get((assignment.name, part.name, case.name))
                or SpeedCaseResult(
                    name=case.name,
                    size="",
                    points=speed_points(case.bands, (), missing["outcome"]),
                    bands=(),
                    **missing,
                )
                for case in part.speed
            )
            speed = SpeedResult(points=Points.total(case.points for case in timed), cases=timed)
        else:
            speed = SpeedResult(points=Points(earned=0, graded=0, possible=part.speed_points))
        return PartResult(
            name=part.name,
            title=part.title,
            outcome=worst(result.outcome for result in results.values()),
            points=Points.total(group.points for group in groups),
            pattern=pattern(part, outcomes),
            speed=speed,
            groups=tuple(groups),
        )


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
    infra_errors: dict[str, list[str]] = {}  # the places that met a fault of the machine or the grader, by its message
    for one in results:
        for part in one.parts:
            named: list[tuple[str, CaseResult | SpeedCaseResult]] = [(case.name, case) for case in part.cases]
            for name, case in [*named, *((f"speed of {case.name}", case) for case in part.speed.cases)]:
                if case.outcome == "infra_error":
                    infra_errors.setdefault(case.message, []).append(f"{one.name}, {part.name}, {name}")
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
        infra_errors=tuple(
            f"{places[0]}{f' and {len(places) - 1} more' if places[1:] else ''}: {message}"
            for message, places in infra_errors.items()
        ),
    )


def _ended(result: CaseResult, all_wrong: bool) -> Outcome:
    """The outcome that counts for points: an interrupted case leaves its group open, like a fault of the grader, and a
    combination that was not run is wrong if `all_wrong` cases that try less are.
    """
    if result.message == NOT_COMBINED:
        return "failed" if all_wrong else "infra_error"
    return "infra_error" if result.message == INTERRUPTED else result.outcome


def _end(error: BaseException | None, spec: AssignmentSpec, asserts: bool = False) -> dict[str, Any]:
    """The end of a case, as fields of `CaseResult`. With `asserts`, an AssertionError is the submission's failure."""

    def end(outcome: Outcome, message: str, details: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
        return {"outcome": outcome, "message": message, "diagnosis": details, **more}

    match error:
        case None:
            return end("passed", "")
        case Fault(whose="answer"):
            return end("failed", error.message, error.details, map=error.map)
        case Fault(whose="machine"):
            return end("infra_error", error.message, tuple(filter(None, error.details)))
        case Fault():
            message = about_import(error.message, error.traceback)
            found = hints(message, error.traceback, spec.entry, spec.contract)
            if error.outcome == "skipped":  # the report shows only the message of a skipped case
                return end("skipped", "; ".join([message, *found]), error.details)
            of_file = error.of_file and error.outcome != "not_implemented"
            details = (*found, *error.details)
            return end(error.outcome, message, details, traceback=error.traceback, of_file=of_file)
        case AssertionError() if asserts:
            return end("failed", str(error) or "the check does not hold")
        case pytest.skip.Exception():
            return end("skipped", str(error) or "skipped")
        case MemoryError():
            return end("infra_error", str(error) or type(error).__name__)
        case _:
            words = f"the grader failed: {type(error).__name__}: {error}"[:2000]
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            frames = reversed(extract_tb(error.__traceback__)[-PLACES_TOLD:])
            return end(
                "infra_error", words + "".join(f", in {Path(one.filename).name}, line {one.lineno}" for one in frames)
            )
