"""GeLU, tanh form: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from grader.problem import Call, Size, load_beside

gelu = load_beside(__file__, "../_gelu/problem.py")
eager = load_beside(__file__, "baselines.py").eager
outputs, oracle, cost, pieces = gelu.outputs, gelu.oracle, gelu.cost, gelu.pieces


class GeluParams(gelu.GeluParams):
    """The assignment's own keys of a case in problem.toml."""

    output_start: Size = 0  # distance of y from an aligned address, in floats


def make_inputs(params: Any, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """The inputs of GeLU, with the start of y."""
    return replace(gelu.make_inputs(params, dtype, generator), starts={"y": params.output_start})


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return {"y": eager(call.args["x"])}
