"""A map of a wrong output comes through to the result of its case, whichever way the case has asked for the output."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.judge import calls, properties
from grader.judge.asking import check_memory
from grader.judge.calls import CallGrader
from grader.judge.evidence import Evidence
from grader.pool.arena import OutOfBounds
from grader.pool.fault import Fault
from tests.repository.test_budget_claims import CASES, comparison
from tests.verdict.test_causes import TELLING

CASE = CASES["softmax-softmax-3x1000"]
TOGETHER = next(case for case in CASES.values() if case.case.together > 1 and "cpu" in case.case.devices)
CPU = torch.device("cpu")
RUN: Any = SimpleNamespace(device_name="cpu", device=CPU, seed=1, emit=lambda _: None)
NOBODY: Any = None
Answers = Callable[..., list[dict[str, torch.Tensor]]]


class Refusing:
    """A comparison that finds every output wrong."""

    def compare(self, *_: Any, **__: Any) -> None:
        raise Fault.wrong("y is wrong", ("why",), TELLING)


def failure(monkeypatch: pytest.MonkeyPatch, case: Any, answers: Answers, compared: Any) -> Fault:
    monkeypatch.setattr(calls, "answers", answers)
    with pytest.raises(Fault) as failed:
        CallGrader(RUN, NOBODY, compared).grade(case, NOBODY, Evidence())
    return failed.value


@pytest.mark.parametrize(("neighbour", "has_map"), [("y", True), ("x", False)])
def test_what_was_written_beside_an_output_is_on_its_map(
    monkeypatch: pytest.MonkeyPatch, neighbour: str, has_map: bool
) -> None:
    got = {"y": torch.softmax(CASE.inputs(1, 0, CPU).args["x"], -1)}
    got["y"][2, 900:] = 7.0

    def wrote_outside(*_: Any, **__: Any) -> Any:
        check_memory([], [OutOfBounds(neighbour, 0, 24, tuple(range(24)))], torch.float32, got)

    failed = failure(monkeypatch, CASE, wrote_outside, comparison(CASE.problem.baseline))
    assert failed.message.startswith(f"wrote 24 elements past the end of {neighbour}")
    assert failed.outside is None, "the outputs are not kept"
    assert (failed.map is not None) == has_map
    if failed.map is not None:
        assert failed.map.after.rstrip() == "ooo", "24 elements in cells of 8"
        assert failed.map.cells[0] == "." * 125
        assert failed.map.cells[2].startswith("." * 112)
        assert set(failed.map.cells[2][113:]) <= set("123456789")


def test_calls_made_together_keep_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(_run: Any, case: Any, _worker: Any, calls: Any, *_: Any, **__: Any) -> Any:
        return [case.problem.baseline(call) for call in calls]

    failed = failure(monkeypatch, TOGETHER, answers, Refusing())
    assert failed.message.startswith("of call 1")
    assert failed.map == TELLING


@pytest.mark.parametrize("alone", [True, False])
def test_other_calls_are_named_as_a_cause_where_a_call_is_right_alone(
    monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    def answers(_run: Any, case: Any, _worker: Any, calls: Any, *_: Any, **__: Any) -> Any:
        got = [case.problem.baseline(call) for call in calls]
        if len(calls) > 1 or not alone:
            got[0] = {name: torch.zeros_like(one) for name, one in got[0].items()}
        return got

    failed = failure(monkeypatch, TOGETHER, answers, comparison(TOGETHER.problem.baseline))
    assert any("made alone, this call is right: consistent with" in line for line in failed.details) == alone


def test_the_oracle_computes_while_the_worker_does(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def oracle(call: Any) -> Any:
        begun.set()
        return CASE.problem.oracle(call)

    def answers(*_: Any, **__: Any) -> Any:
        assert begun.wait(20), "nobody computes what this worker's answer will be held against"
        return [{"y": torch.zeros(3, 1000)}]

    problem: Any = SimpleNamespace(**vars(CASE.problem) | {"oracle": oracle})
    failed = failure(monkeypatch, replace(CASE, problem=problem), answers, comparison(CASE.problem.baseline))
    assert failed.message.startswith("y[0, 0] is the first wrong element")


@pytest.mark.parametrize("law", ["conclude", "hold"])
def test_a_property_keeps_the_map_of_the_wrong_answer(monkeypatch: pytest.MonkeyPatch, law: str) -> None:
    workers: Any = SimpleNamespace(worker=lambda *_: None)
    refusing: Any = Refusing()
    own = properties.Properties(RUN, workers, refusing, NOBODY)
    tried = properties.Trial(own, CASE)
    monkeypatch.setattr(properties, "answer", lambda *_: CASE.problem.baseline(tried.inputs))
    tried.ask(tried.inputs)
    with pytest.raises(Fault) as failed:
        tried.conclude() if law == "conclude" else tried.hold(1.0, "every row sums to 1")
    assert failed.value.map == TELLING
