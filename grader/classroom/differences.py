"""Finds differences that gradings of one class must not have: the grader's version, the course, the GPU's model, the image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import grader
from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.lock import lock
from grader.classroom.model import ClassRun
from grader.classroom.station import Station
from grader.course import own_course
from grader.fingerprint import fingerprint
from grader.report.model import Report

LOCK = ".lock"  # of run.json


def course_of(run: ClassRun) -> Path:
    """The course's folder. Raises ClassError."""
    course = Path(run.course) if run.course else own_course()
    if course is None:
        raise ClassError("run.json names no course, and this grader came without one")
    if not course.is_dir():
        raise ClassError(f"{course}: the folder of the course, which run.json names, is not here")
    return course


def of_grader(run: ClassRun, course: Path) -> list[str]:
    """Differences between this grader and course and those of the class, as sentences."""
    if run.grader != grader.__version__:
        return [f"the class was made by grader {run.grader}, and this is grader {grader.__version__}"]
    if run.fingerprint != fingerprint(course):
        return [f"the course in {course}, or the grader's code, is not what it was when the class was made"]
    return []


def of_stations(run: ClassRun, stations: Sequence[Station], begun: bool) -> list[str]:
    """Differences between these stations, and from the GPU of the class, as sentences.

    Args:
        begun: whether the class has a graded attempt, and so a GPU (or the CPU).
    """
    models = sorted({one.gpu.name if one.gpu else "" for one in stations})
    if len(models) > 1:
        return [f"this machine has GPUs of several models ({', '.join(models)}); name those of one model by --gpu"]
    if begun and models != [run.gpu]:
        return [f"the class has been graded on {_gpu(run.gpu)} so far, and this is {_gpu(models[0])}"]
    return []


def of_report(run: ClassRun, report: Report, begun: bool) -> list[str]:
    """Differences between a report's grading and earlier gradings of the class, as sentences."""
    gpu, image = report.environment.gpu or "", report.isolation.image or ""
    found = []
    if begun and gpu != run.gpu:
        found.append(f"the class has been graded on {_gpu(run.gpu)} so far, and this grading ran on {_gpu(gpu)}")
    if begun and image != run.image_digest:
        found.append(
            f"the class has been graded {_image(run.image_digest)} so far, and this grading ran {_image(image)}"
        )
    if report.fingerprint not in ("", run.fingerprint):
        found.append("the course or the grader's code was changed while the class is graded")
    return found


def refuse(found: Sequence[str]) -> None:
    """Raise ClassError if differences were found."""
    if found:
        raise ClassError(
            f"{'; '.join(found)}. Grades of one class would not mean the same; --anyway grades nevertheless"
        )


def settle(folder: RunFolder, report: Report, begun: bool, anyway: bool) -> None:
    """Compare a report with run.json, which the first report completes. Raises ClassError, OSError.

    Args:
        begun: whether the class has a graded attempt.
        anyway: whether to accept differences.
    """
    held = lock(folder.path / LOCK, wait=True, unlocked=True)
    assert held is not None
    with held:
        run = folder.run()
        begun = begun or bool(run.gpu or run.image_digest)  # by another machine just now
        if not anyway:
            refuse(of_report(run, report, begun))
        if not begun:
            settled = {"gpu": report.environment.gpu or "", "image_digest": report.isolation.image or ""}
            if any(settled.values()):
                folder.write(run.model_copy(update=settled))


def _gpu(name: str) -> str:
    return name or "a CPU"


def _image(digest: str) -> str:
    return f"in the image {digest}" if digest else "without a container"
