"""Whose fault a GPU is that does not become quiet."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import race as module
from grader.judge.evidence import CaseRefused, CheckFailed
from grader.judge.race import MAX_REPEATS, PATIENCE_S, Race


class Worker:
    """A submission's process; ending it is followed by `after` looks at a GPU that is still busy."""

    def __init__(self, looks: list[bool], after: int) -> None:
        self._looks, self._after = looks, after
        self.alive = True

    def lives(self) -> bool:
        return self.alive

    def kill(self) -> None:
        self.alive = False
        self._looks[:] = [False] * self._after + [True]


def race_on(
    monkeypatch: pytest.MonkeyPatch, looks: list[bool], after: int = 1000, others: tuple[int, ...] = ()
) -> tuple[Race, Worker]:
    """A race where looks at the GPU find what `looks` says, its last one for ever; `others` is who the driver says uses it."""
    monkeypatch.setattr(module.time, "sleep", lambda _seconds: None)
    worker = Worker(looks, after)

    def found() -> Iterator[bool]:
        while True:
            yield looks.pop(0) if len(looks) > 1 else looks[0]

    looked = found()
    gauge = SimpleNamespace(is_quiet=lambda: next(looked), others=lambda: list(others))
    race = Race.__new__(Race)
    race._judge = SimpleNamespace(gauge=gauge)  # type: ignore[assignment]
    race._submission = SimpleNamespace(contender=worker)  # type: ignore[assignment]
    return race, worker


def test_a_gpu_that_becomes_quiet_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    race, worker = race_on(monkeypatch, [False, False, True])
    race._wait_for_quiet(race._submission, attempt=1)
    assert worker.alive


@pytest.mark.parametrize("after", range(len(PATIENCE_S)))
def test_work_that_ends_with_the_submissions_process_is_its_fault(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """The driver may take a moment to end what the process has left running."""
    race, worker = race_on(monkeypatch, [False], after)
    other: Any = SimpleNamespace()
    with pytest.raises(CheckFailed, match="kernels of your code still ran"):
        race._wait_for_quiet(other, attempt=1)
    assert not worker.alive


def test_work_that_goes_on_without_the_submission_is_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [False], others=(4711,))
    with pytest.raises(CaseRefused, match=r"another program is using this GPU \(processes 4711\)"):
        race._wait_for_quiet(race._submission, attempt=1)


def test_a_neighbour_that_rests_now_and_then_is_not_the_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known to the driver, it is named; unknown, as in a container, a quiet moment is not enough to blame anyone."""
    race, _ = race_on(monkeypatch, [False], after=0, others=(4711,))
    with pytest.raises(CaseRefused, match="4711"):
        race._wait_for_quiet(race._submission, attempt=1)
    race, worker = race_on(monkeypatch, [False])
    monkeypatch.setattr(worker, "kill", lambda: worker._looks.__setitem__(slice(None), [True, True, False] * 9))
    with pytest.raises(CaseRefused, match="another program"):
        race._wait_for_quiet(race._submission, attempt=1)


def test_a_gpu_that_is_busy_after_each_batch_of_the_submission_is_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [True])
    race._wait_for_quiet(race._submission, attempt=MAX_REPEATS)
    with pytest.raises(CheckFailed, match="again and again"):
        race._wait_for_quiet(race._submission, attempt=MAX_REPEATS + 1)


def test_a_gpu_that_is_busy_after_each_batch_of_a_baseline_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    race, _ = race_on(monkeypatch, [True])
    other: Any = SimpleNamespace()
    with pytest.raises(CaseRefused, match="another program"):
        race._wait_for_quiet(other, attempt=MAX_REPEATS + 1)
