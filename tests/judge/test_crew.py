"""Who waits for workers that start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.crew import Crew


@pytest.mark.parametrize(("starts", "done"), [(True, ["baselines", "pool"]), (False, ["baselines"])])
def test_the_courses_own_are_always_waited_for(starts: bool, done: list[str]) -> None:
    found: list[str] = []
    run: Any = SimpleNamespace(job=SimpleNamespace(course=None))
    pool: Any = SimpleNamespace(device="cpu", settle=lambda: found.append("pool"))
    nobody: Any = None
    crew = Crew(run, nobody, pool)
    baselines: Any = SimpleNamespace(settle=lambda: found.append("baselines"))
    crew.baselines = baselines
    crew.settle(starts)
    assert found == done
