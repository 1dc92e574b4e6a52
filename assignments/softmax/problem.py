"""Row softmax: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

from typing import Literal

import torch

from grader.problem import Call, Cost, Params, Size, by_slices, load_beside, untouched

eager = load_beside(__file__, "baselines.py").eager


class SoftmaxParams(Params):
    """The assignment's own keys of a case in problem.toml. `rows` and `columns` stand in place of those of `shape`."""

    shape: tuple[Size, Size] = (3, 781)
    rows: Size | None = None
    columns: Size | None = None
    values: Literal[
        "normal",
        "uneven-rows",
        "large",
        "constant-rows",
        "one-hot",
        "rising",
        "falling",
        "negative",
        "far-negative",
    ] = "normal"
    masked: Literal["none", "some", "late-start", "early-end", "dead-rows"] = "none"
    layout: Literal[
        "contiguous",
        "slice",
        "transposed",
        "second-columns",
        "steps",
        "one-row",
        "one-column",
        "overlapping",
        "far-rows",
        "far-columns",
    ] = "contiguous"
    start: Size = 0  # of x, in elements past an aligned address

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.shape
        return rows if self.rows is None else self.rows, columns if self.columns is None else self.columns


def make_inputs(params: SoftmaxParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """x of shape (rows, columns), in the values and layout of the case."""
    x = _values(params, dtype, generator)
    rows, columns = x.shape
    # Element strides, and how far x begins beyond the start
    row, column, before = {
        "contiguous": (columns, 1, 0),
        "slice": (columns + 37, 1, 16),  # of a wider matrix
        "transposed": (1, rows, 0),
        "second-columns": (2 * columns, 2, 0),
        "steps": (3 * 2 * columns, 2, 0),  # every third row, every second column
        "one-row": (0, 1, 0),  # as `expand` makes it of one row, or of one column
        "one-column": (1, 0, 0),
        "overlapping": (3, 1, 0),  # as `unfold` makes it
        "far-rows": (2**31 // max(1, rows - 1) + 17, 1, 0),  # the last row starts beyond element 2^31
        "far-columns": (1, 2**31 // max(1, columns - 1) + 17, 0),
    }[params.layout]
    if (row, column, before, params.start) == (columns, 1, 0, 0):
        return Call(args={"x": x})
    length = max(0, rows - 1) * row + max(0, columns - 1) * column + 1 + before + 20
    if params.layout.startswith("far"):
        around = untouched(params.start + length, dtype, x.device)
    else:
        around = torch.full((params.start + length,), 3.0, dtype=dtype, device=x.device)
    placed = around.as_strided(x.shape, (row, column), params.start + before)
    if x.numel():
        if row == 0:
            placed[:1].copy_(x[:1])
        elif column == 0:
            placed[:, :1].copy_(x[:, -1:])
        elif params.layout == "overlapping":  # each number once, in no order that a device may choose
            flat = around[params.start : params.start + (rows - 1) * row + columns]
            flat.copy_(x.reshape(-1).repeat(4)[: len(flat)])
        else:
            placed.copy_(x)
    return Call(args={"x": placed})


def _values(params: SoftmaxParams, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    rows, columns = params.size
    device = generator.device
    x = torch.randn(rows, columns, generator=generator, device=device)
    if params.values == "uneven-rows":  # no two rows have the same sum, and in each a few entries dominate
        scale = torch.rand(rows, 1, generator=generator, device=device).mul_(4).add_(0.5)
        shift = torch.randn(rows, 1, generator=generator, device=device).mul_(60)
        x = x.mul_(scale).add_(shift)
    elif params.values == "large":
        x = x.mul_(5e3).clamp_(-1e4, 1e4)
        x[:, 1:2] = x[:, :1] - 0.5 if columns > 1 else x[:, 1:2]  # near ties; otherwise every row would be one-hot
        x[::2] = x[::2].clamp_(max=-5e3)
    elif params.values == "constant-rows":
        x[::2] = x[::2, :1].expand(-1, columns)
    elif params.values == "one-hot":
        hot = torch.randint(columns, (rows,), generator=generator, device=device)
        x[torch.arange(rows, device=device), hot] += 60.0
    elif params.values == "rising":  # each part of a row has a larger maximum than the parts before
        x += torch.linspace(-1e3, 1e3, columns, device=device)
    elif params.values == "falling":  # each part of a row has a smaller maximum than the parts before
        x += torch.linspace(1e3, -1e3, columns, device=device)
    elif params.values == "negative":
        x -= 200.0
    elif params.values == "far-negative":  # below any number that is taken for -inf
        lowest = max(torch.finfo(dtype).min, -3e38)
        x = x.mul_(-lowest * 3e-7).add_(lowest * 0.99)
    minus_inf = float("-inf")
    if params.masked == "some":
        mask = torch.rand(rows, columns, generator=generator, device=device) < 0.3
        mask[:, :1] = columns > 1  # the first entry too: a running maximum starts at -inf
        mask[:, -1:] = False
        x = x.masked_fill_(mask, minus_inf)
    elif params.masked == "late-start":  # only -inf in the first blocks of a row
        x[:, : columns - max(1, columns // 8)] = minus_inf
    elif params.masked == "early-end":  # only -inf in the last blocks of a row
        x[:, max(1, columns // 8) :] = minus_inf
    elif params.masked == "dead-rows":
        x[1::2] = minus_inf
    return x.to(dtype)


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    return {"y": tuple(call.args["x"].shape)}


def oracle(call: Call) -> dict[str, torch.Tensor]:
    return {"y": by_slices(lambda x: torch.softmax(x.double(), dim=-1), call.args["x"], out_dtype=torch.float64)}


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return {"y": eager(call.args["x"])}


def cost(params: SoftmaxParams, dtype: torch.dtype) -> Cost:
    """Each element is read once and written once, with about five operations."""
    elements = params.size[0] * params.size[1]
    return Cost(bytes_moved=2 * elements * dtype.itemsize, flops=5 * elements)
