"""compute-sanitizer on a real GPU: what only it sees is found, with the student's file and line, and right kernels pass."""

from __future__ import annotations

import pytest
import torch

from grader.nvidia import find_nvcc, find_sanitizer
from tests.conftest import Course, Ran, Running, in_cuda, problem_toml

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)
if find_sanitizer() is None:
    pytest.skip("needs NVIDIA's compute-sanitizer", allow_module_level=True)

TRITON = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x_ptr, scratch_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(LOAD)
    SCRATCH
    tl.store(y_ptr + i, 2 * x, mask=i < n)

def double(x):
    y, scratch = torch.empty_like(x), torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, scratch, y, x.numel(), BLOCK=256)
    return y
"""
LOAD = "x_ptr + i, mask=i < n"
READS = "x = x + 0 * tl.load(scratch_ptr + i, mask=i < n)"
CUDA = """
#include <cuda_runtime.h>
#include <cstdint>

__global__ void kernel(const float* x, float* y, int64_t n) {
    __shared__ float tile[256];
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    BARRIER
    float neighbour = tile[255 - threadIdx.x];
    if (i < n) y[i] = 2.0f * x[i] + 0.0f * neighbour;
}

extern "C" void double_it(const float* x, float* y, int64_t n, cudaStream_t stream) {
    kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""
# By assignment: source, tool, and what is said; nothing where it is right.
SOURCES = {
    "right": (TRITON.replace("LOAD", LOAD).replace("SCRATCH", "pass"), "memcheck", ""),
    "right_written": (TRITON.replace("LOAD", LOAD).replace("SCRATCH", "pass"), "initcheck", ""),
    "reads_beyond": (
        TRITON.replace("LOAD", "x_ptr + i").replace("SCRATCH", "pass"),
        "memcheck",
        "reads_beyond.py:7, in kernel: a read of",
    ),
    "reads_unwritten": (
        TRITON.replace("LOAD", LOAD).replace("SCRATCH", READS),
        "initcheck",
        "reads_unwritten.py:8, in kernel: reads",
    ),
    "right_cuda": (CUDA.replace("BARRIER", "__syncthreads();"), "racecheck", ""),
    "racing": (CUDA.replace("BARRIER", ""), "racecheck", "with no barrier in between"),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("sanitizer")
    course = Course(folder / "course")
    submission = folder / "submission"
    submission.mkdir()
    for name, (source, tool, _) in SOURCES.items():
        cuda = source.startswith(CUDA[:20])
        file = f"{name}.cu" if cuda else f"{name}.py"
        toml = problem_toml(file, ["watched"], limit_s=30, memory_gib=8)
        toml = toml.replace(", n = 10 }", f', n = 1000, tool = "{tool}", devices = ["cuda"] }}')
        if cuda:
            toml = in_cuda(toml)
        course.add(name, toml=toml)
        (submission / file).write_text(source)
    return Running(folder, [str(submission), "--course", str(course.folder), "--no-speed"]).finish(400)


@pytest.mark.parametrize("name", SOURCES)
def test_what_the_tool_sees_is_told(ran: Ran, name: str) -> None:
    source, _, words = SOURCES[name]
    if source.startswith(CUDA[:20]) and find_nvcc() is None:
        pytest.skip("needs nvcc")
    result = ran.case(name, "watched")
    everything = "\n".join([result.message, *result.diagnosis])
    assert result.outcome == ("failed" if words else "passed"), everything
    assert words in everything


def test_nothing_is_left(ran: Ran) -> None:
    assert ran.left == []
