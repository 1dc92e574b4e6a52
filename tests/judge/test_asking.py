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


SKIPPED = "needs 2.5 GiB of GPU memory beside its tensors where it allocates its results itself, 1.0 GiB were free"


@pytest.mark.parametrize(
    ("how", "outcome", "message"),
    [
        ({"free_gib": 1.0}, "skipped", SKIPPED),
        ({"free_gib": 3.0}, "out_of_memory", "no memory for y"),
        ({"free_gib": 1.0, "memory_gib": None}, "out_of_memory", "no memory for y"),
        ({"free_gib": 1.0, "outcome": "crashed"}, "crashed", "no memory for y"),
    ],
    ids=["there was no room for its results", "there was room", "it needs little", "another end"],
)
def test_a_call_that_finds_no_memory_is_skipped_where_there_was_no_room(
    how: dict[str, Any], outcome: str, message: str
) -> None:
    fault = ended(**how)
    assert (fault.outcome, fault.message) == (outcome, message)
