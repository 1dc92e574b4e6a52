"""Runs the cases and checks of a grading, in one lane or in several. Speed cases follow (`speed/plugin.py`).

`skip.py` says why a case is not run, `calls.py` grades its calls, and `results.py` keeps its result. With several lanes,
cases that share the machine run first, side by side (`lanes.py`). A case that needs much GPU memory, or measures it,
runs alone after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from traceback import clear_frames

import pytest

from grader.judge.calls import CallGrader
from grader.judge.cases import BoundCase, BoundCheck, ReportPlace
from grader.judge.comparison import Comparison
from grader.judge.compilation import Compilation
from grader.judge.evidence import Evidence
from grader.judge.files import Files
from grader.judge.hoarding import Hoarding
from grader.judge.lanes import Done, Lanes, Work
from grader.judge.properties import Properties
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.sanitizing import run_watched
from grader.judge.skip import SkipReasons
from grader.judge.workers import Workers
from grader.pool.fault import Fault
from grader.pool.worker import Worker
from grader.report.model import Outcome
from grader.verdict.contract import needed_for_a_pattern, pattern

KEPT = (
    "the same case is right in a new process, without the cases before it: consistent with something that is kept from one call to the "
    "next, as a launch, a grid or a buffer that is kept by shape, or by less, although more decides about it"
)


@dataclass
class Runner:
    """Runs the cases and checks of a grading, and keeps their results."""

    run: Run
    files: Files
    workers: Workers
    hoarding: Hoarding
    comparison: Comparison
    call_grader: CallGrader
    lanes: Lanes
    skip: SkipReasons
    compilation: Compilation
    results: Results
    _known: set[Worker] = field(init=False, default_factory=set)  # workers that have had a case
    # The parts, by assignment and part name, of which a wrong case was tried in a new process
    _asked_alone: set[tuple[str, str]] = field(init=False, default_factory=set)

    def run_all(self) -> None:
        """Run all cases and checks; in one lane, in the order of problem.toml.

        Raises:
            KeyboardInterrupt: this process was asked to end. Results of ended cases are kept.
        """
        self.files.finish_looking()
        self.run.gauge.look_again()  # before any code of the student runs
        works: list[Work] = [*self.run.cases, *self.run.checks]
        works.sort(key=lambda work: self.run.assignments.index(work.assignment))
        if self.run.lane_count > 1:
            self._run_beside([one for one in works if one.shares_the_machine])
            works = [one for one in works if not one.shares_the_machine]
        for work in works:
            if not work.shares_the_machine and not self._is_stopped(work):
                self.lanes.finish()  # other workers change how much GPU memory is free, and so does a loading baseline
                self.workers.baselines.settle()
                needed_gib = work.case.memory_gib if isinstance(work, BoundCase) else None
                if self.run.device_name == "cuda" and self.run.free_gib() < (needed_gib or 0.0):
                    self.workers.end_idle()  # on a small GPU they hold memory that the case needs
            if self._may_run(work):
                self._keep(self.do(work))

    def do(self, work: Work, lane: int = 0) -> Done:
        """Run a case or check on the submission's worker of a lane."""
        evidence, place = Evidence(), self._place(work)
        try:
            self.run.emit(place.started)
            self.files.hangs.check(place)
            if isinstance(work, BoundCase) and work.case.is_combination:
                self.skip.check_combination(work)
            with self.hoarding.is_a_fault(work.assignment):
                if isinstance(work, BoundCheck):
                    work.function(properties=Properties(self.run, self.workers, self.comparison, work, lane))
                elif work.is_apart:
                    run_watched(self.run, self.files, self.workers, self.comparison, work, evidence)
                else:
                    worker = self.workers.worker(work.assignment, lane)
                    is_first = worker not in self._known
                    self._known.add(worker)
                    try:
                        self.call_grader.grade(work, worker, evidence)
                    except Fault as failed:
                        if failed.whose != "answer" or is_first or not self._is_right_alone(work):
                            raise
                        others = tuple(one for one in failed.details if "consistent with" not in one)
                        raise Fault.wrong(failed.message, (KEPT, *others), failed.map) from None
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self.files.hangs.note(place, error)
            clear_frames(error.__traceback__)  # frames may hold GPU memory
            return Done(work, error, evidence)
        return Done(work, None, evidence)

    def _is_right_alone(self, case: BoundCase) -> bool:
        """Whether a wrong case is right in a new process. Asked once for a part, as a process takes time to start."""
        if case.place.of_part in self._asked_alone or not case.shares_the_machine:
            return False
        self._asked_alone.add(case.place.of_part)
        try:
            with self.workers.beside(case.assignment, self.workers.kind_of(case.assignment), logged=False) as worker:
                self.call_grader.grade(case, worker, Evidence())
        except Fault as fault:
            if fault.whose == "machine" and not fault.of_start:
                raise
            return False
        return True

    def _run_beside(self, works: Sequence[Work]) -> None:
        """Run works in several lanes.

        Checks go first: each is as much work as several cases, and would keep one lane busy after the others have
        ended. Neighbouring cases do not run at once: their launches often compile alike, and a kernel that one lane has
        compiled is cached for the others.
        """
        to_run = [work for work in works if self._may_run(work)]
        if self.run.request.stop_early:
            self._run_until_one_fails(to_run)
            return
        checks = [one for one in to_run if isinstance(one, BoundCheck)]
        spread: list[Work] = [*checks]
        for combine in (False, True):  # which are not run where nothing that tries less is right
            cases = [one for one in to_run if isinstance(one, BoundCase) and one.case.is_combination == combine]
            step = max(1, len(cases) // self.run.lane_count)
            spread += [case for start in range(step) for case in cases[start::step]]
        try:
            for done in self.lanes.run(spread, self.do):
                self._keep(done)
        except KeyboardInterrupt:
            for done in self.lanes.done_already():
                # A crash is dropped: the signal that ended the judge may have ended the worker too.
                if not (isinstance(done.error, Fault) and done.error.outcome == "crashed"):
                    self._keep(done)
            raise

    def _run_until_one_fails(self, works: Sequence[Work]) -> None:
        """Run works in several lanes, and keep their results in the order of problem.toml, as one lane would: the first that
        does not pass stops its assignment, and what has run beside it counts for nothing.
        """
        left, ended = deque(works), dict[tuple[str, str, str], Done]()

        def do(work: Work, lane: int) -> Done:
            return Done(work, None, Evidence()) if self._is_stopped(work) else self.do(work, lane)

        for done in self.lanes.run(works, do):
            ended[done.work.place.key] = done
            while left and (left[0].place.key in ended or self._is_stopped(left[0])):
                work = left.popleft()
                if self._may_run(work):
                    self._keep(ended[work.place.key])
            if not left:
                break  # what still runs counts for nothing

    def _is_stopped(self, work: Work) -> bool:
        return work.assignment.name in self.results.stopped

    def _may_run(self, work: Work) -> bool:
        try:
            self.skip.check(work.place, work if isinstance(work, BoundCase) else None)
        except Exception as refusal:
            self.results.keep(self._place(work), refusal, Evidence(), is_check=isinstance(work, BoundCheck))
            return False
        return True

    def _keep(self, done: Done) -> None:
        work = done.work
        error = self.files.excused.get(work.place.of_part) or done.error
        if isinstance(work, BoundCase) and error is not None:
            self.compilation.drop(work)
        elif isinstance(work, BoundCase):
            try:
                self.compilation.start(work.assignment)  # not earlier: there is now something right to compile
                self.compilation.check(work)
            except Fault as found:
                error = found
        in_turn = self.run.request.stop_early and self.run.lane_count == 1
        is_wrong = isinstance(error, Fault) and error.whose == "answer"
        if in_turn and is_wrong and isinstance(work, BoundCase) and work.case.levels:
            done.evidence.pattern = self._pattern(work)
        self.results.keep(self._place(work), error, done.evidence, is_check=isinstance(work, BoundCheck))

    def _pattern(self, wrong: BoundCase) -> str:
        """On which levels the wrong answer of a case with a level hangs, from a few more cases of its part, which get no
        results; "" if they do not tell. Ends at a case that neither passes nor fails: its worker has crashed, say, or is slow.
        """
        of_part = wrong.place.of_part
        self._asked_alone.add(of_part)
        outcomes: dict[str, Outcome] = {one.name: one.outcome for one in self.results.of_part(wrong.place)}
        outcomes[wrong.name] = "failed"
        cases = {one.name: one for one in self.run.cases if one.place.of_part == of_part}
        for needed in needed_for_a_pattern(wrong.part, outcomes):
            case = cases[needed.name]
            outcomes[case.name] = "skipped"
            with suppress(Exception):  # with the reason why it is not run
                self.skip.check(case.place, case)
                error = self.do(case).error
                if error is not None and not (isinstance(error, Fault) and error.outcome == "failed"):
                    break
                outcomes[case.name] = "passed" if error is None else "failed"
        return pattern(wrong.part, outcomes)

    def _place(self, work: Work) -> ReportPlace:
        """The place of a case or check in the report, which tells what is smaller on the CPU."""
        place = work.place
        if self.run.device_name == "cpu" and isinstance(work, BoundCase) and work.case.cpu:
            return replace(place, tries=f"{place.tries}; smaller on the CPU")
        return place
