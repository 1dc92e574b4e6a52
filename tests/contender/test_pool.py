"""What the workers of one submission share: compiled kernels, as long as nobody makes a store of it."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from grader.contender import pool as module
from grader.contender.contender import WorkerUnavailable
from grader.contender.pool import WorkerPool
from grader.contender.replies import ContenderFault


class Fake:
    """Stands for a worker; notes where it would keep its kernels, and what it would find there."""

    started: list[tuple[Path | None, list[str]]]
    trusted = False
    living: list[Fake]
    room: int  # for how many at once

    def __init__(self, _kind: str, _runtime: Path, _scratch: Path, caches: Path | None, *others: Any) -> None:
        self.early = others[-1]
        found = [] if caches is None or not caches.exists() else sorted(path.name for path in caches.iterdir())
        type(self).started.append((caches, found))
        if caches is not None:
            caches.mkdir(exist_ok=True)
        self.living.append(self)

    def lives(self) -> bool:
        return self in self.living

    def ready(self) -> None:
        if len(self.living) > self.room:
            self.living.remove(self)
            raise WorkerUnavailable("a worker did not start")

    def evict(self, sentence: Future[Exception]) -> None:
        assert isinstance(sentence.result(0), ContenderFault)
        if self in self.living:
            self.living.remove(self)

    def strike(self) -> None:
        pass

    def kill(self) -> None:
        if self in self.living:
            self.living.remove(self)


@pytest.fixture
def pool(tmp_path: Path) -> WorkerPool:
    Fake.started, Fake.living, Fake.room = [], [], 9
    return WorkerPool("cuda", tmp_path, worker=cast("Any", Fake))


def test_workers_of_a_submission_share_their_kernels_and_others_have_their_own(
    pool: WorkerPool, tmp_path: Path
) -> None:
    pool.prepare(2)
    pool.start("cuda", tmp_path / "trusted")
    pool.start("cuda")
    pool.watched(["tool"])
    kernels = tmp_path / "kernels"
    assert [caches for caches, _ in Fake.started] == [kernels, kernels, tmp_path / "trusted", None, kernels]
    pool.close()
    assert not kernels.exists()


def test_what_no_compiler_made_is_removed(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KERNELS_BYTES", 1 << 20)
    pool.prepare(1)
    (tmp_path / "kernels" / "small").write_bytes(bytes(1000))
    pool.prepare(2)
    (tmp_path / "kernels" / "large").write_bytes(bytes(3 << 20))
    pool.prepare(3)
    assert [found for _, found in Fake.started] == [[], ["small"], []]
    pool.close()


def test_a_worker_that_the_submission_kept_from_starting_starts_without_it(pool: WorkerPool) -> None:
    in_the_way = pool.take()
    Fake.room = 1
    with pytest.raises(WorkerUnavailable):
        pool.take()  # somebody may be waiting for the other
    assert in_the_way.lives()
    assert pool.take(alone=True).lives()
    assert not in_the_way.lives()


def test_the_reserve_is_for_whoever_is_alone(pool: WorkerPool) -> None:
    pool.reserve([("gelu", ()), ("softmax", ("json",))])
    assert len(Fake.started) == 2
    pool.take()  # a lane that still runs
    assert len(Fake.started) == 3
    pool.prepare(1)
    reserved, spare = Fake.living[:2], Fake.living[3]
    assert [pool.take(alone=True) for _ in range(3)] == [*reserved, spare]
    assert [one.early for one in reserved] == [(), ("json",)]  # type: ignore[attr-defined]
    assert len(Fake.started) == 4
    pool.reserve([("", ())])
    dead = Fake.living.pop()
    assert not pool.has_reserve
    pool.reserve([("", ())])
    assert pool.has_reserve
    assert pool.take(alone=True) is not dead
    assert len(Fake.started) == 6


def test_who_takes_of_the_reserve_gets_what_is_meant_for_it_as_long_as_there_is_some(pool: WorkerPool) -> None:
    pool.reserve([("gelu", ()), ("softmax", ()), ("softmax", ("json",))])
    gelu, *softmax = Fake.living
    assert [pool.take(alone=True, purpose="softmax") for _ in range(3)] == [*softmax, gelu]
    assert len(Fake.started) == 3
    pool.reserve([("gelu", ()), ("softmax", ())])
    pool.reserve([("gelu", ())])  # there are some
    assert len(Fake.started) == 5


def test_idle_workers_are_those_that_nobody_has_taken(pool: WorkerPool) -> None:
    taken, trusted = pool.take(), pool.start("cpu")
    pool.prepare(2)
    pool.reserve([("gelu", ())])
    pool.end_idle()
    assert [one for one in Fake.living if one.lives()] == [taken, trusted]
    assert not pool.has_reserve
    assert pool.take() in Fake.living[-1:]


def test_nobody_waits_for_a_worker_while_others_are_started(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes take and prepare workers while a reserve is made for later."""
    pool.prepare(1)
    begun, go_on = threading.Event(), threading.Event()
    start = pool.launch

    def slowly(kind: Any, **options: Any) -> Any:
        if options.get("early"):
            begun.set()
            assert go_on.wait(20)
        return start(kind, **options)

    monkeypatch.setattr(pool, "launch", slowly)
    filling = threading.Thread(target=pool.reserve, args=([("", ("json",))] * 2,))
    filling.start()
    assert begun.wait(20)
    pool.take()
    pool.prepare(2)
    assert len(Fake.started) == 3
    go_on.set()
    filling.join(20)
    assert len(Fake.started) == 5


def test_those_who_prepare_at_the_same_time_start_no_more_than_are_wanted(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = pool.launch

    def slowly(kind: Any, **options: Any) -> Any:
        time.sleep(0.01)
        return start(kind, **options)

    monkeypatch.setattr(pool, "launch", slowly)
    with ThreadPoolExecutor(8) as threads:
        for _ in range(8):
            threads.submit(pool.prepare, 2)
    assert len(Fake.started) == 2


def test_a_machine_that_can_start_none_is_told_of(pool: WorkerPool) -> None:
    Fake.room = 0
    with pytest.raises(WorkerUnavailable):
        pool.take(alone=True)
    assert len(Fake.started) == 1  # nothing of the submission's has run that could be in the way
    Fake.room = 1
    pool.take(alone=True)
    Fake.room = 0
    with pytest.raises(WorkerUnavailable):
        pool.take(alone=True)


def test_a_process_that_cannot_be_made_is_a_worker_that_does_not_start(tmp_path: Path) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    pool = WorkerPool("cuda", tmp_path, worker=cast("Any", refuse))
    pool.prepare(1)  # in the background nobody minds
    with pytest.raises(WorkerUnavailable, match="Resource temporarily unavailable"):
        pool.take()
