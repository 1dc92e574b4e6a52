"""The words of nvcc, ptxas and the linker, as the student should read them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.nvidia import find_nvcc
from grader.worker import nvcc
from grader.worker.entries import undefined
from grader.worker.load import LAUNCHES

DECLARED = """\
#include <cuda_runtime.h>
__device__ float part(float v);
namespace a { template <int N> __global__ void kernel(float* y); }
"""
SENTENCE = (
    "error: {} is declared and nowhere defined: its body must stand in student.cu or in a header that is included there"
)
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "student.cu").write_text(DECLARED)
    return tmp_path / "student.cu"


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="needs c++filt")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ptxas fatal   : Unresolved extern function '_Z4partf'\n", f"student.cu:2: {SENTENCE.format('part')}"),
        ("/tmp/student-7.so: undefined symbol: _Z4partf", f"student.cu:2: {SENTENCE.format('part')}"),
        (
            "student.cudafe1.cpp:(.text+0x62): undefined reference to `void a::kernel<4>(float*)'\n",
            f"student.cu:3: {SENTENCE.format('a::kernel')}",
        ),
        ("/tmp/student-7.so: undefined symbol: _Z5otherf", f"student.cu: {SENTENCE.format('other')}"),
        ('student.cu(3): error: identifier "part" is undefined\n', ""),
    ],
    ids=["ptxas", "loader", "linker", "declared elsewhere", "another error"],
)
def test_a_function_without_a_body_is_told_in_one_form(source: Path, said: str, words: str) -> None:
    assert undefined(said, source) == words


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ("ptxas fatal   : Unresolved extern function '_Z4partf'\n", True),
        ("ptxas error   : Entry function 'k' uses too much shared data\n", True),
        ("ptxas fatal   : Value 'sm_90' is not defined for option 'gpu-name'\n", False),
        ('At end of source: error: expected a "}"\nstudent.cu(3): note #3196-D: to match this "{"\n', True),
        ("nvcc fatal   : Could not open output file\n", False),
    ],
)
def test_a_student_is_blamed_for_their_code_alone(source: Path, said: str, blamed: bool) -> None:
    assert nvcc.blames(said, source.parent) == blamed


@needs_nvcc
def test_nvcc_refuses_a_function_without_a_body(source: Path, tmp_path: Path) -> None:
    compiler = find_nvcc()
    assert compiler is not None
    source.write_text(f"{DECLARED}__global__ void k(float* y) {{ y[0] = part(1); }}\n")
    with pytest.raises(nvcc.CompileError, match=r"^student\.cu:2: error: part is declared and nowhere defined"):
        nvcc.build_library(source, LAUNCHES, compiler, "sm_90", tmp_path / "student.so", 120.0)


@needs_nvcc
def test_a_library_is_built_with_the_words_about_its_doubles(source: Path, tmp_path: Path) -> None:
    compiler = find_nvcc()
    assert compiler is not None
    source.write_text("__global__ void k(float* y) {\n  y[0] = 0.1 * y[1];\n}\n")
    told, warnings = nvcc.build_library(source, LAUNCHES, compiler, "sm_90", tmp_path / "student.so", 120.0)
    assert told.startswith("computed in double: student.cu:2: 0.1\nptxas info")
    assert warnings == ""
    assert (tmp_path / "student.so").exists()
