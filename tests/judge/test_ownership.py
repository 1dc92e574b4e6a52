"""A call whose record of operators is full is forbidden: nobody can tell what ran after it."""

from __future__ import annotations

import pytest

from grader.assignment import load_course
from grader.judge.ownership import check_operators
from grader.pool.fault import Fault
from grader.protocol import MAX_OPERATORS, RanOperator
from tests.conftest import ROOT

(SOFTMAX,) = load_course(ROOT, ["softmax"])


def test_a_full_record_of_harmless_operators_is_forbidden_and_one_less_is_not() -> None:
    harmless = [RanOperator("empty", "")] * MAX_OPERATORS
    check_operators(harmless[1:], SOFTMAX)
    with pytest.raises(Fault, match="nobody can tell what else ran") as raised:
        check_operators(harmless, SOFTMAX)
    assert raised.value.outcome == "forbidden"
