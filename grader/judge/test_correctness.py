"""The check that every case of problem.toml gets."""

from __future__ import annotations

from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence
from grader.judge.lanes import Lanes


def test_correctness(lanes: Lanes, case: BoundCase, evidence: Evidence) -> None:
    """Every output agrees with the float64 oracle within the case's error budget, and nothing else was touched."""
    lanes.run(case, evidence)
