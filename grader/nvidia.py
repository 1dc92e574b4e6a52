"""Finds NVIDIA's driver, free GPU memory and programs on this machine without CUDA, which takes seconds to start."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

DRIVER_NODES = ("/dev/nvidiactl", "/dev/dxg")  # the second on WSL


def driver_is_loaded() -> bool:
    return any(Path(node).exists() for node in DRIVER_NODES)


def free_gib() -> float:
    """Free memory of the GPU with the least of it, in GiB; 0 if no GPU can be asked."""
    import pynvml

    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        return min((pynvml.nvmlDeviceGetMemoryInfo(gpu).free for gpu in gpus), default=0) / 2**30
    except pynvml.NVMLError:
        return 0.0


def find_nvcc() -> str | None:
    """The CUDA compiler: on the PATH, in CUDA_HOME or CUDA_PATH, or in the toolkits' usual folder."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    found = [shutil.which("nvcc"), *(shutil.which("nvcc", path=f"{place}/bin") for place in places if place)]
    return next((path for path in found if path), None)


def find_sanitizer() -> str | None:
    """NVIDIA's compute-sanitizer: on the PATH, or beside the CUDA compiler."""
    nvcc = find_nvcc()
    beside = None if nvcc is None else shutil.which("compute-sanitizer", path=str(Path(nvcc).resolve().parent))
    return shutil.which("compute-sanitizer") or beside
