"""P = 2^(S' − L') with S' = log2(e) · scale · Q Kᵀ and L' the base-2 logsumexp of its rows."""

import triton
import triton.language as tl


@triton.jit
def tile(ptr, index, count, stride_n, stride_d, D: tl.constexpr):
    place = ptr + index[:, None] * stride_n + tl.arange(0, D)[None, :] * stride_d
    return tl.load(place, mask=index[:, None] < count, other=0.0)


@triton.jit
def put(ptr, values, index, count, D: tl.constexpr):
    place = ptr + index[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(place, values.to(ptr.dtype.element_ty), mask=index[:, None] < count)


@triton.jit
def allowed(i, j, M, CAUSAL: tl.constexpr):
    ok = j < M
    if CAUSAL:
        ok = ok & (j <= i)
    return ok


@triton.jit
def forward(Q, K, V, O, L, N, M, factor, qb, qn, qd, kb, kn, kd, vb, vn, vd,
            D: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BN + tl.arange(0, BN)
    q = tile(Q + b * qb, i, N, qn, qd, D)
    top = tl.full([BN], -1e30, tl.float32)
    norm = tl.zeros([BN], tl.float32)
    out = tl.zeros([BN, D], tl.float32)
    for first in range(0, M, BM):
        j = first + tl.arange(0, BM)
        s = tl.dot(q, tl.trans(tile(K + b * kb, j, M, kn, kd, D))) * factor
        s = tl.where(allowed(i[:, None], j[None, :], M, CAUSAL), s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        norm = norm * shrink + tl.sum(p, 1)
        v = tile(V + b * vb, j, M, vn, vd, D)
        out = tl.dot(p.to(v.dtype), v, out * shrink[:, None])
        top = higher
    put(O + b * N * D, out / norm[:, None], i, N, D)
    tl.store(L + b * N + i, top + tl.log2(norm), mask=i < N)


@triton.jit
def row_dots(O, DO, DELTA, rows, D: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    o = tile(O, r, rows, D, 1, D).to(tl.float32)
    do = tile(DO, r, rows, D, 1, D).to(tl.float32)
    tl.store(DELTA + r, tl.sum(o * do, 1), mask=r < rows)


@triton.jit
def backward(Q, K, V, DO, L, DELTA, DQ, DK, DV, N, M, scale, factor, qb, qn, qd, kb, kn, kd, vb, vn, vd,
             D: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, CAUSAL: tl.constexpr):  # fmt: skip
    """Programs below cdiv(N, BN) compute dQ, the others dK and dV."""
    b = tl.program_id(0).to(tl.int64)
    Q += b * qb
    K += b * kb
    V += b * vb
    DO += b * N * D
    L += b * N
    DELTA += b * N
    blocks = tl.cdiv(N, BN)
    if tl.program_id(1) < blocks:
        i = tl.program_id(1) * BN + tl.arange(0, BN)
        q = tile(Q, i, N, qn, qd, D)
        do = tile(DO, i, N, D, 1, D)
        lse = tl.load(L + i, mask=i < N, other=float("inf"))
        delta = tl.load(DELTA + i, mask=i < N, other=0.0)
        dq = tl.zeros([BN, D], tl.float32)
        for first in range(0, M, BM):
            j = first + tl.arange(0, BM)
            k = tile(K, j, M, kn, kd, D)
            v = tile(V, j, M, vn, vd, D)
            p = tl.exp2(tl.dot(q, tl.trans(k)) * factor - lse[:, None])
            p = tl.where(allowed(i[:, None], j[None, :], M, CAUSAL), p, 0.0)
            ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None])
            dq = tl.dot(ds.to(k.dtype), k, dq)
        put(DQ + b * N * D, dq * scale, i, N, D)
    else:
        j = (tl.program_id(1) - blocks) * BM + tl.arange(0, BM)
        k = tile(K, j, M, kn, kd, D)
        v = tile(V, j, M, vn, vd, D)
        dk = tl.zeros([BM, D], tl.float32)
        dv = tl.zeros([BM, D], tl.float32)
        for first in range(0, N, BN):
            i = first + tl.arange(0, BN)
            q = tile(Q, i, N, qn, qd, D)
            do = tile(DO, i, N, D, 1, D)
            lse = tl.load(L + i, mask=i < N, other=float("inf"))
            delta = tl.load(DELTA + i, mask=i < N, other=0.0)
            p = tl.exp2(tl.dot(k, tl.trans(q)) * factor - lse[None, :])
            p = tl.where(allowed(i[None, :], j[:, None], M, CAUSAL), p, 0.0)
            dv = tl.dot(p.to(do.dtype), do, dv)
            ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
            dk = tl.dot(ds.to(q.dtype), q, dk)
        put(DK + b * M * D, dk * scale, j, M, D)
        put(DV + b * M * D, dv, j, M, D)
