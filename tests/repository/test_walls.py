"""The walls between rooms, as far as import-linter and ruff (both in pyproject.toml) cannot say them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grader
from grader.pool.pool import stage_runtime

PACKAGE = Path(grader.__file__).parent
WORKER = [path.relative_to(PACKAGE).as_posix() for path in (PACKAGE / "worker").rglob("*.py")]
PURE = sorted(path for room in ("verdict", "report", "profile") for path in (PACKAGE / room).rglob("*.py"))
# What the modules that these rooms may import have of processes, clocks and GPUs.
IMPURE = re.compile(
    r"\bos\.(?:environ\b|getenv\b|(?:system|popen|fork|kill|exec|spawn|posix_spawn|wait|times)\w*\()"
    r"|\b(?:datetime|date)\.(?:now|utcnow|today)\b|\btorch\.cuda\.\w+\(|\.(?:cuda|synchronize)\("
)


def test_a_worker_is_given_nothing_but_itself_and_the_protocol(tmp_path: Path) -> None:
    """The wall stands on disk too: what is not there cannot be imported."""
    runtime = stage_runtime(tmp_path / "runtime")
    there = {path.relative_to(runtime).as_posix() for path in runtime.rglob("*.py")}
    assert there == {"grader/__init__.py", "grader/protocol.py", *(f"grader/{file}" for file in WORKER)}


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_verdicts_reports_and_profiles_ask_no_process_no_clock_and_no_gpu(path: Path) -> None:
    assert IMPURE.findall(path.read_text(encoding="utf-8")) == []
