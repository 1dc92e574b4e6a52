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
from grader.judge.cases import BoundCase
from grader.judge.compilation import Compilation
from grader.judge.crew import Crew
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.lanes import Done, Lanes, Work
from grader.judge.results import Results
from grader.judge.run import Run
from grader.judge.standing import Standing
from grader.judge.trial import Trials
from grader.judge.works import PropertyCheck, Works

GIB_PER_SPARE = 8.0  # of free GPU memory: a process there takes half a GiB


@dataclass(frozen=True)
class Race:
    """A speed case to come: workers for races are started before they are asked for."""

    assignment: str
    part: str


class Schedule:
    """Runs the cases and properties of a grading, and keeps their results."""

    def __init__(
        self,
        run: Run,
        standing: Standing,
        crew: Crew,
        lanes: Lanes,
        trials: Trials,
        works: Works,
        assignments: Sequence[Assignment],
        cases: Sequence[BoundCase],
        admission: Admission,
        compilation: Compilation,
        results: Results,
    ) -> None:
        self._run = run
        self._standing = standing
        self._crew = crew
        self._lanes = lanes
        self._trials = trials
        self._works = works
        self._assignments = {one.name: one for one in assignments}
        self._cases = cases
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
        self._standing.finish_looking()
        self._run.gauge.look_again()  # before any of the student's code runs
        works = [*map(self._works.of_case, self._cases), *map(self._works.of_check, checks)]
        order = list(self._assignments)
        works.sort(key=lambda work: order.index(work.place.assignment))
        if self._run.lane_count > 1:
            beside, alone = [one for one in works if _is_shared(one)], [one for one in works if not _is_shared(one)]
            self._run_beside(beside, lambda: self.prepare_races(races, alone))
            works = alone
        for work in works:
            if work.case is not None and not _is_shared(work):
                self._wait_for_others(work.case)
            if self._is_admitted(work):
                self._keep(self._lanes.run_here(work))

    def prepare_races(self, races: Sequence[Race], alone: Sequence[Work] = ()) -> None:
        """Start the submission's workers for these in the background, all at once: a worker that starts while another is timed disturbs.

        Each race on a GPU ends its worker. The cases of an assignment that run alone share one.
        """
        if self._run.device_name != "cuda" or self._run.lane_count < 2:
            return
        wanted: list[tuple[str, bool]] = []
        for name, assignment in self._assignments.items():
            if not self._standing.is_there(assignment.spec.file):
                continue
            parts = [race.part for race in races if race.assignment == name]
            # Which of them the backward pass gets, nobody knows: where a part is wrong it is not timed.
            gradients = any(self._trials.gradients.get((name, part), True) for part in parts)
            wanted += [(name, gradients)] * max(len(parts), any(work.place.assignment == name for work in alone))
        with suppress(RuntimeError, MemoryError):  # no GPU memory at this moment: workers start when they are asked for
            spares = max(1, int(self._run.free_gib() / GIB_PER_SPARE))
            self._crew.prepare_races(wanted[: min(self._run.lane_count, spares)])

    @property
    def starting_gib(self) -> float:
        """GPU memory that workers of the submission may take who run or start beside something else."""
        return GIB_PER_WORKER * self._run.lane_count

    def _run_beside(self, works: Sequence[Work], then: Callable[[], None]) -> None:
        """Run works in several lanes.

        The checks first: each is as much work as several cases, and would keep one lane busy when the others have ended. Of the cases
        never neighbours at once: their launches are often compiled alike, and what one lane has compiled no other needs to.
        """
        checks, cases = [one for one in works if one.case is None], [one for one in works if one.case is not None]
        step = max(1, len(cases) // self._run.lane_count)
        ordered = (*checks, *(case for start in range(step) for case in cases[start::step]))
        try:
            for done in self._lanes.run([work for work in ordered if self._is_admitted(work)], then):
                self._keep(done)
        except KeyboardInterrupt:
            for done in self._lanes.done_already():
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
            self._standing.excused.get((done.work.place.assignment, done.work.place.part)) or done.error,
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
        self._lanes.finish()
        if self._run.device_name == "cuda":
            measured, needed_gib = case.case.max_extra_mib is not None, case.case.memory_gib or 0.0
            self._crew.settle(starts=measured or self._run.free_gib() < needed_gib + self.starting_gib)
            if self._run.free_gib() < needed_gib:
                self._crew.end_idle()


def _is_shared(work: Work) -> bool:
    """Whether other work may run beside this one."""
    return work.case is None or shares_the_machine(work.case)


def shares_the_machine(case: BoundCase) -> bool:
    """Whether other cases may run beside this one."""
    return case.case.memory_gib is None and case.case.max_extra_mib is None
