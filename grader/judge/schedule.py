"""The order of a grading: every case and property once, in one lane or in several; then what pytest runs, the other checks and the races.

A case is admitted or refused (`admission.py`), run in a worker of its lane (`lanes.py`, `trial.py`), and its result kept
(`results.py`). With several lanes, cases that share the machine run first, side by side; each case that needs much of the GPU's memory,
or measures it, runs alone after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from grader.assignment import Assignment
from grader.contender.pool import GIB_PER_WORKER
from grader.contender.replies import ContenderFault
from grader.judge.admission import Admission
from grader.judge.cases import BoundCase, Place
from grader.judge.compilation import Compilation
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.lanes import Done, Work
from grader.judge.memory import hoarding_is_a_fault
from grader.judge.properties import Properties
from grader.judge.results import Results
from grader.judge.sanitizing import run_watched
from grader.judge.state import Judge
from grader.judge.trial import run_trial
from grader.problem import Params, Problem

GIB_PER_SPARE = 8.0  # of free GPU memory: a process there takes half a GiB


@dataclass(frozen=True)
class PropertyCheck:
    """A check of an assignment's own that takes the fixture `properties` and nothing else."""

    place: Place
    function: Callable[..., None]


@dataclass(frozen=True)
class Race:
    """A speed case to come: workers for races are started before they are asked for."""

    assignment: str
    part: str


class Schedule:
    """Runs the cases and properties of a grading, and keeps their results.

    Args:
        problems: problem.py and its parameters' model, by assignment. Loaded once: what several lanes load at the same time none of
            them gets whole.
    """

    def __init__(
        self,
        judge: Judge,
        assignments: Sequence[Assignment],
        cases: Sequence[BoundCase],
        problems: dict[str, tuple[Problem, type[Params]]],
        admission: Admission,
        compilation: Compilation,
        results: Results,
    ) -> None:
        self._judge = judge
        self._assignments = {one.name: one for one in assignments}
        self._cases = cases
        self._problems = problems
        self._admission = admission
        self._compilation = compilation
        self._results = results

    def run(self, checks: Sequence[PropertyCheck], races: Sequence[Race]) -> None:
        """Run everything, in the order of problem.toml on a CPU.

        Args:
            races: that come after this.

        Raises:
            KeyboardInterrupt: this process is to end. Results of work that has ended are kept.
        """
        self._judge.finish_looking()
        self._judge.gauge.look_again()  # before any of the student's code runs
        works = [*(case_work(self._judge, case) for case in self._cases), *map(self._check_work, checks)]
        order = list(self._assignments)
        works.sort(key=lambda work: order.index(work.place.assignment))
        if self._judge.lane_count > 1:
            beside, alone = [one for one in works if _is_shared(one)], [one for one in works if not _is_shared(one)]
            self._run_beside(beside, lambda: self.prepare_races(races, alone))
            works = alone
        for work in works:
            if work.case is not None and not _is_shared(work):
                self._wait_for_others(work.case)
            if self._is_admitted(work):
                self._keep(self._judge.lanes.run_here(work))

    def properties(self, place: Place, lane: int = 0) -> Properties:
        """Tries properties of a part's right answers on the submission's worker in a lane."""
        assignment = self._assignments[place.assignment]
        problem, model = self._problems[assignment.name]
        part = next(part for part in assignment.spec.parts if part.name == place.part)
        return Properties(self._judge, assignment, problem, model, part, place.name, lane)

    def prepare_races(self, races: Sequence[Race], alone: Sequence[Work] = ()) -> None:
        """Start the submission's workers for these in the background, all at once: a worker that starts while another is timed disturbs.

        Each race on a GPU ends its worker. The cases of an assignment that run alone share one.
        """
        if self._judge.device_name != "cuda" or self._judge.lane_count < 2:
            return
        wanted: list[tuple[str, bool]] = []
        for name, assignment in self._assignments.items():
            if not self._judge.is_there(assignment.spec.file):
                continue
            parts = [race.part for race in races if race.assignment == name]
            # Which of them the backward pass gets, nobody knows: where a part is wrong it is not timed.
            gradients = any(self._judge.gradients.get((name, part), True) for part in parts)
            wanted += [(name, gradients)] * max(len(parts), any(work.place.assignment == name for work in alone))
        with suppress(RuntimeError, MemoryError):  # no GPU memory at this moment: workers start when they are asked for
            spares = max(1, int(self._judge.free_gib() / GIB_PER_SPARE))
            self._judge.prepare_races(wanted[: min(self._judge.lane_count, spares)])

    @property
    def starting_gib(self) -> float:
        """GPU memory that workers of the submission may take who run or start beside something else."""
        return GIB_PER_WORKER * self._judge.lane_count

    def _run_beside(self, works: Sequence[Work], then: Callable[[], None]) -> None:
        """Run works in several lanes.

        The checks first: each is as much work as several cases, and would keep one lane busy when the others have ended. Of the cases
        never neighbours at once: their launches are often compiled alike, and what one lane has compiled no other needs to.
        """
        checks, cases = [one for one in works if one.case is None], [one for one in works if one.case is not None]
        step = max(1, len(cases) // self._judge.lane_count)
        ordered = (*checks, *(case for start in range(step) for case in cases[start::step]))
        lanes = self._judge.lanes
        try:
            for done in lanes.run([work for work in ordered if self._is_admitted(work)], then):
                self._keep(done)
        except KeyboardInterrupt:
            for done in lanes.done_already():
                # No crash: the signal that ended this session may have ended the worker too.
                if not (isinstance(done.error, ContenderFault) and done.error.outcome == "crashed"):
                    self._keep(done)
            raise

    def _is_admitted(self, work: Work) -> bool:
        """Whether a work is to be run. The result of a refused one is kept."""
        try:
            self._admission.check(work.place, work.case)
        except Exception as refusal:
            self._results.keep(work.place, refusal, Evidence(), is_check=work.case is None)
            return False
        return True

    def _keep(self, done: Done) -> None:
        work, error = (
            done.work,
            self._judge.excused.get((done.work.place.assignment, done.work.place.part)) or done.error,
        )
        if work.case is not None:
            error = self._compiled(work.case, error)
        self._results.keep(work.place, error, done.evidence, is_check=work.case is None)

    def _compiled(self, case: BoundCase, error: BaseException | None) -> BaseException | None:
        """Where there is no GPU: what keeps the launches of a case that passed from being compiled for one."""
        if error is not None:
            self._compilation.drop(case)
            return error
        try:
            self._compilation.start(case.assignment)  # now that there is something right
            self._compilation.check(case)
        except (ContenderFault, CheckFailed) as found:
            return found
        return None

    def _wait_for_others(self, case: BoundCase) -> None:
        """Other workers change how much GPU memory is free, so wait for the lanes. Wait for starting workers too, unless memory is
        plentiful and this case measures none. On a small GPU idle workers end, when they take what the case needs.
        """
        self._judge.lanes.finish()
        if self._judge.device_name == "cuda":
            measured, needed_gib = case.case.max_extra_mib is not None, case.case.memory_gib or 0.0
            self._judge.settle(starts=measured or self._judge.free_gib() < needed_gib + self.starting_gib)
            if self._judge.free_gib() < needed_gib:
                self._judge.end_idle_workers()

    def _check_work(self, check: PropertyCheck) -> Work:
        assignment = self._assignments[check.place.assignment]

        def run(lane: int, _evidence: Evidence) -> None:
            with hoarding_is_a_fault(self._judge, assignment):
                check.function(properties=self.properties(check.place, lane))

        return Work(check.place, assignment, run)


def case_work(judge: Judge, case: BoundCase) -> Work:
    """All calls of a case."""

    def run(lane: int, evidence: Evidence) -> None:
        if case.case.tool is not None:
            with hoarding_is_a_fault(judge, case.assignment):
                run_watched(judge, case, evidence)
            return
        with hoarding_is_a_fault(judge, case.assignment):
            contender = judge.contender(case.assignment, lane=lane)
            if case.case.max_extra_mib is not None:
                judge.settle()  # a worker that is starting takes GPU memory
            for number in range(case.case.calls):
                run_trial(judge, case, contender, number, evidence)

    smaller = judge.device_name == "cpu" and case.case.cpu
    tries = f"{case.case.tries}; smaller on the CPU" if smaller else case.case.tries
    place = Place(case.assignment.name, case.part.name, case.name, tries)
    return Work(place, case.assignment, run, case, apart=case.case.tool is not None)


def _is_shared(work: Work) -> bool:
    """Whether other work may run beside this one."""
    return work.case is None or shares_the_machine(work.case)


def shares_the_machine(case: BoundCase) -> bool:
    """Whether other cases may run beside this one."""
    return case.case.memory_gib is None and case.case.max_extra_mib is None
