"""What becomes of a case's error, and of a case without a result, in the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.judge.cases import ReportPlace
from grader.judge.evidence import Evidence, described, with_input
from grader.judge.results import MISSING, Results
from grader.pool.fault import Fault
from grader.problem import Call
from grader.protocol import SAMPLE_CUT
from grader.report.model import INTERRUPTED, CaseResult, PartResult
from grader.verdict.causes import MAX_MAPS
from tests.verdict.test_causes import TELLING

ASSIGNMENT: Any = SimpleNamespace(name="a", spec=SimpleNamespace(entry="double", contract=""))
PART: Any = SimpleNamespace(name="p", cases=[])


def place(name: str) -> ReportPlace:
    return ReportPlace(ASSIGNMENT, PART, name, "tries")


class Kept:
    """Results of one assignment, `a`, with stand-ins beside them; `told` are the events."""

    def __init__(self, found: Fault | None = None, stop_early: bool = False) -> None:
        self.told: list[Any] = []
        self.excused: dict[tuple[str, str], Fault] = {}
        run: Any = SimpleNamespace(emit=self.told.append, request=SimpleNamespace(stop_early=stop_early))
        files: Any = SimpleNamespace(excused=self.excused)
        canary: Any = SimpleNamespace(
            look_into=lambda _assignment, _fault: found, look_back=lambda _assignment, _: found
        )
        self.compilation: Any = SimpleNamespace(kernels={"a": ["compiled by broken tools"]})
        run.assignments = [ASSIGNMENT]
        self.results = Results(run, files, canary, self.compilation)

    def keep(self, error: BaseException | None, name: str = "one", is_check: bool = False) -> tuple[str, str]:
        self.results.keep(place(name), error, Evidence(), is_check)
        found = self.results.cases["a", "p", name]
        return found.outcome, found.message


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (None, "passed", ""),
        (Fault.wrong("it is wrong"), "failed", "it is wrong"),
        (Fault("crashed", "SIGSEGV"), "crashed", "SIGSEGV"),
        (Fault("skipped", "needs a GPU"), "skipped", "needs a GPU"),
        (pytest.skip.Exception("not here"), "skipped", "not here"),
        (Fault.of_machine("no reference"), "infra_error", "no reference"),
        (MemoryError(), "infra_error", "MemoryError"),
    ],
)
def test_each_error_has_its_outcome(error: BaseException | None, outcome: str, message: str) -> None:
    kept = Kept()
    assert kept.keep(error) == (outcome, message)
    assert [event.result.outcome for event in kept.told] == [outcome]
    assert kept.results.has_decided_something == (outcome not in ("skipped", "infra_error"))


def test_the_map_of_a_wrong_output_is_kept_unless_the_machine_was_at_fault() -> None:
    kept = Kept()
    kept.keep(Fault.wrong("y is wrong", (), TELLING))
    assert kept.results.cases["a", "p", "one"].map == kept.told[0].result.map == TELLING
    faulty = Kept(Fault.of_machine("the tools are broken"))
    faulty.keep(Fault.wrong("y is wrong", (), TELLING))
    faulty.results.look_back()
    assert faulty.results.cases["a", "p", "one"].map is None


@pytest.mark.parametrize(
    "error",
    [
        Fault.wrong("it is wrong", ("rows 3–5",)),
        Fault("crashed", "SIGSEGV"),
        Fault("timed_out", "4 s"),
    ],
)
def test_what_a_wrong_case_was_given_is_told(error: BaseException) -> None:
    kept, given = Kept(), described(Call({"x": torch.zeros(3, 7, dtype=torch.float16)}))
    kept.results.keep(place("64x7"), error, Evidence(given=given))
    assert kept.results.cases["a", "p", "64x7"].diagnosis[-1] == "the input of 64x7: x of shape (3, 7), float16"


@pytest.mark.parametrize("error", [None, Fault("skipped", "no room"), Fault("forbidden", "no")])
def test_nothing_of_the_input_is_told_where_it_does_not_matter(error: BaseException | None) -> None:
    kept = Kept()
    kept.results.keep(place("one"), error, Evidence(given=("x of shape (3,)", "float32")))
    assert kept.results.cases["a", "p", "one"].diagnosis == ()


def test_an_input_is_described_once() -> None:
    q, k = torch.zeros(1, 5, 16), torch.zeros(1, 9, 16)
    given = described(Call({"q": q, "k": k, "v": k}, {"is_causal": True}))
    assert given == ("q of shape (1, 5, 16)", "k and v of shape (1, 9, 16)", "float32", "is_causal True")
    assert described(Call({"x": torch.zeros(1000)}), windows=3) == (f"x of {3000 - SAMPLE_CUT:,} elements", "float32")
    asked = Call({"q": q, "k": k, "v": k}, {"is_causal": True}, q, by_name=True, wanted=("q", "v"), backwards=2)
    assert described(asked)[-3:] == ("is_causal=True", "gradients of q and v only", "2 backward passes")
    details = with_input(("rows 3–5",), "wrong", given, "n-5")
    assert details[1:] == (
        "the input of n-5: q of shape (1, 5, 16), k and v of shape (1, 9, 16), float32, is_causal True",
    )
    assert with_input(details, "wrong", given, "n-5") == details
    has_it = "returned None; y must be a torch.Tensor of shape (3, 7) and dtype float32"
    assert with_input((), has_it, ("x of shape (3, 7)", "float32"), "n-5") == ()


def test_a_failure_of_the_grader_is_told_with_its_place() -> None:
    def fail() -> None:
        raise RuntimeError("no such stream")

    with pytest.raises(RuntimeError) as failed:
        fail()
    line = fail.__code__.co_firstlineno + 1
    outcome, message = Kept().keep(failed.value)
    assert outcome == "infra_error"
    assert message.startswith(f"the grader failed: RuntimeError: no such stream, in test_results.py, line {line}, in ")


def test_an_assertion_of_a_check_is_about_the_submission_and_of_a_case_about_the_grader() -> None:
    assert Kept().keep(AssertionError("rows do not sum to 1"), is_check=True) == ("failed", "rows do not sum to 1")
    assert Kept().keep(AssertionError("rows do not sum to 1"))[0] == "infra_error"


def test_only_the_first_that_is_wrong_stops_an_assignment() -> None:
    kept = Kept(stop_early=True)
    for name, error in (
        ("a", None),
        ("b", pytest.skip.Exception("no")),
        ("c", Fault.wrong("x")),
        ("d", Fault.wrong("y")),
    ):
        kept.keep(error, name)
    assert kept.results.stopped == {"a": "c"}


def test_a_fault_that_is_the_machines_is_told_so_and_its_tools_are_not_believed() -> None:
    kept = Kept(Fault.of_machine("the staff's own file fails here too"))
    assert kept.keep(Fault("build_failed", "ld")) == ("infra_error", "the staff's own file fails here too")
    assert kept.compilation.kernels == {}
    assert kept.keep(Fault.wrong("wrong"), "two") == ("failed", "wrong"), "an answer was there to look at"
    assert kept.keep(None, "three") == ("passed", "")
    kept.results.look_back()
    assert [one.outcome for one in kept.results.cases.values()] == ["infra_error", "infra_error", "passed"]


def test_a_case_that_passed_before_its_part_needed_a_gpu_earns_nothing() -> None:
    kept = Kept()
    kept.keep(None, "passed before")
    kept.keep(Fault("skipped", "needs a GPU: softmax.py, line 2", whose="submission"), "asks")
    kept.results.look_back()
    assert {one.outcome for one in kept.results.cases.values()} == {"skipped"}


# The report ---------------------------------------------------------------------------------------------------------------


def test_a_case_without_a_turn_is_open_and_no_fault_of_the_grader() -> None:
    group = SimpleNamespace(name="all", title="All", points=2.0, names=["early", "late", "law"], pairs=False)
    part: Any = SimpleNamespace(
        name="p",
        title="P",
        groups=[group],
        cases=[],
        factors=[],
        speed=[SimpleNamespace(name="late", bands=[SimpleNamespace(points=3.0)])],
        speed_points=3.0,
    )
    assignment: Any = SimpleNamespace(
        name="a", spec=SimpleNamespace(title="A", file="a.py", parts=[part], language="triton")
    )
    early = CaseResult(name="early", tries="", outcome="passed")
    nobody: Any = None
    run: Any = SimpleNamespace(request=SimpleNamespace(speed=True), device_name="cpu")
    results = Results(run, nobody, nobody, nobody)
    results.cases["a", "p", "early"] = early
    found = results.part(assignment, part, MISSING[True])
    assert [one.outcome for one in found.cases] == ["passed", "skipped", "skipped"]
    assert {one.message for one in found.cases} == {"", INTERRUPTED}
    assert (found.points.graded, found.points.possible) == (0, 2)
    assert [(one.outcome, one.message) for one in found.speed.cases] == [("skipped", INTERRUPTED)]
    assert (found.speed.points.graded, found.speed.points.possible) == (0, 3)
    late = results.part(assignment, part, MISSING[False])
    assert [one.outcome for one in (*late.cases, *late.speed.cases)] == ["passed", *["infra_error"] * 3]


def part_of(cases: list[CaseResult]) -> PartResult:
    """The part p of these cases."""
    group = SimpleNamespace(name="all", title="All", points=2.0, names=[case.name for case in cases], pairs=False)
    part: Any = SimpleNamespace(name="p", title="P", groups=[group], cases=[], factors=[], speed=[], speed_points=0.0)
    assignment: Any = SimpleNamespace(name="a", spec=SimpleNamespace(parts=[part]))
    nobody: Any = None
    run: Any = SimpleNamespace(request=SimpleNamespace(speed=False), device_name="cpu")
    results = Results(run, nobody, nobody, nobody)
    results.cases |= {("a", "p", case.name): case for case in reversed(cases)}
    return results.part(assignment, part, MISSING[False])


def test_a_part_keeps_the_maps_of_its_first_causes() -> None:
    names = [f"{cause}{number}" for number in range(2) for cause in "abcde"]
    cases = [
        CaseResult(name=name, tries="", outcome="failed", message=f"x: consistent with {name[0]}", map=TELLING)
        for name in names
    ]
    found = part_of(cases)
    assert [case.name for case in found.cases if case.map is not None] == [f"{cause}0" for cause in "abcde"[:MAX_MAPS]]
