"""Softmax over the rows of a matrix in Triton.

    y_ij = exp(x_ij − m_i) / Σ_k exp(x_ik − m_i),   m_i = max_k x_ik

Subtracting the row's maximum changes nothing on paper and keeps every exponential in [0, 1].

Without a GPU, grader sets TRITON_INTERPRET=1 itself. To run Python by hand, set TRITON_INTERPRET=1 before Python
starts. The kernel then runs on the CPU, slowly, in float32 and float16 (bfloat16 is unreliable there), and
print() works inside a kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, x_row_stride, x_col_stride, y_row_stride, block_cols: tl.constexpr):
    """Softmax of one row per program, where block_cols is a power of two ≥ n_cols.

    x_ptr, y_ptr: (rows, n_cols); strides are in elements, and y's columns lie side by side.
    """
    # TODO 1: which row is this program's, and where does it start? row · stride may pass 2³¹: which type
    #         holds it?
    # TODO 2: load the row, in float32. block_cols is often more than n_cols: what must the surplus lanes
    #         hold, so that they change neither the maximum nor the sum?
    # TODO 3: maximum, exponentials, sum, quotient. If you use tl.exp2, multiply by log₂e after subtracting
    #         the maximum: the other order loses digits. Why?
    # TODO 4: store the n_cols results, in y's dtype.


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    x: (rows, columns), float32, float16 or bfloat16; any strides; 0 rows or more; 1 column to 131072 and
    beyond. Entries may be −inf and then become 0; a row with nothing else becomes NaN, as in PyTorch.
    Computed in float32.
    Returns a tensor of x's shape and dtype.
    """
    # TODO 5: allocate y, choose block_cols (triton.next_power_of_2) and num_warps, launch a program per row.
    # TODO 6: a row of 131072 does not fit in a program's registers. Write a second kernel that goes through
    #         such a row in blocks, keeping maximum and sum as it goes (the online softmax: Milakov &
    #         Gimelshein 2018, arXiv 1805.02867, Algorithm 3), and then goes through it again. What if the
    #         first block is all −inf?
    # TODO 7: when it is right, make it fast. How many lanes of a program idle when a row has 3 columns?
    raise NotImplementedError("softmax: work through TODO 1 to 7 in this file, then delete this line")
