"""GeLU and softmax: the reference's kernels with other blocks, and other ways through a long row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import triton
import triton.language as tl

from reference import softmax as softmax_reference
from reference import triton_gelu as gelu_reference

LOG2_E = tl.constexpr(1.4426950408889634)
Variant = Callable[[torch.Tensor], torch.Tensor]


def gelu_variants() -> Iterator[tuple[str, Variant]]:
    for block in (512, 1024, 2048, 4096, 8192):
        for warps in (4, 8):
            if 4 <= block // (32 * warps) <= 32:
                yield f"block {block}, {warps} warps", _gelu(block, warps)


def _gelu(block: int, warps: int) -> Variant:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), block),)
        gelu_reference.gelu_kernel[grid](x, y, x.numel(), block_size=block, num_warps=warps)
        return y

    return run


def softmax_variants(n_cols: int) -> Iterator[tuple[str, Variant]]:
    if n_cols <= softmax_reference.MAX_ROW_IN_REGISTERS:
        width = triton.next_power_of_2(n_cols)
        for rows in (1, 2, 4, 8, 16, 32, 64):
            for warps in (1, 2, 4, 8, 16, 32):
                if 512 <= rows * width <= 32768 and 2 <= rows * width // (32 * warps) <= 64:
                    yield f"{rows} rows, {warps} warps", _short_rows(rows, width, warps)
        return
    for block in (4096, 8192, 16384, 32768):
        for warps in (8, 16, 32):
            if 8 <= block // (32 * warps) <= 64:
                yield f"two passes of {block}, {warps} warps", _long_rows(block, warps)
                yield f"two passes of {block}, {warps} warps, the row kept in L2", _long_rows(block, warps, hints=True)
    for block, warps, stages in (
        *((32768, 32, stages) for stages in (2, 3)),
        *((16384, 32, stages) for stages in (2, 3, 4, 6)),
        *((16384, 16, stages) for stages in (2, 3, 4, 6)),
        *((8192, warps, stages) for warps in (8, 16) for stages in (3, 4, 6, 8)),
        *((4096, 8, stages) for stages in (4, 8, 12)),
    ):
        name = f"two passes of {block}, {warps} warps, the row kept in L2, {stages} pieces under way"
        yield name, _long_rows(block, warps, hints=True, stages=stages)
    for piece, warps, registers in (
        *((2048, warps, registers) for warps in (1, 2) for registers in (64, 80)),
        *((4096, warps, registers) for warps in (2, 4) for registers in (56, 64, 72, 80, 128)),
        *((8192, warps, registers) for warps in (2, 4, 8) for registers in (64, 80, 96, 128)),
        (16384, 4, 96),
        (16384, 4, 128),
        (16384, 8, 80),
        (16384, 16, 64),
    ):
        yield f"shared, pieces of {piece}, {warps} warps, {registers} registers", _pieces(piece, warps, registers)
    for kept in (1, 2, 3):
        for block, warps in ((16384, 16), (16384, 32), (32768, 16), (32768, 32)):
            yield f"{kept} pieces of {block} kept, {warps} warps", _kept_pieces(block, kept, warps)


def _short_rows(rows: int, width: int, warps: int) -> Variant:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        softmax_reference.softmax_kernel[(triton.cdiv(x.shape[0], rows),)](
            x, y, *x.shape, *x.stride(), block_rows=rows, block_cols=width, num_warps=warps
        )
        return y

    return run


def _long_rows(block: int, warps: int, hints: bool = False, stages: int = 1) -> Variant:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        long_row_kernel[(x.shape[0],)](x, y, x.shape[1], block_cols=block, hints=hints, stages=stages, num_warps=warps)
        return y

    return run


def _pieces(piece: int, warps: int, registers: int) -> Variant:
    """The reference with another piece."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        softmax_reference.softmax_of_long_rows(x, y, softmax_reference.Piece(piece, warps, registers))
        return y

    return run


def _kept_pieces(block: int, kept: int, warps: int) -> Variant:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        kept_pieces_kernel[(x.shape[0],)](x, y, x.shape[1], block_cols=block, n_kept=kept, num_warps=warps)
        return y

    return run


@triton.jit
def long_row_kernel(x_ptr, y_ptr, n_cols, block_cols: tl.constexpr, hints: tl.constexpr, stages: tl.constexpr):
    """Two passes, with a maximum of the whole piece after each; with `hints` the first asks the L2 cache to keep it, the second to drop it.

    With more than one of `stages` the next pieces are fetched into shared memory meanwhile.
    """
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * n_cols
    y_row_ptr = y_ptr + row * n_cols
    lanes = tl.arange(0, block_cols)
    row_max = float("-inf")
    row_sum = 0.0
    for start in tl.range(0, n_cols, block_cols, num_stages=stages):
        cols = start + lanes
        if hints:
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"), eviction_policy="evict_last")
        else:
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"))
        x = x.to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp2((row_max - new_max) * LOG2_E) + tl.sum(tl.exp2((x - new_max) * LOG2_E), axis=0)
        row_max = new_max
    factor = 1.0 / row_sum
    for start in tl.range(0, n_cols, block_cols, num_stages=stages):
        cols = start + lanes
        if hints:
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"), eviction_policy="evict_first")
        else:
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"))
        y = (tl.exp2((x.to(tl.float32) - row_max) * LOG2_E) * factor).to(y_ptr.dtype.element_ty)
        if hints:
            tl.store(y_row_ptr + cols, y, mask=cols < n_cols, cache_modifier=".cs")
        else:
            tl.store(y_row_ptr + cols, y, mask=cols < n_cols)


@triton.jit
def piece_of(x_row_ptr, start, n_cols, block_cols: tl.constexpr, policy: tl.constexpr):
    cols = start + tl.arange(0, block_cols)
    return tl.load(x_row_ptr + cols, mask=cols < n_cols, other=float("-inf"), eviction_policy=policy)


@triton.jit
def add_piece(x, row_max, row_sum):
    x = x.to(tl.float32)
    new_max = tl.maximum(row_max, tl.max(x, axis=0))
    row_sum = row_sum * tl.exp2((row_max - new_max) * LOG2_E) + tl.sum(tl.exp2((x - new_max) * LOG2_E), axis=0)
    return new_max, row_sum


@triton.jit
def store_piece(y_row_ptr, x, start, row_max, factor, n_cols, block_cols: tl.constexpr):
    cols = start + tl.arange(0, block_cols)
    y = tl.exp2((x.to(tl.float32) - row_max) * LOG2_E) * factor
    tl.store(y_row_ptr + cols, y.to(y_row_ptr.dtype.element_ty), mask=cols < n_cols, cache_modifier=".cs")


@triton.jit
def kept_pieces_kernel(x_ptr, y_ptr, n_cols, block_cols: tl.constexpr, n_kept: tl.constexpr):
    """The row's last n_kept pieces stay in registers in their own dtype; only the others are read twice, and wait in the L2 cache."""
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * n_cols
    y_row_ptr = y_ptr + row * n_cols
    first_kept = tl.maximum(tl.cdiv(n_cols, block_cols) - n_kept, 0) * block_cols
    row_max = float("-inf")
    row_sum = 0.0
    for start in range(0, first_kept, block_cols):
        x = piece_of(x_row_ptr, start, n_cols, block_cols, "evict_last")
        row_max, row_sum = add_piece(x, row_max, row_sum)
    a = piece_of(x_row_ptr, first_kept, n_cols, block_cols, "evict_first")
    row_max, row_sum = add_piece(a, row_max, row_sum)
    if n_kept > 1:
        b = piece_of(x_row_ptr, first_kept + block_cols, n_cols, block_cols, "evict_first")
        row_max, row_sum = add_piece(b, row_max, row_sum)
    if n_kept > 2:
        c = piece_of(x_row_ptr, first_kept + 2 * block_cols, n_cols, block_cols, "evict_first")
        row_max, row_sum = add_piece(c, row_max, row_sum)
    factor = 1.0 / row_sum
    store_piece(y_row_ptr, a, first_kept, row_max, factor, n_cols, block_cols)
    if n_kept > 1:
        store_piece(y_row_ptr, b, first_kept + block_cols, row_max, factor, n_cols, block_cols)
    if n_kept > 2:
        store_piece(y_row_ptr, c, first_kept + 2 * block_cols, row_max, factor, n_cols, block_cols)
    for start in range(0, first_kept, block_cols):
        x = piece_of(x_row_ptr, start, n_cols, block_cols, "evict_first")
        store_piece(y_row_ptr, x, start, row_max, factor, n_cols, block_cols)
