"""Warm fork servers for tests on a CPU: forks of a judge that has imported Triton, which saves seconds for each grading.

A real fork server is a new interpreter in a jail, which imports torch and Triton. For kernels that are only wrong, a
fork of the judge is good enough. It has a server's folder, connection, log and poisoned memory, and is a child of the
judge; the workers that it forks are watched as usual.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from grader import protocol
from grader.pool import processes

M_PERTURB = -6  # mallopt(3): sets MALLOC_PERTURB_ in a running process
SERVERS = 2  # the submission's, and the course's own


class Warm:
    """Processes that wait to become fork servers. Made before the judge has a second thread: a fork copies only one."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, socket.socket]] = []
        for _ in range(SERVERS):
            self._fork()

    def _fork(self) -> None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # Otherwise their other ends would never see the end of the stream
            for connection in (ours, *(one for _, one in self._waiting)):
                connection.close()
            with contextlib.suppress(BaseException):
                _become_server(theirs)
            os._exit(1)
        processes.started[pid] = None  # type: ignore[assignment]  # otherwise it would be taken for a worker's orphan
        theirs.close()
        self._waiting.append((pid, ours))

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Stands for `subprocess.Popen` in `grader.pool.processes`."""
        if not self._waiting or "grader.worker" not in command or (command[-4], command[-1]) != ("cpu", "serves"):
            return subprocess.Popen(command, **options)
        pid, connection = self._waiting.pop(0)
        descriptors = array.array("i", [*options["pass_fds"], options["stdout"]])
        with connection:
            words = [command[-2], str(options["cwd"]), *(f"{name}={value}" for name, value in options["env"].items())]
            header = "\0".join(words).encode()
            connection.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        return _Started(pid, command)

    def close(self) -> None:
        """End the processes that did not become servers."""
        for pid, connection in self._waiting:
            connection.close()
            os.waitpid(pid, 0)
            processes.started.pop(pid)


class _Started(subprocess.Popen[bytes]):
    """A Popen of a process that already exists."""

    def __init__(self, pid: int, command: list[str]) -> None:
        self.pid, self.args, self.returncode = pid, command, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()


def _become_server(connection: socket.socket) -> None:
    header, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    if not header:
        os._exit(0)
    tasks, folder, *variables = header.decode().split("\0")
    requests, replies, log = descriptors
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ |= dict(one.split("=", 1) for one in variables)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    ctypes.CDLL(None).mallopt(M_PERTURB, protocol.FILL_BYTE ^ 0xFF)
    sys.argv = ["grader.worker", str(requests), str(replies), "cpu", str(os.getppid()), tasks, "serves"]

    from grader.worker.__main__ import main

    main()
