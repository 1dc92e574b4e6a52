"""pytest-benchmark's record of a benchmark run: the verdict's own times, to the last bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TIMES_S = (0.001, 0.0010000000000000003, 0.3, 1e-7)
TEST = f"""
from grader.judge.speed.plugin import Replay
import pytest

replay = Replay()

@pytest.mark.benchmark(timer=replay)
def test_one(benchmark):
    replay.load({TIMES_S!r})
    benchmark.pedantic(replay.step, rounds={len(TIMES_S)})
"""


def test_the_record_holds_the_times_that_were_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "test_one.py").write_text(TEST)
    record = tmp_path / "benchmark.json"
    arguments = ["-q", "-c", "/dev/null", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-p", "no:xdist"]
    assert pytest.main([*arguments, "--benchmark-json", str(record), str(tmp_path / "test_one.py")]) == 0
    (one,) = json.loads(record.read_text())["benchmarks"]
    assert tuple(one["stats"]["data"]) == TIMES_S
