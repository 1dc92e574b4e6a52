"""The results of a grading as they come in, by assignment, part and name; each becomes an event too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb

import pytest

from grader.assignment import Assignment, AssignmentSpec
from grader.judge.canary import Canary
from grader.judge.cases import ReportPlace, SpeedSizes
from grader.judge.compilation import Compilation
from grader.judge.evidence import Evidence, with_input
from grader.judge.files import Files
from grader.judge.ownership import in_words_of_the_source
from grader.judge.run import Run
from grader.messages import CaseDone, SpeedDone
from grader.pool.fault import Fault
from grader.report.model import UNDECIDED, CaseResult, ErrorMap, Outcome, SpeedCaseResult
from grader.verdict.causes import borne_out
from grader.verdict.hints import hints
from grader.verdict.policy import about_import
from grader.verdict.scoring import speed_points

PLACES_TOLD = 4
# Outcomes that a fault of the machine does not explain.
NOT_OF_THE_MACHINE = ("passed", "skipped", "not_implemented", "forbidden", "infra_error")


@dataclass
class Results:
    """Keeps the result of each case, check and speed case, and decides whose fault a failure is.

    Attributes:
        canary: asked if a failure may be the machine's.
        cases, speed: results by assignment, part and name.
        kinds: the `Evidence.kinds` of the cases that ran, by part and name.
        stopped: title of the first failed case by assignment, if the request stops early.
    """

    run: Run
    files: Files
    canary: Canary
    compilation: Compilation
    cases: dict[tuple[str, str, str], CaseResult] = field(init=False, default_factory=dict)
    speed: dict[tuple[str, str, str], SpeedCaseResult] = field(init=False, default_factory=dict)
    kinds: dict[tuple[str, str], dict[str, set[str]]] = field(init=False, default_factory=dict)
    stopped: dict[str, str] = field(init=False, default_factory=dict)

    def keep(self, place: ReportPlace, error: BaseException | None, evidence: Evidence, is_check: bool = False) -> None:
        """Keep the result of a case or check, and emit it.

        Args:
            error: how the case ended; None if it passed. An AssertionError of a check is the submission's failure.
        """
        end = _end(self._looked_into(place, error), place.assignment.spec, asserts=is_check)
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
            of_file=end.of_file,
            errors=tuple(evidence.errors),
            map=end.map,
            gpu_time=evidence.gpu_time,
            time_s=evidence.time_s,
        )
        self.cases[place.key] = result
        if not is_check:
            self.kinds.setdefault(place.of_part, {})[place.name] = evidence.kinds
        if self.run.request.stop_early and result.outcome not in ("passed", "skipped"):
            self.stopped.setdefault(place.assignment.name, place.title)
        so_far = borne_out(self.of_part(place), self.kinds.get(place.of_part, {}))
        (shown,) = (one for one in so_far if one.name == place.name)
        self.run.emit(CaseDone(assignment=place.assignment.name, part=place.part.name, result=shown))

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
        result = SpeedCaseResult(
            name=place.name,
            size=evidence.size or declared.case.tries,
            outcome=end.outcome,
            message=end.message or evidence.words,
            diagnosis=end.details,
            traceback=end.traceback,
            points=speed_points(declared.speed.bands, evidence.bands, end.outcome),
            bands=evidence.bands,
            measured=evidence.measured,
            time_s=time_s,
        )
        self.speed[place.key] = result
        self.run.emit(SpeedDone(assignment=place.assignment.name, part=place.part.name, result=result))

    def of_part(self, place: ReportPlace) -> list[CaseResult]:
        """Results so far of the part's cases and checks."""
        return [one for key, one in self.cases.items() if key[:2] == place.of_part]

    @property
    def has_decided_something(self) -> bool:
        outcomes = {one.outcome for one in self.cases.values()} | {one.outcome for one in self.speed.values()}
        return not outcomes <= UNDECIDED

    def look_back(self) -> None:
        """Revise results in the light of all results of their assignment."""
        for assignment in self.run.assignments:
            own = [one for key, one in self.cases.items() if key[0] == assignment.name]
            if fault := self.canary.look_back(assignment, own):
                self._revise(assignment, fault)
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
            self.files.excuse(place, error)
        if (found := self.canary.look_into(place.assignment, error)) is not None:
            self.compilation.kernels.pop(place.assignment.name, None)  # from the broken tools
        return found or error

    def _revise(self, assignment: Assignment, fault: Fault) -> None:
        """Turn every failure of an assignment into the machine's."""
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
    of_file: bool = False


def _end(error: BaseException | None, spec: AssignmentSpec, asserts: bool = False) -> _End:
    """The end of a case. With `asserts`, an AssertionError is the submission's failure."""
    match error:
        case None:
            return _End("passed")
        case Fault(whose="answer"):
            return _End("failed", error.message, error.details, map=error.map)
        case Fault(whose="machine"):
            return _End("infra_error", error.message, tuple(filter(None, error.details)))
        case Fault():
            message = about_import(error.message, error.traceback)
            found = hints(message, error.traceback, spec.entry, spec.contract)
            if error.outcome == "skipped":  # the report shows only the message of a skipped case
                return _End("skipped", "; ".join([message, *found]), error.details)
            of_file = error.of_file and error.outcome != "not_implemented"
            return _End(error.outcome, message, (*found, *error.details), error.traceback, of_file=of_file)
        case AssertionError() if asserts:
            return _End("failed", str(error) or "the check does not hold")
        case pytest.skip.Exception():
            return _End("skipped", str(error) or "skipped")
        case MemoryError():
            return _End("infra_error", str(error) or type(error).__name__)
        case _:
            return _End("infra_error", f"the grader failed: {type(error).__name__}: {error}"[:2000] + _where(error))


def _where(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = extract_tb(error.__traceback__)[-PLACES_TOLD:]
    return "".join(f", in {Path(one.filename).name}, line {one.lineno}" for one in reversed(frames))
