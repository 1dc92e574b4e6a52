import torch
import triton
import triton.language as tl


@triton.jit
def inner_kernel(x_ptr, u_ptr, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(u_ptr + offsets, 1.5957691216057308 * (x + 0.044715 * x * x * x), mask=mask)


@triton.jit
def sigmoid_kernel(u_ptr, s_ptr, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    tl.store(s_ptr + offsets, tl.sigmoid(tl.load(u_ptr + offsets, mask=mask)), mask=mask)


@triton.jit
def product_kernel(x_ptr, s_ptr, y_ptr, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    y = tl.load(x_ptr + offsets, mask=mask).to(tl.float32) * tl.load(s_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def triton_gelu(x):
    x = x.contiguous()
    u, s = (torch.empty(x.shape, dtype=torch.float32, device=x.device) for _ in range(2))
    y = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, 1024),)
        inner_kernel[grid](x, u, n, block=1024)
        sigmoid_kernel[grid](u, s, n, block=1024)
        product_kernel[grid](x, s, y, n, block=1024)
    return y
