"""A grading in a container on a GPU, and a class, end as on the host: outcomes, points and bands. `make gpu-docker` runs this."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from grader.classroom.folder import RunFolder
from grader.report.json_file import REPORT, read_report
from grader.report.model import Report
from tests.conftest import IMPORTS, ROOT, Ran, Running
from tests.support import containers
from tests.support.corpus import Entry

pytestmark = [pytest.mark.gpu, pytest.mark.docker, pytest.mark.alone, pytest.mark.timeout(900)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def _docker() -> None:
    containers.need()


SEED = "1"
BROKEN = "import os\n\ndef softmax(x):\n    os.abort()\n"
# Says where it could read the reference.
HOSTILE = f"""
import pathlib, sys

places = [pathlib.Path("/opt/course"), pathlib.Path({str(ROOT)!r})]
places += [pathlib.Path(folder, "grader/course_data") for folder in sys.path]
found = []
for place in places:
    try:
        found.append((place / "reference/softmax.py").read_text())
    except OSError:
        pass
raise RuntimeError(f"found {{found}}")
"""


def reference(_scratch: Path) -> Path:
    return ROOT / "reference"


def wrong(scratch: Path) -> Path:
    return Entry(ROOT / "tests/corpora/mutants/softmax/padded_with_zero").submission(scratch)


def broken(scratch: Path) -> Path:
    (scratch / "softmax.py").write_text(BROKEN)
    return scratch


def hostile(scratch: Path) -> Path:
    (scratch / "softmax.py").write_text(HOSTILE)
    return scratch


def grade(submission: Path, folder: Path, *words: str) -> Ran:
    """Grade on the same inputs each time: on some, a wrong kernel is within what half precision allows."""
    folder.mkdir()
    only = () if submission == ROOT / "reference" else ("--assignment", "softmax")
    return Running(folder, [str(submission), "--seed", SEED, *only, *words]).finish(600)


def found(report: Report | None) -> dict[str, object]:
    """What must not depend on the place: each case's outcome, each part's points, each band that is reached."""
    assert report is not None
    assert report.infra_errors == ()
    parts = [(f"{one.name} {part.name}", part) for one in report.assignments for part in one.parts]
    told: dict[str, object] = {f"{name} {case.name}": case.outcome for name, part in parts for case in part.cases}
    told |= {f"{name} points": part.points.earned for name, part in parts}
    for name, part in parts:
        for case in part.speed.cases:
            told |= {f"{name} {case.name} {band.vs} × {band.speedup}": band.reached for band in case.bands}
    return told


def line(name: str, ran: Ran) -> str:
    """A line for who runs this: what was graded, where, and what became of it."""
    assert ran.report is not None
    report = ran.report
    return (
        f"{name:10} {report.isolation.words:24} correctness {report.correctness.earned:g}/{report.correctness.graded:g}"
        f"  speed {report.speed.earned:g}/{report.speed.graded:g}  {report.duration_s:.1f} s"
    )


@pytest.mark.parametrize("make", [reference, wrong, broken])
def test_a_grading_in_a_container_ends_as_on_the_host(make: Callable[[Path], Path], tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    submission = make(scratch)
    host = grade(submission, tmp_path / "host", "--sandbox", "host")
    container = grade(submission, tmp_path / "container", "--sandbox", "docker", "--image", containers.IMAGE)
    for ran in (host, container):
        print(line(make.__name__, ran))
        assert (ran.code, ran.left) == (0, []), ran.errors + ran.output
    assert container.report is not None
    assert container.report.isolation.sandbox == "docker"
    assert found(container.report) == found(host.report)
    assert containers.left() == []


def test_a_hostile_submission_finds_nothing_in_a_container(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ran = grade(hostile(scratch), tmp_path / "container", "--sandbox", "docker", "--image", containers.IMAGE)
    print(line("hostile", ran))
    assert ran.report is not None
    assert (ran.report.score.earned, ran.left, containers.left()) == (0, [], [])
    assert ran.case("softmax", "1x7").message.endswith("found []")


def test_a_class_in_containers_ends_as_on_the_host(tmp_path: Path) -> None:
    """Each hand-in but the first has its judge waiting, in a container of its own, while the one before is graded."""
    handins = tmp_path / "handins"
    for make in (wrong, broken, hostile, wrong, broken, hostile):
        own = handins / f"{len(list(handins.glob('*')))}-{make.__name__}"
        own.mkdir(parents=True)
        own.joinpath("README.md").write_text(f"The answer of {own.name}.\n")  # no two hand-ins are alike
        scratch = tmp_path / f"scratch-{own.name}"
        scratch.mkdir()
        shutil.copytree(make(scratch), own, dirs_exist_ok=True)
    graded = {name: graded_class(tmp_path / name, handins, name) for name in ("host", "docker")}
    assert {name: found(report) for name, report in graded["docker"].items()} == {
        name: found(report) for name, report in graded["host"].items()
    }
    assert {report.isolation.sandbox for report in graded["docker"].values()} == {"docker"}
    for name in ("2-hostile", "5-hostile"):
        told = [case.message for _, part in graded["docker"][name].parts for case in part.cases]
        assert any(one.endswith("found []") for one in told), told
    assert containers.left() == []


def graded_class(run: Path, handins: Path, sandbox: str) -> dict[str, Report]:
    """Grade a class of softmax on this GPU. Returns the report of each student, and prints what a hand-in took."""
    image = ["--image", containers.IMAGE] if sandbox == "docker" else []
    new = ["--from", str(handins), "--assignment", "softmax", "--seed", SEED, "--sandbox", sandbox, *image]
    taken = 0.0
    for words in (["new", str(run), *new], ["run", str(run)]):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "grader", "class", *words],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": IMPORTS},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        taken = time.monotonic() - began
    folder = RunFolder(run)
    attempts = {one.key: folder.attempts(one.handin) for one in folder.students().students}
    assert {len(own) for own in attempts.values()} == {1}
    seconds = [(one.ended - one.started).total_seconds() for own in attempts.values() for one in own]
    print(
        f"class in {sandbox}: {taken / len(seconds):.1f} s a hand-in, of which in gradings {statistics.mean(seconds):.1f}"
    )
    return {name: read_report(path / REPORT) for name, own in attempts.items() for path in own.values()}
