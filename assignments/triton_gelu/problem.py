"""GeLU, tanh form: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

import torch

from grader.problem import Call, load_beside

gelu = load_beside(__file__, "../_gelu/problem.py")
eager = load_beside(__file__, "baselines.py").eager
GeluParams, make_inputs, outputs = gelu.GeluParams, gelu.make_inputs, gelu.outputs
oracle, cost, pieces = gelu.oracle, gelu.cost, gelu.pieces


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return {"y": eager(call.args["x"])}
