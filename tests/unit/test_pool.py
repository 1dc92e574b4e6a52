"""What the workers of one submission share: compiled kernels, as long as nobody makes a store of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.contender import pool as module
from grader.contender.pool import WorkerPool


class Fake:
    """Stands for a worker; notes where it would keep its kernels, and what it would find there."""

    started: list[tuple[Path | None, list[str]]]

    def __init__(self, _kind: str, _runtime: Path, _scratch: Path, caches: Path | None, *_: Any) -> None:
        found = [] if caches is None or not caches.exists() else sorted(path.name for path in caches.iterdir())
        type(self).started.append((caches, found))
        if caches is not None:
            caches.mkdir(exist_ok=True)

    def strike(self) -> None:
        pass

    def kill(self) -> None:
        pass


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerPool:
    Fake.started = []
    monkeypatch.setattr(module, "Contender", Fake)
    return WorkerPool("cuda", tmp_path)


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
