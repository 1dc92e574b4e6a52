"""One worker process: start, ask, wait, end.

Nothing that a worker says is believed: a reply is a bounded JSON frame that is checked, and it only ever decides
which message a student reads. Whether an answer is right is read from the arena. One word of it leaves points open, and
never earns any: on the CPU a file may be said to need a GPU, and then no case of its part earns anything.

A worker is watched while it runs. Past its deadline, its memory limit or its process limit, it is killed with
everything it started: the judge is the "child subreaper" of the tree, so that what a worker's children leave behind
stays within reach.
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
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Self

from grader import protocol
from grader.assignment import Device
from grader.contender import last_words, processes, watch
from grader.contender.jail import NO_JAIL, Jail
from grader.contender.log import Log
from grader.contender.replies import ContenderFault, decode
from grader.contender.surroundings import WatchedFolder, WorkerKind, environment
from grader.contender.watch import Allowance, Deadline, Limits, Watch
from grader.protocol import Reply

START_LIMITS = Limits(time_s=120.0, memory_gib=16.0)
SEND_LIMIT_S = 10.0
SENTENCE_LIMIT_S = 60.0
FREEZE_TRIES = 5  # each takes a second or two where something goes on
MAX_FILE = 1 << 20
TOOL_LOG = "tool.log"
TOOL_LIMIT_S = 20.0
OWN_ALLOCATIONS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # of every tensor, so that a tool sees where it ends
# Where the machine runs out of memory, workers are ended first. Set by root with all rights, it cannot be taken back; else one looks.
FIRST_TO_GO = ("/bin/sh", "-c", '{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null; exec "$@"', "sh")
# errno values of a table that is full, of the machine or of this user: the submission's own open files may have filled it.
NO_ROOM = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class WorkerUnavailable(Exception):
    """A worker could not even start: a fault of the machine, not of a submission."""


class Worker:
    """A worker process and the connection to it. Constructing it starts the process and returns at once; `ready` waits for it.

    Args:
        runtime: folder with the only part of `grader` that a worker may see.
        scratch: this worker's own folder; created.
        caches: where compiled kernels and built libraries are kept, if not in `scratch`; workers may share it.
        readable: what it may read in the jail beside the system, Python and `runtime`.
        trusted: whether it runs the course's own code, which starts no processes that hide.
        tool: a program with its options that runs the worker and watches it, as compute-sanitizer does; what it writes to `TOOL_LOG` in
            the scratch folder is in `tool_log` when the worker has ended.
        early: modules that it imports before it is ready.

    Attributes:
        allowance: the time that it shares with other workers of its assignment; without end until one is set.
        loaded_from: the folder of the file that it was told to load, for the places in its last words.
        ptxas, off_stream: see `protocol.Reply`.

    Raises:
        WorkerUnavailable: from `ready`, when the process does not come up.
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
        trusted: bool = False,
        early: Sequence[str] = (),
    ) -> None:
        self.device: Device = "cuda" if kind == "cuda" else "cpu"
        self.runtime = runtime
        self.trusted = trusted
        self.alive = True
        self.allowance = Allowance(math.inf)
        self.loaded_from: Path | None = None
        self.ptxas = ""
        self.off_stream: tuple[str, ...] = ()
        self.tool_log = ""
        self._has_tool = bool(tool)
        self._ending = threading.RLock()  # who comes second waits until all is cleaned up
        self._is_ready = self._frozen = False
        self._request = 0
        self._sentence: Future[Exception] | None = None
        self._jail = jail
        self._scratch = scratch
        scratch.mkdir(parents=True)
        writable = [scratch] if caches is None else [scratch, caches]
        for folder in writable:
            folder.mkdir(parents=True, exist_ok=True)
            jail.prepare(runtime.parent, folder)
        more = (OWN_ALLOCATIONS if tool else {}) | ({protocol.EARLY: ",".join(early)} if early else {})
        surroundings = environment(kind, runtime, scratch, caches, trusted) | more
        self._process, self._connection, self._replies, log = _start(
            kind, jail, tool, writable, [runtime, *readable], surroundings
        )
        self.reader = protocol.Reader(self._replies)
        self._watch = Watch(self._process, WatchedFolder(*writable))
        self.log = Log(log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        """Whether it can be asked. A worker that ended while nobody waited for it is done with here."""
        if self.alive and self._process.poll() is not None:
            self.kill()
        return self.alive

    def ready(self) -> None:
        """Wait until the worker has imported what it needs. Raises WorkerUnavailable."""
        if self._is_ready:
            return
        try:
            self.reply(START_LIMITS, is_timed=False)
        except ContenderFault as fault:
            self.log.finish()
            raise WorkerUnavailable(f"a worker did not start: {fault.message}\n{self.log.text()[-2000:]}") from None
        self._is_ready = True
        self._watch.begin()

    def ask(self, request: protocol.Request, limits: Limits, files: tuple[int, ...] = ()) -> Reply:
        """Send a request, and wait for its reply. Raises ContenderFault, WorkerUnavailable."""
        is_timed = isinstance(request, protocol.Collect)
        if not is_timed and not self.trusted:
            with self._ended_by_a_fault():
                self._watch.look_if_due(limits)
        self.send(request, files)
        reply = self.reply(limits, is_timed)
        # Not where the judge's clock runs, for that takes milliseconds; and a tool's worker ends by itself.
        if self.device == "cpu" and not (self.trusted or is_timed or self._has_tool):
            self._frozen = True  # as far as that goes: nobody looks at what it uses while the judge computes
            if processes.freeze(self._process):
                processes.freeze_tree(self._process)
        return reply

    def send(self, request: protocol.Request, files: tuple[int, ...] = ()) -> None:
        """Send a request, and let a frozen worker go on. Raises ContenderFault, WorkerUnavailable."""
        self._request += 1
        if self._frozen:
            self._frozen = False
            processes.thaw(self._process)
        try:
            protocol.send(self._connection, replace(request, id=self._request), files)
        except TimeoutError:
            self.kill()
            raise ContenderFault("timed_out", f"took no request for {SEND_LIMIT_S:g} s: stopped") from None
        except OSError as error:
            if error.errno in NO_ROOM:
                raise WorkerUnavailable(f"a request could not be sent: {error.strerror}") from None
            raise self._ended() from None

    def wait_until_queued(self, limit_s: float) -> None:
        """Wait for the worker's word that the calls of a batch stand behind its gate: a worker that lies starts to be timed too early."""
        select.select([self._replies], [], [], limit_s)

    def reply(self, limits: Limits, is_timed: bool) -> Reply:
        """Wait for the reply to the last request, watching the clock, the memory and the number of processes. Raises ContenderFault.

        Args:
            is_timed: whether the judge's clock runs meanwhile.
        """
        with processes.precedence(), self.allowance.waiting(), self._ended_by_a_fault():
            deadline = Deadline(limits, self.allowance, self._watch, is_timed)
            try:
                while (body := self.reader.next()) is None or (reply := decode(body)).id != self._request:
                    if body is not None:
                        continue  # an answer to an earlier request, which had been answered already: nobody asked for it
                    if (left_s := deadline.left_s()) <= 0:
                        raise self._late(limits)
                    deadline.look_if_due()
                    ready = select.select([self._replies], [], [], min(left_s, watch.INTERVAL_S))[0]
                    if ready and not self.reader.read_some():
                        raise self._ended()
                return reply
            except OSError:  # a connection that was reset: the process is gone
                raise self._ended() from None
            except protocol.ProtocolError as error:
                raise ContenderFault("crashed", f"the worker's connection was misused ({error}): stopped") from None

    @contextlib.contextmanager
    def _ended_by_a_fault(self) -> Iterator[None]:
        try:
            yield
        except ContenderFault:
            self.kill()
            raise

    def _late(self, limits: Limits) -> ContenderFault:
        last_words.wait_for_last_words(self.log)
        self.kill()
        return last_words.late(limits.time_s, self.allowance, self.log, self.loaded_from, self.device == "cpu")

    def _ended(self) -> ContenderFault:
        """Words for a process that ended by itself. Raises what a condemned one was sentenced to."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code, sentence = self._process.returncode, self._sentence
        self.kill()
        if sentence is not None:
            raise sentence.result(SENTENCE_LIMIT_S)
        return last_words.ended(code, self._jail.name == "bubblewrap", self.log, self.loaded_from)

    def freeze(self) -> None:
        """Stop the worker and all that it started, where they stand, until it is asked again. It may be frozen already.

        Raises:
            ContenderFault: something that it started does not stop; all of it was killed.
            WorkerUnavailable: it has started nothing, and does not stop: the machine is too busy to stop it.
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
            raise ContenderFault(
                "crashed", "its processes could not be made to stand still while others were timed: stopped"
            )
        raise WorkerUnavailable("this machine is too busy: a worker did not stop in several seconds")

    def condemn(self, sentence: Future[Exception]) -> None:
        """End the worker's process, from any thread. Whoever waits for its answer then waits for the sentence, and raises that."""
        self._sentence = sentence
        self.strike()

    def evict(self, sentence: Future[Exception]) -> None:
        """As `condemn`, and wait until everything that it started is gone. `kill` is still to come: somebody may be waiting for it."""
        if self.alive:
            self.condemn(sentence)
            processes.end(self._process, own_namespace=self._jail.name == "bubblewrap")

    def strike(self) -> None:
        """Have its process end, and wait for nothing. `kill` is still to come: several workers end at the same time then."""
        if self.alive:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own
            self._process.kill()

    def kill(self) -> None:
        """End the worker and everything it started, and wait until it is gone."""
        with self._ending, self.allowance.waiting():
            if not self.alive:
                return
            self.alive = False
            if self._has_tool:
                # Without another request the worker ends by itself, and its tool writes down what it has seen.
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=TOOL_LIMIT_S)
                self.tool_log = _read(self._scratch / TOOL_LOG)
            self._connection.close()
            os.close(self._replies)
            processes.end(self._process, own_namespace=self._jail.name == "bubblewrap", hides=not self.trusted)
            self._jail.empty(self._scratch)
            self.log.finish()


def _read(path: Path) -> str:
    """The beginning of a file that may be anything; "" where it is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MAX_FILE).decode(errors="replace") if regular else ""
    finally:
        os.close(descriptor)


def _start(
    kind: WorkerKind,
    jail: Jail,
    tool: Sequence[str],
    writable: Sequence[Path],
    readable: Sequence[Path],
    surroundings: dict[str, str],
) -> tuple[subprocess.Popen[bytes], socket.socket, int, int]:
    """A worker's process in the first folder that it may write to, the socket for requests, and the pipes of replies and of prints."""
    ours, theirs = socket.socketpair()
    ours.shutdown(socket.SHUT_RD)  # replies come over a pipe (see `protocol.Reader`)
    ours.settimeout(SEND_LIMIT_S)
    read_replies, write_replies = os.pipe()
    read_log, write_log = os.pipe()
    try:
        parent = 0 if tool else jail.parent or os.getpid()
        arguments = (theirs.fileno(), write_replies, kind, parent, _tasks_allowed(jail))
        program = [*tool, sys.executable, "-P", "-s", "-m", "grader.worker", *map(str, arguments)]
        process = processes.start(
            [*FIRST_TO_GO, *jail.command(program, writable, readable)],
            cwd=writable[0],
            env=surroundings,
            pass_fds=[theirs.fileno(), write_replies],
            stdin=subprocess.DEVNULL,
            stdout=write_log,
            stderr=write_log,
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(read_replies)
        os.close(read_log)
        raise
    finally:
        theirs.close()
        os.close(write_replies)
        os.close(write_log)
    os.set_blocking(read_replies, False)  # a worker of the judge's own user may read from it too, and be faster
    return process, ours, read_replies, read_log


def _tasks_allowed(jail: Jail) -> int:
    """How many processes and threads a worker's user may have: a fork bomb must not grow to where nobody gets a turn to stop it."""
    # A user of its own has no processes but this grading's workers; the judge's own user may start anything meanwhile.
    margin = 512 + 16 * (os.cpu_count() or 1) if jail.uid != os.geteuid() else 4096
    return processes.tasks_of(jail.uid) + margin
