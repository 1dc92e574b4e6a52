import math

import torch
import triton
from activations import elementwise


class GeLU:
    def __call__(self, x):
        n = math.prod(x.shape)
        x = x.contiguous()
        y = torch.zeros_like(x)
        if n:
            elementwise[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
        return y


triton_gelu = GeLU()
