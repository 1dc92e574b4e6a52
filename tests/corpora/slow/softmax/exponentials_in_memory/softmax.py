import torch
import triton
import triton.language as tl


@triton.jit
def exp_kernel(x_ptr, e_ptr, n_cols, row_stride, col_stride, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = float("-inf")
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        x = tl.load(x_ptr + row * row_stride + cols * col_stride, mask=cols < n_cols, other=float("-inf"))
        m = tl.maximum(m, tl.max(x.to(tl.float32), axis=0))
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        x = tl.load(x_ptr + row * row_stride + cols * col_stride, mask=cols < n_cols, other=float("-inf"))
        tl.store(e_ptr + row * n_cols + cols, tl.exp(x.to(tl.float32) - m), mask=cols < n_cols)


@triton.jit
def sum_kernel(e_ptr, s_ptr, n_cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        total += tl.sum(tl.load(e_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0), axis=0)
    tl.store(s_ptr + row, total)


@triton.jit
def divide_kernel(e_ptr, s_ptr, y_ptr, n_cols, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.load(s_ptr + row)
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        e = tl.load(e_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
        tl.store(y_ptr + row * n_cols + cols, (e / total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax(x):
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows > 0:
        e = torch.empty((n_rows, n_cols), dtype=torch.float32, device=x.device)
        s = torch.empty(n_rows, dtype=torch.float32, device=x.device)
        block = min(triton.next_power_of_2(n_cols), 4096)
        exp_kernel[(n_rows,)](x, e, n_cols, x.stride(0), x.stride(1), block=block, num_warps=8)
        sum_kernel[(n_rows,)](e, s, n_cols, block=block, num_warps=8)
        divide_kernel[(n_rows,)](e, s, y, n_cols, block=block, num_warps=8)
    return y
