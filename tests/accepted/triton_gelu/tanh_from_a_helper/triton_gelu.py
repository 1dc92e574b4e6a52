import math

import torch
import triton
import triton.language as tl
from activations import gelu


@triton.heuristics({"BLOCK": lambda args: min(1024, triton.next_power_of_2(args["n"]))})
@triton.jit
def elementwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    y = gelu(x.to(tl.float32))
    tl.store(y_ptr + i, y, mask=i < n)  # the store converts


class GeLU:
    def __call__(self, x):
        n = math.prod(x.shape)
        x = x.contiguous()
        y = torch.zeros_like(x)
        if n:
            elementwise[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
        return y


triton_gelu = GeLU()
