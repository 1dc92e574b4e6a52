"""The check that every case of problem.toml gets."""

from __future__ import annotations

import pytest

from grader.judge.cases import BoundCase
from grader.judge.compilation import Compilation
from grader.judge.evidence import Evidence
from grader.judge.lanes import case_work
from grader.judge.state import Judge


@pytest.mark.usefixtures("allowed")
def test_correctness(judge: Judge, compilation: Compilation, case: BoundCase, evidence: Evidence) -> None:
    """Every output agrees with the float64 oracle within the case's error budget, and nothing else was touched."""
    try:
        judge.lanes.run(case_work(judge, case), evidence)
    except Exception:
        compilation.drop(case)
        raise
    compilation.start(case.assignment)  # now that there is something right
    compilation.check(case)
