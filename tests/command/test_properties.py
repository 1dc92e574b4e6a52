"""Properties on drawn inputs, and the same input again: what breaks them is found, told by its smallest example, and nothing else is."""

from __future__ import annotations

import pytest

from tests.conftest import PROBLEM, Course, Ran, Running, StartRun, problem_toml
from tests.support.warm_judge import judge

pytestmark = [pytest.mark.grading, pytest.mark.timeout(600)]
PROPERTIES = '''
from hypothesis import strategies as st

from grader.judge.properties import Properties, Trial
from grader.problem import Call


def test_it_is_odd(properties: Properties) -> None:
    """f(-x) = -f(x)"""

    def law(trial: Trial, factor: int) -> None:
        x = trial.inputs.args["x"] * factor
        there, back = trial.ask(Call({"x": x}))["y"], trial.ask(Call({"x": -x}))["y"]
        trial.agree({"y": back}, {"y": -there}, "f(-x) is not -f(x)")

    properties.hold(law, n=st.integers(1, 200), factor=st.sampled_from([1, 2]))
'''
REPEATED = """
[[part.group]]
name = "again"
title = "Again"
points = 1
cases = [{ name = "again", tries = "again", n = 50, repeats = 4 }]
"""
CHECKED = """
[[part.group]]
name = "properties"
title = "Properties"
points = 1
checks = ["test_it_is_odd"]
"""
# assignment: the submission's function
SUBMISSIONS = {
    "right": "print('n', x.numel(), float(x[0]))\n    return x * 2",
    "long": "return x * 2 if x.numel() < 37 else (x * 2).abs()",
    "even": "return x * 2 if x.numel() == 10 else x * 2.5",
    "ends": "if x.numel() != 10: os._exit(3)\n    return x * 2",
    "hangs": "if x.numel() != 10: time.sleep(60)\n    return x * 2",
    "misses": "return x * 2 if x.numel() == 10 else None",
    "varies": "y = x * 2\n    y[3] *= 1 + COUNT.pop() % 2 * 2e-7\n    return y",
    "allowed": "y = x * 2\n    y[3] *= 1 + COUNT.pop() % 2 * 2e-7\n    return y",
    "too_much": "y = x * 2\n    y[3] += (COUNT.pop() == 97) * 1.0\n    return y",
}
PARTS = {"varies": REPEATED, "allowed": REPEATED, "too_much": REPEATED}
HEAD = "import os, time\nCOUNT = list(range(100))\n\ndef double(x):\n    "


def add(course: Course, name: str) -> None:
    extra = PARTS.get(name, CHECKED)
    toml = problem_toml(f"{name}.py", ["plain"], limit_s=4, extra=extra)
    if name in ("allowed", "too_much"):
        toml = toml.replace("[tolerance]", '[tolerance]\nmay_vary = ["y"]')
    course.add(name, toml=toml, problem=PROBLEM)
    if extra == CHECKED:
        (course.folder / "assignments" / name / "test_properties.py").write_text(PROPERTIES)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("properties")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    for name, body in SUBMISSIONS.items():
        add(course, name)
        (submission / f"{name}.py").write_text(f"{HEAD}{body}\n")
    return Running(folder, [str(submission), "--course", str(course.folder), "--device", "cpu"]).finish()


def told(ran: Ran, name: str, case: str = "test_it_is_odd") -> str:
    result = ran.case(name, case)
    return "\n".join([result.message, *result.diagnosis])


def outcome(ran: Ran, name: str, case: str = "test_it_is_odd") -> str:
    assert ran.case(name, "plain").outcome == "passed"
    return ran.case(name, case).outcome


def test_a_right_answer_has_the_property(ran: Ran) -> None:
    assert ran.code == 0, ran.errors
    assert ran.left == []
    assert outcome(ran, "right") == "passed"


def test_the_smallest_input_that_breaks_it_is_told(ran: Ran) -> None:
    assert outcome(ran, "long") == "failed"
    words = told(ran, "long")
    assert words.startswith("f(-x) is not -f(x), by up to ")
    assert "is the first wrong element" in words
    assert words.endswith("the smallest input found: x of shape (37,), float32; n 37, factor 1")


def test_an_answer_is_wrong_though_it_has_the_property(ran: Ran) -> None:
    assert outcome(ran, "even") == "failed"
    words = told(ran, "even")
    assert words.startswith("y[0] is the first wrong element")
    assert words.endswith("the smallest input found: x of shape (1,), float32; n 1, factor 1")


@pytest.mark.parametrize(
    ("name", "end", "why"),
    [("ends", "crashed", "exit code 3"), ("hangs", "timed_out", "no answer within 4 s"), ("misses", "failed", "returned None")],
)  # fmt: skip
def test_no_answer_is_told_with_the_input(ran: Ran, name: str, end: str, why: str) -> None:
    assert outcome(ran, name) == end
    assert why in told(ran, name)
    label = "the input: x of shape (" if end != "failed" else "the smallest input found: x of shape (1,), float32; n 1,"
    assert label in told(ran, name)


def test_other_bits_for_the_same_input_fail(ran: Ran) -> None:
    assert outcome(ran, "varies", "again") == "failed"
    assert "1 of 50 elements of y differ between two runs on the same inputs" in told(ran, "varies", "again")


def test_what_may_vary_may_within_its_budget(ran: Ran) -> None:
    assert outcome(ran, "allowed", "again") == "passed"
    assert "y differed in the last digits between calls on the same inputs" in told(ran, "allowed", "again")
    assert "✓ again: y differed in the last digits" in ran.output
    assert outcome(ran, "too_much", "again") == "failed"
    assert "y[3] is the first wrong element" in told(ran, "too_much", "again")


def test_the_seed_draws_the_same_inputs_again(ran: Ran, course: Course, start_run: StartRun) -> None:
    """Beside an earlier run of all, and a judge with a seed of its own."""
    assert ran.report is not None
    add(course, "right")
    submission = course.folder / "submission"
    submission.mkdir()
    (submission / "right.py").write_text(f"{HEAD}{SUBMISSIONS['right']}\n")
    options = ("--course", course.folder, "--device", "cpu", "--seed", ran.report.seed)
    again = start_run(submission, *options).finish().report
    assert again is not None
    earlier, replayed, other = (
        next(one.log.text for one in report.assignments if one.name == "right")
        for report in (ran.report, again, judge(submission, course.folder, "right", "cpu"))
    )
    assert earlier == replayed != other
    assert len(set(earlier.splitlines())) >= 4
