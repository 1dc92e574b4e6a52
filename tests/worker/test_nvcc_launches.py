"""What nvcc makes of a student's file tells a launch that CUDA refuses in the words of the CPU's CUDA. Needs nvcc, and no GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest

from grader.worker import load, nvcc
from tests.worker.test_cuda_cpu import REFUSED

NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")

HEADER = """
template <int WIDTH> __global__ void tiled(float* y) {}
inline void launch_tiled(float* y, int blocks, cudaStream_t stream) {
    tiled<4><<<blocks, 64, 0, stream>>>(y);
}
"""
SOURCE = """#include "tiles.cuh"
__global__ void plain(float* y) {}
namespace { __global__ void hidden(float* y) {} }
extern "C" void in_a_header(float* y, int n) { launch_tiled(y, n / 64, 0); }
extern "C" void second_of_two(float* y, int n) {
    plain<<<1, 32>>>(y);
    hidden<<<n, 32>>>(y);
    plain<<<1, 32>>>(y);
}
extern "C" void fits(float* y, int n) { plain<<<n + 1, 1024>>>(y); }
__global__ void k(float* y) {}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, Path]:
    folder = tmp_path_factory.mktemp("built")
    launches = "".join(
        f'#line 6\nextern "C" void refused_{at}(float* y, int) {{\nk<<<{launch}>>>(y); }}\n' for at, launch in enumerate(REFUSED)
    )  # fmt: skip
    (folder / "tiles.cuh").write_text(HEADER)
    (folder / "gelu.cu").write_text(SOURCE + launches)
    assert NVCC is not None
    nvcc.build_library(folder / "gelu.cu", load.LAUNCHES, NVCC, "sm_90", folder / "gelu.so", 300)
    return ctypes.CDLL(str(folder / "gelu.so")), folder / "gelu.cu"


def told(built: tuple[ctypes.CDLL, Path], name: str, error: bytes = b"cudaErrorInvalidValue") -> str:
    library, path = built
    getattr(library, name)(None, ctypes.c_int(0))
    return load.refused_launch(library, path, error)


@pytest.mark.parametrize("launch", REFUSED)
def test_a_refused_launch_has_the_cpus_words(built: tuple[ctypes.CDLL, Path], launch: str) -> None:
    words = told(built, f"refused_{list(REFUSED).index(launch)}")
    assert words == re.sub(r"^\w+", "", REFUSED[launch])
    assert load.refused_launch(*built, b"cudaErrorInvalidValue") == "", "told once, as cudaGetLastError does"


def test_a_launch_in_a_header_and_one_of_several_have_their_own_lines(built: tuple[ctypes.CDLL, Path]) -> None:
    assert told(built, "in_a_header").startswith(": line 4 of tiles.cuh launches tiled<4> with 0 blocks of 64 threads;")
    assert told(built, "second_of_two").startswith(": line 7 launches hidden with 0 blocks of 32 threads;")


def test_a_launch_that_fits_is_not_accused(built: tuple[ctypes.CDLL, Path]) -> None:
    assert told(built, "fits") == ""


def test_an_error_of_another_kind_is_not_put_on_a_launch(built: tuple[ctypes.CDLL, Path]) -> None:
    assert told(built, "refused_0", b"cudaErrorIllegalAddress") == ""


def test_every_kernel_is_known_before_its_first_launch(built: tuple[ctypes.CDLL, Path]) -> None:
    assert built[0].grader_load_kernels() == 4, "plain, hidden, k and tiled<4>"


def test_without_binutils_the_numbers_are_told(
    built: tuple[ctypes.CDLL, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        told(built, "refused_0")
        == ": line ? launches a kernel with 0 blocks of 256 threads; a grid needs at least 1 block"
    )
