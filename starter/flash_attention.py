"""FlashAttention-2 in Triton, forward and backward.

    S = scale · Q Kᵀ,   P = softmax(S) by rows,   O = P V,   scale = 1/√head_dim

Read Dao 2023, arXiv 2307.08691: Algorithm 1 is the forward pass, Algorithm 2 the backward pass. S and P have
n_q × n_k numbers each and never exist in memory: a program holds one tile of them at a time.

Forward (Algorithm 1). A program takes a block of queries and goes through the keys tile by tile. With m the
maximum and l the sum of exponentials so far, and O not yet divided by l, a new tile of S changes them to

    m' = max(m, rowmax S),   P = exp(S − m'),   l' = exp(m − m') l + rowsum P           (lines 8 and 9)
    O' = exp(m − m') O + P V                                                           (line 10)

and at the end O / l is the output (line 12), and L = m + log l, the logsumexp of each row of S, is kept for
the backward (line 13).

Backward (Algorithm 2). Nothing but Q, K, V, O and L was kept, so P is computed again, tile by tile:

    P  = exp(S − L)                                                                    (line 11)
    dV = Pᵀ dO                                                                         (line 12)
    dP = dO Vᵀ                                                                         (line 13)
    dS = P ∘ (dP − delta),   delta = rowsum(dO ∘ O), one number per query              (lines 14 and 4)
    dQ = scale · dS K                                                                  (line 15)
    dK = scale · dSᵀ Q                                                                 (line 16)

Start with one dtype, no causal mask, and lengths that are multiples of the tile. Add the other cases later.

Without a GPU, grader sets TRITON_INTERPRET=1 itself. To run Python by hand, set TRITON_INTERPRET=1 before Python
starts. The kernels then run on the CPU, slowly, in float32 and float16 (tl.dot in bfloat16 is wrong there), and
print() works inside a kernel.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def flash_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    o_batch_stride, o_row_stride, o_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """O and L for block_m queries of one batch entry.

    q_ptr, o_ptr: (batch, n_q, head_dim); k_ptr, v_ptr: (batch, n_k, head_dim); strides in elements;
    lse_ptr: (batch, n_q) float32, contiguous.
    """
    # TODO 1: which batch entry and which queries are this program's? Offsets of a batch entry may pass 2³¹.
    # TODO 2: load the tile of Q (block_m, head_dim). Set up m, l and the accumulator of O, all in float32.
    # TODO 3: for each tile of block_n keys: load K and V, compute S with tl.dot, and update m, l and O.
    #         Before P is an operand of tl.dot, it needs V's dtype.
    # TODO 4: divide O by l, store it in its own dtype, and store L.
    # TODO 5: lengths that are no multiple of block_m or block_n. A key beyond n_k must get no weight: is it
    #         enough to load it as 0?
    # TODO 6: is_causal: query i sees keys 0 … i. Mask S first; then skip the tiles that no query sees.


@triton.jit
def flash_backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    do_batch_stride, do_row_stride, do_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """dK and dV for block_n keys of one batch entry. Here the keys stay and the queries go by.

    do_ptr: (batch, n_q, head_dim); lse_ptr, delta_ptr: (batch, n_q) float32, contiguous; dk_ptr, dv_ptr:
    (batch, n_k, head_dim), contiguous; the rest as in the forward kernel.
    """
    # TODO 9: load the tiles of K and V once. For each tile of queries: recompute P from S and L, and add to
    #         dV and dK what lines 12 to 16 say. Accumulate in float32. You need Pᵀ and dSᵀ. Compute them as
    #         such, from K Qᵀ and V dOᵀ: on Hopper, tl.dot(tl.trans(p), do) with a p that was itself computed
    #         is slow, and in some versions of Triton wrong.
    # TODO 10: masks, as in the forward. What do P, dP and dS become for a query beyond n_q, and can one be
    #          inf or NaN?
    # TODO 11: dQ sums over keys, so it wants a program per block of queries: write a second kernel for it.
    #          (Adding to dQ from this one takes tl.atomic_add, float32, and sums in another order each time.)


class FlashAttention(torch.autograd.Function):
    """`FlashAttention.apply(q, k, v, is_causal)`: see `flash_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        """Shapes as in `flash_attention`. Returns o: (batch, n_q, head_dim), in q's dtype."""
        # TODO 7: allocate o and lse (batch, n_q) in float32, choose block_m and block_n, launch one program
        #         per block of queries and batch entry. Then ctx.save_for_backward(q, k, v, o, lse), and
        #         ctx.is_causal = is_causal.
        raise NotImplementedError("flash_attention: forward: work through TODO 1 to 7, delete this line")

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """do: like o, with any strides, 0 included (o.sum().backward() makes such).

        Returns dq, dk, dv, each in its input's shape and dtype, and None: one for each argument of forward.
        """
        # TODO 8: q, k, v, o, lse = ctx.saved_tensors. Compute delta (batch, n_q) in float32, in PyTorch or
        #         in a kernel.
        # TODO 12: allocate dq, dk, dv and launch your kernels. Does what you assume about do's strides hold?
        raise NotImplementedError("flash_attention: backward: work through TODO 8 to 12, delete this line")


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(q kᵀ / √head_dim) v, differentiable in q, k and v.

    q: (batch, n_q, head_dim); k, v: (batch, n_k, head_dim), with heads folded into batch; head_dim 16, 32, 64
    or 128. n_q and n_k: any length from 1, different ones too; with is_causal they are equal, and query i
    sees keys 0 … i. float32, float16 or bfloat16, all three the same; any strides.
    Returns o: (batch, n_q, head_dim), in the inputs' dtype.
    """
    return FlashAttention.apply(q, k, v, is_causal)
