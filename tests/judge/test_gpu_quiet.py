"""Whose fault a GPU is that is busy when every worker stands still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import gpu
from grader.judge.gpu import MAX_REPEATS, PATIENCE_S, wait_for_quiet
from grader.pool.fault import Fault


class Machine:
    """A GPU where looks find what `looks` says, its last one for ever, and a submission whose end changes what they find.

    after: looks that find a busy GPU when the submission's process has ended; then it is quiet.
    others: who the driver says uses the GPU.
    """

    def __init__(self, looks: list[bool], after: int = 1000, others: tuple[int, ...] = ()) -> None:
        self.looks, self.after, self.alive = looks, after, True
        self.others = list(others)
        self.gauge: Any = SimpleNamespace(is_quiet=self.look, others=lambda: list(self.others))

    def look(self) -> bool:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def lives(self) -> bool:
        return self.alive

    def kill(self) -> None:
        self.alive, self.looks = False, [False] * self.after + [True]

    def wait(self, was_running: bool = True, attempt: int = 1) -> None:
        submission: Any = self
        wait_for_quiet(self.gauge, submission, was_running, attempt)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.time, "sleep", lambda _seconds: None)


def test_a_gpu_that_becomes_quiet_is_nobodys_fault() -> None:
    machine = Machine([False, False, True])
    machine.wait()
    assert machine.alive


@pytest.mark.parametrize("after", range(len(PATIENCE_S)))
def test_work_that_ends_with_the_submissions_process_is_its_fault(after: int) -> None:
    """The driver may take a moment to end what the process has left running."""
    machine = Machine([False], after)
    with pytest.raises(Fault, match="kernels of your code still ran"):
        machine.wait(was_running=False)
    assert not machine.alive


def test_a_process_that_the_driver_lists_while_it_ends_is_no_neighbour() -> None:
    class SlowToEnd(Machine):
        def kill(self) -> None:
            super().kill()
            self.others = [815]

    with pytest.raises(Fault, match="kernels of your code still ran"):
        SlowToEnd([False], after=1).wait()


def test_a_neighbour_that_has_ended_meanwhile_is_remembered() -> None:
    class EndsSoon(Machine):
        def look(self) -> bool:
            self.others = []
            return super().look()

    with pytest.raises(Fault, match=r"\(processes 4711\): nobody can tell whose"):
        EndsSoon([False], after=0, others=(4711,)).wait()


OTHERS = (4711,)
AGAIN = {"attempt": MAX_REPEATS + 1}


@pytest.mark.parametrize(
    ("machine", "how", "says"),
    [
        (Machine([False], others=OTHERS), {}, r"another program is using this GPU \(processes 4711\)"),
        (Machine([False], after=0, others=OTHERS), {}, r"this GPU open \(processes 4711\): nobody can tell whose"),
        (Machine([True]), AGAIN, "again and again"),
        (Machine([True]), {"was_running": False, **AGAIN}, "another program"),
    ],
    ids=["without the submission too", "a neighbour that rests", "after each batch", "after each of a baseline's"],
)
def test_whose_fault_a_busy_gpu_is(machine: Machine, how: dict[str, Any], says: str) -> None:
    with pytest.raises(Fault, match=says):
        machine.wait(**how)


def test_a_quiet_moment_is_not_enough_to_blame_anyone() -> None:
    """A neighbour that rests now and then may be unknown to the driver, as in a container."""

    class Restless(Machine):
        def kill(self) -> None:
            self.alive, self.looks = False, [True, True, False] * 9

    with pytest.raises(Fault, match="another program"):
        Restless([False]).wait()


def test_a_gpu_may_be_busy_after_a_few_batches() -> None:
    Machine([True]).wait(attempt=MAX_REPEATS)
