"""Row softmax: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

from typing import Literal

import torch

from grader.problem import Call, Cost, Params, Size, by_slices, load_beside

eager = load_beside(__file__, "baselines.py").eager


class SoftmaxParams(Params):
    """The assignment's own keys of a case in problem.toml."""

    shape: tuple[Size, Size]
    values: Literal[
        "normal",
        "uneven-rows",
        "large",
        "constant-rows",
        "one-hot",
        "minus-inf",
        "rising",
        "falling",
        "late-start",
        "early-end",
        "negative",
        "far-negative",
    ] = "normal"
    layout: Literal["contiguous", "slice", "transposed", "far-rows"] = "contiguous"


def make_inputs(params: SoftmaxParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """x of shape (rows, columns), in the values and layout of the case."""
    rows, columns = params.shape
    x = torch.randn(rows, columns, generator=generator, device=generator.device)
    if params.values == "uneven-rows":  # no two rows have the same sum, and in each a few entries dominate
        scale = torch.rand(rows, 1, generator=generator, device=generator.device).mul_(4).add_(0.5)
        shift = torch.randn(rows, 1, generator=generator, device=generator.device).mul_(60)
        x = x.mul_(scale).add_(shift)
    elif params.values == "large":
        x = x.mul_(5e3).clamp_(-1e4, 1e4)
        x[:, 1] = x[:, 0] - 0.5  # near ties; otherwise every row would be one-hot
        x[::2] = x[::2].clamp_(max=-5e3)
    elif params.values == "constant-rows":
        x[::2] = x[::2, :1].expand(-1, columns)
    elif params.values == "one-hot":
        hot = torch.randint(columns, (rows,), generator=generator, device=generator.device)
        x[torch.arange(rows, device=x.device), hot] += 60.0
    elif params.values == "minus-inf":
        mask = torch.rand(rows, columns, generator=generator, device=generator.device) < 0.3
        mask[:, 0] = True  # the first entry too: a running maximum starts at -inf
        mask[:, -1] = False
        x = x.masked_fill_(mask, float("-inf"))
    elif params.values == "rising":  # each part of a row has a larger maximum than the parts before
        x += torch.linspace(-1e3, 1e3, columns, device=x.device)
    elif params.values == "falling":  # each part of a row has a smaller maximum than the parts before
        x += torch.linspace(1e3, -1e3, columns, device=x.device)
    elif params.values == "late-start":  # only -inf in the first blocks of a row
        x[:, : columns - columns // 8] = float("-inf")
    elif params.values == "early-end":  # only -inf in the last blocks of a row
        x[:, columns // 8 :] = float("-inf")
    elif params.values == "negative":
        x -= 200.0
    elif params.values == "far-negative":  # below any number that is taken for -inf
        x = x.mul_(1e32).sub_(2e38)  # still finite when multiplied by log2(e)
    x = x.to(dtype)
    if params.layout == "slice":
        wide = torch.full((rows, columns + 37), 3.0, dtype=dtype, device=x.device)
        x = wide[:, 17 : 17 + columns].copy_(x)
    elif params.layout == "transposed":
        x = x.t().contiguous().t()
    elif params.layout == "far-rows":
        row_stride = 2**31 // (rows - 1) + 17  # the last row starts beyond element 2^31
        far = torch.zeros(rows * row_stride, dtype=dtype, device=x.device)
        x = far.as_strided((rows, columns), (row_stride, 1)).copy_(x)
    return Call(args={"x": x})


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    return {"y": tuple(call.args["x"].shape)}


def oracle(call: Call) -> dict[str, torch.Tensor]:
    return {"y": by_slices(lambda x: torch.softmax(x.double(), dim=-1), call.args["x"], out_dtype=torch.float64)}


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return {"y": eager(call.args["x"])}


def cost(params: SoftmaxParams, dtype: torch.dtype) -> Cost:
    """Each element is read once and written once, with about five operations."""
    elements = params.shape[0] * params.shape[1]
    return Cost(bytes_moved=2 * elements * dtype.itemsize, flops=5 * elements)
