"""Traces one call on a GPU with PyTorch's profiler: every kernel with its shape and its time, and the gaps between them.

Or marks the call for a tool that counts, such as Nsight Compute, as whose child this worker runs.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from grader.protocol import MAX_RAN, GpuTrace, MakeCalls, RanLaunch, Reply, Trace
from grader.worker import run
from grader.worker.load import InPlace
from grader.worker.memory import mapped
from grader.worker.texts import packed

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS_BEFORE = 2  # So many calls load, compile and tune before the one that is traced.
MAX_NAME = 300


def call(function: Callable[..., Any], request: MakeCalls, files: list[int]) -> Reply:
    """Map the arena and make the one call of a request several times, at last under the profiler or for the tool."""
    with mapped(request.arena, files, "cuda") as memory:
        calls = run.calls_of(memory, request)

        def make() -> Any:
            if type(function) is InPlace:
                (one,) = calls
                return function(*one.arguments, *one.slots, late=False)
            run.forget_gradients(calls)
            return run.answers_of(function, calls)

        try:
            for _ in range(CALLS_BEFORE):
                make()
            torch.cuda.synchronize()
            if request.record != "counters":
                waits = type(function) is InPlace  # a CUDA entry's call here returns when the GPU is done
                return Reply(trace=Trace(gpu=_gpu_trace(make, waits)))
            torch.cuda.profiler.start()
            try:
                make()
                torch.cuda.synchronize()
            finally:
                torch.cuda.profiler.stop()
            return Reply(trace=Trace())
        except BaseException as error:
            return run.failure(error, "cuda")
        finally:
            calls.clear()


def _gpu_trace(make: Callable[[], Any], waits: bool) -> GpuTrace:
    """Make the call twice: once for the seconds until it returns, which the profiler would lengthen, and once under the
    profiler. Raises what the call raises, and RuntimeError if the profiler saw nothing.
    """
    # Not `torch.profiler.profile`, which is built on this and imports all of torch.compile: that takes seconds.
    from torch.autograd.profiler import profile

    start = time.perf_counter()
    result = make()
    host_s = time.perf_counter() - start
    torch.cuda.synchronize()
    del result
    with profile(use_cpu=True, use_device="cuda", use_kineto=True) as profiler:
        make()
        torch.cuda.synchronize()
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            chrome = file.read()  # the JSON text that chrome://tracing and Perfetto read
    finally:
        os.unlink(path)  # noqa: PTH108
    return trace_of(chrome, 0.0 if waits else host_s)


def trace_of(chrome: str, host_s: float) -> GpuTrace:
    """The trace in the profiler's JSON text. Raises RuntimeError if it has no kernel."""
    events = [one for one in json.loads(chrome)["traceEvents"] if one.get("cat") in ON_GPU and one.get("ph") == "X"]
    if not events:
        raise RuntimeError("PyTorch's profiler saw no kernel: another tool may be using the GPU's counters")
    events.sort(key=lambda one: float(one["ts"]))
    first = float(events[0]["ts"])
    spans = [((float(one["ts"]) - first) / 1e6, float(one["dur"]) / 1e6) for one in events]
    ran = [_launch(one, *span) for one, span in zip(events, spans, strict=True)]
    return GpuTrace(
        ran=tuple(ran[:MAX_RAN]),
        ran_of_all=len(ran),
        host_s=host_s,
        device_s=max(start + length for start, length in spans),
        busy_s=_covered(spans),
        chrome=packed("json", chrome),
        generated=packed("py", generated({one.name for one in ran})),
    )


def generated(kernels: Collection[str]) -> str:
    """The code that torch.compile generated last in this process for kernels of these names; "" if it generated none of
    them.
    """
    cache = sys.modules.get("torch._inductor.codecache")
    left, found = set(kernels), []
    for module in reversed(cache.PyCodeCache.modules if cache is not None else []):
        source = Path(module.__file__).read_text(encoding="utf-8")
        if here := {name for name in left if f"def {name}(" in source}:
            found.append(source)
            left -= here
    return "\n\n".join(reversed(found))


def _launch(event: dict[str, Any], start_s: float, time_s: float) -> RanLaunch:
    facts = event.get("args", {})
    grid, block = (tuple(int(length) for length in facts.get(name, (0, 0, 0))) for name in ("grid", "block"))
    registers, shared = int(facts.get("registers per thread", 0)), int(facts.get("shared memory", 0))
    return RanLaunch(str(event["name"])[:MAX_NAME], grid, block, registers, shared, start_s, time_s)


def _covered(spans: list[tuple[float, float]]) -> float:
    """Seconds in which at least one of the spans, which are sorted by their starts, lasts."""
    covered, until = 0.0, 0.0
    for start, length in spans:
        covered += max(0.0, start + length - max(start, until))
        until = max(until, start + length)
    return covered
