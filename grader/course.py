"""Finds the courses on this machine: in a checkout a course lies beside the package, after `pip install .` inside the package."""

from __future__ import annotations

import os
from pathlib import Path

import grader

ROOMS = ("assignments", "reference", "starter")
INSTALLED = "course_data"  # the folder of the package into which setup.py copies the three rooms


class CourseOpen(Exception):
    """Other users may read the course, and the grader cannot change that; the message says what to do."""


def own_course() -> Path | None:
    """The grader's own course, which is the checkout or a folder in the package; None if the package came without a course."""
    package = Path(grader.__file__).resolve().parent
    if (package / INSTALLED).is_dir():
        return package / INSTALLED
    return package.parent if (package.parent / ROOMS[0]).is_dir() else None


def is_installed(course: Path) -> bool:
    """Whether a course lies in the installed package, in a place that every user of this machine, and so every worker, may read."""
    return course.name == INSTALLED


def hidden_courses() -> list[Path]:
    """The courses that no worker may read: the course of the grading, by GRADER_COURSE, and the grader's own course."""
    named = os.environ.get("GRADER_COURSE")
    return [one.resolve() for one in (Path(named) if named else None, own_course()) if one is not None]


def close_installed_course() -> None:
    """Close an installed course to all users but its owner: workers that are another user may read packages. Raises CourseOpen."""
    course = own_course()
    if course is None or not is_installed(course) or not course.stat().st_mode & 0o077:
        return
    try:
        course.chmod(0o700)
    except OSError as error:
        raise CourseOpen(
            f"{course}: submissions could read the course, and it cannot be closed to them ({error.strerror}); "
            f"have its owner do `chmod 700 {course}`, or install bubblewrap"
        ) from None
