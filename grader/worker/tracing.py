"""The one entry for traced calls: on a GPU in gpu_trace.py, elsewhere here, at the size of a speed case and on memory that costs
nothing until it is touched.

Nothing is checked, no results are copied, and values mean nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from grader import protocol
from grader.worker import gpu_trace, interpreter, run
from grader.worker.load import check_signature
from grader.worker.memory import mapped
from grader.worker.operators import OperatorWatch, watching
from grader.worker.traffic import Traffic

M_PERTURB = -6  # mallopt's name for what MALLOC_PERTURB_ sets.


def call(
    function: Callable[..., Any], request: protocol.MakeCalls, files: list[int], device: str = "cpu"
) -> protocol.Reply:
    """Map the arena and make the one call of a request, which is traced or counted. On a CPU the reply has a trace, even if the
    call fails; without an interpreter, a trace has no launches.
    """
    if device == "cuda":
        return gpu_trace.call(function, request, files)
    with mapped(request.arena, files, "cpu") as memory:
        calls = run.calls_of(memory, request)
        traffic, checks = Traffic(), interpreter.INTERPRETER
        checks.begin_call(memory, run.tensors_of(calls))
        tracer = checks.tracer(memory, traffic)
        recording = contextlib.nullcontext() if tracer is None else tracer.recording()
        results: list[torch.Tensor] = []
        reply = protocol.Reply()
        try:
            check_signature(function, calls[0].arguments, calls[0].named)
            with _unfilled(), recording, watching(OperatorWatch(run=traffic.run)):
                results = [one for one in run.answers_of(function, calls) if isinstance(one, torch.Tensor)]
            if tracer is not None and tracer.fault is not None:
                raise tracer.fault
        except BaseException as error:
            reply = run.failure(error, "cpu")
        launches = () if tracer is None else tracer.launches(results)
        del calls, results, tracer
        return replace(reply, trace=protocol.Trace(launches, traffic.operators()))


@contextlib.contextmanager
def _unfilled() -> Iterator[None]:
    """In this block, the C library does not fill new memory, which would touch all of it."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_PERTURB, 0)
    try:
        yield
    finally:
        libc.mallopt(M_PERTURB, int(os.environ.get("MALLOC_PERTURB_") or 0))
