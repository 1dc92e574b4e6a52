"""The track, which all races of a grading share, and the lineup: the contenders of one race."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from grader.contender.contender import CallLimits, Contender
from grader.job import CaseNote
from grader.judge.baselines import LIMITS as BASELINE_LIMITS
from grader.judge.baselines import NULL
from grader.judge.cases import BoundSpeedCase
from grader.judge.comparison import Comparison
from grader.judge.crew import Crew
from grader.judge.evidence import CaseRefused
from grader.judge.run import Run
from grader.problem import Call
from grader.verdict.speed import SUBMISSION


@dataclass
class Track:
    """The run, the crew, the comparison and the numbers of drawn inputs, which all races of a grading share."""

    run: Run
    crew: Crew
    comparison: Comparison
    _drawn: Counter[str] = field(init=False, default_factory=Counter)

    def note(self, text: str) -> None:
        """Tell the student how far the race is."""
        self.run.emit(CaseNote(text=text))

    def draw(self, case: BoundSpeedCase, count: int) -> list[Call]:
        """New inputs of a speed case. No race of the grading has used them: a worker could know inputs of an earlier
        race.
        """
        first = self._drawn[case.id]
        self._drawn[case.id] += count
        return [case.inputs(self.run.seed, number, self.run.device) for number in range(first, first + count)]


@dataclass(frozen=True)
class Runner:
    """One contender in a race, with its limits."""

    name: str
    contender: Contender
    limits: CallLimits


class Lineup:
    """The contenders of one race: the submission, whose worker is loaded and frozen, and the others, each in a worker
    of its own.

    Attributes:
        others: the baselines and yardsticks.
        left_out: why contenders are missing that no band needs.

    Raises:
        CaseRefused: a contender that a band or the roofline needs cannot be loaded.
    """

    def __init__(self, track: Track, case: BoundSpeedCase, submission: Contender) -> None:
        self._case = case
        self.left_out: list[str] = []
        track.crew.settle()
        submission.freeze()  # until its turn
        limits = case.assignment.spec.limits
        own = CallLimits(limits.time_limit_s[track.run.device_name], limits.memory_gib)
        self.submission = Runner(SUBMISSION, submission, own)
        self.others: list[Runner] = []
        for name in case.contenders(everyone=track.run.job.contenders == "all"):
            with self.may_leave_out(name):
                self.others.append(Runner(name, track.crew.baselines.contender(name, case), BASELINE_LIMITS))
        self.null = Runner(NULL, track.crew.baselines.contender(NULL, case), BASELINE_LIMITS)

    @contextmanager
    def may_leave_out(self, name: str) -> Iterator[None]:
        """Leave a contender out that fails in this block, unless a verdict needs it: this GPU may lack, say, a vendor's
        kernel.
        """
        try:
            yield
        except CaseRefused as refused:
            if name in (NULL, self._case.speed.roofline, *self._case.opponents):
                raise
            self.left_out.append(f"left out: {refused}")

    def order(self, number: int) -> list[Runner]:
        """The contenders in the order of round `number`. The order rotates, but the null contender always runs just
        before the submission, because the judge's time is their difference.
        """
        ring = [[runner] for runner in self.others] + [[self.null, self.submission]]
        turn = number % len(ring)
        return [runner for group in ring[turn:] + ring[:turn] for runner in group]
