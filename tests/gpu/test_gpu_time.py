"""In whose kernels a real GPU spends its time: the report tells, and kernels for show are found."""

from __future__ import annotations

import re

import pytest
import torch

from grader.nvidia import find_nvcc
from tests.conftest import Course, Ran, Running, in_cuda, problem_toml

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

HEAD = """
import torch, triton, triton.language as tl

@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)

def launch(x, n):
    y = torch.empty_like(x)
    twice[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return y

def double(x):
"""
CUDA = """
#include <cuda_runtime.h>
#include <cstdint>

namespace mine {
template <int FACTOR>
__global__ void times(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
}

extern "C" void double_it(const float* x, float* y, int64_t n, cudaStream_t stream) {
    mine::times<2><<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""
# What tuning takes, fills of the cache above all, is not the kernel's own time.
TUNED = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 4096})], key=["n"])
@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)

def double(x):
    y = torch.empty_like(x)
    twice[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""
N = 1 << 24
POLICY = "[policy]\noperators = ['mul']\n\n[[part]]"
# By assignment: source, outcome, what is said, and the kernel that takes the most time.
SOURCES = {
    "own": (HEAD + "    return launch(x, x.numel())\n", "passed", "", "twice"),
    "tuned": (TUNED, "passed", "", "twice"),
    "own_cuda": (CUDA, "passed", "", "mine::times"),
    "for_show": (
        HEAD + "    launch(x, 1)\n    return x * 2\n",
        "forbidden",
        r"^\d % of the GPU's time went into kernels of your own, 9\d % into at::native::",
        "",
    ),
    "half": (HEAD + "    return launch(x, x.numel()) * 1.0\n", "passed", "", ""),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("profiled")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    for name, (source, *_) in SOURCES.items():
        cuda = source == CUDA
        file = f"{name}.cu" if cuda else f"{name}.py"
        toml = problem_toml(file, ["profiled"], limit_s=30, memory_gib=8).replace("[[part]]", POLICY, 1)
        toml = toml.replace(", n = 10 }", f", n = {N}, profiled = true }}")
        if cuda:
            toml = in_cuda(toml)
        course.add(name, toml=toml)
        (submission / file).write_text(source)
        (course.folder / "reference" / file).write_text(CUDA if cuda else SOURCES["own"][0])
    return Running(folder, [str(submission), "--course", str(course.folder), "--no-speed"]).finish()


@pytest.mark.parametrize("name", SOURCES)
def test_whose_kernel_it_was(ran: Ran, name: str) -> None:
    if name == "own_cuda" and find_nvcc() is None:
        pytest.skip("needs nvcc")
    _, outcome, says, most = SOURCES[name]
    case = ran.case(name, "profiled")
    assert (case.outcome, bool(re.search(says, case.message))) == (outcome, True), f"{case.outcome}: {case.message}"
    if outcome != "passed":
        return
    assert case.gpu_time is not None
    assert case.gpu_time.own_share > 0.95 if most else 0.3 < case.gpu_time.own_share < 0.7
    if most:
        assert (case.gpu_time.kernels[0].name, case.gpu_time.kernels[0].own) == (most, True)


def test_the_terminal_tells_of_it(ran: Ran) -> None:
    assert "of the GPU's time in kernels of your own" in ran.output
