"""Trees of processes: what a worker starts can be stopped, and a worker that is being started belongs to nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.pool import processes
from grader.pool.pool import WorkerPool

COUNTS = """
import sys, time
for number in range(10**9):
    open(sys.argv[1], "w").write(str(number))
    time.sleep(0.005)
"""
# A worker with a child in its group, and one in a session of its own.
PARENT = """
import subprocess, sys, time
for name, session in (("group", False), ("session", True)):
    subprocess.Popen([sys.executable, "-c", sys.argv[1], f"{sys.argv[2]}/{name}"], start_new_session=session)
exec(sys.argv[1].replace("sys.argv[1]", f"{sys.argv[2] + '/own'!r}"))
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = processes.start([sys.executable, "-c", PARENT, COUNTS, str(tmp_path)], start_new_session=True)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process
    processes.end(process)


def goes_on(path: Path, within_s: float = 5.0) -> bool:
    before, deadline = path.read_text(), time.monotonic() + within_s
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if path.read_text() != before:
            return True
    return False


def test_a_frozen_worker_stands_still_with_all_it_started(family: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert all(goes_on(tmp_path / name) for name in ("own", "group", "session"))
    processes.freeze(family)
    assert psutil.Process(family.pid).status() == psutil.STATUS_STOPPED
    processes.freeze_tree(family)
    assert not any(goes_on(tmp_path / name, within_s=0.2) for name in ("own", "group", "session"))
    processes.thaw(family)
    assert all(goes_on(tmp_path / name) for name in ("own", "group", "session"))


def test_freezing_again_or_after_its_end_does_not_wait_and_the_frozen_can_be_ended(
    family: subprocess.Popen[bytes],
) -> None:
    processes.freeze(family)
    processes.freeze(family)
    processes.end(family)
    assert family.poll() is not None
    processes.freeze(family)
    processes.thaw(family)


def test_a_worker_is_ended_though_nobody_can_look(
    family: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all that it started, once somebody can."""
    look, looks = processes.descendants, []

    def refuse_at_first(quick: bool) -> list[Any]:
        looks.append(None)
        if len(looks) < 3:
            raise OSError(23, "too many open files in system")
        return look(quick)

    monkeypatch.setattr(processes, "descendants", refuse_at_first)
    below = psutil.Process(family.pid).children(recursive=True)
    assert below
    processes.end(family)
    assert family.poll() is not None
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below)


def test_a_worker_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel kills a fork server with the thread that started it, so that none outlives the judge."""
    with closing(WorkerPool("cpu", tmp_path)) as pool:
        with ThreadPoolExecutor(1) as thread:
            worker = thread.submit(pool.start, "cuda_cpu").result()
        time.sleep(0.3)
        assert worker.lives()
        assert pool.start("cuda_cpu").lives()


def test_precedence_is_given_back_by_a_user_who_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not root may set the flag "reset on fork", and not take it away again (sched(7))."""
    policies = [os.SCHED_OTHER]

    def kernel(pid: int, policy: int, parameter: os.sched_param) -> None:
        assert (pid, parameter.sched_priority) in [(0, 0), (0, 1)]
        if policies[-1] & os.SCHED_RESET_ON_FORK and not policy & os.SCHED_RESET_ON_FORK:
            raise PermissionError
        policies.append(policy)

    monkeypatch.setattr(os, "sched_setscheduler", kernel)
    with processes.precedence():
        assert policies[-1] & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    assert policies[-1] & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER


def test_a_program_that_a_library_starts_is_no_workers_process(family: subprocess.Popen[bytes]) -> None:
    """As `ctypes.util.find_library` does: once its `ldconfig` was taken for a worker's that had asked the kernel to spare it."""
    own = subprocess.Popen(["sleep", "60"])
    try:
        assert own.pid not in [one.pid for one in processes.tree(family.pid)]
        processes.end(family)
        assert own.poll() is None, "it was ended with the worker"
    finally:
        own.kill()
        own.wait()


def test_ending_a_worker_leaves_alone_what_the_judge_runs_for_itself() -> None:
    """`du` and `rm` are children of the judge that no worker has started."""
    with ThreadPoolExecutor(1) as threads:
        own = threads.submit(processes.output_of, ["sh", "-c", "sleep 1.5; echo done"], 20)
        time.sleep(0.5)
        worker = processes.start([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        processes.end(worker)
        assert own.result() == b"done\n"
    with pytest.raises(subprocess.TimeoutExpired):
        processes.output_of(["sleep", "60"], 0.2)
