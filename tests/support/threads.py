"""Grades the reference in a process that records imports and log messages while lanes run, and changes of the environment.

    python -m tests.support.threads cpu|cuda LANES ASSIGNMENT ...

The last line of output is JSON: `seen` (imports, messages and changes, with their threads), `lanes` (number of cases that each
thread began) and `outcomes` of parts. LANES is the number of lanes; 0 for the machine's own number.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Any, Literal
from unittest.mock import patch

from grader.assignment import load_course
from grader.judge.__main__ import keep_environment
from grader.judge.run import Run
from grader.judge.session import run_session
from grader.messages import CaseStarted, Event, Finished, Request
from grader.pool.pool import WorkerPool
from grader.report.model import Isolation
from grader.runfolder import run_folder
from grader.submission import stage
from tests.conftest import ROOT


class Watch:
    """Records, in all threads, changes of the C library's environment; while a lane lives, imports of new modules and records
    of any logger.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._make = logging.getLogRecordFactory()
        logging.setLogRecordFactory(self._record)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import":
            self._note(f"import {arguments[0]}")
        if event in ("os.putenv", "os.unsetenv"):
            self.seen.append(f"{threading.current_thread().name}: {event} {os.fsdecode(arguments[0])}")

    def _record(self, name: str, *rest: Any, **more: Any) -> logging.LogRecord:
        self._note(f"log {name}")
        return self._make(name, *rest, **more)

    def _note(self, what: str) -> None:
        if any(thread.name.startswith("lane ") for thread in threading.enumerate()):
            self.seen.append(f"{threading.current_thread().name}: {what}")


def grade(device: Literal["cpu", "cuda"], lanes: int, names: tuple[str, ...]) -> dict[str, Any]:
    keep_environment()
    watch, begun, parts = Watch(), Counter[str](), {}

    def on_event(event: Event) -> None:
        if isinstance(event, CaseStarted):
            begun[threading.current_thread().name] += 1
        if isinstance(event, Finished):
            parts.update(
                {f"{one.name} {part.name}": part.outcome for one in event.report.assignments for part in one.parts}
            )

    begin = Run.begin

    def begin_with_lanes(*arguments: Any) -> Run:
        run = begin(*arguments)
        return replace(run, lane_count=lanes or run.lane_count)

    with run_folder() as folder, patch.object(Run, "begin", begin_with_lanes):
        files = tuple(one.spec.file for one in load_course(ROOT, names))
        copied = stage(ROOT / "reference", folder / "submission", files)
        pool = WorkerPool(device, folder)
        try:
            own = {"assignments": names, "speed": device == "cuda", "compilation": False, "staged": copied}
            request = Request(submission=ROOT / "reference", course=ROOT, **own)
            run_session(request, pool, Isolation(jail=pool.jail.name), on_event)
        finally:
            pool.close()
    return {"seen": watch.seen, "lanes": begun, "outcomes": parts}


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        found = grade("cuda" if sys.argv[1] == "cuda" else "cpu", int(sys.argv[2]), tuple(sys.argv[3:]))
    print(json.dumps(found))
