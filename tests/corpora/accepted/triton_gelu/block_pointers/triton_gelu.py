import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    # the block's own pointer, so that its offset fits into 32 bits
    left = tl.minimum(n - first, BLOCK).to(tl.int32)
    source = tl.make_block_ptr(x_ptr + first, (left,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(y_ptr + first, (left,), (1,), (0,), (BLOCK,), (0,))
    x = tl.load(source, boundary_check=(0,), padding_option="zero").to(tl.float32)
    z = x * 1.5957691216 + x * x * x * 0.0713548162726
    y = x * (1.0 - 1.0 / (1.0 + tl.exp(tl.minimum(z, 80.0))))
    tl.store(target, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))


def triton_gelu(x):
    flat = x.contiguous().view(-1)
    y = torch.empty_like(flat)
    if flat.numel():
        _gelu[(triton.cdiv(flat.numel(), 4096),)](flat, y, flat.numel(), BLOCK=4096, num_warps=8)
    return y.view(x.shape)
