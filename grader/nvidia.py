"""Finds NVIDIA's driver, free GPU memory and programs on this machine without CUDA, which takes seconds to start."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NCU_FOLDER = Path("/opt/nvidia/nsight-compute")  # with a folder for each version
# The toolkit's usual folder, and that of NVIDIA's packages for Python.
TOOLKITS = ("/usr/local/cuda", f"{sysconfig.get_path('purelib')}/nvidia/cu13")
DRIVER_NODES = ("/dev/nvidiactl", "/dev/dxg")  # the second on WSL


def driver_is_loaded() -> bool:
    return any(Path(node).exists() for node in DRIVER_NODES)


@dataclass(frozen=True)
class ListedGpu:
    """A GPU as `nvidia-smi -L` lists it; `name` is its model."""

    uuid: str
    name: str


def gpus() -> list[ListedGpu]:
    """The GPUs that programs started here may use; none without a driver. Raises OSError: there is a driver, and no GPU answers."""
    import pynvml

    every, why = [], "lists no GPU"
    try:
        pynvml.nvmlInit()
        for number in range(pynvml.nvmlDeviceGetCount()):
            with contextlib.suppress(pynvml.NVMLError):  # of a GPU that is lost; others still work
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                every.append(ListedGpu(pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)))
    except pynvml.NVMLError as error:
        why = f"does not answer ({error})"
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = visible(every, setting)
    if not found and setting != "" and driver_is_loaded():
        words = (
            f"CUDA_VISIBLE_DEVICES={setting} names none of this machine's GPUs" if every else f"NVIDIA's driver {why}"
        )
        raise OSError(f"{words}; `grader doctor` says more")
    return found


def visible(every: Sequence[ListedGpu], setting: str | None) -> list[ListedGpu]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves: by index, or by the beginning of a UUID, up to the first word that names none."""
    if setting is None:
        return list(every)
    found: list[ListedGpu] = []
    for word in map(str.strip, setting.split(",")):
        by_name = [gpu for gpu in every if word and gpu.uuid.startswith(word)]
        named = every[int(word) :][:1] if word.isdecimal() else by_name
        if len(named) != 1 or named[0] in found:
            break
        found += named
    return found


def find_nvcc(toolkits: Sequence[str] = TOOLKITS) -> str | None:
    """The CUDA compiler: on the PATH, in CUDA_HOME or CUDA_PATH, or in one of the `toolkits`."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *toolkits]
    found = [shutil.which("nvcc"), *(shutil.which("nvcc", path=f"{place}/bin") for place in places if place)]
    return next((path for path in found if path), None)


def find_sanitizer() -> str | None:
    """NVIDIA's compute-sanitizer: on the PATH, or beside the CUDA compiler."""
    return _find_tool("compute-sanitizer")


def find_ncu(folder: Path = NCU_FOLDER) -> str | None:
    """The command line of Nsight Compute: the newest in the folder of its own that NVIDIA's packages make, else the one on the
    PATH or beside the CUDA compiler, which looks for that folder.
    """
    every = folder.glob("*/ncu")
    newest = max(every, key=lambda path: [int(one) for one in re.findall(r"\d+", path.parent.name)], default=None)
    return str(newest) if newest else _find_tool("ncu")


def _find_tool(name: str) -> str | None:
    nvcc = find_nvcc()
    beside = None if nvcc is None else shutil.which(name, path=str(Path(nvcc).resolve().parent))
    return shutil.which(name) or beside
