"""The judge's program: `python -m grader.judge EVENTS_FD < job.json`. Events go to the file descriptor, one JSON object a line."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from types import FrameType

from grader.assignment import CourseError
from grader.contender.contender import WorkerUnavailable
from grader.job import Event, Job, Refused

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

    job = Job.model_validate_json(sys.stdin.read())
    from grader.judge.session import Interrupted, run_session
    from grader.runfolder import remove

    try:
        run_session(job, emit)
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
        if os.getppid() != parent:  # whoever would have removed the run's folder was killed
            remove(job.folder)
    return 0


def _interrupt(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
