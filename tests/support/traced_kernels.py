"""Submissions of test_triton_cpu_tracing.py, which runs this file. Makes a traced call of each function, and prints the
replies by name as JSON.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from grader import protocol
from grader.gpu_table import GPUS
from grader.worker import absent_gpu, errors, run, tracing, triton_cpu

CASES: dict[str, tuple[Any, list[tuple[int, ...]], str, bool]] = {}
LARGE = 1 << 28
GRIDS = [(1, 1, 1), (3, 2, 1), (16, 1, 1), (17, 1, 1), (32, 48, 1), (5, 7, 9), (1, 1, 2**20)]


def case(*shapes: tuple[int, ...], dtype: str = "float32", gradients: bool = False):
    """A function of inputs of these shapes; with gradients, the upstream gradient is like the first input."""

    def kept(function):
        CASES[function.__name__] = (function, [*shapes, *shapes[: int(gradients)]], dtype, gradients)
        return function

    return kept


@triton.jit
def copy(x_ptr, y_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x, mask=at < n)


def copied(x, block=256, **options):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), block, **options)
    return y


@case((1000,))
def masked_tail(x):
    assert x.is_cuda
    return copied(x)


@case((LARGE,))
def large(x):
    return copied(x, 1024, num_warps=8)


@case((LARGE,), dtype="bfloat16")
def half(x):
    return copied(x, 1024, num_warps=2)


@triton.jit
def load_row(x_ptr, n_cols, block: tl.constexpr):
    cols = tl.arange(0, block)
    return tl.load(x_ptr + tl.program_id(0) * n_cols + cols, mask=cols < n_cols, other=float("-inf"))


@triton.jit
def passes(x_ptr, y_ptr, n_cols, block: tl.constexpr):
    highest = tl.max(load_row(x_ptr, n_cols, block), 0)
    total = tl.sum(tl.exp(load_row(x_ptr, n_cols, block) - highest), 0)
    cols = tl.arange(0, block)
    x = tl.load(x_ptr + tl.program_id(0) * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + tl.program_id(0) * n_cols + cols, tl.exp(x - highest) / total, mask=cols < n_cols)


@case((7, 100))
def three_passes(x):
    y = torch.empty_like(x)
    passes[(7,)](x, y, 100, 128)
    return y


@triton.jit
def transpose(x_ptr, y_ptr, rows, cols, block: tl.constexpr):
    at, to = tl.program_id(0) * block + tl.arange(0, block), tl.program_id(1) * block + tl.arange(0, block)
    tile = tl.load(x_ptr + at[None, :] * cols + to[:, None])
    tl.store(y_ptr + to[:, None] * rows + at[None, :], tile)


@case((64, 128))
def transposed(x):
    y = torch.empty_like(x)
    transpose[(4, 8)](x, y, 64, 128, 16)
    return y.view(128, 64)


@triton.jit
def gather(x_ptr, index_ptr, y_ptr, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(y_ptr + at, tl.load(x_ptr + tl.load(index_ptr + at)))


@case((64,))
def gathered(x):
    y = torch.empty_like(x)
    gather[(1,)](x, torch.arange(64, dtype=torch.int32, device="cuda") // 2, y, 64)
    return y


@triton.jit
def attend(q_ptr, k_ptr, y_ptr, n, width: tl.constexpr, block: tl.constexpr, is_causal: tl.constexpr):
    rows, cols = tl.program_id(0) * block + tl.arange(0, block), tl.arange(0, width)
    q = tl.load(q_ptr + (rows[:, None] * width + cols[None, :]))
    y = tl.zeros((block, width), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * block if is_causal else n, block):
        keys = start + tl.arange(0, block)
        k = tl.load(k_ptr + (keys[:, None] * width + cols[None, :]))
        y += tl.dot(tl.dot(q, tl.trans(k)).to(k.dtype), k, input_precision="ieee")
    tl.store(y_ptr + (rows[:, None] * width + cols[None, :]), y.to(q_ptr.dtype.element_ty))


@case((128, 32), (128, 32), dtype="float16")
def keys_reread(q, k):
    y = torch.empty_like(q)
    attend[(8,)](q, k, y, 128, 32, 16, False)
    return y


@case((1024, 16), (1024, 16))
def causal_of_many(q, k):
    y = torch.empty_like(q)
    attend[(64,)](q, k, y, 1024, 16, 16, True)
    return y


@triton.jit
def add_up(x_ptr, y_ptr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(y_ptr + at % 4, tl.load(x_ptr + at))


@case((1024,))
def atomics(x):
    y = torch.zeros(4, device=x.device)
    add_up[(8,)](x, y, 128)
    return y


@case((1000, 64))
def launch_for_each_row(x):
    y = torch.empty_like(x)
    for row in range(len(x)):
        copy[(2,)](x[row], y[row], 64, 32)
    return y


@triton.jit
def wait(y_ptr):
    while tl.atomic_cas(y_ptr, 1, 2) != 1:
        pass


@case((4,))
def waits_for_nobody(x):
    y = torch.zeros(1, dtype=torch.int32)
    wait[(1,)](y)
    return copied(x, 4)


@case((4096, 4096), (4096, 4096))
def operators(x, other):
    half = x.to(torch.float16)
    sums = torch.zeros(8, device=x.device)
    sums += 1
    dense = x.t().contiguous()
    half.copy_(other)
    del half
    return dense


@case((1 << 14, 1 << 14))
def large_operators(x):
    a = torch.zeros_like(x)
    a += x.t()
    b = a.exp() * x
    return b / b.sum(-1, keepdim=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return copied(x)

    @staticmethod
    def backward(_ctx, dy):
        return copied(dy, 512)


@case((4096,), gradients=True)
def with_a_backward(x):
    return Doubled.apply(x)


@triton.autotune([triton.Config({"block": 128}, num_warps=1), triton.Config({"block": 64}, num_warps=2)], key=["n"])
@triton.jit
def tuned(x_ptr, y_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@case((1024,))
def autotuned(x):
    y = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["block"]),)](x, y, x.numel())
    return y


@case((1000,))
def out_of_bounds(x):
    copied(x)
    y = torch.empty_like(x)
    copy[(4,)](x, y, 1024, 256)
    return y


@case((64, 64))
def no_programs(x):
    y = torch.empty_like(x)
    copy[(0,)](x, y, 0, 64)
    return y


def arena(shapes, dtype) -> tuple[int, int, list[protocol.Ref]]:
    """Sparse memory with places of tensors of these shapes."""
    size, end, refs = getattr(torch, dtype).itemsize, 4096, []
    for shape in shapes:
        strides = torch.empty(shape, device="meta").stride()
        refs.append(protocol.Ref(dtype, end, shape, strides))
        end += -(-torch.Size(shape).numel() * size // 4096) * 4096 + 4096
    file = os.memfd_create("arena")
    os.truncate(file, end)
    return file, end, refs


def traced(name: str, answer=tracing.call, target: protocol.Gpu | None = None) -> tuple[protocol.Reply, int]:
    """The reply to a traced call, and the bytes of the arena that it touched."""
    function, shapes, dtype, gradients = CASES[name]
    file, end, refs = arena(shapes, dtype)
    upstream = refs[-1] if gradients else None
    given = refs[:-1] if gradients else refs
    operands = protocol.Operands(tuple(given), upstream, ())
    request = protocol.MakeCalls(protocol.Memory(end), (operands,), (), 60.0, target=target, record="trace")
    reply = answer(function, request, [file])
    touched = os.fstat(file).st_blocks * 512
    os.close(file)
    return reply, touched


def checked_again() -> str:
    """What a call says that is not traced, of a kernel that leaves its tensors."""
    file, end, refs = arena([(1000,)], "float32")
    operands = protocol.Operands(tuple(refs), None, tuple(refs))
    request = protocol.MakeCalls(protocol.Memory(end), (operands,), (), 60.0)
    error = run.call(out_of_bounds, request, [file], "cpu").error
    return "" if error is None else error.message


def main() -> None:
    errors.set_root(Path(__file__).parent)
    triton_cpu.provide()
    absent_gpu.provide(GPUS["H200"])
    from grader.worker.triton_cpu import tracing as limits

    told = {}
    for name in CASES:
        # Limits of time only where they are tried: a busy machine may take long.
        limits.LAUNCH_S = limits.CALL_S = 60.0
        limits.PROGRAM_S = 0.6 if name == "waits_for_nobody" else 60.0
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reply, touched = traced(name)
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        told[name] = {"more_bytes": more, "touched_bytes": touched}
        told[name] |= json.loads(protocol.encode(reply)[4:])
    limits.LAUNCH_S = 0.0
    told["hurried"] = json.loads(protocol.encode(traced("causal_of_many")[0])[4:])
    limits.CALL_S = 0.0
    told["out of time"] = json.loads(protocol.encode(traced("causal_of_many")[0])[4:])
    told["checked again"] = checked_again()
    told["filled again"] = bool((torch.empty(1 << 20, dtype=torch.uint8) == protocol.FILL_BYTE).all())
    told["samples"] = {str(grid): limits.sample(grid) for grid in GRIDS}
    print(json.dumps(told))


if __name__ == "__main__":
    sys.modules["traced_kernels"] = sys.modules["__main__"]
    main()
