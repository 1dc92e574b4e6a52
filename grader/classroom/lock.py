"""Locks: one run at a time grades a hand-in, one at a time uses a GPU.

A lock is flock(2) on a file that stays where it is. The alternative is a file that must not exist yet (O_EXCL), with host, process and time
in it: after a SIGKILL, a reboot or the end of a node, somebody has to decide whether its owner is dead, from another host by a clock, and a
run that was only stopped wakes up beside its heir. Of a lock the kernel decides that: it ends with the last process that holds it, on NFS
with the client's lease. `grader run` inherits the locks of its hand-in and of its GPU, so both stay locked until the grading's own end,
however the run ends. The file says for people who holds the lock. It is never deleted, or two runs could hold locks on two files of that
name. If a network file system shows a run an old listing, the run still cannot publish an attempt that is there: a folder is not renamed
onto another (`Grading.publish`). Where a file system has no locks the run is refused; with --anyway it is told that nothing keeps another
run away.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from grader.classroom.folder import ClassError
from grader.classroom.model import Strict

NAME = ".lock"  # in the folder of a hand-in's attempts
WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
LOCKS_OF_MACHINE = Path("/run/lock")  # world-writable on Linux, emptied by a reboot


class Holder(Strict):
    """Who holds a lock, as its file says."""

    host: str
    pid: int
    place: str
    since: datetime


class Lock:
    """A held lock. `descriptors` are for a process that is to hold it too; there are none on a file system without locks."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def descriptors(self) -> tuple[int, ...]:
        return () if self._descriptor is None else (self._descriptor,)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock(path: Path, place: str = "", *, wait: bool = False, unlocked: bool = False) -> Lock | None:
    """Lock what the file stands for; None while somebody else holds it. The file is made if it is missing.

    Args:
        place: for `Holder`.
        wait: until it is free.
        unlocked: take the lock as held on a file system without locks.

    Raises:
        ClassError: the file system has no locks.
        OSError: the file cannot be opened.
    """
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        if error.errno not in WITHOUT_LOCKS:
            raise
        if unlocked:
            return Lock(None)
        raise ClassError(
            f"{path.parent}: lies on a file system without locks ({error.strerror}), where nothing keeps two runs apart; "
            "copy the class to another one, or see to it that one run alone is at work and say --anyway"
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    holder = Holder(host=socket.gethostname(), pid=os.getpid(), place=place, since=datetime.now(UTC))
    with contextlib.suppress(OSError):  # another user's file, or a full disk: these words are only for people
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.model_dump_json().encode() + b"\n", 0)
    return Lock(descriptor)


def holder(path: Path) -> Holder | None:
    """Who holds the lock of this file; None if nobody does, or if there are no locks."""
    with contextlib.suppress(OSError, ValidationError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder.model_validate_json(file.read())
    return None


def lock_of(gpu: str, folder: Path | None = None) -> Path:
    """The lock file of a GPU, one for all users and classes of this machine."""
    if folder is None:
        usual = LOCKS_OF_MACHINE
        folder = usual if os.access(usual, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return folder / f"grader-{gpu}.lock"


def _opened(path: Path) -> int:
    """Open the file of a lock; another user's in a folder for all can only be read, which is enough for a lock there (not on NFS)."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR | flags)
            except PermissionError:
                return os.open(path, os.O_RDONLY | flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o644)
            os.fchmod(descriptor, 0o644)  # whatever the umask: others must be able to open it
            return descriptor
    raise OSError(errno.EBUSY, "is made and removed all the time", str(path))
