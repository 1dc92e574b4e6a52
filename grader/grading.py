"""The order of work of a grading, from a folder to a report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from grader.assignment import Assignment, load_course, stub_names
from grader.job import Event, Job, Profiling
from grader.report.model import Effort, Report
from grader.runfolder import run_folder
from grader.sandbox.base import Sandbox
from grader.sandbox.choice import open_sandbox
from grader.sandbox.place import Place
from grader.submission import Submission, SubmissionError, Survey, in_place_of, read_staged, stage, survey
from grader.verdict.blame import with_sources


@dataclass(frozen=True)
class Request:
    """The command line's request for a grading.

    submission: the student's folder.
    course: folder with assignments/, reference/ and starter/.
    assignments: names of assignments; empty for all.
    place: the sandbox and the device.

    The other fields are those of `Job`.
    """

    submission: Path
    course: Path
    assignments: tuple[str, ...] = ()
    place: Place = field(default_factory=Place)
    seed: int | None = None
    stop_early: bool = False
    speed: bool = True
    compilation: bool = True
    effort: Effort = "full"
    contenders: Literal["needed", "all"] = "needed"
    profile: Profiling = "no"
    profiled: tuple[str, ...] = ()


class Grading:
    """One grading, whose judge has been started before the request is known (see `open_grading`).

    `run` may be called once.
    """

    def __init__(self, place: Place, folder: Path, sandbox: Sandbox) -> None:
        self._place = place
        self._folder = folder
        self._sandbox = sandbox

    def run(self, request: Request, on_event: Callable[[Event], None]) -> Report:
        """See `grade`; the request must be for this grading's place."""
        assert request.place == self._place
        assignments = load_course(request.course, request.assignments)
        wanted = tuple(one.spec.file for one in assignments)
        found = survey_for(request, assignments)
        submission = stage(request.submission, self._folder / "submission", wanted, found)
        job = Job(
            course=request.course.resolve(),
            assignments=request.assignments or tuple(one.name for one in assignments),
            submission=submission.folder,
            info=submission.info,
            refused=submission.refused,
            misnamed=_misnamed(request.course, assignments, submission) | found.misnamed,
            seed=request.seed,
            stop_early=request.stop_early,
            speed=request.speed,
            compilation=request.compilation,
            effort=request.effort,
            contenders=request.contenders,
            profile=request.profile,
            profiled=request.profiled,
        )
        report = self._sandbox.run(job, on_event)
        read = partial(read_staged, submission.folder)
        with_source = tuple(with_sources(one, submission.info.files, read) for one in report.assignments)
        return report.model_copy(update={"assignments": with_source})

    def stop(self) -> None:
        """See `Sandbox.stop`."""
        self._sandbox.stop()


@contextmanager
def open_grading(place: Place) -> Iterator[Grading]:
    """Start a judge in the place of a later request; at the end its folder is removed."""
    with run_folder() as folder, open_sandbox(place, folder) as sandbox:
        yield Grading(place, folder, sandbox)


def grade(
    request: Request,
    on_event: Callable[[Event], None],
    stopping: Callable[[Callable[[], None]], AbstractContextManager[None]],
) -> Report:
    """Grade one submission and return its report.

    Args:
        stopping: makes a context manager from `Grading.stop`; that function may be called while the context is entered.

    Raises:
        CourseError, SubmissionError, UsageError: the request cannot be carried out; the message says why.
        InfraError: this machine failed, not the submission.
        KeyboardInterrupt: the grading was stopped before anything was graded.
    """
    with open_grading(request.place) as grading, stopping(grading.stop):
        return grading.run(request, on_event)


def _misnamed(course: Path, assignments: Iterable[Assignment], submission: Submission) -> dict[str, str]:
    """By the name of a missing file, a sentence about staged files of any other name that look like it."""
    told = {
        one.spec.file: in_place_of(course / "starter" / one.spec.file, one.spec.entry, submission.folder)
        for one in assignments
        if one.spec.file not in submission.info.files
    }
    return {name: words for name, words in told.items() if words}


def survey_for(request: Request, assignments: Sequence[Assignment]) -> Survey:
    """Look for the files of these assignments in the submission. Raises SubmissionError."""
    if request.submission.resolve() == request.course.resolve():
        mend = "name the folder with your files, as in `grader check my-folder`"
        raise SubmissionError(f"{request.submission} is the grader's own folder: {mend}")
    if os.path.isfile(request.submission):  # noqa: PTH113  (False for a name that no file can have)
        for one in assignments:
            if one.spec.file == request.submission.name:
                folder = shlex.quote(str(request.submission.parent))
                mend = f"for this file alone name its folder, as in `grader check {folder} -a {one.name}`"
                raise SubmissionError(f"{request.submission}: is a file; {mend}")
    return survey(request.submission, [one.spec.file for one in assignments], stub_names(request.course))
