"""The judge's program, started by a sandbox:

    python -m grader.judge EVENTS_FD FOLDER auto|cpu|cuda [isolated] [docker] < request.json

The request is one line of JSON on standard input. When standard input ends, the sandbox is gone, and so the judge ends. The
judge writes its events to EVENTS_FD, one JSON object a line. If EVENTS_FD is 1, all other output goes to stderr: in a
container these streams are the judge's only connection. FOLDER is the folder of the run, which the judge fills.
`isolated` refuses a submission that no jail isolates from the machine. `docker` says that the judge runs in the grader's
container. The judge starts fork servers and imports torch before it reads the request, which is staged meanwhile.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TextIO

from grader.assignment import CourseError, Device
from grader.course import CourseOpen, close_installed_course
from grader.fingerprint import fingerprint
from grader.messages import Event, Refused, Request
from grader.nvidia import driver_is_loaded
from grader.pool.fault import Fault
from grader.pool.jail import strongest_jail
from grader.pool.pool import WorkerPool
from grader.report.model import Isolation
from grader.runfolder import remove
from grader.submission import unpack

STALE = "this image was made of other files than this grader and its course: make it anew with `grader image build`"
UNISOLATED = (
    "not isolated: a submission here is {user} within reach of this machine's files, processes and network; install bubblewrap "
    "(Debian, Ubuntu: apt install bubblewrap) and allow user namespaces, or use --sandbox docker; `grader doctor` says more"
)
# Seconds after which a thread that computes in Python hands over the interpreter. The threads that watch workers ask
# the kernel thousands of short questions a second, and wait for the interpreter after each.
HAND_OVER_S = 0.0001
PR_SET_DUMPABLE = 4
DYING_S = 1.0  # a process that is killed closes its pipes a moment before its children have another parent
ENDING_S = 3.0  # for the end of a judge whose sandbox is gone


def main() -> int:
    """Run the judge. Returns 0 if a report was emitted; otherwise 1, and a `Refused` event gives the reason."""
    faulthandler.enable()  # a crash prints where all threads were: the judge's last words
    signal.signal(signal.SIGTERM, _interrupt)
    sys.setswitchinterval(HAND_OVER_S)
    parent = os.getppid()
    # A worker of the same user, unless root, can then not open the judge's memory and files in /proc/PID.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0)
    # The kernel counts files in flight between a user's workers, and allows no more than this process may open.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1] == "1":
        events = open(os.dup(1), "w", encoding="utf-8")  # noqa: PTH123, SIM115
        os.dup2(2, 1)
    else:
        events = open(int(sys.argv[1]), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    writing = threading.Lock()

    def emit(event: Event) -> None:
        with writing, suppress(BrokenPipeError):  # the sandbox is gone, and this process is about to be told to end
            events.write(event.model_dump_json() + "\n")
            events.flush()

    folder = Path(sys.argv[2])
    # Libraries write files into the working folder (pytest-benchmark a whole folder), which may be the student's.
    if paths := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(
            str(Path(path).resolve()) for path in paths.split(os.pathsep) if path
        )
    os.chdir(folder)
    keep_environment()
    told: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, told), daemon=True).start()
    try:
        return _judge(folder, sys.argv[3], sys.argv[4:], emit, told)
    finally:
        if os.getppid() != parent:  # the parent, which would have removed the run's folder, was killed
            remove(folder)


def keep_environment() -> None:
    """Remove what a pytest above this process has set, and make every later change of `os.environ` do nothing. To be called
    before the first thread.

    Who copies the environment in one thread fails if another thread removes a name meanwhile, and pytest sets and removes
    variables for each test. Also, the C library's setenv may free the table that getenv reads in another thread.
    """
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other pytest plugins of this machine must not change a grading
    kind = type(os.environ)
    for name in ("__setitem__", "__delitem__"):
        setattr(kind, name, lambda *_: None)
    for name in ("pop", "setdefault"):
        setattr(kind, name, kind.get)


def _judge(folder: Path, device: str, options: list[str], emit: Callable[[Event], None], told: SimpleQueue[str]) -> int:
    # torch would know the device, but its import takes as long as a worker's start: guess, and start a worker meanwhile.
    guess: Device = "cuda" if device != "cpu" and driver_is_loaded() else "cpu"
    pool = _pool(guess, folder)
    try:
        # The fork servers that nearly every grading needs import their libraries while this process does.
        pool.server()
        if guess == "cuda":  # a laptop has few cores, and may need none of the course's own workers
            pool.server(owner="course")
        # An import makes half a million objects and no garbage: looking for garbage takes a fifth of its time
        gc.disable()
        from grader.judge.session import Interrupted, choose_device, run_session

        gc.enable()
        gc.freeze()
    except BaseException:
        pool.close()
        raise
    try:
        request = Request.model_validate_json(told.get())
        if request.copied.fingerprint not in (None, fingerprint(request.course)):
            emit(Refused(kind="infra", message=STALE))
            return 1
        if (found := choose_device(device)) != guess:
            pool.close()
            pool = _pool(found, folder)
        isolation = Isolation(sandbox="docker" if "docker" in options else "host", jail=pool.jail.name)
        if not isolation.isolated:
            user = "another user" if pool.jail.name == "uid" else "a process of the user who grades,"
            isolation = isolation.model_copy(update={"note": UNISOLATED.format(user=user)})
        if "isolated" in options and not isolation.isolated:
            emit(Refused(kind="infra", message=f"nothing was graded: {isolation.note}"))
            return 1
        if request.copied.files is not None:
            unpack(request.copied.files, request.copied.folder)
        if pool.jail.name == "uid":
            close_installed_course()
        run_session(request, pool, isolation, emit)
    except CourseError as error:
        emit(Refused(kind="usage", message=str(error)))
        return 1
    except (Interrupted, KeyboardInterrupt):
        return 1
    except (CourseOpen, Fault) as error:
        emit(Refused(kind="infra", message=str(error)))
        return 1
    except Exception as error:
        traceback.print_exc()
        emit(Refused(kind="infra", message=f"the judge failed: {type(error).__name__}: {error}"[:4000]))
        return 1
    finally:
        pool.close()
    return 0


def _pool(device: Device, folder: Path) -> WorkerPool:
    """A pool of workers in the strongest jail of this machine. Workers see the folder of the submission."""
    submission = folder / "submission"
    submission.mkdir(exist_ok=True)
    return WorkerPool(device, folder, strongest_jail(folder, device), submission)


def _listen(stream: TextIO, told: SimpleQueue[str]) -> None:
    """Hand the request on. When the stream ends, ask this process to end, and kill it if it does not, as in a long computation.
    Its workers end with it.
    """
    text = stream.readline()
    if text:
        told.put(text)
    while text:
        text = stream.read(4096)
    time.sleep(DYING_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ENDING_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # raised while a refusal was sent or the pool was closed
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has closed its end
            stream.flush()
    os._exit(code)  # nothing is open any more: the interpreter's own shutdown would take a second
