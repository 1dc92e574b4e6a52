"""The kernel's table of processes, read in one pass: who descends from this process, and how each of them stands.

Watchers read it many times a second, while threads of the same interpreter compute. Each file that is read hands the interpreter to one of
those, and getting it back takes longer than the reading: so a pass opens one file for each process, and a file takes three calls.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

PIECE_BYTES = 1 << 16  # more than nearly all records have
DEAD = ("Z", "X", "")  # states of proc(5), and none: the process is gone
STANDING = ("T", "t", *DEAD)


@dataclass(frozen=True, slots=True)
class Member:
    """A descendant of this process, as one look found it.

    root: the child of this process that it descends from.
    group: its process group. state: R, S, T, Z ... of proc(5). since: when it started, in ticks since the machine did.
    """

    pid: int
    root: int
    group: int
    state: str
    since: int

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process of this number is still the one that was looked at, and may be sent one."""
        row = _row(self.pid)
        if row is not None and row.since == self.since:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)


def descendants() -> list[Member]:
    """All that descend from this process now, parents before children; the dead that nobody has collected are among them."""
    rows = _rows()
    children: dict[int, list[int]] = {}
    for pid, row in rows.items():
        children.setdefault(row.parent, []).append(pid)
    found: list[Member] = []
    waiting = [(pid, pid) for pid in children.get(os.getpid(), ())]
    while waiting:
        pid, root = waiting.pop()
        row = rows[pid]
        found.append(Member(pid, root, row.group, row.state, row.since))
        waiting += [(child, root) for child in children.get(pid, ())]
    return found


def state_of(pid: int) -> str:
    """A process's state as proc(5) has it: R, S, T ...; nothing when it is gone."""
    row = _row(pid)
    return "" if row is None else row.state


def record(path: str) -> bytes:
    """What stands in a file of `/proc` that is a single record, which the kernel gives as a whole; `maps`, say, is none. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = piece = os.read(file, PIECE_BYTES)
        while len(piece) == PIECE_BYTES:
            text += (piece := os.read(file, PIECE_BYTES))
        return text
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class _Row:
    parent: int
    group: int
    state: str
    since: int


def _rows() -> dict[int, _Row]:
    """Everybody's row. Who has lost a parent between its own row and its parent's is asked again: it has another one by now."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    rows = {pid: row for pid in pids if (row := _row(pid)) is not None}
    for pid in [pid for pid, row in rows.items() if row.parent and row.parent not in rows]:
        if (again := _row(pid)) is not None:
            rows[pid] = again
        else:
            del rows[pid]
    return rows


def _row(pid: int) -> _Row | None:
    try:
        text = record(f"/proc/{pid}/stat")
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # before it stands the program's name, which may be anything
    if len(fields) < 20:
        return None
    return _Row(int(fields[1]), int(fields[2]), fields[0].decode("ascii", "replace"), int(fields[19]))
