"""Looks at Python, PyTorch, Triton and the compilers."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from grader.doctor.finding import SLOW, Finding, State, Unneeded, ask, broken

Range = tuple[tuple[int, int], tuple[int, int]]
TORCH: Range = ((2, 11), (2, 13))  # the first and the last working version, as in pyproject.toml
TRITON: Range = ((3, 6), (3, 8))
IMPORT_LIMIT_S = 60.0  # from a cold disk
COMPILE_LIMIT_S = 30.0
FUNCTION = 'extern "C" int twice(int x) { return 2 * x; }\n'
PTX = ".version 7.0\n.target sm_80\n.address_size 64\n"
KERNEL = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n"
LARGE = ("torch", "triton", "sympy")  # packages that a worker imports, sympy with the first gradient
PIP = f"{sys.executable} -m pip install"


@dataclass(frozen=True)
class SeenSoftware:
    """Versions and compilers, as a process with PyTorch sees them.

    cuda: the release of CUDA that PyTorch was built for; None is a build for CPUs.
    arch: the architecture of PyTorch's GPU, as `sm_90`; None if PyTorch can use none, and then `gpu_fault` says why.
    triton_fault: why Triton cannot be used; without a GPU, why its interpreter cannot.
    ptxas: path of Triton's assembler; None without Triton.
    nvcc, cxx: paths of the compilers.
    """

    torch: str
    cuda: str | None
    arch: str | None
    gpu_fault: str
    triton: str | None
    triton_fault: str
    ptxas: str | None
    nvcc: str | None
    cxx: str | None


class NoPyTorch(Unneeded):
    """PyTorch cannot be imported, for the reason in `words`: it comes before all that needs it."""

    def __init__(self, words: str) -> None:
        super().__init__("not tried: PyTorch comes first")
        self.words = words


def look() -> SeenSoftware:
    """Import PyTorch in another process, which a broken PyTorch may end. Raises NoPyTorch."""
    done, output, words = ask([sys.executable, "-P", "-m", "grader.doctor.with_torch", "look"], IMPORT_LIMIT_S)
    if not done:
        raise NoPyTorch(words)
    return SeenSoftware(**json.loads(output))


def python(on_gpu: bool) -> Finding:
    words = f"{platform.python_version()}, {sys.executable}"
    if on_gpu and not Path(sysconfig.get_path("include"), "Python.h").exists():
        mend = f"`sudo apt install python{sys.version_info[0]}.{sys.version_info[1]}-dev`"
        return Finding("fault", f"{words}, without its headers, which Triton needs on a GPU", mend)
    bare = {}  # folders of packages that were installed without bytecode, as uv does; workers write none
    for name in LARGE:
        with suppress(PackageNotFoundError):
            folder = Path(str(distribution(name).locate_file(name)))
            if not (folder / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc").exists():
                bare[name] = folder
    if bare:
        words += f"; without bytecode: {', '.join(bare)}, which every grading compiles anew, for seconds"
        folders = " ".join(map(str, bare.values()))
        mend = f"as who may write there: `env -u PYTHONPYCACHEPREFIX {sys.executable} -m compileall -q -j 0 {folders}`"
        return Finding("caution", words, mend)
    return Finding("fine", words)


def findings(looked: Future[SeenSoftware], on_gpu: bool, driver_cuda: int) -> Iterator[Finding]:
    """PyTorch, Triton, C++ compiler and nvcc.

    Args:
        driver_cuda: the newest major release of CUDA that the driver knows; 0 if unknown.
    """
    try:
        seen = looked.result()
    except NoPyTorch as why:
        words = f"{why.words}: it was not looked at" if SLOW.search(why.words) else f"cannot be used: {why.words}"
        yield broken(words, "in the grader's folder: `sh scripts/bootstrap.sh`")
        raise
    yield _within("torch", f"{seen.torch}, {f'CUDA {seen.cuda}' if seen.cuda else 'for CPUs'}", seen.torch, TORCH)
    if seen.triton is None or seen.triton_fault:
        mend = f"`{PIP} 'numpy<2.4'`" if "numpy" in seen.triton_fault else _pip("triton", TRITON)
        yield Finding("fault", seen.triton_fault or "is not installed", mend)
    elif seen.ptxas and (fault := _refusal([seen.ptxas, "-arch=sm_80"], "kernel.ptx", PTX)):
        yield broken(f"{seen.triton}; its {seen.ptxas} cannot assemble: {fault}", _pip("triton", TRITON))
    else:
        yield _within("triton", f"{seen.triton}, {'compiled' if on_gpu else 'interpreted'}", seen.triton, TRITON)
    if seen.cxx is None:
        yield Finding("fault", "neither g++ nor clang++ is installed", "`sudo apt install g++`")
    else:
        yield _compilers(seen.cxx, on_gpu)
    yield _nvcc(seen, on_gpu, driver_cuda)


def _refusal(command: Sequence[str], name: str, source: str) -> str:
    """Why a compiler does not compile a small correct file; "" if it does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(source, encoding="ascii")
        done, _, fault = ask([*command, str(path), "-o", f"{path}.out"], COMPILE_LIMIT_S)
    return "" if done else fault


def _compilers(cxx: str, on_gpu: bool) -> Finding:
    """Try the C++ compiler, and on a GPU the C compiler with which Triton builds its launchers: each builds a library."""
    c = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if on_gpu and c is None:
        return Finding("fault", f"{cxx}; no C compiler, which Triton needs on a GPU", "`sudo apt install gcc`")
    tried = {cxx: "twice.cpp", **({c: "twice.c"} if on_gpu and c is not None else {})}
    for compiler, name in tried.items():
        source = FUNCTION.replace('extern "C" ', "") if name.endswith(".c") else FUNCTION
        if fault := _refusal([compiler, "-shared", "-fPIC"], name, source):
            mend = "`sudo apt install --reinstall g++ gcc binutils`"
            return broken(f"{compiler} cannot build a library: {fault}", mend)
    return Finding("fine", cxx)


def _within(package: str, words: str, version: str, known: Range) -> Finding:
    first, last = known
    if first <= tuple(int(number) for number in re.findall(r"\d+", version)[:2]) <= last:
        return Finding("fine", words)
    words += f": the grader works with {first[0]}.{first[1]} to {last[0]}.{last[1]}"
    return Finding("fault", words, _pip(package, known))


def _pip(package: str, known: Range) -> str:
    (major, minor), (above, last) = known
    return f"`{PIP} '{package}>={major}.{minor},<{above}.{last + 1}'`"


def _nvcc(seen: SeenSoftware, on_gpu: bool, driver_cuda: int) -> Finding:
    """Try nvcc on a small kernel."""
    bad: State = "fault" if on_gpu else "caution"
    if seen.nvcc is None:
        if not on_gpu:
            return Finding(
                "unneeded",
                "not needed without a GPU: the C++ compiler builds CUDA C++, and takes some that nvcc refuses",
            )
        release = f" {seen.cuda}" if seen.cuda else ""
        mend = (
            f"`sudo apt install nvidia-cuda-toolkit`, or NVIDIA's CUDA toolkit{release} in /usr/local/cuda or CUDA_HOME"
        )
        return Finding(bad, "is not installed: CUDA C++ cannot be graded", mend)
    found = re.search(r"V((\d+)\.[\d.]+)", ask([seen.nvcc, "--version"], COMPILE_LIMIT_S)[1])
    words = f"{found.group(1) if found else 'unknown version'}, {seen.nvcc}"
    if found and 0 < driver_cuda < int(found.group(2)):
        mend = f"install a newer driver, or the CUDA toolkit {driver_cuda} and name its folder in CUDA_HOME"
        return Finding(bad, f"{words}: this driver knows CUDA only up to {driver_cuda}", mend)
    options = ["-shared", "-Xcompiler", "-fPIC", f"-arch={seen.arch}"] if seen.arch else ["-cubin"]
    fault = _refusal([seen.nvcc, *options], "twice.cu", KERNEL)
    lacking = [] if "NVCC_CCBIN" in os.environ else [one for one in ("gcc", "g++") if shutil.which(one) is None]
    if fault and lacking:
        words += f" cannot compile without {' and '.join(lacking)}, which it needs beside it"
        return Finding(bad, words, "`sudo apt install g++`")
    if fault:
        mend = "install a newer CUDA toolkit: most often g++ or the GPU is newer than nvcc"
        return broken(f"{words} cannot compile: {fault}", mend, bad)
    return Finding("fine", words if on_gpu else f"{words}: tells what a kernel would use of a GPU")
