"""The kernel's table of processes, read in one pass: the descendants of this process and their states.

Watchers read the table many times a second while other threads compute. Each file read hands the interpreter to another
thread, and getting it back takes longer than the read. So a pass opens one file for each process, with three system
calls.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from dataclasses import dataclass, replace

MOST_BYTES = 1 << 16  # more than any record has that is read here
STRANGERS_S = 1.0  # how long a quick pass takes a process for none of the descendants
DEAD = ("Z", "X", "")  # states of proc(5); "" if the process is gone
STANDING = ("T", "t", *DEAD)

_strangers: tuple[float, frozenset[int]] = (-math.inf, frozenset())  # time of the last full pass, and who they were


@dataclass(frozen=True, slots=True)
class Member:
    """A descendant of this process, as one look found it.

    Attributes:
        parent: pid of its parent.
        group: its process group.
        state: R, S, T, Z ... of proc(5).
        since: its start, in clock ticks since boot.
        thread: a thread of the process whose folder in `/proc` can be asked. If the first thread has ended before
            others, the kernel shows the process's own folder as a dead one, without memory or files.
        root: the child of this process that it descends from.
    """

    pid: int
    parent: int
    group: int
    state: str
    since: int
    thread: int
    root: int = 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the pid now belongs to another process or may not be signalled."""
        with contextlib.suppress(OSError):  # too many files are open: send the signal all the same
            now = member_of(self.pid)
            if now is None or now.since != self.since:
                return
        with contextlib.suppress(OSError):
            os.kill(self.pid, number)


def descendants(quick: bool = False) -> list[Member]:
    """All descendants of this process, parents before children, with the dead that nobody has collected.

    Args:
        quick: whether to leave out processes that were no descendants up to STRANGERS_S ago. None of them can become
            one, but a new process can get the id of one that has ended.

    Raises OSError if they cannot be read.
    """
    global _strangers
    looked_at, strangers = _strangers
    quick = quick and time.monotonic() - looked_at < STRANGERS_S
    everyone = _everyone(strangers if quick else frozenset())
    children: dict[int, list[Member]] = {}
    for one in everyone.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Member] = []
    waiting = [replace(one, root=one.pid) for one in children.get(os.getpid(), ())]
    while waiting:
        found.append(parent := waiting.pop())
        waiting += [replace(one, root=parent.root) for one in children.get(parent.pid, ())]
    if not quick:
        _strangers = time.monotonic(), frozenset(everyone.keys() - {one.pid for one in found} - {os.getpid()})
    return found


def state_of(pid: int) -> str:
    """A process's state as in proc(5): R, S, T ...; "" if the process is gone. Raises OSError if it cannot be read."""
    found = member_of(pid)
    return "" if found is None else found.state


def record(path: str) -> bytes:
    """A file of `/proc` that is one record, which the kernel returns as a whole (`maps` is not). Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, MOST_BYTES)
    finally:
        os.close(file)


def _everyone(but: frozenset[int]) -> dict[int, Member]:
    """All processes but those of these ids. A process whose parent ended between two reads is read again: it has a new
    parent by now.
    """
    found = {}
    for pid in _numbers("/proc"):
        if pid in but:
            continue
        with contextlib.suppress(PermissionError):  # other users' processes, on a machine that hides them
            if (one := member_of(pid)) is not None:
                found[pid] = one
    for pid in [pid for pid, one in found.items() if one.parent and one.parent not in found and one.parent not in but]:
        if (again := member_of(pid)) is not None:
            found[pid] = again
        else:
            del found[pid]
    return found


def member_of(pid: int) -> Member | None:
    fields = _fields(f"/proc/{pid}/stat")
    if fields is None:
        return None
    state, thread = fields[0].decode("ascii", "replace"), pid
    if state in DEAD and int(fields[17]) > 1:
        state, thread = _of_threads(pid)
    return Member(pid, int(fields[1]), int(fields[2]), state, int(fields[19]), thread)


def _of_threads(pid: int) -> tuple[str, int]:
    """The state and id of a thread that lives on without the first; preferably of one that does not stand still."""
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
    """The fields of a `stat` file from the state on; None if the process or thread is gone. Raises OSError."""
    try:
        text = record(path)
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(b")")[2].split()  # after the program's name, which may contain anything
    return fields if len(fields) >= 20 else None


def _numbers(folder: str) -> list[int]:
    return [int(name) for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208
