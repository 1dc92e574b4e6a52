"""Locks: who has one, who gets one, and when it ends."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

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


def test_every_user_can_open_the_lock_of_a_gpu(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert is_free(tmp_path / "x.lock")
    finally:
        os.umask(before)
    assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o644
