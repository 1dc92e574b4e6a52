"""CUDA C++ on the CPU: kernels run with a device's semantics, and what a kernel does wrong is told with thread and line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from grader.worker.cuda_cpu.build import (
    BuildFailed,
    Fault,
    Library,
    Unsupported,
    compile_library,
    find_compiler,
    refuse_unsupported,
)
from grader.worker.cuda_cpu.rewrite import RewriteError, rewrite

COMPILER = find_compiler()
if COMPILER is None:
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
    if (i < n) y[i] = __popc(ballot) + 1000 * many + 1000000 * __any_sync(__activemask_of_n(i, n), positive);
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

// what the host may ask
extern "C" void host(const float* x, float* y, int n, int) {
    float* scratch;
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    if (cudaMalloc(&scratch, n * sizeof(float)) != cudaSuccess || properties.warpSize != 32) return;
    cudaMemcpyAsync(scratch, x, n * sizeof(float), cudaMemcpyDeviceToDevice, 0);
    cudaMemcpy(y, scratch, n * sizeof(float), cudaMemcpyDeviceToDevice);
    cudaFree(scratch);
}
""".replace("__activemask_of_n(i, n)", "0xffffffff")
RIGHT = RIGHT.replace("if (i < n) y[i] = __popc(ballot) + 1000 * many + 1000000 * __any_sync(0xffffffff, positive);",
                      "int any = __any_sync(0xffffffff, positive);\n    if (i < n) y[i] = __popc(ballot) + 1000 * many + 1000000 * any;")  # fmt: skip

# name: (kernel's body, launch configuration, kind of fault, words)
HEAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
WRONG: dict[str, tuple[str, str, str, str]] = {
    "read_past": (f"{HEAD} if (i <= n) y[i < n ? i : 0] = x[i];", "1, 128", "out_of_bounds", "reads x[100], 1 past the last of its 100"),
    "write_past": (f"{HEAD} y[i] = 1.0f;", "1, 128", "out_of_bounds", "thread (100, 0, 0) of block (0, 0, 0) writes y[100], 1 past the last"),
    "write_before": (f"{HEAD} if (i < n) y[i - 1] = 1.0f;", "1, 128", "out_of_bounds", "writes y[-1], before its start"),
    "null": ("float* p = nullptr; if (threadIdx.x == 0) p[n - 100] = 1.0f;", "1, 32", "out_of_bounds", "null pointer"),
    "far": ("if (threadIdx.x == 5) y[1 << 28] = 1.0f;", "1, 32", "out_of_bounds", "thread (5, 0, 0)"),
    "shared_past": ("__shared__ float t[32]; t[threadIdx.x + n - 99] = 1.0f; y[threadIdx.x] = t[threadIdx.x + n - 99];", "1, 32", "out_of_bounds", "shared memory beyond its variables"),
    "missing_barrier": ("__shared__ float t[64]; t[threadIdx.x] = x[threadIdx.x]; y[threadIdx.x] = t[63 - threadIdx.x];", "1, 64", "uninitialised_shared|race", "t"),
    "late_barrier": ("__shared__ float t[64]; t[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] = t[63 - threadIdx.x]; t[threadIdx.x] = 2 * n; y[threadIdx.x] += t[threadIdx.x];", "1, 64", "race", "the shared variable t"),
    "no_atomic": ("y[0] += x[threadIdx.x];", "1, 64", "race", "y[0]"),
    "many_read_one_writes": ("__shared__ float t; if (threadIdx.x == 0) t = x[0]; __syncthreads(); y[threadIdx.x] = t; if (threadIdx.x == 31) t = 2.0f * n;", "1, 32", "race", "the shared variable t"),
    "no_atomic_between_blocks": ("if (threadIdx.x == 0) y[0] += x[blockIdx.x];", "3, 32", "race", "of block (0, 0, 0)"),
    "uninitialised": ("__shared__ float sum; sum += x[0]; y[0] = sum;", "1, 1", "uninitialised_shared", "the shared variable sum"),
    "divergent": ("if (threadIdx.x < 16)\n __syncthreads();\n else\n __syncthreads();\n y[0] = 1;", "1, 32", "divergent_barrier", "all threads of a block must come to the same one"),
    "lanes_missing": ("if (threadIdx.x < 8) y[0] = __shfl_down_sync(0xffffffff, x[0], 1); else __syncthreads();", "1, 32", "deadlock", "waits at __shfl_down_sync"),
    "mask": ("float v = __shfl_sync(0x1, x[0], 0); if (threadIdx.x == 0) y[0] = v;", "1, 32", "warp_mask", "does not name it"),
    "misaligned": ("if (threadIdx.x == 0) { float4 v = *(const float4*)(x + 1); y[0] = v.x + v.w; }", "1, 32", "misaligned", "takes 16 bytes at once"),
    "assertion": ("assert(n < 0); y[0] = 1;", "1, 32", "trap", "assert(n < 0)"),
}  # fmt: skip
LIMITS = {
    "too_many_threads": ("1, 1025", "cudaErrorInvalidConfiguration"),
    "no_blocks": ("0, 32", "cudaErrorInvalidConfiguration"),
    "too_deep": ("1, dim3(1, 1, 65)", "cudaErrorInvalidConfiguration"),
    "too_wide_a_grid": ("dim3(1, 65536), 1", "cudaErrorInvalidConfiguration"),
    "too_much_shared": ("1, 32, 49153", "cudaErrorInvalidValue"),
}


def build(folder: Path, source: str) -> Library:
    assert COMPILER is not None
    (folder / "student.cu").write_text(source)
    return compile_library(folder / "student.cu", folder, COMPILER, limit_s=120)


def call(library: Library, name: str, x: np.ndarray, outputs: int, n: int, m: int = 0, order: int = 0) -> np.ndarray:
    y = np.full(outputs, 7.0, dtype=np.float32)
    library.begin(order)
    library.array(x.ctypes.data, x.nbytes, "x", 4)
    library.array(y.ctypes.data, y.nbytes, "y", 4)
    import ctypes

    pointers = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
    getattr(library.functions, name)(*pointers, ctypes.c_int(n), ctypes.c_int(m))
    return y


def clean(library: Library, y: np.ndarray) -> np.ndarray:
    fault = library.fault()
    assert fault is None, fault
    assert library.launch_error() is None
    return y


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return build(tmp_path_factory.mktemp("right"), RIGHT)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Library:
    kernels = {name: (body, launch) for name, (body, launch, _, _) in WRONG.items()}
    kernels |= {name: ("y[0] = n;", launch) for name, (launch, _) in LIMITS.items()}
    return build(
        tmp_path_factory.mktemp("wrong"),
        "".join(
            f"__global__ void {name}_kernel(const float* x, float* y, int n) {{ {body} }}\n"
            f'extern "C" void {name}(const float* x, float* y, int n, int) {{ {name}_kernel<<<{launch}>>>(x, y, n); }}\n'
            for name, (body, launch) in kernels.items()
        ),
    )


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(5).random(1000, dtype=np.float32)


@pytest.mark.parametrize("order", [0, 1])
class TestRightKernels:
    """Right kernels give right answers, without a fault, whatever the order of threads and blocks."""

    def test_reduction(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "reduce", x, 1, 1000, order=order))
        assert y[0] == pytest.approx(x.sum(dtype=np.float64), rel=1e-5)

    def test_tiled_matrix_product(self, right: Library, x: np.ndarray, order: int) -> None:
        a = x[: 31 * 31].copy()
        y = clean(right, call(right, "matmul", a, 31 * 31, 31, order=order))
        assert np.allclose(y.reshape(31, 31), a.reshape(31, 31) @ a.reshape(31, 31), rtol=1e-4)

    def test_softmax_by_warps(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "softmax", x[:990].copy(), 990, 9, 110, order=order)).reshape(9, 110)
        e = np.exp(x[:990].reshape(9, 110).astype(np.float64))
        assert np.allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)

    def test_transpose_with_padding(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "transpose", x[:990].copy(), 990, 22, 45, order=order))
        assert np.array_equal(y.reshape(45, 22), x[:990].reshape(22, 45).T)

    def test_histogram_with_atomics(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "histogram", x, 13, 1000, 13, order=order))
        assert np.array_equal(y, np.bincount((x * 13).astype(int), minlength=13))

    def test_a_fence_and_an_atomic_order_blocks(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "last_block", x, 6, 1000, 5, order=order))
        assert y[0] == pytest.approx(x.sum(dtype=np.float64), rel=1e-4)

    def test_votes(self, right: Library, order: int) -> None:
        signs = np.where(np.arange(70) % 3 == 0, 1.0, -1.0).astype(np.float32)
        y = clean(right, call(right, "votes", signs, 70, 70, order=order))
        positive = np.zeros(128, bool)
        positive[:70] = signs > 0
        for i in range(70):
            ballot, block = positive[i // 32 * 32 :][:32].sum(), positive[i // 64 * 64 :][:64].sum()
            assert y[i] == ballot + 1000 * block + 1000000 * (ballot > 0)

    def test_vector_and_half_types(self, right: Library, x: np.ndarray, order: int) -> None:
        y = clean(right, call(right, "vectors", x, 1000, 1000, order=order)).reshape(-1, 4)
        columns = x.reshape(-1, 4)
        assert np.array_equal(y[:, 0], columns[:, 0].astype(np.float16).astype(np.float32))
        assert np.abs(y[:, 1] / columns[:, 1] - 1).max() <= 2**-8
        assert np.array_equal(y[:, 2], 2 * columns[:, 2].astype(np.float16).astype(np.float32))
        assert np.allclose(y[:, 3], 1 / np.sqrt(columns[:, 3]), rtol=1e-6)

    def test_the_hosts_api(self, right: Library, x: np.ndarray, order: int) -> None:
        assert np.array_equal(clean(right, call(right, "host", x, 1000, 1000, order=order)), x)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_told_what_is_wrong_and_where(wrong: Library, x: np.ndarray, name: str) -> None:
    _, _, kinds, words = WRONG[name]
    call(wrong, name, x[:100].copy(), 100, 100)
    fault = wrong.fault()
    assert isinstance(fault, Fault)
    assert fault.kind in kinds.split("|"), fault
    assert words in fault.text
    assert "{place}" not in fault.text
    assert "line ?" not in fault.text
    assert "thread (" in fault.text


@pytest.mark.parametrize("name", LIMITS)
def test_launch_limits_are_a_devices(wrong: Library, x: np.ndarray, name: str) -> None:
    y = call(wrong, name, x, 4, 4)
    assert wrong.launch_error() == LIMITS[name][1]
    assert y[0] == 7.0, "the kernel must not run"


def test_a_fault_names_the_students_line(tmp_path: Path, x: np.ndarray) -> None:
    source = (
        "__global__ void k(const float* x,\n  float* y, int n) {\n  int i = threadIdx.x;\n  y[i] = x[i];\n"
        '  y[i + n] = 1;\n}\nextern "C" void f(const float* x, float* y, int n, int) {\n  k<<<1,\n   32>>>(x, y, n);\n}\n'
    )
    library = build(tmp_path, source)
    call(library, "f", x, 100, 100)
    fault = library.fault()
    assert fault is not None
    assert "(line 5)" in fault.text


def test_after_a_fault_the_next_call_starts_afresh(wrong: Library, right: Library, x: np.ndarray) -> None:
    call(wrong, "write_past", x[:100].copy(), 100, 100)
    assert wrong.fault() is not None
    assert call(wrong, "divergent", x[:100].copy(), 100, 100) is not None
    wrong.begin()
    assert wrong.fault() is None
    assert wrong.launch_error() is None
    clean(right, call(right, "reduce", x, 1, 1000))


def test_a_host_that_touches_device_memory_is_told(tmp_path: Path, x: np.ndarray) -> None:
    library = build(tmp_path, 'extern "C" void f(const float* x, float* y, int n, int) {\n  y[0] = 1;\n}\n')
    call(library, "f", x, 100, 100)
    fault = library.fault()
    assert fault is not None
    assert (fault.kind, "line 2" in fault.text) == ("host_access", True)


def test_the_compilers_messages_have_the_students_lines(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match=r"student\.cu:3:\d+: error: .*undefined_thing"):
        build(tmp_path, "#include <cuda_runtime.h>\n__global__ void k(float* y) {\n  y[0] = undefined_thing;\n}\n")


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")
def test_clang_builds_it_too(tmp_path: Path, x: np.ndarray) -> None:
    (tmp_path / "student.cu").write_text(RIGHT)
    library = compile_library(tmp_path / "student.cu", tmp_path, "clang++", limit_s=120)
    clean(library, call(library, "reduce", x, 1, 1000))


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("#include <cub/cub.cuh>\n", 1, "the header cub/cub.cuh"),
        ("int a;\n#include <torch/extension.h>\n", 2, "torch/extension.h"),
        ('__global__ void k() {\n\n  asm("mov.u32 %0, %laneid;" : "=r"(x));\n}\n', 3, "PTX"),
    ],
)
def test_what_only_a_gpu_has_is_named_with_its_line(source: str, line: int, what: str) -> None:
    with pytest.raises(Unsupported, match=f"line {line}: .*only a GPU") as caught:
        refuse_unsupported(source)
    assert what in str(caught.value)


def test_comments_and_strings_are_left_alone() -> None:
    source = '// k<<<1, 2>>>(x); asm\n/* __shared__ float a; */ const char* s = "a<<<b>>>(c) __shared__";\nint z = 1 << 3 >> 1;\n'
    assert rewrite(source) == source
    refuse_unsupported(source)


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


def test_rewriting_keeps_every_line() -> None:
    assert rewrite(RIGHT).count("\n") == RIGHT.count("\n")
