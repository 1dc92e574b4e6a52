"""Where speed is measured, no softmax passes that knows how its inputs are drawn and leaves work out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.assignment import load_course
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
from grader.judge.speed.quick_check import QuickCheck
from tests.conftest import ROOT

CPU = torch.device("cpu")
JUDGE: Any = SimpleNamespace(device_name="cpu")
Answer = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module", params=["wide", "narrow", "long"])
def case(request: pytest.FixtureRequest) -> BoundSpeedCase:
    """With its row length, and few rows."""
    sizes = {one.declared.case.name: one.declared for one in bind_speed_cases(load_course(ROOT, ["softmax"]))}
    declared = sizes[request.param]
    return replace(declared, params=declared.params.model_copy(update={"shape": (32, declared.params.shape[1])}))  # type: ignore[attr-defined]


def accepted(case: BoundSpeedCase, answer: Answer) -> list[bool]:
    check = QuickCheck(JUDGE, case, case.inputs(1, 0, CPU))
    calls = [case.inputs(2, number, CPU) for number in range(3)]
    return [check.accepts(call, {"y": answer(call.args["x"]).to(case.dtype)}) for call in calls]


def over_part(x: torch.Tensor, share: float) -> torch.Tensor:
    """With the maximum of each row, and its sum guessed from the first entries."""
    powers = torch.softmax(x.float(), -1)
    return powers * (share / powers[:, : int(share * x.shape[1])].sum(-1, keepdim=True))


def in_float32(x: torch.Tensor) -> torch.Tensor:
    powers = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def test_a_softmax_passes(case: BoundSpeedCase) -> None:
    assert accepted(case, in_float32) == [True] * 3


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.float().exp() / (x.shape[1] * math.exp(0.5)),
        lambda x: (x.float() - x.float().amax(-1, keepdim=True)).exp(),
        lambda x: x.float().exp() / x.float().exp().sum(-1, keepdim=True),
        lambda x: over_part(x, 0.5),
        lambda x: over_part(x, 0.95),
    ],
    ids=["the sum of the law", "no sum", "no maximum", "half of the sum", "nearly all of the sum"],
)
def test_a_softmax_that_leaves_work_out_does_not(case: BoundSpeedCase, answer: Answer) -> None:
    assert accepted(case, answer) == [False] * 3
