"""The order of a grading: every case and check once, in one lane or in several. Speed cases follow (`plugin.py`).

For each case, `skip.py` admits or refuses it, `lanes.py` and `trial.py` run it, and `results.py` keeps its result.
With several lanes, cases that share the machine run first, side by side. A case that needs much GPU memory, or measures
it, runs alone after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
from grader.judge.trial import Trials
from grader.judge.workers import Workers
from grader.pool.fault import Fault
from grader.pool.pool import GIB_PER_WORKER
from grader.pool.worker import Worker
from grader.problem import Params, Problem

KEPT = (
    "the same case is right in a new process, without the cases before it: consistent with something that is kept from one call to the "
    "next, as a launch, a grid or a buffer that is kept by shape, or by less, although more decides about it"
)


@dataclass(frozen=True)
class Works:
    """Makes a `Work` of a case or a check.

    Attributes:
        problems: problem.py and its parameters' model, by assignment name. Loaded before the lanes start, because lanes
            that import one module at the same time may see half of it.
        known: the workers that have had a case.
        asked_alone: the parts, by assignment and part name, of which a wrong case was tried in a new process.
    """

    run: Run
    files: Files
    workers: Workers
    hoarding: Hoarding
    comparison: Comparison
    trials: Trials
    problems: dict[str, tuple[Problem, type[Params]]]
    known: set[Worker] = field(default_factory=set)
    asked_alone: set[tuple[str, str]] = field(default_factory=set)

    def of_case(self, case: BoundCase) -> Work:
        """The work of all calls of a case."""

        def run(lane: int, evidence: Evidence) -> None:
            with self.hoarding.is_a_fault(case.assignment):
                if case.case.tool is not None:
                    run_watched(self.run, self.files, self.workers, self.comparison, case, evidence)
                    return
                worker = self.workers.worker(case.assignment, lane)
                if case.case.max_extra_mib is not None:
                    self.workers.settle()  # a starting worker takes GPU memory
                is_first = worker not in self.known
                self.known.add(worker)
                try:
                    self._grade(case, worker, evidence)
                except Fault as failed:
                    if failed.whose == "answer" and not is_first and self._is_right_alone(case):
                        others = tuple(one for one in failed.details if "consistent with" not in one)
                        raise Fault.wrong(failed.message, (KEPT, *others), failed.map) from None
                    raise

        place = case.place
        if self.run.device_name == "cpu" and case.case.cpu:
            place = replace(place, tries=f"{place.tries}; smaller on the CPU")
        return Work(place, run, case, apart=case.case.tool is not None)

    def _grade(self, case: BoundCase, worker: Worker, evidence: Evidence) -> None:
        for number in range(case.case.calls):
            self.trials.grade(case, worker, number, evidence)

    def _is_right_alone(self, case: BoundCase) -> bool:
        """Whether a wrong case is right in a new process. Asked once for a part, as a process takes seconds to start."""
        if case.place.of_part in self.asked_alone or not shares_the_machine(case):
            return False
        self.asked_alone.add(case.place.of_part)
        try:
            worker = self.workers.beside(case.assignment, self.workers.kind_of(case.assignment), logged=False)
            try:
                self._grade(case, worker, Evidence())
            finally:
                worker.kill()
        except Fault as fault:
            if fault.whose == "machine" and not fault.of_start:
                raise
            return False
        return True

    def of_check(self, check: BoundCheck) -> Work:
        """The work of a check of the assignment's own."""

        def run(lane: int, _evidence: Evidence) -> None:
            with self.hoarding.is_a_fault(check.assignment):
                check.function(properties=self.properties(check.place, lane))

        return Work(check.place, run)

    def properties(self, place: ReportPlace, lane: int = 0) -> Properties:
        """Properties of a part, to be tried on the submission's worker in a lane."""
        problem, model = self.problems[place.assignment.name]
        return Properties(self.run, self.workers, self.comparison, place, problem, model, lane)


@dataclass
class Schedule:
    """Runs the cases and properties of a grading, and keeps their results."""

    run: Run
    files: Files
    workers: Workers
    lanes: Lanes
    works: Works
    skip: SkipReasons
    compilation: Compilation
    results: Results

    def run_all(self, checks: Sequence[Work]) -> None:
        """Run all cases and these checks; in one lane, in the order of problem.toml.

        Raises:
            KeyboardInterrupt: this process was asked to end. Results of ended works are kept.
        """
        self.files.finish_looking()
        self.run.gauge.look_again()  # before any code of the student runs
        works = [*map(self.works.of_case, self.run.cases), *checks]
        works.sort(key=lambda work: self.run.assignments.index(work.place.assignment))
        if self.run.lane_count > 1:
            beside, alone = [one for one in works if _is_shared(one)], [one for one in works if not _is_shared(one)]
            self._run_beside(beside)
            works = alone
        for work in works:
            if work.case is not None and not _is_shared(work):
                self._wait_for_others(work.case)
            if self._is_admitted(work):
                self._keep(self.lanes.run_here(work))

    @property
    def starting_gib(self) -> float:
        """GPU memory in GiB that starting and running workers of the submission may take."""
        return GIB_PER_WORKER * self.run.lane_count

    def _run_beside(self, works: Sequence[Work]) -> None:
        """Run works in several lanes.

        Checks go first: each is as much work as several cases, and would keep one lane busy after the others have
        ended. Neighbouring cases do not run at once: their launches often compile alike, and a kernel that one lane has
        compiled is cached for the others.
        """
        admitted = [work for work in works if self._is_admitted(work)]
        if self.run.request.stop_early:
            self._run_until_one_fails(admitted)
            return
        checks = [one for one in admitted if one.case is None]
        cases = [one for one in admitted if one.case is not None]
        step = max(1, len(cases) // self.run.lane_count)
        try:
            for done in self.lanes.run([*checks, *(case for start in range(step) for case in cases[start::step])]):
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
        left, ended = list(works), dict[tuple[str, ...], Done]()
        for done in self.lanes.run(works):
            ended[done.work.place.key] = done
            while left and left[0].place.key in ended:
                following = ended.pop(left.pop(0).place.key)
                if self._is_admitted(following.work):
                    self._keep(following)
                    if following.work.place.assignment.name in self.results.stopped:
                        self.lanes.drop(following.work.place.assignment)

    def _is_admitted(self, work: Work) -> bool:
        try:
            self.skip.check(work.place, work.case)
        except Exception as refusal:
            self.results.keep(work.place, refusal, Evidence(), is_check=work.case is None)
            return False
        return True

    def _keep(self, done: Done) -> None:
        work = done.work
        error = self.files.excused.get(work.place.of_part) or done.error
        if work.case is not None:
            error = self._compiled(work.case, error)
        self.results.keep(work.place, error, done.evidence, is_check=work.case is None)

    def _compiled(self, case: BoundCase, error: BaseException | None) -> BaseException | None:
        """The case's error, or without a GPU the reason why a launch of a passed case does not compile for one."""
        if error is not None:
            self.compilation.drop(case)
            return error
        try:
            self.compilation.start(case.assignment)  # not earlier: there is now something right to compile
            self.compilation.check(case)
        except Fault as found:
            return found
        return None

    def _wait_for_others(self, case: BoundCase) -> None:
        """Wait for the lanes and for loading baselines, because other workers change how much GPU memory is free. On a
        small GPU, end idle workers that hold memory the case needs.
        """
        self.lanes.finish()
        if self.run.device_name == "cuda":
            self.workers.settle()
            if self.run.free_gib() < (case.case.memory_gib or 0.0):
                self.workers.end_idle()


def _is_shared(work: Work) -> bool:
    return work.case is None or shares_the_machine(work.case)


def shares_the_machine(case: BoundCase) -> bool:
    """Whether the case may run beside other cases."""
    return case.case.memory_gib is None and case.case.max_extra_mib is None
