"""CUDA C++ on the CPU: kernels run with a device's semantics, and what a kernel does wrong is told with thread and line."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grader
from grader.judge.environment import find_compiler
from grader.pool import cuda_cpu, fault
from grader.pool.cuda_cpu import provide_runtime
from grader.pool.pool import stage_runtime
from grader.protocol import Build, Ref
from grader.worker.cuda_cpu import program
from grader.worker.cuda_cpu.build import BuildFailed, Fault, Library, Unsupported, compile_library, refuse_unsupported
from grader.worker.cuda_cpu.rewrite import rewrite
from grader.worker.cuda_cpu.tokens import RewriteError
from grader.worker.cuda_cpu.windows import repeated
from grader.worker.lines import StackFrame
from tests.support.cpu_runtime import place_runtime

pytestmark = pytest.mark.grading

COMPILER = find_compiler("cpu") or ""
if not COMPILER:
    pytest.skip("needs g++ or clang++", allow_module_level=True)

RIGHT = r"""
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

// reduction: warps by shuffles, then one warp over the warps' sums, then one atomic a block
__inline__ __device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffff, v, offset);
    return v;
}
__global__ void reduce_kernel(const float* __restrict__ x, float* total, int n) {
    __shared__ float sums[32];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    v = warp_sum(v);
    if (threadIdx.x % warpSize == 0) sums[threadIdx.x / warpSize] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.0f;
        v = warp_sum(v);
        if (threadIdx.x == 0) atomicAdd(total, v);
    }
}
extern "C" void reduce(const float* x, float* total, int n, int) {
    cudaMemset(total, 0, 4);
    reduce_kernel<<<7, 256>>>(x, total, n);
}

// tiled matrix product, a template on the tile, launched with its template arguments and nested commas
template <int TILE, typename T>
__global__ void matmul_kernel(const T* a, const T* b, T* c, int n) {
    __shared__ T left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    T sum = 0;
    for (int start = 0; start < n; start += TILE) {
        left[threadIdx.y][threadIdx.x] = row < n && start + threadIdx.x < n ? a[row * n + start + threadIdx.x] : T(0);
        right[threadIdx.y][threadIdx.x] = start + threadIdx.y < n && column < n ? b[(start + threadIdx.y) * n + column] : T(0);
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}
extern "C" void matmul(const float* a, float* c, int n, int) {
    matmul_kernel<16, float><<<dim3((n + 15) / 16,
                                    (n + 15) / 16), dim3(16, 16)>>>(a, a, c, n);
}

// softmax: one warp a row
__global__ void softmax_kernel(const float* x, float* y, int rows, int columns) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float largest = -INFINITY, sum = 0;
    for (int c = lane; c < columns; c += 32) largest = fmaxf(largest, x[row * columns + c]);
    for (int bits = 16; bits; bits /= 2) largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, bits));
    for (int c = lane; c < columns; c += 32) sum += __expf(x[row * columns + c] - largest);
    for (int bits = 16; bits; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    for (int c = lane; c < columns; c += 32) y[row * columns + c] = __expf(x[row * columns + c] - largest) / sum;
}
extern "C" void softmax(const float* x, float* y, int rows, int columns) { softmax_kernel<<<(rows + 3) / 4, 128>>>(x, y, rows, columns); }

// transpose through shared memory with padding
__global__ void transpose_kernel(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][32 + 1];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (r + j < rows && c < columns) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (c < rows && r + j < columns) y[(r + j) * rows + c] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" void transpose(const float* x, float* y, int rows, int columns) {
    transpose_kernel<<<dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(x, y, rows, columns);
}

// histogram: atomics in dynamic shared memory, then in global memory
__global__ void histogram_kernel(const float* x, float* counts, int n, int bins) {
    extern __shared__ int local[];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[min(bins - 1, max(0, (int)(x[i] * bins)))], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x) atomicAdd(counts + b, local[b]);
}
extern "C" void histogram(const float* x, float* counts, int n, int bins) {
    cudaMemsetAsync(counts, 0, 4 * bins);
    histogram_kernel<<<5, 64, bins * sizeof(int)>>>(x, counts, n, bins);
}

// the last block sums what the others left: ordered by a fence and an atomic
__device__ unsigned int finished;
__global__ void last_block_kernel(const float* x, float* partial, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = blockIdx.x; i < n; i += gridDim.x) sum += x[i];
        partial[1 + blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(&finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += partial[1 + b];
        partial[0] = sum;
        finished = 0;
    }
}
extern "C" void last_block(const float* x, float* partial, int n, int blocks) { last_block_kernel<<<blocks, 32>>>(x, partial, n); }

// votes, vector types, half and bfloat16
__global__ void votes_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool positive = i < n && x[i] > 0;
    unsigned ballot = __ballot_sync(0xffffffff, positive);
    int many = __syncthreads_count(positive);
    int any = __any_sync(0xffffffff, positive);
    if (i < n) y[i] = __popc(ballot) + 1000 * many + 1000000 * any;
}
__global__ void vectors_kernel(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 v = x[i];
        y[i] = make_float4(__half2float(__float2half(v.x)), __bfloat162float(__float2bfloat16(v.y)), float(__half(v.z) * __half(2.0f)), rsqrtf(fabsf(v.w)));
    }
}
extern "C" void vectors(const float* x, float* y, int n, int) {
    vectors_kernel<<<(n / 4 + 63) / 64, 64>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y), n);
}
extern "C" void votes(const float* x, float* y, int n, int) { votes_kernel<<<(n + 63) / 64, 64>>>(x, y, n); }

// y[i] is rounded as the function's name says
__global__ void rounded_kernel(const float* x, float* y) {
    volatile float one = 1;
    float tiny = 1e-30f * one, third = one / 3, three = 3 * one, most = 3.4028235e38f * one;
    float all[] = {
        __fadd_rz(1, tiny) - 1, __fadd_ru(1, tiny) - 1, __fadd_rd(1, -tiny) - 1, __fadd_rz(-1, tiny) + 1,  // 0, 2^-23, -2^-24, 2^-24
        __fsub_ru(1, -tiny) - 1, __fsub_rd(one, one) == 0 && signbit(__fsub_rd(one, one)),             // 2^-23, 1
        __fmul_ru(third, third) > __fmul_rd(third, third), __fmul_rz(most, 2) == most, isinf(__fmul_ru(most, 2)) != 0,  // 1, 1, 1
        __fdiv_rd(1, three) < __fdiv_ru(1, three), __frcp_rz(three) == __fdiv_rd(1, three), __fdiv_rd(6, three),        // 1, 1, 2
        double(__fsqrt_rd(three)) * __fsqrt_rd(three) < 3, __fsqrt_ru(4 * one), __fmaf_ru(three, three, tiny) - 9,             // 1, 2, 2^-20
        __int2float_rz(16777219) == 16777218, __uint2float_ru(16777217u) == 16777218, __ll2float_rd(-16777217ll) == -16777218,  // 1, 1, 1
        __ull2float_rz(~0ull) == 1.8446742974197924e19f, __double2float_ru(0.1) > __double2float_rd(0.1),                      // 1, 1
        float(__dmul_rn(__dadd_rn(1, 2), __fma_rn(2, 3, __ddiv_rn(1, 2)))),                                                    // 19.5
        float(__hiloint2double(__double2hiint(0.3), __double2loint(0.3)) == 0.3),                                             // 1
        __half2float(__hmax_nan(__half(1.0f), __half(2.0f))), isnan(__half2float(__hmax_nan(__half(1.0f), __half(NAN)))) != 0,  // 2, 1
        __half2float(hfloor(__half(2.75f))), float(__half2int_rn(__half(2.75f)))};                                             // 2, 3
    for (int i = 0; i < int(sizeof(all) / 4); i++) y[i] = all[i];
}
extern "C" void rounded(const float* x, float* y, int, int) { rounded_kernel<<<1, 1>>>(x, y); }
"""


def build(folder: Path, source: str, compiler: str = COMPILER) -> Library:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    place_runtime(compiler, folder)
    (folder / "student.cu").write_text(source)
    return compile_library(folder / "student.cu", folder, compiler, limit_s=120)


def call(
    library: Library, name: str, x: np.ndarray, outputs: int, n: int, m: int = 0, order: int = 0, output: bool = False
) -> np.ndarray:
    """y, which is full of 7 before the call. `output`: y must be written before it is read."""
    y = np.full(outputs, 7.0, dtype=np.float32)
    library.begin(order)
    library.array(x.ctypes.data, x.nbytes, "x", 4)
    library.array(y.ctypes.data, y.nbytes, "y", 4, output)
    pointers = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    getattr(library.functions, name)(*pointers, ctypes.c_int(n), ctypes.c_int(m))
    return y


def fault_of(library: Library) -> Fault:
    fault = library.fault()
    assert fault is not None
    return fault


def clean(library: Library, y: np.ndarray) -> np.ndarray:
    fault = library.fault()
    assert fault is None, fault
    assert library.launch_error() is None
    return y


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("right"), RIGHT)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(5).random(1000, dtype=np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.reshape(9, 110).astype(np.float64))
    return e / e.sum(-1, keepdims=True)


ULP = 2.0**-23
ROUNDED = [0, ULP, -ULP / 2, ULP / 2, ULP, 1, 1, 1, 1, 1, 1, 2, 1, 2, 8 * ULP, 1, 1, 1, 1, 1, 19.5, 1, 2, 1, 2, 3]
# function: elements of x and y, two sizes, what comes first in y, the relative error that is allowed
RIGHT_ANSWERS: dict[str, tuple[int, int, int, int, Callable[[np.ndarray], Any], float]] = {
    "reduce": (1000, 1, 1000, 0, lambda x: x.sum(dtype=np.float64), 1e-5),
    "matmul": (961, 961, 31, 0, lambda x: x.reshape(31, 31) @ x.reshape(31, 31), 1e-4),
    "softmax": (990, 990, 9, 110, softmax, 1e-5),
    "transpose": (990, 990, 22, 45, lambda x: x.reshape(22, 45).T, 0),
    "histogram": (1000, 13, 1000, 13, lambda x: np.bincount((x * 13).astype(int), minlength=13), 0),
    "last_block": (1000, 6, 1000, 5, lambda x: x.sum(dtype=np.float64), 1e-4),
    "rounded": (1, len(ROUNDED), 0, 0, lambda _: ROUNDED, 0),
}


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", RIGHT_ANSWERS)
def test_a_right_kernel_gives_right_answers_in_any_order(right: Library, x: np.ndarray, name: str, order: int) -> None:
    given, outputs, n, m, answer, error = RIGHT_ANSWERS[name]
    x = x[:given].copy()
    y, expected = clean(right, call(right, name, x, outputs, n, m, order)), np.ravel(answer(x))
    assert np.allclose(y[: len(expected)], expected, rtol=error, atol=0)


@pytest.mark.parametrize("order", [0, 1])
def test_votes_vector_and_half_types(right: Library, x: np.ndarray, order: int) -> None:
    signs = np.where(np.arange(70) % 3 == 0, 1.0, -1.0).astype(np.float32)
    y = clean(right, call(right, "votes", signs, 70, 70, order=order))
    positive = np.zeros(128, bool)
    positive[:70] = signs > 0
    for i in range(70):
        ballot, block = positive[i // 32 * 32 :][:32].sum(), positive[i // 64 * 64 :][:64].sum()
        assert y[i] == ballot + 1000 * block + 1000000 * (ballot > 0)
    y = clean(right, call(right, "vectors", x, 1000, 1000, order=order)).reshape(-1, 4)
    columns = x.reshape(-1, 4)
    assert np.array_equal(y[:, 0], columns[:, 0].astype(np.float16).astype(np.float32))
    assert np.abs(y[:, 1] / columns[:, 1] - 1).max() <= 2**-8
    assert np.array_equal(y[:, 2], 2 * columns[:, 2].astype(np.float16).astype(np.float32))
    assert np.allclose(y[:, 3], 1 / np.sqrt(columns[:, 3]), rtol=1e-6)


def test_after_a_fault_the_next_call_starts_afresh(told: Library, x: np.ndarray) -> None:
    for name in ("no_check", "divergent"):
        call(told, name, x[:100].copy(), 100, 100)
        assert told.fault() is not None
    clean(told, call(told, "one_value", x[:100].copy(), 100, 100))


@pytest.mark.parametrize("code", ["y[0] = 1;", "__atomic_fetch_add((int*)y, 1, __ATOMIC_RELAXED);"])
def test_a_host_that_touches_device_memory_is_told(tmp_path: Path, x: np.ndarray, code: str) -> None:
    library = build(tmp_path, f'extern "C" void f(const float* x, float* y, int n, int) {{\n  {code}\n}}\n')
    call(library, "f", x, 100, 100)
    fault = fault_of(library)
    assert (fault.kind, "line 2" in fault.text) == ("host_access", True)


ATOMICS = """
#include <atomic>
#include <mutex>
static std::once_flag once;
static int counted() { return 3; }
extern "C" void f(const float* x, float* y, int n, int) {
    static const int three = counted();
    std::atomic<TYPE> a{5};
    int sum = a.exchange(9);                                // 5
    sum += a.fetch_add(three), sum += a.fetch_sub(2);       // 26
    sum += a.fetch_and(14), sum += a.fetch_or(1), sum += a.fetch_xor(3);  // 57, and a is 8
    TYPE expected = 7;
    sum += a.compare_exchange_strong(expected, 1) ? 100 : int(expected);  // 65
    while (!a.compare_exchange_weak(expected, 2)) {}
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::call_once(once, [&] { a.store(a.load() + 4); });
    sum += a;                                               // 71
    cudaMemcpy(y, &sum, 4, cudaMemcpyHostToDevice);
}
"""


ENDING = r"""
#include <cuda_runtime.h>
#include <cstring>
static int zero = 0;
static float* nothing = nullptr;
__attribute__((noinline)) static void fill(float* where) {
    where[3] = 1.0f;
}
__attribute__((noinline)) static int deeper(volatile int* n) {
    return deeper(n) + *n;
}
extern "C" void null(const float* x, float* y, int64_t n, cudaStream_t stream) {
    fill(nothing);
}
extern "C" void copied(const float* x, float* y, int64_t n, cudaStream_t stream) {
    memcpy(nothing, x, 4 * n);
}
extern "C" void divided(const float* x, float* y, int64_t n, cudaStream_t stream) {
    y[0] = 7 / zero;
}
extern "C" void recursive(const float* x, float* y, int64_t n, cudaStream_t stream) {
    y[0] = deeper(&zero);
}
extern "C" void endless(const float* x, float* y, int64_t n, cudaStream_t stream) {
    while (((volatile float*)y)[0] == 7.0f) {}
}
template <class T> __global__ void endless_kernel(T* y) {
    while (((volatile float*)y)[0] == 7.0f) {}
}
extern "C" void in_a_kernel(const float* x, float* y, int64_t n, cudaStream_t stream) {
    endless_kernel<<<1, 1>>>(y);
}
__global__ void trapping_kernel(float* y) {
    __builtin_trap();
}
extern "C" void trapped(const float* x, float* y, int64_t n, cudaStream_t stream) {
    trapping_kernel<<<1, 1>>>(y);
}
extern "C" void fine(const float* x, float* y, int64_t n, cudaStream_t stream) {}
"""


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("ending"), ENDING)


@pytest.mark.parametrize(
    ("name", "number", "lines"),
    [
        ("null", signal.SIGSEGV, [7, 13]),
        ("copied", signal.SIGSEGV, [16]),
        ("divided", signal.SIGFPE, [19]),
        ("recursive", signal.SIGSEGV, [9, 10]),
        ("trapped", signal.SIGILL, [34]),
        ("fine", 0, []),
    ],
)
def test_host_code_that_a_signal_ends_is_told_with_its_lines(
    ending: Library, x: np.ndarray, name: str, number: int, lines: list[int]
) -> None:
    y = x.copy()
    ending.begin()
    assert ending.call(getattr(ending.functions, name), x.ctypes.data, y.ctypes.data, x.size) == number
    assert [one.line for one in ending.ended_at()][: len(lines)] == lines
    assert ending.stack_was_full() == (name == "recursive")
    assert ending.in_a_kernel() == (name == "trapped")
    if name == "null":
        assert 0 < ending.reached_for() < 4096
    assert ending.call(ending.functions.fine, x.ctypes.data, y.ctypes.data, x.size) == 0


def test_a_function_gets_all_its_arguments_whatever_their_order(tmp_path: Path) -> None:
    words = [f"int64_t w{i}" if i % 2 else f"int w{i}" for i in range(11)]
    floats = [f"float f{i}" for i in range(8)]
    both = [one for pair in zip(words, floats, strict=False) for one in pair] + words[8:]
    sums = " + ".join([f"w{i} * {i + 1}" for i in range(11)] + [f"f{i} * {i + 100}" for i in range(8)])
    library = build(tmp_path, f'extern "C" void f({", ".join(both)}, double* told) {{ *told = {sums}; }}\n')
    told = ctypes.c_double()
    values = [one for i in range(8) for one in (-i if i % 2 else i, i + 0.5)] + [8, -9, 10]
    library.begin()
    assert library.call(library.functions.f, *values, ctypes.addressof(told)) == 0
    assert told.value == sum((i + 1) * (-i if i % 2 else i) for i in range(11)) + sum(
        (i + 100) * (i + 0.5) for i in range(8)
    )


@pytest.mark.parametrize(("name", "line"), [("endless", 25), ("in_a_kernel", 28)])
def test_a_call_that_does_not_end_is_asked_where_it_is(ending: Library, name: str, line: int) -> None:
    x, y = np.zeros(4, dtype=np.float32), np.full(4, 7.0, dtype=np.float32)
    ending.begin()
    ending.array(y.ctypes.data, y.nbytes, "y", 4)
    assert ending.locate() == []  # there is none
    calling = threading.Thread(
        target=ending.call, args=(getattr(ending.functions, name), x.ctypes.data, y.ctypes.data, 4), daemon=True
    )
    calling.start()
    try:
        while not (found := ending.locate()) or "in_a_kernel" in found[0].function:
            pass  # before the launch, or in it
    finally:
        y[0] = 0
        calling.join()
    assert found[0].line == line
    assert found[0].plain == ("endless" if name == "endless" else "endless_kernel")


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        ("gelu", "gelu"),
        ("(anonymous namespace)::gelu_of(float)", "gelu_of"),
        ("void scale<(Mode)1, 4>(float const*, float*)", "scale"),
        ("auto gelu::{lambda(auto:1...)#1}::operator()<float*>(float*) const", "gelu"),
        ("operator()<float*>", "a function"),
    ],
)
def test_a_function_is_told_by_its_name_alone(function: str, plain: str) -> None:
    assert StackFrame(function, Path("gelu.cu"), 1).plain == plain


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("kind", ["unsigned char", "short", "int", "long"])
def test_the_host_may_use_atomics_and_static_initialisers(
    tmp_path: Path, x: np.ndarray, kind: str, compiler: str
) -> None:
    library = build(tmp_path, ATOMICS.replace("TYPE", kind), compiler)
    assert clean(library, call(library, "f", x, 1, 1)).view(np.int32)[0] == 71


def test_work_on_a_default_stream_is_told_with_its_line(tmp_path: Path) -> None:
    source = """\
__global__ void scale(float* y) { y[threadIdx.x] = 2; }
extern "C" void f(float* y, cudaStream_t stream) {
    scale<<<1, 4, 0, stream>>>(y);
    cudaMemsetAsync(y, 0, 16, stream);
    cudaLaunchConfig_t config = {1, 4, 0, stream};
    cudaLaunchKernelEx(&config, scale, y);
    if (stream == cudaStreamLegacy) return;
    scale<<<1, 4>>>(y);
    cudaMemsetAsync(y, 0, 16);
    void* arguments[] = {&y};
    cudaLaunchKernel((void*)scale, 1, 4, arguments);
    scale<<<1, 4, 0, cudaStreamPerThread>>>(y);
    config.stream = 0;
    cudaLaunchKernelEx(&config, scale, y);
}
"""
    library = build(tmp_path, source)
    y = np.zeros(4, dtype=np.float32)
    stream = library.new_stream()
    launch, other = "the launch of scale", "the launch of a kernel"
    legacy = {3: launch, 4: "cudaMemsetAsync", 6: other}
    given = {8: launch, 9: "cudaMemsetAsync", 11: other, 12: launch, 14: other}
    for passed, told in ((1, legacy), (stream, given), (1, legacy)):
        library.begin()
        library.array(y.ctypes.data, y.nbytes, "y", 4)
        assert library.call(library.functions.f, y.ctypes.data, passed) == 0
        assert library.off_stream() == [f"student.cu:{line}: {what}" for line, what in told.items()]
    library.begin()
    assert library.off_stream() == []


def test_work_on_a_stream_that_does_not_wait_for_the_given_one_is_told(tmp_path: Path) -> None:
    source = """\
__global__ void scale(float* y) { y[threadIdx.x] = 2; }
extern "C" void f(float* y, cudaStream_t stream, int waits) {
    static cudaStream_t side, last;
    cudaEvent_t before, between;
    if (!side) cudaStreamCreate(&side), cudaStreamCreateWithFlags(&last, cudaStreamNonBlocking);
    cudaEventCreate(&before), cudaEventCreate(&between);
    cudaEventRecord(before, waits == 2 ? side : stream);
    if (waits) cudaStreamWaitEvent(side, before);
    if (waits == 3) cudaStreamSynchronize(stream);
    scale<<<1, 4, 0, side>>>(y);
    cudaEventRecord(between, side), cudaStreamWaitEvent(last, between);
    cudaMemsetAsync(y, 0, 16, last);
    scale<<<1, 4, 0, stream>>>(y);
}
"""
    library = build(tmp_path, source)
    y = np.zeros(4, dtype=np.float32)
    stream = library.new_stream()
    told = ["student.cu:10: the launch of scale", "student.cu:12: cudaMemsetAsync"]
    for waits, expected in ((1, []), (0, told), (2, told), (3, []), (0, told)):
        library.begin()
        library.array(y.ctypes.data, y.nbytes, "y", 4)
        assert library.call(library.functions.f, y.ctypes.data, stream, waits) == 0
        assert library.off_stream() == expected, waits


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("__device__ float part(float v);", r"student\.cu:2: error: part is declared and nowhere defined"),
        ('#include "lib/parts.cuh"', r"lib/parts\.cuh:3: error: part is declared and nowhere defined"),
    ],
    ids=["here", "in an own header"],
)
def test_a_function_without_a_body_is_told_with_the_line_of_its_declaration(
    tmp_path: Path, declared: str, words: str
) -> None:
    if "lib/" in declared:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "parts.cuh").write_text("#pragma once\n// part(v)\n__device__ float part(float v);\n")
    with pytest.raises(BuildFailed, match=words):
        build(tmp_path, f"// part of it\n{declared}\n__global__ void k(float* y) {{ y[0] = part(1); }}\n")


def test_what_the_runtime_has_no_callback_for_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"^what the compiler does by __tsan_unheard_of is not available on the CPU"):
        build(tmp_path, 'extern "C" void __tsan_unheard_of();\nextern "C" void f() { __tsan_unheard_of(); }\n')


FORMS = r"""
#include <cuda_runtime.h>
#include <tuple>

// arguments and names as in a call
struct Places { const float* x; float* y; };
__global__ void from_struct_kernel(const Places p, const float* add) { p.y[threadIdx.x] = p.x[threadIdx.x] + (add ? *add : 1); }
template <typename T, int N> __global__ void add_4_kernel(Places p, T* add) { p.y[threadIdx.x] = p.x[threadIdx.x] + (add ? *add : N); }
#define NAMED(what) \
    void what##_named(float* y) { what##_kernel<<<1, 4>>>({y, y + 4}, NULL); }
NAMED(from_struct)
extern "C" void arguments(const float* x, float* y, int n, int) {
    from_struct_kernel<<<1, 4>>>({x, y}, NULL);
    from_struct_named(y);
    add_4_kernel<float, 4><<<1, 4>>>({x, y + 8}, {});
}

// macros that stand for a part of a launch, and one launch's arguments after two heads
#ifdef __INTELLISENSE__
#define SHAPE(grid, block)
#else
#define SHAPE(grid, block) <<< grid, block >>>
#endif
#define WIDE_SHAPE(...) <<<__VA_ARGS__>>>
#define ANY_SHAPE(grid, ...) WIDE_SHAPE(grid, __VA_ARGS__)
#define ON(stream, kernel, threads) kernel<<<(threads) / \
    4, min(4, threads), 0, stream>>>
#define TWICE(kernel, x, y) kernel SHAPE(1, 4)(x, y), kernel ANY_SHAPE(1, 4)(y, y)
__global__ void add_kernel(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }
extern "C" void parts(const float* x, float* y, int n, int) {
    add_kernel SHAPE((n + 7) / 8,
                     dim3(4, 1))(x, y);
    add_kernel ANY_SHAPE(1, dim3(4, 1), 0, NULL)(y, y + 4);
    if (cudaError failed = cudaGetLastError()) return;
    ON(nullptr, add_kernel, 4)(y + 4, y + 8);
    TWICE(add_kernel, y + 8, y + 12);
#ifdef __CUDACC__
    add_kernel<<<1, 4>>>
#else
    missing_kernel<<<1, 4>>>
#endif
        (y + 12, y + 16);
}

// each kernel adds its number to x[i], by way of shared memory
#define SMEM __shared__
#define SHARED SMEM
#define ARRAY(T, name, size) __shared__ T name[size]
template <typename T> struct Held { T value; };
#if 0
this isn't C++: <<< __shared__ and "
#ifdef NOR_THIS
k<<<1>>>
#endif
k<<<1, 2>>>
#else
__global__ void aligned_kernel(const float* x, float* y) {
    __shared__ char first;
    alignas(16) __shared__ float before[4];
    __shared__ __align__(sizeof(float4)) float after[4];
    __shared__ float attribute[4] __attribute__((aligned(32)));
    [[maybe_unused]] __attribute__((aligned(8))) __shared__ float both[4];
    __shared__ alignas(alignof(double)) char words[sizeof(unsigned int) * 4];
    if (threadIdx.x == 0) first = (size_t)before % 16 + (size_t)after % 16 + (size_t)attribute % 32 + (size_t)both % 8 + (size_t)words % 8;
    before[threadIdx.x] = after[threadIdx.x] = attribute[threadIdx.x] = both[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = before[threadIdx.x] + 1 + first;
}
#endif
template <typename T> __global__ void __maxnreg__(64) dynamic_kernel(const T* x, T* y) {
    extern __shared__ __align__(sizeof(T)) unsigned char bytes[];
    T* numbers = reinterpret_cast<T*>(bytes);
    numbers[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = numbers[threadIdx.x] + 2;
}
template <typename T> __global__ void macros_kernel(const float* x, float* y) {
    SHARED float *shared_pointer, one[4], *pointers[4];
    ARRAY(float, two, (4 > 2 ? 2 : 1) + (1 << 1));
    if (threadIdx.x == 0) shared_pointer = one;
    pointers[threadIdx.x] = two;
    two[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    shared_pointer[threadIdx.x] = pointers[threadIdx.x][threadIdx.x];
    y[threadIdx.x] = one[threadIdx.x] + 3;
}
template <class T> int four() { return 4; }
struct Table { void (*kernel)(const float*, float*); };
struct Launcher {
    Table table[1];
    void launch(const float* x, float* y) {
        if (!x) return; else (*this).table[0].kernel<<<1, 4>>>(x, y), this->table[0].kernel<<<1, 4>>>(x + 4, y + 4);
    }
};
extern "C" void shared_variables(const float* x, float* y, int n, int m) {
    Launcher{{{aligned_kernel}}}.launch(x, y);
    void (*pointer)(const float*, float*) = dynamic_kernel<float>;
    if (n < 0) return; else (*pointer)<<<1, 4, 4 * sizeof(float)>>>(x + 8, y + 8);
    if (n < m || m < n || n < 99) macros_kernel<Held<Held<int>>><<<1, four<Held<Held<int>>>()>>>(x + 12, y + 12);
    if (n < 0) return; else ::macros_kernel<Held<Held<Held<int>>>><<<1, 4>>>(x + 16, y + 16);
}

// what comes before <<<: a pointer to a kernel, which is evaluated once
typedef void (*Kernel)(const float*, float*);
template <int number, bool> __global__ void numbered(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + number; }
template <int number> Kernel made() { return numbered<number, true>; }
struct Holder { Kernel get() { return numbered<3, true>; } };
extern "C" void expressions(const float* x, float* y, int, int) {
    Holder holder;
    Kernel table[] = {numbered<1, true>, numbered<9, true>};
    int next = 0;
    table[next++]<<<1, 4>>>(x, y);
    if (next != 1) return;
    std::get<0>(std::make_tuple(made<2>(), 0))<<<1, 4>>>(x + 4, y + 4);
    holder.get()<<<1, 4>>>(x + 8, y + 8);
    numbered<sizeof(float), 4 >= 3><<<8 >> 3, 4>>>(x + 12, y + 12);
    return static_cast<Kernel>(numbered<5, (2 > 1)>)<<<1, 4>>>(x + 16, y + 16);
}

// dynamic shared memory is taken before the variables that lie before it, some of which a function of its own declares
__device__ float* first_of_the_block() {
    __shared__ float first, unused[40];
    if (threadIdx.x == 0) first = unused[39] = 1;
    __syncthreads();
    return &first;
}
__global__ void turned(const float* x, float* y) {
    extern __shared__ float numbers[];
    __shared__ float doubled[32];
    x += 32 * blockIdx.x, y += 32 * blockIdx.x;
    numbers[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    doubled[threadIdx.x] = 2 * numbers[31 - threadIdx.x];
    y[threadIdx.x] = *first_of_the_block() + doubled[threadIdx.x];
}
extern "C" void dynamic_first(const float* x, float* y, int n, int) { turned<<<2, 32, 128>>>(x, y); }
"""


def fours(x: np.ndarray, *added: int) -> np.ndarray:
    """Four elements of x for each number, with the number added."""
    return x[: 4 * len(added)].reshape(-1, 4) + np.float32(added)[:, None]


def one_more(x: np.ndarray, *times: int) -> np.ndarray:
    """x with 1 added so many times, and then so many times again."""
    sums = []
    for many in times:
        for _ in range(many):
            x = x + np.float32(1)
        sums.append(x)
    return np.stack(sums)


# function: what it makes of x
OF_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "arguments": lambda x: np.concatenate([one_more(x[:4], 1, 1), x[None, :4] + 4]),
    "parts": lambda x: one_more(x[:4], 1, 1, 1, 2, 1),
    "shared_variables": lambda x: fours(x, 1, 1, 2, 3, 3),
    "expressions": lambda x: fours(x, 1, 2, 3, 4, 5),
    "dynamic_first": lambda x: 1 + 2 * x[:64].reshape(2, 32)[:, ::-1],
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("forms"), FORMS)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", OF_FORMS)
def test_launches_and_shared_variables_take_the_forms_that_nvcc_takes(
    forms: Library, x: np.ndarray, name: str, order: int
) -> None:
    expected = OF_FORMS[name](x)
    y = clean(forms, call(forms, name, x, expected.size, expected.size, order=order))
    assert np.array_equal(y.reshape(expected.shape), expected)


@pytest.mark.parametrize("source", [RIGHT, FORMS])
def test_every_line_stays_where_it_is(source: str) -> None:
    assert rewrite(source).count("\n") == source.count("\n")


@pytest.mark.parametrize(("head", "use"), [("G(a)", "G()"), ("G(a, b)", "G(1,)"), ("G(...)", "G()")])
def test_a_macros_argument_may_be_missing(head: str, use: str) -> None:
    body = "__VA_ARGS__" if "." in head else "a"
    assert "launch(" in rewrite(f"#define {head} <<<1, {body} + 1>>>\nvoid f() {{ k {use}(x); }}\n")


def test_comparisons_among_a_launchs_numbers_are_no_template() -> None:
    assert "1, c <= d, e > f)" in rewrite("void g() { k<<<a < 1, c <= d, e > f>>>(x); }")


def test_a_launch_has_no_value(tmp_path: Path) -> None:
    kernel = "__global__ void k() {}\n"
    with pytest.raises(BuildFailed, match=r"student\.cu:2:\d+: error: .*void"):
        build(tmp_path, kernel + 'extern "C" void f() { cudaError_t failed = k<<<1, 1>>>(); }\n')


def test_shared_memory_is_counted_with_that_of_the_launch(tmp_path: Path, x: np.ndarray) -> None:
    source = """
    __global__ void k(float* y) {
        extern __shared__ float dynamic[];
        __shared__ float fixed[10000];
        fixed[9999] = dynamic[0] = 3;
        *y = fixed[9999] + dynamic[0];
    }
    extern "C" void f(const float*, float* y, int dynamic_bytes, int asked) {
        if (asked) cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, asked);
        k<<<1, 1, dynamic_bytes>>>(y);
    }
    """
    library = build(tmp_path, source)
    for of_launch, asked, words in (
        (9160, 0, "49160 bytes, with 9160 of the launch; 49152 are allowed unless cudaFuncSetAttribute"),
        (192449, 192449, "232449 bytes, with 192449 of the launch; 232448 are allowed"),
    ):
        call(library, "f", x, 1, of_launch, asked)
        fault = fault_of(library)
        assert (fault.kind, f"brings the block's to {words}" in fault.text) == ("too_much_shared", True), fault.text
    assert clean(library, call(library, "f", x, 1, 192000, 192001)).tolist() == [6]


def test_a_byte_order_mark_is_no_error(tmp_path: Path, x: np.ndarray) -> None:
    (tmp_path / "own.cuh").write_text(
        "\ufeff#pragma once\n__global__ void k(float* y) { y[threadIdx.x] = 3; }\n", "utf-8"
    )
    source = '\ufeff#include "own.cuh"\nextern "C" void f(const float*, float* y, int n, int) { k<<<1, n>>>(y); }\n'
    library = build(tmp_path, source)
    assert clean(library, call(library, "f", x, 5, 5)).tolist() == [3] * 5


def test_the_compilers_messages_have_the_students_lines(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"student\.cu:3:\d+: error: .*undefined_thing"):
        build(tmp_path, "#include <cuda_runtime.h>\n__global__ void k(float* y) {\n  y[0] = undefined_thing;\n}\n")


@pytest.mark.parametrize("compiler", [None, "/bin/false"], ids=["no nvcc", "a broken nvcc"])
def test_without_nvcc_the_words_about_doubles_are_gccs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str | None
) -> None:
    if COMPILER is None or "g++" not in COMPILER:
        pytest.skip("needs g++")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    place_runtime(COMPILER, tmp_path)
    (tmp_path / "student.cu").write_text(
        '__global__ void k(float* y) {\n  y[0] = 0.1 * y[1];\n}\nextern "C" void f(cudaStream_t s) {}\n'
    )
    kernel = program.load(tmp_path / "student.cu", "f", Build(COMPILER, 120.0, compiler, "sm_90", ()))
    assert kernel.ptxas == "computed in double: student.cu:2: 0.1\n"


LANE = '("mov.u32 %0, %laneid;" : "=r"(lane))'
IN_KERNEL = f"__global__ void k(int* y) {{\n  int lane;\n  asm{LANE};\n  y[0] = lane;\n}}\n"


# The line of the file that is told; None: any; 0: the file is built.
PTX = {
    "in a kernel": (IN_KERNEL, 3),
    "volatile": (IN_KERNEL.replace("asm", "__asm__ volatile "), 3),
    "after if": (IN_KERNEL.replace("asm", "if (lane) asm"), 3),
    "of a shared address": (IN_KERNEL.replace("int lane;", "unsigned lane = __cvta_generic_to_shared(y);"), 3),
    "compiled": (f"#if __CUDA_ARCH__ >= 750\n{IN_KERNEL}#endif\n", 4),
    "in a macro": (f"#define LANE(lane) asm volatile{LANE}\n{IN_KERNEL.replace(f'asm{LANE}', 'LANE(lane)')}", None),
    "not compiled": (f"#ifdef FAST\n{IN_KERNEL}#endif\n", 0),
    "unused": (f"#if 0\n{IN_KERNEL}#endif\n#define LANE(lane) asm volatile{LANE}\n", 0),
}


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("name", PTX)
def test_ptx_needs_a_gpu_where_the_compiler_sees_it(tmp_path: Path, name: str, compiler: str) -> None:
    source, line = PTX[name]
    if line == 0:
        build(tmp_path, source, compiler)
        return
    where = r"\d+" if line is None else line
    with pytest.raises(Unsupported, match=rf"^line {where}: PTX in asm\(\) is not available on the CPU; only a GPU"):
        build(tmp_path, source, compiler)


def test_comments_are_blank_and_strings_are_left_alone() -> None:
    first, second = "// k<<<1, 2>>>(x); asm", "/* __shared__ float a; */"
    rest = ' const char* s = "a<<<b>>>(c) __shared__ // ";\nint z = 1 << 3 >> 1;\n'
    assert rewrite(f"{first}\n{second}{rest}") == f"{' ' * len(first)}\n{' ' * len(second)}{rest}"
    refuse_unsupported(f"{first}\n{second}{rest}")


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("void f() { k<<<1, 2>>>; }", 1, "arguments"),
        ("void f() {\n k<<<1>>>(x); }", 2, "takes 2 to 4 values"),
        ("void f() {\n\n k<<<1, 2(x); }", 3, "without its >>>"),
        ("void f() { <<<1, 2>>>(x); }", 1, "name of a kernel"),
        ("__global__ void k() {\n __shared__ float; }", 2, "__shared__"),
    ],
)
def test_a_launch_that_cannot_be_read_is_told_with_its_line(source: str, line: int, words: str) -> None:
    with pytest.raises(RewriteError, match=words) as caught:
        rewrite(source)
    assert caught.value.line == line


# Launches that are too large to be run whole ---------------------------------------------------------------------------------------

HUGE = """
#include <cstdint>
__global__ void plain_kernel(float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = i;
}
__global__ void int_kernel(float* y, int64_t n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 1;
}
__global__ void loop_kernel(float* y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)blockDim.x * gridDim.x) y[i] = 1;
}
__global__ void int_loop_kernel(float* y, int64_t n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = 1;
}
__global__ void cut_then_barrier_kernel(float* y, int64_t n) {
    __shared__ float s[256];
    for (int64_t i = threadIdx.x; i < n; i += 256) y[i] = 1;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x];
}
extern "C" void plain(float* y, int64_t n) { plain_kernel<<<(n + 255) / 256, 256>>>(y, n); }
extern "C" void in_an_int(float* y, int64_t n) { int_kernel<<<(n + 255) / 256, 256>>>(y, n); }
extern "C" void looped(float* y, int64_t n) { loop_kernel<<<1024, 256>>>(y, n); }
extern "C" void looped_in_an_int(float* y, int64_t n) { int_loop_kernel<<<1024, 256>>>(y, n); }
extern "C" void one_block(float* y, int64_t n) { cut_then_barrier_kernel<<<1, 256>>>(y, n); }
extern "C" void one_block_less(float* y, int64_t n) { plain_kernel<<<n / 256, 256>>>(y, n); }
__global__ void backwards_kernel(float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[n - 1 - i] = i;
}
extern "C" void backwards(float* y, int64_t n) { backwards_kernel<<<(n + 255) / 256, 256>>>(y, n); }
extern "C" void some_in_vain(float* y, int64_t n) { plain_kernel<<<(n + 255) / 256 + 9, 256>>>(y, n); }
extern "C" void in_two_launches(float* y, int64_t n) {
    plain_kernel<<<n / 256, 256>>>(y, n);
    plain_kernel<<<1, 256>>>(y + n / 256 * 256, n % 256);
}
extern "C" void with_scratch(float* y, int64_t n) {
    float* scratch;
    cudaMalloc(&scratch, n * 4);
    loop_kernel<<<1024, 256>>>(scratch, n);
    cudaMemcpy(y, scratch, n * 4, cudaMemcpyDeviceToDevice);
    cudaFree(scratch);
}
"""
HUGE_LENGTH = 2**31 + 2**24


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("huge"), HUGE)


def call_huge(library: Library, name: str) -> None:
    """Call a function of HUGE on more elements than an int can count, which share 16 MiB."""
    file = os.memfd_create("test")
    try:
        os.truncate(file, 2**24)
        window = Ref("float32", 0, (2**22,), (1,))
        with repeated(file, [window], HUGE_LENGTH // 2**22, 221) as (y,):
            library.begin(0, sample=True)
            library.array(y.address, y.size_bytes, "y", 4, output=True)
            getattr(library.functions, name)(ctypes.c_void_p(y.address), ctypes.c_int64(y.elements))
    finally:
        os.close(file)


RIGHT_HUGE = ["plain", "looped", "one_block", "with_scratch", "backwards", "some_in_vain", "in_two_launches"]


@pytest.mark.parametrize(
    ("name", "unwritten"), [*((name, 0) for name in RIGHT_HUGE), ("one_block_less", (HUGE_LENGTH - 221) % 256)]
)
def test_a_kernel_is_run_in_part_on_2_to_the_31_elements(huge: Library, name: str, unwritten: int) -> None:
    """Blocks that end too early are seen though few of them are run."""
    call_huge(huge, name)
    assert (huge.fault(), huge.launch_error()) == (None, None)
    assert huge.unwritten_end_bytes() == 4 * unwritten


@pytest.mark.parametrize("name", ["in_an_int", "looped_in_an_int"])
def test_an_index_that_overflows_is_found_where_it_goes(huge: Library, name: str) -> None:
    call_huge(huge, name)
    fault = fault_of(huge)
    assert fault.kind == "out_of_bounds"
    assert re.search(r"writes y\[-\d+\], before its start \(line \d+\)", fault.text), fault.text


def test_after_a_launch_in_part_the_next_one_is_whole(huge: Library) -> None:
    """Threads that were cut short left their stacks in the middle of a kernel."""
    call_huge(huge, "one_block")
    y = np.zeros(70_000, dtype=np.float32)
    huge.begin(0)
    huge.array(y.ctypes.data, y.nbytes, "y", 4)
    huge.functions.plain(ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(y.size))
    assert huge.fault() is None
    assert np.array_equal(y, np.arange(y.size))


# What CUDA knows beyond a kernel and its launch -----------------------------------------------------------------------------------

FEATURES = r"""
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>
#include <type_traits>
#if !defined(__DRIVER_TYPES_H__) || !defined(__CUDA_RUNTIME_H__)
#error "helper_cuda.h of the CUDA samples asks for them"
#endif

// y[i] for each question of a kernel's; the test knows the answers
__global__ void arithmetic_kernel(const float* x, float* y, int n) {
    volatile float one = 1, half_ = 0.5f;
    int i = 0;
    static_assert(sizeof(abs(one)) == 4 && sizeof(exp(one)) == 4 && sizeof(pow(one, 3.0f)) == 4 && sizeof(sqrt(one)) == 4, "of a float, a float");
    static_assert(std::remove_const_t<decltype(threadIdx.x)>(-1) > 0, "unsigned");
    y[i++] = abs(-one) + fabs(-one) + max(one, 2.0f) + fmod(5.0f * one, 3.0f) + floor(half_) + ceil(half_);  // 7
    y[i++] = signbit(-one) + isnan(one);                                   // 1
    y[i++] = sinpif(half_) + cospif(one);                                  // 0
    y[i++] = rcbrtf(8 * one);                                              // 0.5
    y[i++] = fdividef(one, 4.0f) + __fdividef(one, 4.0f);                  // 0.5
    y[i++] = __powf(2 * one, 3.0f) + isnan(__powf(-2 * one, 3.0f));        // 9
    y[i++] = __fdividef(1e38f * one, 1e38f) + __fdividef(1e37f * one, 1e37f) + 2 * isnan(__fdividef(CUDART_INF_F, 1e38f * one));  // 3
    y[i++] = erfcxf(30 * one) * 1000;                                      // 18.795888
    y[i++] = __double2float_rn(0.1) == 0.1f && __ll2float_rn(1ll << 40) == 1099511627776.0f;  // 1
    y[i++] = __float2uint_rn(2.5f * one) + __float2int_ru(one / 4) + __float2uint_rz(-one);  // 3
    y[i++] = __umulhi(0xffffffffu, 0xffffffffu) == 0xfffffffeu && __umul64hi(~0ull, ~0ull) == ~1ull && __mulhi(-1, 2) == -1;  // 1
    y[i++] = __byte_perm(0x33221100u, 0x77665544u, 0x7531) == 0x77553311u; // 1
    y[i++] = __funnelshift_l(0x80000000u, 1u, 1) == 3 && __funnelshift_r(0, 1u, 1) == 0x80000000u;  // 1
    y[i++] = __sad(-2, 3, 10u);                                            // 15
    y[i++] = CUDART_SQRT_2_OVER_PI_F == 0.797884561F && CUDART_PI == 3.1415926535897931 && CUDART_INF_F > 1e38f && isnan(CUDART_NAN_F);  // 1
    __stwt(y + i++, __ldca(x) + __ldlu(x) - __ldcv(x) - __ldg(x) + 4);     // 4
    __stwb(y + i++, __half2float(htanh(__float2half(0.0f))) + 5);          // 5
    half2 pair = __float2half2_rn(2.0f * one), other(1.0f, 3.0f);
    pair = pair * other + h2exp(__half2half2(0.0f)) - -other / other;     // (4, 8)
    pair += __hmax2(pair, other), pair = __hsub2(pair, __habs2(__hneg2(other)));
    y[i++] = __low2float(pair) * 100 + float(__high2half(pair)) + 1000 * (pair > other);  // 1713
    nv_bfloat162 brains = __halves2bfloat162(nv_bfloat16(one), 2.0f);
    brains = __hfma2(brains, brains, __float22bfloat162_rn({1, 2})) * brains;
    y[i++] = __low2float(brains) * 100 + float(__high2bfloat16(brains));   // 212
    y[i++] = max(CUDART_NAN_F * one, -one) + min(one, CUDART_NAN_F) + (max(-1, 2u) == 0xffffffffu) + min(2.0, one);  // 2
    __builtin_assume(n > 0);
    __nanosleep(10);
    long long start = clock64();
    while (clock64() == start) {}
    y[i++] = clock() != 0;                                                 // 1
    uint3 copy = blockDim;
    dim3 wide = gridDim;
    y[i++] = copy.x * 10 + wide.x;                                         // 11
}
extern "C" void arithmetic(const float* x, float* y, int n, int) { arithmetic_kernel<<<1, 1>>>(x, y, n); }

__global__ void warps_kernel(const float* x, float* y, int n) {
    int lane = threadIdx.x;
    unsigned any = __match_any_sync(0xffffffffu, lane % 4), bits = __reduce_or_sync(0xffffffffu, 1u << lane);
    unsigned odd = __reduce_xor_sync(0xffffffffu, (unsigned)lane), both = __reduce_and_sync(0xffffffffu, (unsigned)lane | 16u);
    unsigned active = 0;
    if (lane < 5) active = __activemask();
    y[lane] = (any == 0x11111111u << lane % 4) + 2 * (bits == 0xffffffffu) + 4 * (odd == 0) + 8 * (both == 16) + 16 * (active == (lane < 5 ? 31u : 0u));
}
extern "C" void warps(const float* x, float* y, int n, int) { warps_kernel<<<1, 32>>>(x, y, n); }

__global__ void shared_forms_kernel(const float* x, float* y, int n) {
    __shared__ struct { float first, second[2]; } pair;
    volatile __shared__ float before[32];
    float __shared__ between[32], more;
    static __shared__ unsigned int plain[4];
    before[threadIdx.x] = x[threadIdx.x];
    between[threadIdx.x] = before[threadIdx.x];
    if (threadIdx.x == 0) pair.first = 1, pair.second[1] = 2, more = 3, plain[3] = 4u;
    __syncthreads();
    y[threadIdx.x] = between[threadIdx.x] + pair.first + pair.second[1] + more + plain[3];
}
extern "C" void shared_forms(const float* x, float* y, int n, int) { shared_forms_kernel<<<1, 32>>>(x, y, n); }

struct Shape {
    dim3 gridDim, blockDim;
};
__global__ void add_kernel(const float* x, float* y, int n, float add) {
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + add;
}
#define LAUNCH(kernel, grid, block, ...) \
    do {                                 \
        kernel<<<grid,                   \
                 block>>>(__VA_ARGS__);  \
    } while (0)
extern "C" void launches(const float* x, float* y, int n, int) {
    dim3 blockDim(8), gridDim(1);
    Shape shape = {gridDim, blockDim};
    float one = 1, two = 2, three = 3;
    int eight = 8;
    const float* from = x;
    float* to = y;
    void* arguments[] = {&from, &to, &eight, &one};
    LAUNCH(add_kernel, shape.gridDim, shape.blockDim, x, y, 8, 0.0f);
    from = x + 8, to = y + 8;
    cudaLaunchKernel((const void*)add_kernel, gridDim, blockDim, arguments, 0, 0);
    from = x + 16, to = y + 16, arguments[3] = &two;
    cudaLaunchKernel(add_kernel, gridDim, blockDim, arguments);
    cudaLaunchConfig_t config = {};
    config.gridDim = gridDim, config.blockDim = blockDim;
    cudaLaunchAttribute early[1];
    early[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = early, config.numAttrs = 1;
    cudaLaunchKernelEx(&config, add_kernel, x + 24, y + 24, 8, three);
    from = x + 32, to = y + 32;
    cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&add_kernel), arguments);
    void (*pointer)(const float*, float*, int, float) = add_kernel, (*table[1])(const float*, float*, int, float) = {add_kernel};
    (*pointer)<<<1, 8>>>(x + 40, y + 40, 8, 4.0f);
    table[0]<<<1, 8>>>(x + 48, y + 48, 8, 5.0f);
}

__device__ float on_device[8];
__constant__ float table[2];
__global__ void symbols_kernel(float* p) { p[threadIdx.x] = threadIdx.x + table[1]; }
static void doubled(void* p) { *(float*)p *= 2; }
// every call that succeeds adds a power of two to y[0], on the host's side
extern "C" void host_api(const float* x, float* y, int n, int) {
    float host[64] = {}, pair[2] = {1, 2}, *p, *managed, *pinned, sum = 0, ms = -1;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cudaMemcpyToSymbolAsync(table, pair, 8, 0, cudaMemcpyHostToDevice, 0);
    cudaGetSymbolAddress((void**)&p, on_device);
    symbols_kernel<<<1, 8>>>(p);
    cudaMemcpyFromSymbol(host, on_device, 32);
    if (host[7] == 9) sum += 1;
    cudaMemset(p, 0, 32);
    cudaMemcpyFromSymbol(host, on_device, 4, 28);
    if (host[0] == 0) sum += 2;
    if (cudaMallocManaged(&managed, 32) == cudaSuccess && cudaMallocHost((void**)&pinned, 32) == cudaSuccess) sum += 4;
    symbols_kernel<<<1, 8>>>(managed);
    cudaDeviceSynchronize();
    if (managed[3] == 5) sum += 8;
    symbols_kernel<<<1, 8>>>(pinned);
    cudaPointerAttributes attributes;
    cudaPointerGetAttributes(&attributes, managed);
    if (attributes.type == cudaMemoryTypeManaged) sum += 16;
    cudaPointerGetAttributes(&attributes, y);
    if (attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == y) sum += 32;
    if (cudaFree(managed) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess) sum += 64;
    size_t unused, total;
    if (cudaMemGetInfo(&unused, &total) == cudaSuccess && unused < total) sum += 128;
    cudaMemset2DAsync(y + 8, 16, 0, 8, 2, 0);
    cudaMemcpy2DAsync(y + 8, 16, x, 8, 4, 2, cudaMemcpyDeviceToDevice, 0);
    cudaMemcpy2D(host, 4, y + 8, 8, 4, 3, cudaMemcpyDeviceToHost);
    if (host[2] == 2) sum += 256;
    int least, greatest, blocks, grid, block, value;
    cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    cudaEventCreate(&begin), cudaEventCreateWithFlags(&end, cudaEventDefault);
    cudaEventRecord(begin, stream), cudaEventRecord(end, stream), cudaStreamWaitEvent(stream, end);
    if (stream && cudaStreamQuery(stream) == cudaSuccess && cudaEventQuery(end) == cudaSuccess) sum += 512;
    cudaEventElapsedTime(&ms, begin, end);
    if (ms >= 0) sum += 1024;
    cudaStreamDestroy(stream), cudaEventDestroy(begin), cudaEventDestroy(end);
    cudaLaunchHostFunc(0, doubled, &pair);
    if (pair[0] == 2) sum += 2048;
    cudaFuncAttributes function;
    if (cudaFuncGetAttributes(&function, add_kernel) == cudaSuccess && function.maxThreadsPerBlock >= 32) sum += 4096;
    cudaFuncSetCacheConfig(add_kernel, cudaFuncCachePreferL1), cudaDeviceSetLimit(cudaLimitStackSize, 2048);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add_kernel, 256, 0);
    if (blocks == 8) sum += 8192;
    cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, add_kernel, [](int threads) { return size_t(threads) * 4; });
    if (grid > 0 && block % 32 == 0) sum += 16384;
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 0);
    if (properties.l2CacheSize == value && properties.totalConstMem == 65536) sum += 32768;
    cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 0);
    if (value == cudaComputeModeDefault && value != cudaComputeModeProhibited) sum += 65536;
    cudaMemcpy(y, &sum, 4, cudaMemcpyDefault);
}
"""
ANSWERS = {
    "arithmetic": [7, 1, 0, 0.5, 0.5, 9, 3, 18.795888, 1, 3, 1, 1, 1, 15, 1, 4, 5, 1713, 212, 2, 1, 11],
    "warps": [31] * 32,
    "shared_forms": list(range(10, 42)),
    "launches": [i + (0, 1, 2, 3, 2, 4, 5)[i // 8] for i in range(56)],
    "host_api": [131071],
}


@pytest.fixture(scope="module", params=["g++", "clang++"])
def features(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("features"), FEATURES, request.param)


@pytest.mark.parametrize("name", ANSWERS)
def test_what_cuda_knows_gives_a_devices_answers(features: Library, name: str) -> None:
    y = clean(features, call(features, name, np.arange(64, dtype=np.float32), 64, 64))
    assert y[: len(ANSWERS[name])].tolist() == pytest.approx(ANSWERS[name], abs=1e-6)


def test_own_headers_are_rewritten_and_named_in_messages(tmp_path: Path, x: np.ndarray) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "inner.cuh").write_text(
        "#pragma once\n__global__ void k(float* y, int n) {\n  __shared__ float t[32];\n  t[threadIdx.x] = 1;\n"
        "  y[n + threadIdx.x] = t[threadIdx.x];\n}\n"
    )
    (tmp_path / "parts" / "outer.cuh").write_text(
        '#include "inner.cuh"\ninline void go(float* y, int n) {\n  k<<<1, 32>>>(y, n);\n}\n'
        "inline void none(float* y, int n) {\n  k<<<0, 32>>>(y, n);\n}\n"
    )
    source = '#include "parts/outer.cuh"\nextern "C" void f(const float* x, float* y, int n, int m) {\n  m ? go(y, n) : none(y, n);\n}\n'
    library = build(tmp_path, source)
    call(library, "f", x, 100, 100, 1)
    assert "writes y[100], 1 past the last of its 100 elements (line 5 of inner.cuh)" in fault_of(library).text
    call(library, "f", x, 100, 100)
    assert "line 6 of outer.cuh launches k with 0 blocks of 32 threads" in str(library.launch_fault())
    (tmp_path / "parts" / "inner.cuh").write_text("#pragma once\n\n#include <cutlass/cutlass.h>\n")
    with pytest.raises(
        Unsupported, match=r"line 3 of parts/inner\.cuh: the header cutlass/cutlass\.h is not available"
    ):
        build(tmp_path, source)


@pytest.mark.parametrize(
    ("header", "use", "told"),
    [
        ("cuda_fp8.h", "__nv_fp8_e4m3 a(y[0]);", "line 5: __nv_fp8_e4m3 is not known to the CPU's CUDA"),
        ("cub/cub.cuh", "cub::ShuffleIndex<32, float>(y[0], 0, 31, 1);", "line 5: cub is not known"),
        ("mma.h", "using namespace nvcuda;", "line 5: nvcuda is not known"),
        ("cooperative_groups/scan.h", "namespace cg = cooperative_groups;", "line 5: cooperative_groups is not known"),
        ("thrust/pair.h", "using thrust::pair;", "line 5: thrust is not known"),
        ("cuda/cmath", "y[0] = cuda::ilog2(n);", "line 5: ilog2 is not known"),
        (
            "vector_functions.h",
            "y[0] = lenght(y[0]);",
            "line 5: lenght, which vector_functions.h may declare, is not known",
        ),
    ],
)
def test_a_header_of_the_toolkit_asks_for_a_gpu_only_where_it_is_used(
    tmp_path: Path, x: np.ndarray, header: str, use: str, told: str
) -> None:
    source = f'#include "own.cuh"\n\nextern "C" void f(const float* x, float* y, int n, int m) {{\n\n  // {use}\n}}\n'
    (tmp_path / "own.cuh").write_text(f"#pragma once\n#include <{header}>  // of a template\n")
    library = build(tmp_path, source)
    call(library, "f", x, 1, 1)
    assert library.fault() is None
    with pytest.raises(Unsupported, match=re.escape(told)):
        build(tmp_path, source.replace("// ", ""))


OF_CUDA_STD = """
#include <cuda/cmath>
#include <cuda/std/cmath>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
__global__ void k(const float* x, float* y, cuda::std::int64_t n) {
    for (cuda::std::int64_t i = threadIdx.x; i < n; i += 2)
        y[i] = cuda::std::max(cuda::std::sqrt(x[i]), cuda::std::numeric_limits<float>::lowest());
}
extern "C" void f(const float* x, float* y, int n, int) { k<<<cuda::ceil_div(2 * n - 1, 2u * n), 2>>>(x, y, n); }
"""


def test_cuda_std_is_the_standard_library(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, OF_CUDA_STD)
    assert np.array_equal(clean(library, call(library, "f", x, 8, 8)), np.sqrt(x[:8]))
    assert library.launches() == 1


GROUPS = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__device__ float last_of(const cg::thread_block_tile<8>& tile, float value) { return tile.shfl(value, tile.size() - 1); }
__global__ void k(const float* x, float* y, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::grid_group grid = cg::this_grid();
    auto warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> eight = cg::tiled_partition<8>(warp);
    __shared__ float slots[64];
    int rank = block.thread_rank(), at = grid.thread_rank();
    slots[block.num_threads() - 1 - rank] = x[at];
    block.sync();
    float sum = cg::reduce(eight, x[at], cg::plus<float>()), most = cg::reduce(warp, x[at], cg::greater<float>());
    unsigned odd = eight.ballot(rank % 2);
    float down = eight.shfl_down(x[at], 1), crossed = warp.shfl_xor(x[at], 16), up = eight.shfl_up(x[at], 1);
    float all[] = {slots[rank], sum, most, last_of(eight, x[at]), down, crossed, up, float(odd), float(eight.any(rank == 9)),
                   float(eight.all(eight.thread_rank() < 8)), float(eight.meta_group_rank()), float(warp.meta_group_rank()),
                   float(eight.meta_group_size()), float(warp.meta_group_size()), float(grid.size()), float(block.group_index().x)};
    for (int i = 0; i < 16; i++) y[16 * at + i] = all[i];
    cg::sync(warp);
}
extern "C" void f(const float* x, float* y, int n, int m) { k<<<2, dim3(16, 4)>>>(x, y, n); }
"""


def test_groups_of_threads_compute_as_on_a_device(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, GROUPS)
    x = x[:128].copy()
    y = clean(library, call(library, "f", x, 128 * 16, 128, output=True)).reshape(128, 16)
    eights, warps, at = x.reshape(-1, 8), x.reshape(-1, 32), np.arange(128)
    expected = [
        x.reshape(2, 64)[:, ::-1].ravel(),
        np.repeat(eights.sum(axis=1), 8),
        np.repeat(warps.max(axis=1), 32),
        np.repeat(eights[:, 7], 8),
        eights[:, [1, 2, 3, 4, 5, 6, 7, 7]].ravel(),
        np.roll(warps, 16, axis=1).ravel(),
        eights[:, [0, 0, 1, 2, 3, 4, 5, 6]].ravel(),
        np.full(128, 0b10101010),
        at % 64 // 8 == 1,
        at >= 0,
        at % 32 // 8,
        at % 64 // 32,
        np.full(128, 4),
        np.full(128, 2),
        np.full(128, 128),
        at // 64,
    ]
    np.testing.assert_allclose(y, np.stack(expected, axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("barrier", "told"),
    [
        ("", "reads the shared variable slots in line 17, .* writes it in line 12"),
        ("if (rank < 40) block.sync();", "in line 13"),
    ],
)
def test_what_a_group_does_wrong_is_told_with_the_students_line(
    tmp_path: Path, x: np.ndarray, barrier: str, told: str
) -> None:
    library = build(tmp_path, GROUPS.replace("block.sync();", barrier))
    call(library, "f", x, 1, 1)
    assert re.search(told, fault_of(library).text)


# Lines of a file after `extern "C" void f(float* y) {`, or before it if they begin with #, and what is said of them.
UNKNOWN = {
    "cudaGraphLaunch(y, 0);": "line 3: cudaGraphLaunch is not known to the CPU's CUDA: misspelt, or something that only a GPU can run",
    "cudaGraph_t g;": "line 3: cudaGraph_t is not known",
    "auto b = cooperative_groups::this_thread_block();": "line 3: cooperative_groups is not known",
    "cudaLaunchAttribute a; a.val.clusterDim.x = 2;": "line 3: clusterDim is not known",
    "cudaLaunchAttribute a; a.id = cudaLaunchAttributeCooperative;": "line 3: cudaLaunchAttributeCooperative is not known",
    "cudaDeviceProp p; p.surfaceAlignmentOfMoon = 1;": "line 3: surfaceAlignmentOfMoon is not known",
    "y[0] = __vadd4(1, 2);": "line 3: __vadd4 is not known",
    "y[0] = norm3df(1, 2, 2);": "line 3: norm3df is not known",
}  # fmt: skip
GROUP = "namespace cg = cooperative_groups; auto b = cg::this_thread_block(); auto w = cg::tiled_partition<32>(b);"
ONLY_A_GPU = UNKNOWN | {
    "[](auto t) { cudaUnheardOf(); }(y);": "line 3: cudaUnheardOf is not known",
    "void *k, *a; cudaLaunchKernel(k, 1, 1, &a);": "line 3: cudaLaunchKernel with a kernel that is not named in the call is not available",
    f"{GROUP} cg::this_grid().sync();": "line 3: the barrier of a whole grid is not available on the CPU; only a GPU can grade it",
    f"{GROUP} cg::sync(cg::this_grid());": "line 3: the barrier of a whole grid is not available",
    f"{GROUP} cg::tiled_partition<64>(b).sync();": "line 3: a tile of more than a warp is not available",
    f"{GROUP} cg::memcpy_async(b, y, y, 4);": "line 3: memcpy_async() of cooperative groups is not available",
    f"{GROUP} y[0] = w.match_all(1, 2);": "line 3: match_all is not known",
    "#include <cuda_runtme.h>": "line 1: cuda_runtme.h is not known",
    "#include <cute/tensor.hpp>": "line 1: the header cute/tensor.hpp is not available",
    "#define CLUSTER\n__global__ void __cluster_dims__(2, 1, 1) k(float* y) {}": "line 2: a cluster of blocks is not available",
}  # fmt: skip


@pytest.mark.parametrize(
    ("compiler", "code"), [*((COMPILER, code) for code in ONLY_A_GPU), *(("clang++", code) for code in UNKNOWN)]
)
def test_what_only_a_gpu_has_is_named_with_its_line(tmp_path: Path, compiler: str, code: str) -> None:
    before, within = (
        (code, "") if code.startswith("#") else ("#include <cooperative_groups.h>" * ("cg::" in code), code)
    )
    with pytest.raises(Unsupported, match=f"^{re.escape(ONLY_A_GPU[code])}"):
        build(tmp_path, f'{before}\nextern "C" void f(float* y) {{\n{within}\n}}\n', compiler)


def test_a_header_of_nobodys_is_no_header_of_the_toolkit(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"helpers\.cuh"):
        build(tmp_path, '#include <helpers.cuh>\nextern "C" void f(float* y) {}\n')


def test_a_file_may_include_what_it_likes_of_c_plus_plus(tmp_path: Path, x: np.ndarray) -> None:
    headers = "algorithm array atomic cassert complex functional iostream map memory mutex numeric optional random regex set sstream"
    headers += " string thread tuple unordered_map variant vector"
    source = "".join(f"#include <{one}>\n" for one in headers.split())
    source += "__noinline__ __device__ float of(float x) { return x; }\n"
    call(build(tmp_path, source + 'extern "C" void f(const float* x, float* y, int n, int m) {}\n'), "f", x, 1, 1)


def test_a_file_may_ask_whether_nvcc_builds_it(tmp_path: Path, x: np.ndarray) -> None:
    asked = "!defined(__NVCC__) || __CUDACC_VER_MAJOR__ < 11 || CUDA_VERSION < 11000 || CUDART_VERSION / 1000 != __CUDACC_VER_MAJOR__"
    library = build(
        tmp_path,
        f'#if {asked}\n#error "not nvcc"\n#endif\nextern "C" void f(const float* x, float* y, int n, int m) {{}}\n',
    )
    call(library, "f", x, 1, 1)


HELPERS_OF_HOSTS = """
template <class T> void check(T error) { if (error) cudaDeviceReset(), exit(1); }
const char* hint(cudaError_t error) { return error == cudaErrorNoDevice ? "no GPU" : cudaGetErrorName(error); }
void CUDART_CB add(cudaStream_t, cudaError_t error, void* sum) { if (!error) *(int*)sum += 1; }
extern "C" void f(const float*, float* y, int n, int reset) {
    int sum = 0, can = 1;
    size_t stack, pitch;
    float* rows;
    check(cudaSetDeviceFlags(cudaDeviceScheduleAuto)), check(cudaProfilerStart()), check(cudaProfilerStop());
    check(cudaStreamAddCallback(0, add, &sum, 0));
    if (cudaDeviceGetLimit(&stack, cudaLimitStackSize) == cudaSuccess && stack >= 1024) sum += 2;
    if (cudaMallocPitch(&rows, &pitch, 100, 3) == cudaSuccess && pitch == 512 && cudaMemset2D(rows, pitch, 0, 512, 3) == cudaSuccess) sum += 4;
    if (cudaDeviceCanAccessPeer(&can, 0, 1) == cudaErrorInvalidDevice && !can) sum += 8;
    float result = sum;
    cudaMemcpy(y, &result, 4, cudaMemcpyHostToDevice);
    if (reset) cudaDeviceReset();
}
"""


def test_what_helpers_of_launchers_call_is_there(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, HELPERS_OF_HOSTS)
    assert clean(library, call(library, "f", x, 1, 1)).tolist() == [15]
    call(library, "f", x, 1, 1, 1)
    assert library.launch_error() == "cudaErrorContextIsDestroyed"  # as on a GPU, where the tensors are lost too


BOUNDS = """
#define AT_MOST(threads) __launch_bounds__(threads)
#define KERNEL __global__ void __launch_bounds__(96)
#define MADE(name) __global__ void __launch_bounds__(32) name(float* y) { y[threadIdx.x] = 1; }
#ifdef __CUDACC__
#define EITHER __launch_bounds__(1024)
#else
#define EITHER __launch_bounds__(1)
#endif
__global__ void AT_MOST(64) by_macro(float* y) { y[threadIdx.x] = 1; }
KERNEL by_word(float* y) { y[threadIdx.x] = 1; }
MADE(by_maker)
__global__ void EITHER by_branch(float* y) { if (threadIdx.x < 16) y[threadIdx.x] = 1; }
extern "C" void exceeds_by_macro(const float*, float* y, int n, int) { by_macro<<<1, 65>>>(y); }
extern "C" void exceeds_by_word(const float*, float* y, int n, int) { by_word<<<1, 97>>>(y); }
extern "C" void exceeds_by_maker(const float*, float* y, int n, int) { by_maker<<<1, 33>>>(y); }
extern "C" void fits_a_branch(const float*, float* y, int n, int) { by_branch<<<1, 32>>>(y); }
template <int MOST> __global__ void __launch_bounds__(MOST, 2) bounded(float* y, int n);
template <int MOST> __global__ void __launch_bounds__(MOST, 2) bounded(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }
__launch_bounds__(4 * 32)
__global__ void other(float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 1; }
extern "C" void fits(const float*, float* y, int n, int) { bounded<256><<<1, 256>>>(y, n), other<<<1, 128>>>(y, n); }
extern "C" void exceeds(const float*, float* y, int n, int) {
    bounded<64><<<1, 65>>>(y, n);
}
extern "C" void exceeds_other(const float*, float* y, int n, int) { other<<<2, 129>>>(y, n); }
extern "C" void as_told(const float*, float* y, int n, int) {
    int grid, block;
    cudaOccupancyMaxPotentialBlockSize(&grid, &block, other);
    other<<<1, block>>>(y, n);
}
"""


def test_a_block_that_is_larger_than_the_launch_bounds_is_refused(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, BOUNDS)
    assert clean(library, call(library, "fits", x, 16, 16)).tolist() == [1.0] * 16
    for name, words in {
        "exceeds": "line 24 launches bounded<64> with 65 threads in a block; its __launch_bounds__ allow 64",
        "exceeds_other": "line 26 launches other with 129 threads in a block; its __launch_bounds__ allow 128",
        "exceeds_by_macro": "line 14 launches by_macro with 65 threads in a block; its __launch_bounds__ allow 64",
        "exceeds_by_word": "line 15 launches by_word with 97 threads in a block; its __launch_bounds__ allow 96",
        "exceeds_by_maker": "line 16 launches by_maker with 33 threads in a block; its __launch_bounds__ allow 32",
    }.items():
        y = call(library, name, x, 16, 16)
        assert (library.fault(), library.launches(), y.tolist()) == (None, 0, [7.0] * 16)
        assert library.launch_fault() == f"cudaErrorInvalidValue: {words}"
    clean(library, call(library, "fits", x, 16, 16))
    clean(library, call(library, "fits_a_branch", x, 16, 16))
    clean(library, call(library, "as_told", x, 16, 16))  # bounds are not counted in what the host is told


ADDRESSES = """
__managed__ float managed[2] = {1, 2};
__device__ __managed__ int more = 3;
__constant__ float constant[2] = {1, 2};
__device__ float device[2] = {1, 2};
static float global[2] = {1, 2};
__global__ void k(const float* c, float* y) {
    y[threadIdx.x] = c[0] + constant[1] + device[1] + more;
}
extern "C" void f(const float* x, float* y, int which, int) {
    float local[2] = {1, 2};
    void* asked = nullptr;
    if (which == 4) cudaGetSymbolAddress(&asked, constant);
    if (which == 5) cudaGetSymbolAddress(&asked, device);
    const float* addresses[] = {local, global, constant, device, (float*)asked, (float*)asked, managed};
    k<<<1, 4>>>(addresses[which], y);
}
"""


def test_the_hosts_address_of_a_variable_is_nothing_to_a_kernel(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, ADDRESSES)
    for which in range(4):
        call(library, "f", x, 4, which)
        fault = fault_of(library)
        words = "reads what argument 1 of its launch points to (line 8): the host's address of a variable, which no"
        assert (fault.kind, words in fault.text) == ("host_memory", True), (which, fault.text)
    for which in range(4, 7):
        assert clean(library, call(library, "f", x, 4, which)).tolist() == [8] * 4


# Words ---------------------------------------------------------------------------------------------------------------------------

# name: (body of a function on the host, x and y having n = 100 elements, on line 3; kind of fault, words)
HOSTS: dict[str, tuple[str, str, str]] = {
    "copies_past_y": ("cudaMemcpyAsync(y + 36, x, 400, cudaMemcpyDeviceToDevice);", "out_of_bounds", "cudaMemcpyAsync in line 3 writes 400 bytes to y, which has 256 left"),
    "reads_past_x": ("cudaMemcpy(y, x + 99, 8, cudaMemcpyDefault);", "out_of_bounds", "cudaMemcpy in line 3 reads 8 bytes from x, which has 4 left"),
    "fills_past_y": ("cudaMemset(y, 0, 404);", "out_of_bounds", "cudaMemset in line 3 writes 404 bytes to y, which has 400 left"),
    "rows_past_y": ("cudaMemset2D(y, 40, 0, 20, 11);", "out_of_bounds", "cudaMemset2D in line 3 writes 220 bytes to y, which has 400 left"),
    "null": ("cudaMemcpy(y, nullptr, 4, cudaMemcpyDeviceToDevice);", "out_of_bounds", "reads 4 bytes from a null pointer"),
    "hosts": ("float h[4]; cudaMemcpy(h, x, 16, cudaMemcpyDeviceToDevice);", "out_of_bounds", "writes 16 bytes to memory that is not the device's: the direction does not match the pointers"),
    "symbol": ("static float h[4]; cudaMemcpy(h, x, 16, cudaMemcpyDeviceToDevice);", "out_of_bounds", "not match the pointers; or a __device__ or __constant__ variable is meant, which takes cudaMemcpyToSymbol"),
    "long_symbol": ("cudaMemcpyToSymbol(\"h\", x, 16, 1);", "out_of_bounds", "cudaMemcpyToSymbol in line 3 writes 16 bytes to a variable of 2 bytes, from its byte 1 on"),
    "direction": ("cudaMemcpy(y, x, 16, cudaMemcpyHostToDevice);", "out_of_bounds", "from x, which is the device's: the direction does not match the pointers"),
    "nowhere": ("cudaMemcpy(y, (void*)4096, 16, cudaMemcpyHostToDevice);", "out_of_bounds", "reads 16 bytes from host memory that is not there"),
}  # fmt: skip
REFUSED = {
    "0, 256": "cudaErrorInvalidConfiguration: line 7 launches k with 0 blocks of 256 threads; a grid needs at least 1 block",
    "5, 0": "cudaErrorInvalidConfiguration: line 7 launches k with 5 blocks of 0 threads; a block needs at least 1 thread",
    "1, 2048": "cudaErrorInvalidConfiguration: line 7 launches k with 2048 threads in a block; 1024 are allowed",
    "1, dim3(1, 1, 65)": "cudaErrorInvalidConfiguration: line 7 launches k with 1 block of (1, 1, 65) threads; a block may have (1024, 1024, 64)",
    "dim3(1, 65536), 1": "cudaErrorInvalidConfiguration: line 7 launches k with (1, 65536, 1) blocks of 1 thread; a grid may have (2147483647, 65535, 65535)",
    "1, 32, 65536": "cudaErrorInvalidValue: line 7 launches k with 65536 bytes of dynamic shared memory; 49152 are allowed unless cudaFuncSetAttribute asks for more",
}  # fmt: skip
# body of a kernel on line 3; output declared; kind and words, or None
TOLD: dict[str, tuple[str, str, str | None, str]] = {
    "one_index": ("y[threadIdx.x / 2] = threadIdx.x;", "1, 32", "race", "nothing orders the two: consistent with an index that is not each thread's own"),
    "no_check": ("y[threadIdx.x] = 1;", "1, 128", "out_of_bounds", "thread (100, 0, 0) of block (0, 0, 0) writes y[100], 1 past the last of its 100 elements (line 3): consistent with a missing or wrong check of the index against n"),
    "reads_past": ("if (threadIdx.x <= n) y[threadIdx.x % n] = x[threadIdx.x];", "1, 128", "out_of_bounds", "reads x[100], 1 past the last of its 100"),
    "before": ("if (threadIdx.x < n) y[(int)threadIdx.x - 1] = 1;", "1, 128", "out_of_bounds", "writes y[-1], before its start"),
    "null_in_a_kernel": ("float* p = nullptr; p[n - 100] = 1;", "1, 1", "out_of_bounds", "null pointer"),
    "far": ("if (threadIdx.x == 5) y[1 << 28] = 1;", "1, 32", "out_of_bounds", "thread (5, 0, 0)"),
    "shared_past": ("__shared__ float t[32]; t[threadIdx.x + n - 99] = 1; y[threadIdx.x] = t[threadIdx.x + n - 99];", "1, 32", "out_of_bounds", "shared memory beyond its variables"),
    "late_barrier": ("__shared__ float t[64]; t[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] = t[63 - threadIdx.x]; t[threadIdx.x] = 2 * n; y[threadIdx.x] += t[threadIdx.x];", "1, 64", "race", "the shared variable t"),
    "many_read_one_writes": ("__shared__ float t; if (threadIdx.x == 0) t = x[0]; __syncthreads(); y[threadIdx.x] = t; if (threadIdx.x == 31) t = 2.0f * n;", "1, 32", "race", "the shared variable t"),
    "uninitialised": ("__shared__ float sum; sum += x[0]; y[0] = sum;", "1, 1", "uninitialised_shared", "the shared variable sum"),
    "divergent": ("if (threadIdx.x < 16)\n __syncthreads();\n else\n __syncthreads();\n y[0] = 1;", "1, 32", "divergent_barrier", "all threads of a block must come to the same one"),
    "lanes_missing": ("if (threadIdx.x < 8) y[0] = __shfl_down_sync(0xffffffff, x[0], 1); else __syncthreads();", "1, 32", "deadlock", "waits at __shfl_down_sync"),
    "mask": ("float v = __shfl_sync(0x1, x[0], 0); if (threadIdx.x == 0) y[0] = v;", "1, 32", "warp_mask", "does not name it"),
    "misaligned": ("if (threadIdx.x == 0) { float4 v = *(const float4*)(x + 1); y[0] = v.x + v.w; }", "1, 32", "misaligned", "from x[1], whose address is not a multiple of 16"),
    "half_a_block": ("__shared__ float t[64]; if (threadIdx.x < 32) { t[threadIdx.x] = t[threadIdx.x + 32] = 1; __syncthreads(); } y[threadIdx.x] = t[threadIdx.x];", "1, 64", "race", "thread (0, 0, 0) waits at the __syncthreads() in line 3, where thread (32, 0, 0) has not come yet"),
    "two_functions": ("if (threadIdx.x < 8) y[0] = __shfl_sync(~0u, 1, 0); else y[1] = __ballot_sync(~0u, 1);", "1, 32", "deadlock", "thread (0, 0, 0) of block (0, 0, 0) waits at __shfl_sync in line 3 for lanes that never come; thread (8, 0, 0) waits at __ballot_sync in line 3"),
    "reads_y": ("if (threadIdx.x < n) y[threadIdx.x] = 2 * y[threadIdx.x];", "1, 32", "unwritten_output", "reads y[0] in line 3, where nothing has been written yet: the output's old contents are arbitrary"),
    "adds_to_y": ("atomicAdd(y, 1.0f);", "1, 32", "unwritten_output", "reads y[0] in line 3"),
    "reads_y_in_fours": ("y[0] = 1; y[1] = ((const float4*)y)->w;", "1, 1", "unwritten_output", "reads y[3] in line 3"),
    "reads_new_memory": ("if (threadIdx.x < n) y[threadIdx.x] = scratch[threadIdx.x];", "1, 32", "unwritten_memory", "reads byte 0 of memory from cudaMalloc in line 3, where nothing has been written yet: its old contents are arbitrary"),
    "reads_filled_memory": ("if (threadIdx.x < n) y[threadIdx.x] = filled[threadIdx.x];", "1, 32", None, ""),
    "reads_beyond_new_memory": ("y[0] = filled[400];", "1, 1", "out_of_bounds", "reads byte 1600 of memory from cudaMalloc, 1 past the last of its 1600 bytes (line 3)"),
    "reads_freed_memory": ("if (threadIdx.x < n) y[threadIdx.x] = gone[threadIdx.x];", "1, 32", "use_after_free", "reads memory that has been freed (line 3)"),
    "assertion_of_cassert": ("assert(n < 0); y[0] = 1;", "1, 32", "trap", "stopped the kernel: assert(n < 0) in line 3"),
    "from_a_lane_that_returned": ("if (threadIdx.x < 3) y[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 1);", "1, 32", "lane_that_is_gone", "thread (2, 0, 0) of block (0, 0, 0) reads by __shfl_xor_sync in line 3 from thread (3, 0, 0), which has returned: what it gets is undefined. Let all lanes of a warp come to the shuffle"),
    "from_a_lane_beyond_the_block": ("y[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 1);", "1, 20", "lane_that_is_gone", "from lane 20, which the block does not have: what it gets is undefined. Take a multiple of 32 threads"),
    "from_lanes_that_stay": ("if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(~0u, x[threadIdx.x], 8);", "1, 32", None, ""),
    "from_a_lane_elsewhere": ("float v = 0; if (threadIdx.x < 8) v = __shfl_down_sync(0xff, x[threadIdx.x], 1); __syncthreads(); y[threadIdx.x] = v;", "1, 32", None, ""),
    "one_value": ("y[threadIdx.x / 2] = n;", "1, 200", None, ""),
    "one_value_in_shared_memory": ("__shared__ float t; t = n; __syncthreads(); y[threadIdx.x] = t;", "1, 100", None, ""),
    "one_value_of_blocks": ("y[threadIdx.x] = n;", "3, 100", None, ""),
    "one_value_and_nothing_elsewhere": ("y[threadIdx.x] = n;", "3, 32", "race", "thread (0, 0, 0) of block (1, 0, 0) writes y[0] in line 3, and thread (0, 0, 0) of block (0, 0, 0) writes it in line 3: nothing orders the two: consistent with an index that is not each thread's own"),
    "one_of_four_values": ("*(float4*)y = make_float4(1, 2, 3, threadIdx.x);", "1, 2", "race", "thread (1, 0, 0) of block (0, 0, 0) writes y[3] in line 3, and thread (0, 0, 0) writes it in line 3"),
    "another_value_at_the_end": ("y[0] = 1; if (threadIdx.x) y[0] = 1; else y[0] = 2;", "1, 2", "race", "writes y[0] in line 3"),
    "another_value_in_shared_memory": ("__shared__ float t; t = threadIdx.x; __syncthreads(); y[threadIdx.x] = t;", "1, 64", "race", "writes the shared variable t in line 3"),
    "one_value_that_is_read": ("y[0] = n; y[1 + threadIdx.x] = *(volatile float*)y;", "1, 2", "race", "nothing orders the two"),
    "reads_what_it_wrote": ("y[threadIdx.x] = 1; y[threadIdx.x] += 1; atomicExch(y + 40 + threadIdx.x, 1.0f);", "1, 32", None, ""),
}  # fmt: skip


MEMORY = (
    "float *scratch, *filled, *gone; cudaMalloc(&scratch, 1600); cudaMalloc(&filled, 1600); cudaMalloc(&gone, 1600);"
)
MEMORY += " cudaMemset(filled, 0, 1600); cudaMemset(gone, 0, 1600); cudaFree(gone);"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Library:
    hosts = "".join(f'#line 2\nextern "C" void {name}(const float* x, float* y, int n, int) {{\n{body} }}\n' for name, (body, _, _) in HOSTS.items())  # fmt: skip
    kernels = "".join(
        f"#line 2\n__global__ void {name}_kernel(const float* x, float* y, int n, float* scratch, float* filled, float* gone) {{\n{body} }}\n"
        f'extern "C" void {name}(const float* x, float* y, int n, int) {{ {MEMORY} {name}_kernel<<<{launch}>>>(x, y, n, scratch, filled, gone); }}\n'
        for name, (body, launch, _, _) in TOLD.items()
    )
    refused = "__global__ void k(float* y) { y[0] = 1; }\n" + "".join(f'#line 6\nextern "C" void refused_{at}(const float* x, float* y, int, int) {{\nk<<<{launch}>>>(y); }}\n' for at, launch in enumerate(REFUSED))  # fmt: skip
    return build(tmp_path_factory.mktemp("told"), "#include <cassert>\n" + hosts + kernels + refused)


@pytest.mark.parametrize("name", HOSTS)
def test_a_copy_that_does_not_fit_is_told(told: Library, x: np.ndarray, name: str) -> None:
    y = call(told, name, x[:100].copy(), 100, 100)
    fault = fault_of(told)
    assert (fault.kind, HOSTS[name][2] in fault.text) == (HOSTS[name][1], True), fault
    assert told.launch_error() == "cudaErrorInvalidValue"
    assert (y == 7).all()


@pytest.mark.parametrize("launch", REFUSED)
def test_a_refused_launch_is_told_with_its_numbers(told: Library, x: np.ndarray, launch: str) -> None:
    y = call(told, f"refused_{list(REFUSED).index(launch)}", x, 4, 4)
    assert (told.fault(), y[0]) == (None, 7), "the kernel must not run"
    assert told.launch_fault() == REFUSED[launch]
    assert told.launch_fault() is None, "told once, as cudaGetLastError does"


def test_writes_of_one_value_are_told_with_their_place(told: Library, x: np.ndarray) -> None:
    for name, place in (
        ("one_value", ["y[0]"]),
        ("one_value_in_shared_memory", ["the shared variable t"]),
        ("no_check", []),
    ):
        call(told, name, x[:100].copy(), 100, 100)
        assert told.same_value() == [f"student.cu:3: {one}" for one in place]


@pytest.mark.parametrize("name", TOLD)
def test_a_fault_says_what_it_is_consistent_with(told: Library, x: np.ndarray, name: str) -> None:
    call(told, name, x[:100].copy(), 100, 100, output=True)
    fault = told.fault()
    _, _, kind, words = TOLD[name]
    assert (fault.kind if fault else None) == kind, fault
    if fault is not None:
        assert words in fault.text
        assert "thread (" in fault.text
        assert not re.search(r"\{place\}|line \?", fault.text)


def test_a_tensor_without_elements_is_named(told: Library) -> None:
    told.begin()
    told.array(0, 0, "x", 4)
    told.array(0, 0, "y", 4, output=True)
    told.functions.no_check(None, None, 0, 0)
    fault = fault_of(told)
    assert "writes x or y, which has no elements (line 3): consistent with a missing or wrong check" in fault.text


def test_memory_stays_from_call_to_call_unless_there_is_too_much(tmp_path: Path, x: np.ndarray) -> None:
    library = build(
        tmp_path,
        "__global__ void k(float* p, float* y) { y[threadIdx.x] = p[threadIdx.x] += 1; }\n"
        'extern "C" void f(const float* x, float* y, int n, int m) {\n'
        "  static float* p = nullptr;\n  float* lost;\n  if (!p) cudaMalloc(&p, 128), cudaMemset(p, 0, 128);\n"
        "  if (m) cudaMalloc(&lost, size_t(m) << 20);\n  k<<<1, 32>>>(p, y);\n}\n",
    )
    assert [clean(library, call(library, "f", x, 32, 32))[5] for _ in range(3)] == [1, 2, 3]
    before = Path("/proc/self/maps").read_text().count("\n")
    for _ in range(5):
        clean(library, call(library, "f", x, 32, 32, 300))
    assert Path("/proc/self/maps").read_text().count("\n") <= before + 4


# The part that is the same for everyone --------------------------------------------------------------------------------------------


def stage_short_runtime(folder: Path) -> Path:
    """As `stage_runtime`, with a source that takes no time to build."""
    staged = stage_runtime(folder)
    (staged / "grader/worker/cuda_cpu/runtime.cpp").write_text("int grader_runtime;\n")
    return staged


def test_the_runtime_is_built_once_for_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    staged = [stage_short_runtime(tmp_path / name) for name in ("first", "second", "changed")]
    objects = [folder / "grader/worker/cuda_cpu/runtime.o" for folder in staged]
    provide_runtime(staged[0], COMPILER)
    (kept,) = (tmp_path / "cache").rglob("*.o")
    assert objects[0].read_bytes() == kept.read_bytes()
    kept.write_bytes(b"as it was kept")
    provide_runtime(staged[1], COMPILER)
    assert objects[1].read_bytes() == b"as it was kept"
    with (objects[2].parent / "runtime.cpp").open("a") as source:
        source.write("// another version\n")
    provide_runtime(staged[2], COMPILER)
    assert objects[2].read_bytes() != b"as it was kept"
    assert len(list((tmp_path / "cache").rglob("*"))) == 3, "one folder and two objects, nothing half made"


def test_what_an_image_brings_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = stage_short_runtime(tmp_path / "package") / "grader"
    monkeypatch.setattr(grader, "__file__", str(package / "__init__.py"))
    cuda_cpu.main()
    (brought,) = (package / "worker/cuda_cpu").glob("*.o")
    brought.write_bytes(b"as it was brought")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    staged = stage_runtime(tmp_path / "staged")
    provide_runtime(staged, COMPILER)
    assert (staged / "grader/worker/cuda_cpu/runtime.o").read_bytes() == b"as it was brought"
    assert not list((tmp_path / "another").rglob("*"))


def test_without_a_cache_it_is_built_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    provide_runtime(staged := stage_short_runtime(tmp_path / "runtime"), COMPILER)
    assert (staged / "grader/worker/cuda_cpu/runtime.o").exists()


@pytest.mark.parametrize("broken", ["compiler", "source"])
def test_a_stand_in_that_does_not_build_is_no_students_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    staged = stage_runtime(tmp_path / "runtime")
    if broken == "source":
        (staged / "grader/worker/cuda_cpu/runtime.cpp").write_text("here is no C++")
    with pytest.raises(fault.Fault, match="stand-in"):
        provide_runtime(staged, str(tmp_path / "no-compiler") if broken == "compiler" else COMPILER)
    assert not list(staged.rglob("*.o"))
    assert not list(tmp_path.rglob("cuda-cpu-*"))
