"""Which of PyTorch's operators and which names in CUDA C++ are forbidden, in whatever words a file says them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from grader.protocol import RanOperator
from grader.verdict.policy import cuda_findings, foreign_operators, included_from
from grader.verdict.sources import ForbiddenUse
from tests.conftest import ROOT


def cuda_uses(sources: Mapping[str, str], forbidden: Sequence[str]) -> list[ForbiddenUse]:
    return cuda_findings(included_from("gelu.cu", sources), "gelu.cu", forbidden)


def test_cuda_files_are_read_without_their_comments() -> None:
    source = (
        "#include <torch/extension.h> // not at::gelu\n/* torch::gelu\n at::gelu */\n"
        'const char* words = "at::gelu";\ntorch::Tensor gelu(torch::Tensor x) { return at::gelu(x, "tanh"); }\n'
    )
    findings = cuda_uses({"gelu.cu": source}, ("at::gelu", "torch::gelu", "cublas"))
    assert [(one.line, one.words) for one in findings] == [(5, "uses at::gelu")]


@pytest.mark.parametrize(
    "line",
    [
        "cub::DeviceReduce::Sum(a, b);",
        "::cub::DeviceReduce::Sum(a, b);",
        "using namespace cub;",
        "cublasSgemm(handle);",
        "return ::at::gelu(x);",
        "return at :: gelu(x);",
        "char c = '\"'; cublasSgemm(handle); c = '\"';",
        "char c = u8'\"'; cublasSgemm(handle); c = '\\'';",
        "int million = 1'000'000, few = 1'0; cublasSgemm(handle); // '",
        'auto s = R"(")"; cublasSgemm(handle); s = R"(")";',
        'auto s = R"x(" )" )x"; cublasSgemm(handle); s = "";',
        '#define FOOR\nauto s = FOOR"("; cublasSgemm(handle); s = ")";',
        'auto s = "\\""; cublasSgemm(handle); s = "\\"";',
        "int n = 1'0;cub::S(1'0);",
        "cublas\\\nSgemm(handle);",
        "cu\\\nbla\\  \nsSge\\\n\\\r\nmm(handle);",
        "return at:\\\n:gelu(x);",
    ],
)
def test_names_of_libraries_are_found(line: str) -> None:
    assert len(cuda_uses({"gelu.cu": f"int n;\n{line}\n"}, ("at::gelu", "cublas", "cub"))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "const float cub = v * v * v;",
        "y = 0.5f * (v + cub);",
        "cub_of(v);",
        "float cubic(float cub);",
        "my::at::gelu(x);",
        'auto s = R"x(")" cublasSgemm(handle); )x";',
        "// all of it \\\ncublasSgemm(handle);",
        "/* cublasSgemm(handle);",
        'auto s = "cublasSgemm(handle);',
    ],
)
def test_a_variable_may_be_called_like_a_library(line: str) -> None:
    assert cuda_uses({"gelu.cu": line}, ("at::gelu", "cublas", "cub")) == []


@pytest.mark.parametrize(
    "use",
    [
        "cublasHandle_t handle;",
        "auto product = cublasSgemm;",
        "namespace fast = cub;",
        "#define LIBRARY cub\nLIBRARY::DeviceReduce::Sum(a, b);",
        "CUB_NS_QUALIFIER::DeviceReduce::Sum(a, b);",
        "#define JOIN(a, b) a##b\nJOIN(cubla, sSgemm)(handle);",
    ],
)
def test_a_library_whose_header_is_included_is_found_under_other_names(use: str) -> None:
    for include in ("#include <cublas_v2.h>\n#include <cub/cub.cuh>", "#define HEADER <x>\n#include HEADER"):
        assert cuda_uses({"gelu.cu": f"{include}\n{use}\n"}, ("cublas", "cub"))


@pytest.mark.parametrize(
    "source",
    [
        "#include <cublas_v2.h>\n#include <cub/cub.cuh>\n#define CUBIC 0.044715f\nconst float cub = v * v * v, cub_of = CUBIC;\n",
        '#include "cubic.cuh"\nfloat y = cubic(x);\n',
        '#include "cublas_like.h"\nfloat y = cubic(x);\n',
    ],
)
def test_a_header_alone_is_no_use(source: str) -> None:
    own = {"cubic.cuh": "inline float cubic(float x) { return x; }", "cublas_like.h": '#include "cubic.cuh"\n'}
    assert cuda_uses({"gelu.cu": source} | own, ("cublas", "cub")) == []


def test_only_files_that_are_included_are_read() -> None:
    product = "void f() { cublasSgemm(handle); }\n"
    others = {"tried/before.cu": product, "parts/a.cuh": '#include "../b.txt"\n', "b.txt": product}
    assert cuda_uses({"gelu.cu": "int n;\n"} | others, ("cublas",)) == []
    named = '#define HEADER "tried/before.cu"\n#include HEADER\n'
    assert len(cuda_uses({"gelu.cu": named} | others, ("cublas",))) == 2  # nobody knows which
    (finding,) = cuda_uses({"gelu.cu": '#include "parts/a.cuh"\n'} | others, ("cublas",))
    assert (finding.file, finding.line) == ("b.txt", 1)


def test_operators_are_plumbing_allowed_or_foreign() -> None:
    ran = [
        RanOperator("empty_like", ""),
        RanOperator("slice_backward", ""),
        RanOperator("select_backward", ""),
        RanOperator("mul", "softmax.py:7"),
        RanOperator("_softmax", "softmax.py:9"),
    ]
    assert foreign_operators(ran, ["mul"]) == [RanOperator("_softmax", "softmax.py:9")]


def test_watching_operators_costs_no_import() -> None:
    """PyTorch would import its compiler with the first operator that a mode sees, which takes seconds."""
    program = (
        "import sys, torch\nfrom pathlib import Path\nfrom grader.worker.operators import OperatorWatch\n"
        "watch = OperatorWatch()\nwith watch:\n    torch.zeros(2) + 1\n"
        "print(sorted(one.name for one in watch.seen), 'torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "['add', 'zeros'] False\n"


@pytest.mark.parametrize(
    "include",
    ["#include <./thrust/transform.h>", "%:include <thrust/transform.h>", "#include <cub/../thrust/transform.h>",
     "#include </usr/local/cuda/include/thrust/transform.h>", "#include_next <thrust/transform.h>"],
)  # fmt: skip
def test_a_librarys_header_is_one_by_whatever_way_it_is_included(include: str) -> None:
    source = f"{include}\nnamespace T = thrust;\nvoid f() {{ T::transform(1); }}\n"
    assert cuda_uses({"gelu.cu": source}, ["thrust"])
