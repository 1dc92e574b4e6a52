import torch
import triton
import triton.language as tl

C0: tl.constexpr = tl.constexpr(0.7978845608028654)


@triton.jit
def tanh(u):
    e = tl.exp(-2.0 * tl.abs(u))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(u < 0, -t, t)


@triton.jit
def _one(x):
    return 0.5 * x * (1.0 + tanh(C0 * x * (1.0 + 0.044715 * x * x)))


@triton.jit
def fwd(x_ptr, y_ptr, n, PER: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    pid = tl.program_id(0)
    if WIDE:
        pid = pid.to(tl.int64)
    for k in tl.static_range(PER):
        o = (pid * PER + k) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=0)
        tl.store(y_ptr + o, _one(x.to(tl.float32)), mask=o < n)


class GeLU(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        x = x.contiguous()
        y = torch.empty(x.size(), dtype=x.dtype, device=x.device)
        n = x.nelement()
        if n == 0:
            return y
        fwd[(-(-n // 4096), 1, 1)](x, y, n, PER=4, BLOCK=1024, WIDE=n >= 2**30)
        return y


triton_gelu = GeLU.apply
