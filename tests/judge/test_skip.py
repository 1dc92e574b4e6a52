"""A combination is not run where nothing that tries less is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.assignment import Case
from grader.judge.cases import BoundCase
from grader.judge.skip import ENOUGH_WRONG, SkipReasons
from grader.pool.fault import Fault
from grader.report.model import NOT_COMBINED, CaseResult, Outcome

ALONE = [Case(name=f"n-{number}", tries="tries it") for number in range(ENOUGH_WRONG)]
TRIVIAL = Case(name="n-none", tries="tries it", degenerate="no elements")
BOTH = Case(name="pair-1", tries="tries both", levels={"n": "n-1", "dtype": "float16"})


def refusal(ended: dict[str, Outcome]) -> str:
    nobody: Any = None
    part: Any = SimpleNamespace(name="p", cases=[*ALONE, TRIVIAL, BOTH])
    assignment: Any = SimpleNamespace(name="a")
    results = [CaseResult(name=name, tries="", outcome=outcome, message="told") for name, outcome in ended.items()]
    kept: Any = SimpleNamespace(of_part=lambda _: results)
    try:
        SkipReasons(nobody, nobody, nobody, nobody, kept).check_combination(
            BoundCase(assignment, nobody, part, BOTH, nobody)
        )
    except Fault as fault:
        return f"{fault.outcome}: {fault.message}"
    return ""


@pytest.mark.parametrize("outcome", ["failed", "crashed", "out_of_memory"])
def test_a_combination_of_what_is_all_wrong_is_not_run(outcome: Outcome) -> None:
    wrong: dict[str, Outcome] = {one.name: outcome for one in ALONE}
    assert refusal(wrong) == f"skipped: {NOT_COMBINED}"
    assert (
        refusal(wrong | {"n-none": "passed", "pair-2": "passed"}) == f"skipped: {NOT_COMBINED}"
    )  # neither tells that values are right
    assert refusal(wrong | {"n-3": "passed"}) == ""
    assert refusal(wrong | {"n-3": "skipped"}) == ""  # too few have ended
