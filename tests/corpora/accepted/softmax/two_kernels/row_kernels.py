import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def short_row(x_ptr, y_ptr, n, stride_row, stride_col, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_row + col.to(tl.int64) * stride_col, mask=col < n, other=-float("inf")).to(
        tl.float32
    )
    e = tl.exp2((x - tl.max(x)) * LOG2E)
    tl.store(y_ptr + row * n + col, (e / tl.sum(e)).to(y_ptr.dtype.element_ty), mask=col < n)


@triton.jit
def long_row(x_ptr, y_ptr, n, stride_row, stride_col, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    for start in tl.range(0, n, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_row + col.to(tl.int64) * stride_col, mask=col < n, other=-float("inf")).to(
            tl.float32
        )
        m = tl.maximum(m, tl.max(x))
    s = 0.0
    for start in tl.range(0, n, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_row + col.to(tl.int64) * stride_col, mask=col < n, other=-float("inf")).to(
            tl.float32
        )
        s += tl.sum(tl.exp2((x - m) * LOG2E))
    for start in tl.range(0, n, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_row + col.to(tl.int64) * stride_col, mask=col < n, other=-float("inf")).to(
            tl.float32
        )
        e = tl.exp2((x - m) * LOG2E) * (1.0 / s)
        tl.store(y_ptr + row * n + col, e.to(y_ptr.dtype.element_ty), mask=col < n)
