"""The test of every speed case: a benchmark run, whose times pytest-benchmark replays."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from grader.judge.cases import SpeedSizes
from grader.judge.speed.plugin import SpeedTests


def test_speed(speed: SpeedTests, speed_case: SpeedSizes, benchmark: BenchmarkFixture) -> None:
    """Time the submission against its baselines in interleaved rounds."""
    if (verdict := speed.measure(speed_case)) is None:
        return
    benchmark.group = speed_case.declared.id
    benchmark.extra_info.update(
        corroborated=verdict.corroborated,
        median_s={name: interval.median for name, interval in verdict.counted.items()},
        speedup={name: [one.median, one.low, one.high] for name, one in verdict.speedups.items()},
        roofline_share=dict(verdict.shares),
        flags=list(verdict.flags),
    )
    speed.replay.load(verdict.counted_s)
    benchmark.pedantic(speed.replay.step, rounds=len(verdict.counted_s))
