"""What all verbs of the command line share: the two consoles, exit codes, and the end of a verb that cannot do its work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from grader.assignment import CourseError
from grader.report.json_file import ReportError
from grader.report.style import plain
from grader.report.terminal import ReportConsole
from grader.sandbox.base import InfraError, UsageError
from grader.submission import SubmissionError

console = ReportConsole(highlight=False, width=None if sys.stdout.isatty() else 120)
complaints = Console(stderr=True, highlight=False, soft_wrap=True)

EXIT_UNDER, EXIT_USAGE, EXIT_INFRA, EXIT_INTERRUPTED = 1, 2, 3, 130


def note(words: str) -> None:
    console.print(plain(f"note: {words}", "yellow"), soft_wrap=True)


def catch_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)


@contextmanager
def failures(interrupted: str) -> Iterator[None]:
    """Turn the exceptions of a verb into a message and an exit code."""
    try:
        yield
    except (CourseError, ReportError, SubmissionError, UsageError) as error:
        stop_with(str(error), EXIT_USAGE)
    except (InfraError, OSError) as error:
        stop_with(f"infra_error: {error}", EXIT_INFRA)
    except KeyboardInterrupt:
        stop_with(interrupted, EXIT_INTERRUPTED)


def _interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def stop_with(message: str, code: int) -> NoReturn:
    complaints.print(plain(message))
    raise typer.Exit(code)
