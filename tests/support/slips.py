"""Slips of students, each with the hint of `grader/verdict/hints.toml` that it must get.

    python -m tests.support.slips cpu|compile   make the slips in Triton, and write the worker's words about each as
    JSON

Slips in Triton are made in one process for each way: interpreted, and compiled for a GPU that is not there.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HEAD = "import math\n\nimport numpy as np\nimport torch\nimport triton\nimport triton.language as tl\n"
HEAD += "from triton.language.extra import libdevice\n\nSCALE = 2.0\n"
INDEX = "i = tl.arange(0, BLOCK)"
LOAD = "x = tl.load(x_ptr + i, mask=i < n)"
STORE = "tl.store(y_ptr + i, x, mask=i < n)"
GOOD = (INDEX, LOAD, STORE)
ARGUMENTS = "x_ptr, y_ptr, n, BLOCK: tl.constexpr"
LAUNCH = "twice[(1,)](x, y, x.numel(), BLOCK=64)"
TILE = "x = tl.load(x_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :])"


BOTH = "cpu compile"


class Slip(NamedTuple):
    """A slip. `hint`: its name. `how`: the ways in which it shows (cpu, compile). `source`: the student's file, with
    the function `double`.
    """

    hint: str
    how: str
    source: str


def kernel(
    hint: str, how: str, *lines: str, arguments: str = ARGUMENTS, launch: str = LAUNCH, above: str = "@triton.jit"
) -> Slip:
    body = "".join(f"    {line}\n" for line in lines)
    call = f"def double(x):\n    y = torch.empty_like(x)\n    {launch}\n    return y\n"
    return Slip(hint, how, f"{HEAD}\n{above}\ndef twice({arguments}):\n{body}\n{call}")


def autograd(hint: str, forward: str, backward: str) -> Slip:
    """A torch.autograd.Function of x and a flag, with its gradients."""
    source = f"{HEAD}\nclass Double(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, flag):\n        {forward}\n"
    source += f"        return x * 2\n\n    @staticmethod\n    def backward(ctx, dy):\n        {backward}\n"
    source += "\ndef double(x):\n    y = Double.apply(x.requires_grad_(), True)\n    y.sum().backward()\n    return y\n"
    return Slip(hint, BOTH, source)


def with_line(hint: str, how: str, line: str) -> Slip:
    """A kernel with one line too many between its load and its store."""
    return kernel(hint, how, INDEX, LOAD, line, STORE)


def with_launch(hint: str, how: str, launch: str, above: str = "@triton.jit") -> Slip:
    return kernel(hint, how, *GOOD, launch=launch, above=above)


AUTOTUNE = "@triton.autotune(configs=[triton.Config({'BLOCK': 64})], key=['n'])"
EVEN = "@triton.heuristics({'EVEN': lambda args: args['n'] % args['BLOCK'] == 0})"
TWO_CONFIGURATIONS = AUTOTUNE.replace("configs=[", "configs=[triton.Config({'BLOCK': 32}), ")
TRITON = [
    with_launch("grid-forgotten", BOTH, "twice(x, y, x.numel(), BLOCK=64)"),
    with_launch("grid-forgotten", BOTH, "twice(x, y, x.numel(), BLOCK=64, num_stages=2)"),
    with_launch("grid-is-no-tuple", "cpu", "twice[len(x)](x, y, x.numel(), BLOCK=64)"),
    with_launch("grid-is-no-tuple", "cpu", "twice[(1)](x, y, x.numel(), BLOCK=64)"),
    with_launch("grid-is-no-tuple", "cpu", "twice[lambda meta: triton.cdiv(64, meta['BLOCK'])](x, y, 64, BLOCK=64)"),
    with_launch("grid-with-threads", "cpu", "twice[(1,), 64](x, y, x.numel(), BLOCK=64)"),
    with_launch("grid-with-threads", "cpu", "twice[(1,), (64,)](x, y, x.numel(), BLOCK=64)"),
    with_launch("grid-is-no-integer", "cpu", "twice[(x.numel() / 64,)](x, y, x.numel(), BLOCK=64)"),
    with_launch("meta-key", "cpu", "twice[lambda meta: (triton.cdiv(64, meta['SIZE']),)](x, y, 64, BLOCK=64)"),
    with_launch("heuristic-key", "cpu", "twice[(1,)](x, y, 64)", above=f"{EVEN}\n{AUTOTUNE}\n@triton.jit"),
    with_launch("jit-missing", BOTH, LAUNCH, above=""),
    with_launch("autotune-below-jit", BOTH, "twice[(1,)](x, y, x.numel())", above=f"@triton.jit\n{AUTOTUNE}"),
    with_launch("argument-of-launch-missing", "cpu", "twice[(1,)](x, y, x.numel())"),
    with_launch("argument-of-launch-missing", "cpu", "twice[(1,)](x, y, BLOCK=64)"),
    with_launch("argument-twice", "cpu", "twice[(1,)](x, y, x.numel(), 64, BLOCK=64)"),
    with_launch("argument-twice", "cpu", LAUNCH, above=f"{TWO_CONFIGURATIONS}\n@triton.jit"),
    with_launch("argument-twice", BOTH, LAUNCH, above=f"{AUTOTUNE}\n@triton.jit"),
    with_launch("launch-returns-nothing", BOTH, "y = twice[(1,)](x, y, x.numel(), BLOCK=64) + 1"),
    Slip(
        "notebooks-name", BOTH, f"{HEAD}\ndef double(x):\n    return x\n\nget_ipython().system('pip install triton')\n"
    ),
    Slip("module-absent", BOTH, f"{HEAD}\nimport einx\n\ndef double(x):\n    return x\n"),
    Slip("relative-import", BOTH, f"{HEAD}\nfrom .kernels import twice\n\ndef double(x):\n    return x\n"),
    autograd("gradients-in-number", "pass", "return dy * 2"),
    autograd("gradients-in-number", "pass", "pass"),
    autograd("saved-in-number", "pass", "x, y = ctx.saved_tensors"),
    autograd("saved-in-number", "ctx.save_for_backward(x, x, x)", "x, y = ctx.saved_tensors"),
    Slip("module-level", BOTH, f"{HEAD}\ndef double(x):\n    return x\n\ngraph = torch.cuda.CUDAGraph()\n"),
    with_line("no-tanh", BOTH, "x = tl.math.tanh(x)"),
    with_line("no-tanh", BOTH, "x = tl.tanh(x)"),
    with_line("no-inf", BOTH, "x = tl.where(i < n, x, -tl.inf)"),
    Slip("no-tanh", BOTH, "from triton.language.math import tanh\n"),
    Slip("libdevice-elsewhere", BOTH, "from triton.language import libdevice\n"),
    Slip("no-such-function", BOTH, "from triton.language.math import pow\n"),
    Slip("no-such-function", BOTH, "import triton.ops.blocksparse\n"),
    with_launch("no-such-function", BOTH, "y = triton.empty_like(x)"),
    with_line("no-such-function", BOTH, "x = tl.relu(x)"),
    with_line("no-such-function", BOTH, "y = tl.empty_like(x)"),
    kernel("no-such-function", BOTH, "i = tl.arrange(0, BLOCK)", LOAD, STORE),
    kernel("helper-without-jit", "compile", "double(x_ptr)", *GOOD),
    with_line("torch-in-a-kernel", BOTH, "x = torch.exp(x)"),
    with_line("torch-in-a-kernel", "compile", "x = np.exp(x)"),
    with_line("torch-in-a-kernel", "compile", "x = math.exp(x)"),
    with_line("number-of-a-block", "cpu", "x = math.exp(x)"),
    with_line("number-of-a-block", BOTH, "x = float(x)"),
    with_line("numpy-in-a-kernel", "cpu", "x = np.exp(x)"),
    kernel("no-constexpr", BOTH, "i = tl.arange(0, n)", LOAD, STORE),
    kernel("no-constexpr", BOTH, *GOOD, arguments="x_ptr, y_ptr, n, BLOCK"),
    with_line("no-constexpr", BOTH, "x = tl.zeros((n,), tl.float32)"),
    kernel("power-of-two", BOTH, "i = tl.arange(0, 100)", LOAD, STORE),
    with_line("power-of-two", BOTH, "x = tl.zeros((100,), tl.float32)"),
    kernel("too-large-a-block", BOTH, "i = tl.arange(0, 2097152)", LOAD, STORE),
    with_line("global-variable", BOTH, "x = x * SCALE"),
    with_line("pythons-own-function", BOTH, "x = x / sum(x)"),
    with_line("name-without-a-value", BOTH, "x = x * SCALES"),
    kernel("name-without-a-value", "compile", INDEX, LOAD, "if n > 4:", "    z = x * 2", "x = z", STORE),
    with_line("index-of-a-block", "compile", "x = x[0]"),
    with_line("index-of-a-block", BOTH, "x = x[:4]"),
    with_line("index-of-a-block", BOTH, "x[0] = 1.0"),
    with_line("index-of-a-pointer", "cpu", "x = x[0]"),
    with_line("index-of-a-pointer", BOTH, "x = x_ptr[i]"),
    with_line("outside-of-a-kernel", "compile", "m = triton.next_power_of_2(n)"),
    with_launch("outside-of-a-kernel", BOTH, "y = tl.exp(x)"),
    with_line("no-pointer", BOTH, "x = tl.load(x + i)"),
    with_launch("no-pointer", BOTH, "twice[(1,)](x.stride(0), y, x.numel(), BLOCK=64)"),
    with_launch("no-pointer", BOTH, "twice[(1,)](1.5, y, x.numel(), BLOCK=64)"),
    with_line("one-pointer-for-a-block", BOTH, "tl.store(y_ptr, x)"),
    with_line("other-without-a-mask", BOTH, "x = tl.load(x_ptr + i, other=0.0)"),
    with_line("shapes-differ", BOTH, "x = x + tl.arange(0, 32)"),
    with_line("shapes-differ", BOTH, "x = tl.load(x_ptr + i, mask=tl.arange(0, 32) < n)"),
    kernel("if-on-a-block", BOTH, INDEX, LOAD, "if x > 0:", "    x = x * 2", STORE),
    with_line("if-on-a-block", BOTH, "x = x if x > 0 else 0.0"),
    with_line("chained-comparison", BOTH, "m = 0 <= i < n"),
    with_line("chained-comparison", BOTH, "m = i < n & i > 0"),
    kernel("loop-carried-type", "compile", INDEX, LOAD, "a = 0", "for k in range(0, n):", "    a = a + x", STORE),
    kernel("leaving-a-loop", BOTH, INDEX, LOAD, "for k in range(0, n):", "    if k > 4:", "        break", STORE),
    kernel("not-in-kernels", BOTH, INDEX, LOAD, "try:", "    x = x + 1", "except ValueError:", "    pass", STORE),
    with_line("not-in-kernels", BOTH, "f = lambda a: a + 1"),
    with_line("not-in-kernels", BOTH, "m = n in (1, 2)"),
    kernel("not-in-kernels", BOTH, *GOOD, "for k in range(2):", "    x += 1", "else:", "    x += 1"),
    kernel("leaving-a-loop", BOTH, *GOOD, "for k in range(0, n):", "    if k > 4:", "        return"),
    with_line("libdevice-of-another-type", BOTH, "x = libdevice.tanh(x.to(tl.float16))"),
    kernel("no-lists", BOTH, INDEX, LOAD, "parts = []", "parts.append(x)", STORE),
    with_line("no-lists", BOTH, "parts = [x for _ in range(3)]"),
    with_line("print-text-first", "compile", "print('x', x, 'n', n)"),
    with_line("print-text-first", "compile", "print(x)"),
    with_line("print-text-first", "compile", "print('x', x.shape)"),
    with_line("print-text-first", "compile", "print('n = %d' % n)"),
    with_line("print-text-first", "compile", "print('x', x, sep=' ')"),
    with_line("print-text-first", BOTH, "tl.device_print(x)"),
    with_line("print-text-first", BOTH, "tl.device_print('x', x, 'n', n)"),
    with_line("torch-dtype", BOTH, "x = x.to(torch.float32)"),
    with_line("torch-dtype", BOTH, "x = x + tl.zeros((BLOCK,), dtype=torch.float32)"),
    with_launch("argument-of-no-type", BOTH, "twice[(1,)](x, y, x.shape, BLOCK=64)"),
    with_launch("argument-of-no-type", BOTH, "twice[(1,)](x, y, None, BLOCK=64)"),
    with_launch("argument-of-no-type", BOTH, "twice[(1,)](x.numpy(), y, x.numel(), BLOCK=64)"),
    with_launch("argument-of-no-type", BOTH, "twice[(1,)]([1.0], y, x.numel(), BLOCK=64)"),
    with_line("block-is-no-tensor", BOTH, "m = x_ptr.stride(0)"),
    with_line("block-is-no-tensor", BOTH, "m = x.transpose()"),
    with_line("block-is-no-tensor", BOTH, "m = len(x)"),
    kernel("method-of-a-one", BOTH, *GOOD, "m = n.to(tl.int64)", launch="twice[(1,)](x, y, x.stride(0), BLOCK=64)"),
    with_line("shape-of-a-pointer", BOTH, "m = x_ptr.shape[0]"),
    with_line("shape-of-a-pointer", BOTH, "m = x_ptr.numel()"),
    with_line("axis-of-two-values", BOTH, "x = tl.max(x, 0.0)"),
    with_line("axis-of-two-values", BOTH, "x = tl.max(x, x)"),
    with_line("axis-of-two-values", BOTH, "x = tl.max(x, tl.max(x, axis=0))"),
    with_launch("outside-of-a-kernel", BOTH, "y = tl.max(x, 0)"),
    with_launch("outside-of-a-kernel", "cpu", "twice[lambda meta: (tl.cdiv(64, meta['BLOCK']),)](x, y, 64, BLOCK=64)"),
    with_launch("outside-of-a-kernel", BOTH, "twice[(tl.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)"),
    with_line("axis-out-of-range", BOTH, "x = x - tl.max(x, axis=1)"),
    with_line("axis-is-called-dim", BOTH, "x = x - tl.sum(x, dim=0)"),
    with_line("program-id", BOTH, "m = tl.program_id()"),
    with_line("program-id", BOTH, "m = tl.program_id(3)"),
    with_line("zeros-without-dtype", BOTH, "a = tl.zeros((BLOCK,))"),
    with_line("argument-of-tl-missing", BOTH, "tl.store(y_ptr + i)"),
    with_line("argument-of-tl-missing", BOTH, "x = tl.where(x > 0)"),
    with_line("too-many-arguments", BOTH, "i = tl.arange(0, BLOCK, 2)"),
    with_line("float32-wanted", BOTH, "x = tl.exp(i)"),
    with_line("float32-wanted", BOTH, "x = tl.sqrt(x.to(tl.float16))"),
    with_launch("pointer-for-a-number", BOTH, "twice[(1,)](x, y, torch.tensor(64), BLOCK=64)"),
    with_line("libdevice-elsewhere", BOTH, "x = tl.libdevice.tanh(x)"),
    with_line("libdevice-elsewhere", BOTH, "x = tl.math.libdevice.tanh(x)"),
    with_line("no-power", BOTH, "x = x ** 2"),
    with_line("operator-of-integers", BOTH, "x = x // 2"),
    kernel("dot-of-small-tiles", "compile", "a = tl.zeros((4, 4), tl.float32)", "b = tl.dot(a, a)", *GOOD),
    kernel("dot-of-unlike-shapes", BOTH, TILE, "x = tl.dot(x, tl.zeros((32, 16), tl.float32))"),
    kernel("dot-of-unlike-shapes", BOTH, INDEX, LOAD, "x = tl.dot(x, x)"),
    kernel("dot-of-unlike-dtypes", BOTH, TILE, "x = tl.dot(x, x.to(tl.float16))"),
    kernel("no-matmul-operator", BOTH, TILE, "x = x @ x"),
]

CUDA_HEAD = "#include <cuda_runtime.h>\n#include <cstdint>\n"
COPY = (
    "__global__ void k(const float* x, float* y, int64_t n) { int64_t i = blockIdx.x * (int64_t)blockDim.x + "
    "threadIdx.x; if (i < n) y[i] = x[i]; }\n"
)


def entry(body: str) -> str:
    return f'extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t stream) {{\n    {body}\n}}\n'


def body(line: str, above: str = "") -> str:
    """A file whose kernel has this line; element i is its own."""
    start = "    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n"
    return (
        f"{CUDA_HEAD}{above}__global__ void k(const float* x, float* y, int64_t n) {{\n{start}    {line}\n}}\n"
        + entry("k<<<1, 32, 0, stream>>>(x, y, n);")
    )


def host(line: str, above: str = "") -> str:
    """A file whose gelu() has this line."""
    return f"{CUDA_HEAD}{above}{COPY}{entry(line)}"


HOST_FUNCTION = "float f(float v) { return v; }\n"
DEVICE_COPY = "__global__ void q(float* x, float* y, int64_t n) { y[0] = x[0]; }\n"
CUDA = [
    ("host-function", body("y[i] = f(x[i]);", HOST_FUNCTION)),
    ("host-function", body("std::vector<float> v(3); y[i] = v[0];", "#include <vector>\n")),
    ("host-function", body("y[i] = std::max(x[i], 0.0f);", "#include <algorithm>\n")),
    ("kernel-returns", f"{CUDA_HEAD}__global__ int q(const float* x) {{ return 1; }}\n{entry('q<<<1, 1>>>(x);')}"),
    ("return-in-a-kernel", body("return x[i];")),
    ("constant-written", body("x[i] = 1.0f;")),
    ("const-lost", host("q<<<1, 32, 0, stream>>>(x, y, n);", DEVICE_COPY)),
    ("const-cast-away", body("float4 v = reinterpret_cast<float4*>(x)[i]; y[i] = v.x;")),
    ("stream-in-third-place", host("k<<<1, 32, stream>>>(x, y, n);")),
    ("launch-forgotten", host("k(x, y, n);")),
    ("global-missing", host("q<<<1, 32, 0, stream>>>(x, y, n);", "void q(const float* x, float* y, int64_t n) {}\n")),
    ("launch-brackets", host("k<<1, 32, 0, stream>>(x, y, n);")),
    ("launch-brackets", host("k<<<1, 32, 0, stream>>(x, y, n);")),
    ("arguments-in-number", host("k<<<1, 32, 0, stream>>>(x, y);")),
    ("arguments-in-number", body("y[i] = fmaxf(x[i]);")),
    ("no-such-overload", host("float* d; cudaMalloc(&d); k<<<1, 32, 0, stream>>>(x, d, n);")),
    ("mixed-overload", body("y[i] = max(x[i], 0);")),
    (
        "overload-of-a-half",
        body("y[i] = tanh(__float2half(x[i]));").replace("#include", "#include <cuda_fp16.h>\n#include", 1),
    ),
    ("void-pointer", host("float* d = malloc(n); k<<<1, 32, 0, stream>>>(x, d, n);")),
    ("arguments-in-order", host("k<<<1, 32, 0, stream>>>(x, n, y);")),
    ("shared-size", body("__shared__ float s[n]; s[0] = x[i]; y[i] = s[0];")),
    ("shared-size", body("__shared__ float s[blockDim.x]; s[0] = x[i]; y[i] = s[0];")),
    ("shared-initialised", body("__shared__ float s[32] = {0}; y[i] = s[0];")),
    ("shared-too-large", body("__shared__ float s[65536]; s[i] = x[i]; __syncthreads(); y[i] = s[i ^ 1];")),
    ("half-header", body("half h = x[i]; y[i] = h;")),
    ("half-header", body("y[i] = __bfloat162float(x[i]);")),
    (
        "stream-not-declared",
        host("").replace(", cudaStream_t stream) {\n", ") {\n    k<<<1, 32, 0, stream>>>(x, y, n);"),
    ),
    ("name-unknown", body("y[idx] = x[i];")),
    ("name-unknown", body("y[i] = Tanhf(x[i]);")),
    ("vector-of-a-float", body("float4 v = x[i]; y[i] = v.x;")),
    ("no-operator", body("float4 v = reinterpret_cast<const float4*>(x)[i]; v = v + v; y[i] = v.x;")),
    ("operator-wants-integers", body("y[i] = x[i] % 2;")),
    ("operator-wants-integers", body("y[i] = x[i] ^ 3;")),
    ("declared-twice", body("int i = 0; y[i] = x[i];")),
    ("template-in-extern-c", f'{CUDA_HEAD}extern "C" {{ template <typename T> __global__ void q(const T* x) {{}} }}\n'),
    ("brace-missing", body("if (i < n) { y[i] = x[i];")),
    ("brace-missing", host("if (n == 0) { return;")),
    (
        "type-missing",
        f"{CUDA_HEAD}{COPY}extern C void gelu(const float* x, float* y, int64_t n, cudaStream_t s) {{}}\n",
    ),
    ("torch-header", f"{CUDA_HEAD}torch::Tensor gelu(torch::Tensor x) {{ return x; }}\n"),
    ("header-missing", f'#include "helper.cuh"\n{host("")}'),
    ("semicolon", body("y[i] = x[i]")),
    ("not-c", body("if (i < n and i > 0): y[i] = x[i];")),
    ("not-c", host("dim3 g((n + 255) / 256; k<<<g, 256, 0, stream>>>(x, y, n);")),
]


def make_those_of_triton(how: str) -> None:
    """Write the worker's description of each slip that shows in this way; null for a slip that raises nothing."""
    from grader.gpu_table import GPUS
    from grader.worker import absent_gpu, errors, load, operators, triton_cpu

    compiler = None
    if how == "cpu":
        triton_cpu.provide()
    else:
        from grader.worker.absent_gpu.compiling import Compiler

        compiler = Compiler()
    absent_gpu.provide(GPUS["H200"])
    import torch

    told: list[object] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, slip in enumerate(one for one in TRITON if how in one.how.split()):
            file = Path(folder, str(number), "softmax.py")
            file.parent.mkdir()
            file.write_text(slip.source, encoding="utf-8")
            if compiler is not None:
                compiler.failures = []
            try:
                with operators.in_contexts(), contextlib.redirect_stdout(sys.stderr):  # as in a worker
                    load.load(file, "double", None).function(torch.ones(256))
                told.append(None)
            except Exception as error:
                failures = compiler.failures if compiler is not None else []
                told.append(vars(failures[-1][2] if failures else errors.describe(error)))
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    if sys.argv[1] == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    make_those_of_triton(sys.argv[1])
