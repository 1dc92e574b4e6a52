"""A sandbox runs a judge somewhere and passes its events on."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from grader.job import Event, Job
from grader.report.model import Report


class InfraError(Exception):
    """The machine, not the submission, is at fault; the message says what to do."""


class UsageError(Exception):
    """What was asked for cannot be done; the message says what is allowed."""


class Sandbox(Protocol):
    """A place to run one judge: a context manager, that starts it and ends it with everything it started.

    Its `folder` is the run's own, which the judge may fill and whoever made it removes.
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
        """
