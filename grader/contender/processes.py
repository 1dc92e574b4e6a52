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
import subprocess
import time
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 10.0

_started: dict[int, subprocess.Popen[bytes]] = {}


def adopt(process: subprocess.Popen[bytes]) -> None:
    """Register a worker that this process has started."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    _started[process.pid] = process


def tree(pid: int) -> list[psutil.Process]:
    """A process and its living descendants."""
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [process for process in (root, *root.children(recursive=True)) if _lives(process)]
    return []


def orphans() -> list[psutil.Process]:
    """Living children of this process that it did not start, and their descendants. Only meaningful once a worker was adopted."""
    if not _started:
        return []
    children = psutil.Process().children()
    return [process for child in children if child.pid not in _started for process in tree(child.pid)]


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a worker, its descendants and all orphans, until none is left.

    Each pass stops the processes before it kills them, so that a fork bomb cannot grow faster than it is killed.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := [*tree(process.pid), *orphans()]) and time.monotonic() < deadline:
        for signal_ in (psutil.Process.suspend, psutil.Process.kill):
            for one in found:
                with contextlib.suppress(psutil.Error):
                    signal_(one)
        _reap(found)
        time.sleep(0.002)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=PATIENCE_S)
    _started.pop(process.pid, None)


def private_bytes(found: list[psutil.Process], limit: int) -> int:
    """Memory that processes hold for themselves: libraries, files and the arena count for nobody.

    The quick sum counts what forked processes still share once for each; only where that passes `limit` does it pay to
    ask the kernel for everyone's fair share.
    """
    quick = sum(_resident(process) for process in found)
    return quick if quick <= limit else sum(_anonymous_share(process) for process in found)


def _resident(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        memory = process.memory_info()
        return int(memory.rss - memory.shared)
    return 0


def _anonymous_share(process: psutil.Process) -> int:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii")
        found = re.search(r"Pss_Anon:\s+(\d+) kB", text) or re.search(r"Private_Dirty:\s+(\d+) kB", text)
        return int(found.group(1)) * 1024 if found else 0
    return 0


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def _reap(found: list[psutil.Process]) -> None:
    """Collect the exit status of orphans, which nobody else will."""
    for one in found:
        if one.pid not in _started:
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(one.pid, os.WNOHANG)
