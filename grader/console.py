"""What the verbs of the command line share: the two consoles, options, exit codes, and the end of a verb that cannot do its work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import typer
from rich.console import Console

from grader.assignment import CourseError
from grader.course import own_course
from grader.report.json_file import ReportError
from grader.report.style import plain
from grader.report.terminal import ReportConsole
from grader.sandbox.base import InfraError, UsageError
from grader.submission import SubmissionError
from grader.workfolder import FolderError

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
    except (CourseError, FolderError, ReportError, SubmissionError, UsageError) as error:
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


def default_course() -> Path:
    """The grader's own course, if neither --course nor GRADER_COURSE names one."""
    if (course := own_course()) is None:
        stop_with(
            "this grader came without a course: name a folder with assignments/, reference/ and starter/ by --course, or in GRADER_COURSE",
            EXIT_USAGE,
        )
    return course


# Arguments and options of several verbs.

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="the folder with your files")]
Course = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        envvar="GRADER_COURSE",
        show_envvar=False,
        default_factory=default_course,
        show_default=False,
        help="the folder of the course (default: $GRADER_COURSE, else the grader's own)",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--assignment", "-a", metavar="NAME", help="only this assignment; may be repeated"),
]
WantedDevice = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option(show_default=False, help="auto, the default, is the GPU where there is one"),
]
Speed = Annotated[
    bool, typer.Option("--speed/--no-speed", show_default=False, help="measure speed where there is a CUDA GPU")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="a first look: no largest cases, no compute-sanitizer, few rounds")
]
WantedSandbox = Annotated[
    Literal["auto", "host", "docker"],
    typer.Option(
        envvar="GRADER_SANDBOX",
        show_default=False,
        help="auto, the default, is a container where Docker and the image are there, else this host",
    ),
]
RequireIsolation = Annotated[
    bool, typer.Option("--require-isolation", help="grade nothing that could reach this machine")
]
Image = Annotated[str, typer.Option(envvar="GRADER_IMAGE", metavar="NAME", help="the grading image")]
