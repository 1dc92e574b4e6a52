"""One worker process: start, ask, wait, end.

The judge believes no reply. A reply is a bounded JSON frame; the judge checks its form, and uses it only to choose the
message that a student reads. The arena shows whether an answer is right. One kind of reply leaves points open, and
never earns any: on a CPU a worker may report that a file needs a GPU, and then no case of the part earns points.

While a worker runs, the judge watches its time, memory and processes. Beyond a limit the judge kills the worker's whole
tree. A fork server (see `grader/pool/server.py`) forks most workers; one that runs under a tool is a program of
its own.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Self

from grader import protocol
from grader.assignment import Device
from grader.pool import last_words, processes, watch
from grader.pool.fault import Fault
from grader.pool.jail import NO_JAIL, Jail
from grader.pool.log import Log
from grader.pool.replies import decode, fault_of
from grader.pool.server import SEND_LIMIT_S, Channel, Forked, ForkServer, start_program
from grader.pool.surroundings import WatchedFolder, WorkerKind, environment
from grader.pool.watch import Allowance, CallLimits, Watch
from grader.protocol import Build, Gpu, Reply, Returned

START_LIMITS = CallLimits(time_s=120.0, memory_gib=16.0)
REASON_LIMIT_S = 60.0
FREEZE_TRIES = 5  # each tries for a second or two
MAX_FILE = 1 << 20
TOOL_LOG = "tool.log"
TOOL_LIMIT_S = 20.0
# Each tensor gets an allocation of its own, so that a tool sees accesses beside it
OWN_ALLOCATIONS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
# errno values that mean a machine-wide or per-user table is full; the submission's own open files may have filled it.
NO_ROOM = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Worker:
    """A worker process and the connection to it, for one file of a submission or of the course. The constructor starts the process and
    returns at once; `ready` waits for it. Methods raise Fault if there is no answer.

    Args:
        runtime: folder with the only part of `grader` that a worker may see.
        scratch: the worker's own folder; created here.
        caches: folder of compiled kernels and built libraries, `scratch` by default; workers may share it.
        readable: paths that the jail lets the worker read, beside the system, Python and `runtime`.
        server: forks the worker in its jail; None to start a program in `jail`.
        tool: a program with options that runs the worker under its eyes, as compute-sanitizer. Its output in `TOOL_LOG`
            of the scratch folder is in `tool_log` after the worker's end.
        imports: modules that the server imports before it forks the worker.

    Attributes:
        trusted: whether the worker runs the course's own code, which hides no processes.
        allowance: the time that all workers of an assignment share; endless until it is set.
        loaded_from: the folder of the loaded file, for the student's lines in last words.
        ptxas, off_stream, same_value: see `protocol.Reply`.

    Raises:
        Fault: from `ready`, if the process does not start.
    """

    def __init__(
        self,
        kind: WorkerKind,
        runtime: Path,
        scratch: Path,
        caches: Path | None = None,
        jail: Jail = NO_JAIL,
        readable: Sequence[Path] = (),
        tool: Sequence[str] = (),
        server: ForkServer | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self.device: Device = "cuda" if kind == "cuda" else "cpu"
        self.runtime = runtime
        self.trusted = server is not None and server.trusted
        jail = jail if server is None else server.jail
        self.alive = True
        self.allowance = Allowance(math.inf)
        self.loaded_from: Path | None = None
        self.ptxas = ""
        self.off_stream: tuple[str, ...] = ()
        self.same_value: tuple[str, ...] = ()
        self.tool_log = ""
        self._has_tool = bool(tool)
        self._ending = threading.RLock()  # a second caller of `kill` waits until the first has cleaned up
        self._is_ready = self._frozen = False
        self._request = 0
        self._reason: Future[Exception] | None = None
        self._jail, self._server = jail, server
        # Whether the kernel ends all of the worker's processes with the first
        self._has_namespace = server is None and jail.name == "bubblewrap"
        self._scratch = scratch
        writable = [scratch] if caches is None else [scratch, caches]
        for folder in writable:
            jail.prepare(runtime.parent, folder)
        surroundings = environment(kind, runtime, scratch, caches, self.trusted) | (OWN_ALLOCATIONS if tool else {})
        self._process: subprocess.Popen[bytes] | Forked
        if server is not None:
            self._process, channel = server.fork(scratch, surroundings, imports)
        else:
            channel = Channel()
            visible = [runtime, *readable]
            self._process = start_program((kind, "alone"), jail, channel, writable, visible, surroundings, tool)
        self._connection, self._replies = channel.connection, channel.replies
        self.reader = protocol.Reader(self._replies)
        self._watch = Watch(self._process, WatchedFolder(*writable))
        self.log = Log(channel.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        """Whether the worker can be asked. Cleans up after a worker that has ended by itself."""
        if self.alive and self._process.poll() is not None:
            self.kill()
        return self.alive

    def ready(self) -> None:
        """Wait until the worker has imported its libraries. Raises Fault."""
        if self._is_ready:
            return
        try:
            self.reply(START_LIMITS, is_timed=False)
        except Fault as fault:
            raise Fault.no_worker(f"a worker did not start: {fault.message}\n{self.log.text()[-2000:]}") from None
        self._is_ready = True
        self._watch.begin()

    def do(self, request: protocol.Request, limits: CallLimits, files: tuple[int, ...] = ()) -> Reply:
        """Send a request and return its reply. Raises the fault that the reply reports.

        Args:
            files: file descriptors of the arenas that the request names.
        """
        return self._done(self.ask(request, limits, files))

    def load(
        self,
        path: Path,
        entry: str,
        build: Build | None,
        limits: CallLimits,
        compiled: bool = False,
        gpu: Gpu | None = None,
    ) -> None:
        """Load a file and its function `entry`.

        Args:
            build: how to build CUDA C++; None for Python.
            compiled: whether to wrap the function in torch.compile, for a baseline.
            gpu: the GPU for which a worker without one answers a file's questions.
        """
        self.loaded_from = path.parent
        try:
            self.ptxas = self.do(protocol.Load(str(path), entry, build, compiled, limits.time_s, gpu), limits).ptxas
        except Fault as fault:
            if not fault.traceback and fault.whose == "library":
                fault.whose = "toolchain"  # the worker ended or hung, and nobody knows in whose code
            raise

    def finish(self, calls: int, limits: CallLimits) -> Reply:
        """Wait for the batch of `calls` calls that a `Time` request has started.

        The reply has the claimed seconds of each call, and `kinds` if the results were written to given outputs.
        Otherwise `collect` asks for the results.
        """
        reply = self._done(self.reply(limits, is_timed=True))
        self._check_answer(len(reply.times_s) == calls)
        return reply

    def collect(self, order: Sequence[int], limits: CallLimits) -> tuple[tuple[Returned, ...], ...]:
        """Have each call's results copied to the place of that number (see `protocol.Prepare`). Returns the kinds of
        the results.
        """
        reply = self.do(protocol.Collect(tuple(order)), limits)
        self._check_answer(bool(reply.kinds))
        return reply.kinds

    def _done(self, reply: Reply) -> Reply:
        if reply.broken:
            self.kill()
        self.off_stream = self.off_stream or reply.off_stream
        self.same_value = self.same_value or reply.same_value
        if reply.error is not None:
            raise fault_of(reply.error, on_cpu=self.device == "cpu")
        return reply

    def _check_answer(self, is_one: bool) -> None:
        if not is_one:
            self.kill()
            raise Fault("crashed", "the worker answered a timed batch with something that is no answer")

    def ask(self, request: protocol.Request, limits: CallLimits, files: tuple[int, ...] = ()) -> Reply:
        """Send a request, and wait for its reply. On a CPU the submission's worker is frozen after that.

        Raises Fault.
        """
        is_timed = isinstance(request, protocol.Collect)
        if not is_timed and not self.trusted:
            with self._ended_by_a_fault():
                self._watch.look_if_due(limits, limits.time_s)
        self.send(request, files)
        reply = self.reply(limits, is_timed)
        # Not while the judge's clock runs, because freezing takes milliseconds. A worker under a tool ends by itself.
        if self.device == "cpu" and not (self.trusted or is_timed or self._has_tool):
            self._frozen = True  # one attempt: nobody counts the time of a worker that runs on while the judge computes
            if processes.freeze(self._process):
                processes.freeze_tree(self._process)
        return reply

    def send(self, request: protocol.Request, files: tuple[int, ...] = ()) -> None:
        """Send a request, and thaw a frozen worker. Raises Fault."""
        self._request += 1
        if self._frozen:
            self._frozen = False
            processes.thaw(self._process)
        try:
            protocol.send(self._connection, replace(request, id=self._request), files)
        except TimeoutError:
            self.kill()
            raise Fault("timed_out", f"took no request for {SEND_LIMIT_S:g} s: stopped") from None
        except OSError as error:
            if error.errno in NO_ROOM:
                raise Fault.no_worker(f"a request could not be sent: {error.strerror}") from None
            raise self._ended() from None

    def wait_until_queued(self, limit_s: float) -> None:
        """Wait until the worker says that a batch's calls are queued behind the gate. A worker that lies makes its own
        time longer.
        """
        select.select([self._replies], [], [], limit_s)

    def reply(self, limits: CallLimits, is_timed: bool) -> Reply:
        """Wait for the reply to the last request, and watch the worker's time, memory and processes. Raises
        Fault.

        Args:
            is_timed: whether the judge's clock runs during the wait.
        """
        with processes.precedence(), self.allowance.waiting(), self._ended_by_a_fault():
            began = time.monotonic()
            end = began + min(limits.time_s, self.allowance.left_s)
            first_look = began + (watch.TIMED_FIRST_LOOK_S if is_timed else watch.INTERVAL_S)
            waited_s = 0.0 if is_timed else self._watch.waited_s()
            try:
                while (body := self.reader.next()) is None or (reply := decode(body)).id != self._request:
                    if body is not None:
                        continue  # a second answer to an earlier request
                    left_s = end - time.monotonic()
                    # Waiting for a core prolongs a call, unless the judge's clock runs
                    if left_s <= 0 and not is_timed:
                        more_s = self._watch.waited_s() - waited_s
                        left_s += min(more_s, watch.MOST_GIVEN_BACK * limits.time_s)
                    if left_s <= 0:
                        last_words.wait_for_last_words(self.log)
                        self.kill()
                        on_cpu = self.device == "cpu"
                        raise last_words.late(limits.time_s, self.allowance, self.log, self.loaded_from, on_cpu)
                    if time.monotonic() >= first_look:
                        self._watch.look_if_due(limits, left_s)
                    ready = select.select([self._replies], [], [], min(left_s, watch.INTERVAL_S))[0]
                    if ready and not self.reader.read_some():
                        raise self._ended()
                return reply
            except OSError:  # the connection was reset: the process has ended
                raise self._ended() from None
            except protocol.ProtocolError as error:
                raise Fault("crashed", f"the worker's connection was misused ({error}): stopped") from None

    @contextlib.contextmanager
    def _ended_by_a_fault(self) -> Iterator[None]:
        try:
            yield
        except Fault:
            self.kill()
            raise

    def _ended(self) -> Fault:
        """The fault of a process that ended by itself. Raises the reason if the worker was terminated."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code, reason, server = self._process.returncode, self._reason, self._server
        is_cut_off = server is not None and (server.was_ended or server.cut_off_several)
        self.kill()
        if reason is not None:
            raise reason.result(REASON_LIMIT_S)
        if is_cut_off:
            words = "ended together with other processes of the submission, which had left some behind"
            raise Fault("crashed", words, cut_off=True)
        return last_words.ended(code, self._has_namespace, self.log, self.loaded_from)

    def freeze(self) -> None:
        """Freeze the worker and all processes that it started, until the next request. A frozen worker stays frozen.

        Raises:
            Fault: a process that the worker started does not stop; the whole tree was killed.
            Fault: the worker started no process, and does not stop: the machine is too busy.
        """
        if not self.alive:
            return
        self._frozen = True
        for _ in range(FREEZE_TRIES):
            if processes.freeze(self._process) and (self.trusted or processes.freeze_tree(self._process)):
                return
        has_started_more = self._watch.has_started_more()
        self.kill()
        if has_started_more:
            raise Fault("crashed", "its processes could not be made to stand still while others were timed: stopped")
        raise Fault.no_worker("this machine is too busy: a worker did not stop in several seconds")

    def terminate(self, reason: Future[Exception]) -> None:
        """Kill the worker's process without waiting, from any thread; `kill` must still be called. A thread that waits
        for the worker's reply then waits for the reason, an exception, and raises it.
        """
        self._reason = reason
        if self.alive:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)  # the worker leads a process group of its own
            self._process.kill()

    def evict(self, reason: Future[Exception]) -> None:
        """Terminate the worker, and wait until its tree is gone. `kill` must still be called, because a thread may be
        waiting.
        """
        if self.alive:
            self.terminate(reason)
            processes.end(self._process, own_namespace=self._has_namespace)

    def kill(self) -> None:
        """End the worker's whole tree, wait until it is gone, and empty the scratch folder."""
        with self._ending, self.allowance.waiting():
            if not self.alive:
                return
            self.alive = False
            if self._has_tool:
                # Without another request the worker ends by itself, and its tool writes its findings.
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=TOOL_LIMIT_S)
                self.tool_log = _read(self._scratch / TOOL_LOG)
            self._connection.close()
            os.close(self._replies)
            processes.end(self._process, own_namespace=self._has_namespace, hides=not self.trusted)
            if self._server is not None and not self.trusted:
                self._server.end_if_dirty()
            self._jail.empty(self._scratch)


def _read(path: Path) -> str:
    """The beginning of a file that a submission may have replaced; "" unless it is a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MAX_FILE).decode(errors="replace") if regular else ""
    finally:
        os.close(descriptor)
