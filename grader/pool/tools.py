"""The commands of NVIDIA's tools that run a worker under their eyes: compute-sanitizer, and Nsight Compute.

A tool writes its findings to `TOOL_LOG` and ends with its parent process.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from grader.assignment import Tool
from grader.pool.worker import TOOL_LOG

SANITIZER = ("--print-limit", "200", "--show-backtrace", "no", "--target-processes", "application-only")
# Kernels between cudaProfilerStart and Stop, each run several times with its memory restored in between, from a cold L2 cache; the
# GPU's clocks are left alone.
COUNTERS = (
    *("--csv", "--page", "raw", "--print-units", "base", "--print-fp"),
    *("--profile-from-start", "off", "--clock-control", "none", "--target-processes", "application-only"),
)


def sanitizer(program: str, tool: Tool) -> list[str]:
    """compute-sanitizer with one of its tools."""
    return _leashed(program, "--tool", tool, *SANITIZER, "--log-file", TOOL_LOG)


def counters(program: str, metrics: Iterable[str], kernels: int) -> list[str]:
    """Nsight Compute; it counts these metrics of the first `kernels` kernels."""
    options = ("--launch-count", str(kernels), "--metrics", ",".join(metrics), "--log-file", TOOL_LOG)
    return _leashed(program, *COUNTERS, *options)


def _leashed(program: str, *options: str) -> list[str]:
    setpriv = shutil.which("setpriv")
    leash: Sequence[str] = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
    return [*leash, program, *options]
