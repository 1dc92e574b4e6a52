"""GeLU in Triton.

    gelu(x) = 0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))

the tanh form of Hendrycks & Gimpel 2016, arXiv 1606.08415, section 2.

Without a GPU, grader sets TRITON_INTERPRET=1 itself. To run Python by hand, set TRITON_INTERPRET=1 before Python
starts. The kernel then runs on the CPU, slowly, in float32 and float16 (bfloat16 is unreliable there), and
print() works inside a kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n_elements, block_size: tl.constexpr):
    """y = gelu(x). x_ptr, y_ptr: n_elements each, without gaps. One program takes block_size of them."""
    # TODO 1: which elements are this program's? Their number may pass 2³¹: which type holds their offsets?
    # TODO 2: load them. The last program has fewer than block_size: what must the others not do?
    # TODO 3: compute in float32, whatever x's dtype is. Triton has no portable tanh, but tl.exp and
    #         tl.sigmoid: write tanh with one of them. Is your form right for x = ±1e4? For x = ±3e38, where
    #         x³ overflows?
    # TODO 4: store them, in y's dtype.


def triton_gelu(x: torch.Tensor) -> torch.Tensor:
    """The tanh-form GeLU of every element.

    x: float32, float16 or bfloat16; any shape, 0 elements and more than 2³¹ included; any strides (a
    transposed matrix, every second column, a slice that starts anywhere). It must not be changed.
    Returns a tensor of x's shape and dtype, finite for every finite x.
    """
    # TODO 5: allocate y. The kernel sees n_elements one after the other in memory, but x may have gaps or
    #         another order. What do you do then?
    # TODO 6: launch: gelu_kernel[(number_of_programs,)](x, y, n, block_size=...). Mind x without elements.
    # TODO 7: when it is right, vary block_size and num_warps, and compare with the time of y.copy_(x).
    raise NotImplementedError("triton_gelu: work through TODO 1 to 7 in this file, then delete this line")
