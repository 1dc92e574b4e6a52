"""A call that finds no memory for its results loses points only where there was room for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.assignment import Case
from grader.judge import asking
from grader.pool.fault import Fault
from grader.problem import Call

CPU = torch.device("cpu")
X = torch.ones(1 << 10)


def ended(free_gib: float, memory_gib: float | None = 20.0, outcome: str = "out_of_memory") -> Fault:
    """What becomes of a call that ends so, with 4 KiB of results."""

    class Worker:
        log = SimpleNamespace(mark=lambda _: None)

        def do(self, *_: Any, **__: Any) -> None:
            raise Fault(outcome, "no memory for y")  # type: ignore[arg-type]

    limits = SimpleNamespace(time_limit_s={"cpu": 1.0}, memory_gib=1.0)
    spec = SimpleNamespace(limits=limits, signature=(), tolerance=SimpleNamespace(scale={"y": "element"}))
    case: Any = SimpleNamespace(
        name="huge",
        place=SimpleNamespace(heading="huge"),
        case=Case(name="huge", tries="much", memory_gib=memory_gib),
        assignment=SimpleNamespace(spec=spec, folder=Path("course/task")),
        problem=SimpleNamespace(outputs=lambda call: {"y": tuple(call.args["x"].shape)}),
        dtype=torch.float32,
    )
    run: Any = SimpleNamespace(device=CPU, device_name="cpu", free_gib=lambda: free_gib)
    worker: Any = Worker()
    with pytest.raises(Fault) as raised:
        asking.answer(run, case, worker, Call({"x": X}))
    return raised.value


def test_a_signature_that_does_not_fit_the_call_is_the_courses_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "signature_fault", lambda *_: "its inputs are ['x'], those of problem.py ['x', 'z']")
    fault = ended(free_gib=1.0)
    assert (fault.outcome, fault.whose) == ("infra_error", "machine")
    assert "problem.toml: signature: its inputs are" in fault.message


def test_where_there_was_no_room_for_results_of_its_own_it_is_skipped_and_says_what_was_needed() -> None:
    fault = ended(free_gib=1.0)
    assert fault.outcome == "skipped"
    assert fault.message == (
        "needs 2.5 GiB of GPU memory beside its tensors where it allocates its results itself, 1.0 GiB were free"
    )


def test_where_there_was_room_it_has_taken_too_much() -> None:
    assert ended(free_gib=3.0).outcome == "out_of_memory"


def test_where_a_case_needs_no_memory_to_speak_of_it_has_taken_too_much() -> None:
    assert ended(free_gib=1.0, memory_gib=None).outcome == "out_of_memory"


def test_another_end_is_what_it_is() -> None:
    assert ended(free_gib=1.0, outcome="crashed").outcome == "crashed"
