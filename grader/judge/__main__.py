"""The judge's program: `python -m grader.judge EVENTS_FD FOLDER auto|cpu|cuda [worker] < job.json`.

Events go to the file descriptor, one JSON object a line. FOLDER is the run's own, to be filled. What takes long, a
worker's start and the import of torch, is done before the job is read: whoever starts a judge early finds it ready.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType

from grader.assignment import CourseError, Device
from grader.contender.contender import WorkerUnavailable
from grader.contender.jail import NO_JAIL, strongest_jail
from grader.contender.pool import WorkerPool
from grader.job import Event, Job, Refused
from grader.runfolder import remove

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4


def main() -> int:
    """Exit code 0 when a report was emitted; else a `Refused` event says why there is none."""
    signal.signal(signal.SIGTERM, _interrupt)
    parent = os.getppid()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(
        PR_SET_DUMPABLE, 0
    )  # /proc/PID/mem and fd of the judge are then closed to a worker of the same user, unless it is root
    events = open(int(sys.argv[1]), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    lock = threading.Lock()

    def emit(event: Event) -> None:
        with lock:
            events.write(event.model_dump_json() + "\n")
            events.flush()

    folder, device = Path(sys.argv[2]), sys.argv[3]
    pool = None
    try:
        if device == "cpu" or (device == "auto" and not _may_have_gpu()):
            pool = _pool("cpu", folder)
            if "worker" in sys.argv[4:]:
                pool.prepare()
        gc.disable()  # an import makes half a million objects, none of them garbage: looking for some costs a fifth of it
        from grader.judge.session import Interrupted, choose_device, run_session

        gc.enable()
        gc.freeze()
    except BaseException:
        if pool is not None:
            pool.close()
        raise
    try:
        if not (text := sys.stdin.read()):
            return 1  # whoever started this judge has no work for it
        job = Job.model_validate_json(text)
        if pool is None:
            pool = _pool(choose_device(device), folder)
            pool.prepare()
        run_session(job, pool, emit)
    except CourseError as error:
        emit(Refused(kind="usage", message=str(error)))
        return 1
    except (Interrupted, KeyboardInterrupt):
        return 1
    except WorkerUnavailable as error:
        emit(Refused(kind="infra", message=str(error)))
        return 1
    except Exception as error:
        traceback.print_exc()
        emit(Refused(kind="infra", message=f"the judge failed: {type(error).__name__}: {error}"[:4000]))
        return 1
    finally:
        if pool is not None:
            pool.close()
        if os.getppid() != parent:  # whoever would have removed the run's folder was killed
            remove(folder)
    return 0


def _pool(device: Device, folder: Path) -> WorkerPool:
    """Workers in the strongest jail there is, which see the folder where the submission will be staged.

    Not on a GPU yet, where no jail has been tried.
    """
    submission = folder / "submission"
    submission.mkdir(exist_ok=True)
    return WorkerPool(device, folder, strongest_jail() if device == "cpu" else NO_JAIL, submission)


def _may_have_gpu() -> bool:
    """Whether asking PyTorch for a GPU is worth the wait: a driver's device node is there (on WSL another one)."""
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg"))


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
