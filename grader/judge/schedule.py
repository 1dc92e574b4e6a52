"""The order of a grading: every case and property once, in one lane or in several; then what pytest runs, the other checks and the races.

A case is admitted or refused (`admission.py`), run in a worker of its lane (`lanes.py`, `trial.py`), and its result kept
(`results.py`). With several lanes, cases that share the machine run first, side by side; each case that needs much of the GPU's memory,
or measures it, runs alone after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from grader.contender.pool import GIB_PER_WORKER
from grader.contender.replies import ContenderFault
from grader.judge.admission import Admission
from grader.judge.cases import BoundCase, Place
from grader.judge.comparison import Comparison
from grader.judge.compilation import Compilation
from grader.judge.crew import Crew
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.lanes import Done, Lanes, Work
from grader.judge.properties import Properties
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.sanitizing import run_watched
from grader.judge.standing import Standing
from grader.judge.trial import Trials
from grader.problem import Params, Problem

GIB_PER_SPARE = 8.0  # of free GPU memory: a process there takes half a GiB


@dataclass(frozen=True)
class Works:
    """Makes the work of cases and checks.

    Attributes:
        problems: problem.py and its parameters' model, by assignment. Loaded once: what several lanes load at the same time none of
            them gets whole.
    """

    run: Run
    standing: Standing
    crew: Crew
    hoarding: Hoarding
    comparison: Comparison
    trials: Trials
    problems: dict[str, tuple[Problem, type[Params]]]

    def of_case(self, case: BoundCase) -> Work:
        """All calls of a case."""

        def run(lane: int, evidence: Evidence) -> None:
            with self.hoarding.is_a_fault(case.assignment):
                if case.case.tool is not None:
                    run_watched(self.run, self.standing, self.crew, self.comparison, case, evidence)
                    return
                contender = self.crew.worker(case.assignment, lane)
                if case.case.max_extra_mib is not None:
                    self.crew.settle()  # a worker that is starting takes GPU memory
                for number in range(case.case.calls):
                    self.trials.grade(case, contender, number, evidence)

        place = case.place
        if self.run.device_name == "cpu" and case.case.cpu:
            place = replace(place, tries=f"{place.tries}; smaller on the CPU")
        return Work(place, run, case, apart=case.case.tool is not None)

    def of_check(self, place: Place, function: Callable[..., None]) -> Work:
        """A check of an assignment's own that takes the fixture `properties` and nothing else."""

        def run(lane: int, _evidence: Evidence) -> None:
            with self.hoarding.is_a_fault(place.assignment):
                function(properties=self.properties(place, lane))

        return Work(place, run)

    def properties(self, place: Place, lane: int = 0) -> Properties:
        """Tries properties of a part's right answers on the submission's worker in a lane."""
        problem, model = self.problems[place.assignment.name]
        return Properties(self.run, self.crew, self.comparison, place, problem, model, lane)


@dataclass
class Schedule:
    """Runs the cases and properties of a grading, and keeps their results."""

    run: Run
    standing: Standing
    crew: Crew
    lanes: Lanes
    trials: Trials
    works: Works
    admission: Admission
    compilation: Compilation
    results: Results

    def run_all(self, checks: Sequence[Work], races: Sequence[Place]) -> None:
        """Run all cases and these checks, in the order of problem.toml on a CPU.

        Args:
            races: the speed cases that come after this.

        Raises:
            KeyboardInterrupt: this process is to end. Results of work that has ended are kept.
        """
        self.standing.finish_looking()
        self.run.gauge.look_again()  # before any of the student's code runs
        works = [*map(self.works.of_case, self.run.cases), *checks]
        works.sort(key=lambda work: self.run.assignments.index(work.place.assignment))
        if self.run.lane_count > 1:
            beside, alone = [one for one in works if _is_shared(one)], [one for one in works if not _is_shared(one)]
            self._run_beside(beside, lambda: self.prepare_races(races, alone))
            works = alone
        for work in works:
            if work.case is not None and not _is_shared(work):
                self._wait_for_others(work.case)
            if self._is_admitted(work):
                self._keep(self.lanes.run_here(work))

    def prepare_races(self, races: Sequence[Place], alone: Sequence[Work] = ()) -> None:
        """Start the submission's workers for these in the background, all at once: a worker that starts while another is timed disturbs.

        Each race on a GPU ends its worker. The cases of an assignment that run alone share one.
        """
        if self.run.device_name != "cuda" or self.run.lane_count < 2:
            return
        wanted: list[tuple[str, bool]] = []
        for assignment in self.run.assignments:
            if not self.standing.is_there(assignment.spec.file):
                continue
            own = [race.of_part for race in races if race.assignment is assignment]
            # Which of them the backward pass gets, nobody knows: where a part is wrong it is not timed.
            gradients = any(self.trials.gradients.get(part, True) for part in own)
            count = max(len(own), any(work.place.assignment is assignment for work in alone))
            wanted += [(assignment.name, gradients)] * count
        with suppress(RuntimeError, MemoryError):  # no GPU memory at this moment: workers start when they are asked for
            spares = max(1, int(self.run.free_gib() / GIB_PER_SPARE))
            self.crew.prepare_races(wanted[: min(self.run.lane_count, spares)])

    @property
    def starting_gib(self) -> float:
        """GPU memory that workers of the submission may take while they run or start."""
        return GIB_PER_WORKER * self.run.lane_count

    def _run_beside(self, works: Sequence[Work], then: Callable[[], None]) -> None:
        """Run works in several lanes.

        Each check is as much work as several cases: it would keep one lane busy when the others have ended, so checks go first. Launches
        of neighbouring cases are often compiled alike, and what one lane has compiled no other needs to: they do not run at once.
        """
        checks, cases = [one for one in works if one.case is None], [one for one in works if one.case is not None]
        step = max(1, len(cases) // self.run.lane_count)
        ordered = (*checks, *(case for start in range(step) for case in cases[start::step]))
        try:
            for done in self.lanes.run([work for work in ordered if self._is_admitted(work)], then):
                self._keep(done)
        except KeyboardInterrupt:
            for done in self.lanes.done_already():
                # No crash: the signal that ended this session may have ended the worker too.
                if not (isinstance(done.error, ContenderFault) and done.error.outcome == "crashed"):
                    self._keep(done)
            raise

    def _is_admitted(self, work: Work) -> bool:
        try:
            self.admission.check(work.place, work.case)
        except Exception as refusal:
            self.results.keep(work.place, refusal, Evidence(), is_check=work.case is None)
            return False
        return True

    def _keep(self, done: Done) -> None:
        work = done.work
        error = self.standing.excused.get(work.place.of_part) or done.error
        if work.case is not None:
            error = self._compiled(work.case, error)
        self.results.keep(work.place, error, done.evidence, is_check=work.case is None)

    def _compiled(self, case: BoundCase, error: BaseException | None) -> BaseException | None:
        """Where there is no GPU: what keeps the launches of a case that passed from being compiled for one."""
        if error is not None:
            self.compilation.drop(case)
            return error
        try:
            self.compilation.start(case.assignment)  # now that there is something right
            self.compilation.check(case)
        except (ContenderFault, CheckFailed) as found:
            return found
        return None

    def _wait_for_others(self, case: BoundCase) -> None:
        """Other workers change how much GPU memory is free, so wait for the lanes. Wait for starting workers too, unless memory is
        plentiful and this case measures none. On a small GPU idle workers end, when they take what the case needs.
        """
        self.lanes.finish()
        if self.run.device_name == "cuda":
            measured, needed_gib = case.case.max_extra_mib is not None, case.case.memory_gib or 0.0
            self.crew.settle(starts=measured or self.run.free_gib() < needed_gib + self.starting_gib)
            if self.run.free_gib() < needed_gib:
                self.crew.end_idle()


def _is_shared(work: Work) -> bool:
    return work.case is None or shares_the_machine(work.case)


def shares_the_machine(case: BoundCase) -> bool:
    """Whether other cases may run beside this one."""
    return case.case.memory_gib is None and case.case.max_extra_mib is None
