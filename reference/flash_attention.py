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

The kernels take exponentials by exp2: P = exp2(scale · log₂e · (Q Kᵀ) − log₂e · L), one multiply-add per score. The
kernel of dQ multiplies L by log₂e once for each row, and leaves the product to the kernel of dK and dV.

Tiles are loaded and stored by tensor descriptors: one instruction asks Hopper's copy engine for a whole tile, so that
no registers hold addresses and no threads are busy with loads. Older GPUs have no copy engine, and get pointers.
"""

import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the least finite float32
CACHE_BYTES = 48 << 20  # about an H200's L2; on a GPU with less, more loads miss


class Tile(NamedTuple):
    """A kernel's tile of S, block_m queries × block_n keys, and Triton's options for the kernel."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int  # tiles of the inner loop in shared memory at a time: loads run ahead of the products


# By (bytes per element, head_dim). The tiles for 64 and 128 in 16 bits, and for 64 in float32, are the fastest of many
# on an H200; the others were not searched for. With pointers all fit into the 99 KB of shared memory of a block on
# sm_86.
FORWARD_TILES = {
    (2, 16): Tile(128, 64, 4, 3),
    (2, 32): Tile(128, 64, 4, 3),
    (2, 64): Tile(128, 64, 4, 3),
    (2, 128): Tile(128, 64, 4, 2),
    (4, 16): Tile(128, 64, 4, 3),
    (4, 32): Tile(128, 64, 4, 3),
    (4, 64): Tile(128, 32, 8, 2),
    (4, 128): Tile(128, 32, 8, 2),
}
# Where there is a copy engine. Without a mask all programs have the same work, and small ones, three of which share a
# multiprocessor, win: on an H100.
NOT_CAUSAL_TILES = {(2, 64): Tile(64, 128, 4, 2)}
DQ_TILES = {
    (2, 16): Tile(64, 64, 4, 3),
    (2, 32): Tile(64, 64, 4, 3),
    (2, 64): Tile(64, 64, 4, 3),
    (2, 128): Tile(64, 64, 4, 2),
    (4, 16): Tile(128, 64, 8, 2),
    (4, 32): Tile(128, 64, 8, 2),
    (4, 64): Tile(128, 32, 8, 3),
    (4, 128): Tile(32, 32, 4, 2),
}
DK_DV_TILES = {
    (2, 16): Tile(64, 64, 4, 3),
    (2, 32): Tile(64, 64, 4, 3),
    (2, 64): Tile(64, 64, 4, 3),
    (2, 128): Tile(64, 64, 4, 2),
    (4, 16): Tile(64, 128, 8, 2),
    (4, 32): Tile(32, 128, 8, 2),
    (4, 64): Tile(32, 128, 4, 2),
    (4, 128): Tile(32, 32, 4, 2),
}
# For inputs so small that these tiles would leave most multiprocessors without a program. For kernels that keep queries
# (forward, dQ); with block_m and block_n exchanged, for the kernel that keeps keys. Among the fastest of several at 2 ×
# 1024 tokens on an H200.
SMALL_TILES = {
    (2, 16): Tile(32, 128, 2, 3),
    (2, 32): Tile(16, 128, 4, 3),
    (2, 64): Tile(16, 128, 4, 3),
    (2, 128): Tile(16, 64, 4, 3),
    (4, 16): Tile(16, 64, 2, 3),
    (4, 32): Tile(16, 128, 4, 3),
    (4, 64): Tile(16, 128, 4, 3),
    (4, 128): Tile(16, 64, 4, 3),
}


@triton.jit
def load_tile(x, batch, row, n_rows, block: tl.constexpr, head_dim: tl.constexpr):
    """Rows row … row + block of x[batch]: (block, head_dim). Rows beyond its end are 0.

    x: (batch, n_rows, head_dim), as a descriptor for such tiles or as a pointer.
    """
    if x.dtype.is_ptr():
        rows = row + tl.arange(0, block)
        tile = tl.load(x + offsets_of(batch, rows, n_rows, head_dim), mask=rows[:, None] < n_rows, other=0.0)
    else:
        tile = x.load([batch, row, 0]).reshape(block, head_dim)
    return tile


@triton.jit
def store_tile(x, tile, batch, row, n_rows, block: tl.constexpr, head_dim: tl.constexpr):
    """The counterpart of load_tile. Converts to x's dtype; rows beyond the end are not stored."""
    if x.dtype.is_ptr():
        rows = row + tl.arange(0, block)
        tile = tile.to(x.dtype.element_ty)
        tl.store(x + offsets_of(batch, rows, n_rows, head_dim), tile, mask=rows[:, None] < n_rows)
    else:
        x.store([batch, row, 0], tile.to(x.dtype).reshape(1, block, head_dim))


@triton.jit
def offsets_of(batch, rows, n_rows, head_dim: tl.constexpr):
    """Offsets of the elements of these rows in a contiguous (batch, n_rows, head_dim); int64, because they may pass
    2³¹.
    """
    return (batch.to(tl.int64) * n_rows + rows)[:, None] * head_dim + tl.arange(0, head_dim)[None, :]


@triton.jit
def is_visible(queries, keys, n_k, is_causal: tl.constexpr):
    """A mask of the keys that each query may attend to; broadcasts to (queries, keys)."""
    # Under a causal mask there are as many keys as queries, so the diagonal bounds the keys as well.
    return keys[None, :] <= queries[:, None] if is_causal else keys[None, :] < n_k


@triton.jit
def ends_of_keys(first_query, n_k, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr):
    """n_full, the first key of the first tile that needs a mask, and n_end, the first key that no query of this block sees.

    The tiles in between are cut by the diagonal or by the end of the keys.
    """
    n_full = n_k // block_n * block_n
    n_end = n_k
    if is_causal:
        n_full = tl.minimum(first_query + 1, n_k) // block_n * block_n
        n_end = tl.minimum(first_query + block_m, n_k)
    return n_full, n_end


# ------------------------------------------------------------------------------------------------------------
# Forward: Algorithm 1
# ------------------------------------------------------------------------------------------------------------


@triton.jit
def place_of(n_blocks, batches_at_once):
    """The batch entry, and the number of the block among its n_blocks, for this program.

    GPUs start programs in the order of their numbers. Under a causal mask block 0 has the most work, so the programs for
    block 0 of batches_at_once batches come first, then those for block 1, and no long program starts at the end. Not of
    all batches at once: the K and V that programs share should still be in the L2 cache for the next program.
    """
    per_group = batches_at_once * n_blocks
    first_batch = tl.program_id(0) // per_group * batches_at_once
    batches = tl.minimum(batches_at_once, tl.num_programs(0) // n_blocks - first_batch)
    number = tl.program_id(0) % per_group
    return first_batch + number % batches, number // batches


@triton.jit(do_not_specialize=["batches_at_once"])
def flash_forward_kernel(
    q_mem, k_mem, v_mem, o_mem, lse_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_m rows of O and L.

    q_mem, o_mem: (batch, n_q, head_dim) as load_tile takes them, by tiles of block_m rows; k_mem, v_mem:
    (batch, n_k, head_dim), by tiles of block_n rows; lse_ptr: (batch, n_q) float32, contiguous, for L.
    """
    n_blocks = tl.cdiv(n_q, block_m)
    batch, block = place_of(n_blocks, batches_at_once)
    first_query = (n_blocks - 1 - block) * block_m  # the last queries first: they see the most keys
    queries = first_query + tl.arange(0, block_m)
    q = load_tile(q_mem, batch, first_query, n_q, block_m, head_dim)

    # Invariant, over the keys j seen so far and with s = scale · log₂e · q kᵀ:
    #     row_max = max(LOWEST, max_j s_j),   row_sum = Σ_j exp2(s_j − row_max),   acc = Σ_j exp2(s_j − row_max) v_j
    acc = tl.zeros((block_m, head_dim), dtype=tl.float32)
    row_max = tl.full((block_m,), LOWEST, dtype=tl.float32)
    row_sum = tl.zeros((block_m,), dtype=tl.float32)
    scale_log2 = scale * LOG2_E

    n_full, n_end = ends_of_keys(first_query, n_k, block_m, block_n, is_causal)
    for is_masked in tl.static_range(2):
        for start in range(n_full if is_masked else 0, n_end if is_masked else n_full, block_n):
            # Lines 6 to 11: the online softmax, weighing V as it goes.
            k = load_tile(k_mem, batch, start, n_k, block_n, head_dim)
            scores = tl.dot(q, k.T)
            if is_masked:
                visible = is_visible(queries, start + tl.arange(0, block_n), n_k, is_causal)
                scores = tl.where(visible, scores, float("-inf"))

            # scale > 0, so the maximum may be scaled instead of every score. While all scores of a row are −inf, its
            # maximum is LOWEST and its sums are 0; with a maximum of −inf, −inf − (−inf) would be NaN.
            # The order that softmax.py warns of: here the multiply-add below rounds once, and the error of new_max is
            # in every number of its row, so that it cancels in acc / row_sum.
            new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
            p = tl.exp2(scores * scale_log2 - new_max[:, None])
            rescale = tl.exp2(row_max - new_max)
            row_sum = row_sum * rescale + tl.sum(p, axis=1)
            acc = acc * rescale[:, None]
            v = load_tile(v_mem, batch, start, n_k, block_n, head_dim)
            acc = tl.dot(p.to(v.dtype), v, acc)
            row_max = new_max

    # Lines 12 and 13: divide by the sum once, at the end; L = ln 2 · (row_max + log₂ row_sum).
    store_tile(o_mem, acc / row_sum[:, None], batch, first_query, n_q, block_m, head_dim)
    lse = (row_max + tl.log2(row_sum)) * LN_2
    tl.store(lse_ptr + batch.to(tl.int64) * n_q + queries, lse, mask=queries < n_q)


# ------------------------------------------------------------------------------------------------------------
# Backward: Algorithm 2, as two kernels so that every output has one writer: deterministic, without atomics
#
#     P = exp(S − L)      dV = Pᵀ dO      dP = dO Vᵀ      dS = P ∘ (dP − delta)      delta = rowsum(dO ∘ O)
#     dQ = scale · dS K   dK = scale · dSᵀ Q
#
# delta is what softmax's Jacobian needs, Σ_j P_ij dP_ij = Σ_j P_ij (dO_i · V_j) = dO_i · O_i: a row sum over
# head_dim numbers instead of n_k (appendix B.2 of FlashAttention, Dao et al. 2022, arXiv 2205.14135).
#
# Both ask for S and dP at once and take the exponentials then: the tensor cores work on dP meanwhile. dQ skips the
# mask in tiles that need none, and has one loop for both kinds, since two spill in float32 at head_dim 128. dK and dV
# need a mask only if is_causal, and then have it in every tile: a branch or a second loop took longer there.
# ------------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["batches_at_once"])
def flash_backward_dq_kernel(
    q_mem, k_mem, v_mem, o_mem, do_mem, dq_mem, lse_ptr, lse_log2_ptr, delta_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_m rows of dQ, and of log₂e · L and delta for the kernel that follows.

    Arguments as for flash_forward_kernel; o_mem, do_mem, dq_mem are like q_mem; lse_ptr (read), lse_log2_ptr,
    delta_ptr (written): (batch, n_q) float32, contiguous.
    """
    n_blocks = tl.cdiv(n_q, block_m)
    batch, block = place_of(n_blocks, batches_at_once)
    first_query = (n_blocks - 1 - block) * block_m
    queries = first_query + tl.arange(0, block_m)
    q = load_tile(q_mem, batch, first_query, n_q, block_m, head_dim)
    o = load_tile(o_mem, batch, first_query, n_q, block_m, head_dim)
    do = load_tile(do_mem, batch, first_query, n_q, block_m, head_dim)

    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    first_row = batch.to(tl.int64) * n_q  # int64: batch · n_q may pass 2³¹
    tl.store(delta_ptr + first_row + queries, delta, mask=queries < n_q)
    lse_log2 = tl.load(lse_ptr + first_row + queries, mask=queries < n_q, other=0.0) * LOG2_E
    tl.store(lse_log2_ptr + first_row + queries, lse_log2, mask=queries < n_q)

    dq = tl.zeros((block_m, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    n_full, n_end = ends_of_keys(first_query, n_k, block_m, block_n, is_causal)
    for start in range(0, n_end, block_n):
        k = load_tile(k_mem, batch, start, n_k, block_n, head_dim)
        v = load_tile(v_mem, batch, start, n_k, block_n, head_dim)
        s = tl.dot(q, k.T)
        dp = tl.dot(do, v.T)
        p = tl.exp2(s * scale_log2 - lse_log2[:, None])
        if start >= n_full:
            p = tl.where(is_visible(queries, start + tl.arange(0, block_n), n_k, is_causal), p, 0.0)
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    store_tile(dq_mem, dq * scale, batch, first_query, n_q, block_m, head_dim)


@triton.jit(do_not_specialize=["batches_at_once"])
def flash_backward_dk_dv_kernel(
    q_mem, k_mem, v_mem, do_mem, dk_mem, dv_mem, lse_log2_ptr, delta_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_n rows of dK and dV.

    Arguments as for flash_backward_dq_kernel, but lse_log2_ptr and delta_ptr are read; dk_mem, dv_mem are like k_mem.

    Everything here is transposed from the start, keys by queries: Sᵀ = K Qᵀ costs the same as S, and Pᵀ and
    dSᵀ then stand in the registers as the next products want them. Transposing P there instead, dot(trans(p),
    do), spills and gives wrong results on Hopper with Triton 3.4 to 3.6.
    """
    batch, block = place_of(tl.cdiv(n_k, block_n), batches_at_once)
    first_key = block * block_n  # under a causal mask the first keys are seen the most
    keys = first_key + tl.arange(0, block_n)
    k = load_tile(k_mem, batch, first_key, n_k, block_n, head_dim)
    v = load_tile(v_mem, batch, first_key, n_k, block_n, head_dim)
    lse_log2_ptr += batch.to(tl.int64) * n_q
    delta_ptr += batch.to(tl.int64) * n_q

    dk = tl.zeros((block_n, head_dim), dtype=tl.float32)
    dv = tl.zeros((block_n, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    first_query = 0
    if is_causal:
        first_query = first_key // block_m * block_m  # queries before it see none of these keys
    for start in range(first_query, n_q, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_mem, batch, start, n_q, block_m, head_dim)
        do = load_tile(do_mem, batch, start, n_q, block_m, head_dim)
        # Rows beyond n_q are 0 in q and do, so with 0 for L and delta they are 1 in P and 0 in dS, and add 0 to dV and
        # dK, as long as k and v are finite. Keys beyond n_k need no mask: each key is a row of these tiles, and those
        # rows are not stored.
        lse_log2 = tl.load(lse_log2_ptr + queries, mask=queries < n_q, other=0.0)
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)
        s_t = tl.dot(k, q.T)
        dp_t = tl.dot(v, do.T)
        p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])
        if is_causal:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv = tl.dot(p_t.to(do.dtype), do, dv)
        ds_t = p_t * (dp_t - delta[None, :])
        dk = tl.dot(ds_t.to(q.dtype), q, dk)
    store_tile(dk_mem, dk * scale, batch, first_key, n_k, block_n, head_dim)
    store_tile(dv_mem, dv, batch, first_key, n_k, block_n, head_dim)


# ------------------------------------------------------------------------------------------------------------
# Python
# ------------------------------------------------------------------------------------------------------------


def check_inputs(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> None:
    """Raise ValueError or TypeError unless q, k, v are as `flash_attention` says."""
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
    """Make x's device current: Triton launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def addressable(x: Tensor) -> Tensor:
    """x, or a copy of x, in the form that kernels and descriptors need: dense, and starting at a multiple of 16 bytes.

    A tensor such as z.conj().imag holds the negatives of its numbers in memory, and is copied too.
    """
    x = x.resolve_neg().contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def has_copy_engine(x: Tensor) -> bool:
    """Whether x is on a GPU, and not in an interpreter, with a copy engine that multiplies tiles in shared memory: sm_90 or sm_100."""
    return x.is_cuda and not triton.knobs.runtime.interpret and torch.cuda.get_device_capability(x.device)[0] in (9, 10)


def by_tiles(rows: int, *tensors: Tensor) -> list[Any]:
    """Arguments by which kernels access (batch, n, head_dim) tensors: descriptors for tiles of `rows` rows, or
    pointers.

    Pointers for a GPU without a copy engine: Triton would turn descriptors into loads with more registers than there
    are. Strides are computed, because a dimension of size 1 may have any stride.
    """
    if not has_copy_engine(tensors[0]):
        return list(tensors)
    return [
        TensorDescriptor(x, [batch, n, head_dim], [n * head_dim, head_dim, 1], [1, rows, head_dim])
        for x in tensors
        for batch, n, head_dim in [x.shape]
    ]


def multiprocessors(x: Tensor) -> int:
    """The number of multiprocessors of x's GPU; 0 on a CPU."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 0


def tile_of(tiles: dict[tuple[int, int], Tile], x: Tensor, of_keys: bool = False) -> Tile:
    """The tile for a kernel whose programs keep rows of x (batch, n, head_dim): queries, or with `of_keys` keys."""
    batch, n, head_dim = x.shape
    tile, small = (table[x.element_size(), head_dim] for table in (tiles, SMALL_TILES))
    if of_keys:
        small = small._replace(block_m=small.block_n, block_n=small.block_m)
    programs = batch * triton.cdiv(n, tile.block_n if of_keys else tile.block_m)
    return small if has_copy_engine(x) and 2 * programs <= multiprocessors(x) else tile


def batches_at_once(x: Tensor, is_causal: bool) -> int:
    """For place_of: how many batches to group, so that two tensors like x (batch, n, head_dim) of each fit into L2, in
    equal groups.
    """
    if not is_causal:
        return 1  # all blocks have the same work, and blocks of one batch share the most
    fitting = max(1, CACHE_BYTES // (2 * max(1, x[0].numel()) * x.element_size()))
    return triton.cdiv(x.shape[0], triton.cdiv(x.shape[0], fitting))


def options(tile: Tile, x: Tensor) -> dict[str, int]:
    """Launch options for this tile. Without a copy engine operands of products lie in registers, which needs more
    warps.
    """
    return tile._asdict() | ({} if has_copy_engine(x) else {"num_warps": 8})


class FlashAttention(torch.autograd.Function):
    """`FlashAttention.apply(q, k, v, is_causal)`: see `flash_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        check_inputs(q, k, v, is_causal)
        q, k, v = addressable(q), addressable(k), addressable(v)
        (batch, n_q, head_dim), n_k = q.shape, k.shape[1]
        o = torch.empty_like(q)
        # An error in L is a relative error of every P in its row: 16 bits are too few.
        lse = torch.empty((batch, n_q), dtype=torch.float32, device=q.device)

        if o.numel() > 0:
            tile = tile_of(FORWARD_TILES | ({} if is_causal or not has_copy_engine(q) else NOT_CAUSAL_TILES), q)
            q_mem, o_mem = by_tiles(tile.block_m, q, o)
            k_mem, v_mem = by_tiles(tile.block_n, k, v)
            with on_device(q):
                flash_forward_kernel[(batch * triton.cdiv(n_q, tile.block_m),)](
                    q_mem, k_mem, v_mem, o_mem, lse, n_q, n_k, 1 / math.sqrt(head_dim), batches_at_once(k, is_causal),
                    head_dim=head_dim, is_causal=is_causal, **options(tile, q),
                )  # fmt: skip

        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """dq, dk, dv. PyTorch takes these as constants, and raises a RuntimeError for a second derivative."""
        q, k, v, o, lse = ctx.saved_tensors
        (batch, n_q, head_dim), n_k = q.shape, k.shape[1]
        if o.numel() == 0:
            return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), None

        do = addressable(do)  # o.sum().backward() passes one number with strides 0
        lse_log2, delta = torch.empty_like(lse), torch.empty_like(lse)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        lengths = (n_q, n_k, 1 / math.sqrt(head_dim))
        with on_device(q):
            # In this order: the first kernel writes the lse_log2 and the delta that the second reads.
            tile = tile_of(DQ_TILES, q)
            q_mem, o_mem, do_mem, dq_mem = by_tiles(tile.block_m, q, o, do, dq)
            k_mem, v_mem = by_tiles(tile.block_n, k, v)
            flash_backward_dq_kernel[(batch * triton.cdiv(n_q, tile.block_m),)](
                q_mem, k_mem, v_mem, o_mem, do_mem, dq_mem, lse, lse_log2, delta, *lengths, batches_at_once(k, ctx.is_causal),
                head_dim=head_dim, is_causal=ctx.is_causal, **options(tile, q),
            )  # fmt: skip
            tile = tile_of(DK_DV_TILES, k, of_keys=True)
            q_mem, do_mem = by_tiles(tile.block_m, q, do)
            k_mem, v_mem, dk_mem, dv_mem = by_tiles(tile.block_n, k, v, dk, dv)
            flash_backward_dk_dv_kernel[(batch * triton.cdiv(n_k, tile.block_n),)](
                q_mem, k_mem, v_mem, do_mem, dk_mem, dv_mem, lse_log2, delta, *lengths, batches_at_once(q, ctx.is_causal),
                head_dim=head_dim, is_causal=ctx.is_causal, **options(tile, q),
            )  # fmt: skip
        return dq, dk, dv, None


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """softmax(q kᵀ / √head_dim) v, differentiable once in q, k and v.

    q: (batch, n_q, head_dim); k, v: (batch, n_k, head_dim), with heads folded into batch; head_dim 16, 32, 64
    or 128; n_q and n_k free, but equal if is_causal (query i then sees keys 0 … i). float32, float16 or
    bfloat16, all the same; any strides. float32 products are TF32 on a GPU.
    Returns o: (batch, n_q, head_dim), contiguous, in the inputs' dtype, as are the gradients. These come from L, which
    float32 rounds: with scores of 10⁴ a P may be off by 0.1 %, and with scores of 10⁷ hardly a digit is left.
    Raises ValueError for other shapes, TypeError for other dtypes.
    """
    return FlashAttention.apply(q, k, v, is_causal)
