"""The check that every case of problem.toml gets."""

from __future__ import annotations

from grader.contender.contender import Contender
from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence
from grader.judge.state import Judge
from grader.judge.trial import run_trial


def test_correctness(judge: Judge, case: BoundCase, contender: Contender, evidence: Evidence) -> None:
    """Every output agrees with the float64 oracle within the case's error budget, and nothing else was touched."""
    for number in range(case.case.calls):
        run_trial(judge, case, contender, number, evidence)
