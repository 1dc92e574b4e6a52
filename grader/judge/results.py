"""The results of a grading as they come in: of cases and checks, and of speed cases, by assignment, part and name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb

import pytest

from grader.assignment import Assignment, AssignmentSpec
from grader.contender.contender import WorkerUnavailable
from grader.contender.replies import ContenderFault
from grader.job import CaseDone, SpeedDone
from grader.judge.canary import Canary
from grader.judge.cases import BoundSpeedCase, Place
from grader.judge.compilation import Compilation
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence, with_input
from grader.judge.run import Run
from grader.judge.standing import Standing
from grader.report.model import UNDECIDED, CaseResult, ErrorMap, Outcome, SpeedCaseResult
from grader.verdict.hints import hints
from grader.verdict.scoring import speed_points

PLACES_TOLD = 4
# What a machine's fault does not explain.
NOT_OF_THE_MACHINE = ("passed", "skipped", "not_implemented", "forbidden", "infra_error")


@dataclass
class Results:
    """Keeps results, and says whose fault a failure is.

    Attributes:
        canary: is asked where a failure may be the machine's.
        cases, speed: results by assignment, part and name.
        stopped: the title of the first case that went wrong of each assignment, where a job stops early.
    """

    run: Run
    standing: Standing
    canary: Canary
    compilation: Compilation
    cases: dict[tuple[str, str, str], CaseResult] = field(init=False, default_factory=dict)
    speed: dict[tuple[str, str, str], SpeedCaseResult] = field(init=False, default_factory=dict)
    stopped: dict[str, str] = field(init=False, default_factory=dict)

    def keep(self, place: Place, error: BaseException | None, evidence: Evidence, is_check: bool = False) -> None:
        """Keep the result of a case or check. `error`: raised by it; an AssertionError of a check is about the submission."""
        end = _end(self._looked_into(place, error), place.assignment.spec, asserts=is_check)
        earlier = self.cases.get(place.key)
        if earlier is not None and earlier.outcome != "passed":
            return  # a parametrised check is as good as its worst run
        details = end.details
        if evidence.given and end.outcome not in NOT_OF_THE_MACHINE:
            details = with_input(details, end.message, evidence.given, place.title)
        result = CaseResult(
            name=place.name,
            tries=place.tries,
            outcome=end.outcome,
            message=end.message or evidence.words,
            diagnosis=details,
            traceback=end.traceback,
            errors=tuple(evidence.errors),
            map=end.map,
            gpu_time=evidence.gpu_time,
            time_s=evidence.time_s,
        )
        self.cases[place.key] = result
        if self.run.job.stop_early and result.outcome not in ("passed", "skipped"):
            self.stopped.setdefault(place.assignment.name, place.title)
        self.run.emit(CaseDone(assignment=place.assignment.name, part=place.part.name, result=result))

    def keep_speed(
        self,
        place: Place,
        timed: BoundSpeedCase,
        error: BaseException | None,
        evidence: Evidence,
        time_s: float,
    ) -> None:
        """Keep the result of a speed case. `timed`: in the size that was timed, or the declared size. `time_s`: what timing it took."""
        if place.key in self.speed and error is None:
            return  # its teardown has nothing to add
        end = _end(self._looked_into(place, error), place.assignment.spec)
        result = SpeedCaseResult(
            name=place.name,
            size=timed.case.tries,
            outcome=end.outcome,
            message=end.message or evidence.words,
            diagnosis=end.details,
            traceback=end.traceback,
            points=speed_points(timed.speed.bands, evidence.bands, end.outcome),
            bands=evidence.bands,
            measured=evidence.measured,
            time_s=time_s,
        )
        self.speed[place.key] = result
        self.run.emit(SpeedDone(assignment=place.assignment.name, part=place.part.name, result=result))

    def of_part(self, place: Place) -> list[CaseResult]:
        """The results of the part's cases and checks so far."""
        return [one for key, one in self.cases.items() if key[:2] == place.of_part]

    @property
    def has_decided_something(self) -> bool:
        outcomes = {one.outcome for one in self.cases.values()} | {one.outcome for one in self.speed.values()}
        return not outcomes <= UNDECIDED

    def look_back(self) -> None:
        """Revise results that all of an assignment's together show in another light."""
        for assignment in self.run.assignments:
            own = [one for key, one in self.cases.items() if key[0] == assignment.name]
            if fault := self.canary.look_back(assignment, own):
                self._revise(assignment, fault)
        for key, result in self.cases.items():
            excuse = self.standing.excused.get(key[:2])
            if excuse is not None and result.outcome == "passed":  # it passed without what the rest of the part needs
                self.cases[key] = result.model_copy(update={"outcome": "skipped", "message": excuse.message})

    def _looked_into(self, place: Place, error: BaseException | None) -> BaseException | None:
        """An error of a case, or the machine's fault that it turns out to be."""
        if not isinstance(error, ContenderFault):
            return error
        if error.outcome == "skipped" and error.raised_by == "submission":
            self.standing.excuse(place, error)
        if (found := self.canary.look_into(place.assignment, error)) is not None:
            self.compilation.kernels.pop(place.assignment.name, None)  # what the broken tools said of them
        return found or error

    def _revise(self, assignment: Assignment, fault: CaseRefused) -> None:
        """Make every failure of an assignment the machine's."""
        revised = {"outcome": "infra_error", "message": fault.message, "diagnosis": fault.details, "traceback": ""}
        for key, result in self.cases.items():
            if key[0] == assignment.name and result.outcome not in NOT_OF_THE_MACHINE:
                self.cases[key] = result.model_copy(update=revised | {"map": None})
        for key, timed in self.speed.items():
            if key[0] == assignment.name and timed.outcome not in NOT_OF_THE_MACHINE:
                points = timed.points.model_copy(update={"earned": 0, "graded": 0})
                self.speed[key] = timed.model_copy(update=revised | {"points": points})


@dataclass(frozen=True)
class _End:
    outcome: Outcome
    message: str = ""
    details: tuple[str, ...] = ()
    traceback: str = ""
    map: ErrorMap | None = None


def _end(error: BaseException | None, spec: AssignmentSpec, asserts: bool = False) -> _End:
    """How a case of the assignment `spec` ended. `asserts`: whether an AssertionError is about the submission."""
    match error:
        case None:
            return _End("passed")
        case ContenderFault():
            found = hints(error.message, error.traceback, spec.entry, spec.contract)
            if error.outcome == "skipped":  # of these only the message is shown
                return _End("skipped", "; ".join([error.message, *found]), error.details)
            return _End(error.outcome, error.message, (*found, *error.details), error.traceback)
        case CheckFailed():
            return _End("failed", error.message, error.details, map=error.map)
        case AssertionError() if asserts:
            return _End("failed", str(error) or "the check does not hold")
        case pytest.skip.Exception():
            return _End("skipped", str(error) or "skipped")
        case CaseRefused():
            return _End("infra_error", error.message, tuple(filter(None, error.details)))
        case MemoryError() | WorkerUnavailable():
            return _End("infra_error", str(error) or type(error).__name__)
        case _:
            return _End("infra_error", f"the grader failed: {type(error).__name__}: {error}"[:2000] + _where(error))


def _where(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = extract_tb(error.__traceback__)[-PLACES_TOLD:]
    return "".join(f", in {Path(one.filename).name}, line {one.lineno}" for one in reversed(frames))
