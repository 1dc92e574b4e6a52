"""Softmax over the rows of a matrix in Triton, the staff's answer.

    y_ij = exp(x_ij − m_i) / Σ_k exp(x_ik − m_i),   m_i = max_k x_ik

Subtracting the maximum keeps every exponential in [0, 1]. exp(t) is computed as exp2(t · log₂e), the one the
GPU has an instruction for, and in this order: (x − m) · log₂e. The other order, x · log₂e − m · log₂e,
subtracts two large numbers. If both are rounded first, as on a CPU, the result is a hundred times less accurate
at |x| ≈ 1000. A GPU's compiler may use one multiply-add, which rounds once, but need not.

About 5 operations per element for 8 bytes (float32) or 4 (16-bit types): memory sets the speed, so a row should be read
once and written once:

- A short row is kept in the registers of one program (`softmax_kernel`). The shortest rows share a program, or most of its
  lanes would be idle.
- A longer row is shared by several programs (`longest_unshared_row` says from which length on). Each keeps a piece of it in
  registers, and needs from the others only the maximum and the sum of theirs, 8 bytes a piece, which they exchange through
  memory (`softmax_pieces_kernel`).
- Where programs do not run at the same time, as in an interpreter, or where a row has too many pieces for a GPU, one
  program reads its row twice (`softmax_two_passes_kernel`): first for maximum and sum together, then to normalise.

A program stores its maximum and sum before it waits for those of others. GPUs start programs in the order of their
numbers, so the others are running or will be soon; but CUDA does not promise this order. In another order softmax would be
slower and as correct: a program that has looked LOOKS times, some milliseconds, waits no longer and reads the row itself.
"""

import contextlib
from typing import NamedTuple

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)

TILE_ELEMENTS = 1024  # short rows are gathered into tiles of about this size
MAX_ROW_IN_REGISTERS = 32768  # columns: 32 float32 registers per thread with 32 warps; twice that spills
LOOP_BLOCK = 16384  # columns of a row that is read twice, at a time
WARP = tl.constexpr(32)  # threads
ALIGNED = tl.constexpr(16)  # elements: a block that starts at a multiple of it is loaded and stored 16 bytes at a time
MAX_PAIRS = 256  # of a row: a thread of a single warp has eight of them then, and spills more with twice as many
LOOKS = tl.constexpr(4096)  # of a program at the pairs of the others, a microsecond each, until it reads the row itself


class Piece(NamedTuple):
    """A program's piece of a long row, and Triton's options for the kernel."""

    piece: int
    num_warps: int
    maxnreg: int  # registers of a thread: the fewer, the more programs share a multiprocessor, and the more loads are under way


# Fast on an H100 and an H200.
PIECES = {
    torch.float16: Piece(4096, 1, 80),
    torch.bfloat16: Piece(4096, 1, 80),
    torch.float32: Piece(8192, 4, 112),
}


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

    # Columns beyond the row do not count: exp(−inf) = 0.
    x = tl.load(x_ptr + rows * x_row_stride + cols * x_col_stride, mask=mask, other=float("-inf")).to(tl.float32)

    # A row that is all −inf has −inf − (−inf) = NaN here, as in PyTorch.
    numerator = tl.exp2((x - tl.max(x, axis=1, keep_dims=True)) * LOG2_E)
    y = numerator / tl.sum(numerator, axis=1, keep_dims=True)

    tl.store(y_ptr + rows * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def packed(x):
    """x, unchanged, which the compiler cannot know. So it keeps 16-bit numbers packed from one use to the next; else it would
    keep them as float32, in twice the registers.
    """
    if x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@triton.jit
def unpacked(x):
    """packed(x) in float32: two bfloat16 numbers by two instructions, where the compiler takes three, and more registers."""
    if x.dtype == tl.bfloat16:
        halves: tl.constexpr = "shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;"
        return tl.inline_asm_elementwise(halves, "=r,=r,r", [x], dtype=tl.float32, is_pure=False, pack=2)
    return packed(x).to(tl.float32)


@triton.jit
def maximum_and_sum(x):
    """The maximum of x, a block of one dimension, and Σ exp(x − maximum)."""
    maximum = tl.max(x.to(tl.float32), axis=0)
    # −inf − (−inf) would be NaN: where there is nothing else, the sum is taken relative to 0, and is 0.
    reference = tl.where(maximum == float("-inf"), 0.0, maximum)
    return maximum, tl.sum(tl.exp2((unpacked(x) - reference) * LOG2_E), axis=0)


@triton.jit
def normalized(x, maximum, total):
    """exp(x − maximum) / total, of x's dtype. In 16 bits as exp2((x − maximum) · log₂e − log₂ total): one multiply-add for two
    multiplications. In float32 that would double the error: log₂ total, 17 for 131072 equal numbers, makes exponents larger, and
    from 16 to 32 numbers lie 2e-6 apart.
    """
    if x.dtype == tl.float32:
        y = tl.exp2((x - maximum) * LOG2_E) * (1.0 / total)
    else:
        y = tl.exp2((unpacked(x) - maximum) * LOG2_E - tl.log2(total))
    return y.to(x.dtype)


@triton.jit
def publish(pairs_ptr, maximum, total):
    """Store a piece's pair as one word of 64 bits, so that no other program sees half of it.

    A word of 0 says that the pair is missing. No pair is 0: the bits of −inf are not, and a finite maximum has a sum of at
    least 1.
    """
    high = maximum.to(tl.uint32, bitcast=True).to(tl.uint64) << 32
    word = high | total.to(tl.uint32, bitcast=True).to(tl.uint64)
    tl.atomic_xchg(pairs_ptr, word.to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit
def read_row(x_ptr, n_cols, block: tl.constexpr):
    """Maximum and sum of the row at x_ptr, in one pass: the online softmax of Milakov & Gimelshein 2018, arXiv 1805.02867,
    Algorithm 3. A sum kept relative to an old maximum is rescaled to a new one by exp(m_old − m_new).
    The sum is float64: in float32, one that has become large takes up little of each small block. The rescaling is float32.
    """
    n_cols = n_cols.to(tl.int64)  # and with it the columns, which pass 2³¹ in the last block of a huge row
    row_max = float("-inf")
    row_sum = tl.full((), 0.0, tl.float64)  # Σ exp(x_k − row_max) over the columns seen so far
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        # While all entries so far are −inf, new_max would give NaN, and any finite reference the sum 0.
        reference = tl.where(new_max == float("-inf"), 0.0, new_max)
        row_sum = row_sum * tl.exp2((row_max - reference) * LOG2_E) + tl.sum(tl.exp2((x - reference) * LOG2_E), axis=0)
        row_max = new_max
    return row_max, row_sum.to(tl.float32)


@triton.jit
def collect(pairs_ptr, n_pairs, max_pairs: tl.constexpr, x_ptr, n_cols):
    """Maximum and sum of the row at x_ptr, from its n_pairs pairs.

    max_pairs: a power of two, at least n_pairs and WARP. The warps of a program look at different times, so one may find all
    pairs where another has waited in vain. If they took different branches, a barrier in a branch would wait for ever.
    - If max_pairs is WARP, each warp loads all pairs, one for each thread, and decides for itself. So no branch may have a
      barrier: a warp reads the row by itself, in blocks of WARP.
    - If it is larger, the warps load different pairs, take the minimum of them all, and decide alike.
    - It may not be smaller: two threads of a warp would load the same word, one before and one after it is stored, and take
      different branches.
    """
    places = tl.arange(0, max_pairs)
    pairs = tl.load(pairs_ptr + places, mask=places < n_pairs, other=-1, volatile=True)
    looks = 1
    while (tl.min((pairs != 0).to(tl.int32), axis=0) == 0) & (looks < LOOKS):
        pairs = tl.load(pairs_ptr + places, mask=places < n_pairs, other=-1, volatile=True)
        looks += 1
    if looks == LOOKS:
        row_max, row_sum = read_row(x_ptr, n_cols, WARP)
    else:
        maxima = tl.where(places < n_pairs, (pairs >> 32).to(tl.int32).to(tl.float32, bitcast=True), float("-inf"))
        sums = tl.where(places < n_pairs, pairs.to(tl.int32).to(tl.float32, bitcast=True), 0.0)
        row_max = tl.max(maxima, axis=0)
        row_sum = tl.sum(sums * tl.exp2((maxima - row_max) * LOG2_E), axis=0)
    return row_max, row_sum


@triton.jit
def softmax_pieces_kernel(
    x_ptr, y_ptr, pairs_ptr, n_cols, has_edges: tl.constexpr, piece: tl.constexpr, max_pairs: tl.constexpr
):  # fmt: skip
    """Longer rows, each by as many programs as it has pieces.

    x_ptr, y_ptr: (n_rows, n_cols), contiguous. pairs_ptr: int64 (n_rows, max_pairs), maximum and sum of each piece, 0 at first.
    has_edges: n_cols is no multiple of ALIGNED. Counted from the start of the matrix, pieces go from the first multiple of
    ALIGNED in the row to the last, or they would be loaded and stored by single elements. The elements before and after, fewer
    than ALIGNED each, are the row's edges. They have a pair as well, the last one, and are left to the program with the first
    piece.
    """
    n_pieces = tl.cdiv(n_cols // ALIGNED * ALIGNED, piece)
    row, own = (tl.program_id(0) // n_pieces).to(tl.int64), tl.program_id(0) % n_pieces
    pairs_ptr += row * max_pairs
    row_start, row_end = row * n_cols, (row + 1) * n_cols
    start, end = tl.cdiv(row_start, ALIGNED) * ALIGNED, row_end // ALIGNED * ALIGNED
    lanes, n_lanes = own * piece + tl.arange(0, piece), (end - start).to(tl.int32)
    x = tl.load(x_ptr + start + lanes, mask=lanes < n_lanes, other=float("-inf"))
    if has_edges:
        places = tl.arange(0, 2 * ALIGNED)
        is_before = places < ALIGNED
        edges = tl.where(is_before, row_start, end - ALIGNED) + places
        is_edge = (edges < tl.where(is_before, start, row_end)) & (own == 0)
        x_of_edges = tl.load(x_ptr + edges, mask=is_edge, other=float("-inf"))
        if own == 0:
            maximum, total = maximum_and_sum(x_of_edges)
            publish(pairs_ptr + n_pieces, maximum, total)
    maximum, total = maximum_and_sum(x)
    publish(pairs_ptr + own, maximum, total)
    row_max, row_sum = collect(pairs_ptr, n_pieces + has_edges, max_pairs, x_ptr + row_start, n_cols)
    tl.store(y_ptr + start + lanes, normalized(x, row_max, row_sum), mask=lanes < n_lanes)
    if has_edges:
        tl.store(y_ptr + edges, normalized(x_of_edges, row_max, row_sum), mask=is_edge)


@triton.jit
def softmax_two_passes_kernel(x_ptr, y_ptr, n_cols, block: tl.constexpr):
    """Longer rows, one program each, in two passes. x_ptr, y_ptr: (n_rows, n_cols), contiguous."""
    n_cols = n_cols.to(tl.int64)
    x_ptr += tl.program_id(0) * n_cols
    y_ptr += tl.program_id(0) * n_cols
    row_max, row_sum = read_row(x_ptr, n_cols, block)
    factor = 1.0 / row_sum
    for start in range(0, n_cols, block):
        cols = start + tl.arange(0, block)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2_E) * factor
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def runs_at_once(x: torch.Tensor) -> int:
    """How many programs with a piece run at the same time on x's device, at the least; 0 in an interpreter."""
    if not x.is_cuda or triton.knobs.runtime.interpret:
        return 0
    # By registers 65536 // (32 · 4 · 112), with float32's piece, which takes the most.
    return 4 * torch.cuda.get_device_properties(x.device).multi_processor_count


def softmax_of_long_rows(x: torch.Tensor, y: torch.Tensor, piece: Piece | None = None) -> None:
    """Write the softmax of x's rows into y; both (rows, columns), contiguous, with at least ALIGNED columns: every row then
    has a multiple of ALIGNED. One edge ends at the first of them, the other begins at the last.
    """
    n_rows, n_cols = x.shape
    has_edges = n_cols % ALIGNED.value != 0
    piece = piece or PIECES[x.dtype]
    n_pieces = triton.cdiv(n_cols // ALIGNED.value * ALIGNED.value, piece.piece)
    n_pairs = n_pieces + has_edges
    if n_pairs > MAX_PAIRS or 2 * n_pieces > runs_at_once(x):  # half of the GPU may be taken by another launch
        softmax_two_passes_kernel[(n_rows,)](x, y, n_cols, block=LOOP_BLOCK, num_warps=16)
        return
    max_pairs = max(WARP.value, triton.next_power_of_2(n_pairs))
    pairs = torch.zeros(n_rows * max_pairs, dtype=torch.int64, device=x.device)
    softmax_pieces_kernel[(n_rows * n_pieces,)](
        x, y, pairs, n_cols, has_edges=has_edges, max_pairs=max_pairs, **piece._asdict()
    )


def is_dense(x: torch.Tensor) -> bool:
    """Whether Triton may load x, and pieces of its rows, 16 bytes at a time."""
    return x.is_contiguous() and x.data_ptr() % 16 == 0


def longest_unshared_row(x: torch.Tensor) -> int:
    """The longest row of x, in columns, that one program takes. Longer rows are faster in pieces (measured on an H200): several
    programs with pieces share a multiprocessor, and one works while another waits. And pieces are aligned where rows are not.
    """
    if not is_dense(x):  # pieces need a dense copy, which costs more than they bring
        return MAX_ROW_IN_REGISTERS
    longest = 8192 if x.element_size() == 2 else 16384
    return longest if x.shape[1] % ALIGNED.value == 0 else longest // 2


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
        if n_cols <= longest_unshared_row(x):
            block_cols = triton.next_power_of_2(n_cols)
            block_rows = min(max(1, TILE_ELEMENTS // block_cols), triton.next_power_of_2(n_rows))
            # 32 elements per thread: few warps combine their maxima and sums quickly. But 16 for very short rows, which have
            # little to combine, and for wide rows, which need more loads in flight (up to the 32 warps of a block). Float32
            # rows that fill their block are wide from 2048 columns on: dense ones are loaded 16 bytes at a time. Rows that are not
            # aligned are loaded by elements, and wide from 8193 columns on.
            widest = 8192 if n_cols % 16 != 0 else 1024 if n_cols == block_cols and x.element_size() == 4 else 4096
            per_thread = 32 if 512 <= block_cols <= widest else 16
            num_warps = min(max(block_rows * block_cols // (32 * per_thread), 1), 32)
            softmax_kernel[(triton.cdiv(n_rows, block_rows),)](
                x, y, n_rows, n_cols, x.stride(0), x.stride(1),
                block_rows=block_rows, block_cols=block_cols, num_warps=num_warps,
            )  # fmt: skip
        else:
            softmax_of_long_rows(x if is_dense(x) else x.clone(memory_format=torch.contiguous_format), y)
    return y
