"""Fork servers: processes that have imported what workers need, and fork each worker in milliseconds.

    judge ──socket──▶ fork server (in a jail; libraries imported, no CUDA, nothing read of the submission)
                        ├─ fork ▶ worker       with a session, a scratch folder, a socket and pipes of its own
                        └─ fork ▶ another one  after a crash, or for another lane

The judge is not the parent of such a worker. A worker leads a session and is the "child subreaper" of its tree, so its
tree is what lies below it. The server names a worker by the process id in its namespace; the judge looks for it among
the server's children and holds a pidfd. A worker that has ended stays a zombie until the judge asks the server to
collect it, so its process id cannot come to mean another process.

Whatever lies below a server and belongs to no living worker was left behind, by a worker that ended by itself. The
server is then ended, with all that is in its jail; the next worker gets a new one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from grader import protocol
from grader.pool import processes, usage
from grader.pool.fault import Fault
from grader.pool.jail import Jail
from grader.pool.log import Log
from grader.pool.replies import decode
from grader.pool.surroundings import WorkerKind
from grader.pool.table import DEAD, Member, descendants, record
from grader.protocol import Fork, Reap, Reply

START_LIMIT_S = 120.0
SILENCE_LIMIT_S = 10.0  # waiting for a core excluded, up to MOST_WAITED times as long
MOST_WAITED = 6.0
SEND_LIMIT_S = 10.0
# If the machine runs out of memory, the kernel ends workers first. Root can set this so that a worker cannot take it
# back; otherwise `Watch.look` checks it.
FIRST_TO_GO = ("/bin/sh", "-c", '{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null; exec "$@"', "sh")


class Channel:
    """The judge's ends of a worker's socket for requests and of its pipes for replies and prints, and the worker's ends."""

    def __init__(self) -> None:
        self.connection, self._theirs = socket.socketpair()
        self.connection.shutdown(socket.SHUT_RD)  # replies come over a pipe (see `protocol.Reader`)
        self.connection.settimeout(SEND_LIMIT_S)
        self.replies, self._write_replies = os.pipe()
        self.log, self._write_log = os.pipe()

    @property
    def theirs(self) -> tuple[int, int, int]:
        return self._theirs.fileno(), self._write_replies, self._write_log

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """A block that gives the worker its ends, which are closed here after it; after a failure all ends are."""
        try:
            yield
            # Another process of the judge's user may read the pipe first: reading must not block
            os.set_blocking(self.replies, False)
        except BaseException:
            self.connection.close()
            os.close(self.replies)
            os.close(self.log)
            raise
        finally:
            self._theirs.close()
            os.close(self._write_replies)
            os.close(self._write_log)


def start_program(
    arguments: Sequence[str],
    jail: Jail,
    channel: Channel,
    writable: Sequence[Path],
    readable: Sequence[Path],
    surroundings: Mapping[str, str],
    tool: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start `python -m grader.worker` in a jail, in the first of the `writable` folders.

    Args:
        arguments: the kind, and `serves` or `alone`.
        tool: a program with options that runs the worker.
    """
    kind, how = arguments
    connection, replies, log = channel.theirs
    # As the worker sees it: the first process of its namespace, or the judge
    parent = 0 if tool else 1 if jail.name == "bubblewrap" else os.getpid()
    # A fork bomb must not stop the judge's own threads. A user of its own has no other processes than this grading's
    # workers; the judge's user may start any number meanwhile.
    margin = 512 + 16 * (os.cpu_count() or 1) if jail.uid != os.geteuid() else 4096
    words = (connection, replies, kind, parent, processes.tasks_of(jail.uid) + margin, how)
    program = [*tool, sys.executable, "-P", "-s", "-m", "grader.worker", *map(str, words)]
    with channel.starting():
        return processes.start(
            [*FIRST_TO_GO, *jail.command(program, writable, readable)],
            cwd=writable[0],
            env=dict(surroundings),
            pass_fds=[connection, replies],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


class ForkServer:
    """A fork server and the connection to it. The constructor starts the process and returns at once. Threads may share
    an instance.

    Args:
        folder: the folder of the workers' scratch folders; created here. The server runs in it.
        caches: a further folder that workers may write to.
        readable: paths that the jail lets workers read, beside the system and Python.
        surroundings: environment variables.
        trusted: whether its workers run the course's own code, which leaves no process behind.
    """

    def __init__(
        self,
        kind: WorkerKind,
        folder: Path,
        caches: Path | None,
        jail: Jail,
        readable: Sequence[Path],
        surroundings: Mapping[str, str],
        trusted: bool,
    ) -> None:
        self.jail, self.trusted, self.caches = jail, trusted, caches
        self.folder, self.surroundings = folder, dict(surroundings)
        self.was_ended = False  # by the judge, with workers that may have been innocent
        self.cut_off_several = False  # whether it ended by itself while it had more than one worker
        writable = [folder] if caches is None else [folder, caches]
        channel = Channel()
        self._process = start_program((kind, "serves"), jail, channel, writable, readable, surroundings)
        self._connection, self._replies = channel.connection, channel.replies
        self._reader = protocol.Reader(channel.replies)
        self.log = Log(channel.log)
        self._lock = threading.RLock()
        self._pid = 0  # of the server itself, as the judge sees it; 0 until it is ready
        self._number = 0
        self._workers: dict[int, Forked] = {}  # those that nobody has collected, by the judge's process id

    def lives(self) -> bool:
        return not self.was_ended and self._process.poll() is None

    def fork(
        self, folder: Path, surroundings: Mapping[str, str], imports: Sequence[str] = ()
    ) -> tuple[Forked, Channel]:
        """Fork a worker that changes files in its `folder` and in compiled kernels alone. Raises Fault."""
        changed = {name: value for name, value in surroundings.items() if self.surroundings.get(name) != value}
        with self._lock:
            if not self.lives():
                raise Fault.no_worker(f"a fork server has ended\n{self.log.text()[-2000:]}")
            if not self._pid:
                self._pid = self._find(self._reply(START_LIMIT_S).pid, processes.tree(self._process.pid)).pid
            channel = Channel()
            with channel.starting():
                writable = () if self.jail.name == "none" else tuple(map(str, filter(None, (folder, self.caches))))
                reply = self._ask(Fork(str(folder), tuple(changed.items()), tuple(imports), writable), channel.theirs)
                if reply.error is not None:
                    raise Fault.no_worker(f"a worker did not start: {reply.error.message}")
                member = self._find(reply.pid, [one for one in descendants() if one.parent == self._pid])
                worker = Forked(member.pid, reply.pid or 0, self)
            self._workers[worker.pid] = worker
            return worker, channel

    def collect(self, worker: Forked) -> int:
        """The exit code of a worker that has ended, for words alone: a submission may have ended the server too."""
        with self._lock:
            lives = self.lives()
            self.cut_off_several |= not lives and len(self._workers) > 1
            self._workers.pop(worker.pid, None)
            if lives:
                with contextlib.suppress(Fault):
                    if (status := self._ask(Reap(worker.inner_pid)).status) is not None:
                        return status
        return -signal.SIGKILL

    def end_if_dirty(self) -> None:
        """End the server if it has ended by itself, or if a process lies below it that belongs to none of its workers."""
        with self._lock:
            if self.was_ended:
                return
            try:
                dirty = not self.lives() or bool(self._left_behind())
            except OSError:  # the table of processes cannot be read now
                dirty = True
            if dirty:
                self.end()

    def end(self) -> None:
        """End the server and everything in its jail."""
        with self._lock:
            if self.was_ended:
                return
            self.was_ended = True
            self._connection.close()
            os.close(self._replies)
            own_namespace = self.jail.name == "bubblewrap"
            processes.end(self._process, own_namespace=own_namespace, hides=not self.trusted)

    def _ask(self, request: protocol.Request, files: tuple[int, ...] = ()) -> Reply:
        self._number += 1
        try:
            protocol.send(self._connection, replace(request, id=self._number), files)
        except OSError as error:
            raise self._lost(str(error)) from None
        while (reply := self._reply(SILENCE_LIMIT_S)).id != self._number:
            pass
        return reply

    def _reply(self, limit_s: float) -> Reply:
        """The next reply. A server that is silent too long, or ends, is ended with its jail. Raises Fault."""
        pids = [self._pid] if self._pid else []
        asked, waited_s = time.monotonic(), usage.waited_s(pids)
        try:
            while (body := self._reader.next()) is None:
                late_s = time.monotonic() - asked - limit_s
                if late_s > 0 and late_s > min(usage.waited_s(pids) - waited_s, MOST_WAITED * limit_s):
                    raise self._lost(f"no answer within {limit_s:g} s")
                if select.select([self._replies], [], [], 0.1)[0] and not self._reader.read_some():
                    raise self._lost("it ended")
            return decode(body)
        except (OSError, protocol.ProtocolError) as error:
            raise self._lost(str(error)) from None

    def _lost(self, why: str) -> Fault:
        words = self.log.text()[-2000:]
        self.end()
        return Fault.no_worker(f"a worker did not start: its fork server gave no answer: {why}\n{words}")

    def _find(self, inner: int | None, among: Sequence[Member]) -> Member:
        """The process of these that has this id in the jail's namespace. Raises Fault."""
        depth = 2 if self.jail.name == "bubblewrap" else 1
        for one in among:
            with contextlib.suppress(OSError, IndexError):
                status = record(f"/proc/{one.pid}/status")
                ids = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
                if len(ids) == depth and int(ids[-1]) == inner:
                    return one
        raise self._lost("the process that it named is not there")

    def _left_behind(self) -> list[Member]:
        """Living processes below the server that belong to none of its workers. Raises OSError."""
        found, owned = [], set(self._workers)
        below = {self._pid}
        for one in descendants():  # parents before children
            if one.pid in owned or one.parent in owned:
                owned.add(one.pid)
            elif one.parent in below:
                below.add(one.pid)
                if one.state not in DEAD:
                    found.append(one)
        return found


class Forked:
    """A worker's process that a fork server has forked, with what `subprocess.Popen` has of a child."""

    def __init__(self, pid: int, inner_pid: int, server: ForkServer) -> None:
        """`inner_pid` is the process id as the server sees it. Raises OSError."""
        self.pid, self.inner_pid, self.server = pid, inner_pid, server
        self.returncode: int | None = None
        self._handle = os.pidfd_open(pid)
        self._collecting = threading.Lock()

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        with self._collecting:
            if self.returncode is None:
                if not select.select([self._handle], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(["grader.worker"], timeout or 0)
                self.returncode = self.server.collect(self)
                os.close(self._handle)
            return self.returncode

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            if self.returncode is None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
