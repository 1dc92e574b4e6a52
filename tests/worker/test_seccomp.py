"""The system call filter of a worker, tried in a process of its own."""

from __future__ import annotations

import errno
import platform
import socket
import struct
import subprocess
import sys

import pytest

from grader.worker import seccomp
from tests.conftest import ROOT

PROGRAM = """
import ctypes, errno, os, socket, sys
from grader.worker import seccomp
seccomp.install()
libc = ctypes.CDLL(None, use_errno=True)
for number in seccomp.IO_URING_CALLS:
    assert libc.syscall(number, 1, None) == -1
    print(number, errno.errorcode[ctypes.get_errno()])
for family in map(int, sys.argv[1:]):
    try:
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_DGRAM).close()
        print(family, "open")
    except OSError as error:
        print(family, errno.errorcode[error.errno])
"""
OPEN = (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK)
# AF_VSOCK, AF_QIPCRTR, AF_ALG, AF_BLUETOOTH: whether this kernel has them or not.
REFUSED = (40, 42, 38, 31)


@pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
def test_only_sockets_that_a_network_namespace_closes_are_open_and_no_io_uring() -> None:
    families = [str(int(one)) for one in (*OPEN, *REFUSED)]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *families], capture_output=True, text=True, cwd=ROOT)
    found = dict(line.split() for line in done.stdout.splitlines())
    assert found == (
        {str(number): "EPERM" for number in seccomp.IO_URING_CALLS}
        | {str(int(one)): "open" for one in OPEN}
        | {str(one): "EPERM" for one in REFUSED}
    ), done.stderr


# Arguments that no call takes: what is not refused fails for another reason.
REFUSED_CALLS = """
import ctypes, errno, sys
from grader.worker import seccomp
seccomp.install()
libc = ctypes.CDLL(None, use_errno=True)
for number in map(int, sys.argv[1:]):
    assert libc.syscall(number, -1, -1, -1, -1, -1) == -1
    print(number, errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
def test_no_memory_that_belongs_to_no_process() -> None:
    """System V's, queues of messages, secret memory, and the file systems that could be mounted in a namespace."""
    calls = seccomp.MACHINES[platform.machine()]
    numbers = [
        *calls.system_v,
        *seccomp.MOUNT_CALLS,
        calls.mount,
        calls.setns,
        calls.mq_open,
        seccomp.SECRET_MEMORY_CALL,
    ]
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_CALLS, *map(str, numbers)], capture_output=True, text=True, cwd=ROOT
    )
    assert dict(line.split() for line in done.stdout.splitlines()) == dict.fromkeys(map(str, numbers), "EPERM"), (
        done.stderr
    )


FILE_COMMANDS = """
import errno, fcntl, signal, tempfile
from grader.worker import seccomp
seccomp.install()
with tempfile.NamedTemporaryFile() as file:
    for command, value in ((fcntl.F_SETLEASE, fcntl.F_WRLCK), (fcntl.F_NOTIFY, fcntl.DN_MODIFY), (fcntl.F_SETFD, fcntl.FD_CLOEXEC)):
        try:
            print(command, fcntl.fcntl(file, command, value))
        except OSError as error:
            print(command, errno.errorcode[error.errno])
"""


@pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
def test_nobody_has_to_wait_for_a_worker_to_let_go_of_a_file() -> None:
    done = subprocess.run([sys.executable, "-c", FILE_COMMANDS], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["1024", "EPERM", "1026", "EPERM", "2", "0"], done.stderr


REAPERS = """
import ctypes, errno, os
from grader.worker import seccomp
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(seccomp.PR_SET_CHILD_SUBREAPER, 1)
seccomp.install()
for option, value in ((seccomp.PR_SET_CHILD_SUBREAPER, 0), (seccomp.PR_SET_CHILD_SUBREAPER, 1), (15, b"name")):
    print("done" if libc.prctl(option, value, 0, 0, 0) == 0 else errno.errorcode[ctypes.get_errno()])
if os.fork() == 0:
    os.fork() or os._exit(5)
    os._exit(0)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
"""


@pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
def test_what_a_workers_children_leave_behind_stays_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", REAPERS], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["EPERM", "done", "done", "[0, 5]"], done.stderr


NAMESPACES = """
import ctypes, errno, os, signal, subprocess, sys, threading
from grader.worker import seccomp
seccomp.install()
libc = ctypes.CDLL(None, use_errno=True)
calls = seccomp.MACHINES[os.uname().machine]
FILES, USER = 0x400, 0x10000000  # of unshare(2)
for name, number, first in (("files", calls.unshare, FILES), ("unshare", calls.unshare, USER), ("clone3", seccomp.CLONE3_CALL, 0),
                            ("clone", calls.clone, USER | signal.SIGCHLD)):
    found = libc.syscall(number, first, 0, 0, 0, 0)
    if name == "clone" and found == 0:
        os._exit(0)
    print(name, "done" if found >= 0 else errno.errorcode[ctypes.get_errno()])
thread = threading.Thread(target=print, args=("thread", "done"))
thread.start()
thread.join()
sys.stdout.flush()
subprocess.run(["echo", "spawned done"], close_fds=False)  # by vfork
subprocess.run(["echo", "forked done"], preexec_fn=lambda: None)
os.waitpid(os.posix_spawnp("echo", ["echo", "posix_spawn done"], os.environ), 0)
os.system("echo shell done | cat")
"""


@pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
def test_no_new_namespaces_and_all_else_that_starts_threads_and_processes() -> None:
    done = subprocess.run([sys.executable, "-c", NAMESPACES], capture_output=True, text=True, cwd=ROOT)
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "files": "done",
        "unshare": "EPERM",
        "clone3": "ENOSYS",
        "clone": "EPERM",
        "thread": "done",
        "spawned": "done",
        "forked": "done",
        "posix_spawn": "done",
        "shell": "done",
    }, done.stderr


def verdict(machine: str, number: int, first: int, architecture: int, second: int = 0) -> int:
    """What the filter of a machine returns for a call: an interpreter of the few instructions that it has."""
    steps = list(struct.iter_unpack("HBBI", seccomp.program(machine) or b""))
    data = struct.pack("<iIQQQ", number, architecture, 0, first, second)
    here, value = 0, 0
    while True:
        code, yes, no, constant = steps[here]
        here += 1
        match code:
            case seccomp.LOAD:
                (value,) = struct.unpack_from("<I", data, constant)
            case seccomp.RETURN:
                return int(constant)
            case _:
                holds = {
                    seccomp.IF_EQUAL: value == constant,
                    seccomp.IF_AT_LEAST: value >= constant,
                    seccomp.IF_ANY_OF: bool(value & constant),
                }
                here += yes if holds[code] else no


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_each_machine_has_the_same_walls(machine: str) -> None:
    calls = seccomp.MACHINES[machine]
    refused, unknown = (0x50000 | number for number in (errno.EPERM, errno.ENOSYS))
    thread, new_user, vfork = 0x3D0F00, 0x10000011, 0x4111  # of clone(2)

    def answer(number: int, first: int = 0, second: int = 0) -> int:
        return verdict(machine, number, first, calls.architecture, second)

    assert {answer(number) for number in calls.refused} == {refused}
    assert answer(seccomp.CLONE3_CALL) == unknown
    assert answer(calls.clone, new_user) == answer(calls.unshare, 0x10000000) == refused
    assert answer(calls.clone, thread) == answer(calls.clone, vfork) == answer(calls.unshare, 0x400) == seccomp.ALLOW
    assert answer(calls.mq_open) == answer(calls.prctl, seccomp.PR_SET_CHILD_SUBREAPER, 0) == refused
    assert answer(calls.prctl, seccomp.PR_SET_CHILD_SUBREAPER, 1) == answer(calls.prctl, 15, 0) == seccomp.ALLOW
    assert answer(calls.fcntl, 3, 1024) == refused
    assert answer(calls.fcntl, 3, 2) == seccomp.ALLOW
    assert answer(calls.socket, socket.AF_INET) == answer(0) == seccomp.ALLOW
    assert answer(calls.socket, 40) == refused
    assert verdict(machine, 0, 0, calls.architecture ^ 1) == refused
