"""Runs a judge as a process on this machine.

The judge has a session of its own, so that Ctrl-C reaches only the command line. The command line then asks the judge to end; the judge
kills its workers, and the run's folder is removed last, when no process uses the folder. If the command line is killed, the judge's
standard input ends, and with it the judge and its workers. Until then the judge holds the locks that the command line has inherited.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from grader.messages import MAX_EVENT_BYTES, Event, Place, Request
from grader.report.model import Report
from grader.sandbox.base import InfraError, Watchdog, at_last, follow

PR_SET_CHILD_SUBREAPER = 36
STOP_LIMIT_S = 20.0
LOG_TAIL_BYTES = 4000
FULL_MIB = 64  # a disk with less free space counts as full


class HostSandbox:
    """A sandbox that is a child process. The judge confines its workers with the strongest jail of this machine.

    Args:
        folder: the run's folder, which the judge fills; the caller removes the folder.
        place: the requested device and GPU.
        course: the course's folder, which workers must not see.
    """

    def __init__(self, folder: Path, place: Place, course: Path) -> None:
        self._folder = folder
        self._log = folder / "judge.log"
        self._stopping = False
        read_end, write_end = os.pipe()
        self._events = open(read_end, "rb")  # noqa: PTH123, SIM115
        command = [sys.executable, "-P", "-m", "grader.judge", str(write_end), str(folder), place.device]
        command += ["isolated"] if place.require_isolation else []
        # Idle threads that spin would take cores from the worker.
        environment = {"OMP_WAIT_POLICY": "passive"} | os.environ | {"GRADER_COURSE": str(course.resolve())}
        if place.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = place.gpu
        os.set_inheritable(write_end, True)
        with self._log.open("wb") as output:
            self._judge = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                close_fds=False,  # inherited locks: a killed run must not make room for another while its judge lives
                env=environment,
                start_new_session=True,
            )
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        os.close(write_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._stopping:  # `stop` has asked the judge to end already
            self._judge.kill()
        elif kind is not None:
            self._judge.terminate()
        for force in (self._judge.terminate, self._judge.kill, lambda: None):
            try:
                self._judge.wait(timeout=STOP_LIMIT_S)
                break
            except subprocess.TimeoutExpired:
                force()
        assert self._judge.stdin is not None
        with contextlib.suppress(OSError):
            self._judge.stdin.close()
        self._events.close()
        # Processes of the run that a killed judge left behind have become children of this process.
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any(str(self._folder) in value for value in process.environ().values()):
                    process.kill()

    def run(self, request: Request, on_event: Callable[[Event], None]) -> Report:
        """See `Sandbox.run`."""
        assert self._judge.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._judge.stdin.write(request.model_dump_json().encode() + b"\n")
            self._judge.stdin.flush()
        with Watchdog(self._judge.kill) as watchdog:
            lines = iter(lambda: self._events.readline(MAX_EVENT_BYTES), b"")
            report = follow(lines, watchdog, on_event)
            if report is not None:
                return report
            self._judge.wait()
        if self._stopping:
            raise KeyboardInterrupt
        if watchdog.reason:
            raise InfraError(watchdog.reason)
        tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        free_mib = shutil.disk_usage(self._folder).free >> 20
        full = f"; the disk with {self._folder.parent} has {free_mib} MiB left" if free_mib < FULL_MIB else ""
        last = f"; its last words:\n{tail}" if tail else ""
        raise InfraError(f"the judge ended without a report (exit code {self._judge.returncode}){full}{last}")

    def stop(self) -> None:
        """See `Sandbox.stop`."""
        self._stopping = True
        self._judge.terminate()
        at_last(self._judge.kill)
