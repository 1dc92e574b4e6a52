import math

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n_q, n_k, scale,
    sqb, sqn, sqd, skb, skn, skd, svb, svn, svd,
    d: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    row_start = tl.program_id(0) * bm
    rows = row_start + tl.arange(0, bm)
    dims = tl.arange(0, d)
    q_block = tl.make_block_ptr(q_ptr + batch * sqb, (n_q, d), (sqn, sqd), (row_start, 0), (bm, d), (1, 0))
    # k comes transposed: its rows are dimensions
    k_block = tl.make_block_ptr(k_ptr + batch * skb, (d, n_k), (skd, skn), (0, 0), (d, bn), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + batch * svb, (n_k, d), (svn, svd), (0, 0), (bn, d), (1, 0))
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    m = tl.full((bm,), float("-inf"), tl.float32)
    l = tl.zeros((bm,), tl.float32)
    acc = tl.zeros((bm, d), tl.float32)
    end = n_k
    if causal:
        end = tl.minimum(n_k, row_start + bm)
    for start in range(0, end, bn):
        keys = start + tl.arange(0, bn)
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        k_block = tl.advance(k_block, (0, bn))
        v_block = tl.advance(v_block, (bn, 0))
        s = tl.dot(q, k) * scale
        s = tl.where(keys[None, :] < n_k, s, float("-inf"))
        if causal:
            s = tl.where(rows[:, None] >= keys[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    o = acc / l[:, None]
    o_ptr += batch * n_q * d
    tl.store(o_ptr + rows[:, None] * d + dims[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < n_q)
    tl.store(lse_ptr + batch * n_q + rows, m + tl.log(l), mask=rows < n_q)


@triton.jit
def dq_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, n_q, n_k, scale,
    sqb, sqn, sqd, skb, skn, skd, svb, svn, svd,
    d: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    row_start = tl.program_id(0) * bm
    rows = row_start + tl.arange(0, bm)
    dims = tl.arange(0, d)
    q_ptr += batch * sqb
    k_ptr += batch * skb
    v_ptr += batch * svb
    tile = batch * n_q * d + rows[:, None] * d + dims[None, :]
    q = tl.load(q_ptr + rows[:, None] * sqn + dims[None, :] * sqd, mask=rows[:, None] < n_q, other=0.0)
    do = tl.load(do_ptr + tile, mask=rows[:, None] < n_q, other=0.0)
    lse = tl.load(lse_ptr + batch * n_q + rows, mask=rows < n_q, other=0.0)
    delta = tl.load(delta_ptr + batch * n_q + rows, mask=rows < n_q, other=0.0)
    dq = tl.zeros((bm, d), tl.float32)
    end = n_k
    if causal:
        end = tl.minimum(n_k, row_start + bm)
    for start in range(0, end, bn):
        keys = start + tl.arange(0, bn)
        k = tl.load(k_ptr + keys[:, None] * skn + dims[None, :] * skd, mask=keys[:, None] < n_k, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * svn + dims[None, :] * svd, mask=keys[:, None] < n_k, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        p = tl.exp(s - lse[:, None])
        p = tl.where(keys[None, :] < n_k, p, 0.0)
        if causal:
            p = tl.where(rows[:, None] >= keys[None, :], p, 0.0)
        dp = tl.dot(do, tl.trans(v))
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(k.dtype), k)
    dq = dq * scale
    tl.store(dq_ptr + tile, dq.to(dq_ptr.dtype.element_ty), mask=rows[:, None] < n_q)


@triton.jit
def dk_dv_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, n_q, n_k, scale,
    sqb, sqn, sqd, skb, skn, skd, svb, svn, svd,
    d: tl.constexpr, bm: tl.constexpr, bn: tl.constexpr, causal: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    key_start = tl.program_id(0) * bn
    keys = key_start + tl.arange(0, bn)
    dims = tl.arange(0, d)
    q_ptr += batch * sqb
    k_ptr += batch * skb
    v_ptr += batch * svb
    do_ptr += batch * n_q * d
    lse_ptr += batch * n_q
    delta_ptr += batch * n_q
    k = tl.load(k_ptr + keys[:, None] * skn + dims[None, :] * skd, mask=keys[:, None] < n_k, other=0.0)
    v = tl.load(v_ptr + keys[:, None] * svn + dims[None, :] * svd, mask=keys[:, None] < n_k, other=0.0)
    dk = tl.zeros((bn, d), tl.float32)
    dv = tl.zeros((bn, d), tl.float32)
    first = 0
    if causal:
        first = key_start // bm * bm
    for start in range(first, n_q, bm):
        rows = start + tl.arange(0, bm)
        q = tl.load(q_ptr + rows[:, None] * sqn + dims[None, :] * sqd, mask=rows[:, None] < n_q, other=0.0)
        do = tl.load(do_ptr + rows[:, None] * d + dims[None, :], mask=rows[:, None] < n_q, other=0.0)
        lse = tl.load(lse_ptr + rows, mask=rows < n_q, other=0.0)
        delta = tl.load(delta_ptr + rows, mask=rows < n_q, other=0.0)
        s_t = tl.dot(k, tl.trans(q)) * scale
        p_t = tl.exp(s_t - lse[None, :])
        p_t = tl.where(rows[None, :] < n_q, p_t, 0.0)
        if causal:
            p_t = tl.where(rows[None, :] >= keys[:, None], p_t, 0.0)
        dv += tl.dot(p_t.to(do.dtype), do)
        dp_t = tl.dot(v, tl.trans(do))
        ds_t = p_t * (dp_t - delta[None, :])
        dk += tl.dot(ds_t.to(q.dtype), q)
    dk = dk * scale
    tile = batch * n_k * d + keys[:, None] * d + dims[None, :]
    tl.store(dk_ptr + tile, dk.to(dk_ptr.dtype.element_ty), mask=keys[:, None] < n_k)
    tl.store(dv_ptr + tile, dv.to(dv_ptr.dtype.element_ty), mask=keys[:, None] < n_k)


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        b, n_q, d = q.shape
        n_k = k.shape[1]
        scale = 1 / math.sqrt(d)
        o = torch.empty((b, n_q, d), dtype=q.dtype, device=q.device)
        lse = torch.empty((b, n_q), dtype=torch.float32, device=q.device)
        block = 64 if d <= 64 else 32
        forward_kernel[(triton.cdiv(n_q, block), b)](
            q, k, v, o, lse, n_q, n_k, scale, *q.stride(), *k.stride(), *v.stride(),
            d=d, bm=block, bn=block, causal=is_causal, num_stages=1,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal = is_causal
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        b, n_q, d = q.shape
        n_k = k.shape[1]
        scale = 1 / math.sqrt(d)
        do = do.contiguous()
        delta = (do.float() * o.float()).sum(dim=-1)
        dq = torch.empty((b, n_q, d), dtype=q.dtype, device=q.device)
        dk = torch.empty((b, n_k, d), dtype=k.dtype, device=k.device)
        dv = torch.empty((b, n_k, d), dtype=v.dtype, device=v.device)
        block = 64 if d <= 64 else 32
        dq_kernel[(triton.cdiv(n_q, block), b)](
            q, k, v, do, lse, delta, dq, n_q, n_k, scale, *q.stride(), *k.stride(), *v.stride(),
            d=d, bm=block, bn=block, causal=ctx.causal, num_stages=1,
        )  # fmt: skip
        dk_dv_kernel[(triton.cdiv(n_k, block), b)](
            q, k, v, do, lse, delta, dk, dv, n_q, n_k, scale, *q.stride(), *k.stride(), *v.stride(),
            d=d, bm=block, bn=block, causal=ctx.causal, num_stages=1,
        )  # fmt: skip
        return dq, dk, dv, None


def flash_attention(q, k, v, is_causal=False):
    return FlashAttention.apply(q, k, v, is_causal)
