"""Locks: who has one, who gets one, and when it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.classroom.folder import ClassError
from grader.classroom.lock import holder, lock
from tests.support.gradings import is_free


def test_one_has_a_lock_until_its_release(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    first = lock(path, "node3 GPU-1")
    assert first is not None
    assert lock(path) is None
    place, since = holder(path) or pytest.fail("it is held")
    assert (place, abs((datetime.now(UTC) - since).total_seconds()) < 60) == ("node3 GPU-1", True)
    first.close()
    assert holder(path) is None
    with lock(path) or pytest.fail("it is free"):
        assert lock(path) is None
    assert path.exists()


def test_a_process_that_has_the_descriptor_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held = lock(path)
    assert held is not None
    with subprocess.Popen(["sleep", "100"], pass_fds=[held.fileno()]) as process:
        held.close()
        assert lock(path) is None
        process.kill()
    assert is_free(path)


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = f"from pathlib import Path; from grader.classroom.lock import lock; c = lock(Path({str(path)!r})); print(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", f"{code}; input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert lock(path) is None
        process.kill()
    assert is_free(path)


def test_without_locks_a_class_is_refused_or_taken_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ClassError, match=r"without locks \(No locks available\).*--anyway"):
        lock(tmp_path / ".lock")
    for _ in range(2):
        with lock(tmp_path / ".lock", unlocked=True) or pytest.fail("it holds nobody off"):
            assert holder(tmp_path / ".lock") is None


def test_every_user_can_open_the_lock_of_a_gpu(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert is_free(tmp_path / "x.lock")
    finally:
        os.umask(before)
    assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o644
