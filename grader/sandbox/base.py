"""A sandbox runs a judge somewhere and passes its events on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from grader.job import Event, Job
from grader.report.model import Report


class InfraError(Exception):
    """The machine, not the submission, is at fault; the message says what to do."""


class UsageError(Exception):
    """What was asked for cannot be done; the message says what is allowed."""


class Sandbox(Protocol):
    """A place to run a judge."""

    def run(self, job: Job, on_event: Callable[[Event], None]) -> Report:
        """Grade the job and return its report; nothing of the run is left behind, however it ends.

        Raises:
            UsageError: the judge refused the job.
            InfraError: the judge could not finish.
        """
