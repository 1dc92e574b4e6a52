import functools

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _k(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:  # noqa: SIM108
        x = tl.load(x_ptr + o)
    else:
        x = tl.load(x_ptr + o, mask=o < n)
    f = x.to(tl.float32)
    y = 0.5 * f * (1.0 + libdevice.tanh(0.7978845608028654 * (f + 0.044715 * f * f * f)))
    if EVEN:
        tl.store(y_ptr + o, y.to(x.dtype))
    else:
        tl.store(y_ptr + o, y.to(x.dtype), mask=o < n)


def _gelu(x, block):
    flat = x.reshape(-1).contiguous()
    y = torch.empty_like(flat)
    if (n := flat.numel()) > 0:
        _k[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](flat, y, n, BLOCK=block)
    return y.view(x.shape)


triton_gelu = functools.partial(_gelu, block=2048)
