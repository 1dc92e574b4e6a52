"""Describes the machine and the versions of its software for the report, and finds its compilers."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import grader
from grader.assignment import Device
from grader.nvidia import find_nvcc
from grader.report.model import Environment


def describe_environment(device: Device) -> Environment:
    """The environment of this process and, on a GPU, the GPU that PyTorch uses."""
    triton = None
    with contextlib.suppress(PackageNotFoundError):
        triton = version("triton")
    of_gpu: dict[str, Any] = {}
    if device == "cuda":
        gpu = torch.cuda.get_device_properties(0)
        of_gpu = {"gpu": gpu.name, "gpu_memory_gib": round(gpu.total_memory / 2**30, 1)}
        of_gpu |= {"driver": driver_version(), "cuda": torch.version.cuda}
    nvcc = None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if (program := find_nvcc()) is not None:
            text = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10).stdout
            nvcc = found[1] if (found := re.search(r"V(\d+\.\d+\.\d+)", text)) else None
    cpu = platform.machine()
    with contextlib.suppress(OSError):
        if found := re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8")):
            cpu = found[1].strip()
    return Environment(
        grader=grader.__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        triton=triton,
        device=device,
        nvcc=nvcc,
        cpu=cpu,
        platform=platform.platform(),
        **of_gpu,
    )


def driver_version() -> str | None:
    """The NVIDIA driver's version, if there is one."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def find_compiler(device: str) -> str | None:
    """The compiler of `.cu` files: nvcc for a GPU, a C++ compiler for the CPU. None if there is none."""
    if device == "cuda":
        return find_nvcc()
    found = (shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))
    return next((path for path in found if path), None)


@functools.cache
def interpreter_fault() -> str:
    """Why Triton's CPU interpreter cannot run here, or "". Triton 3.6 with NumPy 2.4 fails in every loop."""

    def numbers(package: str) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", version(package))[:2])

    try:
        if numbers("triton") >= (3, 7) or numbers("numpy") < (2, 4):
            return ""
    except PackageNotFoundError as error:
        return f"needs a GPU or Triton's CPU interpreter, and {error.name} is not installed"
    return f"triton {version('triton')} runs on the CPU only with numpy below 2.4, here is {version('numpy')}"
