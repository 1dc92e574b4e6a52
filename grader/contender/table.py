"""The kernel's table of processes, read in one pass: who descends from this process, and how each of them stands.

Watchers read it many times a second, while threads of the same interpreter compute. Each file that is read hands the interpreter to one of
those, and getting it back takes longer than the reading: so a pass opens one file for each process, and a file takes three calls.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass, replace

PIECE_BYTES = 1 << 16  # more than nearly all records have
DEAD = ("Z", "X", "")  # states of proc(5), and none: the process is gone
STANDING = ("T", "t", *DEAD)


@dataclass(frozen=True, slots=True)
class Member:
    """A descendant of this process, as one look found it.

    parent: its parent; root: the child of this process that it descends from.
    group: its process group. state: R, S, T, Z ... of proc(5). since: when it started, in ticks since the machine did.
    thread: the one of its threads to ask about it, for a thread has a folder in `/proc` too. Where the first thread has ended and others
        have not, the kernel tells of the process as of a dead one, without memory or files.
    """

    pid: int
    parent: int
    group: int
    state: str
    since: int
    thread: int
    root: int = 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process of this number is still the one that was looked at, and may be sent one."""
        with contextlib.suppress(OSError):  # too many files are open: the signal is to be sent all the same
            now = member_of(self.pid)
            if now is None or now.since != self.since:
                return
        with contextlib.suppress(OSError):
            os.kill(self.pid, number)


def descendants() -> list[Member]:
    """All that descend from this process now, parents before children; the dead that nobody has collected are among them.

    Raises OSError where it cannot be told.
    """
    children: dict[int, list[Member]] = {}
    for one in _everyone():
        children.setdefault(one.parent, []).append(one)
    found: list[Member] = []
    waiting = [replace(one, root=one.pid) for one in children.get(os.getpid(), ())]
    while waiting:
        found.append(parent := waiting.pop())
        waiting += [replace(one, root=parent.root) for one in children.get(parent.pid, ())]
    return found


def state_of(pid: int) -> str:
    """A process's state as proc(5) has it: R, S, T ...; nothing when it is gone. Raises OSError where it cannot be told."""
    found = member_of(pid)
    return "" if found is None else found.state


def record(path: str) -> bytes:
    """A file of `/proc` that is a single record, which the kernel gives as a whole; `maps`, say, is none. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = piece = os.read(file, PIECE_BYTES)
        while len(piece) == PIECE_BYTES:
            text += (piece := os.read(file, PIECE_BYTES))
        return text
    finally:
        os.close(file)


def _everyone() -> Collection[Member]:
    """All processes. One that has lost its parent between two reads is read again: it has another parent by now."""
    found = {}
    for pid in _numbers("/proc"):
        with contextlib.suppress(PermissionError):  # of other users, on a machine that hides theirs
            if (one := member_of(pid)) is not None:
                found[pid] = one
    for pid in [pid for pid, one in found.items() if one.parent and one.parent not in found]:
        if (again := member_of(pid)) is not None:
            found[pid] = again
        else:
            del found[pid]
    return found.values()


def member_of(pid: int) -> Member | None:
    fields = _fields(f"/proc/{pid}/stat")
    if fields is None:
        return None
    state, thread = fields[0].decode("ascii", "replace"), pid
    if state in DEAD and int(fields[17]) > 1:
        state, thread = _of_threads(pid)
    return Member(pid, int(fields[1]), int(fields[2]), state, int(fields[19]), thread)


def _of_threads(pid: int) -> tuple[str, int]:
    """The state of the threads that live on without the first, and one of them: one that does not stand still, unless all do."""
    found = ("Z", pid)
    try:
        threads = _numbers(f"/proc/{pid}/task")
    except FileNotFoundError:
        return found
    for thread in threads:
        if (fields := _fields(f"/proc/{pid}/task/{thread}/stat")) is not None:
            state = fields[0].decode("ascii", "replace")
            if state not in DEAD:
                found = state, thread
            if state not in STANDING:
                break
    return found


def _fields(path: str) -> list[bytes] | None:
    """The fields of a `stat` from the state on; None where its process or thread is gone. Raises OSError."""
    try:
        text = record(path)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(b")")[2].split()  # before it stands the program's name, which may be anything
    return fields if len(fields) >= 20 else None


def _numbers(folder: str) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208
