"""What the workers of one submission share: a fork server and compiled kernels, as long as nobody makes a store of it."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.pool import pool as module
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool
from grader.pool.server import ForkServer
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import Tidy

LIMITS = CallLimits(time_s=20, memory_gib=4)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    pool = WorkerPool("cpu", tmp_path)
    yield pool
    pool.close()


def server_of(worker: Worker) -> psutil.Process:
    return psutil.Process(psutil.Process(worker.pid).ppid())


def kernels_of(server: ForkServer) -> Path:
    return Path(server.surroundings["TRITON_CACHE_DIR"]).parent


def test_workers_of_a_submission_share_their_kernels_and_others_have_their_own(
    pool: WorkerPool, tmp_path: Path
) -> None:
    kernels, trusted = tmp_path / "kernels", tmp_path / "trusted"
    others = [kernels_of(one) for one in (pool.server("cpu"), pool.server("cuda", "course"))]
    assert kernels_of(pool.server("cuda")) == kernels not in others
    pool.start("cuda_cpu", "course", caches=trusted)
    assert trusted.exists()
    pool.close()
    assert not kernels.exists()


def test_what_no_compiler_made_is_removed(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KERNELS_BYTES", 1 << 20)
    kernels = tmp_path / "kernels"
    first = pool.server("cuda")
    (kernels / "small").write_bytes(bytes(1000))
    assert pool.server("cuda") is first
    assert (kernels / "small").exists()
    (kernels / "large").write_bytes(bytes(3 << 20))
    pool.server("cuda")
    assert not kernels.exists() or not list(kernels.iterdir())


def test_all_workers_of_a_kind_are_forks_of_one_server_and_the_courses_own_of_another(pool: WorkerPool) -> None:
    first, second, own = pool.start("cuda_cpu"), pool.start("cuda_cpu"), pool.start("cuda_cpu", "course")
    assert server_of(first) == server_of(second)
    assert server_of(own) != server_of(first)
    first.kill()
    assert second.lives()
    assert server_of(pool.start("cuda_cpu")) == server_of(second)


def test_the_canary_shares_nothing_with_the_submission(pool: WorkerPool, tmp_path: Path) -> None:
    worker, canary = pool.start("cuda_cpu"), pool.start("cuda_cpu", "canary", folder=tmp_path)
    server_of(worker).kill()
    while worker.lives():  # the kernel ends it a moment after its server
        time.sleep(0.01)
    assert canary.ask(Tidy(), LIMITS).error is not None, "it knows no such request, and answers"


def test_a_worker_finds_its_modules_imported(pool: WorkerPool, tmp_path: Path) -> None:
    """By its server, before the fork: not in the time of the student's first call."""
    (tmp_path / "one.py").write_text("import sys\nassert 'colorsys' in sys.modules\ndef f(): ...\n")
    worker = pool.start(imports=("colorsys", "no_such_module_in_this_version"))
    worker.load(tmp_path / "one.py", "f", None, LIMITS)


def test_a_machine_that_can_start_none_is_told_of(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("grader.pool.processes.start", refuse)
    for alone in (False, True):
        with pytest.raises(Fault, match="Resource temporarily unavailable"):
            pool.start(alone=alone)
