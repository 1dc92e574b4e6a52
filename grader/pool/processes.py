"""Trees of processes: find, freeze and end all processes that a worker started.

A worker that a fork server has forked is the "child subreaper" (prctl(2)) of its tree, and so is the server: a process
whose parent ends becomes a child of the nearest of them instead of init. The judge is one too, for programs that it has
started itself: a child that the judge did not start is an orphan of one of these.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import IO, Any, Protocol

import psutil

from grader.pool.table import DEAD, STANDING, Member, descendants, state_of

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 10.0
FREEZE_LIMIT_S = 1.0
LAST_LOOKS = 3  # looks in a row that find no process: one look may miss a child born during it

started: dict[int, subprocess.Popen[bytes]] = {}
_starting = threading.Lock()
_last_look: tuple[float, list[Member]] = (-math.inf, [])  # time of the last look, and its result
_stopped: dict[int, set[int]] = {}  # other process groups of a worker's tree that were stopped, by the worker's pid
_members: dict[int, list[int]] = {}  # pids in a worker's process group at the last look


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child of the judge; `options` are Popen's. A child started here is never taken for a worker's orphan."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with _starting:
        process = subprocess.Popen(command, **options)
        started[process.pid] = process
    return process


def output_of(command: list[str], limit_s: float, stdin: int | IO[bytes] = subprocess.DEVNULL, **options: Any) -> bytes:
    """The output of a program of the judge, which is never taken for a worker's orphan. Raises
    subprocess.TimeoutExpired.
    """
    process = start(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options)
    try:
        return process.communicate(timeout=limit_s)[0]
    finally:
        process.kill()
        process.communicate()
        with _starting:
            started.pop(process.pid, None)


class Process(Protocol):
    """What `subprocess.Popen` has, and a worker that a fork server has forked."""

    pid: int

    def kill(self) -> None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def tree(pid: int, age_s: float = 0.0) -> list[Member]:
    """A process and its living descendants; of a program that the judge has started, orphans too. Collects the dead
    that nobody else will collect.

    Args:
        age_s: how old a look at the process table may be; watchers of several workers share one look.
    """
    found = []
    for one in _belonging_to(pid, age_s):
        if one.state not in DEAD:
            found.append(one)
        elif one.root == one.pid and one.root not in started:
            _collect(one.root)
    return found


@contextlib.contextmanager
def precedence() -> Iterator[None]:
    """Let this thread run before all others, if this user may: a watcher must get its turn among thousands of
    processes.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        # With the flag: a user other than root may set it and not take it away again (sched(7)).
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


@functools.cache
def tasks_of(uid: int) -> int:
    """How many processes and threads a user had at the first call."""
    found = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == uid:
                found += process.num_threads()
    return found


def end(process: Process, own_namespace: bool = False, hides: bool = True) -> None:
    """Kill a worker, its descendants and all orphans, until none is left.

    Each pass stops the processes before it kills them, so that a fork bomb cannot grow faster than it is killed. A worker
    that a fork server has forked dies last: while it lives, its orphans stay below it.

    Args:
        own_namespace: whether the tree has its own process namespace, and so ends with its first process.
        hides: whether the tree may try to hide processes.
    """
    deadline = time.monotonic() + PATIENCE_S
    if own_namespace:
        process.kill()
    seen_none, enough = 0, LAST_LOOKS if hides and not own_namespace else 1
    while seen_none < enough and time.monotonic() < deadline:
        try:
            found = tree(process.pid)
            ended = [one for one in found if one.pid != process.pid or one.pid in started]
            seen_none = 0 if ended else seen_none + 1
        except OSError:  # the table cannot be read now, say because too many files are open
            process.kill()
            found = ended = []
        for one in found:
            one.signal(signal.SIGSTOP)
        for one in ended:
            one.signal(signal.SIGKILL)
        if seen_none < enough:
            time.sleep(0.002)
    if process.pid not in started:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=PATIENCE_S)
    with _starting:
        started.pop(process.pid, None)
    _members.pop(process.pid, None)
    _stopped.pop(process.pid, None)


def freeze(process: Process) -> bool:
    """Freeze a worker's process group. Returns whether it stands still or has ended.

    The group is the started process, and members that `freeze_tree` has seen: with a jail the worker is one of these.
    """
    deadline = time.monotonic() + FREEZE_LIMIT_S
    members = {process.pid, *_members.get(process.pid, ())}
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)
        if all(state_of(pid) in STANDING for pid in members):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(20e-6)


def freeze_tree(process: Process) -> bool:
    """Freeze all processes that a worker started, in whatever group. Returns whether all stand still."""
    deadline = time.monotonic() + FREEZE_LIMIT_S
    known: set[int] = set()  # the dead whose groups were stopped: a worker that stands still collects none of its own
    # A process that has not stopped yet may start more, and on a busy machine stopping takes time.
    while time.monotonic() < deadline:
        found = _belonging_to(process.pid)
        _members[process.pid] = [one.pid for one in found if one.group == process.pid]
        # A dead process shows its group too: it may have left a child there, unseen.
        dead = [one for one in found if one.state == "Z" and one.pid not in known]
        if not dead and all(one.state in STANDING for one in found):
            return True
        for group in {one.group for one in found} - {os.getpgrp()}:
            _stopped.setdefault(process.pid, set()).add(group)
            with contextlib.suppress(OSError):  # the whole group: a process that is just being forked cannot escape
                os.killpg(group, signal.SIGSTOP)
        for one in dead:
            if one.root == one.pid and one.root not in started:
                _collect(one.pid)
            else:
                known.add(one.pid)
    return False


def _belonging_to(pid: int, age_s: float = 0.0) -> list[Member]:
    """A process and its descendants, of a program that the judge has started orphans too; the dead included."""
    global _last_look
    with _starting:
        others = {one for one in started if one != pid}
        taken_at, found = _last_look
        if time.monotonic() - taken_at >= age_s:
            found = descendants(quick=age_s > 0)
            _last_look = time.monotonic(), found
    if pid not in started:
        below = {pid}
        below.update(one.pid for one in found if one.parent in below)  # parents come before children
        return [one for one in found if one.pid in below]
    # A program that a library runs (as `ldconfig`) is in this process's group, which no worker's process can join.
    own = {one.pid for one in found if one.pid == one.root != pid and one.group == os.getpgrp()}
    return [one for one in found if one.root not in others | own]


def thaw(process: Process) -> None:
    """Let a worker and its tree go on after `freeze` and `freeze_tree`."""
    for group in {process.pid, *_stopped.pop(process.pid, ())}:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGCONT)


def _collect(pid: int) -> None:
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)
