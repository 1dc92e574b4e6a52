"""Where speed is measured, no softmax passes that knows how its inputs are drawn and leaves work out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from grader.assignment import load_course
from grader.judge.cases import bind_speed_cases
from grader.judge.speed.quick_check import QuickCheck
from grader.problem import Call
from tests.conftest import ROOT

CPU = torch.device("cpu")
Answer = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Drawn:
    """A speed case with its row length and few rows: what checks its answers, and calls of it."""

    check: QuickCheck
    calls: list[Call]
    dtype: torch.dtype

    def accepts(self, answer: Answer) -> list[bool]:
        return [self.check.accepts(call, {"y": answer(call.args["x"]).to(self.dtype)}) for call in self.calls]


@pytest.fixture(scope="module", params=["wide", "narrow", "long"])
def drawn(request: pytest.FixtureRequest) -> Drawn:
    sizes = {one.declared.case.name: one.declared for one in bind_speed_cases(load_course(ROOT, ["softmax"]))}
    declared = sizes[request.param]
    case = replace(declared, params=declared.params.model_copy(update={"shape": (32, declared.params.shape[1])}))  # type: ignore[attr-defined]
    calls = [case.inputs(2, number, CPU) for number in range(3)]
    return Drawn(QuickCheck("cuda", case, case.inputs(1, 0, CPU)), calls, case.dtype)


def over_part(x: torch.Tensor, share: float) -> torch.Tensor:
    """With the maximum of each row, and its sum guessed from the first entries."""
    powers = torch.softmax(x.float(), -1)
    return powers * (share / powers[:, : int(share * x.shape[1])].sum(-1, keepdim=True))


def in_float32(x: torch.Tensor) -> torch.Tensor:
    powers = (x.float() - x.float().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def test_a_softmax_passes(drawn: Drawn) -> None:
    assert drawn.accepts(in_float32) == [True] * 3


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
def test_a_softmax_that_leaves_work_out_does_not(drawn: Drawn, answer: Answer) -> None:
    assert drawn.accepts(answer) == [False] * 3
