"""Which kernels ran on the GPU, and how long each took, by the profiler that comes with PyTorch (CUPTI underneath)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

MAX_KERNELS = 32
MAX_NAME = 300


@contextmanager
def profiled(wanted: bool) -> Iterator[list[dict[str, Any]]]:
    """Fills the list that it gives when the block is done: `name`, `calls` and `time_s` of each kernel, the longest first.

    It stays empty where nothing is wanted, where the profiler cannot be used, and where no kernel ran. Errors of the block pass through.
    """
    kernels: list[dict[str, Any]] = []
    profiler = _start() if wanted else None
    try:
        yield kernels
    finally:
        if profiler is not None:
            with suppress(Exception):  # an error of the student's kernels: it shows itself where they are waited for
                torch.cuda.synchronize()
            kernels += _stop(profiler)


def _start() -> Any:
    # Not `torch.profiler.profile`, which is made of this one: when it starts it imports all of torch.compile, 5 s on an H200's host.
    from torch.autograd.profiler import profile

    try:
        profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        profiler.__enter__()
    except Exception:  # another tool has CUPTI, or it is not there
        return None
    return profiler


def _stop(profiler: Any) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    try:
        profiler.__exit__(None, None, None)
        for event in profiler.function_events:
            if event.device_type.name == "CUDA":
                one = found.setdefault(event.name, {"name": event.name[:MAX_NAME], "calls": 0, "time_s": 0.0})
                one["calls"] += 1
                one["time_s"] += event.time_range.elapsed_us() / 1e6
    except Exception:
        return []
    return sorted(found.values(), key=lambda one: -float(one["time_s"]))[:MAX_KERNELS]
