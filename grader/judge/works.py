"""What is done for a case or a check: which worker is asked, and what is held against its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
