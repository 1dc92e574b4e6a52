"""The whole order of work, on one page: a folder in, a report out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.assignment import load_course
from grader.job import Event, Job
from grader.report.model import Report
from grader.runfolder import run_folder
from grader.sandbox.host import HostSandbox
from grader.submission import stage


@dataclass(frozen=True)
class Request:
    """What the command line asks for.

    course: folder with assignments/, reference/ and starter/.
    assignments: names; empty for all of them.
    seed: replays a run; None draws a secret one.
    """

    submission: Path
    course: Path
    assignments: tuple[str, ...] = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int | None = None


def grade(request: Request, on_event: Callable[[Event], None]) -> Report:
    """Grade one submission and return its report.

    Raises:
        CourseError, SubmissionError, UsageError: the request cannot be carried out; the message says why.
        InfraError: this machine failed, not the submission.
    """
    assignments = load_course(request.course, request.assignments)
    with run_folder() as folder:
        submission = stage(request.submission, folder / "submission", tuple(one.spec.file for one in assignments))
        job = Job(
            course=request.course.resolve(),
            assignments=tuple(one.name for one in assignments),
            submission=submission.folder,
            info=submission.info,
            refused=submission.refused,
            folder=folder,
            device=request.device,
            seed=request.seed,
        )
        return HostSandbox().run(job, on_event)
