"""The check that every case of problem.toml gets."""

from __future__ import annotations

from grader.judge.cases import BoundCase
from grader.judge.compilation import Compilation
from grader.judge.evidence import Evidence
from grader.judge.lanes import Lanes


def test_correctness(lanes: Lanes, compilation: Compilation, case: BoundCase, evidence: Evidence) -> None:
    """Every output agrees with the float64 oracle within the case's error budget, and nothing else was touched."""
    try:
        lanes.run(case, evidence)
    except Exception:
        compilation.drop(case)
        raise
    compilation.start(case.assignment)  # now that there is something right
    compilation.check(case)
