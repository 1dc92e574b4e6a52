"""How a grading session ends that cannot begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.assignment import load_course
from grader.contender.replies import ContenderFault
from grader.judge import plugin as plugin_module
from grader.judge import session
from grader.judge.evidence import CheckFailed, Evidence
from grader.judge.plugin import JudgePlugin
from grader.report.model import INTERRUPTED, CaseResult
from tests.conftest import ROOT


def test_what_kept_the_submission_from_being_read_is_told_and_no_test_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = TimeoutError("no turn for 300 s")

    def finish_looking() -> None:
        raise failure

    plugin: Any = JudgePlugin.__new__(JudgePlugin)
    plugin.judge, plugin.speed_cases, plugin.refusal, plugin.failure = (
        SimpleNamespace(finish_looking=finish_looking),
        [],
        "",
        None,
    )

    def main(_arguments: list[str], plugins: list[Any]) -> pytest.ExitCode:
        try:
            next(plugins[0].pytest_runtestloop(SimpleNamespace(items=[])))
        except pytest.UsageError:
            return pytest.ExitCode.USAGE_ERROR
        return pytest.ExitCode.OK

    monkeypatch.setattr(session, "pytest", SimpleNamespace(main=main, ExitCode=pytest.ExitCode))
    with pytest.raises(TimeoutError, match="no turn"):
        session._run_pytest(plugin, [])


def test_a_failure_of_the_grader_is_told_with_its_place() -> None:
    def fail() -> None:
        raise RuntimeError("no such stream")

    with pytest.raises(RuntimeError) as failed:
        fail()
    end = plugin_module._end(failed.value, load_course(ROOT)[0].spec)
    assert end.outcome == "infra_error"
    line = fail.__code__.co_firstlineno + 1
    assert end.message.startswith(
        f"the grader failed: RuntimeError: no such stream, in test_session.py, line {line}, in "
    )


def test_what_ran_ahead_is_kept_of_an_interrupted_session_but_no_crash() -> None:
    """Lanes are done with cases whose tests have had no turn; who ended the session may have ended workers too."""
    ended = {
        "a-p-right": None,
        "a-p-wrong": CheckFailed("it is wrong"),
        "a-p-killed": ContenderFault("crashed", "SIGTERM"),
    }
    lanes = SimpleNamespace(done=lambda key: Evidence(error=ended[key]) if key in ended else None)
    plugin: Any = JudgePlugin.__new__(JudgePlugin)
    told: list[Any] = []
    plugin.judge = SimpleNamespace(lanes=lanes, emit=told.append, job=SimpleNamespace(stop_early=False))
    plugin.assignments = {"a": load_course(ROOT)[0]}
    plugin.results, plugin.speed_results, plugin.faults = {}, {}, []
    plugin._items = []
    for name, speed in (("right", None), ("wrong", None), ("killed", None), ("running", None), ("right", object())):
        item = SimpleNamespace(stash=pytest.Stash())
        item.stash[plugin_module.PLACE] = plugin_module.Place("a", "p", name, name, speed)  # type: ignore[arg-type]
        plugin._items.append(item)
    assert not plugin.has_decided_something
    plugin.keep_what_ran_ahead()
    assert {key[2]: one.outcome for key, one in plugin.results.items()} == {"right": "passed", "wrong": "failed"}
    assert [event.result.name for event in told] == ["right", "wrong"]
    assert plugin.speed_results == {}
    assert plugin.has_decided_something


def test_what_had_no_turn_is_open_and_no_fault_of_the_grader() -> None:
    band = SimpleNamespace(points=3.0)
    group = SimpleNamespace(name="all", title="All", points=2.0, names=["early", "late", "law"])
    part = SimpleNamespace(
        name="p",
        title="P",
        groups=[group],
        cases=[],
        speed=[SimpleNamespace(name="late", bands=[band])],
        speed_points=3.0,
    )
    early = CaseResult(name="early", tries="", outcome="passed")
    plugin: Any = SimpleNamespace(
        results={("a", "p", "early"): early},
        speed_results={},
        interrupted=True,
        judge=SimpleNamespace(job=SimpleNamespace(speed=True), device_name="cpu"),
    )
    found = session._part_result(plugin, SimpleNamespace(name="a"), part)  # type: ignore[arg-type]
    assert [one.outcome for one in found.cases] == ["passed", "skipped", "skipped"]
    assert {one.message for one in found.cases} == {"", INTERRUPTED}
    assert (found.points.graded, found.points.possible) == (0, 2)
    assert [(one.outcome, one.message) for one in found.speed.cases] == [("skipped", INTERRUPTED)]
    assert (found.speed.points.graded, found.speed.points.possible) == (0, 3)
    plugin.interrupted = False
    late = session._part_result(plugin, SimpleNamespace(name="a"), part)  # type: ignore[arg-type]
    assert [one.outcome for one in (*late.cases, *late.speed.cases)] == ["passed", *["infra_error"] * 3]
