"""What is done for a case or a check: which worker is asked, and what is held against its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader.assignment import Assignment
from grader.judge.cases import BoundCase, Place
from grader.judge.comparison import Comparison
from grader.judge.crew import Crew
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.lanes import Work
from grader.judge.properties import Properties
from grader.judge.run import Run
from grader.judge.sanitizing import run_watched
from grader.judge.standing import Standing
from grader.judge.trial import Trials
from grader.problem import Params, Problem


@dataclass(frozen=True)
class PropertyCheck:
    """A check of an assignment's own that takes the fixture `properties` and nothing else."""

    place: Place
    function: Callable[..., None]


class Works:
    """Makes the work of cases and checks.

    Args:
        problems: problem.py and its parameters' model, by assignment. Loaded once: what several lanes load at the same time none of
            them gets whole.
    """

    def __init__(
        self,
        run: Run,
        standing: Standing,
        crew: Crew,
        hoarding: Hoarding,
        comparison: Comparison,
        trials: Trials,
        assignments: Sequence[Assignment],
        problems: dict[str, tuple[Problem, type[Params]]],
    ) -> None:
        self._run = run
        self._standing = standing
        self._crew = crew
        self._hoarding = hoarding
        self._comparison = comparison
        self._trials = trials
        self._assignments = {one.name: one for one in assignments}
        self._problems = problems

    def of_case(self, case: BoundCase) -> Work:
        """All calls of a case."""

        def run(lane: int, evidence: Evidence) -> None:
            with self._hoarding.is_a_fault(case.assignment):
                if case.case.tool is not None:
                    run_watched(self._run, self._standing, self._crew, self._comparison, case, evidence)
                    return
                contender = self._crew.worker(case.assignment, lane)
                if case.case.max_extra_mib is not None:
                    self._crew.settle()  # a worker that is starting takes GPU memory
                for number in range(case.case.calls):
                    self._trials.run(case, contender, number, evidence)

        smaller = self._run.device_name == "cpu" and case.case.cpu
        tries = f"{case.case.tries}; smaller on the CPU" if smaller else case.case.tries
        place = Place(case.assignment.name, case.part.name, case.name, tries)
        return Work(place, case.assignment, run, case, apart=case.case.tool is not None)

    def of_check(self, check: PropertyCheck) -> Work:
        """A check of an assignment's own."""
        assignment = self._assignments[check.place.assignment]

        def run(lane: int, _evidence: Evidence) -> None:
            with self._hoarding.is_a_fault(assignment):
                check.function(properties=self.properties(check.place, lane))

        return Work(check.place, assignment, run)

    def properties(self, place: Place, lane: int = 0) -> Properties:
        """Tries properties of a part's right answers on the submission's worker in a lane."""
        assignment = self._assignments[place.assignment]
        problem, model = self._problems[assignment.name]
        part = next(part for part in assignment.spec.parts if part.name == place.part)
        return Properties(
            self._run, self._crew, self._comparison, assignment, problem, model, part, place.name, place.title, lane
        )
