"""The sum of each row: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

import torch

from grader.problem import Call, Cost, Params, Size


class RowSumParams(Params):
    shape: tuple[Size, Size]


def make_inputs(params: RowSumParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    x = torch.rand(params.shape, generator=generator, device=generator.device, dtype=dtype)
    return Call(args={"x": x + 2})


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    return {"y": (len(call.args["x"]),)}


def oracle(call: Call) -> dict[str, torch.Tensor]:
    return {"y": call.args["x"].double().sum(-1)}


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return {"y": call.args["x"].sum(-1)}


def cost(params: RowSumParams, dtype: torch.dtype) -> Cost:
    rows, columns = params.shape
    return Cost(bytes_moved=(rows * columns + rows) * dtype.itemsize, flops=rows * columns)
