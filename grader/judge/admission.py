"""Why a case, check or speed case is not run. Nothing here runs the student's code."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from grader.assignment import Assignment
from grader.contender.replies import ContenderFault
from grader.judge.cases import BoundCase, BoundSpeedCase, Place, SpeedSizes
from grader.judge.compilation import Compilation
from grader.judge.environment import find_compiler, interpreter_fault
from grader.judge.hoarding import Hoarding, too_little
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.standing import Standing
from grader.nvidia import find_sanitizer
from grader.report.model import NEEDS_GPU, NOT_RUN, UNDECIDED

TOO_MUCH_TO_INTERPRET = "needs a GPU: it would take Triton's CPU interpreter too long"
MAX_NAMED = 4


class Admission:
    """Admits cases, checks and speed cases of a grading.

    Args:
        cases: of all assignments.
        compilation: compiles what the CPU's interpreter cannot run.
    """

    def __init__(
        self,
        run: Run,
        standing: Standing,
        hoarding: Hoarding,
        assignments: Sequence[Assignment],
        cases: Sequence[BoundCase],
        compilation: Compilation,
        results: Results,
    ) -> None:
        self._run = run
        self._standing = standing
        self._hoarding = hoarding
        self._assignments = {one.name: one for one in assignments}
        self._cases = cases
        self._compilation = compilation
        self._results = results
        self._interpreter_fault = interpreter_fault() if run.device_name == "cpu" else ""

    def check(self, place: Place, case: BoundCase | None) -> None:
        """Raise ContenderFault where a case is not to be run; a check has no case. What needs no look at the submission goes first."""
        assignment = self._assignments[place.assignment]
        self._standing.check_present(assignment)
        self._standing.check_excused(assignment, place.part)
        if reason := self._reason_to_skip(assignment, case):
            raise ContenderFault("skipped", reason)
        given_up = self._standing.hangs.has_given_up(place.assignment, place.part)
        if case is not None and self._is_too_much_to_interpret(case):
            told = "" if given_up else self._compilation.check(case)
            raise ContenderFault("skipped", f"{TOO_MUCH_TO_INTERPRET}; {told}" if told else TOO_MUCH_TO_INTERPRET)
        self._standing.hangs.check(place.assignment, place.part)
        same_part = (
            one for one in self._cases if (one.assignment.name, one.part.name) == (place.assignment, place.part)
        )
        self._standing.check_source(assignment, case or next(same_part, None))

    def check_timing(self, place: Place, sizes: SpeedSizes) -> None:
        """Raise what keeps a speed case from being timed: no GPU, nothing to time, or answers that are not right."""
        devices = sizes.declared.speed.devices
        if self._run.device_name not in devices:
            raise pytest.skip.Exception(NEEDS_GPU if devices == ("cuda",) else "not graded here")
        self._standing.check_present(self._assignments[place.assignment])
        results = self._results.of_part(place.assignment, place.part)
        if wrong := [one for one in results if one.outcome not in ("passed", *UNDECIDED)]:
            names = ", ".join(one.title for one in wrong[:MAX_NAMED]) + (" ..." if len(wrong) > MAX_NAMED else "")
            raise ContenderFault(
                wrong[0].outcome, f"not timed: speed counts where the answers are right, and here {names} went wrong"
            )
        if any(one.outcome == "infra_error" for one in results):
            raise pytest.skip.Exception("not timed: the grader failed in a correctness case")
        if not any(one.outcome == "passed" for one in results):
            raise pytest.skip.Exception("not timed: no correctness case could be run here")

    def fitting(self, place: Place, sizes: SpeedSizes) -> BoundSpeedCase:
        """The largest size that the device has the memory for. Skips the speed case where there is none."""
        needed_gib = sizes.needed_gib(self._run.total_gib)
        free_gib = self._hoarding.room_for(self._assignments[place.assignment], needed_gib)
        if (fitting := sizes.fitting(free_gib)) is None:
            needed = min(one for one in sizes.memory_gib if one is not None)
            raise pytest.skip.Exception(too_little(needed, free_gib))
        return fitting

    def _is_too_much_to_interpret(self, case: BoundCase) -> bool:
        cpu, triton = self._run.device_name == "cpu", case.assignment.spec.language == "triton"
        return cpu and triton and not case.case.interpreted

    def _reason_to_skip(self, assignment: Assignment, case: BoundCase | None) -> str:
        """Why a case is not run, or nothing."""
        if stopped := self._results.stopped.get(assignment.name):
            return f"{NOT_RUN}: stopped at {stopped}"
        cuda = assignment.spec.language == "cuda"
        if case is not None and self._run.job.effort == "quick" and self._takes_long(case):
            return f"left out by --quick: {case.case.tries}"
        if cuda and find_compiler(self._run.device_name) is None:
            if self._run.device_name == "cuda":
                return "nvcc was not found: install the CUDA toolkit or put nvcc on the PATH (or set CUDA_HOME)"
            return "no C++ compiler was found: install g++ (Debian, Ubuntu: apt install g++)"
        if self._run.device_name == "cuda":
            if case is not None and case.case.tool is not None and find_sanitizer() is None:
                return "compute-sanitizer was not found: it comes with the CUDA toolkit"
            return self._too_large(assignment, case)
        if not cuda and self._interpreter_fault:
            return self._interpreter_fault
        if case is not None and "cpu" not in case.case.devices:
            return f"needs a GPU: {case.case.tries}"
        return ""

    def _takes_long(self, case: BoundCase) -> bool:
        return case.case.memory_gib is not None or (case.case.tool is not None and self._run.device_name == "cuda")

    def _too_large(self, assignment: Assignment, case: BoundCase | None) -> str:
        if case is None or case.case.memory_gib is None:
            return ""
        free_gib = self._hoarding.room_for(assignment, case.case.memory_gib)
        return "" if free_gib >= case.case.memory_gib else too_little(case.case.memory_gib, free_gib)
