"""The system call filter of a worker, tried in a process of its own."""

from __future__ import annotations

import socket
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
