"""Reads what Nsight Compute has counted: hardware counters of each kernel of a call.

The names of metrics are those of NVIDIA's Nsight Compute documentation, "Metrics Reference". `STALLS` says in words what a warp
waits for, as the section "Warp Stall Reasons" has it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping

from grader.profile.model import KernelCounters
from grader.verdict.gpu_time import is_own, short_name

MAX_KERNELS = 16  # At most this many kernels of a call are counted: ncu runs each several times.
MAX_STALLS = 3
MOST = 1e18  # A counter above this is a misread number.
MAX_WHY = 300  # ncu's reason for a failure is cut to this many letters.
NO_RIGHTS = (
    "this machine lets only root read the GPU's counters; whoever runs it can let everybody, with NVIDIA's driver option "
    "NVreg_RestrictProfilingToAdminUsers=0"
)
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = {
    "long_scoreboard": "data from memory",
    "short_scoreboard": "data from shared memory",
    "lg_throttle": "the queue of memory instructions",
    "mio_throttle": "the queue of shared memory",
    "barrier": "other warps, at a barrier",
    "math_pipe_throttle": "a busy arithmetic unit",
    "gmma": "tensor cores",
    "wait": "an instruction of a fixed length",
    "not_selected": "its turn among ready warps",
    "drain": "its last stores",
    "no_instruction": "instructions",
    "branch_resolving": "a branch",
    "dispatch_stall": "the dispatcher",
    "membar": "a memory barrier",
    "sleeping": "the end of its sleep",
    "imc_miss": "a constant from memory",
}
GRID = re.compile(r"\(([0-9]{1,10}), ([0-9]{1,10}), ([0-9]{1,10})\)")
TIME = "gpu__time_duration.sum"
METRICS = {
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "load_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "store_sectors": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    "l1_hits": "l1tex__t_sector_hit_rate.pct",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram_busy": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_busy": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_busy": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "issue_busy": "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
PERCENT = ("l1_hits", "l2_hits", "occupancy", "dram_busy", "l2_busy", "tensor_busy", "issue_busy")
EVERY = (TIME, *METRICS.values(), *(STALL.format(name) for name in STALLS))


def counters(table: str, own: Collection[str]) -> tuple[KernelCounters, ...]:
    """The counters of each kernel, in the order of their starts; none if the table has no row.

    Args:
        table: CSV with a row for each kernel, below a row of names and one of units, among other lines.
        own: names of the submission's kernels, as for `gpu_time`.
    """
    lines = table.splitlines()
    head = next((number for number, line in enumerate(lines) if line.startswith('"ID",')), len(lines))
    try:
        rows = [row for row in csv.DictReader(lines[head:]) if (row.get("ID") or "").isdigit()]
    except csv.Error:  # the submission has written there, too
        return ()
    return tuple(_kernel(row, own) for row in rows[:MAX_KERNELS])


def why_none(table: str) -> str:
    """Why Nsight Compute has counted nothing, and whom to ask for what."""
    if "ERR_NVGPUCTRPERM" in table:
        return NO_RIGHTS
    told = [line.removeprefix("==ERROR==").strip() for line in table.splitlines() if line.startswith("==ERROR==")]
    return told[0][:MAX_WHY] if told else "it saw no kernel"


def _kernel(row: Mapping[str, str | None], own: Collection[str]) -> KernelCounters:
    name = row.get("Kernel Name") or ""
    found = {field: _number(row.get(metric)) for field, metric in METRICS.items()}
    found |= {field: found[field] and found[field] / 100 for field in PERCENT}  # type: ignore[operator]
    waits = {words: _number(row.get(STALL.format(stall))) or 0.0 for stall, words in STALLS.items()}
    all_of_them = sum(waits.values()) or 1.0
    grid = GRID.fullmatch(row.get("Grid Size") or "")
    longest = sorted(waits.items(), key=lambda one: -one[1])[:MAX_STALLS]
    return KernelCounters(
        name=short_name(name),
        own=is_own(name, own),
        time_ms=(_number(row.get(TIME)) or 0.0) / 1e6,
        grid=None if grid is None else (int(grid[1]), int(grid[2]), int(grid[3])),
        stalls=tuple((words, wait / all_of_them) for words, wait in longest if wait > 0),
        **found,
    )


def _number(text: str | None) -> float | None:
    """None for what is no number, as for a counter that this GPU does not have."""
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return number if 0 <= number <= MOST else None
