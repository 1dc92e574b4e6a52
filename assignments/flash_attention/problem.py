"""FlashAttention-2: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch.nn.functional import scaled_dot_product_attention

from grader.problem import Call, Cost, Params, Size, load_beside

attention = load_beside(__file__, "baselines.py").eager

# Triton's tutorial scales k by scale · log₂e before its backward kernels, and the scores after the product in its forward
# kernel. TF32 then rounds k in one of them alone. Of all numbers with TF32's 11 bits this one loses the least by it:
# 1143 · log₂e = 1649.0004. With 1.0 in its place, scores of 512 differ by 0.11, and dk by a factor of 1.116 (on an H200).
EXACT = 1143 / 1024


class AttentionParams(Params):
    """The assignment's own keys of a case in problem.toml."""

    batch: Size = 2
    n: Size
    n_keys: Size | None = None  # by default as many as queries
    d: Size
    causal: bool = False
    backward: bool = False
    values: Literal["normal", "peaked", "rising", "falling", "large-logits", "late-keys"] = "normal"
    layout: Literal["contiguous", "transposed", "mixed", "one"] = "contiguous"
    upstream: Literal["normal", "expanded"] = "normal"


def make_inputs(params: AttentionParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """q of shape (batch, n, d), k and v of shape (batch, n_keys, d), and for a backward case the upstream gradient of
    o.
    """
    device, n_keys = generator.device, params.n if params.n_keys is None else params.n_keys

    def normal(length: int) -> torch.Tensor:
        return torch.randn(params.batch, length, params.d, generator=generator, device=device)

    q, k, v = normal(params.n), normal(n_keys), normal(n_keys)
    if params.values == "peaked":
        q *= 4.0  # scores with standard deviation 4: the running maximum moves often
    elif params.values == "rising":
        # Scores grow by 32 every 32 keys: earlier sums vanish, and the first tile's maximum is far too small.
        q[..., 0] = 16.0
        k[..., 0] = torch.arange(n_keys, device=device) // 32 * 2.0 * math.sqrt(params.d)
    elif params.values == "falling":  # scores shrink by 32 every 32 keys: later terms vanish
        q[..., 0] = 16.0
        k[..., 0] = torch.arange(n_keys, device=device).flip(0) // 32 * 2.0 * math.sqrt(params.d)
    elif params.values in ("large-logits", "late-keys"):
        # A common offset of ±512 to ±1024 on all scores of a row: exp overflows or vanishes unless the maximum is
        # subtracted. Right kernels lose only the rounding of the sum: EXACT · 2ⁿ is exact in TF32, and so is, to 3e-7,
        # its product with scale · log₂e for scales that are powers of two. k's factor is near 1: in dQ it is multiplied
        # by a sum over dS that is 0 but for rounding errors, and a right kernel's remainder there is random.
        offset = EXACT * 2.0 ** math.ceil(math.log2(512 * math.sqrt(params.d) / EXACT**2))
        up = torch.rand(q.shape[:-1], generator=generator, device=device) < 0.5
        q[..., 0] = torch.where(up & (params.values == "large-logits"), offset, -offset)
        k[..., 0] = EXACT
        if params.values == "late-keys":
            k[:, -3:, 0] = 0.0  # no offset: far above all others; under a causal mask only the last rows see these keys
    q, k, v = (tensor.to(dtype) for tensor in (q, k, v))
    if (
        params.layout == "transposed"
    ):  # as (batch, heads, seq, d).transpose() leaves it: the sequence is no slow dimension
        q, k, v = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    elif params.layout == "mixed":  # no strides alike: q contiguous, k transposed, v a slice of wider rows
        k = k.transpose(1, 2).contiguous().transpose(1, 2)
        v = torch.nn.functional.pad(v, (8, 24), value=3.0)[..., 8 : 8 + params.d]
    elif params.layout == "one":  # self-attention without projections: one tensor three times
        k = v = q
    upstream = None
    if params.backward:
        if params.upstream == "expanded":  # as o.sum().backward() makes it: one number with strides 0
            upstream = torch.ones((), dtype=dtype, device=device).expand(q.shape)
        else:
            upstream = normal(params.n).to(dtype)
    return Call(args={"q": q, "k": k, "v": v}, options={"is_causal": params.causal}, upstream=upstream)


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    o = {"o": tuple(call.args["q"].shape)}
    if call.upstream is None:
        return o
    return {f"d{name}": tuple(tensor.shape) for name, tensor in call.args.items()} | o


def _evaluate(call: Call, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """o, with an upstream gradient after dq, dk, dv, computed in `dtype`.

    A large matrix of scores is computed for one batch entry at a time, so that only one is in memory.
    """
    batch, n = call.args["q"].shape[:2]
    step = batch if n * call.args["k"].shape[1] * batch <= 2**24 else 1
    names = list(outputs(call))
    pieces: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for start in range(0, batch, step):
        part = slice(start, start + step)
        leaves = [
            tensor[part].detach().to(dtype).requires_grad_(call.upstream is not None) for tensor in call.args.values()
        ]
        o = attention(*leaves, is_causal=bool(call.options["is_causal"]))
        gradients = () if call.upstream is None else torch.autograd.grad(o, leaves, call.upstream[part].to(dtype))
        for name, result in zip(names, (*gradients, o.detach()), strict=True):
            pieces[name].append(result)
    return {name: torch.cat(tensors) for name, tensors in pieces.items()}


def oracle(call: Call) -> dict[str, torch.Tensor]:
    return _evaluate(call, torch.float64)


def baseline(call: Call) -> dict[str, torch.Tensor]:
    return _evaluate(call, call.args["q"].dtype)


def stand_in(call: Call) -> dict[str, torch.Tensor]:
    """The outputs by PyTorch's fused attention, which is faster than the baseline because no matrix of scores is in
    memory.
    """
    differentiable = call.upstream is not None
    leaves = [tensor.detach().requires_grad_(differentiable) for tensor in call.args.values()]
    one_head = (leaf.unsqueeze(1) for leaf in leaves)  # shape (batch, heads, n, d)
    o = scaled_dot_product_attention(*one_head, is_causal=bool(call.options["is_causal"])).squeeze(1)
    gradients = torch.autograd.grad(o, leaves, call.upstream) if differentiable else ()
    return dict(zip(outputs(call), (*gradients, o.detach()), strict=True))


def cost(params: AttentionParams, dtype: torch.dtype) -> Cost:
    """Forward 4·B·N·M·d FLOPs (two matrix products), half of that if causal; backward 2.5 times as many (five
    products).

    Bytes: q, k, v are read and o is written; backward also reads o and do again, and writes dq, dk, dv.
    """
    n_keys = params.n if params.n_keys is None else params.n_keys
    forward = 4 * params.batch * params.n * n_keys * params.d // (2 if params.causal else 1)
    tensors = 2 * params.batch * (params.n + n_keys) * params.d
    return Cost(
        bytes_moved=dtype.itemsize * tensors * (3 if params.backward else 1),
        flops=int(forward * 3.5) if params.backward else forward,
    )
