"""What the races of a grading share."""

from __future__ import annotations

from collections import Counter

from grader.judge.cases import BoundSpeedCase
from grader.judge.comparison import Comparison
from grader.judge.crew import Crew
from grader.judge.run import Run
from grader.problem import Call


class Track:
    """Where submissions are raced: the run, its workers, the oracle, and the inputs that no race has had yet."""

    def __init__(self, run: Run, crew: Crew, comparison: Comparison) -> None:
        self.run = run
        self.crew = crew
        self.comparison = comparison
        self._drawn: Counter[str] = Counter()

    def draw(self, case: BoundSpeedCase, count: int) -> list[Call]:
        """New inputs of a speed case, which no race of this grading has had: what one worker has met another may know."""
        first = self._drawn[case.id]
        self._drawn[case.id] += count
        return [case.inputs(self.run.seed, number, self.run.device) for number in range(first, first + count)]
