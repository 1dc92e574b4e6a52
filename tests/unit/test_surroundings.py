"""A worker's scratch folder is watched, whatever the worker does to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader.contender import processes, surroundings
from grader.contender.surroundings import WatchedFolder

MIB = 1 << 20


class Disk:
    """Says how much is free on the disk, whatever others write there meanwhile."""

    free = 100 * MIB

    def statvfs(self, path: Path) -> object:
        os.stat(path)  # noqa: PTH116 - raises where it is gone
        return SimpleNamespace(f_bavail=self.free // 4096, f_frsize=4096)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(surroundings, "os", SimpleNamespace(statvfs=disk.statvfs))
    return disk


def test_what_is_written_in_the_folder_counts(tmp_path: Path, disk: Disk) -> None:
    watched = WatchedFolder(tmp_path)
    assert not watched.grown_beyond(MIB)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 3 * MIB)
    disk.free -= 3 * MIB
    assert watched.grown_beyond(MIB)
    assert not watched.grown_beyond(4 * MIB)


def test_what_others_write_does_not_count(tmp_path: Path, disk: Disk) -> None:
    watched = WatchedFolder(tmp_path)
    disk.free -= 50 * MIB
    assert not watched.grown_beyond(MIB)


def test_a_folder_that_is_gone_has_not_grown(tmp_path: Path, disk: Disk) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    watched = WatchedFolder(scratch)
    shutil.rmtree(scratch)
    disk.free -= 50 * MIB
    assert not watched.grown_beyond(MIB)


def test_a_folder_that_goes_while_it_is_counted_has_not_grown(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedFolder(tmp_path)
    disk.free -= 50 * MIB
    nothing = subprocess.CompletedProcess([], 1, stdout=b"")  # what `du` prints of it
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: nothing)
    assert not watched.grown_beyond(MIB)


def test_a_folder_too_large_to_count_has_grown(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    def never_ends(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("du", 5)

    watched = WatchedFolder(tmp_path)
    disk.free -= 50 * MIB
    monkeypatch.setattr(processes, "output_of", never_ends)
    assert watched.grown_beyond(MIB)
