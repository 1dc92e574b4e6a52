"""The judge's program:

    python -m grader.judge EVENTS_FD FOLDER auto|cpu|cuda [workers=N] [tools=NAME,...] [isolated] [docker] < job.json

The job is one line of JSON. Events go to the file descriptor, one JSON object a line; where that is 1, whatever else is
printed goes to stderr, and the run ends when stdin does: then these two streams are all that connects the judge with whoever
asked, as in a container. FOLDER is the run's own, to be filled. `isolated` refuses a submission that nothing isolates from
the machine; `docker` says that this is a container of ours. What takes long, a worker's start and the import of torch, is
done before the job is read: whoever starts a judge early finds it ready.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Literal, TextIO

from grader.assignment import CourseError, Device
from grader.contender import sanitizer
from grader.contender.contender import WorkerUnavailable
from grader.contender.jail import Jail, strongest_jail
from grader.contender.pool import GIB_PER_WORKER, WorkerPool, workers_at_once
from grader.course import CourseOpen, close_installed_course
from grader.fingerprint import fingerprint
from grader.job import Event, HeadStart, Job, Refused
from grader.nvidia import driver_is_loaded, find_sanitizer, free_gib
from grader.report.model import Isolation
from grader.runfolder import held, remove
from grader.submission import unpack

STALE = "this image was made of other files than this grader and its course: make it anew with `grader image build`"
UNISOLATED = (
    "not isolated: a submission here is {user} within reach of this machine's files, processes and network; install bubblewrap "
    "(Debian, Ubuntu: apt install bubblewrap) and allow user namespaces, or use --sandbox docker; `grader doctor` says more"
)
# A thread that computes in Python hands over within this: the others ask the kernel thousands of small questions a second, and each time
# one has been answered they have to wait until they may go on.
HAND_OVER_S = 0.0001
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4


def main() -> int:
    """Exit code 0 when a report was emitted; else a `Refused` event says why there is none."""
    signal.signal(signal.SIGTERM, _interrupt)
    sys.setswitchinterval(HAND_OVER_S)
    parent = os.getppid()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # /proc/PID/mem and fd of the judge are then closed to a worker of the same user, unless it is root.
    libc.prctl(PR_SET_DUMPABLE, 0)
    # Files that workers send each other count for their user, and where that is the judge's they may be no more than the judge may open.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    over_streams = sys.argv[1] == "1"
    if over_streams:
        events = open(os.dup(1), "w", encoding="utf-8")  # noqa: PTH123, SIM115
        os.dup2(2, 1)
    else:
        events = open(int(sys.argv[1]), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    writing = threading.Lock()

    def emit(event: Event) -> None:
        with writing, suppress(BrokenPipeError):  # whoever asked is gone: this process is about to hear of it
            events.write(event.model_dump_json() + "\n")
            events.flush()

    folder = Path(sys.argv[2])
    # Libraries leave files where they run (pytest-benchmark a folder), and for `grader run .` that is the student's folder.
    if paths := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(
            str(Path(path).resolve()) for path in paths.split(os.pathsep) if path
        )
    os.chdir(folder)
    with held(folder):
        try:
            return _judge(folder, sys.argv[3], sys.argv[4:], emit, over_streams)
        finally:
            if os.getppid() != parent:  # whoever would have removed the run's folder was killed
                remove(folder)


def _judge(folder: Path, device: str, options: list[str], emit: Callable[[Event], None], over_streams: bool) -> int:
    # A guess, until torch can be asked: a worker takes as long to start as this process, and need not wait for it.
    guess: Device = "cuda" if device != "cpu" and driver_is_loaded() else "cpu"
    pool = _pool(guess, folder)
    try:
        _start_ahead(pool, guess, HeadStart.of(options))
        gc.disable()  # an import makes half a million objects, none of them garbage: looking for some costs a fifth of it
        from grader.judge.session import Interrupted, choose_device, run_session

        gc.enable()
        gc.freeze()
    except BaseException:
        pool.close()
        raise
    try:
        if not (text := sys.stdin.readline()):
            return 1  # whoever started this judge has no work for it
        if over_streams:
            threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
        job = Job.model_validate_json(text)
        if job.fingerprint not in (None, fingerprint(job.course)):
            emit(Refused(kind="infra", message=STALE))
            return 1
        if (found := choose_device(device)) != guess:
            pool.close()
            pool = _pool(found, folder)
            pool.prepare()
        isolation = _isolation(pool.jail, "docker" if "docker" in options else "host")
        if "isolated" in options and not isolation.isolated:
            emit(Refused(kind="infra", message=f"nothing was graded: {isolation.note}"))
            return 1
        if job.files is not None:
            unpack(job.files, job.submission)
        if pool.jail.name == "uid":
            close_installed_course()
        run_session(job, pool, isolation, emit)
    except CourseError as error:
        emit(Refused(kind="usage", message=str(error)))
        return 1
    except (Interrupted, KeyboardInterrupt):
        return 1
    except (CourseOpen, WorkerUnavailable) as error:
        emit(Refused(kind="infra", message=str(error)))
        return 1
    except Exception as error:
        traceback.print_exc()
        emit(Refused(kind="infra", message=f"the judge failed: {type(error).__name__}: {error}"[:4000]))
        return 1
    finally:
        pool.close()
    return 0


def _start_ahead(pool: WorkerPool, guess: Device, ahead: HeadStart) -> None:
    tools = ahead.tools if guess == "cuda" and find_sanitizer() is not None else ()
    # On a CPU what the first case shows should not wait for a second one to start; on a GPU every assignment needs the one, and half of
    # the lanes begin with what a tool watches, if there is any.
    spares = min(ahead.workers, 1 if guess == "cpu" else workers_at_once() // (2 if tools else 1))
    spares = spares if guess == "cpu" else max(1, spares)
    pool.prepare(spares)
    if tools:
        room = min(len(os.sched_getaffinity(0)), int(free_gib() / GIB_PER_WORKER)) - spares
        pool.prepare_watched([sanitizer.command(tool) for tool in tools[: max(0, room)]])


def _pool(device: Device, folder: Path) -> WorkerPool:
    """Workers in the strongest jail there is, which see the folder where the submission will be staged."""
    submission = folder / "submission"
    submission.mkdir(exist_ok=True)
    return WorkerPool(device, folder, strongest_jail(folder, device), submission)


def _isolation(jail: Jail, sandbox: Literal["host", "docker"]) -> Isolation:
    """What keeps a submission in this jail from the machine; where that is not all of it, the note says so."""
    isolation = Isolation(sandbox=sandbox, jail=jail.name)
    if isolation.isolated:
        return isolation
    user = "another user" if jail.name == "uid" else "a process of the user who grades,"
    return isolation.model_copy(update={"note": UNISOLATED.format(user=user)})


def _end_with(stream: TextIO) -> None:
    while stream.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:  # while it told why there is no report, or closed what it had opened
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed at the other end
            stream.flush()
    os._exit(code)  # all is closed: taking the interpreter and what it has imported apart takes a second
