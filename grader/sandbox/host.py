"""The judge as a process on this machine.

The judge runs in a session of its own, so that Ctrl-C reaches only the command line, which then asks the judge to
end: it kills its workers first, and the run's folder is removed when nobody uses it any more. If the command line
itself is killed, the kernel passes that on to the judge, and from the judge to the workers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BufferedReader

from pydantic import ValidationError

from grader.job import EVENT, MAX_EVENT_BYTES, Event, Finished, Job, Refused
from grader.report.model import Report
from grader.sandbox.base import InfraError, UsageError

STOP_LIMIT_S = 20.0
LOG_TAIL_BYTES = 4000


class HostSandbox:
    """Runs the judge as a child process, without any isolation of its own."""

    def run(self, job: Job, on_event: Callable[[Event], None]) -> Report:
        """See `Sandbox.run`."""
        log = job.folder / "judge.log"
        read_end, write_end = os.pipe()
        with log.open("wb") as output:
            judge = subprocess.Popen(
                [sys.executable, "-P", "-m", "grader.judge", str(write_end)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end],
                start_new_session=True,
            )
        os.close(write_end)
        try:
            assert judge.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                judge.stdin.write(job.model_dump_json().encode())
                judge.stdin.close()
            with open(read_end, "rb") as stream:  # noqa: PTH123
                for event in _events(stream):
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
            judge.wait()
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise InfraError(
                f"the judge ended without a report (exit code {judge.returncode}); its last words:\n{tail}"
            )
        finally:
            _stop(judge)


def _events(stream: BufferedReader) -> Iterator[Event]:
    while line := stream.readline(MAX_EVENT_BYTES):
        try:
            yield EVENT.validate_json(line)
        except ValidationError as error:
            raise InfraError(f"the judge sent an event that is none: {error.errors()[0]['msg']}") from None


def _stop(judge: subprocess.Popen[bytes]) -> None:
    """Let the judge end by itself, else ask it to, else make it."""
    if judge.stdin is not None:
        with contextlib.suppress(OSError):
            judge.stdin.close()
    if sys.exc_info()[0] is not None:
        judge.terminate()
    for force in (judge.terminate, judge.kill):
        try:
            judge.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            force()
        else:
            return
    judge.wait()
