"""What bounds softmax of 4096 × 1024 float32: the reference's kernel as it is, with a stage left out, and as torch.compile would have it.

    python benchmarks/softmax_stages.py [--rounds 25]

Needs a CUDA GPU. A call takes about 10 µs, too short for an event of its own: a batch is 96 calls, queued before the first of them
starts, on 12 sets of matrices in turn, 400 MB, more than any cache holds. Batches of all forms are interleaved; the medians of the
rounds are printed, and between what times nine in ten of them lay.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from reference.softmax import LOG2_E, softmax_kernel

ROWS, COLUMNS = 4096, 1024
SETS, CALLS = 12, 96
SLEEP_CYCLES = 8_000_000  # four milliseconds: longer than it takes to launch a batch
COPY = "PyTorch's copy"
STAGES = ("all", "no maximum", "no sum", "exponentials alone", "none: a copy")
Run = Callable[[torch.Tensor, torch.Tensor], object]


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
    softmax_kernel[(ROWS // 2,)](
        x, y, ROWS, COLUMNS, *x.stride(), block_rows=2, block_cols=COLUMNS, num_warps=4
    )  # fmt: skip


def forms() -> dict[str, Run]:
    found: dict[str, Run] = {"reference": reference}
    found |= {f"2 rows, 4 warps, {stage}": form(2, 4, stage) for stage in STAGES}
    found[COPY] = lambda x, y: y.copy_(x)
    for rows, warps in ((1, 2), (2, 4)):
        for policy in ("", "evict_first"):
            name = f"{rows} rows, {warps} warps, no masks, 32 bits, {policy or 'no hint'}"
            found[name] = form(rows, warps, policy=policy, is_simple=True)
    found["2 rows, 4 warps, evict_first"] = form(2, 4, policy="evict_first")
    return found


def check(found: dict[str, Run], device: str) -> None:
    """All write every number, and those that leave nothing out the right ones. Raises AssertionError."""
    x = torch.randn(ROWS, COLUMNS, device=device)
    right = torch.softmax(x, -1)
    for name, run in found.items():
        y = torch.full_like(x, float("nan"))
        run(x, y)
        assert bool(y.isfinite().all()), name
        if name != COPY and not any(stage in name for stage in STAGES[1:]):
            assert torch.allclose(y, right, atol=1e-6), name


def batch_s(run: Run, sets: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Seconds of the GPU for a call."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(SLEEP_CYCLES)
    start.record()
    for number in range(CALLS):
        run(*sets[number % SETS])
    end.record()
    if start.query():
        raise SystemExit("the host was too slow: calls ran before all of them were queued")
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description="What bounds softmax of 4096 × 1024 float32.")
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    if not torch.cuda.is_available():
        parser.error("there is no CUDA GPU here")
    found = forms()
    check(found, "cuda")
    inputs = [torch.randn(ROWS, COLUMNS, device="cuda") for _ in range(SETS)]
    sets = [(x, torch.empty_like(x)) for x in inputs]
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds):
        names = list(found)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            times[name].append(batch_s(found[name], sets))
    for name, seen in times.items():
        low, *_, high = statistics.quantiles(seen, n=20)
        print(f"{statistics.median(seen) * 1e6:7.3f} µs  ({low * 1e6:.3f} to {high * 1e6:.3f})  {name}")


if __name__ == "__main__":
    main()
