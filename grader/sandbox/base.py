"""The interface of a sandbox, which runs a judge somewhere and passes the judge's events on; and the tools that sandboxes share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self

from pydantic import ValidationError

from grader.messages import EVENT, Event, Finished, Refused, Request
from grader.report.model import Report

SILENCE_LIMIT_S = 600.0  # no case takes so long: a judge without events was stopped, or hangs
RUN_LIMIT_S = 3600.0  # no grading takes so long
ASK_S = 15.0  # between two questions of a watchdog
LAST_REPORT_LIMIT_S = 15.0  # for the report of a judge that was asked to stop


class InfraError(Exception):
    """A fault of the machine, not of the submission; the message says what to do."""


class UsageError(Exception):
    """A request that cannot be carried out; the message says what is allowed."""


class Sandbox(Protocol):
    """Runs one judge, which the constructor starts. A context manager: leaving ends the judge and everything that the judge started."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, request: Request, on_event: Callable[[Event], None]) -> Report:
        """Grade the staged request, once, and return its report.

        Raises:
            UsageError: the judge refused the request.
            InfraError: the judge could not finish.
            KeyboardInterrupt: the judge was asked to stop, and had graded nothing.
        """

    def stop(self) -> None:
        """Make `run` return soon, with a report of the cases graded so far. Does not wait, so a signal handler may call `stop`."""


def at_last(act: Callable[[], None]) -> None:
    """Call `act` when a stopped judge's time for its last report is over. `act` may come after the judge's end."""
    timer = threading.Timer(LAST_REPORT_LIMIT_S, act)
    timer.daemon = True
    timer.start()


def follow(lines: Iterable[bytes], watchdog: Watchdog, on_event: Callable[[Event], None]) -> Report | None:
    """Pass a judge's events on, and return its report; None if `lines` end without one.

    Args:
        lines: one event each, of a bounded length.
        watchdog: fed with every event.

    Raises:
        UsageError, InfraError: the judge refused the request, or sent a line that is no event.
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
    """A thread that ends a judge that is silent for too long, or takes too long as a whole. A context manager.

    Args:
        bite: ends the grading; called at most once, from the thread.
        ask: asked every `ASK_S` seconds for another reason to end the grading; "" if there is none.

    Attributes:
        reason: why `bite` was called, in words; "" before.
    """

    def __init__(self, bite: Callable[[], None], ask: Callable[[], str] = lambda: "") -> None:
        self._bite, self._ask = bite, ask
        self._done = threading.Event()
        self._begun = self._fed = time.monotonic()
        self.reason = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def feed(self) -> None:
        """Note an event of the judge."""
        self._fed = time.monotonic()

    def _watch(self) -> None:
        while not self.reason:
            remaining = min(self._fed + SILENCE_LIMIT_S, self._begun + RUN_LIMIT_S) - time.monotonic()
            if self._done.wait(max(min(remaining, ASK_S), 0)):
                return
            if time.monotonic() >= self._begun + RUN_LIMIT_S:
                self.reason = f"the judge took more than {RUN_LIMIT_S:g} s and was ended"
            elif time.monotonic() >= self._fed + SILENCE_LIMIT_S:
                self.reason = f"the judge said nothing for {SILENCE_LIMIT_S:g} s and was ended: was it stopped?"
            elif (reason := self._ask()) and not self._done.is_set():
                self.reason = reason
        self._bite()
