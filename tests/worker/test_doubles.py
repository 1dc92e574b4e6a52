"""Lines that a GPU computes in double precision: the same ones by nvcc's PTX and by the warnings of g++."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.nvidia import find_nvcc
from grader.worker import nvcc
from grader.worker.cuda_cpu.build import compile_library
from grader.worker.cuda_cpu.declarations import device_code
from grader.worker.doubles import in_ptx, told
from tests.support.cpu_runtime import place_runtime

# A line that is computed in double ends in `// double`.
KERNEL = """\
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include "lib/parts.cuh"
#define ROOT 0.7978845608
constexpr double HALF_PI = 1.57079632679;
const float CUBE = 0.044715;
__device__ float scaled(float v) {
    return 0.1 * v;  // double
}
struct Line {
    float a;
    __device__ float at(float v) const { return a * 0.3 + v; }  // double
};
template <typename T> __device__ T twice(T v) {
    return v * 2.5 + 0.5;  // double
}
__global__ void kernel(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];  // "0.1 * v"
    y[i] = 0.5 * v;
    y[i + 1] = v * CUBE + (float)0.3 * v + expf(v) + tanh(v) + v * exp(v) * sqrt(v) + sinf(1e6f * v);
    y[i + 2] = v > 0.0 ? v : 0.0;
    y[i + 3] = 0.5 * v * (1.0 + tanhf(v));  // double
    y[i + 4] = ROOT * v;  // double
    y[i + 5] = HALF_PI * v;  // double
    y[i + 6] = 1.0 / (1.0 + exp(-v));  // double
    y[i + 7] = v * v * v * 0.044715;  // double
    y[i + 8] = 0.5 * v + 1.0 + scaled(v) + Line{v}.at(v) + twice(v) + third(v);  // double
    y[i + 9] = v * v * (v + v) / 0.3;  // double
    constexpr float ROOT2 = 1.4142135623730951 * 0.5f + HALF_PI;
    const float HALF_ROOT = M_SQRT1_2 * 0.5f;
    const float mixed = 0.7 * v;  // double
    y[i + 10] = ROOT2 + HALF_ROOT + mixed;
    if (n < 0) printf("double v = %f", v);
}
extern "C" void scale(const float* x, float* y, int64_t n, cudaStream_t stream) {
    float factor = 0.3f * n;
    factor = factor * 0.7;
    kernel<<<1, 256, 0, stream>>>(x, y, n);
}
"""
HEADER = """\
#pragma once
__device__ inline float third(float v) {
    return v * 0.333333;  // double
}
"""
EXPECTED = {
    (name, number)
    for name, text in (("kernel.cu", KERNEL), ("lib/parts.cuh", HEADER))
    for number, line in enumerate(text.splitlines(), 1)
    if line.endswith("// double")
}
# Cut from what nvcc 13.0 made of `printf("%f", v); y[0] = 0.1 * v; y[1] = sinf(v); y[2] = helper(v);`
PTX = """\
.visible .entry _Z6kernelPKfPf(
{{
	.loc	1 3 5
	cvt.f64.f32 	%fd1, %f1;
	st.local.f64 	[%rd47], %fd1;
	.loc	1 4 5
	mul.f64 	%fd2, %fd1, 0d3FB999999999999A;
	cvt.rn.f32.f64 	%f50, %fd2;
	.loc	1 5 5
	cvt.rn.f64.s64 	%fd81, %rd45;
	mul.f64 	%fd82, %fd81, 0d3BF921FB54442D19;
	.loc	2 12 3, function_name $L__info_string0, inlined_at 1 6 5
@%p1 add.f64 	%fd3, %fd1, 0d3FF0000000000000;
	.loc	1 7 1
	ret;
}}
.func  (.param .b64 func_retval0) __internal_accurate_pow(
{{
	mul.f64 	%fd4, %fd1, 0d4350000000000000;
}}
	.file	1 "{folder}/kernel.cu"
	.file	2 "/usr/local/cuda/include/helper.hpp"
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "mine" / "lib").mkdir(parents=True)
    (tmp_path / "mine" / "lib" / "parts.cuh").write_text(HEADER)
    (tmp_path / "mine" / "kernel.cu").write_text(KERNEL)
    return tmp_path / "mine" / "kernel.cu"


def places(words: str) -> set[tuple[str, int]]:
    return {(file, int(line)) for file, line in re.findall(r"^computed in double: (.+?):(\d+):", words, re.MULTILINE)}


@pytest.fixture(autouse=True)
def all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.worker.doubles.MAX_PLACES", 100)


@pytest.fixture
def said_by_gcc(tmp_path: Path) -> Callable[[Path], str]:
    """The words about a file that is built by g++."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    place_runtime(compiler, tmp_path)
    return lambda source: compile_library(source, tmp_path, compiler, 120.0).told


@pytest.mark.grading
def test_gcc_tells_the_lines_of_device_code_and_no_others(said_by_gcc: Callable[[Path], str], source: Path) -> None:
    assert places(said_by_gcc(source)) == EXPECTED


@pytest.mark.grading
def test_a_kernel_that_declares_its_doubles_is_told_too(said_by_gcc: Callable[[Path], str], tmp_path: Path) -> None:
    body = "double v = x[0];\n v = v * v;\n y[0] = v;"
    source = tmp_path / "kernel.cu"
    source.write_text(f"__global__ void k(const float* x, float* y) {{\n{body}\n}}\nvoid f(double host) {{}}\n")
    assert places(said_by_gcc(source)) == {("kernel.cu", 2)}


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_nvcc_tells_the_same_lines(source: Path, tmp_path: Path) -> None:
    compiler = find_nvcc()
    assert compiler is not None
    assert places(nvcc.TrialBuild(source, compiler, "sm_90", tmp_path, 120.0).finish()) == EXPECTED


def test_ptx_of_cudas_own_functions_and_of_prints_is_no_students_double(tmp_path: Path) -> None:
    assert in_ptx(PTX.format(folder=tmp_path), tmp_path) == {("kernel.cu", 4), ("kernel.cu", 6)}
    assert in_ptx(PTX.format(folder="/elsewhere"), tmp_path) == set()


def test_the_literals_of_a_line_are_told_once_and_without_its_comment(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("\n    y = 0.5 * x + .5e-3 * x + 0.5 * z[1] + 2.0f + 0x1 + 3;  // 0.7\n")
    assert told({("kernel.cu", 2)}, tmp_path) == "computed in double: kernel.cu:2: 0.5 .5e-3\n"


def test_code_without_its_closing_brace_is_no_device_code() -> None:
    assert device_code("__device__ float a;\n__global__ void k() { double b;\n") == {}
