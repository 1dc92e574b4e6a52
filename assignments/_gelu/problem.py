"""GeLU, tanh form, in any language: inputs, float64 oracle, bytes and FLOPs of a case."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field

from grader.problem import Call, Cost, Params, Size, by_slices, untouched

# Magnitudes from the smallest subnormal to nearly the largest float, and both zeros. Each must survive beside ordinary
# values. x³ overflows for the largest; below -10 the answer is so near 0 that -0 is right, down to the lowest number.
EXTREMES = (
    *(0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1e-38, 1e-20, -1e-20, 1e-8, -1e-8, 1e-3, -1e-3, 0.5, -0.5, 3.0, -3.0),
    *(5.5, -5.5, 9.0, -9.0, 12.0, -12.0, 50.0, -50.0, 100.0, -100.0, 1e3, -1e3, 1e4, -1e4, 1e13, -1e13, 1e20, -1e20),
    *(3e38, -3e38),
)


class GeluParams(Params):
    """The assignment's own keys of a case in problem.toml. Without `shape`, `n` elements have `dimensions`: as few as
    the layout needs, or so many.

    `permuted`: in which order the dimensions lie in memory. `layout`: what lies between the elements there. `mantissas`:
    of each exponent of float32, for values = "every", which has a number of elements of its own.
    """

    shape: tuple[Size, ...] | None = None
    n: Annotated[int, Field(ge=1)] = 1365
    dimensions: Size | None = None
    values: Literal["normal", "extremes", "far-negative", "every"] = "normal"
    mantissas: Size = 512
    permuted: Literal["no", "transposed", "first-two", "last-two", "rotated", "rotated-back"] = "no"
    layout: Literal["contiguous", "slice", "strided", "steps", "one-row", "one-column", "overlapping", "far-rows"] = (
        "contiguous"
    )
    start: Size = 0  # of x, in elements past an aligned address

    def size(self, dtype: torch.dtype) -> tuple[int, ...]:
        """The shape of x."""
        if self.values == "every":
            return (len(_bits(dtype, self.mantissas)),)
        if self.shape is not None:
            return self.shape
        needed = 3 if self.permuted != "no" else 1 if self.layout == "contiguous" else 2
        return _folded(self.n, needed if self.dimensions is None else self.dimensions)


def _folded(n: int, dimensions: int) -> tuple[int, ...]:
    """A shape of n elements, its sizes as near to each other as the prime factors of n let them be; () of one element."""
    if dimensions < 2:
        return (n,) * dimensions
    sizes, primes, prime = [1] * dimensions, [], 2
    while n > 1:
        if n % prime:
            prime += 1
        else:
            primes.append(prime)
            n //= prime
    for prime in reversed(primes):
        sizes[sizes.index(min(sizes))] *= prime
    return tuple(sorted(sizes))


def make_inputs(params: GeluParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """x in the shape, values and layout of the case; ordinary values are N(0, 2²)."""
    return Call(args={"x": _placed(params, _values(params, dtype, generator))})


def _values(params: GeluParams, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    if params.values == "every":
        bits = _bits(dtype, params.mantissas).to(device)
        if dtype == torch.float32:  # the lower bits are drawn
            step = 2**23 // params.mantissas
            bits += torch.randint(step, bits.shape, generator=generator, device=device, dtype=bits.dtype)
        return bits.view(dtype)
    x = torch.randn(params.size(dtype), generator=generator, device=device, dtype=dtype).mul_(2.0)
    flat = x.view(-1)
    if not x.numel():
        return x
    # So that neither 0, 1 nor x is a right answer. In 16 bits all three would be near 2: nearer than the budget.
    flat[0] = flat[0].sign() * (0.5 + flat[0].abs() % (2 if dtype == torch.float32 else 0.5))
    rest = flat[1:]
    if params.values == "extremes":
        special = torch.tensor(EXTREMES, device=device).to(dtype)
        # In the partial block at the end, too; large ones of both signs last.
        last = torch.tensor([torch.finfo(dtype).min, torch.finfo(dtype).max, -1e4], device=device).to(dtype)
        special = torch.cat([special[special.isfinite()], last])
        half = rest.numel() // 2
        rest[:half] = special.repeat(math.ceil(half / special.numel()))[:half]
        rest[-special.numel() :] = special[-rest.numel() :]
    elif params.values == "far-negative":  # evenly by magnitude, between ordinary ones
        magnitude = torch.rand(rest[::2].shape, generator=generator, device=device, dtype=torch.float64)
        lowest = math.log(-torch.finfo(dtype).min)
        rest[::2] = -magnitude.mul_(lowest - math.log(8)).add_(math.log(8)).exp_().to(dtype)
    return x


def _bits(dtype: torch.dtype, mantissas: int) -> torch.Tensor:
    """Each finite number of a 16-bit type; of float32 each sign and exponent with `mantissas` evenly spaced mantissas."""
    if dtype == torch.float32:
        return torch.arange(-(2**31), 2**31, 2**23 // mantissas).to(torch.int32).view(2, 256, -1)[:, :255].reshape(-1)
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    return bits[bits.view(dtype).isfinite()]


def _placed(params: GeluParams, x: torch.Tensor) -> torch.Tensor:
    """x in the layout of the case, with other numbers around it."""
    dimensions = x.ndim
    order = {  # the place in memory of each dimension, the last one's elements being neighbours
        "no": list(range(dimensions)),
        "transposed": list(range(dimensions))[::-1],
        "first-two": [1, 0, *range(2, dimensions)][:dimensions],
        "last-two": [*range(dimensions - 2), dimensions - 1, dimensions - 2],
        "rotated": [*range(1, dimensions), 0],
        "rotated-back": [dimensions - 1, *range(dimensions - 1)],
    }[params.permuted if dimensions > 1 else "no"]
    if (params.permuted, params.layout, params.start) == ("no", "contiguous", 0):
        return x
    stored = x.permute(sorted(range(dimensions), key=order.__getitem__))
    # Elements from neighbour to neighbour and from row to row, and how far x begins beyond the start
    step, gap, before = {"slice": (1, 37, 17), "strided": (2, 0, 1), "steps": (2, 0, 1)}.get(params.layout, (1, 0, 0))
    strides = [step] * dimensions
    for axis in range(dimensions - 2, -1, -1):
        width = stored.shape[axis + 1] * strides[axis + 1]
        strides[axis] = width + gap if axis == dimensions - 2 else width
    if params.layout == "steps":  # every third row, every second column
        strides[0] *= 3
    elif params.layout == "one-row":  # as `expand` makes it of one row, or of one column
        strides[0] = 0
    elif params.layout == "one-column":
        strides = [stride // stored.shape[-1] for stride in strides[:-1]] + [0]
    elif params.layout == "overlapping":  # as `unfold` makes it
        strides[0] = 3
    elif params.layout == "far-rows":  # the last row starts beyond element 2^31
        strides[0] = 2**31 // (stored.shape[0] - 1) + 17
    start = params.start + before
    length = start + 64 + sum((size - 1) * stride for size, stride in zip(stored.shape, strides, strict=True) if size)
    if params.layout == "far-rows":
        around = untouched(length, x.dtype, x.device)
    else:
        around = torch.full((length,), 3.0, dtype=x.dtype, device=x.device)
    placed = around.as_strided(stored.shape, strides, start)
    for axis, stride in enumerate(strides):
        if stride == 0:
            stored, placed = stored.narrow(axis, 0, 1), placed.narrow(axis, 0, 1)
    placed.copy_(stored)
    return around.as_strided(x.shape, [strides[place] for place in order], start)


def pieces(params: GeluParams, count: int) -> list[GeluParams]:
    """The params of at most `count` smaller cases along dimension 0, because elements are independent."""
    length, *rest = params.shape or (params.n,)
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
    elements = math.prod(params.size(dtype))
    return Cost(bytes_moved=2 * elements * dtype.itemsize, flops=14 * elements)
