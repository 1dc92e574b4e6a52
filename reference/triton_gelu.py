"""GeLU in Triton, the staff's answer.

    gelu(x) = 0.5 · x · (1 + tanh(u)),  u = √(2/π) · (x + 0.044715 · x³)

the tanh form of Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2. With tanh(u) = 2σ(2u) − 1 and
σ(t) = 1 / (1 + exp(−t)) this is x · σ(2u): one exponential and one division, and no 1 + tanh(u) that loses
digits where tanh(u) is near −1.

Traffic: one read and one write per element (8 bytes in float32, 4 in float16 and bfloat16) for about 15
floating-point operations. Memory sets the speed in float32; in 16-bit types arithmetic comes close to it.
"""

import contextlib

import torch
import triton
import triton.language as tl

TWO_SQRT_2_OVER_PI = tl.constexpr(1.5957691216057308)

# By bytes per element: elements per program, and its warps. The fastest on an H200 out of 512 to 8192 elements.
BLOCKS = {4: (1024, 8), 2: (2048, 4)}


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n_elements, block_size: tl.constexpr):
    """y = gelu(x). x_ptr, y_ptr: n_elements each, in the same dense order of memory."""
    # int64 before the multiplication: on tensors of more than 2³¹ elements, program · block_size passes 2³¹.
    offsets = tl.program_id(0).to(tl.int64) * block_size + tl.arange(0, block_size)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)

    # σ is taken from exp(−|2u|), which lies in [0, 1] and cannot overflow:
    #     σ(2u) = 1 / (1 + exp(−2u)) for u ≥ 0,   exp(2u) / (1 + exp(2u)) for u < 0.
    # From |x| = 11 on the exponential is 0 in float32, so a bound of 100 changes nothing but keeps x³ finite.
    magnitude = tl.minimum(tl.abs(x), 100.0)
    two_u = TWO_SQRT_2_OVER_PI * (magnitude + 0.044715 * magnitude * magnitude * magnitude)
    decay = tl.exp(-two_u)
    y = x * (tl.where(x >= 0, 1.0, decay) / (1.0 + decay))

    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def triton_gelu(x: torch.Tensor) -> torch.Tensor:
    """The tanh-form GeLU of every element.

    x: float32, float16 or bfloat16; any shape (0 elements too) and any strides. Computed in float32.
    Returns a tensor of x's shape and dtype; also of its strides where x is dense (contiguous, or a
    permutation of a contiguous tensor's dimensions).
    Raises TypeError for another dtype.
    """
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"triton_gelu: x must be float32, float16 or bfloat16, not {x.dtype}")

    x = x.resolve_neg()  # a kernel reads what stands in memory: for z.conj().imag, numbers of the opposite sign
    # An elementwise function needs no shape, only the same order of elements in x and y. empty_like keeps the
    # order of a dense x, so a transposed matrix is read straight through. For an x with gaps or overlaps
    # (x[:, ::2], an expanded x) it chooses a dense order, into which x is first copied.
    y = torch.empty_like(x)
    if x.stride() != y.stride():
        x = y.copy_(x.detach())  # the kernel then works in place

    n_elements = x.numel()
    if n_elements == 0:
        return y
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        block_size, num_warps = BLOCKS[x.element_size()]
        gelu_kernel[(triton.cdiv(n_elements, block_size),)](
            x, y, n_elements, block_size=block_size, num_warps=num_warps
        )
    return y
