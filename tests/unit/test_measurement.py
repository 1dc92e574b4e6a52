"""The numbers of a race in the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.heats import work_of
from grader.problem import Cost
from grader.protocol import MATRIX
from grader.verdict.speed import Roofline


@pytest.mark.parametrize(
    ("roofline", "work"),
    [
        (Roofline("copy", its_work=800, case_work=1000), Cost(bytes_moved=800, flops=0)),
        (Roofline("matmul", 2 * MATRIX**3, 9), Cost(bytes_moved=3 * 2 * MATRIX**2, flops=2 * MATRIX**3)),
    ],
)
def test_a_yardsticks_rates_are_its_own(roofline: Roofline, work: Cost) -> None:
    of_case = Cost(bytes_moved=1000, flops=9)
    case: Any = SimpleNamespace(problem=SimpleNamespace(cost=lambda *_: of_case), params={}, dtype=None)
    assert work_of(roofline.contender, case, roofline) == work
    assert work_of("eager", case, roofline) == of_case
