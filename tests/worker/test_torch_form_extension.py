"""On a GPU the torch form is built with the few headers of PyTorch's that it needs; with its own where those do not do."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
from torch.utils import cpp_extension

from grader.judge.environment import find_compiler
from grader.protocol import Parameter
from grader.worker import load, torch_form
from grader.worker.errors import LoadError
from grader.worker.signature import Signature
from tests.conftest import ROOT

COMPILER = find_compiler("cpu") or ""
if not COMPILER:
    pytest.skip("needs g++ or clang++", allow_module_level=True)

SIGNATURE = Signature((Parameter("const float*", "x"), Parameter("float*", "y")), lambda _: 0)
FORMS = {path.parent.name: path for path in sorted((ROOT / "tests/corpora").glob("*/cuda_gelu/torch_form*/gelu.cu"))}
PYTHON = [f"-I{sysconfig.get_path('include')}"]
NARROW, OWN = "narrow_gelu", "submission_gelu"
# A module without PyTorch, and what g++ is told in place of CUDA's and c10's headers.
MODULE = """#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "%(name)s"};
PyMODINIT_FUNC PyInit_%(name)s() { return PyModule_Create(&module); }
"""
HOST = """
#include <ATen/ceil_div.h>
#include <c10/util/Load.h>
#define C10_LAUNCH_BOUNDS_1(most)
#define C10_WARP_SIZE 32
#define __global__
#define __device__
#define __forceinline__ inline
#define AT_CUDA_CHECK(x) (void)(x)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0
struct dim3 { unsigned x, y = 1, z = 1; } static blockIdx{0}, blockDim{1}, threadIdx{0};
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int cudaGetLastError() { return 0; }
namespace at { template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict; }; }
namespace c10::cuda {
struct Stream { void* stream() const { return nullptr; } };
inline Stream getCurrentCUDAStream(int = 0) { return {}; }
struct OptionalCUDAGuard { OptionalCUDAGuard(std::optional<c10::Device>) {} };
}
namespace c10::cuda::compat { using std::tanh; }
namespace at::cuda { using namespace c10::cuda; }
"""


class Builder:
    """Builds modules in place of PyTorch. `refused`: the names that it fails to build, with an error in `file`."""

    def __init__(self, *refused: str, file: str = "gelu.cu") -> None:
        self.refused, self.asked, self.file = refused, list[str](), file

    def __call__(self, name: str, sources: list[str], folder: str, headers: str) -> ModuleType:
        self.asked.append(name)
        assert all(Path(one).parent == Path(folder) for one in sources)
        if name in self.refused:
            raise RuntimeError(f'{Path(headers, self.file)}(3): error: identifier "{name}" is undefined')
        source, library = Path(folder, "module.cpp"), Path(folder, f"{name}.so")
        source.write_text(MODULE % {"name": name})
        subprocess.run([COMPILER, *PYTHON, "-shared", "-fPIC", "-o", library, source], check=True)
        module = ModuleType(name)
        module.__file__ = str(library)
        return module


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("GRADER_BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "")
    for name in ("scratch", "submission"):
        (tmp_path / name).mkdir()
    (tmp_path / "submission" / "gelu.cu").write_text(FORMS["torch_form"].read_text())
    return tmp_path / "submission" / "gelu.cu"


def build(source: Path, builder: Builder, worker: str, arch: str = "9.0") -> str:
    """The name of the module that a worker gets, which has a scratch folder of its own."""
    with pytest.MonkeyPatch.context() as environment:
        scratch = source.parent.parent / "scratch" / worker
        scratch.mkdir()
        environment.setenv("TMPDIR", str(scratch))
        return load.torch_extension(source, "gelu", SIGNATURE, arch, builder).__name__


def test_the_narrow_build_is_tried_first_and_kept(source: Path) -> None:
    builder = Builder()
    assert [build(source, builder, worker) for worker in "ab"] == [NARROW, NARROW]
    assert builder.asked == [NARROW]
    assert build(source, builder, "c", "8.0") == NARROW
    assert builder.asked == [NARROW, NARROW]


def test_what_fails_narrowly_is_built_with_its_own_headers(source: Path) -> None:
    """And kept: the next worker builds nothing."""
    builder = Builder(NARROW)
    assert [build(source, builder, worker) for worker in "ab"] == [OWN, OWN]
    assert builder.asked == [NARROW, OWN]


def test_the_words_of_the_build_with_its_own_headers_count(source: Path) -> None:
    with pytest.raises(LoadError, match=OWN) as caught:
        build(source, Builder(NARROW, OWN), "a")
    assert (caught.value.kind, NARROW in str(caught.value)) == ("build_failed", False)


@pytest.mark.parametrize(("file", "blamed"), [("mine/math.cuh", "submission"), ("/usr/include/math.h", "toolchain")])
def test_an_error_in_a_header_of_the_submission_is_its_own(source: Path, file: str, blamed: str) -> None:
    (source.parent / "mine").mkdir()
    (source.parent / "mine" / "math.cuh").touch()
    with pytest.raises(LoadError, match=rf"^{re.escape(file)}\(3\): error") as caught:
        build(source, Builder(NARROW, OWN, file=file), "a")
    assert caught.value.raised_by == blamed


def test_no_build_is_tried_narrowly_that_would_compute_something_else_or_save_nothing(source: Path) -> None:
    for text in (
        "#include <torch/extension.h>\nauto y = torch::empty({1}, torch::requires_grad());",
        "#include <torch/extension.h>\nauto y = torch::empty({1}, options.requires_grad( true ));",
        "#include <ATen/core/Tensor.h>\n",
        '#include "mine/torch/extension.h"\n',
    ):
        source.write_text(text)
        assert [one.name for one in torch_form.extensions(source, "gelu", SIGNATURE)] == [OWN]
    source.write_text('#include "torch/extension.h"\nauto y = torch::empty({1}, options.requires_grad( false ));')
    assert [one.name for one in torch_form.extensions(source, "gelu", SIGNATURE)] == [NARROW, OWN]


@pytest.mark.parametrize("form", FORMS)
def test_the_lines_of_a_file_stay_where_they_are(form: str) -> None:
    narrow, own = torch_form.extensions(FORMS[form], "gelu", SIGNATURE)
    assert own.texts["gelu.cu"] == f'#line 1 "gelu.cu"\n{FORMS[form].read_text()}'
    assert ("binding.cpp" in own.texts) == bool(torch_form.binding(FORMS[form].read_text(), "gelu", SIGNATURE))
    lines = [text.partition("#line 1")[2].split("\n") for text in (narrow.texts["gelu.cu"], own.texts["gelu.cu"])]
    changed = [before for after, before in zip(*lines, strict=True) if after != before]
    assert changed
    assert all(torch_form.HEADER.match(line) for line in changed)


@pytest.mark.grading
@pytest.mark.parametrize("binds", [False, True])
def test_the_narrow_headers_have_what_the_corpus_uses(tmp_path: Path, binds: bool) -> None:
    """By g++, in one unit; kernels are called as functions."""
    texts = {
        (form, name): text
        for form, path in FORMS.items()
        for name, text in torch_form.extensions(path, "gelu", SIGNATURE)[0].texts.items()
    }
    unit = f'{"#define TORCH_NARROW_BINDS" * binds}\n#include "{torch_form.NARROW}"\n{HOST}'
    for (form, name), text in texts.items():
        if ("TORCH_NARROW_BINDS" in text) == binds:
            body = re.sub(r"#(include|line|define TORCH_NARROW).*|<<<[^;]*?>>>", "", text)
            body = body.replace("TORCH_EXTENSION_NAME", form).replace("gelu", f"gelu_{form}_{name[:4]}")
            unit += body.replace("kThreads", f"kThreads_{form}")
    (tmp_path / "unit.cpp").write_text(unit)
    include = [f"-isystem{one}" for one in cpp_extension.include_paths()]
    command = [COMPILER, "-std=c++20", "-fsyntax-only", *include, *PYTHON, "unit.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
