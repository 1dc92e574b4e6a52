"""Who waits for workers that start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.state import Judge


@pytest.mark.parametrize(
    ("starts", "done"), [(True, ["watched", "baselines", "pool"]), (False, ["watched", "baselines"])]
)
def test_the_courses_own_are_always_waited_for(starts: bool, done: list[str]) -> None:
    found: list[str] = []
    judge: Any = Judge.__new__(Judge)
    judge._pool = SimpleNamespace(end_watched=lambda: found.append("watched"), settle=lambda: found.append("pool"))
    judge.baselines = SimpleNamespace(settle=lambda: found.append("baselines"))
    judge.settle(starts)
    assert found == done
