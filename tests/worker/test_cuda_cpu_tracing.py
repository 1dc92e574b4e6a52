"""Traced calls of CUDA C++ on the CPU: the counts of kernels whose numbers are known by hand."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from grader.judge.environment import find_compiler
from grader.pool.replies import decode
from grader.protocol import (
    Build,
    MakeCalls,
    Memory,
    Operands,
    Parameter,
    Ref,
    Trace,
    TracedAccess,
    TracedLaunch,
    TracedTensor,
    encode,
)
from grader.worker.cuda_cpu import program
from grader.worker.cuda_cpu.build import Library, compile_library
from grader.worker.cuda_cpu.declarations import dynamic_shared, parameters
from grader.worker.cuda_cpu.tracing import has_vectors
from grader.worker.errors import LoadError
from grader.worker.signature import Signature
from tests.support.cpu_runtime import place_runtime

COMPILER = find_compiler("cpu") or ""
if not COMPILER:
    pytest.skip("needs g++ or clang++", allow_module_level=True)

PARAMETERS = (
    Parameter("const float*", "x"),
    Parameter("float*", "y"),
    Parameter("int64_t", "n", "x"),
    Parameter("cudaStream_t", "stream"),
)
HEAD = "int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;"
# A kernel's body, with parameters `a`, `b` and `n`, and its grid and block.
KERNELS = {
    "coalesced": (f"{HEAD} if (i < n) b[i] = a[i];", "n / 64, 64"),
    "half_as_wide": (f"{HEAD} b[i] = a[2 * i % n];", "n / 64, 64"),
    "columns": (f"{HEAD} b[i] = a[(i % 32) * 32 + i / 32];", "n / 64, 64"),
    "misaligned": (f"{HEAD} if (i + 1 < n) b[i] = a[i + 1];", "n / 64, 64"),
    "broadcast": (f"{HEAD} b[i] = a[0];", "n / 64, 64"),
    "tail": (f"{HEAD} if (i < n - 20) b[i] = a[i];", "n / 64, 64"),
    "divergent": (f"{HEAD} if (threadIdx.x % 2) b[i] = a[i]; else b[i] = 1.0f;", "n / 64, 64"),
    "small_block": (f"{HEAD} b[i] = a[i];", "1, 40"),
    "grid_stride": (f"for ({HEAD} i < n; i += gridDim.x * blockDim.x) b[i] = a[i];", "2, 64"),
    "passes": (
        "int64_t row = blockIdx.x * 256; float most = 0, sum = 0;\n"
        "  for (int i = threadIdx.x; i < 256; i += 64) most = fmaxf(most, a[row + i]);\n"
        "  for (int i = threadIdx.x; i < 256; i += 64) sum += expf(a[row + i] - most);\n"
        "  for (int i = threadIdx.x; i < 256; i += 64) b[row + i] = expf(a[row + i] - most) / sum;",
        "n / 256, 64",
    ),
    "atomic": (f"{HEAD} atomicAdd(b, a[i]);", "n / 64, 64"),
    "conflicting": (
        "__shared__ float tile[32][32]; int t = threadIdx.x;\n  for (int r = 0; r < 32; r++) tile[r][t] = a[r * 32 + t];\n"
        "  __syncthreads();\n  for (int r = 0; r < 32; r++) b[r * 32 + t] = tile[t][r];",
        "1, 32",
    ),
    "padded": (
        "__shared__ float tile[32][33]; int t = threadIdx.x;\n  for (int r = 0; r < 32; r++) tile[r][t] = a[r * 32 + t];\n"
        "  __syncthreads();\n  for (int r = 0; r < 32; r++) b[r * 32 + t] = tile[t][r];",
        "1, 32",
    ),
    "dynamic": ("extern __shared__ float wide[]; wide[2 * threadIdx.x] = 1; b[threadIdx.x] = wide[0];", "1, 32, 4096"),
    "wide_shared": (
        "__shared__ double d[64]; d[threadIdx.x] = a[threadIdx.x]; b[threadIdx.x] = d[threadIdx.x];",
        "1, 32",
    ),
    "turns": ("for (int k = 0; k < int(threadIdx.x); k++) b[k * 32 + threadIdx.x] = 1.0f;", "1, 32"),
    "warps": (
        "for (int k = 0; k < 2; k++) {\n"
        "    if (k || threadIdx.x % 2) b[64 * k + threadIdx.x] = k;\n    __syncwarp();\n  }",
        "1, 64",
    ),
    "one_thread": ("if (threadIdx.x == 0) for (int64_t i = 0; i < n; i++) b[i] = a[i];", "1, 64"),
    "one_block": ("for (int64_t i = threadIdx.x; i < n; i += 64) {\n    b[i % 64] = a[i % 64];\n    __syncthreads();\n  }", "1, 64"),
    "constants": ("b[threadIdx.x] = coefficients[n > 3] + coefficients[threadIdx.x % 2];", "1, 32"),
    "past_the_end": (f"{HEAD} b[i + n] = 1.0f;", "1, 32"),
    "racing": (f"{HEAD} b[i / 2] = a[i];", "1, 32"),
}  # fmt: skip
VECTORS = """
__global__ void fours(const float4* a, float4* b, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  float4 v = a[i];
  v.x *= 2; v.y += 1; v.z -= 3; v.w *= v.w;
  b[i] = v;
}
extern "C" void four(const float* x, float* y, int64_t n, cudaStream_t s) { fours<<<n / 256, 64, 0, s>>>((const float4*)x, (float4*)y, n); }
__global__ void twos(const float2* a, float2* b, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  b[i] = make_float2(a[i].x * 2, a[i].y + 1);
}
extern "C" void two(const float* x, float* y, int64_t n, cudaStream_t s) { twos<<<n / 128, 64, 0, s>>>((const float2*)x, (float2*)y, n); }
__global__ void threes(const float3* a, float3* b, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  float3 v = a[i];
  b[i] = make_float3(v.x * 2, v.y + 1, v.z - 1);
}
extern "C" void three(const float* x, float* y, int64_t n, cudaStream_t s) { threes<<<1, 64, 0, s>>>((const float3*)x, (float3*)y, n); }
__global__ void shared_fours(const float4* a, float4* b) {
  __shared__ float4 t[32];
  t[threadIdx.x] = a[threadIdx.x];
  b[threadIdx.x] = t[threadIdx.x];
}
extern "C" void shared_four(const float* x, float* y, int64_t n, cudaStream_t s) {
  shared_fours<<<1, 32, 0, s>>>((const float4*)x, (float4*)y);
}
"""
HOST = """
#include "helper.cuh"
__global__ void __launch_bounds__(128) copy(const float* from, float* to, int64_t count) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < count) to[i] = twice(from + i);
}
template <int N, class T> __global__ void add(T* into, const T* one) { into[threadIdx.x] = one[threadIdx.x] + N; }
extern "C" void rows(const float* x, float* y, int64_t n, cudaStream_t s) {
  for (int64_t row = 0; row < n / 64; row++) copy<<<1, 64, 0, s>>>(x + row * 64, y + row * 64, 64);
}
extern "C" void temporaries(const float* x, float* y, int64_t n, cudaStream_t s) {
  float *one, *other, *third;
  cudaMalloc(&one, 4 * n);
  cudaMalloc(&other, 8 * n);
  cudaFree(other);
  cudaMalloc(&third, 4 * n);
  cudaMemsetAsync(third, 0, 4 * n, s);
  cudaMemcpyAsync(third, x, 4 * n, cudaMemcpyDeviceToDevice, s);
  copy<<<n / 64, 64, 0, s>>>(third, one, n);
  copy<<<n / 128, 128, 0, s>>>(one, y, n);
  add<3><<<1, 32, 0, s>>>(y, x);
  auto pointer = &add<4, float>;
  pointer<<<1, 32, 0, s>>>(y, x);
  void* arguments[] = {&y, &x};
  cudaLaunchKernel((void*)add<2, float>, 1, 32, arguments, 0, s);
  cudaFree(one), cudaFree(third);
}
extern "C" void shorter(const float* x, float* y, int64_t n, cudaStream_t s) {
  for (int row = 0; row < 1000; row++) copy<<<1, 64, 0, s>>>(x, y, row < 64 ? 64 - row % 2 * 32 : 1);
}
extern "C" void filled(const float* x, float* y, int64_t n, cudaStream_t s) {
  cudaMemsetAsync(y, 1, 4 * n, s);
  cudaMemcpyAsync(y, x, 4 * n, cudaMemcpyDeviceToDevice, s);
}
extern "C" void pairs(const float* x, float* y, int64_t n, cudaStream_t s) {
  for (int row = 0; row < 100; row++) copy<<<1, 64, 0, s>>>(x, y, 64), copy<<<1, 32, 0, s>>>(x, y, 32);
}
"""
HELPER = "__device__ inline float twice(const float* p) {\n  return 2 * *p;\n}\n"
TORCH = """#include <torch/extension.h>
__global__ void scale(const float* from, float* to, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 2 * from[i];
}
torch::Tensor f(torch::Tensor x) {
    auto half = torch::empty_like(x);
    auto y = torch::zeros_like(x);
    scale<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), half.data_ptr<float>(), x.numel());
    scale<<<(x.numel() + 63) / 64, 64>>>(half.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }
"""


def source() -> str:
    """The kernels of `KERNELS`, each with an entry of its name."""
    return "__constant__ float coefficients[2];\n" + "".join(
        f"__global__ void {name}_kernel(const float* a, float* b, int64_t n) {{\n  {body}\n}}\n"
        f'extern "C" void {name}(const float* x, float* y, int64_t n, cudaStream_t s) {{\n'
        f"  {name}_kernel<<<{shape}{', 0' if shape.count(',') < 2 else ''}, s>>>(x, y, n);\n}}\n"
        for name, (body, shape) in KERNELS.items()
    )


@functools.cache
def built(text: str) -> Library:
    folder = Path(tempfile.mkdtemp())
    place_runtime(COMPILER, folder)
    (folder / "student.cu").write_text(text)
    (folder / "helper.cuh").write_text(HELPER)
    return compile_library(folder / "student.cu", folder, COMPILER, limit_s=120)


@contextlib.contextmanager
def arena(n: int) -> Iterator[tuple[int, MakeCalls]]:
    """A sparse file, and a traced call on two tensors of `n` elements in it."""
    file = os.memfd_create("arena")
    x, y = (Ref("float32", start, (n,), (1,)) for start in (4096, 8192 + 4 * n))
    size = 16384 + 8 * n
    os.ftruncate(file, size)
    try:
        yield file, MakeCalls(Memory(size), (Operands((x,), None, (y,)),), (), 60.0, record="trace")
    finally:
        os.close(file)


def kernel_of(name: str, text: str | None = None) -> program.Kernel:
    library = built(text or source())
    return program.Kernel(library, name, Signature(PARAMETERS, attrgetter("address")), "", library.path.parent)


def trace_of(kernel: program.Kernel, n: int) -> Trace:
    """The trace of a call, as the judge reads it."""
    with arena(n) as (file, request):
        trace = decode(encode(program.call(kernel, request, [file]))[4:]).trace
    assert trace is not None
    return trace


def traced(name: str, n: int = 1024, text: str | None = None) -> Trace:
    return trace_of(kernel_of(name, text), n)


def launched(name: str, n: int = 1024, text: str | None = None) -> TracedLaunch:
    (launch,) = traced(name, n, text).launches
    return launch


def access(launch: TracedLaunch, verb: str, tensor: str, line: int | None = None) -> TracedAccess:
    (one,) = (a for a in launch.accesses if (a.verb, a.tensor) == (verb, tensor) and line in (None, a.line))
    return one


def per_request(one: TracedAccess) -> tuple[float, float]:
    return one.sectors / one.requests, one.least_sectors / one.requests


def line_of(text: str, piece: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if piece in line)


# Global memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sectors", "least"), [("coalesced", 4, 4), ("half_as_wide", 8, 4), ("columns", 32, 4), ("broadcast", 1, 1)]
)
def test_sectors_of_a_warps_read(name: str, sectors: int, least: int) -> None:
    launch = launched(name)
    read, write = access(launch, "reads", "a"), access(launch, "writes", "b")
    assert (read.requests, read.lanes, read.lanes_of_all, read.width_bytes) == (32, 1024, 1024, 4)
    assert per_request(read) == (sectors, least)
    assert per_request(write) == (4, 4)
    assert (launch.kernel, launch.grid, launch.threads, launch.ran) == (f"{name}_kernel", (16, 1, 1), 64, 16)
    assert launch.line == line_of(source(), f"{name}_kernel<<<")
    assert (read.file, read.line) == ("student.cu", line_of(source(), f"void {name}_kernel") + 1)
    assert (launch.cut, launch.launches, read.space, read.atomic) == (False, 1, "global", False)


# A kernel's access: what is counted of it, by the names of `TracedAccess`.
COUNTS = {
    # 31 requests of 5 sectors for 4; the last warp reads 31 elements from element 993 on: 4 sectors, and 4 at least.
    ("misaligned", "reads", "a"): {"requests": 32, "sectors": 31 * 5 + 4, "least_sectors": 32 * 4, "lanes": 1023},
    # 12 floats are 48 bytes: two sectors.
    ("tail", "reads", "a"): {"requests": 32, "lanes": 1004, "lanes_of_all": 1024, "least_sectors": 31 * 4 + 2},
    ("tail", "writes", "b"): {"requests": 32, "lanes": 1004, "lanes_of_all": 1024, "least_sectors": 31 * 4 + 2},
    ("divergent", "reads", "a"): {
        "requests": 32,
        "lanes": 512,
        "lanes_of_all": 1024,
        "sectors": 128,
        "least_sectors": 64,
    },
    ("divergent", "writes", "b"): {"requests": 64, "lanes": 1024, "lanes_of_all": 2048},  # in either branch
    ("small_block", "reads", "a"): {"requests": 2, "lanes": 40, "lanes_of_all": 40, "sectors": 5},
    ("grid_stride", "reads", "a"): {"requests": 32, "lanes": 1024, "lanes_of_all": 1024, "sectors": 128},
    ("turns", "writes", "b"): {"requests": 31, "lanes": 31 * 32 // 2, "lanes_of_all": 31 * 32},
    ("atomic", "writes", "b"): {"requests": 32, "lanes": 1024, "sectors": 32, "least_sectors": 32, "atomic": True},
    # Of constants, one that all lanes read moves nothing: the second alone is counted.
    ("constants", "reads", ""): {"requests": 1, "lanes": 32},
    # Odd lanes in the first turn, all lanes in the second. Without the warp function between, the only write of an even
    # lane would go with the first of an odd lane, to other sectors.
    ("warps", "writes", "b"): {"requests": 4, "lanes": 96, "lanes_of_all": 128, "sectors": 16, "least_sectors": 12},
    ("dynamic", "writes", "wide"): {"passes": 2, "least_passes": 1},
    ("dynamic", "reads", "wide"): {"passes": 1, "least_passes": 1},
    ("wide_shared", "writes", "d"): {"width_bytes": 8, "passes": 2, "least_passes": 2},
    ("racing", "writes", "b"): {"lanes": 32, "sectors": 2, "least_sectors": 2},  # a race does not end a traced call
}


@pytest.mark.parametrize(("name", "verb", "tensor"), COUNTS)
def test_accesses_of_a_kernel_are_counted(name: str, verb: str, tensor: str) -> None:
    counts = COUNTS[name, verb, tensor]
    found = access(launched(name), verb, tensor)
    assert {key: getattr(found, key) for key in counts} == counts


def test_the_bytes_of_a_tensor_are_told_once() -> None:
    tensors = TracedTensor("a", 4096, True, 4096, 0), TracedTensor("b", 4096, True, 0, 4096)
    assert launched("grid_stride").tensors == tensors


def test_three_passes_over_a_row_are_three_times_its_bytes() -> None:
    launch = launched("passes")
    read = [one for one in launch.accesses if one.verb == "reads"]
    assert len({one.line for one in read}) == 3
    (tensor,) = (one for one in launch.tensors if one.name == "a")
    assert tensor.read_once_bytes == 4096
    assert sum(one.lanes * one.width_bytes for one in read) == 3 * tensor.read_once_bytes


# Vectors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "width", "requests", "lanes", "sectors", "least"),
    [
        ("four", 16, 8, 256, 16, 16),
        ("two", 8, 16, 512, 8, 8),
        ("three", 4, 6, 192, 12, 4),
    ],  # a float3 is three accesses
)
def test_a_vector_is_one_access(name: str, width: int, requests: int, lanes: int, sectors: int, least: int) -> None:
    launch = launched(name, text=VECTORS)
    for one in (access(launch, "reads", "a"), access(launch, "writes", "b")):
        assert (one.width_bytes, one.requests, one.lanes) == (width, requests, lanes)
        assert per_request(one) == (sectors, least)


def test_a_vector_in_shared_memory_takes_phases() -> None:
    write = access(launched("shared_four", text=VECTORS), "writes", "t")
    assert (write.width_bytes, write.requests, write.passes, write.least_passes) == (16, 1, 4, 4)


def test_neighbours_without_a_vector_type_are_accesses_of_their_own() -> None:
    code = "float p = a[4 * i], q = a[4 * i + 1], r = a[4 * i + 2], t = a[4 * i + 3]; b[i] = p + q + r + t;"
    text = f"__global__ void k(const float* a, float* b) {{ {HEAD} {code} }}\n"
    text += (
        'extern "C" void f(const float* x, float* y, int64_t n, cudaStream_t s) { k<<<n / 256, 64, 0, s>>>(x, y); }\n'
    )
    read = access(launched("f", text=text), "reads", "a")
    assert (read.width_bytes, read.requests) == (4, 4 * 8)
    assert per_request(read) == (16, 4)


def test_vector_types_are_found() -> None:
    assert has_vectors(["", "float4 v;"])
    assert has_vectors(["struct alignas(16) V { float v[4]; };"])
    assert not has_vectors(["// float4\nfloat v = floor(4.0f); int floats4;"])


# Shared memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "passes"), [("conflicting", 32), ("padded", 1)])
def test_bank_conflicts_of_columns(name: str, passes: int) -> None:
    launch = launched(name)
    read, write = access(launch, "reads", "tile"), access(launch, "writes", "tile")
    assert (read.space, read.requests, read.lanes) == ("shared", 32, 1024)
    assert (read.passes / read.requests, read.least_passes / read.requests) == (passes, 1)
    assert (write.passes, write.least_passes, write.sectors) == (32, 32, 0)
    assert launch.static_shared_bytes == 32 * (32 if name == "conflicting" else 33) * 4


def test_dynamic_shared_memory_is_told_apart() -> None:
    launch = launched("dynamic")
    assert (launch.shared_bytes, launch.static_shared_bytes) == (4096, 0)


# Samples --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["coalesced", "half_as_wide", "passes", "misaligned", "tail"])
def test_counts_of_a_sample_stand_for_all_blocks(name: str) -> None:
    large = launched(name, 1 << 20)
    blocks = large.grid[0]
    assert (large.ran, blocks) == (16, (1 << 20) // (256 if name == "passes" else 64))
    small = launched(name, 16 * (1 << 20) // blocks)
    assert small.ran == small.grid[0] == 16
    idle = {"tail": 20, "misaligned": 1}.get(name, 0)  # lanes of the last block
    for one, other in zip(small.accesses, large.accesses, strict=True):
        assert (other.requests, other.line) == (one.requests, one.line)
        assert other.lanes == one.lanes + idle
    (a,) = (one for one in large.tensors if one.name == "a")
    assert a.read_once_bytes * blocks == 4 * (1 << 20) * large.ran


def test_a_large_call_takes_little_time_and_memory() -> None:
    built(source())
    for name in ("coalesced", "grid_stride", "one_thread", "one_block"):
        began = time.process_time()
        launch = launched(name, 1 << 28)
        assert time.process_time() - began < 6
        assert launch.cut == (name != "coalesced")


def test_a_cut_thread_leaves_the_next_call_alone() -> None:
    assert launched("one_thread", 1 << 24).cut
    launch = launched("one_thread", 1024)
    assert not launch.cut
    read = access(launch, "reads", "a")
    assert (read.requests, read.lanes, read.lanes_of_all) == (1024, 1024, 32 * 1024)


# Launches -------------------------------------------------------------------------------------------------------------


def test_a_launch_for_each_row() -> None:
    began = time.process_time()
    launch = launched("rows", 64 * 10_000, HOST)
    assert time.process_time() - began < 3
    assert (launch.launches, launch.ran, launch.kernel) == (10_000, 1, "copy")
    read = access(launch, "reads", "from")
    assert (read.file, read.line, read.requests, read.lanes) == ("helper.cuh", 2, 2, 64)


def test_the_first_alike_launches_stand_for_all() -> None:
    launch = launched("shorter", text=HOST)
    assert (launch.launches, launch.ran) == (1000, 1)
    assert access(launch, "reads", "from").lanes == 48  # 64 and 32 in turn


def test_launches_in_turn() -> None:
    launches = traced("pairs", text=HOST).launches
    assert len(launches) == 32
    assert sum(one.launches for one in launches) == 200
    assert [one.threads for one in launches[:4]] == [64, 32, 64, 32]


def test_temporaries_and_operators() -> None:
    trace = traced("temporaries", text=HOST)
    first, second, template, pointer, api = trace.launches
    place = f"student.cu:{line_of(HOST, 'cudaMemsetAsync')}"
    memset, memcpy = trace.operators
    assert (memset.name, memset.place, memset.calls) == ("cudaMemsetAsync", place, 1)
    assert (memset.read_bytes, memset.written_bytes) == (0, 4096)
    assert (memcpy.name, memcpy.read_bytes, memcpy.written_bytes) == ("cudaMemcpyAsync", 4096, 4096)
    assert {(one.name, one.is_of_call) for one in first.tensors} == {("from", False), ("to", False)}
    assert {(one.name, one.is_of_call) for one in second.tensors} == {("from", False), ("to", True)}
    assert (template.kernel, pointer.kernel, api.kernel) == ("add<3>", "add", "add")
    assert {one.tensor for launch in (template, pointer, api) for one in launch.accesses} == {"into", "one"}


def test_large_copies_and_fills_touch_no_memory() -> None:
    with arena(1 << 22) as (file, request):
        assert program.call(kernel_of("filled", HOST), request, [file]).trace is not None
        assert os.fstat(file).st_blocks * 512 < 1 << 20


def test_the_torch_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "student.cu").write_text(TORCH)
    place_runtime(COMPILER, tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    signature = (Parameter("const float*", "x"), Parameter("float*", "y"))
    kernel = program.load(tmp_path / "student.cu", "f", Build(COMPILER, 120.0, None, "sm_90", signature))
    n = 1 << 24
    trace = trace_of(kernel, n)
    first, second = trace.launches
    assert [[(one.name, one.bytes, one.is_of_call) for one in launch.tensors] for launch in trace.launches] == [
        [("from", 4 * n, True), ("to", 4 * n, False)],
        [("from", 4 * n, False), ("to", 4 * n, True)],
    ]
    assert (first.line, second.line, first.kernel) == (9, 10, "scale")
    (zeros,) = trace.operators
    assert (zeros.place, zeros.written_bytes) == ("student.cu:8", 4 * n)


# Ends -----------------------------------------------------------------------------------------------------------------


def test_a_fault_out_of_bounds_ends_the_call() -> None:
    with pytest.raises(LoadError, match=r"writes y\[1024\], 1 past the last"):
        traced("past_the_end")


def test_a_trace_leaves_checks_as_they_were() -> None:
    launched("racing")
    with arena(1024) as (file, request), pytest.raises(LoadError, match="race"):
        program.call(kernel_of("racing"), MakeCalls(request.arena, request.calls, (), 60.0), [file])


# Names ----------------------------------------------------------------------------------------------------------------


def test_parameters_of_kernels() -> None:
    text = (
        "template <class T, int N = (3 > 2)> __global__ void\n"
        "__launch_bounds__(N * 2, 1) one(const T* __restrict__ x, T (&y)[4], int n = 3);\n"
        "__global__ static void other() {}\n__global__ void third(std::pair<int, float> p, const float *q) { f(x); }\n"
    )
    found = parameters(text)
    assert found == {"one": ["x", "y", "n"], "other": [""], "third": ["p", "q"]}


def test_dynamic_shared_variables() -> None:
    assert dynamic_shared("__shared__ float a[3];\nextern __shared__ __align__(16) unsigned char raw[];\n") == ["raw"]
