"""FlashAttention: the reference's kernels with other tiles, loads by descriptors, and a backward pass that adds dQ up by atomics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from reference import flash_attention as reference
from reference.flash_attention import is_visible, key_range, load_tile, store_tile

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
Forward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], tuple[torch.Tensor, torch.Tensor]]
Backward = Callable[..., tuple[torch.Tensor, ...]]


def tiles(head_dim: int, ms: tuple[int, ...], ns: tuple[int, ...]) -> Iterator[tuple[int, int, int, int]]:
    """block_m, block_n, warps, stages that may be worth a try."""
    for m, n, warps, stages in product(ms, ns, (4, 8), (2, 3, 4)):
        registers = (m * n + m * head_dim) / (32 * warps)
        shared = 2 * (m + 2 * n * stages) * head_dim
        if 48 <= registers <= 200 and shared <= 160 * 1024:
            yield m, n, warps, stages


# Forward
# ----------------------------------------------------------------------------------------------------------------------


def forward_variants(head_dim: int) -> Iterator[tuple[str, Forward]]:
    for tile in tiles(head_dim, (64, 128, 256), (32, 64, 128)):
        yield f"pointers {tile}", _forward(tile)
        yield f"pointers, scores ahead {tile}", _forward(tile, ahead_forward_kernel)
        yield f"descriptors {tile}", _forward_by_descriptors(tile)
        yield f"descriptors, scores ahead {tile}", _forward_by_descriptors(tile, ahead=True)


def _forward(tile: tuple[int, int, int, int], kernel: Any = reference.flash_forward_kernel) -> Forward:
    block_m, block_n, warps, stages = tile

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
        (batch, n, head_dim), o = q.shape, torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        kernel[(batch * triton.cdiv(n, block_m),)](
            q, k, v, o, lse, n, k.shape[1], 1 / math.sqrt(head_dim), *q.stride(), *k.stride(), *v.stride(),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return o, lse

    return run


def _forward_by_descriptors(tile: tuple[int, int, int, int], ahead: bool = False) -> Forward:
    block_m, block_n, warps, stages = tile

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
        (batch, n, head_dim), o = q.shape, torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        rows, columns = [1, block_m, head_dim], [1, block_n, head_dim]
        descriptor_forward_kernel[(batch * triton.cdiv(n, block_m),)](
            TensorDescriptor.from_tensor(q, rows), TensorDescriptor.from_tensor(k, columns),
            TensorDescriptor.from_tensor(v, columns), TensorDescriptor.from_tensor(o, rows),
            lse, n, k.shape[1], 1 / math.sqrt(head_dim),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal, ahead=ahead,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return o, lse

    return run


@triton.jit
def attend_by_descriptors(
    acc, row_max, row_sum, q, queries, k_desc, v_desc, batch, first_key, last_key, n_k, scale_log2,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    for start in range(first_key, last_key, block_n):
        k = k_desc.load([batch, start, 0]).reshape(block_n, head_dim)
        scores = tl.dot(q, k.T)
        if is_masked:
            keys = start + tl.arange(0, block_n)
            scores = tl.where(is_visible(queries[:, None], keys[None, :], n_k, is_causal), scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        v = v_desc.load([batch, start, 0]).reshape(block_n, head_dim)
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max
    return acc, row_max, row_sum


@triton.jit
def attend_ahead_by_descriptors(
    acc, row_max, row_sum, scores, q, queries, k_desc, v_desc, batch, first_key, last_key, n_k, scale_log2,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """`attend_ahead` with tiles that come by descriptors; beyond the last key they are 0."""
    for start in range(first_key, last_key, block_n):
        following = tl.dot(q, k_desc.load([batch, start + block_n, 0]).reshape(block_n, head_dim).T)
        if is_masked:
            keys = start + tl.arange(0, block_n)
            scores = tl.where(is_visible(queries[:, None], keys[None, :], n_k, is_causal), scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        v = v_desc.load([batch, start, 0]).reshape(block_n, head_dim)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        row_max = new_max
        scores = following
    return acc, row_max, row_sum, scores


@triton.jit
def attend_ahead(
    acc, row_max, row_sum, scores, q, queries, k_ptr, v_ptr, first_key, last_key, n_k, scale_log2,
    k_row_stride, k_dim_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """The tensor cores work on the next tile's scores while this one's softmax is computed. `scores` are those of first_key."""
    for start in range(first_key, last_key, block_n):
        keys = start + tl.arange(0, block_n)
        k = load_tile(k_ptr, keys + block_n, n_k, k_row_stride, k_dim_stride, head_dim)
        v = load_tile(v_ptr, keys, n_k, v_row_stride, v_dim_stride, head_dim)
        following = tl.dot(q, tl.trans(k))
        if is_masked:
            scores = tl.where(is_visible(queries[:, None], keys[None, :], n_k, is_causal), scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
        p = tl.exp2(scores * scale_log2 - new_max[:, None])
        rescale = tl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
        row_max = new_max
        scores = following
    return acc, row_max, row_sum, scores


@triton.jit
def ahead_forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that each tile's scores are computed a step ahead of their softmax."""
    n_blocks = tl.cdiv(n_q, block_m)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
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
    k = load_tile(k_ptr, tl.arange(0, block_n), n_k, k_row_stride, k_dim_stride, head_dim)
    scores = tl.dot(q, tl.trans(k))
    acc, row_max, row_sum, scores = attend_ahead(
        acc, row_max, row_sum, scores, q, queries, k_ptr, v_ptr, 0, n_full, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, False,
    )  # fmt: skip
    acc, row_max, row_sum, scores = attend_ahead(
        acc, row_max, row_sum, scores, q, queries, k_ptr, v_ptr, n_full, n_end, n_k, scale_log2,
        k_row_stride, k_dim_stride, v_row_stride, v_dim_stride, head_dim, block_n, is_causal, True,
    )  # fmt: skip
    store_tile(o_ptr + batch * n_q * head_dim, acc / row_sum[:, None], queries, n_q, head_dim)
    lse = (row_max + tl.log2(row_sum)) * LN_2
    tl.store(lse_ptr + batch * n_q + queries, lse, mask=queries < n_q)


@triton.jit
def descriptor_forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, n_q, n_k, scale,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, ahead: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that tiles come and go by descriptors: the copy engine's work on Hopper."""
    n_blocks = tl.cdiv(n_q, block_m)
    batch = tl.program_id(0) // n_blocks
    first_query = (n_blocks - 1 - tl.program_id(0) % n_blocks) * block_m
    queries = first_query + tl.arange(0, block_m)
    q = q_desc.load([batch, first_query, 0]).reshape(block_m, head_dim)
    acc = tl.zeros((block_m, head_dim), dtype=tl.float32)
    row_max = tl.full((block_m,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((block_m,), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    n_full, n_end = key_range(first_query, n_k, block_m, block_n, is_causal)
    if ahead:
        scores = tl.dot(q, k_desc.load([batch, 0, 0]).reshape(block_n, head_dim).T)
        acc, row_max, row_sum, scores = attend_ahead_by_descriptors(
            acc, row_max, row_sum, scores, q, queries, k_desc, v_desc, batch, 0, n_full, n_k, scale_log2,
            head_dim, block_n, is_causal, False,
        )  # fmt: skip
        acc, row_max, row_sum, scores = attend_ahead_by_descriptors(
            acc, row_max, row_sum, scores, q, queries, k_desc, v_desc, batch, n_full, n_end, n_k, scale_log2,
            head_dim, block_n, is_causal, True,
        )  # fmt: skip
    else:
        acc, row_max, row_sum = attend_by_descriptors(
            acc, row_max, row_sum, q, queries, k_desc, v_desc, batch, 0, n_full, n_k, scale_log2,
            head_dim, block_n, is_causal, False,
        )  # fmt: skip
        acc, row_max, row_sum = attend_by_descriptors(
            acc, row_max, row_sum, q, queries, k_desc, v_desc, batch, n_full, n_end, n_k, scale_log2,
            head_dim, block_n, is_causal, True,
        )  # fmt: skip
    o = (acc / row_sum[:, None]).to(o_desc.dtype)
    o_desc.store([batch, first_query, 0], o.reshape(1, block_m, head_dim))
    lse = (row_max + tl.log2(row_sum)) * LN_2
    tl.store(lse_ptr + batch.to(tl.int64) * n_q + queries, lse, mask=queries < n_q)


# Backward
# ----------------------------------------------------------------------------------------------------------------------


def dq_variants(head_dim: int) -> Iterator[tuple[str, Backward]]:
    for tile in tiles(head_dim, (64, 128), (32, 64, 128)):
        yield f"dq {tile}", _dq(tile)


def dk_dv_variants(head_dim: int) -> Iterator[tuple[str, Backward]]:
    for n, m, warps, stages in tiles(2 * head_dim, (64, 128), (32, 64, 128)):
        yield f"dk dv {m, n, warps, stages}", _dk_dv((m, n, warps, stages))
        yield f"dk dv, dP early {m, n, warps, stages}", _dk_dv((m, n, warps, stages), early_dk_dv_kernel)


def fused_variants(head_dim: int) -> Iterator[tuple[str, Backward]]:
    for n, m, warps, stages in tiles(2 * head_dim, (64, 128), (32, 64, 128)):
        for how in ("atomics", "descriptor"):
            yield (
                f"all by {how} {m, n, warps, stages}",
                _fused((m, n, warps, stages), by_descriptor=how == "descriptor"),
            )


def _dq(tile: tuple[int, int, int, int]) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dq, delta = q.shape, torch.empty_like(q), torch.empty_like(lse)
        reference.flash_backward_dq_kernel[(batch * triton.cdiv(n, block_m),)](
            q, k, v, o, do, lse, delta, dq, n, k.shape[1], 1 / math.sqrt(head_dim),
            *q.stride(), *k.stride(), *v.stride(),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return (dq,)

    return run


def _dk_dv(tile: tuple[int, int, int, int], kernel: Any = reference.flash_backward_dk_dv_kernel) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dk, dv = k.shape, torch.empty_like(k), torch.empty_like(v)
        delta = torch.empty_like(lse)
        delta_kernel[(triton.cdiv(lse.numel(), 64),)](o, do, delta, lse.numel(), head_dim=head_dim, block=64)
        kernel[(batch * triton.cdiv(n, block_n),)](
            q, k, v, do, lse, delta, dk, dv, q.shape[1], n, 1 / math.sqrt(head_dim),
            *q.stride(), *k.stride(), *v.stride(),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return dk, dv

    return run


def _fused(tile: tuple[int, int, int, int], by_descriptor: bool) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dk, dv = k.shape, torch.empty_like(k), torch.empty_like(v)
        delta = torch.empty_like(lse)
        delta_kernel[(triton.cdiv(lse.numel(), 64),)](o, do, delta, lse.numel(), head_dim=head_dim, block=64)
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        target = TensorDescriptor.from_tensor(dq, [1, block_m, head_dim]) if by_descriptor else dq
        fused_backward_kernel[(batch * triton.cdiv(n, block_n),)](
            q, k, v, do, lse, delta, target, dk, dv, q.shape[1], n, 1 / math.sqrt(head_dim),
            *q.stride(), *k.stride(), *v.stride(),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal, by_descriptor=by_descriptor,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return (dq * (1 / math.sqrt(head_dim))).to(q.dtype), dk, dv

    return run


@triton.jit
def accumulate_dk_dv_early(
    dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr, first_query, last_query, n_q, scale_log2,
    q_row_stride, q_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that dP is asked for before the exponentials: the tensor cores work on it meanwhile."""
    for start in range(first_query, last_query, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_ptr, queries, n_q, q_row_stride, q_dim_stride, head_dim)
        do = load_tile(do_ptr, queries, n_q, head_dim, 1, head_dim)
        lse_log2 = tl.load(lse_ptr + queries, mask=queries < n_q, other=float("inf")) * LOG2_E
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)
        s_t = tl.dot(k, tl.trans(q))
        dp_t = tl.dot(v, tl.trans(do))
        p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])
        if is_masked:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv += tl.dot(p_t.to(do.dtype), do)
        ds_t = p_t * (dp_t - delta[None, :])
        dk += tl.dot(ds_t.to(q.dtype), q)
    return dk, dv


@triton.jit
def early_dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    n_blocks = tl.cdiv(n_k, block_n)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
    first_key = tl.program_id(0) % n_blocks * block_n
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
    first_full_query = 0
    if is_causal:
        first_query = first_key // block_m * block_m
        first_full_query = tl.cdiv(first_key + block_n, block_m) * block_m
        dk, dv = accumulate_dk_dv_early(
            dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr,
            first_query, tl.minimum(first_full_query, n_q), n_q, scale_log2,
            q_row_stride, q_dim_stride, head_dim, block_m, True,
        )  # fmt: skip
    dk, dv = accumulate_dk_dv_early(
        dk, dv, k, v, keys, q_ptr, do_ptr, lse_ptr, delta_ptr, first_full_query, n_q, n_q, scale_log2,
        q_row_stride, q_dim_stride, head_dim, block_m, False,
    )  # fmt: skip
    store_tile(dk_ptr + batch * n_k * head_dim, dk * scale, keys, n_k, head_dim)
    store_tile(dv_ptr + batch * n_k * head_dim, dv, keys, n_k, head_dim)


@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, n_rows, head_dim: tl.constexpr, block: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    o = load_tile(o_ptr, rows, n_rows, head_dim, 1, head_dim).to(tl.float32)
    do = load_tile(do_ptr, rows, n_rows, head_dim, 1, head_dim).to(tl.float32)
    tl.store(delta_ptr + rows, tl.sum(o * do, axis=1), mask=rows < n_rows)


@triton.jit
def accumulate_all(
    dk, dv, k, v, keys, batch, q_ptr, do_ptr, lse_ptr, delta_ptr, dq_target, first_query, last_query, n_q, scale_log2,
    q_row_stride, q_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, is_masked: tl.constexpr, by_descriptor: tl.constexpr,
):  # fmt: skip
    for start in range(first_query, last_query, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_ptr, queries, n_q, q_row_stride, q_dim_stride, head_dim)
        do = load_tile(do_ptr, queries, n_q, head_dim, 1, head_dim)
        lse_log2 = tl.load(lse_ptr + queries, mask=queries < n_q, other=float("inf")) * LOG2_E
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)
        s_t = tl.dot(k, tl.trans(q))
        dp_t = tl.dot(v, tl.trans(do))
        p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])
        if is_masked:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv += tl.dot(p_t.to(do.dtype), do)
        ds_t = (p_t * (dp_t - delta[None, :])).to(q.dtype)
        dk += tl.dot(ds_t, q)
        dq = tl.dot(tl.trans(ds_t), k)
        if by_descriptor:
            dq_target.atomic_add([batch.to(tl.int32), start, 0], dq.reshape(1, block_m, head_dim))
        else:
            offsets = queries.to(tl.int64)[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
            tl.atomic_add(dq_target + offsets, dq, mask=queries[:, None] < n_q, sem="relaxed")
    return dk, dv


@triton.jit
def fused_backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_target, dk_ptr, dv_ptr, n_q, n_k, scale,
    q_batch_stride, q_row_stride, q_dim_stride,
    k_batch_stride, k_row_stride, k_dim_stride,
    v_batch_stride, v_row_stride, v_dim_stride,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
    by_descriptor: tl.constexpr,
):  # fmt: skip
    """One program computes block_n rows of dK and dV, and adds its part of dQ: five products instead of seven.

    dq_target: (batch, n_q, head_dim) float32, zeros; without the scale.
    """
    n_blocks = tl.cdiv(n_k, block_n)
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
    first_key = tl.program_id(0) % n_blocks * block_n
    keys = first_key + tl.arange(0, block_n)
    q_ptr += batch * q_batch_stride
    do_ptr += batch * n_q * head_dim
    lse_ptr += batch * n_q
    delta_ptr += batch * n_q
    if not by_descriptor:
        dq_target += batch * n_q * head_dim
    k = load_tile(k_ptr + batch * k_batch_stride, keys, n_k, k_row_stride, k_dim_stride, head_dim)
    v = load_tile(v_ptr + batch * v_batch_stride, keys, n_k, v_row_stride, v_dim_stride, head_dim)
    dk = tl.zeros((block_n, head_dim), dtype=tl.float32)
    dv = tl.zeros((block_n, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    first_full_query = 0
    if is_causal:
        first_query = first_key // block_m * block_m
        first_full_query = tl.cdiv(first_key + block_n, block_m) * block_m
        dk, dv = accumulate_all(
            dk, dv, k, v, keys, batch, q_ptr, do_ptr, lse_ptr, delta_ptr, dq_target,
            first_query, tl.minimum(first_full_query, n_q), n_q, scale_log2,
            q_row_stride, q_dim_stride, head_dim, block_m, True, by_descriptor,
        )  # fmt: skip
    dk, dv = accumulate_all(
        dk, dv, k, v, keys, batch, q_ptr, do_ptr, lse_ptr, delta_ptr, dq_target, first_full_query, n_q, n_q, scale_log2,
        q_row_stride, q_dim_stride, head_dim, block_m, False, by_descriptor,
    )  # fmt: skip
    store_tile(dk_ptr + batch * n_k * head_dim, dk * scale, keys, n_k, head_dim)
    store_tile(dv_ptr + batch * n_k * head_dim, dv, keys, n_k, head_dim)
