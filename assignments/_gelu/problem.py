"""GeLU, tanh form, in any language: inputs, float64 oracle, bytes and FLOPs of a case."""

from __future__ import annotations

import math
from typing import Literal

import torch

from grader.problem import Call, Cost, Params, Size, by_slices

# Magnitudes from the smallest subnormal to nearly the largest float, and both zeros. Each must survive beside ordinary
# values.
EXTREMES = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-40,
    -1e-40,
    1e-38,
    1e-20,
    -1e-20,
    1e-8,
    -1e-8,
    1e-3,
    -1e-3,
    0.5,
    -0.5,
    3.0,
    -3.0,
    5.5,
    -5.5,
]
EXTREMES += [9.0, -9.0, 12.0, -12.0, 50.0, -50.0, 100.0, -100.0, 1e3, -1e3, 1e4, -1e4]
# x³ overflows for these. Only positive: below -1e4 the last bit of 1 + tanh(u), times x, would fail right kernels.
EXTREMES += [1e13, 1e20, 3e38]


class GeluParams(Params):
    """The assignment's own keys of a case in problem.toml."""

    shape: tuple[Size, ...]
    values: Literal["normal", "extremes"] = "normal"
    layout: Literal["contiguous", "transposed", "odd-start", "even-start", "strided"] = "contiguous"


def make_inputs(params: GeluParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """x in the shape, values and layout of the case; ordinary values are N(0, 2²)."""
    device = generator.device
    x = torch.randn(params.shape, generator=generator, device=device, dtype=dtype).mul_(2.0)
    if x.numel():
        first = x.view(-1)[0]
        first.copy_(first.sign() * (0.5 + first.abs() % 2))  # so that neither 0, x nor -0 is a right answer
    if params.values == "extremes":
        special = torch.tensor(EXTREMES, device=device).to(dtype)
        special = special[special.isfinite()]
        flat = x.view(-1)
        flat[: flat.numel() // 2] = special.repeat(math.ceil(flat.numel() / special.numel()))[: flat.numel() // 2]
        # In the partial block at the end, too; large ones of both signs last.
        flat[-special.numel() :] = special.roll(3)
    if params.layout == "transposed":
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    elif params.layout in ("odd-start", "even-start"):
        start = 1 if params.layout == "odd-start" else 2
        wider = torch.full((x.numel() + 64,), 3.0, dtype=dtype, device=device)
        x = wider[start : start + x.numel()].view(x.shape).copy_(x)
    elif params.layout == "strided":
        x = torch.full((*x.shape, 2), 3.0, dtype=dtype, device=device)[..., 1].copy_(x)
    return Call(args={"x": x})


def pieces(params: GeluParams, count: int) -> list[GeluParams]:
    """The params of at most `count` smaller cases along dimension 0, because elements are independent."""
    length, *rest = params.shape
    step = -(-length // count)
    shapes = [(min(step, length - start), *rest) for start in range(0, length, step)]
    return [params.model_copy(update={"shape": shape}) for shape in shapes]


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    return {"y": tuple(call.args["x"].shape)}


def _gelu_float64(x: torch.Tensor) -> torch.Tensor:
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), computed by PyTorch; a test compares it with the formula."""
    return torch.nn.functional.gelu(x.double(), approximate="tanh")


def oracle(call: Call) -> dict[str, torch.Tensor]:
    return {"y": by_slices(_gelu_float64, call.args["x"], out_dtype=torch.float64)}


def cost(params: GeluParams, dtype: torch.dtype) -> Cost:
    """Each element is read once and written once, with about fourteen operations."""
    elements = math.prod(params.shape)
    return Cost(bytes_moved=2 * elements * dtype.itemsize, flops=14 * elements)
