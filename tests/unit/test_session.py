"""How a grading session ends that cannot begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import plugin as plugin_module
from grader.judge import session
from grader.judge.plugin import JudgePlugin


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
    end = plugin_module._end(failed.value)
    assert end.outcome == "infra_error"
    line = fail.__code__.co_firstlineno + 1
    assert end.message.startswith(
        f"the grader failed: RuntimeError: no such stream, in test_session.py, line {line}, in "
    )
