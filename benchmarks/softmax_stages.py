"""What bounds softmax: the reference's kernels as they are, and with stages left out.

    python benchmarks/softmax_stages.py [--rounds 25] [--only 131072]

Needs a CUDA GPU. Rows of 1024 columns, also as torch.compile would have them; and long rows, which several
programs share, also with other pieces. A call may take 10 µs only, too short for an event of its own: a batch is several calls, queued
before the first of them starts, on sets of matrices in turn that no cache holds. Batches of all forms are interleaved; the medians of
the rounds are printed, as times and as shares of a copy's speed, and between what times nine in ten of them lay.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reference import softmax as staff
from reference.softmax import ALIGNED, LOG2_E, Piece, collect, maximum_and_sum, normalized, publish, softmax_kernel

ROWS, COLUMNS = 4096, 1024
LONG = [
    (4096, 32768, torch.bfloat16),
    (16384, 65536, torch.bfloat16),
    (4096, 131072, torch.bfloat16),
    (4096, 131072, torch.float32),
    (8192, 50257, torch.float16),
    (2048, 131071, torch.float32),
]
# Other pieces, by the bytes of a number: elements, warps, registers.
OTHERS = {2: [(4096, 2, 72), (8192, 2, 96), (16384, 4, 96)], 4: [(4096, 2, 112), (8192, 4, 96), (16384, 8, 128)]}
BYTES_OF_SETS = 400e6  # more than any cache holds
BATCH_SECONDS = 1e-3  # about
LAUNCH_CYCLES = (8_000_000, 64_000_000)  # milliseconds: longer than it takes to launch a batch
ROWS_IN_L2 = tl.constexpr(32)  # of 131072 float32 numbers: x and y 32 MB
COPY = "PyTorch's copy"
STAGES = ("all", "no maximum", "no sum", "exponentials alone", "none: a copy")
UNCLEARED = "pairs neither cleared nor waited for"
Run = Callable[[torch.Tensor, torch.Tensor], object]


class Size(NamedTuple):
    """A matrix, and the forms of softmax that are timed on it, by name."""

    rows: int
    columns: int
    dtype: torch.dtype
    forms: dict[str, Run]


@triton.jit
def stages_kernel(
    x_ptr, y_ptr, n_rows, n_cols, x_row_stride, x_col_stride,
    block_rows: tl.constexpr, block_cols: tl.constexpr,
    stage: tl.constexpr, policy: tl.constexpr, is_simple: tl.constexpr,
):  # fmt: skip
    """The reference's softmax_kernel; `stage` says what is left of it. is_simple: 32 bits, no masks, for rows without a rest."""
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)[:, None]
    cols = tl.arange(0, block_cols)[None, :]
    if is_simple:
        x = tl.load(x_ptr + rows * x_row_stride + cols, eviction_policy=policy)
    else:
        rows, cols = rows.to(tl.int64), cols.to(tl.int64)
        mask = (rows < n_rows) & (cols < n_cols)
        places = x_ptr + rows * x_row_stride + cols * x_col_stride
        x = tl.load(places, mask=mask, other=float("-inf"), eviction_policy=policy).to(tl.float32)
    y = x
    if stage == "all" or stage == "no sum":
        y = y - tl.max(x, axis=1, keep_dims=True)
    if stage != "none: a copy":
        y = tl.exp2(y * LOG2_E)
    if stage == "all" or stage == "no maximum":
        y = y / tl.sum(y, axis=1, keep_dims=True)
    if is_simple:
        tl.store(y_ptr + rows * n_cols + cols, y)
    else:
        tl.store(y_ptr + rows * n_cols + cols, y, mask=mask)


def form(block_rows: int, warps: int, stage: str = "all", policy: str = "", is_simple: bool = False) -> Run:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        stages_kernel[(triton.cdiv(ROWS, block_rows),)](
            x, y, ROWS, COLUMNS, *x.stride(), block_rows=block_rows, block_cols=COLUMNS,
            stage=stage, policy=policy, is_simple=is_simple, num_warps=warps,
        )  # fmt: skip

    return run


def reference(x: torch.Tensor, y: torch.Tensor) -> None:
    """The kernel with the tile and the warps that `softmax` gives it here."""
    softmax_kernel[(ROWS,)](x, y, ROWS, COLUMNS, *x.stride(), block_rows=1, block_cols=COLUMNS, num_warps=1)


def short_rows() -> Size:
    found: dict[str, Run] = {"reference": reference}
    found |= {f"rows 1, warps 1, {stage}": form(1, 1, stage) for stage in STAGES}
    for rows, warps in ((1, 1), (1, 2), (2, 4)):
        for policy in ("", "evict_first"):
            name = f"rows {rows}, warps {warps}, no masks, 32 bits, {policy or 'no hint'}"
            found[name] = form(rows, warps, policy=policy, is_simple=True)
    found["rows 2, warps 4"] = form(2, 4)
    return Size(ROWS, COLUMNS, torch.float32, found)


@triton.jit
def pieces_stages_kernel(
    x_ptr, y_ptr, pairs_ptr, n_cols, piece: tl.constexpr, max_pairs: tl.constexpr, stage: tl.constexpr
):  # fmt: skip
    """The reference's softmax_pieces_kernel without a row's edges; `stage` says what is left of it."""
    n_pieces = tl.cdiv(n_cols // ALIGNED * ALIGNED, piece)
    row, own = (tl.program_id(0) // n_pieces).to(tl.int64), tl.program_id(0) % n_pieces
    own_ptr = pairs_ptr + row * max_pairs + own
    row_pairs_ptr, n_collected = pairs_ptr + row * max_pairs, n_pieces
    # Its own pair goes through memory, or the compiler would keep the exponentials, in twice the registers.
    if stage == "no exchange":
        own_ptr = pairs_ptr + tl.program_id(0)
        row_pairs_ptr, n_collected = own_ptr, 1
    if stage == "without DRAM":
        row = row % ROWS_IN_L2
    start, end = tl.cdiv(row * n_cols, ALIGNED) * ALIGNED, (row + 1) * n_cols // ALIGNED * ALIGNED
    lanes, n_lanes = own * piece + tl.arange(0, piece), (end - start).to(tl.int32)
    x = tl.load(x_ptr + start + lanes, mask=lanes < n_lanes, other=float("-inf"))
    if stage == "none: a copy":
        y = x
    else:
        maximum, total = maximum_and_sum(x)
        publish(own_ptr, maximum, total)
        row_max, row_sum = collect(row_pairs_ptr, n_collected, max_pairs, x_ptr + row * n_cols, n_cols)
        y = normalized(x, row_max, row_sum)
    tl.store(y_ptr + start + lanes, y, mask=lanes < n_lanes)


def new_pairs(number: int, device: torch.device) -> torch.Tensor:
    return torch.zeros(number, dtype=torch.int64, device=device)


kept_pairs = cache(new_pairs)  # a program finds all pairs of an earlier call at its first look


def pieces_without(stage: str, piece: Piece, x: torch.Tensor, y: torch.Tensor) -> None:
    rows, columns = x.shape
    pieces = triton.cdiv(columns // ALIGNED.value * ALIGNED.value, piece.piece)
    max_pairs = max(32, triton.next_power_of_2(pieces))
    pairs = (kept_pairs if stage == UNCLEARED else new_pairs)(rows * max_pairs * (stage != "none: a copy"), x.device)
    pieces_stages_kernel[(rows * pieces,)](x, y, pairs, columns, max_pairs=max_pairs, stage=stage, **piece._asdict())


def one_program(x: torch.Tensor, y: torch.Tensor) -> None:
    """A row for a program of 1024 threads, as rows that are not shared have it."""
    columns = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, *x.shape, *x.stride(), block_rows=1, block_cols=columns, num_warps=32)


def long_rows(rows: int, columns: int, dtype: torch.dtype) -> Size:
    piece = staff.PIECES[dtype]
    found: dict[str, Run] = {"reference": staff.softmax_of_long_rows}
    for stage in ("all", UNCLEARED, "no exchange", "none: a copy"):
        found[f"the same pieces without edges, {stage}"] = partial(pieces_without, stage, piece)
    for one in (piece, *(Piece(*numbers) for numbers in OTHERS[dtype.itemsize])):
        name = f"{one.piece} in {one.num_warps} warps of {one.maxnreg} registers"
        if one is not piece:
            found[name] = partial(staff.softmax_of_long_rows, piece=one)
        found[f"{name}, without DRAM"] = partial(pieces_without, "without DRAM", one)
    if columns <= staff.MAX_ROW_IN_REGISTERS:
        found["one program for a row"] = one_program
    return Size(rows, columns, dtype, found)


def check(size: Size, device: str) -> None:
    """All forms that use DRAM write numbers into the last rows but for their edges, and those that leave nothing out the right
    ones everywhere. Raises AssertionError.
    """
    x = torch.randn(size.rows, size.columns, device=device, dtype=size.dtype)
    y = torch.empty_like(x)
    right = torch.softmax(x[-64:].float(), -1)
    for name, run in size.forms.items():
        y.fill_(float("nan"))
        run(x, y)
        if "without DRAM" in name:
            continue
        assert bool(y[-64:, ALIGNED.value : -ALIGNED.value].isfinite().all()), name
        if not any(stage in name for stage in (*STAGES[1:], UNCLEARED, "no exchange", "edges, all")):
            tolerance = {"rtol": 1e-4, "atol": 0.0} if size.dtype == torch.float32 else {"rtol": 1e-2, "atol": 1e-6}
            assert torch.allclose(y[-64:].float(), right, **tolerance), name


def batch_s(run: Run, sets: list[tuple[torch.Tensor, torch.Tensor]], calls: int) -> float:
    """Seconds of the GPU for a call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for cycles in LAUNCH_CYCLES:
        torch.cuda._sleep(cycles)
        start.record()
        for number in range(calls):
            run(*sets[number % len(sets)])
        end.record()
        is_late = start.query()
        torch.cuda.synchronize()
        if not is_late:
            return float(start.elapsed_time(end)) / 1e3 / calls
    raise SystemExit("the host was too slow: calls ran before all of them were queued")


def time_forms(size: Size, rounds: int) -> None:
    """Print the time of each form of a size, after the copy's."""
    forms = {COPY: lambda x, y: y.copy_(x)} | size.forms
    bytes_of_set = 2 * size.rows * size.columns * size.dtype.itemsize
    sets = [
        (torch.randn(size.rows, size.columns, device="cuda", dtype=size.dtype), torch.empty(0))
        for _ in range(max(1, round(BYTES_OF_SETS / bytes_of_set)))
    ]
    sets = [(x, torch.empty_like(x)) for x, _ in sets]
    calls = len(sets) * max(1, round(BATCH_SECONDS / batch_s(forms[COPY], sets, len(sets)) / len(sets)))
    times: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds):
        names = list(forms)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(batch_s(forms[name], sets, calls))
    print(f"== {size.rows} × {size.columns} {size.dtype}: {len(sets)} sets, {calls} calls in a batch")
    print_times(times, COPY, "copy")


def print_times(times: dict[str, list[float]], other: str, short: str) -> None:
    """Print the median of each form's seconds, between what times nine in ten lie, and how many times as fast as the form
    `other`, called `short`, it is.
    """
    for name, seen in times.items():
        low, *_, high = (one * 1e6 for one in statistics.quantiles(seen, n=20, method="inclusive"))
        share = statistics.median(times[other]) / statistics.median(seen)
        print(f"{statistics.median(seen) * 1e6:9.3f} µs  ({low:.3f} to {high:.3f})  {share:.3f} × {short}  {name}")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="What bounds softmax, by leaving stages out.")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", default="", help="sizes with this in their name, as '4096 × 32768 torch.bfloat16'")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds: at least 2")
    sizes = [short_rows(), *(long_rows(*one) for one in LONG)]
    if not (chosen := [one for one in sizes if arguments.only in f"{one.rows} × {one.columns} {one.dtype}"]):
        parser.error(f"--only: no size has {arguments.only!r} in its name")
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA GPU")
    print(torch.cuda.get_device_name())
    for size in chosen:
        check(size, "cuda")
        time_forms(size, arguments.rounds)


if __name__ == "__main__":
    main()
