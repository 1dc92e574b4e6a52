"""The test of every speed case: a race, whose times pytest-benchmark replays."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from grader.contender.contender import Contender
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.heats import band_results, run_heat, run_second_heat, stopped
from grader.judge.hoarding import Hoarding
from grader.judge.plugin import Replay
from grader.judge.race import FarTooSlow
from grader.judge.track import Track


def test_speed(
    track: Track,
    hoarding: Hoarding,
    speed_case: BoundSpeedCase,
    contender: Contender,
    evidence: Evidence,
    replay: Replay,
    benchmark: BenchmarkFixture,
) -> None:
    """Time the submission against its baselines in interleaved rounds."""
    assignment = speed_case.assignment
    try:
        with hoarding.is_a_fault(assignment):
            heat = run_heat(track, speed_case, contender, evidence)
            if heat.verdict.is_doubted and track.run.job.effort != "quick":
                contender.kill()
                heat = run_second_heat(track, speed_case, heat, track.crew.worker(assignment), evidence)
    except FarTooSlow as slow:
        evidence.bands, evidence.words = stopped(speed_case, slow.call_s)
        return
    verdict, evidence.measured = heat.verdict, heat.measured
    evidence.bands = band_results(speed_case, verdict)
    benchmark.group = speed_case.id
    benchmark.extra_info.update(
        corroborated=verdict.corroborated,
        median_s={name: estimate.median for name, estimate in verdict.counted.items()},
        speedup={name: [one.median, one.low, one.high] for name, one in verdict.speedups.items()},
        roofline_share=dict(verdict.shares),
        flags=list(verdict.flags),
    )
    replay.load(verdict.counted_s)
    benchmark.pedantic(replay.step, rounds=len(verdict.counted_s))
