"""The course that this grader came with: beside the package in a checkout, inside it where `pip install .` put both."""

from __future__ import annotations

import os
from pathlib import Path

import grader

ROOMS = ("assignments", "reference", "starter")
INSTALLED = "course_data"  # the folder of the package into which setup.py copies the three rooms


class CourseOpen(Exception):
    """Another user may read the course, and that cannot be changed; the message says what to do."""


def own_course() -> Path | None:
    """The folder with the rooms; None where only the package is here. In a checkout that folder is the checkout."""
    package = Path(grader.__file__).resolve().parent
    if (package / INSTALLED).is_dir():
        return package / INSTALLED
    return package.parent if (package.parent / ROOMS[0]).is_dir() else None


def is_installed(course: Path) -> bool:
    """Whether a course lies among Python's packages, which every user of this machine may read, and so may every worker."""
    return course.name == INSTALLED


def hidden_courses() -> list[Path]:
    """The courses that no worker may read: the one that is graded, by GRADER_COURSE, and the one that this grader came with."""
    named = os.environ.get("GRADER_COURSE")
    return [one.resolve() for one in (Path(named) if named else None, own_course()) if one is not None]


def close_installed_course() -> None:
    """Leave a course among Python's packages to its owner alone: workers that are another user read the packages. Raises CourseOpen."""
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
