"""The quick look at timed outputs: it may ask the oracle too often, and never too seldom."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.assignment import load_course
from grader.judge.cases import BoundCase, bind_cases
from grader.judge.comparison import Scale
from grader.judge.speed.quick_check import QuickCheck
from grader.pool.fault import Fault
from grader.problem import Call

CASES = {case.id: case for case in bind_cases(load_course(Path(__file__).parents[2]), "cpu")}
CPU = torch.device("cpu")
JUDGE: Any = SimpleNamespace(device_name="cpu")
# One of each kind of scale, in wide and in narrow types.
KINDS = [
    "cuda_gelu-gelu-n-1025",
    "triton_gelu-gelu-float16",
    "softmax-softmax-127x781",
    "softmax-softmax-float16",
    "flash_attention-forward-n-100",
    "flash_attention-forward-float16",
    "flash_attention-backward-n-100",
    "flash_attention-backward-float16",
]


def check_and_call(name: str, seed: int = 1) -> tuple[QuickCheck, BoundCase, Call]:
    """A check made from one call, and another call to use it on."""
    case = CASES[name]
    return QuickCheck(JUDGE, case, case.inputs(seed, 0, CPU)), case, case.inputs(seed + 100, 0, CPU)


def changed(case: BoundCase, **functions: Any) -> BoundCase:
    """The case with another `oracle` or `baseline`."""
    both = {name: getattr(case.problem, name) for name in ("oracle", "baseline", "outputs")} | functions
    return replace(case, problem=SimpleNamespace(**both))  # type: ignore[arg-type]


def no_oracle(_call: Call) -> dict[str, torch.Tensor]:
    raise AssertionError("the oracle was asked")


@pytest.mark.parametrize("name", KINDS)
def test_right_answers_are_seen_to_be_without_the_oracle(name: str) -> None:
    """Attention's by a fused one, without the baseline too. An answer for another input is not right."""
    check, case, call = check_and_call(name)
    fused = {"baseline": no_oracle} if name.startswith("flash") else {}
    check.case = changed(case, oracle=no_oracle, **fused)
    assert not check.is_near(call, case.problem.baseline(case.inputs(7, 0, CPU)))
    assert check.accepts(call, case.problem.baseline(call))
    nearly = {
        key: (tensor.double() * (1 + 1e-7)).to(tensor.dtype) for key, tensor in case.problem.baseline(call).items()
    }
    assert check.accepts(call, nearly)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [0.1, 0.5, 0.9, 0.99, 1.01, 1.5, 4.0])
@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_near_is_right(name: str, factor: float, seed: int) -> None:
    """Errors go the way that PyTorch's go, so that they add up: `factor` budgets from PyTorch in one element of each output."""
    check, case, call = check_and_call(name, seed)
    exact, baseline = Scale(case, call), check.stand_in(call)
    got = {}
    for key, expected in exact.expected.items():
        kind = case.assignment.spec.tolerance.scale[key]
        error = (baseline[key].double() - expected).flatten()
        place = int(error.abs().argmax())
        scale = exact.scales[key]
        size = expected.abs().clamp(min=float(scale)) if kind == "element" else scale.expand(expected.shape)
        moved = baseline[key].double().flatten()
        moved[place] += torch.sign(error[place]) * factor * check.budgets[key].worst * size.flatten()[place]
        got[key] = moved.view(expected.shape).to(baseline[key].dtype)
    right = all(errors.within(check.budgets[key]) for key, errors in exact.measure(got).items())
    near = check.is_near(call, got)
    assert right or not near
    assert check.accepts(call, got) == right
    if factor <= 0.1:
        assert near


@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_where_pytorch_has_no_number_the_oracle_is_asked(wrong: float) -> None:
    check, case, call = check_and_call("softmax-softmax-127x781")
    spoilt = {"y": case.problem.baseline(call)["y"].clone()}
    spoilt["y"][3, 5] = wrong
    check.stand_in = lambda _call: spoilt
    assert not check.is_near(call, spoilt)
    assert not check.accepts(call, spoilt)


def test_a_yardstick_that_is_not_finite_is_none() -> None:
    case = CASES["softmax-softmax-127x781"]
    call = case.inputs(1, 0, CPU)
    spoilt = {"y": torch.full_like(case.problem.baseline(call)["y"], float("nan"))}
    check = QuickCheck(JUDGE, changed(case, baseline=lambda _call: spoilt), call)
    check.case = case
    assert not check.is_near(call, case.problem.baseline(call))
    assert check.accepts(call, {"y": case.problem.oracle(call)["y"].float()})


@pytest.mark.parametrize("factor", [1.5, 0.7, 1.0001])
def test_a_stand_in_that_is_wrong_passes_nobody(factor: float) -> None:
    """Its own errors are subtracted from the budget: nothing of it is left, and the oracle decides."""
    case = CASES["softmax-softmax-127x781"]
    call = case.inputs(1, 0, CPU)
    wrong = {"y": case.problem.baseline(call)["y"] * factor}
    check = QuickCheck(JUDGE, changed(case, stand_in=lambda _call: wrong), call)
    check.case = case
    assert not check.accepts(call, wrong)
    assert check.accepts(call, case.problem.baseline(call))


@pytest.mark.parametrize(
    ("stand_in", "says"),
    [
        (lambda _call: 1 / 0, "stand_in in .*problem.py: ZeroDivisionError"),
        (lambda _call: None, "must return a dict of y"),
        (lambda call: {"o": call.args["x"]}, "must return a dict of y"),
        (lambda call: {"y": call.args["x"], "z": call.args["x"]}, "must return a dict of y"),
        (
            lambda call: {"y": call.args["x"][None]},
            r"y must be a tensor of floating-point numbers and of shape \(31, 781\)",
        ),
        (lambda call: {"y": call.args["x"].int()}, "y must be a tensor of floating-point numbers"),
        (lambda _call: {"y": 3.0}, "y must be a tensor"),
    ],
)
def test_a_stand_in_that_breaks_its_contract_is_the_courses_fault(stand_in: Any, says: str) -> None:
    case = CASES["softmax-softmax-127x781"]
    with pytest.raises(Fault, match=says):
        QuickCheck(JUDGE, changed(case, stand_in=stand_in), case.inputs(1, 0, CPU))
