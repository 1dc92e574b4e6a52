"""FlashAttention forward in Gluon on Hopper: what attention can reach where a kernel says which warps do what.

    o, lse = forward(q, k, v, is_causal)      one GPU of sm_90; bfloat16 or float16, head_dim 64 or 128

An experiment, no course's kernel: Gluon (`triton.experimental.gluon`) is Triton's lower level, and may change. It shows what
bounds the reference in plain Triton (`benchmarks/NOTES.md` has the numbers). The steps, of which `ahead` and `turns` can be turned off:

1. **A program is a warp that fetches and two or three groups of four warps that multiply.** The warp asks the copy engine for
   tiles of K and V; barriers in shared memory (mbarriers) say when a tile is there (`ready`) and when all groups are done with
   it (`free`). A group multiplies 64 queries, the fewest that `wgmma` takes. Registers go where they are needed: 24 to each
   thread that fetches, 160 or 240 to each that multiplies, where all threads of a Triton kernel have the same number.
2. **Scores a tile ahead** (`ahead`). S = Q Kᵀ of the next tile is asked for together with P V of this one, and while the tensor
   cores work on P V, the group takes the exponentials of S.
3. **Groups take turns** (`turns`). A group asks for its products when the one before has asked for its own, so that one group's
   exponentials fall into the time of another's products instead of all at once.
4. Keys from the last to the first, so that the tiles with a mask come first; a group leaves out those above its diagonal, and
   programs start in the reference's order.
"""

from __future__ import annotations

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from reference.flash_attention import batches_at_once

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # its name from Triton 3.7 on, and before

LOG2_E = gl.constexpr(1.4426950408889634)
LOWEST = gl.constexpr(-3.4028234663852886e38)
ROWS = gl.constexpr(64)  # of a group

DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}
# By head_dim: groups, keys of a tile, tiles in shared memory, registers of a thread that multiplies.
SHAPES = {64: (3, 128, 2, 160), 128: (2, 128, 2, 240)}


@gluon.jit
def fetch(
    descriptors, memory, barriers, batch, first_query, n_tiles,
    groups: gl.constexpr, block_n: gl.constexpr, stages: gl.constexpr,
):  # fmt: skip
    """The fetching warp: Q once, then tiles of K and V, the last first."""
    q_desc, k_desc, v_desc = descriptors
    q_smem, k_smem, v_smem = memory
    q_ready, k_ready, k_free, v_ready, v_free, _order = barriers
    mbarrier.expect(q_ready, groups * q_desc.block_type.nbytes)
    for group in gl.static_range(groups):
        q_place = q_smem.index(group)._reinterpret(q_desc.dtype, q_desc.block_shape, q_desc.layout)
        tma.async_copy_global_to_shared(q_desc, [batch, first_query + ROWS * group, 0], q_ready, q_place)
    for i in range(n_tiles):
        row = (n_tiles - 1 - i) * block_n
        stage, phase = i % stages, i // stages & 1
        mbarrier.wait(k_free.index(stage), phase ^ 1)
        mbarrier.expect(k_ready.index(stage), k_desc.block_type.nbytes)
        k_place = k_smem.index(stage)._reinterpret(k_desc.dtype, k_desc.block_shape, k_desc.layout)
        tma.async_copy_global_to_shared(k_desc, [batch, row, 0], k_ready.index(stage), k_place)
        mbarrier.wait(v_free.index(stage), phase ^ 1)
        mbarrier.expect(v_ready.index(stage), v_desc.block_type.nbytes)
        v_place = v_smem.index(stage)._reinterpret(v_desc.dtype, v_desc.block_shape, v_desc.layout)
        tma.async_copy_global_to_shared(v_desc, [batch, row, 0], v_ready.index(stage), v_place)


@gluon.jit
def take_turn(order, i, group: gl.constexpr, turns: gl.constexpr):
    if turns:  # the first group's first turn is free
        mbarrier.wait(order.index(group), (i & 1) ^ 1 if group == 0 else i & 1)


@gluon.jit
def pass_turn(order, group: gl.constexpr, groups: gl.constexpr, turns: gl.constexpr):
    if turns:
        mbarrier.arrive(order.index((group + 1) % groups))


@gluon.jit
def mask(s, first_query, first_key, n_k, is_causal: gl.constexpr, block_n: gl.constexpr, s_layout: gl.constexpr):
    keys = first_key + gl.arange(0, block_n, gl.SliceLayout(0, s_layout))
    if is_causal:
        queries = first_query + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
        s = gl.where(keys[None, :] <= queries[:, None], s, float("-inf"))
    else:
        s = gl.where((keys < n_k)[None, :], s, float("-inf"))
    return s


@gluon.jit
def attend_tiles(
    state, first, last, q, memory, barriers, n_tiles, first_query, n_k, scale_log2,
    group: gl.constexpr, groups: gl.constexpr, block_n: gl.constexpr, stages: gl.constexpr, is_causal: gl.constexpr,
    is_masked: gl.constexpr, ahead: gl.constexpr, turns: gl.constexpr,
    s_layout: gl.constexpr, o_layout: gl.constexpr, p_layout: gl.constexpr,
):  # fmt: skip
    """Tiles first … last: the scores of tile i together with P V of tile i − 1, whose P is in `state`."""
    acc, p, row_max, row_sum = state
    _q_smem, k_smem, v_smem = memory
    _q_ready, k_ready, k_free, v_ready, v_free, order = barriers
    for i in range(first, last):
        stage, before = i % stages, (i - 1) % stages
        mbarrier.wait(k_ready.index(stage), i // stages & 1)
        take_turn(order, i, group, turns)
        nothing = gl.zeros((ROWS, block_n), gl.float32, s_layout)
        s_token = warpgroup_mma(q, k_smem.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_ready.index(before), (i - 1) // stages & 1)
        o_token = warpgroup_mma(p, v_smem.index(before), acc, is_async=True)
        pass_turn(order, group, groups, turns)

        s = warpgroup_mma_wait(1 if ahead else 0, deps=[s_token])
        mbarrier.arrive(k_free.index(stage))
        if is_masked:
            s = mask(s, first_query, (n_tiles - 1 - i) * block_n, n_k, is_causal, block_n, s_layout)
        new_max = gl.maximum(row_max, gl.max(s, axis=1) * scale_log2)
        e = gl.exp2(s * scale_log2 - new_max[:, None])
        rescale = gl.exp2(row_max - new_max)
        row_sum = row_sum * rescale + gl.sum(e, axis=1)
        row_max = new_max

        acc, p = warpgroup_mma_wait(0, deps=[o_token, p])
        mbarrier.arrive(v_free.index(before))
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, o_layout))[:, None]
        p = gl.convert_layout(e.to(k_smem.dtype), p_layout)
    return acc, p, row_max, row_sum


@gluon.jit
def attend(
    group: gl.constexpr, memory, barriers, o_desc, lse_ptr, place,
    groups: gl.constexpr, head_dim: gl.constexpr, block_n: gl.constexpr, stages: gl.constexpr, is_causal: gl.constexpr,
    ahead: gl.constexpr, turns: gl.constexpr,
):  # fmt: skip
    """A group of four warps: 64 rows of O and L."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, block_n, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, head_dim, 16])
    p_layout: gl.constexpr = gl.DotOperandLayout(0, o_layout, 2)
    q_smem, k_smem, v_smem = memory
    q_ready, k_ready, k_free, v_ready, v_free, order = barriers
    batch, first_query, n_tiles, n_q, n_k, scale_log2 = place
    first_query += ROWS * group
    q = q_smem.index(group)

    # Tiles wholly above this group's diagonal are another group's.
    begin, n_masked = 0, 1
    if is_causal:
        begin = n_tiles - gl.minimum(gl.cdiv(first_query + ROWS, block_n), n_tiles)
        n_masked = gl.maximum(n_tiles - first_query // block_n, begin + 1)
    for i in range(0, begin):
        take_turn(order, i, group, turns)
        pass_turn(order, group, groups, turns)
        mbarrier.arrive(k_free.index(i % stages))
        mbarrier.arrive(v_free.index(i % stages))

    # The first tile always has a mask.
    mbarrier.wait(q_ready, 0)
    mbarrier.wait(k_ready.index(begin % stages), begin // stages & 1)
    take_turn(order, begin, group, turns)
    nothing = gl.zeros((ROWS, block_n), gl.float32, s_layout)
    s_token = warpgroup_mma(q, k_smem.index(begin % stages).permute((1, 0)), nothing, use_acc=False, is_async=True)
    pass_turn(order, group, groups, turns)
    s = warpgroup_mma_wait(0, deps=[s_token])
    mbarrier.arrive(k_free.index(begin % stages))
    s = mask(s, first_query, (n_tiles - 1 - begin) * block_n, n_k, is_causal, block_n, s_layout)
    row_max = gl.maximum(gl.max(s, axis=1) * scale_log2, LOWEST)
    e = gl.exp2(s * scale_log2 - row_max[:, None])
    p = gl.convert_layout(e.to(k_smem.dtype), p_layout)
    state = (gl.zeros((ROWS, head_dim), gl.float32, o_layout), p, row_max, gl.sum(e, axis=1))

    state = attend_tiles(
        state, begin + 1, n_masked, q, memory, barriers, n_tiles, first_query, n_k, scale_log2,
        group, groups, block_n, stages, is_causal, True, ahead, turns, s_layout, o_layout, p_layout,
    )  # fmt: skip
    acc, p, row_max, row_sum = attend_tiles(
        state, n_masked, n_tiles, q, memory, barriers, n_tiles, first_query, n_k, scale_log2,
        group, groups, block_n, stages, is_causal, False, ahead, turns, s_layout, o_layout, p_layout,
    )  # fmt: skip

    last = n_tiles - 1
    mbarrier.wait(v_ready.index(last % stages), last // stages & 1)
    o_token = warpgroup_mma(p, v_smem.index(last % stages), acc, is_async=True)
    acc, p = warpgroup_mma_wait(0, deps=[o_token, p])
    acc = acc / gl.convert_layout(row_sum, gl.SliceLayout(1, o_layout))[:, None]
    q.store(acc.to(q_smem.dtype))  # O takes the place of Q, which nobody needs any more
    fence_async_shared()
    barrier()
    o_place = q._reinterpret(o_desc.dtype, o_desc.block_shape, o_desc.layout)
    tma.async_copy_shared_to_global(o_desc, [batch, first_query, 0], o_place)
    queries = first_query + gl.arange(0, ROWS, gl.SliceLayout(1, s_layout))
    gl.store(lse_ptr + batch.to(gl.int64) * n_q + queries, (row_max + gl.log2(row_sum)) / LOG2_E, mask=queries < n_q)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["batches_at_once"])
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, n_q, n_k, scale, batches_at_once,
    groups: gl.constexpr, head_dim: gl.constexpr, block_n: gl.constexpr, stages: gl.constexpr, registers: gl.constexpr,
    is_causal: gl.constexpr, ahead: gl.constexpr, turns: gl.constexpr,
):  # fmt: skip
    # The reference's place_of: the programs with the most tiles of batches_at_once batches first.
    n_blocks = gl.cdiv(n_q, ROWS * groups)
    per_group = batches_at_once * n_blocks
    first_batch = gl.program_id(0) // per_group * batches_at_once
    batches = gl.minimum(batches_at_once, gl.num_programs(0) // n_blocks - first_batch)
    number = gl.program_id(0) % per_group
    batch = first_batch + number % batches
    first_query = (n_blocks - 1 - number // batches) * ROWS * groups
    n_end = n_k
    if is_causal:
        n_end = gl.minimum(first_query + ROWS * groups, n_k)
    n_tiles = gl.cdiv(n_end, block_n)

    dtype: gl.constexpr = q_desc.dtype
    layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, head_dim], dtype)
    q_smem = gl.allocate_shared_memory(dtype, [groups, ROWS, head_dim], layout)
    k_smem = gl.allocate_shared_memory(dtype, [stages, block_n, head_dim], layout)
    v_smem = gl.allocate_shared_memory(dtype, [stages, block_n, head_dim], layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [stages, 1], mbarrier.MBarrierLayout())
    order = gl.allocate_shared_memory(gl.int64, [groups, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_ready, count=1)
    for i in gl.static_range(stages):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(k_free.index(i), count=groups)
        mbarrier.init(v_free.index(i), count=groups)
    for i in gl.static_range(groups):
        mbarrier.init(order.index(i), count=1)
    fence_async_shared()

    memory = (q_smem, k_smem, v_smem)
    barriers = (q_ready, k_ready, k_free, v_ready, v_free, order)
    descriptors = (q_desc, k_desc, v_desc)
    place = (batch, first_query, n_tiles, n_q, n_k, scale * LOG2_E)
    if groups == 2:
        gl.warp_specialize([
            (attend, (0, memory, barriers, o_desc, lse_ptr, place, groups, head_dim, block_n, stages, is_causal, ahead, turns)),
            (attend, (1, memory, barriers, o_desc, lse_ptr, place, groups, head_dim, block_n, stages, is_causal, ahead, turns)),
            (fetch, (descriptors, memory, barriers, batch, first_query, n_tiles, groups, block_n, stages)),
        ], [4, 1], [registers, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (attend, (0, memory, barriers, o_desc, lse_ptr, place, groups, head_dim, block_n, stages, is_causal, ahead, turns)),
            (attend, (1, memory, barriers, o_desc, lse_ptr, place, groups, head_dim, block_n, stages, is_causal, ahead, turns)),
            (attend, (2, memory, barriers, o_desc, lse_ptr, place, groups, head_dim, block_n, stages, is_causal, ahead, turns)),
            (fetch, (descriptors, memory, barriers, batch, first_query, n_tiles, groups, block_n, stages)),
        ], [4, 4, 1], [registers, registers, 24])  # fmt: skip


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    *,
    ahead: bool = True,
    turns: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q kᵀ / √head_dim) v and the logsumexp of each row of scores.

    q: (batch, n_q, head_dim), k, v: (batch, n_k, head_dim), contiguous, bfloat16 or float16, head_dim 64 or 128, n_k ≥ 1;
    n_q = n_k if is_causal. Returns o like q, lse (batch, n_q) float32. Raises ValueError for another head_dim or dtype, and for
    n_q ≠ n_k if is_causal.
    """
    (batch, n_q, head_dim), n_k = q.shape, k.shape[1]
    if head_dim not in SHAPES or q.dtype not in DTYPES:
        raise ValueError(f"head_dim must be 64 or 128, in 16 bits, not {head_dim} in {q.dtype}")
    if is_causal and n_q != n_k:
        raise ValueError(f"a causal mask needs as many queries as keys, not {n_q} and {n_k}")
    groups, block_n, stages, registers = SHAPES[head_dim]
    o = torch.empty_like(q)
    lse = torch.empty((batch, n_q), dtype=torch.float32, device=q.device)
    q_desc, o_desc = (_descriptor(x, ROWS.value) for x in (q, o))
    k_desc, v_desc = (_descriptor(x, block_n) for x in (k, v))
    forward_kernel[(batch * triton.cdiv(n_q, ROWS.value * groups),)](
        q_desc, k_desc, v_desc, o_desc, lse, n_q, n_k, 1 / math.sqrt(head_dim), batches_at_once(k, is_causal),
        groups=groups, head_dim=head_dim, block_n=block_n, stages=stages, registers=registers,
        is_causal=is_causal, ahead=ahead, turns=turns, num_warps=4,
    )  # fmt: skip
    return o, lse


def _descriptor(x: torch.Tensor, rows: int) -> TensorDescriptor:
    block = [1, rows, x.shape[-1]]
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, DTYPES[x.dtype]))
