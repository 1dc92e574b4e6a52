"""The numbers of a race in the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.heats import measurement, work_of
from grader.problem import Cost
from grader.protocol import MATRIX
from grader.verdict.speed import Lap, Roofline, Verdict
from grader.verdict.statistics import Estimate
from grader.verdict.tally import Conditions, Round


@pytest.mark.parametrize(
    ("roofline", "work"),
    [
        (Roofline("copy", its_work=800, case_work=1000), Cost(bytes_moved=800, flops=0)),
        (Roofline("matmul", 2 * MATRIX**3, 9), Cost(bytes_moved=3 * 2 * MATRIX**2, flops=2 * MATRIX**3)),
    ],
)
def test_a_yardsticks_rates_are_its_own(roofline: Roofline, work: Cost) -> None:
    of_case = Cost(bytes_moved=1000, flops=9)
    case: Any = SimpleNamespace(problem=SimpleNamespace(cost=lambda *_: of_case), params={}, dtype=None)
    assert work_of(roofline.contender, case, roofline) == work
    assert work_of("eager", case, roofline) == of_case


def test_a_round_is_told_with_the_batches_that_were_run_again() -> None:
    lap = Lap({"submission": 1e-3, "copy": 5e-4}, 1.1e-3)
    round_ = Round(("copy", "submission"), Conditions(1980, 2619, 45), lap.times_s, 0.01, 0.0, repeats=2)
    estimate = Estimate(1e-3, 9e-4, 1.1e-3)
    verdict = Verdict(
        counted_s=(1e-3,),
        counted={"submission": estimate},
        shares={"submission": 0.5},
        speedups={},
        claimed=estimate,
        judged=estimate,
        corroborated=True,
        lift=0.0,
        reached=(),
        undecided=(),
        flags=(),
    )
    case: Any = SimpleNamespace(
        problem=SimpleNamespace(cost=lambda *_: Cost(bytes_moved=8, flops=2)),
        params={},
        dtype=None,
        speed=SimpleNamespace(roofline="copy"),
    )
    race: Any = SimpleNamespace(calls={"submission": 4}, roofline=Roofline("copy", 8, 8), rounds=[round_], laps=[lap])
    (told,) = measurement(case, race, verdict).rounds
    assert (told.repeats, told.sm_clock_mhz, told.judged_s) == (2, 1980, 1.1e-3)
