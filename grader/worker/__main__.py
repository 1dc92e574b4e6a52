"""The worker's program: sets limits, imports libraries, says that it is ready, and answers requests until the socket
closes.

A fork server is the same program. It has imported what its workers need, and forks one for each `Fork` request; a fork
takes milliseconds, an import of PyTorch and Triton seconds. It has read nothing of the submission, has not used a GPU,
and has one thread, because a fork copies only one.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import os
import random
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from grader import protocol
from grader.protocol import Collect, Load, MakeCalls, Tidy, Time
from grader.worker import landlock, seccomp
from grader.worker.errors import describe, set_device
from grader.worker.late import told_where

Answer: TypeAlias = Callable[[protocol.Request, list[int]], protocol.Reply]

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
MAX_FILE_BYTES = 1 << 30
MAX_OPEN_FILES = 1024


def main() -> None:
    """Usage: python -m grader.worker SOCKET_FD PIPE_FD cpu|cuda|cuda_cpu|compile PARENT_PID TASKS serves|alone

    Requests, with open files beside them, come from the socket; replies go to the pipe. TASKS is the number of
    processes and threads that the user may have, including this worker's. `serves`: fork workers; `alone`: be one.
    """
    connection, replies = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    kind, parent, tasks, serves = sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "serves"
    _leave_no_orphan(parent)
    _harden(tasks)
    faulthandler.enable()
    connection.set_inheritable(False)
    os.set_inheritable(replies, False)
    set_device(kind == "cuda")
    gc.disable()  # an import makes no garbage, and looking for garbage takes a fifth of its time
    if kind == "cuda_cpu":
        from grader.worker.cuda_cpu import program  # noqa: F401  (without torch)
    else:
        _import_torch(kind)
    gc.enable()
    gc.freeze()  # gc.collect() after a call then looks at the student's objects only
    if serves:
        connection, replies = _serve(connection, replies)
    if kind == "cuda":
        import torch

        torch.cuda.init()
        torch.zeros(1, device="cuda")

    def tell() -> None:
        protocol.write(replies, protocol.Reply())

    answer = cuda_cpu_answers() if kind == "cuda_cpu" else torch_answers(kind, tell)
    tell()
    reader = protocol.Reader(connection)
    imported = len(sys.modules)
    # The student's code may replace the streams, or their attributes.
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    while (body := reader.receive()) is not None:
        request, files, reader.files = protocol.decode(body), reader.files, []
        try:
            # Only for requests that run the student's code untimed. Python does not see C++ frames, so program.py
            # prints those.
            in_python = Load if kind == "cuda_cpu" else (Load, MakeCalls)
            with told_where(request.limit_s) if isinstance(request, in_python) else contextlib.nullcontext():
                reply = answer(request, files)
        except BaseException as error:
            reply = protocol.Reply(error=describe(error))
        finally:
            for file in files:
                os.close(file)
        for stream in streams:
            with contextlib.suppress(Exception):  # the student's code may have closed it
                io.TextIOWrapper.flush(stream)
        protocol.write(replies, replace(reply, id=request.id))
        if not isinstance(request, Tidy | Time | Collect):  # a collection of garbage would be timed with the next batch
            gc.collect()
            # The first backward imports sympy, through which each later collection would look for 12 ms.
            if len(sys.modules) > imported:
                imported = len(sys.modules)
                gc.freeze()
    os._exit(0)


def _harden(tasks: int) -> None:
    """Give up what no worker needs. Forked workers inherit it, and nothing of it can be taken back."""
    seccomp.install()
    with contextlib.suppress(OSError):  # if memory runs out, the kernel shall end this process and its children first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))


def _serve(connection: socket.socket, replies: int) -> tuple[socket.socket, int]:
    """Answer `Fork` and `Reap` requests until the socket closes. Returns in each forked worker, with the worker's own
    socket and pipe.
    """
    libc = ctypes.CDLL(None)
    # Processes that a dead worker leaves stay below this one. No worker, of the same user, may trace it or open its
    # memory.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_DUMPABLE, 0)
    workers: set[int] = set()
    reader = protocol.Reader(connection)
    protocol.write(replies, protocol.Reply(pid=os.getpid()))
    while (body := reader.receive()) is not None:
        request, files, reader.files = protocol.decode(body), reader.files, []
        reply = protocol.Reply()
        try:
            if isinstance(request, protocol.Fork):
                _collect_orphans(workers)
                for name in request.imports:
                    with contextlib.suppress(ImportError):  # another version of torch does without this module
                        importlib.import_module(name)
                gc.freeze()
                if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
                    raise RuntimeError("a fork server has more than one thread")
                server = os.getpid()
                pid = os.fork()
                if pid == 0:
                    connection.close()
                    os.close(replies)
                    return _become_worker(request, files, server)
                workers.add(pid)
                reply = protocol.Reply(pid=pid)
            elif isinstance(request, protocol.Reap):
                workers.discard(request.pid)
                _, status = os.waitpid(request.pid, 0)
                reply = protocol.Reply(status=os.waitstatus_to_exitcode(status))
        except (OSError, RuntimeError) as error:
            reply = protocol.Reply(error=describe(error))
        finally:
            for file in files:
                os.close(file)
        protocol.write(replies, replace(reply, id=request.id))
    os._exit(0)


def _collect_orphans(workers: set[int]) -> None:
    """Collect the dead that ended workers have left to this process: until then they count against RLIMIT_NPROC."""
    with contextlib.suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN
        for child in map(int, Path("/proc/thread-self/children").read_text(encoding="ascii").split()):
            if child not in workers:
                os.waitpid(child, os.WNOHANG)


def _become_worker(request: protocol.Fork, files: list[int], server: int) -> tuple[socket.socket, int]:
    """Turn a fork of the server into a worker with a session, a folder, variables and streams of its own."""
    os.setsid()
    _leave_no_orphan(server)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_DUMPABLE, 1)
    requests, replies, log = files.copy()
    files.clear()
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.set_inheritable(replies, False)
    connection = socket.socket(fileno=requests)
    connection.set_inheritable(False)
    os.chdir(request.folder)
    os.environ |= dict(request.environment)
    if request.writable:
        landlock.confine(request.writable)
    tempfile.tempdir = None
    random.seed()
    return connection, replies


def _import_torch(kind: str) -> None:
    """Import what a worker for Triton, or for CUDA on a GPU, needs, and change Triton's interpreter for it."""
    import torch  # noqa: F401

    from grader.worker import operators

    operators.protect_pytorchs_operators()
    with contextlib.suppress(ImportError):  # without Triton, the student's own import raises this
        import triton.language

        if kind != "cuda":
            # The interpreter would import this in the first launch, which would count as the student's time.
            import triton.experimental.gluon  # noqa: F401
        make_tritons_key_cheap()
        if kind == "cpu":
            from grader.worker import triton_cpu

            triton_cpu.provide()
    from grader.worker import guard, load, run, timing, tracing, yardsticks  # noqa: F401

    if kind == "compile":
        from grader.worker.absent_gpu import compiling  # noqa: F401


def make_tritons_key_cheap() -> None:
    """Compute the key, by which Triton's cache names compiled kernels, from Triton's version and its library's size and date.

    Triton's own is a hash of all its files: half a gigabyte is read in every process that asks for a kernel. A Triton
    without `triton_key` is left as it is.
    """
    import triton
    from triton.runtime import cache

    library = Path(triton.__file__).with_name("_C") / "libtriton.so"
    if hasattr(cache, "triton_key") and library.is_file():
        about = library.stat()
        key = f"{triton.__version__}-{about.st_size}-{about.st_mtime_ns}"
        cache.triton_key = lambda: key


def torch_answers(kind: str, tell: Callable[[], None]) -> Answer:
    """The function that answers requests for Triton, and for CUDA on a GPU. A worker of kind `compile` compiles calls.

    Args:
        tell: tells the judge that all calls of a batch are queued behind the gate.
    """
    from grader.worker import absent_gpu, load, operators, run, timing, tracing, yardsticks
    from grader.worker.guard import Guard

    device = "cuda" if kind == "cuda" else "cpu"
    compiler: compiling.Compiler | None = None
    if kind == "compile":
        from grader.worker.absent_gpu import compiling

        compiler = compiling.Compiler()
    function: Any = None
    bench: timing.MappedBench | None = None
    guard: Guard | None = None

    def guarded(request: protocol.Request, files: list[int]) -> protocol.Reply:
        nonlocal guard
        if guard is None and isinstance(request, Load) and not request.compiled:
            guard = Guard()
        reply = answer(request, files)
        # The judge's clock runs during these, and a look takes a millisecond: the next request of another kind has it.
        is_timed = isinstance(request, Collect) or (isinstance(request, Time) and not request.watched)
        return reply if guard is None or is_timed else guard.told(reply)

    def answer(request: protocol.Request, files: list[int]) -> protocol.Reply:
        nonlocal function, bench
        match request:
            case Load():
                if request.gpu is not None:
                    absent_gpu.provide(request.gpu)
                with operators.in_contexts():
                    function, ptxas = load.load(Path(request.path), request.entry, request.build, request.compiled)
                return protocol.Reply(ptxas=ptxas)
            case protocol.Yardstick():
                function = yardsticks.load(request.name)
            case protocol.Prepare():
                bench = timing.MappedBench(request, files, device)
            case Time():
                assert bench is not None
                return bench.time(function, request, tell)
            case Collect():
                assert bench is not None
                return bench.collect(request.order)
            case Tidy():
                gc.collect()
            case protocol.Release():
                assert bench is not None
                bench.close()
            case MakeCalls():
                if compiler is not None:
                    return compiler.answer(function, request, files)
                if request.record in ("trace", "counters"):
                    return tracing.call(function, request, files, device)
                return run.call(function, request, files, device)
        return protocol.Reply()

    return guarded


def cuda_cpu_answers() -> Answer:
    """The function that answers requests for CUDA C++ on a CPU."""
    from grader.worker.cuda_cpu import program

    kernel: Any = None

    def answer(request: protocol.Request, files: list[int]) -> protocol.Reply:
        nonlocal kernel
        if isinstance(request, MakeCalls):
            return program.call(kernel, request, files)
        assert isinstance(request, Load)
        assert request.build is not None
        kernel = program.load(Path(request.path), request.entry, request.build)
        return protocol.Reply(ptxas=kernel.ptxas)

    return answer


def _leave_no_orphan(parent: int) -> None:
    """Have the kernel kill this process when its parent, the judge or the fork server, ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:  # 0: a tool is the parent, with an unknown pid
        os._exit(1)


if __name__ == "__main__":
    main()
