"""The order of work of a grading, from a folder to a report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from grader.assignment import Assignment, load_course, stub_names
from grader.messages import Event, Place, Request, SandboxName
from grader.report.model import Report
from grader.runfolder import run_folder
from grader.sandbox.base import InfraError, Sandbox
from grader.sandbox.host import HostSandbox
from grader.submission import SubmissionError, Survey, kernel_elsewhere, read_staged, stage, survey
from grader.verdict.blame import with_sources


def grade(request: Request, on_event: Callable[[Event], None]) -> Report:
    """Grade one submission and return its report.

    Raises:
        CourseError, SubmissionError, UsageError: the request cannot be carried out; the message says why.
        InfraError: this machine failed, not the submission.
        KeyboardInterrupt: the grading was stopped before anything was graded.
    """
    with started(request) as (folder, sandbox):
        return graded(request, folder, sandbox, on_event)


@contextmanager
def started(request: Request) -> Iterator[tuple[Path, Sandbox]]:
    """The folder of a run, and a sandbox whose judge gets ready: for one grading by `graded`, in the request's place."""
    with run_folder() as folder:
        sandbox: Sandbox
        if choose(request.place) == "docker":
            from grader.sandbox.docker import DockerSandbox

            sandbox = DockerSandbox(request.place)
        else:
            sandbox = HostSandbox(folder, request.place, request.course)
        with sandbox:
            yield folder, sandbox


def choose(place: Place) -> SandboxName:
    """The requested sandbox; for `auto`, `docker` if a daemon and the image are here, else `host`.

    Raises:
        InfraError: this machine is configured for containers and cannot start one. The host is no substitute for strangers' code.
        UsageError: the image is here, and a container would not get this machine's GPU.
    """
    if place.sandbox != "auto":
        return place.sandbox
    from grader.sandbox import engine

    image_expected, daemon_named = engine.why_image_is_expected(place.image), engine.why_daemon_is_expected()
    if not (image_expected or engine.is_there()):
        return "host"
    from grader.sandbox import docker

    try:
        docker.find(place)
    except InfraError as error:
        expected = image_expected or (daemon_named if not isinstance(error, engine.ImageMissing) else "")
        if not expected:
            return "host"
        words = str(error).replace(engine.HELP, "").rstrip(" ;.")
        insist = f"{expected}, so nothing is graded on this host instead, unless --sandbox host says so"
        raise InfraError(f"{words}. {insist}; `grader doctor` says more") from None
    return "docker"


def graded(request: Request, folder: Path, sandbox: Sandbox, on_event: Callable[[Event], None]) -> Report:
    """Stage the submission into the run's folder, and have the sandbox's judge grade it. Raises as `grade`."""
    assignments = load_course(request.course, request.assignments)
    wanted = tuple(one.spec.file for one in assignments)
    found = survey_for(request, assignments)
    staged = stage(request.submission, folder / "submission", wanted, found)
    elsewhere = {
        one.spec.file: words
        for one in assignments
        if one.spec.file not in staged.info.files
        and (words := kernel_elsewhere(request.course / "starter" / one.spec.file, one.spec.entry, staged.folder))
    }
    names = request.assignments or tuple(one.name for one in assignments)
    staged = staged.model_copy(update={"misnamed": elsewhere | staged.misnamed})
    update = {"course": request.course.resolve(), "assignments": names, "staged": staged}
    report = sandbox.run(request.model_copy(update=update), on_event)
    read = partial(read_staged, staged.folder)
    with_source = tuple(with_sources(one, staged.info.files, read) for one in report.assignments)
    return report.model_copy(update={"assignments": with_source})


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
