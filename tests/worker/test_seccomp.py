"""The system call filter of a worker, tried in processes of its own, and each machine's filter in an interpreter of its few steps."""

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

has_a_filter = pytest.mark.skipif(seccomp.program() is None, reason="no filter for this machine's calls")
HEAD = """
import ctypes, errno, fcntl, os, signal, socket, subprocess, sys, tempfile, threading
from grader.worker import seccomp
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(seccomp.PR_SET_CHILD_SUBREAPER, 1)
seccomp.install()

def tell(name, found):
    print(name, "done" if found >= 0 else errno.errorcode[ctypes.get_errno()])

def attempt(name, call, *arguments):
    try:
        call(*arguments)
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""


def told(program: str, *arguments: object) -> dict[str, str]:
    """The lines that a process with the filter prints: a name, and what became of the call."""
    command = [sys.executable, "-c", HEAD + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@has_a_filter
def test_only_sockets_that_a_network_namespace_closes_are_open() -> None:
    program = """
for family in map(int, sys.argv[1:]):
    attempt(family, socket.socket, family, socket.SOCK_RAW if family == socket.AF_NETLINK else socket.SOCK_DGRAM)
"""
    is_open = [int(one) for one in (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK)]
    refused = [40, 42, 38, 31]  # AF_VSOCK, AF_QIPCRTR, AF_ALG, AF_BLUETOOTH: whether this kernel has them or not
    assert told(program, *is_open, *refused) == {
        str(one): "done" if one in is_open else "EPERM" for one in is_open + refused
    }


@has_a_filter
def test_no_memory_that_belongs_to_no_process_and_no_io_uring() -> None:
    """System V's, queues of messages, secret memory, file systems that could be mounted in a namespace; nor keyrings."""
    numbers = seccomp.MACHINES[platform.machine()].refused
    # Arguments that no call takes: what is not refused fails for another reason.
    program = "for number in map(int, sys.argv[1:]): tell(number, libc.syscall(number, -1, -1, -1, -1, -1))"
    assert told(program, *numbers) == dict.fromkeys(map(str, numbers), "EPERM")


@has_a_filter
def test_nobody_has_to_wait_for_a_worker_to_let_go_of_a_file() -> None:
    program = """
with tempfile.NamedTemporaryFile() as file:
    attempt("lease", fcntl.fcntl, file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    attempt("notify", fcntl.fcntl, file, fcntl.F_NOTIFY, fcntl.DN_MODIFY)
    attempt("descriptor", fcntl.fcntl, file, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
"""
    assert told(program) == {"lease": "EPERM", "notify": "EPERM", "descriptor": "done"}


@has_a_filter
def test_what_a_workers_children_leave_behind_stays_its_own() -> None:
    program = """
for name, option, value in (("no", seccomp.PR_SET_CHILD_SUBREAPER, 0), ("yes", seccomp.PR_SET_CHILD_SUBREAPER, 1), ("name", 15, b"name")):
    tell(name, libc.prctl(option, value, 0, 0, 0))
if os.fork() == 0:
    os.fork() or os._exit(5)
    os._exit(0)
print("children", *sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)), sep=",", end=" done")
"""
    assert told(program) == {"no": "EPERM", "yes": "done", "name": "done", "children,0,5": "done"}


@has_a_filter
def test_no_new_namespaces_and_all_else_that_starts_threads_and_processes() -> None:
    program = """
calls = seccomp.MACHINES[os.uname().machine]
FILES, USER = 0x400, 0x10000000  # of unshare(2)
tell("files", libc.syscall(calls.unshare, FILES))
tell("unshare", libc.syscall(calls.unshare, USER))
tell("clone3", libc.syscall(seccomp.CLONE3_CALL, 0, 0))
tell("clone", found := libc.syscall(calls.clone, USER | signal.SIGCHLD, 0, 0, 0, 0))
if found == 0:
    os._exit(0)
thread = threading.Thread(target=print, args=("thread", "done"))
thread.start()
thread.join()
sys.stdout.flush()
subprocess.run(["echo", "spawned done"], close_fds=False)  # by vfork
subprocess.run(["echo", "forked done"], preexec_fn=lambda: None)
os.waitpid(os.posix_spawnp("echo", ["echo", "posix_spawn done"], os.environ), 0)
os.system("echo shell done | cat")
"""
    refused = {"unshare": "EPERM", "clone3": "ENOSYS", "clone": "EPERM"}
    assert told(program) == refused | dict.fromkeys(
        ("files", "thread", "spawned", "forked", "posix_spawn", "shell"), "done"
    )


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
    assert answer(calls.prctl, seccomp.PR_SET_CHILD_SUBREAPER, 0) == refused
    assert answer(calls.prctl, seccomp.PR_SET_CHILD_SUBREAPER, 1) == answer(calls.prctl, 15, 0) == seccomp.ALLOW
    assert answer(calls.fcntl, 3, 1024) == refused
    assert answer(calls.fcntl, 3, 2) == seccomp.ALLOW
    assert answer(calls.socket, socket.AF_INET) == answer(0) == seccomp.ALLOW
    assert answer(calls.socket, 40) == refused
    assert verdict(machine, 0, 0, calls.architecture ^ 1) == refused
