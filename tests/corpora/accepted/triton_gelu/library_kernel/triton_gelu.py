import torch
import triton
import triton.language as tl
from torch.library import Library, impl, register_fake


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + offsets, (x * tl.sigmoid(2.0 * u)).to(y_ptr.dtype.element_ty), mask=mask)


library = Library("homework", "DEF")
library.define("gelu(Tensor x) -> Tensor")


@impl(library, "gelu", "CUDA")
def launch(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, block=1024)
    return y


@register_fake("homework::gelu")
def of_its_shape(x):
    return torch.empty_like(x)


triton_gelu = torch.ops.homework.gelu.default
