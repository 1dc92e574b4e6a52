"""Trees of processes: finding and ending everything that a worker started.

The judge makes itself a "child subreaper" (prctl(2)): a process whose parent ends becomes the judge's own child
instead of init's. So a worker's descendants stay below the judge whatever they do, and a child of the judge that it
did not start is an orphan of some worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 10.0
FREEZE_LIMIT_S = 1.0
FREEZE_PASSES = 20
DEAD = ("Z", "X", "")  # states of proc(5), and none: the process is gone
STANDING = ("T", "t", *DEAD)

_started: dict[int, subprocess.Popen[bytes]] = {}
_starting = threading.Lock()
_stopped: dict[int, set[int]] = {}  # other groups of a worker's tree that were stopped with it
_members: dict[int, list[int]] = {}  # of a worker's tree, when it was last looked at


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a worker; `options` are those of Popen. From here on it is told apart from what other workers leave behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with _starting:
        process = subprocess.Popen(command, **options)
        _started[process.pid] = process
    return process


def tree(pid: int) -> list[psutil.Process]:
    """A worker, its living descendants, and what workers left to this process; one look at the table of processes.

    The dead that nobody else will collect are collected on the way.
    """
    found = []
    for process, root in _belonging_to(pid):
        if _state(process.pid) not in DEAD:
            found.append(process)
        elif root == process.pid and root not in _started:
            _collect(root)
    return found


def _descendants() -> list[tuple[psutil.Process, int]]:
    """Every descendant of this process, and the child of this process that it descends from."""
    me = os.getpid()
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(me).children(recursive=True)
        parents = {}
        for process in below:
            with contextlib.suppress(psutil.Error):
                parents[process.pid] = process.ppid()

        def root(pid: int) -> int:
            for _ in range(len(parents) + 1):
                parent = parents.get(pid, me)
                if parent == me:
                    break
                pid = parent
            return pid

        return [(process, root(process.pid)) for process in below]
    return []


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a worker, its descendants and all orphans, until none is left.

    Each pass stops the processes before it kills them, so that a fork bomb cannot grow faster than it is killed.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := tree(process.pid)) and time.monotonic() < deadline:
        for signal_ in (psutil.Process.suspend, psutil.Process.kill):
            for one in found:
                with contextlib.suppress(psutil.Error):
                    signal_(one)
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=PATIENCE_S)
    _started.pop(process.pid, None)
    _members.pop(process.pid, None)
    _stopped.pop(process.pid, None)


def freeze(process: subprocess.Popen[bytes]) -> bool:
    """Stop a worker's process group, and wait until it has stopped, or has ended.

    Waits for the process that was started, and for those of its group that `freeze_tree` has seen: in a jail the worker is one of these.

    Returns False when something keeps them going.
    """
    deadline = time.monotonic() + FREEZE_LIMIT_S
    members = {process.pid, *_members.get(process.pid, ())}
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
        if all(_state(pid) in STANDING for pid in members):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(20e-6)


def freeze_tree(process: subprocess.Popen[bytes]) -> tuple[bool, bool]:
    """Stop everything that a worker started, whatever group it went to.

    Returns whether there was anything to stop, and whether all of it stands still now.
    """
    late = False
    for _ in range(FREEZE_PASSES):  # what is not stopped yet may start more
        found = _belonging_to(process.pid)
        groups = {one.pid: _group(one.pid) for one, _ in found}
        _members[process.pid] = [pid for pid, group in groups.items() if group == process.pid]
        # The dead tell of their group too: somebody may have left a child in it, and be gone before anyone looks.
        dead = [one.pid for one, root in found if root == one.pid and root not in _started and _state(root) == "Z"]
        if not dead and all(_state(pid) in STANDING for pid in groups):
            return late, True
        late = True
        for group in set(groups.values()) - {os.getpgrp()}:
            if group is None:
                continue
            _stopped.setdefault(process.pid, set()).add(group)
            with contextlib.suppress(OSError):  # as a whole: a process that is just being forked does not escape
                os.killpg(group, signal.SIGSTOP)
        for pid in dead:
            _collect(pid)
    return late, False


def _belonging_to(pid: int) -> list[tuple[psutil.Process, int]]:
    """A worker, all its descendants, and what workers left to this process, the dead among them; each with its `root`."""
    with _starting:
        others = {one for one in _started if one != pid}
        descendants = _descendants()
    return [(process, root) for process, root in descendants if root not in others]


def thaw(process: subprocess.Popen[bytes]) -> None:
    """Let a worker go on, and what `freeze_tree` has stopped with it."""
    for group in {process.pid, *_stopped.pop(process.pid, ())}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGCONT)


def private_bytes(found: list[psutil.Process], limit: int) -> int:
    """Memory that processes hold, shared memory included; libraries and files count for nobody.

    The quick sum counts what forked processes still share once for each; only where that passes `limit` does it pay to
    ask the kernel for everyone's fair share.
    """
    quick = sum(_kilobytes(process, "status", r"Rss(?:Anon|Shmem):\s+(\d+) kB") for process in found)
    if quick * 1024 <= limit:
        return quick * 1024
    return sum(_kilobytes(process, "smaps_rollup", r"Pss_(?:Anon|Shmem):\s+(\d+) kB") for process in found) * 1024


def _kilobytes(process: psutil.Process, file: str, pattern: str) -> int:
    """The sum of what `pattern` finds in a file of /proc; 0 for a process that is gone."""
    with contextlib.suppress(OSError):
        return sum(map(int, re.findall(pattern, Path(f"/proc/{process.pid}/{file}").read_text(encoding="ascii"))))
    return 0


def _group(pid: int) -> int | None:
    """The process group of a process; None when it is gone."""
    with contextlib.suppress(OSError):
        return os.getpgid(pid)
    return None


def _state(pid: int) -> str:
    """A process's state as proc(5) has it: R, S, T ...; nothing when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _collect(pid: int) -> None:
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
