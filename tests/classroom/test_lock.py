"""Locks: who has one, who gets one, and when it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.classroom import lock as module
from grader.classroom.folder import ClassError
from grader.classroom.lock import holder, lock, lock_of
from tests.support.open_files import open_files


def test_one_has_a_lock_until_its_release(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    first = lock(path, "node3 GPU-1")
    assert first is not None
    assert lock(path) is None
    by = holder(path)
    assert by is not None
    assert (by.pid, by.place) == (os.getpid(), "node3 GPU-1")
    first.release()
    assert holder(path) is None
    with lock(path) or pytest.fail("it is free"):
        assert lock(path) is None
    assert path.exists()


def test_nobody_holds_what_was_never_locked(tmp_path: Path) -> None:
    assert holder(tmp_path / ".lock") is None


def test_a_process_that_has_the_descriptor_holds_the_lock_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    held = lock(path)
    assert held is not None
    with subprocess.Popen(["sleep", "100"], pass_fds=held.descriptors) as process:
        held.release()
        assert lock(path) is None
        process.kill()
    assert lock(path) is not None


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = f"from pathlib import Path; from grader.classroom.lock import lock; c = lock(Path({str(path)!r})); print(1, flush=True)"
    with subprocess.Popen([sys.executable, "-c", f"{code}; input()"], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert lock(path) is None
        process.kill()
    assert lock(path) is not None


def test_a_look_at_the_holder_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with lock(path) or pytest.fail("it is free"):
        pass
    with path.open() as another_look:
        fcntl.flock(another_look, fcntl.LOCK_SH)
        assert holder(path) is None
    assert lock(path) is not None


def test_without_locks_a_class_is_refused_or_taken_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ClassError, match=r"without locks \(No locks available\).*--anyway"):
        lock(tmp_path / ".lock")
    held = lock(tmp_path / ".lock", unlocked=True)
    assert held is not None
    assert held.descriptors == ()
    assert holder(tmp_path / ".lock") is None


def test_another_fault_of_the_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = open_files(first=True)
    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output error"):
        lock(tmp_path / ".lock", unlocked=True)
    assert open_files() == before


def test_the_lock_of_a_gpu_that_another_user_has_made_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grader-GPU-1.lock"
    path.touch()
    real = os.open

    def as_another_user(name: object, flags: int, *mode: int, **options: int) -> int:
        if flags & os.O_RDWR and name == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(name, flags, *mode, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "open", as_another_user)
    held = lock(path)
    assert held is not None
    assert lock(path) is None


def test_every_user_can_open_the_lock_of_a_gpu(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        lock(tmp_path / "x.lock")
    finally:
        os.umask(before)
    assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o644


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"x\.lock"):
        lock(tmp_path / "x.lock")
    assert not (tmp_path / "elsewhere").exists()


def test_the_locks_of_gpus_lie_in_a_folder_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCKS_OF_MACHINE", tmp_path)
    assert lock_of("GPU-1") == tmp_path / "grader-GPU-1.lock"
    monkeypatch.setattr(module, "LOCKS_OF_MACHINE", tmp_path / "nowhere")
    assert lock_of("GPU-1").parent != tmp_path / "nowhere"
    assert lock_of("GPU-1").parent.is_dir()
