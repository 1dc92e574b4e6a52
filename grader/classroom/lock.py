"""Locks: only one run at a time grades a hand-in, and only one run at a time uses a GPU.

A lock is flock(2) on a file. The kernel releases a lock when the last process that holds it ends; on NFS the lock ends
with the client's lease. A file created with O_EXCL would be no substitute: after a SIGKILL or a reboot somebody would
have to decide, from another host and by a clock, whether the file's owner is dead, and an owner that was only stopped
would wake up beside its successor.

`grader run` inherits the locks of its hand-in and its GPU, so both stay locked until the grading ends, however the run
ends. The file says where its holder grades, for people. The file is never deleted: otherwise two runs could lock two
files of the same name. A network file system may show a run an old listing; even then the run cannot publish an attempt
with a number that exists, because a folder is not renamed onto another (`RunningAttempt.publish`). On a file system without
locks a run is refused, unless it has --anyway.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from grader.classroom.folder import ClassError

NAME = ".lock"  # in the folder of a hand-in's attempts, and in that of the class, where locks are tried
WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
LOCKS_OF_MACHINE = Path("/run/lock")  # world-writable on Linux, emptied by a reboot


def lock(path: Path, place: str = "", *, unlocked: bool = False) -> FileIO | None:
    """Take the lock of a file, which is created if missing; None if another process holds the lock.

    Returns:
        The file. Closing it releases the lock, unless a child process has got its descriptor.

    Args:
        place: where the holder grades, as `node3 GPU-1234`; empty if it does not.
        unlocked: whether to take a lock that holds nobody off on a file system without locks.

    Raises:
        ClassError: the file system has no locks, and `unlocked` is not set.
        OSError: the file cannot be opened.
    """
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(FileIO(_opened(path), "r"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                raise
            if not unlocked:
                raise ClassError(
                    f"{path.parent}: lies on a file system without locks ({error.strerror}), where nothing keeps two runs "
                    "apart; copy the class to another one, or see to it that one run alone is at work and say --anyway"
                ) from None
        with contextlib.suppress(OSError):  # another user's file, or a full disk: the content is only for people
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), place.encode(), 0)
        opened.pop_all()
        return file


def holder(path: Path) -> tuple[str, datetime] | None:
    """Where the holder of a file's lock grades, and since when; None if nobody holds it and grades, or without locks."""
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if place := file.read().decode():
                return place, datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    return None


def lock_of(gpu: str, folder: Path | None = None) -> Path:
    """The lock file of a GPU, shared by all users and classes of this machine."""
    if folder is None:
        usual = LOCKS_OF_MACHINE
        folder = usual if os.access(usual, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return folder / f"grader-{gpu}.lock"


def _opened(path: Path) -> int:
    """Open or create a lock's file. Another user's file may allow reading only, which suffices for a lock (not on NFS)."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
        os.fchmod(descriptor, 0o644)  # whatever the umask: others must be able to open it
        return descriptor
    try:  # without O_CREAT, by which Linux lets nobody open another user's file in a folder for all, as /run/lock
        return os.open(path, os.O_RDWR | flags)
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags)
