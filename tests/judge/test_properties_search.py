"""What ends the search for an input that breaks a law, and what it needs before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from grader.assignment import load_course
from grader.judge import properties as module
from grader.judge.cases import BoundCheck
from grader.judge.properties import Properties, Trial
from grader.problem import Call, load_problem
from tests.conftest import ROOT

LENGTHS = st.integers(1, 70)


@pytest.fixture
def properties(monkeypatch: pytest.MonkeyPatch) -> Properties:
    """Of an assignment, on inputs that nobody is asked about."""
    assignment = next(one for one in load_course(ROOT) if one.name == "flash_attention")
    run: Any = SimpleNamespace(seed=1, device_name="cpu")
    workers: Any = SimpleNamespace(worker=lambda *_: None)
    nobody: Any = None
    nothing = {"inputs": Call({}), "conclude": lambda: None}
    monkeypatch.setattr(module, "Trial", lambda _properties, bound: SimpleNamespace(case=bound, **nothing))
    check = BoundCheck(assignment, assignment.spec.parts[0], "law", nobody, *load_problem(assignment))
    return Properties(run, workers, nobody, check)


def test_a_fault_of_the_graders_own_is_told_as_it_is_and_no_other_input_is_tried(properties: Properties) -> None:
    tried: list[Trial] = []

    def law(trial: Trial) -> None:
        tried.append(trial)
        raise KeyError("no such tensor")

    with pytest.raises(KeyError, match="no such tensor"):
        properties.hold(law, n=LENGTHS, d=st.just(16))
    assert len(tried) == 1


def test_so_is_one_before_the_law(properties: Properties, monkeypatch: pytest.MonkeyPatch) -> None:
    bind, failed = module.bind_params, []

    def once(*arguments: Any) -> Any:
        if not failed:
            failed.append(arguments)
            raise TypeError("the model is not fully defined")
        return bind(*arguments)

    monkeypatch.setattr(module, "bind_params", once)
    with pytest.raises(TypeError, match="not fully defined"):
        properties.hold(lambda _trial: None, n=LENGTHS, d=st.just(16))


def test_what_a_law_asserts_is_looked_for_in_smaller_inputs(properties: Properties) -> None:
    tried: list[int] = []

    def law(trial: Any) -> None:
        tried.append(trial.case.params.n)
        assert trial.case.params.n < 1, "too long"

    with pytest.raises(AssertionError, match="too long"):
        properties.hold(law, n=LENGTHS, d=st.just(16))
    assert min(tried) == 1
