"""`grader class run` and `grader class status` as they are typed: words, exit codes, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from grader.classroom import run
from grader.classroom.tasks import read_tasks
from grader.cli import app
from tests.conftest import IMPORTS, Course, open_to_workers
from tests.support.gradings import Scripted, attempted


@pytest.fixture
def made(tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    course.add("double")
    monkeypatch.setattr(run, "cleanup", lambda: [])
    return Scripted(tmp_path, course.folder, {"alice": "graded", "nina": ""}, device="cpu", speed=False)


def typed(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["class", *map(str, words)])
    return done.exit_code, done.output


def test_a_class_that_is_done(made: Scripted) -> None:
    attempted(made.run, made.handin("alice"))
    assert typed("run", made.run.path) == (0, "1 hand-in: 1 graded\n")
    assert typed("status", made.run.path) == (0, "1 hand-in: 1 graded\n  handed in nothing: nina\n")


def test_a_class_that_the_machine_spoilt(made: Scripted) -> None:
    for number in (1, 2, 3):
        attempted(made.run, made.handin("alice"), number, 3, "no memory")
    assert typed("run", made.run.path) == (3, "1 hand-in: 1 failed: the machine spoilt 3 attempts\n")
    assert typed("status", made.run.path)[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "nowhere"], "nowhere: there is no such folder; `grader class new` makes the folder of a class"),
        (["status", "nowhere"], "nowhere: there is no such folder"),
        (["status", "."], ": there is no students.json in it; `grader class new` makes the folder of a class"),
        (["run", "RUN", "--only", "nina"], "nina: no hand-in that counts"),
        (["run", "RUN", "--gpu", "GPU-1"], "--gpu: run.json says that this class is graded on the CPU"),
        (["run", "RUN", "--limit", "0"], "--limit"),
    ],
)
def test_unusable(made: Scripted, words: list[str], told: str) -> None:
    code, output = typed(*(made.run.path if word == "RUN" else word for word in words))
    assert code == 2
    assert told in output


@pytest.mark.grading
def test_an_interrupted_run_leaves_nothing_and_goes_on(made: Scripted, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    open_to_workers(tmp_path)
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": IMPORTS, "COLUMNS": "200"}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "grader", "class", "run", str(made.run.path)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=tmp_path)

    for number in (signal.SIGINT, signal.SIGTERM):
        run = start()
        deadline = time.monotonic() + 60
        while not list((tmp_path / "tmp").glob("grader-run-*/submission")):  # the judge has it
            assert time.monotonic() < deadline
            assert run.poll() is None
            time.sleep(0.02)
        run.send_signal(number)
        output, errors = run.communicate(timeout=60)
        assert run.returncode == 130
        assert output.splitlines()[-1] == "1 hand-in: 1 left"
        assert errors == f"interrupted: what is graded stays; `grader class run {made.run.path}` goes on\n"
        assert made.leftovers == []
        assert list((tmp_path / "tmp").iterdir()) == []
        assert alive(tmp_path / "tmp") == []
    again = start()
    output, errors = again.communicate(timeout=120)
    assert (again.returncode, errors) == (0, "")
    assert output.splitlines()[-1] == "1 hand-in: 1 graded"
    (task,) = read_tasks(made.run)
    assert [(one.number, one.exit_code) for one in task.attempts] == [(1, 0)]
    folder = made.run.tasks(task.handin) / "attempt.1"
    assert {path.name for path in folder.iterdir()} == {"attempt.json", "output.txt", "report.json", "report.html"}


def alive(folder: Path) -> list[int]:
    """Processes of runs whose temporary folder this is."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.environ().values()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
