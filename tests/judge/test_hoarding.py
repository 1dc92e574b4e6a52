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

from grader.judge import hoarding
from grader.judge.hoarding import HOARD_GIB, WORKER_GIB, Hoarding, too_little
from grader.pool.fault import Fault
from grader.pool.pool import stage_runtime
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker

SOFTMAX: Any = SimpleNamespace(name="softmax")


class Gpu:
    """A GPU with `free` GiB, and workers that give back `held` when they are terminated, a little later."""

    device_name = "cuda"
    total_gib = 140.0

    def __init__(self, held: float) -> None:
        self.held, self.free, self.looks, self.asked = held, 1.0, 0, 0
        self.reason: Future[Exception] | None = None
        self.terminated = 0
        self.baselines = SimpleNamespace(settle=self._settle)
        self.given_back_meanwhile = 0.0  # by a baseline
        itself: Any = self
        self.hoarding = Hoarding(itself, itself)

    def _settle(self) -> None:
        self.free, self.given_back_meanwhile = self.free + self.given_back_meanwhile, 0.0

    def free_gib(self) -> float:
        self.asked += 1
        self.looks += self.reason is not None
        return self.free + (self.held if self.looks > 3 else 0.0)

    def terminate(self, assignment: Any, reason: Future[Exception]) -> int:
        assert assignment is SOFTMAX
        self._settle()  # at the latest
        self.reason = reason
        self.terminated += 1
        return 2


def end_of(gpu: Gpu, error: Exception) -> Exception:
    with pytest.raises(Exception) as caught, gpu.hoarding.is_a_fault(SOFTMAX):
        raise error
    return caught.value


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hoarding, "RELEASE_LIMIT_S", 0.5)


def test_what_a_baseline_gives_back_is_not_the_submissions() -> None:
    gpu = Gpu(held=1.0)
    gpu.given_back_meanwhile = 20.0
    fault = end_of(gpu, MemoryError("none"))
    assert isinstance(fault, Fault)
    assert fault.whose == "machine"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("512 bytes of GPU memory"),
        torch.OutOfMemoryError("out"),
        RuntimeError("CUDA error: out of memory"),
        Fault.no_worker("no start"),
    ],
)
def test_a_submission_that_keeps_the_memory_is_at_fault(error: Exception) -> None:
    gpu = Gpu(held=100)
    fault = end_of(gpu, error)
    assert isinstance(fault, Fault)
    assert fault.outcome == "out_of_memory"
    assert "still held 100 GiB of GPU memory after its calls" in fault.message
    assert gpu.reason is not None
    assert gpu.reason.result(0) is fault


def test_an_honest_submission_is_not() -> None:
    gpu = Gpu(held=HOARD_GIB + 2 * WORKER_GIB - 1)
    refused = end_of(gpu, MemoryError("512 bytes of GPU memory"))
    assert isinstance(refused, Fault)
    assert str(refused) == "the judge found no GPU memory: 512 bytes of GPU memory"
    assert gpu.reason is not None
    assert gpu.reason.result(0) is refused


def test_lanes_that_find_no_memory_at_once_are_told_the_same() -> None:
    gpu = Gpu(held=100)
    inside, ends = threading.Barrier(3), []

    def lane() -> None:
        try:
            with gpu.hoarding.is_a_fault(SOFTMAX):
                inside.wait()
                raise MemoryError("512 bytes of GPU memory")
        except Exception as error:
            ends.append(error)

    lanes = [threading.Thread(target=lane) for _ in range(3)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    assert len({id(one) for one in ends}) == 1
    assert isinstance(ends[0], Fault)
    assert gpu.terminated == 1
    assert end_of(gpu, MemoryError("another day")) is not ends[0]  # what begins later is looked at anew
    assert gpu.terminated == 2


def test_whatever_happens_a_sentence_is_told() -> None:
    gpu = Gpu(held=100)

    def free_gib() -> float:
        if gpu.reason is not None:
            raise OSError("the driver is gone")
        return 1.0

    gpu.free_gib = free_gib  # type: ignore[method-assign]
    assert isinstance(end_of(gpu, MemoryError("512 bytes")), OSError)
    assert gpu.reason is not None
    assert isinstance(gpu.reason.result(0), Fault)


@pytest.mark.parametrize(
    ("error", "held", "device"),
    [
        (Fault.wrong("wrong"), 100, "cuda"),
        (Fault("crashed", "gone"), 100, "cuda"),
        (ValueError("bug"), 100, "cuda"),
        (RuntimeError("bug"), 100, "cuda"),
        (MemoryError("no more"), 100, "cpu"),
        (Fault.no_worker("no start"), 0, "cuda"),
    ],
    ids=str,
)
def test_other_ends_are_left_as_they_are(error: Exception, held: float, device: str) -> None:
    gpu = Gpu(held)
    gpu.device_name = device
    assert end_of(gpu, error) is error
    assert (gpu.reason is None) == (held == 100)


def test_who_waits_for_a_terminated_worker_is_told_the_reason(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n")
    worker = Worker("cpu", stage_runtime(tmp_path / "runtime"), tmp_path / "scratch")
    ends: list[BaseException] = []

    def wait() -> None:
        try:
            worker.load(tmp_path / "slow.py", "double", None, CallLimits(60, 4))
        except BaseException as error:
            ends.append(error)

    with worker:
        worker.ready()
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.3)
        reason: Future[Exception] = Future()
        worker.terminate(reason)
        time.sleep(0.3)
        assert waiting.is_alive(), "it must not be told anything before the reason is known"
        told = Fault("out_of_memory", "held too much")
        reason.set_result(told)
        waiting.join(10)
        assert ends == [told]
        assert not worker.alive


def test_who_keeps_memory_is_not_spared_the_cases_that_need_it() -> None:
    gpu: Any = Gpu(held=100)
    with pytest.raises(Fault) as caught:
        gpu.hoarding.room_for(SOFTMAX, 70.0)
    assert caught.value.outcome == "out_of_memory"
    assert "still held 100 GiB of GPU memory" in caught.value.message


@pytest.mark.parametrize(
    ("held", "needed", "total", "free", "ended"),
    [
        (HOARD_GIB, 5.0, 140.0, 1 + HOARD_GIB, 1),  # what a submission may keep is taken from it
        (100, 1.0, 140.0, 1.0, 0),  # there is room
        (100, 70.0, 69.0, 1.0, 0),  # there never will be
    ],
)
def test_workers_end_where_what_they_keep_is_needed(
    held: float, needed: float, total: float, free: float, ended: int
) -> None:
    gpu: Any = Gpu(held)
    gpu.total_gib = total
    assert gpu.hoarding.room_for(SOFTMAX, needed) == pytest.approx(free)
    assert gpu.terminated == ended


def test_nobody_waits_for_memory_of_workers_that_there_are_not() -> None:
    gpu: Any = Gpu(held=0)
    gpu.terminate = lambda *_: 0
    assert gpu.hoarding.room_for(SOFTMAX, 70.0) == 1.0
    assert gpu.asked < 10  # it would ask twenty times a second


def test_what_is_free_is_not_said_to_be_what_is_needed() -> None:
    for free_gib, free in ((6.97, 6), (0.4, 0), (6.0, 6)):
        assert too_little(7.0, free_gib) == f"needs 7 GiB of GPU memory, {free} GiB are free"
