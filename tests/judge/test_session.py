"""How a grading ends that is interrupted, and what its threads may not see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import session
from grader.judge.speed.plugin import SpeedTests, run_pytest
from tests.conftest import ROOT


def test_an_interrupted_run_shows_nobodys_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument may hold the whole course, whose words take minutes to make: a judge that is asked to end has seconds."""
    test = "def interrupted(one):\n    raise KeyboardInterrupt\n\ndef test_one(speed, speed_case):\n    interrupted(speed)\n"
    (tmp_path / "test_one.py").write_text(test)
    shown: list[str] = []
    sizes = SimpleNamespace(declared=SimpleNamespace(id="large"), place=SimpleNamespace(started=None))

    class Argument:
        run: Any = SimpleNamespace(speed_cases=[sizes], emit=lambda _: None)

        def __repr__(self) -> str:
            shown.append("an argument")
            return "an argument"

    argument: Any = Argument()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    tests = SpeedTests(argument, argument, argument, argument)
    assert run_pytest([tmp_path / "test_one.py"], tests) == pytest.ExitCode.INTERRUPTED
    assert shown == []


COPIES = """
import os, sys, threading
from pathlib import Path

import pytest

from grader.judge.speed.plugin import run_pytest
from grader.judge.__main__ import keep_environment

folder = Path(sys.argv[1])
folder.joinpath("test_laws.py").write_text("import pytest\\n@pytest.mark.parametrize('n', range(20))\\ndef test_law(n): pass\\n")
faults = []

def copy():
    try:
        for _ in range(20):
            {**os.environ}, os.environ | {}, os.environ.copy()
    except BaseException as error:
        faults.append(repr(error))

def start_all():
    for _ in range(200):
        thread = threading.Thread(target=copy)
        thread.start()
        thread.join(0.01)

keep_environment()
before = dict(os.environ)
sys.setswitchinterval(1e-5)
starting = threading.Thread(target=start_all)
starting.start()
while starting.is_alive():
    assert run_pytest([folder / "test_laws.py"], object()) == pytest.ExitCode.OK
print(faults[:3], {*before.items()} ^ {*os.environ.items()}, [name for name in before if name.startswith("PYTEST_")], os.getcwd())
"""


def test_no_thread_of_a_judge_finds_the_environment_in_change(tmp_path: Path) -> None:
    """200 threads copy it while pytest runs, in a judge that another pytest has started."""
    mine = {"PYTEST_XDIST_WORKER": "gw0", "PYTEST_ADDOPTS": "--collect-only", "PYTEST_PLUGINS": "nowhere"}
    command = [sys.executable, "-c", COPIES, str(tmp_path)]
    told = subprocess.run(command, cwd=ROOT, env=os.environ | mine, capture_output=True, text=True)
    assert told.stdout.splitlines()[-1:] == [f"[] set() ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] {ROOT}"], (
        told.stdout + told.stderr
    )


def test_pytest_does_not_walk_through_loggers_that_a_thread_may_be_making(tmp_path: Path) -> None:
    """As its plugin for logs does before each test."""
    (tmp_path / "test_one.py").write_text("def test_one(): ...\n")
    program = """
import logging, sys, pytest

class Loggers(dict):
    def values(self):
        raise RuntimeError("dictionary changed size during iteration")

logging.root.manager.loggerDict = Loggers(logging.root.manager.loggerDict)
sys.exit(pytest.main(sys.argv[1:]))
"""
    ini = Path(session.__file__).with_name("speed") / "pytest.ini"
    command = [sys.executable, "-c", program, "-c", str(ini), "--rootdir", str(tmp_path), str(tmp_path / "test_one.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
