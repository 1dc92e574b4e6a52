"""Decides why a case, check or speed case is not run. Nothing here runs the student's code."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from grader.assignment import Assignment
from grader.judge.cases import BoundCase, BoundSpeedCase, ReportPlace, SpeedSizes
from grader.judge.compilation import Compilation
from grader.judge.environment import find_compiler, interpreter_fault
from grader.judge.files import Files
from grader.judge.hoarding import Hoarding, too_little
from grader.judge.results import Results
from grader.judge.run import Run
from grader.nvidia import find_sanitizer
from grader.pool.fault import Fault
from grader.report.model import NEEDS_GPU, NOT_COMBINED, NOT_RUN, UNDECIDED

TOO_MUCH_TO_INTERPRET = "needs a GPU: it would take Triton's CPU interpreter too long"
ENOUGH_WRONG = 8  # cases
MAX_NAMED = 4


@dataclass
class SkipReasons:
    """Says why a case, check or speed case is not run, by raising the reason."""

    run: Run
    files: Files
    hoarding: Hoarding
    compilation: Compilation
    results: Results

    def check(self, place: ReportPlace, case: BoundCase | None) -> None:
        """Raise Fault with the reason if a case or check is not to be run. Reasons of the machine come before
        the source's.

        Args:
            case: None for a check.
        """
        self.files.check_present(place.assignment)
        if excused := self.files.excused.get(place.of_part):
            raise excused
        if reason := self.reason_to_skip(place.assignment, case):
            raise Fault("skipped", reason)
        hangs = self.files.hangs
        is_interpreted = self.run.device_name == "cpu" and place.assignment.spec.language == "triton"
        if case is not None and is_interpreted and not case.case.interpreted:
            told = "" if hangs.has_given_up(place) else self.compilation.check(case)
            raise Fault("skipped", f"{TOO_MUCH_TO_INTERPRET}; {told}" if told else TOO_MUCH_TO_INTERPRET)
        hangs.check(place)
        self.files.check_source(place.assignment)

    def check_combination(self, case: BoundCase) -> None:
        """Raise Fault if cases that try less than a combination have all gone wrong so far: it would tell nothing new, and
        each crash takes a worker.
        """
        telling = {one.name for one in case.part.cases if not one.is_combination and one.degenerate is None}
        outcomes = [one.outcome for one in self.results.of_part(case.place) if one.name in telling]
        ended = [one for one in outcomes if one not in UNDECIDED]
        if len(ended) >= ENOUGH_WRONG and "passed" not in ended:
            raise Fault("skipped", NOT_COMBINED)

    def check_timing(self, place: ReportPlace, sizes: SpeedSizes) -> None:
        """Raise Fault or pytest's skip if a speed case is not timed: no GPU, no file, or a wrong answer in its
        part.
        """
        devices = sizes.declared.speed.devices
        if self.run.device_name not in devices:
            raise pytest.skip.Exception(NEEDS_GPU if devices == ("cuda",) else "not graded here")
        self.files.check_present(place.assignment)
        results = self.results.of_part(place)
        if wrong := [one for one in results if one.outcome not in ("passed", *UNDECIDED)]:
            names = ", ".join(one.title for one in wrong[:MAX_NAMED]) + (" ..." if len(wrong) > MAX_NAMED else "")
            words = f"not timed: speed counts where the answers are right, and here {names} went wrong"
            if wrong[0].of_file:
                words = f"not timed: {place.assignment.spec.file} {wrong[0].fault_of_file}"
            raise Fault(wrong[0].outcome, words)
        if any(one.outcome == "infra_error" for one in results):
            raise pytest.skip.Exception("not timed: the grader failed in a correctness case")
        if not any(one.outcome == "passed" for one in results):
            raise pytest.skip.Exception("not timed: no correctness case could be run here")

    def fitting(self, place: ReportPlace, sizes: SpeedSizes) -> BoundSpeedCase:
        """The largest size of a speed case that fits into the device's free memory. Raises pytest's skip if no size
        fits.
        """
        needed_gib = sizes.needed_gib(self.run.total_gib)
        free_gib = self.hoarding.room_for(place.assignment, needed_gib)
        if (fitting := sizes.fitting(free_gib)) is None:
            needed = min(one.memory_gib for one in sizes.cases if one.memory_gib is not None)
            raise pytest.skip.Exception(too_little(needed, free_gib))
        return fitting

    def reason_to_skip(self, assignment: Assignment, case: BoundCase | None) -> str:
        on_gpu, cuda = self.run.device_name == "cuda", assignment.spec.language == "cuda"
        needed_gib, tool = (None, None) if case is None else (case.case.memory_gib, case.case.tool)
        if stopped := self.results.stopped.get(assignment.name):
            return f"{NOT_RUN}: stopped at {stopped}"
        if case is not None and self.run.request.effort == "quick" and (needed_gib is not None or (tool and on_gpu)):
            return f"left out by --quick: {case.case.tries}"
        if cuda and find_compiler(self.run.device_name) is None:
            if on_gpu:
                return "nvcc was not found: install the CUDA toolkit or put nvcc on the PATH (or set CUDA_HOME)"
            return "no C++ compiler was found: install g++ (Debian, Ubuntu: apt install g++)"
        if not on_gpu:
            if not cuda and (fault := interpreter_fault()):
                return fault
            return "" if case is None or "cpu" in case.case.devices else f"needs a GPU: {case.case.tries}"
        if tool is not None and find_sanitizer() is None:
            return "compute-sanitizer was not found: it comes with the CUDA toolkit"
        if needed_gib is None:
            return ""
        free_gib = self.hoarding.room_for(assignment, needed_gib)
        return "" if free_gib >= needed_gib else too_little(needed_gib, free_gib)
