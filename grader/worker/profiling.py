"""Profiles the kernels that run on the GPU, with PyTorch's profiler (on CUPTI)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from grader.protocol import MAX_KERNELS, OTHER_KERNELS, RanKernel

MAX_NAME = 300  # A kernel's name is cut to this many characters; its beginning says whose it is.


@contextmanager
def profiled(wanted: bool) -> Iterator[list[RanKernel]]:
    """Profile the block. After it, the yielded list has the kernels, the longest first.

    The list stays empty if not `wanted`, if the profiler cannot be used, or if no kernel ran. Errors of the block pass
    through.
    """
    kernels: list[RanKernel] = []
    profiler = _start() if wanted else None
    try:
        yield kernels
    finally:
        if profiler is not None:
            # An error of the student's kernels, which is raised again when the results are waited for
            with suppress(Exception):
                torch.cuda.synchronize()
            kernels += _stop(profiler)


def _start() -> Any:
    # Not `torch.profiler.profile`, which is built on this and imports all of torch.compile: that takes seconds.
    from torch.autograd.profiler import profile

    try:
        profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True)
        profiler.__enter__()
    except Exception:  # another tool holds CUPTI, or there is none
        return None
    return profiler


def _stop(profiler: Any) -> list[RanKernel]:
    times_s: dict[str, list[float]] = {}
    try:
        profiler.__exit__(None, None, None)
        for event in profiler.function_events:
            if event.device_type.name == "CUDA":
                times_s.setdefault(event.name, []).append(event.time_range.elapsed_us() / 1e6)
    except Exception:
        return []
    found = [RanKernel(name[:MAX_NAME], len(each), float(sum(each))) for name, each in times_s.items()]
    return told(found)


def told(found: list[RanKernel]) -> list[RanKernel]:
    """The kernels, the longest first; of more than MAX_KERNELS the shortest as one."""
    found = sorted(found, key=lambda one: -one.time_s)
    if len(found) <= MAX_KERNELS:
        return found
    others = found[MAX_KERNELS - 1 :]
    return [
        *found[: MAX_KERNELS - 1],
        RanKernel(OTHER_KERNELS, sum(one.calls for one in others), sum(one.time_s for one in others)),
    ]
