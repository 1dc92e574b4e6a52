"""The check that every speed case of problem.toml gets: a benchmark by pytest-benchmark, on the judge's record of device time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grader.contender.contender import Contender
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.heats import run_heat, run_second_heat
from grader.judge.measurement import band_results, stopped
from grader.judge.memory import hoarding_is_a_fault
from grader.judge.race import Race
from grader.judge.state import Judge

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture


def test_speed(
    judge: Judge, speed_case: BoundSpeedCase, contender: Contender, evidence: Evidence, benchmark: BenchmarkFixture
) -> None:
    """How many times as fast as its baselines, in interleaved rounds; more of them while a band is in doubt."""
    assignment = speed_case.assignment

    def first_rounds(race: Race) -> None:
        benchmark.pedantic(
            race.run_submission, setup=race.open_round, teardown=race.close_round, rounds=race.first_rounds
        )

    with hoarding_is_a_fault(judge, assignment):
        heat = run_heat(judge, speed_case, contender, evidence, first_rounds)
        if heat.is_doubted and judge.job.effort != "quick":
            contender.kill()
            heat = run_second_heat(judge, speed_case, heat, judge.contender(assignment), evidence)
    if heat.stopped_after_s is not None:
        evidence.bands, evidence.words = stopped(speed_case, heat.stopped_after_s)
        return
    verdict, evidence.measured = heat.verdict, heat.measured
    assert verdict is not None
    evidence.bands = band_results(speed_case, verdict)
    assert benchmark.stats is not None
    benchmark.stats.stats.data[:] = verdict.counted_s  # those of further rounds too, and by the clock that counts
    benchmark.group = speed_case.id
    benchmark.extra_info.update(
        gpu=judge.gpu_name,
        corroborated=verdict.corroborated,
        median_s={name: estimate.median for name, estimate in verdict.counted.items()},
        speedup={name: [one.median, one.low, one.high] for name, one in verdict.speedups.items()},
        roofline_share=dict(verdict.shares),
        flags=list(verdict.flags),
    )
