"""The judge as a process on this machine.

The judge runs in a session of its own, so that Ctrl-C reaches only the command line, which then asks the judge to
end: it kills its workers first, and the run's folder is removed when nobody uses it any more. If the command line
itself is killed, the kernel passes that on to the judge, and from the judge to the workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from pydantic import ValidationError

from grader.job import EVENT, MAX_EVENT_BYTES, Event, Finished, Job, Refused, WantedDevice
from grader.report.model import Report
from grader.sandbox.base import InfraError, UsageError

PR_SET_CHILD_SUBREAPER = 36
STOP_LIMIT_S = 20.0
SILENCE_LIMIT_S = 600.0  # no case takes so long; a judge that says nothing was stopped or hangs
LOG_TAIL_BYTES = 4000


class HostSandbox:
    """Runs the judge as a child process, without any isolation of its own.

    The judge is started at once and gets itself ready while the job is still being made.

    Args:
        folder: the run's own.
        device: where the job will run.
        worker: whether to start a worker too before the job is known.
    """

    def __init__(self, folder: Path, device: WantedDevice, worker: bool = True) -> None:
        self._folder = folder
        self._log = folder / "judge.log"
        read_end, write_end = os.pipe()
        self._events = open(read_end, "rb")  # noqa: PTH123, SIM115
        with self._log.open("wb") as output:
            self._judge = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "grader.judge",
                    str(write_end),
                    str(folder),
                    device,
                    *(["worker"] if worker else []),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end],
                env={"OMP_WAIT_POLICY": "passive"} | os.environ,  # idle threads that spin take the core from the worker
                start_new_session=True,
            )
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        os.close(write_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stop(self._judge, now=kind is not None)
        self._events.close()
        _end_strays(self._folder)

    def run(self, job: Job, on_event: Callable[[Event], None]) -> Report:
        """See `Sandbox.run`."""
        assert self._judge.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._judge.stdin.write(job.model_dump_json().encode())
            self._judge.stdin.close()
        silence = _Watchdog(self._judge)
        try:
            for event in _events(self._events):
                silence.reset()
                on_event(event)
                match event:
                    case Finished():
                        return event.report
                    case Refused(kind="usage"):
                        raise UsageError(event.message)
                    case Refused():
                        raise InfraError(event.message)
                    case _:
                        pass
            self._judge.wait()
        finally:
            silence.cancel()
        if silence.barked:
            raise InfraError(f"the judge said nothing for {SILENCE_LIMIT_S:g} s and was ended: was it stopped?")
        tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        raise InfraError(
            f"the judge ended without a report (exit code {self._judge.returncode}); its last words:\n{tail}"
        )


class _Watchdog:
    """Kills the judge when no event has come for `SILENCE_LIMIT_S`."""

    def __init__(self, judge: subprocess.Popen[bytes]) -> None:
        self._judge = judge
        self.barked = False
        self.reset()

    def reset(self) -> None:
        self.cancel()
        self._timer = threading.Timer(SILENCE_LIMIT_S, self._bark)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        if hasattr(self, "_timer"):
            self._timer.cancel()

    def _bark(self) -> None:
        self.barked = True
        self._judge.kill()


def _end_strays(folder: Path) -> None:
    """Kill what a judge that was itself killed could not: processes of this run, which became children of this one."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in value for value in process.environ().values()):
                process.kill()


def _events(stream: BufferedReader) -> Iterator[Event]:
    while line := stream.readline(MAX_EVENT_BYTES):
        try:
            yield EVENT.validate_json(line)
        except ValidationError as error:
            raise InfraError(f"the judge sent an event that is none: {error.errors()[0]['msg']}") from None


def _stop(judge: subprocess.Popen[bytes], now: bool) -> None:
    """Let the judge end by itself (unless `now`), else ask it to, else make it."""
    if judge.stdin is not None:
        with contextlib.suppress(OSError):
            judge.stdin.close()
    if now:
        judge.terminate()
    for force in (judge.terminate, judge.kill):
        try:
            judge.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            force()
        else:
            return
    judge.wait()
