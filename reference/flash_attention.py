"""FlashAttention-2 in Triton, forward and backward, the staff's answer.

    S = scale · Q Kᵀ,   P = softmax(S) by rows,   O = P V,   scale = 1/√head_dim

by Algorithms 1 (forward) and 2 (backward) of Dao 2023, arXiv 2307.08691. S and P are n_q × n_k and never
exist in memory: a program keeps one tile of them in registers and walks along a row (forward, dQ) or a column
(dK, dV).

FLOPs, not causal: forward 4 · batch · n_q · n_k · head_dim (two matrix products), backward 10 (five: S again,
dP, dV, dQ, dK; here 14, since two kernels each recompute S and dP, and need no atomics for it). Causal: half
of that, because tiles above the diagonal are skipped. Traffic: Q, K, V, O once to memory, K and V again per
block of queries, mostly from the L2 cache. At thousands of keys this is bound by the tensor cores and the
exponentials, not by memory.

Between forward and backward only O and the logsumexp of each row of S are kept:

    L_i = log Σ_j exp(S_ij),   so that   P_ij = exp(S_ij − L_i)   without a second pass for maximum and sum.

Exponentials are exp2: exp(S − L) = exp2(scale · log₂e · (Q Kᵀ) − log₂e · L), one multiply-add per score.
"""

import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


class Tile(NamedTuple):
    """One kernel's tile of S, block_m queries × block_n keys, and how Triton is to compile it."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int  # tiles of the inner loop in shared memory at a time: loads run ahead of the products


# By (bytes per element, head_dim). All fit the 99 KB of shared memory that a block may have on sm_86 (sm_80
# has 163 KB, sm_90 227 KB).
FORWARD_TILES = {
    (2, 16): Tile(128, 64, 4, 3),
    (2, 32): Tile(128, 64, 4, 3),
    (2, 64): Tile(128, 64, 4, 3),
    (2, 128): Tile(128, 64, 8, 2),
    (4, 16): Tile(128, 64, 4, 3),
    (4, 32): Tile(128, 64, 4, 3),
    (4, 64): Tile(128, 32, 4, 2),
    (4, 128): Tile(64, 32, 4, 2),
}
DQ_TILES = {
    (2, 16): Tile(128, 64, 4, 3),
    (2, 32): Tile(128, 64, 4, 3),
    (2, 64): Tile(128, 64, 8, 3),
    (2, 128): Tile(128, 32, 8, 2),
    (4, 16): Tile(128, 64, 8, 2),
    (4, 32): Tile(128, 64, 8, 2),
    (4, 64): Tile(64, 32, 4, 2),
    (4, 128): Tile(32, 32, 4, 2),
}
DK_DV_TILES = {
    (2, 16): Tile(64, 128, 4, 3),
    (2, 32): Tile(64, 128, 8, 3),
    (2, 64): Tile(64, 128, 8, 3),
    (2, 128): Tile(32, 128, 8, 2),
    (4, 16): Tile(64, 128, 8, 2),
    (4, 32): Tile(32, 128, 8, 2),
    (4, 64): Tile(32, 64, 4, 2),
    (4, 128): Tile(32, 32, 4, 2),
}


@triton.jit
def load_tile(ptr, rows, n_rows, row_stride, dim_stride, head_dim: tl.constexpr):
    """(len(rows), head_dim) of a matrix; rows beyond n_rows are 0 and so add nothing to any product."""
    dims = tl.arange(0, head_dim).to(tl.int64)
    offsets = rows.to(tl.int64)[:, None] * row_stride + dims[None, :] * dim_stride
    return tl.load(ptr + offsets, mask=rows[:, None] < n_rows, other=0.0)


@triton.jit
def store_tile(ptr, tile, rows, n_rows, head_dim: tl.constexpr):
    """The counterpart of load_tile, into a contiguous matrix and its dtype."""
    offsets = rows.to(tl.int64)[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
    tl.store(ptr + offsets, tile.to(ptr.dtype.element_ty), mask=rows[:, None] < n_rows)


@triton.jit
def is_visible(queries, keys, n_k, is_causal: tl.constexpr):
    """Which key each query may attend to. queries and keys broadcast against each other."""
    visible = keys < n_k
    if is_causal:
        visible = visible & (keys <= queries)
    return visible


@triton.jit
def key_range(first_query, n_k, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr):
    """Split the keys for a block of queries into [0, n_full) and [n_full, n_end).

    Tiles in the first part lie wholly below the diagonal and inside the matrix and need no mask; tiles in the
    second are cut by the diagonal or by the end of the keys. What lies beyond n_end is seen by no query of
    the block.
    """
    if is_causal:
        n_full = tl.minimum(first_query + 1, n_k) // block_n * block_n
        n_end = tl.minimum(first_query + block_m, n_k)
    else:
        n_full = n_k // block_n * block_n
        n_end = n_k
    return n_full, n_end


# ------------------------------------------------------------------------------------------------------------
# Forward: Algorithm 1
# ------------------------------------------------------------------------------------------------------------


@triton.jit
def attend(
    acc, row_max, row_sum, q, queries, k_ptr, v_ptr, first_key, last_key, n_k, scale_log2,
    k_row_stride, k_dim_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """Lines 6 to 11 of Algorithm 1 over keys first_key … last_key: the online softmax, weighing V as it goes.

    Invariant, over the keys j seen so far and with s = scale · log₂e · q kᵀ:
        row_max = max_j s_j,   row_sum = Σ_j exp2(s_j − row_max),   acc = Σ_j exp2(s_j − row_max) v_j
    """
    for start in range(first_key, last_key, block_n):
        keys = start + tl.arange(0, block_n)
        k = load_tile(k_ptr, keys, n_k, k_row_stride, k_dim_stride, head_dim)
        v = load_tile(v_ptr, keys, n_k, v_row_stride, v_dim_stride, head_dim)

        scores = tl.dot(q, tl.trans(k))
        if is_masked:
            visible = is_visible(queries[:, None], keys[None, :], n_k, is_causal)
            scores = tl.where(visible, scores, float("-inf"))

        # scale > 0, so the maximum may be scaled in place of every score. The very first tile holds key 0,
        # which every query sees: from then on row_max is finite, and no −inf − (−inf) can arise.
        new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def flash_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_m rows of O and L.

    q_ptr: (batch, n_q, head_dim); k_ptr, v_ptr: (batch, n_k, head_dim), all with strides in elements;
    o_ptr: like q, contiguous; lse_ptr: (batch, n_q) float32, contiguous.
    """
    n_blocks = tl.cdiv(n_q, block_m)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)  # int64: batch · stride may pass 2³¹
    # The last queries come first: under a causal mask they see the most keys, and long work must start early.
    first_query = (n_blocks - 1 - tl.program_id(0) % n_blocks) * block_m
    queries = first_query + tl.arange(0, block_m)

    k_ptr += batch * k_batch_stride
    v_ptr += batch * v_batch_stride
    q = load_tile(q_ptr + batch * q_batch_stride, queries, n_q, q_row_stride, q_dim_stride, head_dim)

    acc = tl.zeros((block_m, head_dim), dtype=tl.float32)
    row_max = tl.full((block_m,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((block_m,), dtype=tl.float32)
    scale_log2 = scale * LOG2_E

    n_full, n_end = key_range(first_query, n_k, block_m, block_n, is_causal)
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, queries, k_ptr, v_ptr, 0, n_full, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, False,
    )  # fmt: skip
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, q, queries, k_ptr, v_ptr, n_full, n_end, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, True,
    )  # fmt: skip

    # Lines 12 and 13: divide by the sum once, at the end; L = m + log Σ, back from base 2 to base e.
    store_tile(o_ptr + batch * n_q * head_dim, acc / row_sum[:, None], queries, n_q, head_dim)
    lse = (row_max + tl.log2(row_sum)) * LN_2
    tl.store(lse_ptr + batch * n_q + queries, lse, mask=queries < n_q)


# ------------------------------------------------------------------------------------------------------------
# Backward: Algorithm 2, as two kernels so that every output has one writer: deterministic, without atomics
#
#     P = exp(S − L)      dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP − delta)      delta = rowsum(dO ∘ O)
#     dQ = scale · dS K   dK = scale · dSᵀ Q
#
# delta is what softmax's Jacobian needs, Σ_j P_ij dP_ij = Σ_j P_ij (dO_i · V_j) = dO_i · O_i: a row sum over
# head_dim numbers instead of n_k (appendix B.2 of FlashAttention, Dao et al. 2022, arXiv 2205.14135).
# ------------------------------------------------------------------------------------------------------------


@triton.jit
def accumulate_dq(
    dq, q, do, lse_log2, delta, queries, k_ptr, v_ptr, first_key, last_key, n_k, scale_log2,
    k_row_stride, k_dim_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """dq + Σ dS K over keys first_key … last_key."""
    for start in range(first_key, last_key, block_n):
        keys = start + tl.arange(0, block_n)
        k = load_tile(k_ptr, keys, n_k, k_row_stride, k_dim_stride, head_dim)
        v = load_tile(v_ptr, keys, n_k, v_row_stride, v_dim_stride, head_dim)

        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale_log2 - lse_log2[:, None])
        if is_masked:
            visible = is_visible(queries[:, None], keys[None, :], n_k, is_causal)
            p = tl.where(visible, p, 0.0)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(k.dtype), k)
    return dq


@triton.jit
def flash_backward_dq_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_m rows of dQ, and of delta for the kernel that follows.

    Arguments as for flash_forward_kernel; o_ptr, do_ptr, dq_ptr: (batch, n_q, head_dim) contiguous;
    lse_ptr (read), delta_ptr (written): (batch, n_q) float32, contiguous.
    """
    n_blocks = tl.cdiv(n_q, block_m)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
    first_query = (n_blocks - 1 - tl.program_id(0) % n_blocks) * block_m
    queries = first_query + tl.arange(0, block_m)

    k_ptr += batch * k_batch_stride
    v_ptr += batch * v_batch_stride
    q = load_tile(q_ptr + batch * q_batch_stride, queries, n_q, q_row_stride, q_dim_stride, head_dim)
    o = load_tile(o_ptr + batch * n_q * head_dim, queries, n_q, head_dim, 1, head_dim)
    do = load_tile(do_ptr + batch * n_q * head_dim, queries, n_q, head_dim, 1, head_dim)

    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    tl.store(delta_ptr + batch * n_q + queries, delta, mask=queries < n_q)
    lse_log2 = tl.load(lse_ptr + batch * n_q + queries, mask=queries < n_q, other=0.0) * LOG2_E

    dq = tl.zeros((block_m, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    n_full, n_end = key_range(first_query, n_k, block_m, block_n, is_causal)
    dq = accumulate_dq(
        dq, q, do, lse_log2, delta, queries, k_ptr, v_ptr, 0, n_full, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, False,
    )  # fmt: skip
    dq = accumulate_dq(
        dq, q, do, lse_log2, delta, queries, k_ptr, v_ptr, n_full, n_end, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, True,
    )  # fmt: skip
    store_tile(dq_ptr + batch * n_q * head_dim, dq * scale, queries, n_q, head_dim)


@triton.jit
def accumulate_dk_dv(
    dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr, first_query, last_query, n_q, scale_log2,
    q_row_stride, q_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """dk + Σ dSᵀ Q and dv + Σ Pᵀ dO over queries first_query … last_query.

    Everything here is transposed from the start, keys by queries: Sᵀ = K Qᵀ costs the same as S, and Pᵀ and
    dSᵀ then stand in the registers as the next products want them. Transposing P there instead, dot(trans(p),
    do), spills and gives wrong results on Hopper with Triton 3.4 to 3.6.
    """
    for start in range(first_query, last_query, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_ptr, queries, n_q, q_row_stride, q_dim_stride, head_dim)
        do = load_tile(do_ptr, queries, n_q, head_dim, 1, head_dim)
        # L = +∞ for the rows beyond n_q: exp(S − L) = 0, so they attend to nothing.
        lse_log2 = tl.load(lse_ptr + queries, mask=queries < n_q, other=float("inf")) * LOG2_E
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)

        p_t = tl.exp2(tl.dot(k, tl.trans(q)) * scale_log2 - lse_log2[None, :])
        if is_masked:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv += tl.dot(p_t.to(do.dtype), do)
        dp_t = tl.dot(v, tl.trans(do))
        ds_t = p_t * (dp_t - delta[None, :])
        dk += tl.dot(ds_t.to(q.dtype), q)
    return dk, dv


@triton.jit
def flash_backward_dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_n rows of dK and dV.

    Arguments as for flash_backward_dq_kernel, but delta_ptr is read; dk_ptr, dv_ptr: (batch, n_k, head_dim),
    contiguous.
    """
    n_blocks = tl.cdiv(n_k, block_n)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
    first_key = tl.program_id(0) % n_blocks * block_n  # under a causal mask the first keys are seen the most
    keys = first_key + tl.arange(0, block_n)

    q_ptr += batch * q_batch_stride
    do_ptr += batch * n_q * head_dim
    lse_ptr += batch * n_q
    delta_ptr += batch * n_q
    k = load_tile(k_ptr + batch * k_batch_stride, keys, n_k, k_row_stride, k_dim_stride, head_dim)
    v = load_tile(v_ptr + batch * v_batch_stride, keys, n_k, v_row_stride, v_dim_stride, head_dim)

    dk = tl.zeros((block_n, head_dim), dtype=tl.float32)
    dv = tl.zeros((block_n, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E

    # Keys beyond n_k need no mask: each key is a row of these tiles, and those rows are not stored.
    first_full_query = 0
    if is_causal:
        # Queries before first_key see none of these keys; up to first_full_query the diagonal cuts the tiles.
        first_query = first_key // block_m * block_m
        first_full_query = tl.cdiv(first_key + block_n, block_m) * block_m
        dk, dv = accumulate_dk_dv(
            dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr,
            first_query, tl.minimum(first_full_query, n_q), n_q, scale_log2,
            q_row_stride, q_dim_stride, head_dim, block_m, True,
        )  # fmt: skip
    dk, dv = accumulate_dk_dv(
        dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr, first_full_query, n_q, n_q, scale_log2,
        q_row_stride, q_dim_stride, head_dim, block_m, False,
    )  # fmt: skip

    store_tile(dk_ptr + batch * n_k * head_dim, dk * scale, keys, n_k, head_dim)
    store_tile(dv_ptr + batch * n_k * head_dim, dv, keys, n_k, head_dim)


# ------------------------------------------------------------------------------------------------------------
# Python
# ------------------------------------------------------------------------------------------------------------


def check_inputs(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> None:
    """Raise ValueError or TypeError unless q, k, v are as `flash_attention` wants them."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 3:
        raise ValueError(f"flash_attention: q, k and v must be (batch, sequence, head_dim): {shapes}")
    if k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[2] != k.shape[2]:
        raise ValueError(f"flash_attention: batch, head_dim, and k's and v's length must agree: {shapes}")
    if q.shape[2] not in (16, 32, 64, 128):
        raise ValueError(f"flash_attention: head_dim must be 16, 32, 64 or 128, not {q.shape[2]}")
    if k.shape[1] == 0:
        raise ValueError(f"flash_attention: there must be at least one key: {shapes}")
    if is_causal and q.shape[1] != k.shape[1]:
        raise ValueError(f"flash_attention: a causal mask needs as many queries as keys: {shapes}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16) or not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            "flash_attention: q, k and v must be of one dtype out of float32, float16 and bfloat16: "
            f"q {q.dtype}, k {k.dtype}, v {v.dtype}"
        )
    if not q.device == k.device == v.device:
        devices = f"q {q.device}, k {k.device}, v {v.device}"
        raise ValueError(f"flash_attention: q, k and v must be on one device: {devices}")


def on_device(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


class FlashAttention(torch.autograd.Function):
    """`FlashAttention.apply(q, k, v, is_causal)`: see `flash_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        check_inputs(q, k, v, is_causal)
        (batch, n_q, head_dim), n_k = q.shape, k.shape[1]
        o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        # An error in L is a relative error of every P in its row: 16 bits are too few.
        lse = torch.empty((batch, n_q), dtype=torch.float32, device=q.device)

        tile = FORWARD_TILES[q.element_size(), head_dim]
        if o.numel() > 0:
            with on_device(q):
                flash_forward_kernel[(batch * triton.cdiv(n_q, tile.block_m),)](
                    q, k, v, o, lse, n_q, n_k, 1 / math.sqrt(head_dim),
                    *q.stride(), *k.stride(), *v.stride(),
                    head_dim=head_dim, block_m=tile.block_m, block_n=tile.block_n, is_causal=is_causal,
                    num_warps=tile.num_warps, num_stages=tile.num_stages,
                )  # fmt: skip

        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, o, lse = ctx.saved_tensors
        (batch, n_q, head_dim), n_k = q.shape, k.shape[1]
        if o.numel() == 0:
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), None

        do = do.contiguous()  # o.sum().backward() sends one number with strides 0
        delta = torch.empty_like(lse)
        dq = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        dk, dv = (torch.empty(k.shape, dtype=k.dtype, device=k.device) for _ in range(2))
        sizes = (n_q, n_k, 1 / math.sqrt(head_dim), *q.stride(), *k.stride(), *v.stride())
        with on_device(q):
            # In this order: the first kernel writes the delta that the second reads.
            tile = DQ_TILES[q.element_size(), head_dim]
            flash_backward_dq_kernel[(batch * triton.cdiv(n_q, tile.block_m),)](
                q, k, v, o, do, lse, delta, dq, *sizes,
                head_dim=head_dim, block_m=tile.block_m, block_n=tile.block_n, is_causal=ctx.is_causal,
                num_warps=tile.num_warps, num_stages=tile.num_stages,
            )  # fmt: skip
            tile = DK_DV_TILES[q.element_size(), head_dim]
            flash_backward_dk_dv_kernel[(batch * triton.cdiv(n_k, tile.block_n),)](
                q, k, v, do, lse, delta, dk, dv, *sizes,
                head_dim=head_dim, block_m=tile.block_m, block_n=tile.block_n, is_causal=ctx.is_causal,
                num_warps=tile.num_warps, num_stages=tile.num_stages,
            )  # fmt: skip
        return dq, dk, dv, None


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(q kᵀ / √head_dim) v, differentiable once in q, k and v.

    q: (batch, n_q, head_dim); k, v: (batch, n_k, head_dim), with heads folded into batch; head_dim 16, 32, 64
    or 128; n_q and n_k free, but equal if is_causal (query i then sees keys 0 … i). float32, float16 or
    bfloat16, all the same; any strides. float32 products are TF32 on a GPU.
    Returns o: (batch, n_q, head_dim), contiguous, in the inputs' dtype, as are the gradients.
    Raises ValueError for other shapes, TypeError for other dtypes.
    """
    return FlashAttention.apply(q, k, v, is_causal)
