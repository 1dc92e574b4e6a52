"""When the judge finds no GPU memory: whose fault that is, and what everybody is told who waits for a worker that had it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.contender.contender import Contender, Limits, WorkerUnavailable
from grader.contender.pool import stage_runtime
from grader.contender.replies import ContenderFault
from grader.judge import memory
from grader.judge.evidence import CaseRefused, CheckFailed
from grader.judge.memory import HOARD_GIB, hoarding_is_a_fault

SOFTMAX: Any = SimpleNamespace(name="softmax")


class StubJudge:
    """A GPU with `free` GiB, and workers that give back `held` when they are condemned, a little later."""

    device_name = "cuda"

    def __init__(self, held: float) -> None:
        self.held, self.free, self.looks = held, 1.0, 0
        self.sentence: Future[Exception] | None = None

    def free_gib(self) -> float:
        self.looks += self.sentence is not None
        return self.free + (self.held if self.looks > 3 else 0.0)

    def condemn(self, assignment: Any, sentence: Future[Exception]) -> None:
        assert assignment is SOFTMAX
        self.sentence = sentence


def end_of(judge: StubJudge, error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, hoarding_is_a_fault(judge, SOFTMAX):  # type: ignore[arg-type]
        raise error
    return caught.value


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "RELEASE_LIMIT_S", 0.5)


@pytest.mark.parametrize(
    "error", [MemoryError("512 bytes of GPU memory"), torch.OutOfMemoryError("out"), WorkerUnavailable("no start")]
)
def test_a_submission_that_keeps_the_memory_is_at_fault(error: Exception) -> None:
    judge = StubJudge(held=100)
    fault = end_of(judge, error)
    assert isinstance(fault, ContenderFault)
    assert fault.outcome == "out_of_memory"
    assert "still held 100 GiB of GPU memory after its calls" in fault.message
    assert judge.sentence is not None
    assert judge.sentence.result(0) is fault


def test_an_honest_submission_is_not() -> None:
    judge = StubJudge(held=HOARD_GIB - 1)
    refused = end_of(judge, MemoryError("512 bytes of GPU memory"))
    assert isinstance(refused, CaseRefused)
    assert str(refused) == "the judge found no GPU memory: 512 bytes of GPU memory"
    assert judge.sentence is not None
    assert judge.sentence.result(0) is refused


def test_a_worker_that_does_not_start_for_another_reason_is_told_as_that() -> None:
    error = WorkerUnavailable("no start")
    assert end_of(StubJudge(held=0), error) is error


@pytest.mark.parametrize("error", [CheckFailed("wrong"), ContenderFault("crashed", "gone"), ValueError("bug")])
def test_other_ends_are_left_as_they_are(error: Exception) -> None:
    judge = StubJudge(held=100)
    assert end_of(judge, error) is error
    assert judge.sentence is None


def test_without_a_gpu_there_is_nobody_to_blame() -> None:
    judge = StubJudge(held=100)
    judge.device_name = "cpu"
    error = MemoryError("no more")
    assert end_of(judge, error) is error
    assert judge.sentence is None


def test_who_waits_for_a_condemned_worker_is_told_the_sentence(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    worker = Contender("cpu", stage_runtime(tmp_path / "runtime"), tmp_path / "scratch")
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            worker.load(tmp_path / "slow.py", "double", None, Limits(60, 4))
        except BaseException as error:
            ends.append(error)

    with worker:
        worker.ready()
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        sentence: Future[Exception] = Future()
        worker.condemn(sentence)
        time.sleep(0.3)
        assert waiting.is_alive(), "it must not be told anything before the sentence is known"
        told = ContenderFault("out_of_memory", "held too much")
        sentence.set_result(told)
        waiting.join(10)
        assert ends == [told]
        assert not worker.alive
