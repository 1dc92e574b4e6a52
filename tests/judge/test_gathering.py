"""Cases without a result: open where the grading was interrupted, the grader's fault where it was not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge.gathering import Gathering
from grader.report.model import INTERRUPTED, CaseResult, Outcome, PartResult
from grader.verdict.causes import MAX_MAPS
from tests.verdict.test_causes import TELLING


def test_a_case_without_a_turn_is_open_and_no_fault_of_the_grader() -> None:
    group = SimpleNamespace(name="all", title="All", points=2.0, names=["early", "late", "law"])
    part: Any = SimpleNamespace(
        name="p",
        title="P",
        groups=[group],
        cases=[],
        speed=[SimpleNamespace(name="late", bands=[SimpleNamespace(points=3.0)])],
        speed_points=3.0,
    )
    assignment: Any = SimpleNamespace(
        name="a", spec=SimpleNamespace(title="A", file="a.py", parts=[part], language="triton")
    )
    early = CaseResult(name="early", tries="", outcome="passed")
    results: Any = SimpleNamespace(cases={("a", "p", "early"): early}, speed={}, kinds={})
    nobody: Any = None
    run: Any = SimpleNamespace(request=SimpleNamespace(speed=True), device_name="cpu")
    compilation: Any = SimpleNamespace(kernels={})
    found = Gathering(run, nobody, results, compilation, interrupted=True).part(assignment, part)
    assert [one.outcome for one in found.cases] == ["passed", "skipped", "skipped"]
    assert {one.message for one in found.cases} == {"", INTERRUPTED}
    assert (found.points.graded, found.points.possible) == (0, 2)
    assert [(one.outcome, one.message) for one in found.speed.cases] == [("skipped", INTERRUPTED)]
    assert (found.speed.points.graded, found.speed.points.possible) == (0, 3)
    late = Gathering(run, nobody, results, compilation, interrupted=False).part(assignment, part)
    assert [one.outcome for one in (*late.cases, *late.speed.cases)] == ["passed", *["infra_error"] * 3]


def gathered(cases: list[CaseResult], kinds: dict[str, set[str]]) -> PartResult:
    """The part p of these cases."""
    group = SimpleNamespace(name="all", title="All", points=2.0, names=[case.name for case in cases])
    part: Any = SimpleNamespace(name="p", title="P", groups=[group], cases=[], speed=[], speed_points=0.0)
    assignment: Any = SimpleNamespace(name="a", spec=SimpleNamespace(parts=[part]))
    results = SimpleNamespace(
        cases={("a", "p", case.name): case for case in reversed(cases)}, speed={}, kinds={("a", "p"): kinds}
    )
    nobody: Any = None
    run: Any = SimpleNamespace(request=SimpleNamespace(speed=False), device_name="cpu")
    return Gathering(run, nobody, results, nobody, False).part(assignment, part)  # type: ignore[arg-type]


def test_a_part_keeps_the_maps_of_its_first_causes() -> None:
    names = [f"{cause}{number}" for number in range(2) for cause in "abcde"]
    cases = [
        CaseResult(name=name, tries="", outcome="failed", message=f"x: consistent with {name[0]}", map=TELLING)
        for name in names
    ]
    found = gathered(cases, {})
    assert [case.name for case in found.cases if case.map is not None] == [f"{cause}0" for cause in "abcde"[:MAX_MAPS]]


@pytest.mark.parametrize(("outcome", "is_told"), [("passed", True), ("failed", False)])
def test_a_cause_on_condition_is_told_if_the_condition_holds(outcome: Outcome, is_told: bool) -> None:
    line = "with many elements, and the smaller cases pass: consistent with an int"
    cases = [
        CaseResult(name="large", tries="", outcome="failed", message="wrong", diagnosis=(line,)),
        CaseResult(name="small", tries="", outcome=outcome, message="so"),
    ]
    found = gathered(cases, {"large": {"the smaller cases"}, "small": set()})
    assert next(found.cases).diagnosis == ((line,) if is_told else ())
