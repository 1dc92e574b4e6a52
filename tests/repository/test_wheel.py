"""`pip install .` makes a grader that grades: with the course in it, out of the reach of what is graded."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from grader.course import INSTALLED, ROOMS
from grader.fingerprint import fingerprint
from grader.report.model import Report
from tests.conftest import ROOT, broken_jails, open_to_workers

pytestmark = pytest.mark.grading

SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "grader", *ROOMS)
# Says what it could read of the course, wherever Python's packages are.
THIEF = f"""
import pathlib, sys

found = []
for folder in filter(None, sys.path):
    for course in pathlib.Path(folder).glob("grader/{INSTALLED}"):
        for name in ("reference/softmax.py", "assignments/softmax/mistakes.py", "assignments/_gelu/problem.py", "starter/softmax.py"):
            try:
                found.append((course / name).read_text())
            except OSError as error:
                found.append(type(error).__name__)
raise RuntimeError(str(found))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, which everybody may read, as they may an environment's packages."""
    folder = tmp_path_factory.mktemp("wheel")
    folder.chmod(0o755)
    open_to_workers(folder)
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copyfile if (ROOT / name).is_file() else shutil.copytree
        copy(ROOT / name, source / name)
    stale = source / "build/lib/grader" / INSTALLED / "reference/of_last_year.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", source, "--no-deps", "--no-build-isolation", "-w", folder], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", wheel, "--no-deps", "--target", folder / "site"], check=True)
    return folder / "site"


def grade(site: Path, folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run the installed grader in a folder."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GRADER_")}
    variables |= {"PYTHONPATH": str(site), "PATH": os.pathsep.join(filter(None, (path, os.environ["PATH"])))}
    command = [sys.executable, "-P", "-m", "grader", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def test_the_wheel_has_the_course_as_the_checkout_has_it(site: Path) -> None:
    program = "from grader.course import own_course as own; from grader.fingerprint import fingerprint as of; print(own(), of(own()))"
    told = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told.split() == [str(site / "grader" / INSTALLED), fingerprint(ROOT)]


@pytest.mark.parametrize("jail", ["bubblewrap", pytest.param("uid", marks=pytest.mark.everything)])
def test_an_installed_grader_grades_in_an_empty_folder_and_hides_its_course(
    site: Path, tmp_path: Path, jail: str
) -> None:
    if jail == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    if jail == "uid" and os.geteuid() != 0:
        pytest.skip("only root can give a worker another user")
    course = site / "grader" / INSTALLED
    course.chmod(0o755)
    submission, empty = tmp_path / "handed-in", tmp_path / "empty"
    submission.mkdir()
    empty.mkdir()
    (submission / "softmax.py").write_text(THIEF)
    shutil.copyfile(ROOT / "reference/triton_gelu.py", submission / "triton_gelu.py")
    hidden = str(broken_jails(tmp_path / "broken", ["bwrap"])) if jail == "uid" else ""
    words = ("--device", "cpu", "--no-compile", "-a", "softmax", "-a", "triton_gelu")
    done = grade(site, empty, "run", str(submission), *words, path=hidden)
    assert done.returncode == 0, done.stderr + done.stdout
    report = Report.model_validate_json((empty / "grader-report/report.json").read_bytes())
    assert report.isolation.jail == jail
    assert '<section id="points">' in (empty / "grader-report/report.html").read_text(encoding="utf-8")
    softmax, gelu = sorted(report.assignments, key=lambda one: one.name)
    assert gelu.parts[0].points.earned == 8
    (found,) = {case.message for case in softmax.parts[0].cases if "RuntimeError" in case.message}
    assert found.endswith(str(["FileNotFoundError" if jail == "bubblewrap" else "PermissionError"] * 4))
    assert stat.S_IMODE(course.stat().st_mode) == (0o755 if jail == "bubblewrap" else 0o700)


def test_a_package_without_a_course_says_what_to_give(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site / "grader", tmp_path / "site/grader", ignore=shutil.ignore_patterns(INSTALLED, "__pycache__"))
    done = grade(tmp_path / "site", tmp_path, "run", ".")
    assert (done.returncode, done.stdout) == (2, "")
    assert "came without a course: name a folder with assignments/, reference/ and starter/ by --course" in done.stderr
    assert len(done.stderr.splitlines()) == 1
