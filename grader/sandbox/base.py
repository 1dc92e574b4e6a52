"""A sandbox runs a judge somewhere and passes its events on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

from pydantic import ValidationError

from grader.job import EVENT, Event, Finished, Job, Refused
from grader.report.model import Report

SILENCE_LIMIT_S = 600.0  # no case takes so long; a judge that says nothing was stopped or hangs
RUN_LIMIT_S = 3600.0  # no grading takes so long
LAST_REPORT_LIMIT_S = 15.0  # for a judge that was asked to stop to tell what it has


class InfraError(Exception):
    """The machine, not the submission, is at fault; the message says what to do."""


class UsageError(Exception):
    """What was asked for cannot be done; the message says what is allowed."""


class Sandbox(Protocol):
    """A place to run one judge: a context manager, that starts it and ends it with everything it started.

    The judge is started at once and gets itself ready while the job is still being made.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, job: Job, on_event: Callable[[Event], None]) -> Report:
        """Grade the job, once, and return its report.

        Raises:
            UsageError: the judge refused the job.
            InfraError: the judge could not finish.
            KeyboardInterrupt: it was asked to stop, and had graded nothing.
        """

    def stop(self) -> None:
        """Have `run` return soon, with a report of what is graded by now. Waits for nothing: a signal handler may call it."""


def at_last(act: Callable[[], None]) -> None:
    """Do this when a judge that was asked to stop has had its time to tell what it has; it must not mind to come too late."""
    timer = threading.Timer(LAST_REPORT_LIMIT_S, act)
    timer.daemon = True
    timer.start()


def follow(lines: Iterable[bytes], watchdog: Watchdog, on_event: Callable[[Event], None]) -> Report | None:
    """Pass a judge's events on until its report is there; None when `lines` end before.

    Args:
        lines: one event each, of a bounded length.
        watchdog: fed with every event.

    Raises:
        UsageError, InfraError: the judge refused the job, or sent what is no event.
    """
    for line in lines:
        try:
            event = EVENT.validate_json(line)
        except ValidationError as error:
            raise InfraError(f"the judge sent an event that is none: {error.errors()[0]['msg']}") from None
        watchdog.feed()
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
    return None


class Watchdog:
    """Ends a judge that says nothing for too long, or takes too long altogether. A context manager.

    Args:
        bite: called once, from a thread of its own.
        silence_s, whole_s: the limits, in seconds.
    """

    def __init__(
        self, bite: Callable[[], None], silence_s: float = SILENCE_LIMIT_S, whole_s: float = RUN_LIMIT_S
    ) -> None:
        self._bite = bite
        self._silence_s = silence_s
        self._whole_s = whole_s
        self._done = threading.Event()
        self.reason = ""

    def feed(self) -> None:
        """It has said something."""
        self._fed = time.monotonic()

    def __enter__(self) -> Self:
        self._begun = self._fed = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self.reason:
            remaining = min(self._fed + self._silence_s, self._begun + self._whole_s) - time.monotonic()
            if self._done.wait(max(remaining, 0)):
                return
            if time.monotonic() >= self._begun + self._whole_s:
                self.reason = f"the judge took more than {self._whole_s:g} s and was ended"
            elif time.monotonic() >= self._fed + self._silence_s:
                self.reason = f"the judge said nothing for {self._silence_s:g} s and was ended: was it stopped?"
        self._bite()
