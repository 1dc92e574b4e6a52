"""Softmax over the rows of a matrix in Triton, the staff's answer.

    y_ij = exp(x_ij − m_i) / Σ_k exp(x_ik − m_i),   m_i = max_k x_ik

Subtracting the maximum keeps every exponential in [0, 1]. exp(t) is computed as exp2(t · log₂e), the one the
GPU has an instruction for, and in this order: (x − m) · log₂e. The other order, x · log₂e − m · log₂e,
subtracts two large numbers. If both are rounded first, as on a CPU, the result is a hundred times less accurate
at |x| ≈ 1000. A GPU's compiler may use one multiply-add, which rounds once, but need not.

Two kernels:
- A row that fits in a program's registers is read once and written once, the least traffic possible. Short rows share a
  program, or most of its lanes would be idle.
- A longer row is read twice. The first pass finds maximum and sum together (the online softmax of Milakov & Gimelshein
  2018, arXiv 1805.02867, Algorithm 3): a sum kept relative to an old maximum is rescaled to a new one by exp(m_old −
  m_new). Every thread does so for its own columns, and they meet once a row. The second pass normalises: first the
  pieces that were read last and are still in registers, then the rest from the L2 cache. The first pass asks the cache
  to keep the row (evict_last), the second to drop it (evict_first). Results leave the cache first (.cs).

About 5 operations per element for 8 bytes (float32) or 4 (16-bit types): memory sets the speed.
"""

import contextlib

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

TILE_ELEMENTS = 2048  # short rows are gathered into tiles of about this size
MAX_ROW_IN_REGISTERS = 32768  # 32 float32 registers per thread with 32 warps; twice that spills
LONG_ROW_LANES = 1024  # the threads of 32 warps, as many as a program can have
SHARED_L2_BYTES = 128 * 1024  # rows up to this fit into L2 while each multiprocessor has two of them


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, x_row_stride, x_col_stride,
    block_rows: tl.constexpr, block_cols: tl.constexpr,
):  # fmt: skip
    """Rows that fit: each program takes block_rows whole rows, block_cols ≥ n_cols.

    x_ptr: (n_rows, n_cols) with the given strides in elements; y_ptr: (n_rows, n_cols) contiguous.
    """
    # int64 before the multiplications with strides: the offsets pass 2³¹ on large tensors.
    rows = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)[:, None]
    cols = tl.arange(0, block_cols).to(tl.int64)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)

    x = tl.load(x_ptr + rows * x_row_stride + cols * x_col_stride, mask=mask, other=0.0).to(tl.float32)
    # Columns beyond the row must not count: exp(−inf) = 0. Rows beyond the last stay 0 and are not stored.
    x = tl.where(cols < n_cols, x, float("-inf"))

    # A row that is all −inf has −inf − (−inf) = NaN here, as in PyTorch.
    numerator = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2_E)
    y = numerator / tl.sum(numerator, axis=1, keep_dims=True)

    tl.store(y_ptr + rows * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def columns(start, steps: tl.constexpr, lanes: tl.constexpr, vector: tl.constexpr):
    """(steps, lanes, vector) columns from start on. In every step each lane has `vector` neighbours: one load."""
    step, lane = tl.arange(0, steps)[:, None, None], tl.arange(0, lanes)[None, :, None]
    return start + (step * lanes + lane) * vector + tl.arange(0, vector)[None, None, :]


@triton.jit
def add_piece(x, lane_max, lane_sum):
    """Maximum and sum of each lane with its elements of x, (steps, lanes, vector), among them."""
    x = x.to(tl.float32)
    new_max = tl.maximum(lane_max, tl.max(tl.max(x, axis=2), axis=0))
    # While all entries so far are −inf, new_max would give NaN, and any finite reference the sum 0.
    reference = tl.where(new_max == float("-inf"), 0.0, new_max)
    lane_sum *= tl.exp2((lane_max - reference) * LOG2_E)
    lane_sum += tl.sum(tl.sum(tl.exp2((x - reference[None, :, None]) * LOG2_E), axis=2), axis=0)
    return new_max, lane_sum


@triton.jit
def store_piece(y_row_ptr, x, cols, n_cols, row_max, factor):
    y = tl.exp2((x.to(tl.float32) - row_max) * LOG2_E) * factor
    tl.store(y_row_ptr + cols, y.to(y_row_ptr.dtype.element_ty), mask=cols < n_cols, cache_modifier=".cs")


@triton.jit
def softmax_long_row_kernel(
    x_ptr, y_ptr, n_cols, x_row_stride,
    steps: tl.constexpr, lanes: tl.constexpr, vector: tl.constexpr, n_kept: tl.constexpr, is_huge: tl.constexpr,
):  # fmt: skip
    """Longer rows: one program each, in pieces. x_ptr's rows are dense. is_huge: columns pass 2³¹ in the last piece."""
    if is_huge:
        n_cols = n_cols.to(tl.int64)  # and with it the columns
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * x_row_stride
    y_row_ptr = y_ptr + row * n_cols
    piece: tl.constexpr = steps * lanes * vector
    kept_from = (tl.cdiv(n_cols, piece) - n_kept) * piece  # not negative: shorter rows are the other kernel's

    # Invariant: lane_sum = Σ exp(x_k − lane_max) over the lane's columns seen so far. A lane is a thread, so threads
    # need not wait for each other here, as they would for a maximum of the whole piece.
    lane_max = tl.full((lanes,), float("-inf"), tl.float32)
    lane_sum = tl.zeros((lanes,), tl.float32)
    for start in range(0, kept_from, piece):
        cols = columns(start, steps, lanes, vector)
        x = tl.load(x_row_ptr + cols, eviction_policy="evict_last")
        lane_max, lane_sum = add_piece(x, lane_max, lane_sum)
    kept = ()
    for i in tl.static_range(n_kept):
        cols = columns(kept_from + i * piece, steps, lanes, vector)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"), eviction_policy="evict_first")
        lane_max, lane_sum = add_piece(x, lane_max, lane_sum)
        kept += (x,)

    row_max = tl.max(lane_max, axis=0)
    # Once: a division by element would take longer than its load.
    factor = 1.0 / tl.sum(lane_sum * tl.exp2((lane_max - row_max) * LOG2_E), axis=0)

    for i in tl.static_range(n_kept):
        store_piece(y_row_ptr, kept[i], columns(kept_from + i * piece, steps, lanes, vector), n_cols, row_max, factor)
    for start in range(0, kept_from, piece):
        cols = columns(start, steps, lanes, vector)
        x = tl.load(x_row_ptr + cols, eviction_policy="evict_first")
        store_piece(y_row_ptr, x, cols, n_cols, row_max, factor)


def long_row_tile(n_cols: int, element_size: int) -> tuple[int, int]:
    """Bytes that a lane has in each piece, and how many pieces stay in registers.

    Found by trying on an H200. A program of 32 registers per thread leaves room for a second one on its
    multiprocessor, which hides its waits, as long as L2 holds the rows of both. Where it does not, 64 KB of the
    row stay in registers instead.
    """
    if n_cols * element_size <= SHARED_L2_BYTES:
        return 16, 1
    return (16, 4) if element_size == 4 else (32, 2)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension.

    x: (rows, columns), float32, float16 or bfloat16, any strides. Entries may be −inf; a row with nothing
    else becomes NaN, as in PyTorch. Computed in float32.
    Returns a contiguous tensor of x's shape and dtype.
    Raises ValueError if x is not 2-D, TypeError for another dtype.
    """
    if x.ndim != 2:
        raise ValueError(f"softmax: x must be 2-D (rows, columns), not of shape {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(f"softmax: x must be float32, float16 or bfloat16, not {x.dtype}")

    x = x.resolve_neg()  # a kernel reads what stands in memory: for z.conj().imag, numbers of the opposite sign
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y

    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        if n_cols <= MAX_ROW_IN_REGISTERS:
            block_cols = triton.next_power_of_2(n_cols)
            block_rows = min(max(1, TILE_ELEMENTS // block_cols), triton.next_power_of_2(n_rows))
            # 32 elements per thread: few warps combine their maxima and sums quickly. But 16 for very short rows, which have
            # little to combine, and for wide rows, which need more loads in flight (up to the 32 warps of a block). Float32
            # rows that fill their block are wide from 1024 columns on: dense ones are loaded 16 bytes at a time.
            widest = 512 if n_cols == block_cols and x.element_size() == 4 else 4096
            per_thread = 32 if 512 <= block_cols <= widest else 16
            num_warps = min(max(block_rows * block_cols // (32 * per_thread), 1), 32)
            softmax_kernel[(triton.cdiv(n_rows, block_rows),)](
                x, y, n_rows, n_cols, x.stride(0), x.stride(1),
                block_rows=block_rows, block_cols=block_cols, num_warps=num_warps,
            )  # fmt: skip
        else:
            x = x if x.stride(1) == 1 else x.contiguous()
            # Loads of 16 bytes if Triton knows that rows start at multiples of 16 bytes, else of single elements: lanes with
            # neighbouring elements would otherwise have to exchange them.
            aligned = n_cols % 16 == 0 and x.stride(0) % 16 == 0 and x.data_ptr() % 16 == 0
            vector = 16 // x.element_size() if aligned else 1
            lane_bytes, n_kept = long_row_tile(n_cols, x.element_size())
            steps = lane_bytes // x.element_size() // vector
            softmax_long_row_kernel[(n_rows,)](
                x, y, n_cols, x.stride(0),
                steps=steps, lanes=LONG_ROW_LANES, vector=vector, n_kept=n_kept,
                is_huge=n_cols + steps * LONG_ROW_LANES * vector > 2**31, num_warps=LONG_ROW_LANES // 32,
            )  # fmt: skip
    return y
