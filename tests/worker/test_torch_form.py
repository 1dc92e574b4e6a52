"""A `.cu` file that takes PyTorch's tensors runs on the CPU's CUDA; what it does wrong, or cannot do there, is told with its line."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from grader.judge.environment import find_compiler
from grader.protocol import Build, Parameter, Returned
from grader.worker.cuda_cpu import program
from grader.worker.cuda_cpu.build import Library, compile_library
from grader.worker.cuda_cpu.windows import Floats
from grader.worker.errors import LoadError
from grader.worker.signature import Signature
from grader.worker.torch_form import binding, is_torch_form
from tests.support.cpu_runtime import place_runtime

pytestmark = pytest.mark.grading

COMPILER = find_compiler("cpu") or ""
if not COMPILER:
    pytest.skip("needs g++ or clang++", allow_module_level=True)

SIGNATURE = (Parameter("const float*", "x"), Parameter("float", "alpha"), Parameter("float*", "y"))
HEAD = """#include <torch/extension.h>
__global__ void scale(const float* x, float* y, float alpha, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i];
}
"""
ENTRY = "torch::Tensor f(torch::Tensor x, double alpha) {\n%s\n}\n"  # its body is line 7
NEW = "auto y = torch::empty_like(x);"
GIVEN = "(x.data_ptr<float>(), y.data_ptr<float>(), alpha, x.numel());"
ALL = f"scale<<<(x.numel() + 63) / 64, 64>>>{GIVEN} return y;"
HELPERS = f"""
__global__ void rows(torch::PackedTensorAccessor32<float, 2> x, torch::PackedTensorAccessor32<float, 2> y, float a) {{
    if (threadIdx.x < x.size(1)) y[blockIdx.x][threadIdx.x] = a * x[blockIdx.x][threadIdx.x];
}}
template <class T> __global__ void any(const T* x, T* y, T a, int64_t n) {{
    int64_t i = threadIdx.x;
    if (i < n) y[i] = a * x[i];
}}
C10_LAUNCH_BOUNDS_1(2 * C10_WARP_SIZE) __global__ void bounded(const float* x, float* y, float a, int64_t n) {{
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = c10::cuda::compat::max(0.0f, a) * c10::load(x + i);
}}
#define DISPATCH(type, name, ...) \\
    AT_DISPATCH_SWITCH(type, name, AT_DISPATCH_CASE(at::ScalarType::Half, __VA_ARGS__) AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
torch::Tensor helper(at::Tensor x, float alpha) {{ {NEW} {ALL} }}
TORCH_LIBRARY(lab, m) {{ m.def("helper(Tensor x, float alpha) -> Tensor"); }}
TORCH_LIBRARY_IMPL(lab, CUDA, m) {{ m.impl("helper", &helper); }}
"""
RIGHT = {
    "plain": f"{NEW} {ALL}",
    "by options": f"auto y = at::zeros({{x.size(0), x.size(-1)}}, x.options()); {ALL}",
    "a view": f"auto y = torch::empty({{x.numel()}}, x.options()); {ALL.replace('return y', 'return y.view_as(x)')}",
    "a function of its own": "return helper(x, alpha);",
    "accessors of two axes": f"{NEW} rows<<<x.size(0), 64>>>(x.packed_accessor32<float, 2>(), y.packed_accessor32<float, 2>(), alpha); return y;",
    "a dispatch": f'{NEW} AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "any", [&] {{ '
    "any<scalar_t><<<1, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), scalar_t(alpha), x.numel()); }); "
    "C10_CUDA_KERNEL_LAUNCH_CHECK(); return y;",
    "cases of a dispatch": f'{NEW} DISPATCH(x.scalar_type(), "any", [&] {{ '
    "any<scalar_t><<<1, 128>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), scalar_t(alpha), x.numel()); }); return y;",
    "bounds of PyTorch's": f"{NEW} bounded<<<2, 64>>>{GIVEN} return y;",
    "PyTorch's helpers": "torch::NoGradGuard no_gradients; using T = at::opmath_type<at::Half>; auto y = x.new_empty(x.sizes()); y = at::empty_like(y, at::MemoryFormat::Contiguous); "
    f"any<T><<<at::ceil_div(x.numel(), int64_t(128)), 128>>>{GIVEN.replace('alpha', 'T(alpha)')} return y;",
    "a check that prints": f"{NEW} if (x.options().dtype() != torch::kFloat32) std::cout << x.options() << std::endl; {ALL}",
    "a stream and a guard": f"{NEW} const at::cuda::CUDAGuard guard(x.device()); auto stream = at::cuda::getCurrentCUDAStream(); "
    f"scale<<<2, 64, 0, stream>>>{GIVEN} C10_CUDA_CHECK(cudaGetLastError()); return y;",
}
WRONG = {
    'TORCH_CHECK(x.dim() == 3, "f: three axes, not ", x.dim(), " of ", x.sizes()); return x;': r"f: three axes, not 2 of \[7, 11\]",
    "TORCH_CHECK(x.is_cpu()); return x;": r"RuntimeError: Expected x\.is_cpu\(\) to be true",
    "return x.view({3, -1, 5});": r"shape '\[3, -1, 5\]' is invalid for input of size 77",
    "x.data_ptr<double>(); return x;": "expected scalar type Double but found Float",
    'throw std::invalid_argument("no");': "RuntimeError: no",
    f"{NEW} scale<<<1, 2048>>>{GIVEN} C10_CUDA_KERNEL_LAUNCH_CHECK(); return y;": "the launch failed: cudaErrorInvalidConfiguration: line {line} launches scale",
    f"{NEW} scale<<<1, 128>>>{GIVEN.replace('x.numel()', '78')} return y;": r"reads x\[77\], 1 past the last of its 77 elements \(line 4\): consistent with a missing",
    f"{NEW} bounded<<<1, 96>>>{GIVEN} return y;": "launches bounded with 96 threads in a block; its __launch_bounds__ allow 64",
    'AT_DISPATCH_SWITCH(x.scalar_type(), "g", AT_DISPATCH_CASE(at::kDouble, [&] {})); return x;': "\"g\" not implemented for 'Float'",
    f"auto y = torch::empty({{4}}, x.options()); {ALL}": r"writes the new tensor\[4\], 1 past the last of its 4 elements \(line 4\)",
    f"{NEW} {ALL.replace('x.data', 'y.data')}": r"unwritten memory: .* reads the new tensor\[0\] in line 4",
    f"auto y = torch::empty(x.sizes()); {ALL}": r"host memory: .* writes the new tensor\[0\] in line 4, which lies in the host's memory",
    "return x.data_ptr<float>()[3] > 0 ? torch::Tensor() : x;": "host access: the host's code reads x in line {line}",
    "return x.to(torch::kDouble);": "needs a GPU: a conversion to another type or device",
}
RETURNED = {
    "return torch::empty({7}, x.options());": Returned("tensor", "Tensor", "float32", (7,), "cpu"),
    "return torch::empty({7, 11}, x.options().dtype(torch::kFloat64));": Returned(
        "tensor", "Tensor", "float64", (7, 11), "cpu"
    ),
    "return torch::zeros({7, 11});": Returned("tensor", "Tensor", "float32", (7, 11), "the host"),
    "return x;": Returned("input", "Tensor", "float32", (7, 11), "cpu"),
    "return torch::Tensor();": Returned("other", "NoneType", "float32", (), "the host"),
}
HALF = f"{NEW} scale<<<1, 64>>>{GIVEN} return y;"
BODIES = [*RIGHT.values(), *WRONG, *RETURNED, HALF]


@functools.cache
def library() -> Library:
    """One file with all bodies, a line each, bound as f0, f1, …"""
    folder = Path(tempfile.mkdtemp())
    place_runtime(COMPILER, folder)
    functions = "".join(
        f"torch::Tensor g{i}(torch::Tensor x, double alpha) {{ {body} }}\n" for i, body in enumerate(BODIES)
    )
    named = "".join(
        f'  m.def("f{i}", &g{i}, "scales", py::arg("x"), py::arg("alpha") = 1.0);\n' for i in range(1, len(BODIES))
    )
    first = '  m.def("f0", [](const torch::Tensor& x, float a) { return g0(x, a); });\n'
    bound = f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{first}{named}}}\n"
    (folder / "f.cu").write_text(HEAD + HELPERS + functions + bound)
    return compile_library(folder / "f.cu", folder, COMPILER, 60.0)


def kernel_of(body: str) -> program.TorchForm:
    signature = Signature(SIGNATURE, lambda one: one.address)
    return program.TorchForm(library(), f"f{BODIES.index(body)}", signature, "", library().path.parent)


def line_of(body: str) -> int:
    return (HEAD + HELPERS).count("\n") + 1 + BODIES.index(body)


def call(kernel: program.Kernel, rows: int = 7, columns: int = 11) -> tuple[np.ndarray, np.ndarray]:
    """x, and y after the call; an element that is never written stays NaN."""
    x = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
    y = np.full_like(x, np.nan)
    kernel.call([Floats(x.ctypes.data, x.shape), 3.0, Floats(y.ctypes.data, y.shape)])
    return x, y


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_is_right_on_a_gpu_is_right_here(body: str) -> None:
    kernel = kernel_of(body)
    for rows, columns in ((7, 11), (1, 1)):
        x, y = call(kernel, rows, columns)
        np.testing.assert_array_equal(y, np.float32(3) * x)
        assert kernel.returned() == Returned("written")
    assert kernel.off_stream == []  # PyTorch's current stream is a default stream


@pytest.mark.parametrize("body", WRONG)
def test_what_goes_wrong_in_a_call_is_told(body: str) -> None:
    with pytest.raises(LoadError, match=WRONG[body].replace("{line}", str(line_of(body)))) as caught:
        call(kernel_of(body))
    assert caught.value.kind == ("unsupported" if "needs a GPU" in WRONG[body] else "failed")


@pytest.mark.parametrize("body", RETURNED)
def test_what_comes_back_is_described_for_the_judge(body: str) -> None:
    kernel = kernel_of(body)
    _, y = call(kernel)
    assert kernel.returned() == RETURNED[body]
    assert RETURNED[body].kind == "input" or np.isnan(y).all()


def test_an_element_that_is_never_written_stays_as_it_was() -> None:
    x, y = call(kernel_of(HALF))
    assert np.isnan(y.ravel()[64:]).all()
    np.testing.assert_array_equal(y.ravel()[:64], np.float32(3) * x.ravel()[:64])


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], program.Kernel]:
    """Builds a file that begins with HEAD; its entry is f."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "runtime.o").symlink_to(library().path.with_name("runtime.o"))

    def build(source: str) -> program.Kernel:
        (tmp_path / "f.cu").write_text(HEAD + source)
        return program.load(tmp_path / "f.cu", "f", Build(COMPILER, 60.0, None, "sm_90", SIGNATURE))

    return build


@pytest.mark.parametrize("parameter", ["torch::Tensor x", "const torch::Tensor& x"])
def test_an_entry_that_is_not_bound_is_bound(load: Callable[[str], program.Kernel], parameter: str) -> None:
    x, y = call(load(ENTRY.replace("torch::Tensor x", parameter) % f"{NEW} {ALL}"))
    np.testing.assert_array_equal(y, np.float32(3) * x)


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        (ENTRY % "return at::gelu(x);", "unsupported", "needs a GPU: f.cu, line 7: gelu is not known"),
        (ENTRY % "return x.mul(alpha);", "unsupported", "line 7: mul is not known"),
        (ENTRY % "return torch::empty_like(x, 1, 2, 3, 4);", "unsupported", "line 7: "),
        (ENTRY % "at::some_type<float> a; return x;", "unsupported", "line 7: some_type is not known"),
        (ENTRY % "using T = at::some_type<float>; return x;", "unsupported", "line 7: some_type is not known"),
        (ENTRY % "AT_DISPATCH_V2(x.scalar_type()); return x;", "unsupported", "line 7: AT_DISPATCH_V2"),
        (ENTRY % "retrun x;", "build_failed", r"f.cu:7:\d+: error: .retrun. was not declared"),
        (ENTRY % "return x", "build_failed", "f.cu:7:"),
        ('torch::Tensor g(torch::Tensor x) { return x; }\nPYBIND11_MODULE(NAME, m) { m.def("g", &g); }\n', "failed", "f.cu was built, but binds no function 'f', only g"),
        ("torch::Tensor g(torch::Tensor x, double alpha) { return x; }\n", "build_failed", "f is declared and nowhere defined"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_told_with_its_line(
    load: Callable[[str], program.Kernel], source: str, kind: str, words: str
) -> None:
    with pytest.raises(LoadError, match=words) as caught:
        load(source)
    assert caught.value.kind == kind


def test_a_binding_is_written_for_a_file_without_one() -> None:
    signature = Signature(SIGNATURE, lambda one: one.address)
    assert binding("PYBIND11_MODULE(a, m) {}", "f", signature) == ""
    assert "torch::Tensor f(torch::Tensor x, double alpha);" in binding("torch::Tensor f(torch::Tensor", "f", signature)
    for way in ("const torch::Tensor& x", "const at::Tensor &x", "torch::Tensor const& x"):
        assert "torch::Tensor f(const torch::Tensor& x, double alpha);" in binding(
            f"at::Tensor f({way}", "f", signature
        )


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"gelu.cu": "#include <torch/extension.h>"}, True),
        (
            {
                "gelu.cu": '#include "a.h"',
                "a.h": '#include "b/b.h"',
                "b/b.h": '#include "../a.h"\n#include <ATen/ATen.h>',
            },
            True,
        ),
        ({"gelu.cu": '#include "a.h"', "a.h": '#include "gelu.cu"\n#include "missing.h"', "b.h": HEAD}, False),
        ({"folder/gelu.cu": '#include "../outside.h"', "outside.h": HEAD}, False),
    ],
)
def test_the_form_is_known_by_the_headers_that_are_included(
    tmp_path: Path, files: dict[str, str], expected: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert is_torch_form(tmp_path / next(iter(files))) == expected
