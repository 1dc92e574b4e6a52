"""The table of processes: who descends from this one, at one look."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from grader.pool import processes, table
from grader.pool.usage import Look

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""
ODD_NAME = "import ctypes, time; ctypes.CDLL(None).prctl(15, b') R 1 (x'); print(0, flush=True); time.sleep(60)"


def started(code: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process, and the number that it says."""
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """Process ids of a parent and of its child in a session of its own."""
    process, child = started(FAMILY)
    yield process.pid, child
    os.kill(child, signal.SIGKILL)
    end(process)


def member(pid: int) -> table.Member:
    return next(one for one in table.descendants() if one.pid == pid)


def test_a_look_finds_children_of_children(family: tuple[int, int]) -> None:
    parent, child = family
    found = {one.pid: one for one in table.descendants()}
    assert os.getpid() not in found
    assert found[parent].root == found[child].root == parent
    assert found[parent].group == os.getpgrp()
    assert found[child].group == child
    assert found[child].state in ("S", "R")


def test_a_quick_look_reads_no_strangers_and_finds_every_descendant(monkeypatch: pytest.MonkeyPatch) -> None:
    table.descendants()
    read, record = [], table.record
    monkeypatch.setattr(table, "record", lambda path: read.append(path) or record(path))
    process, child = started(FAMILY)
    try:
        assert {process.pid, child} <= {one.pid for one in table.descendants(quick=True)}
        assert "/proc/1/stat" not in read
        table.descendants()
        assert "/proc/1/stat" in read
        assert {process.pid, child} <= {one.pid for one in table.descendants(quick=True)}
    finally:
        os.kill(child, signal.SIGKILL)
        end(process)


def test_the_name_of_a_program_may_look_like_the_rest_of_its_row() -> None:
    process, _ = started(ODD_NAME)
    try:
        found = member(process.pid)
        assert (found.root, found.group) == (process.pid, os.getpgrp())
        assert found.state in ("S", "R")
    finally:
        end(process)


def test_a_signal_reaches_nobody_who_has_the_number_by_now(family: tuple[int, int]) -> None:
    child = family[1]
    replace(member(child), since=member(child).since - 1).signal(signal.SIGSTOP)
    assert table.state_of(child) in ("S", "R")
    process, _ = started("print(0, flush=True)")
    gone = member(process.pid)
    end(process)
    gone.signal(signal.SIGKILL)
    assert table.state_of(process.pid) == ""


def test_who_loses_a_parent_during_a_look_is_asked_again(
    family: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is this process's child by then, for orphans of workers are."""
    parent, child = family
    row_of, asked = table.member_of, []

    def row(pid: int) -> table.Member | None:
        found = row_of(pid)
        if pid == parent:
            return None  # it has ended just before it was asked
        if pid != child or found is None:
            return found
        asked.append(pid)
        return found if len(asked) == 1 else replace(found, parent=os.getpid())

    monkeypatch.setattr(table, "member_of", row)
    assert member(child).root == child
    assert len(asked) == 2


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, os, threading, time
def go():
    kept = bytearray(32 << 20)
    kept[::4096] = bytes(len(kept[::4096]))
    file = os.memfd_create("hoard")
    os.write(file, kept)
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print(os.getpid(), flush=True)
    time.sleep(60)
threading.Thread(target=go).start()
ctypes.CDLL(None).syscall({exit}, 0)
"""


def test_a_process_whose_first_thread_has_ended_is_no_dead_one() -> None:
    """To the kernel's table it is: it has to be stopped, ended and counted all the same."""
    code = WITHOUT_ITS_FIRST_THREAD.replace("{exit}", "60" if os.uname().machine == "x86_64" else "93")
    process = processes.start([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout as said:
        pid = int(said.readline())
    assert pid == process.pid
    found = processes.tree(pid)
    assert [one.pid for one in found] == [pid]
    assert found[0].thread != pid
    assert found[0].state in ("S", "R")
    assert Look([found[0].thread]).held_bytes(1 << 40) > 64 << 20
    assert processes.freeze(process)
    assert processes.freeze_tree(process)
    assert table.state_of(found[0].thread) == "T"
    processes.thaw(process)
    processes.end(process)
    assert not table.state_of(pid)


def test_a_table_that_cannot_be_read_is_not_an_empty_one(
    family: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str) -> bytes:
        raise error

    monkeypatch.setattr(table, "record", refuse)
    error: OSError = OSError(errno.ENFILE, "too many open files in system")
    with pytest.raises(OSError, match="too many"):
        table.descendants()
    with pytest.raises(OSError, match="too many"):
        table.state_of(family[0])
    error = PermissionError(errno.EPERM, "other users' are hidden")
    assert table.descendants() == []
    error = ProcessLookupError(errno.ESRCH, "it has just ended")
    assert table.descendants() == []
    assert table.state_of(family[0]) == ""


def test_a_signal_is_sent_where_nobody_can_tell_whose_it_is(
    family: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = member(family[1])

    def refuse(_path: str) -> bytes:
        raise OSError(errno.ENFILE, "too many open files in system")

    with monkeypatch.context() as patched:
        patched.setattr(table, "record", refuse)
        child.signal(signal.SIGSTOP)
    while table.state_of(child.pid) != "T":
        pass
