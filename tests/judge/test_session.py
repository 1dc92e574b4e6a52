"""How a grading ends that cannot begin, and what is started before it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import session
from grader.judge.cases import SpeedSizes
from grader.judge.plugin import JudgePlugin


@pytest.mark.parametrize("timed", [[], ["a speed case"]], ids=["without pytest", "with pytest"])
def test_what_kept_the_submission_from_being_read_is_told_and_no_test_is_run(
    monkeypatch: pytest.MonkeyPatch, timed: list[Any]
) -> None:
    def run(_checks: object, _races: object) -> None:
        raise TimeoutError("no turn for 300 s")

    schedule: Any = SimpleNamespace(run_all=run)
    nobody: Any = None
    plugin = JudgePlugin(nobody, nobody, nobody, schedule, nobody)
    grading: Any = SimpleNamespace(assignments=[], speed_cases=timed)

    def main(_arguments: list[str], plugins: list[Any]) -> pytest.ExitCode:
        try:
            next(plugins[0].pytest_runtestloop(SimpleNamespace(items=[])))
        except pytest.UsageError:
            return pytest.ExitCode.USAGE_ERROR
        return pytest.ExitCode.OK

    monkeypatch.setattr(session.os, "environ", dict(session.os.environ))
    monkeypatch.setattr(session, "pytest", SimpleNamespace(main=main, ExitCode=pytest.ExitCode))
    with pytest.raises(TimeoutError, match="no turn"):
        session.run_tests(grading, schedule, plugin, nobody)


def test_a_grading_without_checks_and_races_can_be_interrupted() -> None:
    def run(_checks: object, _races: object) -> None:
        raise KeyboardInterrupt

    nobody: Any = None
    schedule: Any = SimpleNamespace(run_all=run)
    grading: Any = SimpleNamespace(assignments=[], speed_cases=[])
    assert not session.run_tests(grading, schedule, nobody, nobody)


def test_an_interrupted_session_shows_nobodys_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument may hold the whole course, whose words take minutes to make: a judge that is asked to end has seconds."""
    (tmp_path / "test_law.py").write_text("def test_law(properties):\n    'A law.'\n")
    shown: list[str] = []

    class Argument:
        def __repr__(self) -> str:
            shown.append("an argument")
            return "an argument"

    def run(_checks: object, _races: object, _one: object = Argument()) -> None:
        raise KeyboardInterrupt

    nobody: Any = Argument()
    group = SimpleNamespace(checks=["test_law"])
    spec = SimpleNamespace(parts=[SimpleNamespace(name="part", groups=[group])])
    grading: Any = SimpleNamespace(
        assignments=[SimpleNamespace(name="one", folder=tmp_path, spec=spec)], speed_cases=[]
    )
    schedule: Any = SimpleNamespace(run_all=run)
    works: Any = SimpleNamespace(of_check=lambda *_: None)
    monkeypatch.setattr(session.os, "environ", dict(session.os.environ))
    plugin = JudgePlugin(grading, nobody, works, schedule, nobody)
    assert not session.run_tests(grading, schedule, plugin, nobody)
    assert shown == []


@pytest.mark.parametrize(("free_gib", "roomy"), [(140.0, ["large"]), (80.0, ["large"]), (79.9, ["small"]), (38.9, [])])
def test_what_there_is_memory_for_beside_all_lanes_may_be_called_early(free_gib: float, roomy: list[str]) -> None:
    begun: list[Any] = []
    run: Any = SimpleNamespace(
        device_name="cuda", lane_count=8, free_gib=lambda: free_gib, job=SimpleNamespace(contenders="needed")
    )
    crew: Any = SimpleNamespace(
        baselines=SimpleNamespace(begin=lambda *given: begun.append(given)),
        expect_reference=lambda: None,
    )
    large, small = (
        SimpleNamespace(name=name, speed=SimpleNamespace(devices=("cuda",)), memory_gib=gib)
        for name, gib in (("large", 48.0), ("small", 7.0))
    )
    sizes = SpeedSizes((large, small))  # type: ignore[arg-type]
    run.speed_cases = [sizes]
    session.start_the_courses_own(run, crew, 32.0)
    ((cases, everyone, found, _),) = begun
    assert cases == [sizes.declared]
    assert not everyone
    assert [one.name for one in found] == roomy


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
    ini = Path(session.__file__).with_name("pytest.ini")
    command = [sys.executable, "-c", program, "-c", str(ini), "--rootdir", str(tmp_path), str(tmp_path / "test_one.py")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
