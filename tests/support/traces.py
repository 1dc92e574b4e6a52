"""Traces of kernels as a worker would make them, by hand: of a warp's or a program's accesses, for a few blocks of a launch."""

from __future__ import annotations

import math

from grader.gpu_table import GPUS
from grader.profile.model import CaseProfile
from grader.protocol import CompiledKernel, TracedAccess, TracedLaunch, TracedTensor

N = 1 << 28  # floats of the GeLU that the course times
H200 = GPUS["H200"]
RAN = 4


def ptxas(name: str, registers: int = 32, spilled: int = 0) -> CompiledKernel:
    told = (
        f"ptxas info    : Compiling entry function '{name}' for 'sm_90'\n"
        f"    {spilled} bytes stack frame, {spilled // 2} bytes spill stores, {spilled - spilled // 2} bytes spill loads\n"
        f"ptxas info    : Used {registers} registers, used 0 barriers\n"
    )
    return CompiledKernel(name, 0, 0, told)


def triton_kernel(name: str, warps: int, registers: int = 32, spilled: int = 0, shared: int = 0) -> CompiledKernel:
    return CompiledKernel(name, warps, shared, ptxas(name, registers, spilled).ptxas)


def bare_case(**fields: object) -> CaseProfile:
    """A case of the GeLU of N floats."""
    usual = {
        "assignment": "cuda_gelu",
        "part": "gelu",
        "case": "large",
        "size": f"shape {N}",
        "dtype": "float32",
        "gpu": "H200",
        "needed_bytes": 8.0 * N,
        "needed_flops": 14.0 * N,
    }
    return CaseProfile.model_validate(usual | fields)


def of_warps(verb: str, tensor: str, line: int, requests: int, **fields: object) -> TracedAccess:
    """Full warps, each lane with the next float."""
    width = int(str(fields.get("width_bytes", 4)))
    lanes = 32 * requests
    usual = {
        "file": "kernel.cu",
        "line": line,
        "verb": verb,
        "space": "global",
        "tensor": tensor,
        "width_bytes": width,
        "requests": requests,
        "lanes": lanes,
        "lanes_of_all": lanes,
        "sectors": requests * width,
        "least_sectors": requests * width,
    }
    return TracedAccess(**(usual | fields))  # type: ignore[arg-type]


def of_programs(verb: str, tensor: str, line: int, block: int, times: int = 1, **fields: object) -> TracedAccess:
    """RAN programs, each with so many blocks of neighbouring floats."""
    usual = {
        "file": "kernel.py",
        "line": line,
        "verb": verb,
        "space": "global",
        "tensor": tensor,
        "width_bytes": 4,
        "requests": RAN * times,
        "lanes": RAN * times * block,
        "lanes_of_all": RAN * times * block,
        "steps": (4,),
        "block": (block,),
    }
    return TracedAccess(**(usual | fields))  # type: ignore[arg-type]


def tensor(name: str, size: float, reads: float = 0, writes: float = 0, is_of_call: bool = True) -> TracedTensor:
    """`reads` and `writes`: different bytes for each block."""
    return TracedTensor(name, round(size), is_of_call, round(RAN * reads), round(RAN * writes))


def elementwise(threads: int = 256, width: int = 4, n: int = N, **fields: object) -> TracedLaunch:
    """A CUDA kernel with one access of `width` bytes a thread to each of x and y."""
    grid, requests = math.ceil(n * 4 / width / max(threads, 1)), RAN * max(threads // 32, 1)
    usual = {
        "kernel": "gelu_kernel",
        "line": 16,
        "grid": (grid, 1, 1),
        "threads": threads,
        "ran": RAN,
        "accesses": (
            of_warps("reads", "x", 10, requests, width_bytes=width),
            of_warps("writes", "y", 10, requests, width_bytes=width),
        ),
        "tensors": (
            tensor("x", 4 * n, reads=threads * width),
            tensor("y", 4 * n, writes=threads * width),
        ),
    }
    return TracedLaunch(**(usual | fields))  # type: ignore[arg-type]


def rows(passes: int = 1, n_rows: int = 16384, n_cols: int = 16384, warps: int = 8, **fields: object) -> TracedLaunch:
    """A Triton kernel with a program for each row, which it reads so many times in blocks of 1024."""
    times, size = n_cols // 1024, 4.0 * n_rows * n_cols
    usual = {
        "kernel": "softmax_kernel",
        "line": 40,
        "grid": (n_rows, 1, 1),
        "threads": 32 * warps,
        "ran": RAN,
        "accesses": (
            *(of_programs("reads", "x_ptr", 20 + 5 * number, 1024, times) for number in range(passes)),
            of_programs("writes", "y_ptr", 36, 1024, times),
        ),
        "tensors": (tensor("x_ptr", size, reads=4 * n_cols), tensor("y_ptr", size, writes=4 * n_cols)),
    }
    return TracedLaunch(**(usual | fields))  # type: ignore[arg-type]
