"""A traced call of a function without kernels, and traced calls of workers.

What is counted of kernels is in test_triton_cpu_tracing.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.gpu_table import GPUS
from grader.pool.pool import stage_runtime
from grader.pool.surroundings import WorkerKind
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.profile.compiled import read, unpack
from grader.protocol import MakeCalls, Memory, Operands, Ref, Reply
from grader.worker import tracing

SHAPE = (100, 50)
BYTES = 100 * 50 * 4


def traced(function: Callable[..., Any], gradients: bool = False) -> tuple[Reply, bytes]:
    """The reply, and the arena's bytes afterwards."""
    file = os.memfd_create("arena")
    try:
        places = [Ref("float32", number * BYTES, SHAPE, (50, 1)) for number in range(3)]
        os.truncate(file, 3 * BYTES)
        operands = Operands((places[0],), places[1] if gradients else None, (places[2],))
        request = MakeCalls(Memory(3 * BYTES), (operands,), (), 60.0, record="trace")
        return tracing.call(function, request, [file]), os.pread(file, 3 * BYTES, 0)
    finally:
        os.close(file)


def test_operators_are_told_and_results_are_not_delivered() -> None:
    reply, arena = traced(lambda x: (x + 1).exp())
    assert reply.error is None
    assert reply.trace is not None
    assert [(one.name, one.read_bytes, one.written_bytes) for one in reply.trace.operators] == [
        ("add", BYTES, BYTES),
        ("exp", BYTES, BYTES),
    ]
    assert arena == bytes(3 * BYTES)


def test_gradients_are_computed_too() -> None:
    reply, _ = traced(lambda x: x.exp(), gradients=True)
    assert reply.error is None
    assert reply.trace is not None
    assert [one.name for one in reply.trace.operators][:2] == ["exp", "mul"]


def test_a_failed_call_tells_what_came_before() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        raise ValueError(f"no {y.ndim}")

    reply, _ = traced(fails)
    assert reply.error is not None
    assert reply.error.message == "no 2"
    assert reply.trace is not None
    assert [one.name for one in reply.trace.operators] == ["exp"]


def test_a_function_of_other_parameters_is_refused() -> None:
    reply, _ = traced(lambda x, y: x + y)
    assert reply.error is not None
    assert "cannot be called with 1 arguments" in reply.error.message


SUBMISSION = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, 2 * x, mask=at < n)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 2048),)](x, y, x.numel(), 2048, num_warps=8)
    return y
"""
LARGE = 1 << 28


@pytest.mark.parametrize("kind", ["cpu", "compile"])
def test_workers_answer_traced_calls_at_the_size_of_a_speed_case(kind: WorkerKind, tmp_path: Path) -> None:
    submission = tmp_path / "submission" / "scale.py"
    submission.parent.mkdir()
    submission.write_text(SUBMISSION, encoding="utf-8")
    limits, gpu = CallLimits(time_s=60, memory_gib=2), GPUS["H200"]
    file = os.memfd_create("arena")
    os.truncate(file, 4 * LARGE)
    place = Ref("float32", 0, (LARGE,), (1,))
    target = gpu if kind == "compile" else None
    request = MakeCalls(Memory(4 * LARGE), (Operands((place,), None, ()),), (), 60.0, target=target, record="trace")
    with Worker(kind, stage_runtime(tmp_path / "runtime"), tmp_path / "scratch") as worker:
        worker.ready()
        worker.load(submission, "scale", None, limits, gpu=gpu)
        reply = worker.do(request, limits, (file,))
    assert os.fstat(file).st_blocks * 512 < 4 << 20
    os.close(file)
    if kind == "cpu":
        assert reply.trace is not None
        (launch,) = reply.trace.launches
        assert (launch.grid, launch.threads, launch.ran) == ((LARGE // 2048, 1, 1), 256, 16)
        assert [(one.file, one.lanes, one.steps) for one in launch.accesses] == [("scale.py", 16 * 2048, (4,))] * 2
        return
    assert reply.compiled is not None
    assert reply.compiled.whole
    (kernel,) = reply.compiled.kernels
    assert [one.kind for one in kernel.texts] == ["ttgir", "ptx", "sass"]
    assert read(kernel, "scale.py").instructions > 10
    texts = [unpack(one) for one in kernel.texts]
    assert not any(str(tmp_path) in text for text in texts)
    assert "LDG.E.128" in texts[2]
