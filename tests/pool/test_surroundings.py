"""A worker's scratch folder is watched, whatever the worker does to it."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader.pool import processes, surroundings
from grader.pool.surroundings import WatchedFolder
from grader.pool.usage import Look

MIB = 1 << 20


def look() -> Look:
    """At no process; a look may take a second of this process from when it begins."""
    return Look([])


class Disk:
    """Says how much is free on the disk, whatever others write there meanwhile."""

    free = 100 * MIB
    nodes = 1000

    def statvfs(self, path: Path) -> object:
        os.stat(path)  # noqa: PTH116 - raises where it is gone
        return SimpleNamespace(f_bavail=self.free // 4096, f_frsize=4096, f_favail=self.nodes)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(surroundings, "os", SimpleNamespace(statvfs=disk.statvfs))
    return disk


def test_what_is_written_in_the_folder_counts(tmp_path: Path, disk: Disk) -> None:
    watched = WatchedFolder(tmp_path)
    assert (watched.allowed(MIB), watched.allowed(1 << 40) < disk.free / 4) == (MIB, True), "it may not fill the disk"
    disk.free -= 50 * MIB
    assert not watched.grown_beyond(MIB, look()), "others have written that"
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 3 * MIB)
    disk.free -= 3 * MIB
    assert watched.grown_beyond(MIB, look())
    assert not watched.grown_beyond(4 * MIB, look())


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_what_is_deleted_and_still_there_counts(tmp_path: Path, disk: Disk, how: str) -> None:
    watched = WatchedFolder(tmp_path)
    ours = Look([os.getpid()])
    with (tmp_path / "file").open("w+b") as file, contextlib.ExitStack() as stack:
        file.write(b"x" * 3 * MIB)
        file.flush()
        if how == "mapped":
            stack.enter_context(mmap.mmap(file.fileno(), 3 * MIB))
            file.close()
        (tmp_path / "file").unlink()
        disk.free -= 8 * MIB
        assert not watched.grown_beyond(2 * MIB, look())
        assert watched.grown_beyond(2 * MIB, ours)
        assert not watched.grown_beyond(4 * MIB, ours)
    assert not watched.grown_beyond(2 * MIB, ours)


def test_files_are_counted_too(tmp_path: Path, disk: Disk) -> None:
    watched = WatchedFolder(tmp_path)
    disk.nodes -= 50
    assert not watched.holds_more_than(20, look()), "others have made them"
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert watched.holds_more_than(20, look())
    assert not watched.holds_more_than(60, look())


def test_a_folder_that_is_gone_has_not_grown(tmp_path: Path, disk: Disk) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    watched = WatchedFolder(scratch)
    shutil.rmtree(scratch)
    disk.free -= 50 * MIB
    assert not watched.grown_beyond(MIB, look())


def test_a_folder_too_large_to_count_has_grown(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_ends(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("du", 5)

    watched = WatchedFolder(tmp_path)
    disk.free -= 50 * MIB
    monkeypatch.setattr(processes, "output_of", never_ends)
    assert watched.grown_beyond(MIB, look())
