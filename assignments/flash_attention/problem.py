"""FlashAttention-2: inputs, float64 oracle, PyTorch baseline, bytes and FLOPs of a case."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch.nn.functional import scaled_dot_product_attention

from grader.problem import Call, Cost, Params, Size, load_beside, untouched

attention = load_beside(__file__, "baselines.py").eager

# Triton's tutorial scales k by scale · log₂e before its backward kernels, and the scores after the product in its forward
# kernel. TF32 then rounds k in one of them alone. Of all numbers with TF32's 11 bits this one loses the least by it:
# 1143 · log₂e = 1649.0004. With 1.0 in its place, scores of 512 differ by 0.11, and dk by a factor of 1.116 (on an H200).
EXACT = 1143 / 1024


class AttentionParams(Params):
    """The assignment's own keys of a case in problem.toml.

    Attributes:
        keys: their number relative to that of the queries, where `n_keys` does not say it.
        form: how is_causal is passed, by its position, by its name, or not at all.
        wanted: which of q, k and v require a gradient.
        start: of q, k and v, in elements past an aligned address, where their layout leaves it open.
    """

    batch: Size = 2
    n: Size = 41
    n_keys: Size | None = None
    keys: Literal["same", "more", "fewer", "one"] = "same"
    d: Size = 64
    causal: bool = False
    form: Literal["position", "name", "left-out"] = "position"
    backward: bool = False
    backwards: int = 1
    wanted: str = "qkv"
    values: Literal["normal", "peaked", "rising", "falling", "large-logits", "late-keys", "far-below"] = "normal"
    layout: Literal["contiguous", "transposed", "mixed", "one", "steps", "expanded", "far-batches"] = "contiguous"
    start: Size = 0
    upstream: Literal["normal", "expanded", "expanded-rows", "transposed", "slice"] = "normal"

    @property
    def number_of_keys(self) -> int:
        if self.n_keys is not None:
            return self.n_keys
        return {"same": self.n, "more": self.n + 30, "fewer": max(1, self.n // 2), "one": 1}[self.keys]


def make_inputs(params: AttentionParams, dtype: torch.dtype, generator: torch.Generator) -> Call:
    """q of shape (batch, n, d), k and v of shape (batch, number of keys, d), and for a backward case the upstream
    gradient of o.
    """
    q, k, v = (_placed(name, tensor.to(dtype), params) for name, tensor in _values(params, generator).items())
    if params.layout == "one":  # self-attention without projections: one tensor three times
        k = v = q
    return Call(
        args={"q": q, "k": k, "v": v},
        options={} if params.form == "left-out" else {"is_causal": params.causal},
        by_name=params.form == "name",
        upstream=_upstream(params, dtype, generator) if params.backward else None,
        wanted=None if params.wanted == "qkv" else tuple(params.wanted),
        backwards=params.backwards,
    )


def _normal(length: int, params: AttentionParams, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(params.batch, length, params.d, generator=generator, device=generator.device)


def _values(params: AttentionParams, generator: torch.Generator) -> dict[str, torch.Tensor]:
    n_keys, device = params.number_of_keys, generator.device
    q, k, v = (_normal(length, params, generator) for length in (params.n, n_keys, n_keys))
    if params.values == "peaked":
        q *= 4.0  # scores with standard deviation 4: the running maximum moves often
    elif params.values == "rising":
        # Scores grow by 32 every 32 keys: earlier sums vanish, and the first tile's maximum is far too small.
        q[..., 0] = 16.0
        k[..., 0] = torch.arange(n_keys, device=device) // 32 * 2.0 * math.sqrt(params.d)
    elif params.values == "falling":  # scores shrink by 32 every 32 keys: later terms vanish
        q[..., 0] = 16.0
        k[..., 0] = torch.arange(n_keys, device=device).flip(0) // 32 * 2.0 * math.sqrt(params.d)
    elif params.values in ("large-logits", "late-keys", "far-below"):
        # A common offset of ±512 to ±1024 on all scores of a row: exp overflows or vanishes unless the maximum is
        # subtracted. Right kernels lose only the rounding of the sum: EXACT · 2ⁿ is exact in TF32, and so is, to 3e-7,
        # its product with scale · log₂e for scales that are powers of two. k's factor is near 1: in dQ it is multiplied
        # by a sum over dS that is 0 but for rounding errors, and a right kernel's remainder there is random.
        # far-below: one of −110000 to −220000, below numbers that are taken for −∞. The normal rest of the scores stays, so
        # that PyTorch too loses digits, as a kernel that weighs by a rounded logsumexp does.
        least = 110_000 if params.values == "far-below" else 512
        offset = EXACT * 2.0 ** math.ceil(math.log2(least * math.sqrt(params.d) / EXACT**2))
        up = torch.rand(q.shape[:-1], generator=generator, device=device) < 0.5
        q[..., 0] = torch.where(up & (params.values == "large-logits"), offset, -offset)
        k[..., 0] = EXACT
        if params.values == "late-keys":
            k[:, -3:, 0] = 0.0  # no offset: far above all others; under a causal mask only the last rows see these keys
    if params.layout == "one":
        q *= 0.5  # or each query would see hardly more than itself, and a copy would be right
    return {"q": q, "k": k, "v": v}


def _placed(name: str, tensor: torch.Tensor, params: AttentionParams) -> torch.Tensor:
    """The tensor in the layout of the case."""
    if params.layout == "transposed" or (params.layout, name) == ("mixed", "k"):
        return _transposed(tensor)
    if (params.layout, name) == ("mixed", "v"):  # no strides alike: q contiguous, k transposed, v a slice of wider rows
        return _slice(tensor)
    if params.layout == "steps":  # every third row and every second column of a larger tensor, from an odd one on
        batch, length, d = tensor.shape
        around = torch.full((batch, 3 * length, 2 * d), 3.0, dtype=tensor.dtype, device=tensor.device)
        around[:, 1::3, 1::2] = tensor
        return around[:, 1::3, 1::2]
    if params.layout == "expanded" and name != "q":  # the same keys and values for all entries of the batch
        return tensor[:1].expand(tensor.shape)
    # The last entry of the batch starts beyond element 2^31: of k alone on a GPU, where each tensor takes 8 GiB for that.
    if params.layout == "far-batches" and (name == "k" or tensor.device.type == "cpu"):
        batch, length, d = tensor.shape
        stride = 2**31 // (batch - 1) + 64
        around = untouched((batch - 1) * stride + length * d, tensor.dtype, tensor.device)
        return around.as_strided(tensor.shape, (stride, d, 1)).copy_(tensor)
    if params.start:
        around = torch.full((params.start + tensor.numel(),), 3.0, dtype=tensor.dtype, device=tensor.device)
        around[params.start :] = tensor.flatten()
        return around[params.start :].view(tensor.shape)
    return tensor


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as (batch, heads, seq, d).transpose() leaves it: the sequence is no slow dimension."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _slice(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as columns of wider rows."""
    return torch.nn.functional.pad(tensor, (8, 24), value=3.0)[..., 8 : 8 + tensor.shape[-1]]


def _upstream(params: AttentionParams, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A gradient of o in the layout of the case."""
    if params.upstream == "expanded":  # as o.sum().backward() makes it: one number with strides 0
        return torch.ones((), dtype=dtype, device=generator.device).expand(params.batch, params.n, params.d)
    if params.upstream == "expanded-rows":  # as o.sum(1), and a gradient of that, make it: the row stride is 0
        return _normal(1, params, generator).to(dtype).expand(-1, params.n, -1)
    upstream = _normal(params.n, params, generator).to(dtype)
    if params.upstream == "transposed":
        return _transposed(upstream)
    return _slice(upstream) if params.upstream == "slice" else upstream


def outputs(call: Call) -> dict[str, tuple[int, ...]]:
    o = {"o": tuple(call.args["q"].shape)}
    if call.upstream is None:
        return o
    return {f"d{name}": tuple(call.args[name].shape) for name in call.differentiated} | o


def _is_causal(call: Call) -> bool:
    return bool(call.options.get("is_causal"))


def _evaluate(call: Call, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """o, after the gradients that are asked for, computed in `dtype`.

    A large matrix of scores is computed for one batch entry at a time, so that only one is in memory.
    """
    batch, n = call.args["q"].shape[:2]
    step = batch if n * call.args["k"].shape[1] * batch <= 2**24 else 1
    names = list(outputs(call))
    pieces: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for start in range(0, batch, step):
        part = slice(start, start + step)
        leaves = {
            name: tensor[part].detach().to(dtype).requires_grad_(name in call.differentiated)
            for name, tensor in call.args.items()
        }
        o = attention(**leaves, is_causal=_is_causal(call))
        wanted = [leaves[name] for name in call.differentiated]
        gradients = () if call.upstream is None else torch.autograd.grad(o, wanted, call.upstream[part].to(dtype))
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
    leaves = {name: one.detach().requires_grad_(name in call.differentiated) for name, one in call.args.items()}
    one_head = (leaf.unsqueeze(1) for leaf in leaves.values())  # shape (batch, heads, n, d)
    o = scaled_dot_product_attention(*one_head, is_causal=_is_causal(call)).squeeze(1)
    wanted = [leaves[name] for name in call.differentiated]
    gradients = () if call.upstream is None else torch.autograd.grad(o, wanted, call.upstream)
    return dict(zip(outputs(call), (*gradients, o.detach()), strict=True))


def cost(params: AttentionParams, dtype: torch.dtype) -> Cost:
    """Forward 4·B·N·M·d FLOPs (two matrix products), half of that if causal; backward 2.5 times as many (five
    products).

    Bytes: q, k, v are read and o is written; backward also reads o and do again, and writes dq, dk, dv.
    """
    n_keys = params.number_of_keys
    forward = 4 * params.batch * params.n * n_keys * params.d // (2 if params.causal else 1)
    tensors = 2 * params.batch * (params.n + n_keys) * params.d
    return Cost(
        bytes_moved=dtype.itemsize * tensors * (3 if params.backward else 1),
        flops=int(forward * 3.5) if params.backward else forward,
    )
