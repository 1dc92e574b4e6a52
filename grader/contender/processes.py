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

_started: dict[int, subprocess.Popen[bytes]] = {}
_starting = threading.Lock()


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
    with _starting:  # a worker that is just being started must not be taken for somebody's orphan
        others = {one for one in _started if one != pid}
        descendants = _descendants()
    for process, root in descendants:
        if root in others:
            continue
        if _lives(process):
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


def freeze(process: subprocess.Popen[bytes]) -> None:
    """Stop a worker's process group, and wait until the worker has stopped, or has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def freeze_tree(process: subprocess.Popen[bytes]) -> None:
    """Stop everything that a worker started, whatever group it went to."""
    for _ in range(10):  # what is not stopped yet may start more
        running = [one for one in tree(process.pid) if _status(one) not in (psutil.STATUS_STOPPED, None)]
        if not running:
            return
        for one in running:
            with contextlib.suppress(psutil.Error):
                one.suspend()


def thaw(process: subprocess.Popen[bytes]) -> None:
    """Let a worker and everything it started go on."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGCONT)
    for one in tree(process.pid):
        with contextlib.suppress(psutil.Error):
            one.resume()


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


def _lives(process: psutil.Process) -> bool:
    return _status(process) not in (None, psutil.STATUS_ZOMBIE)


def _status(process: psutil.Process) -> str | None:
    """What the process is doing; None when it is gone."""
    with contextlib.suppress(psutil.Error):
        return str(process.status())
    return None


def _collect(pid: int) -> None:
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
