"""What pyproject.toml cannot say: a wheel has the course inside the package, and git has no copy of it there."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOMS = (
    "assignments",
    "reference",
    "starter",
)  # as in grader/course.py, which this file cannot import where it is built
ROOT = Path(__file__).parent


def course_files() -> list[str]:
    """The files of the rooms, by their paths in the checkout."""
    found = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*")) if path.is_file())
    paths = [path.relative_to(ROOT) for path in found]
    return [str(path) for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts)]


class BuildWithCourse(build_py):
    """Copies the course into a wheel. An editable install uses the checkout's own."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        missing = [room for room in ROOMS if not (ROOT / room).is_dir()]
        if missing:
            raise SystemExit(f"{ROOT}: has no {missing[0]}/, and a wheel of the grader has the course in it")
        course = Path(self.build_lib, "grader", "course_data")
        shutil.rmtree(course, ignore_errors=True)  # an earlier build may have left what is no longer in the course
        for name in course_files():
            (course / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, course / name)

    def get_source_files(self) -> list[str]:
        """What a source distribution has."""
        return [*super().get_source_files(), *course_files()]


setup(cmdclass={"build_py": BuildWithCourse})
