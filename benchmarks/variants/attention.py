"""FlashAttention: the reference's kernels with other tiles and ordinary loads, and other forms of them.

Forward: scores a step ahead, the scale folded into q, persistent programs. Backward: dK's and dV's diagonal tiles in a loop of their
own, and dQ by atomics. Tiles are named block_m × block_n, warps, stages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from reference import flash_attention as reference
from reference.flash_attention import LN_2, LOG2_E, LOWEST, ends_of_keys, is_visible, load_tile, place_of, store_tile

Sizes = tuple[int, int, int, int]  # block_m, block_n, warps, stages
Forward = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
Backward = Callable[..., tuple[Tensor, ...]]


SHARED_BYTES = {
    2: 160 << 10,
    4: 224 << 10,
}  # by bytes per element: in 16 bits two programs are to share a multiprocessor


def tiles(
    head_dim: int, element_size: int, outer: tuple[int, ...], inner: tuple[int, ...], held: int = 1
) -> Iterator[Sizes]:
    """Those that may be worth a try: rows that a program holds, rows that it walks along, warps, stages.

    element_size: bytes. held: of tensors, as many as a program holds in shared memory, and as many accumulators in registers.
    """
    least = 48 if head_dim >= 64 else 16  # registers per thread: with fewer, most of a thread's work is the loop itself
    for m, n, warps, stages in product(outer, inner, (4, 8), (2, 3, 4)):
        registers = (m * n + held * m * head_dim) / (32 * warps)
        shared = element_size * (held * m + 2 * n * stages) * head_dim
        if least <= registers <= 200 and shared <= SHARED_BYTES[element_size]:
            yield m, n, warps, stages


def few_tiles(element_size: int, head_dim: int) -> Iterator[Sizes]:
    """For inputs so small that large tiles leave multiprocessors without a program: rows that a program holds, and walks along."""
    for held, walked, warps, stages in product((16, 32), (64, 128), (2, 4), (2, 3)):
        shared = element_size * (held + 2 * walked * stages) * head_dim
        if held * walked >= 512 * (warps // 2) and shared <= SHARED_BYTES[element_size]:
            yield held, walked, warps, stages


def few_variants(what: str, head_dim: int, element_size: int = 2) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The reference's large tile and few_tiles; `what` is forward, dq or dk_dv."""
    table, made = {
        "forward": (reference.FORWARD_TILES, _forward),
        "dq": (reference.DQ_TILES, _dq),
        "dk_dv": (reference.DK_DV_TILES, _dk_dv),
    }[what]
    yield "reference", made(tuple(table[element_size, head_dim]))
    for held, walked, *rest in few_tiles(element_size, head_dim):
        tile = (walked, held, *rest) if what == "dk_dv" else (held, walked, *rest)
        yield f"few {tile}", made(tile)


AT_ONCE = (1, 4, 8, 16, 1 << 20)  # batches whose programs start together; the last are all


def in_order(tile: reference.Tile) -> Iterator[tuple[str, Sizes, int]]:
    """The reference's tile, with its programs in other orders: a name, the tile, and how many batches are worked on at a time."""
    for at_once in AT_ONCE:
        name = "all batches" if at_once == AT_ONCE[-1] else f"{at_once} batch{'es' if at_once > 1 else ''}"
        yield f"in order of {name} at a time", tuple(tile), at_once


def in_memory(by: str, rows: int, *tensors: Tensor) -> list[Any]:
    return list(tensors) if by == "pointers" else reference.by_tiles(rows, *tensors)


# Forward
# ----------------------------------------------------------------------------------------------------------------------


def forward_variants(head_dim: int, element_size: int = 2) -> Iterator[tuple[str, Forward]]:
    for name, tile, at_once in in_order(reference.FORWARD_TILES[element_size, head_dim]):
        yield name, _forward(tile, at_once=at_once)
    for tile in tiles(head_dim, element_size, (64, 128, 256), (32, 64, 128)):
        yield f"pointers {tile}", _forward(tile, "pointers")
        yield f"descriptors {tile}", _forward(tile)
        yield f"descriptors, scores ahead {tile}", _forward(tile, kernel=ahead_forward_kernel)
        yield f"descriptors, scale folded {tile}", _forward(tile, kernel=folded_forward_kernel)
        for places in (1, 2) if tile[2] == 8 else (2, 3):
            name = f"persistent, {places} on a multiprocessor {tile}"
            yield name, _forward(tile, kernel=persistent_forward_kernel, places=places)


def _forward(
    tile: Sizes,
    by: str = "descriptors",
    kernel: Any = reference.flash_forward_kernel,
    at_once: int = 0,
    places: int = 0,
) -> Forward:
    """places: how many programs of a persistent kernel each multiprocessor gets; 0 for one program per block."""
    block_m, block_n, warps, stages = tile

    def run(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
        (batch, n, head_dim), o = q.shape, torch.empty_like(q)
        lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
        q_mem, o_mem = in_memory(by, block_m, q, o)
        k_mem, v_mem = in_memory(by, block_n, k, v)
        n_items = batch * triton.cdiv(n, block_m)
        kernel[(min(n_items, places * multiprocessors(q)) if places else n_items,)](
            q_mem, k_mem, v_mem, o_mem, lse, n, k.shape[1], 1 / math.sqrt(head_dim), at_once or reference.batches_at_once(k, is_causal),
            *([batch] if places else []), head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return o, lse

    return run


def multiprocessors(x: Tensor) -> int:
    """Of x's GPU; on a CPU, where only right or wrong is asked, 2."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2


@triton.jit
def add_tile(
    acc, row_max, row_sum, scores, queries, v_mem, batch, start, n_k, scale_log2,
    head_dim: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """acc, row_max and row_sum of the reference's forward kernel, with the keys start … start + block_n, whose scores are given."""
    if is_masked:
        visible = is_visible(queries, start + tl.arange(0, block_n), n_k, is_causal)
        scores = tl.where(visible, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)
    p = tl.exp2(scores * scale_log2 - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(p, axis=1)
    v = load_tile(v_mem, batch, start, n_k, block_n, head_dim)
    acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None])
    return acc, new_max, row_sum


@triton.jit(do_not_specialize=["batches_at_once"])
def ahead_forward_kernel(
    q_mem, k_mem, v_mem, o_mem, lse_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that each tile's scores are computed a step ahead of their softmax."""
    n_blocks = tl.cdiv(n_q, block_m)
    batch, block = place_of(n_blocks, batches_at_once)
    first_query = (n_blocks - 1 - block) * block_m
    queries = first_query + tl.arange(0, block_m)
    q = load_tile(q_mem, batch, first_query, n_q, block_m, head_dim)
    acc = tl.zeros((block_m, head_dim), dtype=tl.float32)
    row_max = tl.full((block_m,), LOWEST, dtype=tl.float32)
    row_sum = tl.zeros((block_m,), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    n_full, n_end = ends_of_keys(first_query, n_k, block_m, block_n, is_causal)
    scores = tl.dot(q, load_tile(k_mem, batch, 0, n_k, block_n, head_dim).T)
    for is_masked in tl.static_range(2):
        for start in range(n_full if is_masked else 0, n_end if is_masked else n_full, block_n):
            # The tensor cores work on the next tile's scores while this one's softmax is computed.
            following = tl.dot(q, load_tile(k_mem, batch, start + block_n, n_k, block_n, head_dim).T)
            acc, row_max, row_sum = add_tile(
                acc, row_max, row_sum, scores, queries, v_mem, batch, start, n_k, scale_log2,
                head_dim, block_n, is_causal, is_masked,
            )  # fmt: skip
            scores = following
    store_tile(o_mem, acc / row_sum[:, None], batch, first_query, n_q, block_m, head_dim)
    tl.store(lse_ptr + batch.to(tl.int64) * n_q + queries, (row_max + tl.log2(row_sum)) * LN_2, mask=queries < n_q)


@triton.jit(do_not_specialize=["batches_at_once"])
def folded_forward_kernel(
    q_mem, k_mem, v_mem, o_mem, lse_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that q is multiplied by scale · log₂e once: a subtraction per score in place of a multiply-add.

    The product is rounded to q's dtype, an error that the reference's scores do not have.
    """
    n_blocks = tl.cdiv(n_q, block_m)
    batch, block = place_of(n_blocks, batches_at_once)
    first_query = (n_blocks - 1 - block) * block_m
    q = load_tile(q_mem, batch, first_query, n_q, block_m, head_dim)
    q = (q.to(tl.float32) * (scale * LOG2_E)).to(q.dtype)
    forward_block(
        q, k_mem, v_mem, o_mem, lse_ptr, batch, first_query, n_q, n_k, 1.0, head_dim, block_m, block_n, is_causal
    )


@triton.jit(do_not_specialize=["batches_at_once"])
def persistent_forward_kernel(
    q_mem, k_mem, v_mem, o_mem, lse_ptr, n_q, n_k, scale, batches_at_once, n_batches,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that there are as many programs as run at a time, and each takes block after block in the same order."""
    n_blocks = tl.cdiv(n_q, block_m)
    n_items = n_batches * n_blocks
    for item in range(tl.program_id(0), n_items, tl.num_programs(0)):
        # As place_of, for a program's number that is none.
        per_group = batches_at_once * n_blocks
        first_batch = item // per_group * batches_at_once
        batches = tl.minimum(batches_at_once, n_batches - first_batch)
        number = item % per_group
        batch = first_batch + number % batches
        first_query = (n_blocks - 1 - number // batches) * block_m
        q = load_tile(q_mem, batch, first_query, n_q, block_m, head_dim)
        forward_block(
            q, k_mem, v_mem, o_mem, lse_ptr, batch, first_query, n_q, n_k, scale * LOG2_E,
            head_dim, block_m, block_n, is_causal,
        )  # fmt: skip


@triton.jit
def forward_block(
    q, k_mem, v_mem, o_mem, lse_ptr, batch, first_query, n_q, n_k, scale_log2,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """What the reference's forward kernel does once it has its place and q: block_m rows of O and L."""
    queries = first_query + tl.arange(0, block_m)
    acc = tl.zeros((block_m, head_dim), dtype=tl.float32)
    row_max = tl.full((block_m,), LOWEST, dtype=tl.float32)
    row_sum = tl.zeros((block_m,), dtype=tl.float32)
    n_full, n_end = ends_of_keys(first_query, n_k, block_m, block_n, is_causal)
    for is_masked in tl.static_range(2):
        for start in range(n_full if is_masked else 0, n_end if is_masked else n_full, block_n):
            scores = tl.dot(q, load_tile(k_mem, batch, start, n_k, block_n, head_dim).T)
            acc, row_max, row_sum = add_tile(
                acc, row_max, row_sum, scores, queries, v_mem, batch, start, n_k, scale_log2,
                head_dim, block_n, is_causal, is_masked,
            )  # fmt: skip
    store_tile(o_mem, acc / row_sum[:, None], batch, first_query, n_q, block_m, head_dim)
    tl.store(lse_ptr + batch.to(tl.int64) * n_q + queries, (row_max + tl.log2(row_sum)) * LN_2, mask=queries < n_q)


# Backward
# ----------------------------------------------------------------------------------------------------------------------


def dq_variants(head_dim: int, element_size: int = 2) -> Iterator[tuple[str, Backward]]:
    for name, tile, at_once in in_order(reference.DQ_TILES[element_size, head_dim]):
        yield name, _dq(tile, at_once=at_once)
    for tile in tiles(head_dim, element_size, (64, 128), (32, 64, 128)):
        yield f"dq {tile}", _dq(tile)
        yield f"dq, pointers {tile}", _dq(tile, "pointers")


def dk_dv_variants(head_dim: int, element_size: int = 2) -> Iterator[tuple[str, Backward]]:
    for name, tile, at_once in in_order(reference.DK_DV_TILES[element_size, head_dim]):
        yield name, _dk_dv(tile, at_once=at_once)
    for tile in dk_dv_tiles(head_dim, element_size):
        yield f"dk dv {tile}", _dk_dv(tile)
        yield f"dk dv, pointers {tile}", _dk_dv(tile, "pointers")
        yield f"dk dv, diagonal apart {tile}", _dk_dv(tile, kernel=apart_dk_dv_kernel)


def fused_variants(head_dim: int, element_size: int = 2) -> Iterator[tuple[str, Backward]]:
    for tile in dk_dv_tiles(head_dim, element_size):
        for how in ("atomics", "descriptor"):
            yield f"all by {how} {tile}", _fused(tile, by_descriptor=how == "descriptor")


def dk_dv_tiles(head_dim: int, element_size: int) -> Iterator[Sizes]:
    """Programs hold block_n keys and walk along the queries: the tiles the other way round."""
    for n, m, warps, stages in tiles(head_dim, element_size, (64, 128), (32, 64, 128), held=2):
        yield m, n, warps, stages


def _dq(tile: Sizes, by: str = "descriptors", at_once: int = 0) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dq, delta = q.shape, torch.empty_like(q), torch.empty_like(lse)
        lse_log2 = torch.empty_like(lse)
        q_mem, o_mem, do_mem, dq_mem = in_memory(by, block_m, q, o, do, dq)
        k_mem, v_mem = in_memory(by, block_n, k, v)
        reference.flash_backward_dq_kernel[(batch * triton.cdiv(n, block_m),)](
            q_mem, k_mem, v_mem, o_mem, do_mem, dq_mem, lse, lse_log2, delta, n, k.shape[1], 1 / math.sqrt(head_dim),
            at_once or reference.batches_at_once(k, is_causal), head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return (dq,)

    return run


def _dk_dv(
    tile: Sizes, by: str = "descriptors", kernel: Any = reference.flash_backward_dk_dv_kernel, at_once: int = 0
) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dk, dv = k.shape, torch.empty_like(k), torch.empty_like(v)
        q_mem, do_mem = in_memory(by, block_m, q, do)
        k_mem, v_mem, dk_mem, dv_mem = in_memory(by, block_n, k, v, dk, dv)
        kernel[(batch * triton.cdiv(n, block_n),)](
            q_mem, k_mem, v_mem, do_mem, dk_mem, dv_mem, *of_rows(o, lse, do), q.shape[1], n, 1 / math.sqrt(head_dim),
            at_once or reference.batches_at_once(q, is_causal), head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return dk, dv

    return run


def _fused(tile: Sizes, by_descriptor: bool) -> Backward:
    block_m, block_n, warps, stages = tile

    def run(q, k, v, o, lse, do, is_causal):  # type: ignore[no-untyped-def]
        (batch, n, head_dim), dk, dv = k.shape, torch.empty_like(k), torch.empty_like(v)
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        q_mem, do_mem, dq_tiles = reference.by_tiles(block_m, q, do, dq)
        k_mem, v_mem, dk_mem, dv_mem = reference.by_tiles(block_n, k, v, dk, dv)
        fused_backward_kernel[(batch * triton.cdiv(n, block_n),)](
            q_mem, k_mem, v_mem, do_mem, dq_tiles if by_descriptor else dq, dk_mem, dv_mem, *of_rows(o, lse, do),
            q.shape[1], n, 1 / math.sqrt(head_dim),
            head_dim=head_dim, block_m=block_m, block_n=block_n, is_causal=is_causal,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return (dq * (1 / math.sqrt(head_dim))).to(q.dtype), dk, dv

    return run


@triton.jit(do_not_specialize=["batches_at_once"])
def apart_dk_dv_kernel(
    q_mem, k_mem, v_mem, do_mem, dk_mem, dv_mem, lse_ptr, delta_ptr, n_q, n_k, scale, batches_at_once,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """As the reference's, but that tiles cut by the diagonal have a loop of their own, and no others a mask."""
    batch, block = place_of(tl.cdiv(n_k, block_n), batches_at_once)
    first_key = block * block_n
    keys = first_key + tl.arange(0, block_n)
    k = load_tile(k_mem, batch, first_key, n_k, block_n, head_dim)
    v = load_tile(v_mem, batch, first_key, n_k, block_n, head_dim)
    lse_ptr += batch.to(tl.int64) * n_q
    delta_ptr += batch.to(tl.int64) * n_q
    dk = tl.zeros((block_n, head_dim), dtype=tl.float32)
    dv = tl.zeros((block_n, head_dim), dtype=tl.float32)
    first_full = 0
    if is_causal:
        first_query = first_key // block_m * block_m
        # From this query on, a multiple of block_m, every query sees all of these keys.
        first_full = tl.minimum(tl.cdiv(first_key + block_n - 1, block_m) * block_m, n_q)
        dk, dv = dk_dv_of_queries(
            dk, dv, k, v, keys, q_mem, do_mem, lse_ptr, delta_ptr, batch, first_query, first_full, n_q,
            scale * LOG2_E, head_dim, block_m, True,
        )  # fmt: skip
    dk, dv = dk_dv_of_queries(
        dk, dv, k, v, keys, q_mem, do_mem, lse_ptr, delta_ptr, batch, first_full, n_q, n_q,
        scale * LOG2_E, head_dim, block_m, False,
    )  # fmt: skip
    store_tile(dk_mem, dk * scale, batch, first_key, n_k, block_n, head_dim)
    store_tile(dv_mem, dv, batch, first_key, n_k, block_n, head_dim)


@triton.jit
def dk_dv_of_queries(
    dk, dv, k, v, keys, q_mem, do_mem, lse_ptr, delta_ptr, batch, first_query, last_query, n_q, scale_log2,
    head_dim: tl.constexpr, block_m: tl.constexpr, is_masked: tl.constexpr,
):  # fmt: skip
    """dk, dv and what queries first_query … last_query add to them; lse_ptr and delta_ptr are of this batch element."""
    for start in range(first_query, last_query, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_mem, batch, start, n_q, block_m, head_dim)
        do = load_tile(do_mem, batch, start, n_q, block_m, head_dim)
        lse_log2 = tl.load(lse_ptr + queries, mask=queries < n_q, other=0.0)
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)
        s_t = tl.dot(k, q.T)
        dp_t = tl.dot(v, do.T)
        p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])
        if is_masked:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv = tl.dot(p_t.to(do.dtype), do, dv)
        ds_t = p_t * (dp_t - delta[None, :])
        dk = tl.dot(ds_t.to(q.dtype), q, dk)
    return dk, dv


def of_rows(o: Tensor, lse: Tensor, do: Tensor) -> tuple[Tensor, Tensor]:
    """log₂e · L and delta, which the kernels of dK and dV read: (batch, n) float32."""
    lse_log2, delta = torch.empty_like(lse), torch.empty_like(lse)
    rows = delta.numel()
    delta_kernel[(triton.cdiv(rows, 64),)](o, lse, do, lse_log2, delta, rows, head_dim=o.shape[2], block=64)
    return lse_log2, delta


@triton.jit
def delta_kernel(
    o_ptr, lse_ptr, do_ptr, lse_log2_ptr, delta_ptr, n_rows, head_dim: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    first = tl.program_id(0) * block
    rows = first + tl.arange(0, block)
    nothing = first * 0  # all rows are one batch element's here
    o = load_tile(o_ptr, nothing, first, n_rows, block, head_dim).to(tl.float32)
    do = load_tile(do_ptr, nothing, first, n_rows, block, head_dim).to(tl.float32)
    lse = tl.load(lse_ptr + rows, mask=rows < n_rows)
    tl.store(lse_log2_ptr + rows, lse * LOG2_E, mask=rows < n_rows)
    tl.store(delta_ptr + rows, tl.sum(o * do, axis=1), mask=rows < n_rows)


@triton.jit
def fused_backward_kernel(
    q_mem, k_mem, v_mem, do_mem, dq_target, dk_mem, dv_mem, lse_ptr, delta_ptr, n_q, n_k, scale,
    head_dim: tl.constexpr, block_m: tl.constexpr, block_n: tl.constexpr, is_causal: tl.constexpr,
):  # fmt: skip
    """One program computes block_n rows of dK and dV, and adds its part of dQ: five products instead of seven.

    dq_target: (batch, n_q, head_dim) float32, zeros; without the scale. A descriptor or a pointer.
    """
    n_blocks = tl.cdiv(n_k, block_n)
    batch = tl.program_id(0) // n_blocks
    first_key = tl.program_id(0) % n_blocks * block_n
    keys = first_key + tl.arange(0, block_n)
    k = load_tile(k_mem, batch, first_key, n_k, block_n, head_dim)
    v = load_tile(v_mem, batch, first_key, n_k, block_n, head_dim)
    lse_ptr += batch.to(tl.int64) * n_q
    delta_ptr += batch.to(tl.int64) * n_q
    dk = tl.zeros((block_n, head_dim), dtype=tl.float32)
    dv = tl.zeros((block_n, head_dim), dtype=tl.float32)
    scale_log2 = scale * LOG2_E
    first_query = 0
    if is_causal:
        first_query = first_key // block_m * block_m
    for start in range(first_query, n_q, block_m):
        queries = start + tl.arange(0, block_m)
        q = load_tile(q_mem, batch, start, n_q, block_m, head_dim)
        do = load_tile(do_mem, batch, start, n_q, block_m, head_dim)
        lse_log2 = tl.load(lse_ptr + queries, mask=queries < n_q, other=0.0)
        delta = tl.load(delta_ptr + queries, mask=queries < n_q, other=0.0)
        s_t = tl.dot(k, q.T)
        dp_t = tl.dot(v, do.T)
        p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])
        if is_causal:
            p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)
        dv = tl.dot(p_t.to(do.dtype), do, dv)
        ds_t = (p_t * (dp_t - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds_t, q, dk)
        dq = tl.dot(tl.trans(ds_t), k)
        if dq_target.dtype.is_ptr():
            offsets = (batch.to(tl.int64) * n_q + queries)[:, None] * head_dim + tl.arange(0, head_dim)[None, :]
            tl.atomic_add(dq_target + offsets, dq, mask=queries[:, None] < n_q, sem="relaxed")
        else:
            dq_target.atomic_add([batch, start, 0], dq.reshape(1, block_m, head_dim))
    store_tile(dk_mem, dk * scale, batch, first_key, n_k, block_n, head_dim)
    store_tile(dv_mem, dv, batch, first_key, n_k, block_n, head_dim)
