"""One worker process as the judge sees it: start, load, call, deadline, kill.

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
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from grader import protocol
from grader.assignment import Device
from grader.contender import processes
from grader.contender.allowance import Allowance
from grader.contender.jail import NO_JAIL, Jail
from grader.contender.log import Log
from grader.contender.replies import ContenderFault, decode, fault_of
from grader.contender.surroundings import MAX_FILES, WatchedFolder, WorkerKind, environment
from grader.protocol import Build, Reply, Returned

if TYPE_CHECKING:  # the arena brings torch, and a judge starts workers before it has that
    from grader.contender.arena import Arena, DeviceMemory

START_LIMIT_S = 120.0
SEND_LIMIT_S = 10.0
SENTENCE_LIMIT_S = 60.0
MOST_GIVEN_BACK = 3.0  # a busy machine may make a call take so many times its limit longer
FREEZE_TRIES = 5  # each takes a second or two where something goes on
WATCH_INTERVAL_S = 0.05
TIMED_FIRST_LOOK_S = 1.0  # looking takes milliseconds, which a timed batch should not have in it
MAX_PROCESSES = 256
MAX_FILE = 1 << 20
TOOL_LOG = "tool.log"
TOOL_LIMIT_S = 20.0
OWN_ALLOCATIONS = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # of every tensor, so that a tool sees where it ends
GIB = 1 << 30
# Where the machine runs out of memory, workers are ended first. Set by root with all rights, it cannot be taken back; else one looks.
FIRST_TO_GO = ("/bin/sh", "-c", '{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null; exec "$@"', "sh")
NO_ANSWER, STOPPED = "no answer within", ": stopped"  # how the message of a call begins and ends that took too long
LAST_WORDS = "Timeout ("  # how they begin
LAST_WORDS_S = 3.0  # on a busy machine the thread that writes them has to wait for its turn
# Triton's interpreter, where it calls a function for each element.
ELEMENT_BY_ELEMENT = re.compile(r'/triton/runtime/interpreter\.py", line \d+ in (generic_reduce|generic_scan)\n')
SLOW_IN_PYTHON = (
    "it was in tl.reduce or tl.associative_scan with a function of your own, which Triton's interpreter calls in Python for each element: "
    "right code can take this long on a CPU, and a moment on a GPU; tl.max, tl.sum and tl.cumsum are quick in both"
)
# Of the machine, or of this user in all: what a submission's workers have open may be in it.
NO_ROOM = (errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
BEYOND = "consistent with a store or load beyond the end of a tensor, as when a mask is missing"


class WorkerUnavailable(Exception):
    """A worker could not even start: a fault of the machine, not of a submission."""


@dataclass(frozen=True)
class Limits:
    """What a call may use: seconds of wall time, GiB of host memory for the whole tree of processes."""

    time_s: float
    memory_gib: float


class Contender:
    """A worker process and the connection to it.

    Constructing it starts the process and returns at once; `ready` waits for it.

    Args:
        kind: what it is for.
        runtime: folder with the only part of `grader` that a worker may see.
        scratch: this worker's own folder; created.
        caches: where compiled kernels and built libraries are kept, if not in `scratch`; workers may share it.
        jail: what confines it.
        readable: what it may read in the jail beside the system, Python and `runtime`.
        trusted: whether it runs the course's own code, which starts no processes that hide.
        tool: a program with its options that runs the worker and watches it, as compute-sanitizer does; what it writes to `TOOL_LOG` in
            the scratch folder is in `tool_log` when the worker has ended.
        early: modules that it imports before it is ready.

    Attributes:
        allowance: the time that it shares with other workers of its assignment, if it is not its own.

    Raises:
        WorkerUnavailable: from `ready`, when the process does not come up.
    """

    allowance: Allowance | None = None
    _own_processes: Sequence[int] = ()  # its own and its jail's, before it has run anything of a submission's

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
        self.alive = True
        self.tool_log = ""
        self._watched = bool(tool)
        self.trusted = trusted
        self._ending = threading.RLock()  # who comes second waits until all is cleaned up
        self._ready = False
        self._frozen = False
        self._request = 0
        self._jail = jail
        scratch.mkdir(parents=True)
        writable = [scratch] if caches is None else [scratch, caches]
        for folder in writable:
            folder.mkdir(parents=True, exist_ok=True)
            jail.prepare(runtime.parent, folder)
        self._scratch = scratch
        self._folder = WatchedFolder(*writable)
        ours, theirs = socket.socketpair()
        ours.shutdown(socket.SHUT_RD)  # replies come over a pipe (see `protocol.Reader`)
        ours.settimeout(SEND_LIMIT_S)
        read_replies, write_replies = os.pipe()
        read_log, write_log = os.pipe()
        try:
            parent = 0 if tool else jail.parent or os.getpid()
            arguments = (theirs.fileno(), write_replies, kind, parent, _tasks_allowed(jail))
            more = (OWN_ALLOCATIONS if tool else {}) | ({protocol.EARLY: ",".join(early)} if early else {})
            program = [*tool, sys.executable, "-P", "-s", "-m", "grader.worker", *map(str, arguments)]
            self._process = processes.start(
                [*FIRST_TO_GO, *jail.command(program, writable, [runtime, *readable])],
                cwd=scratch,
                env=environment(kind, runtime, scratch, caches, trusted) | more,
                pass_fds=[theirs.fileno(), write_replies],
                stdin=subprocess.DEVNULL,
                stdout=write_log,
                stderr=write_log,
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(write_replies)
            os.close(write_log)
        self._connection = ours
        os.set_blocking(read_replies, False)  # a worker of the judge's own user may read from it too, and be faster
        self._replies = read_replies
        self._reader = protocol.Reader(read_replies, decode)
        self.log = Log(read_log)
        self._loaded_from: Path | None = None
        self.ptxas = ""  # what the compiler told of the loaded file's kernels; a worker's word
        self._sentence: Future[Exception] | None = None
        self._looked = time.monotonic()  # at what its processes use, the last time
        self._expendable = False  # whether the kernel was told to end all of its processes first

    def __enter__(self) -> Contender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        if self._ready:
            return
        try:
            reply = self._receive(Limits(START_LIMIT_S, memory_gib=16.0))
        except ContenderFault as fault:
            self.log.finish()
            raise WorkerUnavailable(f"a worker did not start: {fault.message}\n{self.log.text()[-2000:]}") from None
        if not reply.ok:
            raise WorkerUnavailable("a worker did not start")
        self._ready = True
        tree = self._tree()
        self._own_processes = tree
        self._expendable = not processes.spared(tree)

    def load(self, path: Path, entry: str, build: Build | None, limits: Limits, compiled: bool = False) -> None:
        """Load the student's file, built where `build` is not None, or a baseline's, by torch.compile where `compiled`.

        Raises:
            ContenderFault: it cannot be loaded.
        """
        self._loaded_from = path
        try:
            self.ptxas = self._do(protocol.Load(str(path), entry, build, compiled, limits.time_s), limits).ptxas
        except ContenderFault as fault:
            if not fault.traceback and fault.raised_by == "library":
                fault.raised_by = "toolchain"  # it ended or hung, and nobody knows in whose code
            raise

    def call(
        self,
        arena: Arena,
        args: list[str],
        options: Sequence[protocol.Option],
        upstream: str | None,
        limits: Limits,
        windows: int = 1,
        target: tuple[str, int] | None = None,
        apart: bool = False,
        profiled: bool = False,
        keep: bool = False,
        beside: Sequence[tuple[list[str], str | None]] = (),
        reverse: bool = False,
    ) -> Reply:
        """Run the loaded function on inputs of the arena; its outputs are in the arena afterwards.

        Args:
            windows: more than 1, for CUDA C++ on the CPU: tensors repeat what lies in the arena so many times, but for their last few
                elements, and large launches are run in part.
            target: for what a worker that compiles should, as `sm_90`, and the bytes of shared memory that a block may have there
                (0: nobody knows).
            apart: whether each tensor is to lie in an allocation of its own, not in the arena: a tool then sees where it ends.
            profiled: whether the reply is to name the kernels that ran on the GPU.
            keep: whether its results are to be in use until the next call has returned, whose own lie in memory of theirs
                (`kept`) where a buffer is used again.
            beside: names of inputs and upstream gradient of further calls, which are made before the first backward pass and before
                any result is looked at. The arena's outputs are those of the first call, then of each of these.
            reverse: whether the backward pass of the last call comes first.

        Raises:
            ContenderFault: there was no answer.
        """
        calls = [(args, upstream), *beside]
        names = list(arena.outputs)
        count = len(names) // len(calls)
        request = protocol.Call(
            arena.address,
            tuple(
                arena.operands(inputs, gradient, names[number * count : (number + 1) * count])
                for number, (inputs, gradient) in enumerate(calls)
            ),
            tuple(options),
            limits.time_s,
            reverse,
            windows,
            target[0] if target else None,
            target[1] if target else 0,
            apart,
            profiled,
            keep,
        )
        return self._do(request, limits, arena.files)

    def load_yardstick(self, name: str, limits: Limits) -> None:
        """Load one of `grader/worker/yardsticks.py` instead of a file. Raises ContenderFault."""
        self._do(protocol.Yardstick(name), limits)

    def prepare(
        self,
        arena: Arena,
        sets: Sequence[tuple[list[str], str | None, list[str]]],
        options: Sequence[protocol.Option],
        results: tuple[Arena, list[list[str]]] | None,
        gate: DeviceMemory | None,
        limits: Limits,
    ) -> None:
        """Map arenas for timed batches, until `release`.

        Args:
            sets: the names of each set's inputs, upstream gradient and outputs in the arena; no outputs where they are collected.
            results: where `collect` is to copy results to: an arena, and the names of each call's outputs there.
            gate: memory whose first word a batch waits for.

        Raises:
            ContenderFault: the worker failed to.
        """
        files, collected = arena.files, None
        if results is not None:
            place, names = results
            collected = protocol.Results(place.address, tuple(place.places(one) for one in names))
            files += place.files
        operands = tuple(arena.operands(*one) for one in sets)
        address = None if gate is None else gate.address
        self._do(protocol.Prepare(arena.address, operands, tuple(options), collected, address), limits, files)

    def begin(self, calls: int, keep: int, watched: bool, gate: int = 0) -> None:
        """Ask for a batch on the first `calls` sets; `finish` waits for the answer. The results of the last `keep` calls are kept.

        Args:
            watched: whether PyTorch's operators are to be noted; such a batch is no measure of time.
            gate: the number that must stand in the gate's word before the calls run; 0 for no gate.

        Raises:
            ContenderFault: it took no request.
        """
        self._send(protocol.Time(calls, keep, watched, gate))

    def wait_until_queued(self, limit_s: float) -> None:
        """Wait until the worker says that the calls of the batch that was asked for stand behind its gate; no longer than `limit_s`.

        Whether it says that is not looked at: any word of it will do. Who gives one too early starts to be timed too early.
        """
        select.select([self._replies], [], [], limit_s)

    def finish(self, calls: int, limits: Limits) -> Reply:
        """Wait for a batch of so many calls that was asked for.

        Returns a reply with the seconds that it says each call took, a claim, and with `kinds` if it says to have written to the outputs
        of the sets; otherwise `collect` has to be asked for the results.

        Raises:
            ContenderFault: there was no answer.
        """
        reply = self._done(self._reply(limits, is_timed=True))
        if len(reply.times_s) != calls:
            raise self._no_answer()
        return reply

    def collect(self, order: Sequence[int], limits: Limits) -> tuple[tuple[Returned, ...], ...]:
        """Have the results of the last batch copied to where `prepare` said.

        Args:
            order: for each call, the number of the place that its results are to go to.

        Returns every kind of what came back.

        Raises:
            ContenderFault: there was no answer.
        """
        reply = self._do(protocol.Collect(tuple(order)), limits)
        if not reply.kinds:
            raise self._no_answer()
        return reply.kinds

    def _no_answer(self) -> ContenderFault:
        self.kill()
        return ContenderFault("crashed", "the worker answered a timed batch with something that is no answer")

    def tidy(self, limits: Limits) -> None:
        """Have it collect its garbage, which it does not do in timed batches. Raises ContenderFault."""
        self._do(protocol.Tidy(), limits)

    def release(self, limits: Limits) -> None:
        """Unmap what `prepare` has mapped. Raises ContenderFault."""
        self._do(protocol.Release(), limits)

    def _do(self, request: protocol.Request, limits: Limits, files: tuple[int, ...] = ()) -> Reply:
        """Ask, and raise the fault that the reply tells of."""
        return self._done(self._ask(request, limits, files))

    def _done(self, reply: Reply) -> Reply:
        if reply.broken:
            self.kill()
        if reply.error is not None:
            raise fault_of(reply.error, on_cpu=self.device == "cpu")
        return reply

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
        started = len(self._tree()) > len(self._own_processes)
        self.kill()
        if started:
            raise ContenderFault(
                "crashed", "its processes could not be made to stand still while others were timed: stopped"
            )
        raise WorkerUnavailable(
            "this machine is too busy: a worker did not stop when it was told to, in several seconds"
        )

    def _ask(self, request: protocol.Request, limits: Limits, files: tuple[int, ...] = ()) -> Reply:
        is_timed = isinstance(request, protocol.Collect)
        if not is_timed and not self.trusted and time.monotonic() >= self._looked + WATCH_INTERVAL_S:
            self._watch(limits)  # who answers every request within the interval would never be looked at
        self._send(request, files)
        reply = self._reply(limits, is_timed)
        # Not where the judge's clock runs, for that takes milliseconds; and a tool's worker ends by itself.
        if self.device == "cpu" and not (self.trusted or is_timed or self._watched):
            self._rest()
        return reply

    def _rest(self) -> None:
        """Stop all of it, as far as that goes, until it is asked again: nobody looks at what it uses while the judge computes."""
        self._frozen = True
        if processes.freeze(self._process):
            processes.freeze_tree(self._process)

    def _send(self, request: protocol.Request, files: tuple[int, ...] = ()) -> None:
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

    def _reply(self, limits: Limits, is_timed: bool) -> Reply:
        reply = self._receive(limits, is_timed)
        if not reply.ok and reply.error is None:
            self.kill()
            raise ContenderFault("crashed", "the worker answered with something that is no answer")
        return reply

    def _receive(self, limits: Limits, is_timed: bool = False) -> Reply:
        with processes.precedence(), self._taking_time():
            return self._wait_for_reply(limits, is_timed)

    def _wait_for_reply(self, limits: Limits, is_timed: bool) -> Reply:
        """Wait for one frame, watching the clock, the memory and the number of processes; a look at these takes time too.

        What the worker has to wait for a core is no time of its own: it is given back, up to `MOST_GIVEN_BACK` times the limit.
        """
        left_s = math.inf if self.allowance is None else self.allowance.left_s
        given_back_s = 0.0
        deadline = time.monotonic() + min(limits.time_s, left_s)
        waited_s = 0.0 if is_timed else processes.waited_s(self._own_processes)
        next_look = time.monotonic() + (TIMED_FIRST_LOOK_S if is_timed else WATCH_INTERVAL_S)
        try:
            while (reply := self._reader.next()) is None or reply.id != self._request:
                if reply is not None:
                    continue  # an answer to an earlier request, which had been answered already: nobody asked for it
                remaining = deadline + given_back_s - time.monotonic()
                if remaining <= 0 and not is_timed:
                    starved_s = processes.waited_s(self._own_processes) - waited_s
                    given_back_s = min(starved_s, MOST_GIVEN_BACK * limits.time_s)
                    remaining = deadline + given_back_s - time.monotonic()
                if remaining <= 0:
                    raise self._late(limits)
                if time.monotonic() >= next_look:
                    self._watch(limits)
                    next_look = time.monotonic() + WATCH_INTERVAL_S
                ready = select.select([self._replies], [], [], min(remaining, WATCH_INTERVAL_S))[0]
                if ready and not self._reader.read_some():
                    raise self._ended()
            return reply
        except OSError:  # a connection that was reset: the process is gone
            raise self._ended() from None
        except protocol.ProtocolError as error:
            self.kill()
            raise ContenderFault("crashed", f"the worker's connection was misused ({error}): stopped") from None

    def _taking_time(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.allowance is None else self.allowance.waiting()

    def _late(self, limits: Limits) -> ContenderFault:
        """End a worker whose time is up, when it has had a moment to write down where it is."""
        until, before = time.monotonic() + LAST_WORDS_S, ""
        while time.monotonic() < until:
            text = self.log.text()
            if LAST_WORDS in text and text == before:
                break  # they come in many pieces
            before = text
            time.sleep(WATCH_INTERVAL_S)
        self.kill()
        if self.allowance is not None and not self.allowance.left_s:
            return ContenderFault("timed_out", f"{self.allowance.words}: stopped", self._crash_place())
        details = (SLOW_IN_PYTHON,) if self.device == "cpu" and ELEMENT_BY_ELEMENT.search(self.log.text()) else ()
        return ContenderFault("timed_out", f"{NO_ANSWER} {limits.time_s:g} s{STOPPED}", self._crash_place(), details)

    def _tree(self, age_s: float = 0.0) -> list[int]:
        """The worker and all that it started: of each process a thread to ask about it."""
        return [one.thread for one in processes.tree(self._process.pid, age_s)]

    def _watch(self, limits: Limits) -> None:
        """Look at what its processes use. Raises ContenderFault, when they have been ended."""
        try:
            self._look(limits)
        except OSError as error:  # no file can be opened, or no process started: it may have seen to that itself
            self.kill()
            raise ContenderFault(
                "crashed", f"what its processes use could not be told ({error.strerror}): stopped"
            ) from None
        self._looked = time.monotonic()

    def _look(self, limits: Limits) -> None:
        tree = self._tree(age_s=WATCH_INTERVAL_S / 2)
        if len(tree) > MAX_PROCESSES:
            self.kill()
            raise ContenderFault("crashed", f"started more than {MAX_PROCESSES} processes: stopped")
        allowed = int(limits.memory_gib * GIB)
        if processes.hold_more_than(allowed, tree):
            self.kill()
            raise ContenderFault("out_of_memory", f"used more than {limits.memory_gib:g} GiB of host memory: stopped")
        if self._expendable and processes.spared(tree):
            self.kill()
            raise ContenderFault("crashed", "asked the kernel to spare it where memory runs out: stopped")
        if processes.container_is_full():
            self.kill()
            raise ContenderFault("out_of_memory", "used nearly all memory of the container: stopped")
        files = self._folder.allowed(allowed)
        if self._folder.grown_beyond(files, tree):
            self.kill()
            raise ContenderFault("out_of_memory", f"wrote more than {files / GIB:.3g} GiB of files: stopped")
        if self._folder.holds_more_than(MAX_FILES):
            self.kill()
            raise ContenderFault("out_of_memory", f"wrote more than {MAX_FILES} files: stopped")

    def _ended(self) -> ContenderFault:
        """Words for a process that ended by itself. Raises what a condemned one was sentenced to."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        if self._sentence is not None:
            self.kill()
            raise self._sentence.result(SENTENCE_LIMIT_S)
        code = self._process.returncode
        if self._jail.name == "bubblewrap" and code is not None and code - 128 in signal.valid_signals():
            code = 128 - code  # bubblewrap tells of a signal as a shell does
        self.kill()
        if code is None:
            return ContenderFault("crashed", "closed its connection to the grader")
        if code >= 0:
            return ContenderFault("crashed", f"ended the process with exit code {code} instead of returning")
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        words = {
            "SIGSEGV": f"segmentation fault (SIGSEGV): {BEYOND}",
            "SIGABRT": f"aborted (SIGABRT), as the allocator does when its memory was overwritten: {BEYOND}",
            "SIGBUS": f"bus error (SIGBUS): {BEYOND}",
            "SIGKILL": "killed (SIGKILL), as the system does when memory runs out",
        }
        return ContenderFault("crashed", f"the process ended: {words.get(name, name)}", self._crash_place())

    def _crash_place(self) -> str:
        """The student's frames in what faulthandler printed, innermost first."""
        if self._loaded_from is None:
            return ""
        root = re.escape(str(self._loaded_from.parent) + os.sep)
        lines = re.findall(rf'File "{root}([^"\n]{{1,200}})", line (\d+) in (\S{{1,100}})', self.log.text())
        return "\n".join(f'  File "{file}", line {line}, in {function}' for file, line, function in lines[:8])

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
        """Have its process end, and wait for nothing. `kill` is still to come: of several that end at the same time it waits once."""
        if self.alive:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own
            self._process.kill()

    def kill(self) -> None:
        """End the worker and everything it started, and wait until it is gone."""
        with self._ending, self._taking_time():
            if not self.alive:
                return
            self.alive = False
            if self._watched:
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
    """The beginning of a file in a folder that anybody may have written to; nothing where it is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, MAX_FILE).decode(errors="replace") if regular else ""
    finally:
        os.close(descriptor)


def _tasks_allowed(jail: Jail) -> int:
    """How many processes and threads a worker's user may have: a fork bomb must not grow to where nobody gets a turn to stop it.

    A user of its own has what this grading's workers have; the judge's own user may start anything meanwhile.
    """
    margin = 512 + 16 * (os.cpu_count() or 1) if jail.uid != os.geteuid() else 4096
    return processes.tasks_of(jail.uid) + margin
