"""A claim that was not believed gets a second race, and only one that stands there is worth more than the first verdict."""

from __future__ import annotations

from typing import Any

import pytest

from grader.assignment import Band
from grader.judge import heats
from grader.judge.heats import Heat, run_second_heat
from grader.judge.race import FarTooSlow
from grader.report.model import Interval, SpeedMeasurement
from grader.verdict.speed import Lap, Roofline, judge_laps

MS = 1e-3
ROOFLINE = Roofline("copy", 1.0, 1.0)
ONE = Interval(median=MS, low=MS, high=MS)
MEASURED = SpeedMeasurement(
    roofline="copy", contenders=(), claimed_s=ONE, judged_s=ONE, corroborated=True, flags=("as it was",), rounds=()
)


def heat(judged_ms: float) -> Heat:
    """A race of a submission that says 1 ms; the baseline takes 2."""
    laps = [Lap({"submission": MS, "eager": 2 * MS, "copy": 0.5 * MS}, judged_ms * MS)] * 5
    verdict = judge_laps(laps, [Band(vs="eager", speedup=1.9, points=1)], ROOFLINE, 0.05)
    return Heat(verdict, MEASURED.model_copy(update={"corroborated": verdict.corroborated, "flags": verdict.flags}))


def second(monkeypatch: pytest.MonkeyPatch, first: Heat, then: Heat | FarTooSlow) -> Heat:
    def run_heat(*_: object) -> Heat:
        if isinstance(then, FarTooSlow):
            raise then
        return then

    monkeypatch.setattr(heats, "run_heat", run_heat)
    nobody: Any = None
    return run_second_heat(nobody, nobody, first, nobody, nobody)


@pytest.mark.parametrize(("judged_ms", "doubted"), [(1.0, False), (1.05, False), (1.06, True), (1.5, True)])
def test_a_claim_is_doubted_where_more_than_it_counts(judged_ms: float, doubted: bool) -> None:
    assert heat(judged_ms).verdict.is_doubted is doubted


def test_who_is_believed_in_a_second_race_has_what_that_found(monkeypatch: pytest.MonkeyPatch) -> None:
    first, then = heat(1.15), heat(1.01)
    found = second(monkeypatch, first, then)
    assert found.verdict.reached == (True,)
    assert found.verdict.speedups == then.verdict.speedups
    assert found.verdict.flags == found.measured.flags
    assert found.verdict.flags[-1] == (
        "raced twice: in the first race the worker said 1 ms a call, by the judge's clock it was 1.15 ms"
    )


@pytest.mark.parametrize("judged_ms", [1.15, 3.0])
def test_who_is_not_keeps_the_first_verdict_and_is_told_of_the_second(
    monkeypatch: pytest.MonkeyPatch, judged_ms: float
) -> None:
    first = heat(1.15)
    found = second(monkeypatch, first, heat(judged_ms))
    assert found.verdict.reached == (False,)
    assert found.verdict.counted_s == first.verdict.counted_s
    assert found.verdict.flags == found.measured.flags
    assert found.verdict.flags == (
        *first.verdict.flags,
        f"raced twice: in the second race the worker said 1 ms a call, by the judge's clock it was {judged_ms:g} ms",
    )


def test_who_is_stopped_in_the_second_race_keeps_the_first_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    first = heat(1.15)
    assert second(monkeypatch, first, FarTooSlow(1.0)) == first


def test_a_false_claim_is_as_far_off_in_both_and_counts_as_the_judge_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = second(monkeypatch, heat(3.0), heat(2.9))
    assert found.verdict.counted["submission"].median == pytest.approx(2.9 * MS)
    assert [flag.partition(":")[0] for flag in found.verdict.flags] == ["not corroborated", "raced twice"]
