"""What a worker finds around it: its environment, and the folder it may write to."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path
from typing import Literal

from grader import protocol
from grader.contender import processes

DU_LIMIT_S = 5.0
# `cuda`; `cpu`, where Triton is interpreted; `cuda_cpu`, CUDA C++ where the CPU stands in for the GPU; `compile`, where Triton's launches
# are compiled for GPUs that are not here, and not run.
WorkerKind = Literal["cpu", "cuda", "cuda_cpu", "compile"]


class WatchedFolder:
    """The folders that a worker writes to, on one disk, and how much has been written there.

    What is written anywhere on the disk is looked at often; the folders themselves only when that is enough to matter.
    """

    def __init__(self, *paths: Path) -> None:
        self._paths = [str(path) for path in paths]
        self._free_at_first = self._free()

    def grown_beyond(self, size: int) -> bool:
        """Whether files in them take more than `size` bytes together; what is gone takes nothing."""
        if self._free_at_first - self._free() < size:
            return False
        return self.size(*self._paths) > size

    @staticmethod
    def size(*paths: str | Path) -> float:
        """Bytes that files in folders take; infinitely many where nobody comes to an end of counting."""
        try:
            output = processes.output_of(["du", "-sk", *map(str, paths)], DU_LIMIT_S)
        except subprocess.TimeoutExpired:
            return math.inf
        return 1024 * sum(int(line.split()[0]) for line in output.splitlines())

    def _free(self) -> float:
        try:
            status = os.statvfs(self._paths[0])
        except OSError:
            return float("inf")
        return status.f_bavail * status.f_frsize


def environment(kind: WorkerKind, runtime: Path, scratch: Path, caches: Path | None) -> dict[str, str]:
    """Environment variables of a worker: nothing of the judge's but where its tools are.

    `caches` is where kernels that it compiles are kept, if not in `scratch`.
    """
    passed = (
        "PATH",
        "LD_LIBRARY_PATH",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "CC",
        "CXX",
    )
    variables = {name: os.environ[name] for name in passed if name in os.environ}
    variables |= {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str((caches or scratch) / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str((caches or scratch) / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # one kernel is not worth a pool of processes
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "LANG": "C.UTF-8",
        "USER": "student",
        "PYTHONPATH": os.pathsep.join([str(runtime), *_import_path()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if kind == "cuda":
        # NumPy's threads: it has nothing to do here, and would start one for each processor.
        variables["OPENBLAS_NUM_THREADS"] = "1"
    else:
        # glibc fills new memory with the complement of this byte: torch.empty then never holds yesterday's answer.
        perturb = str(protocol.POISON_BYTE ^ 0xFF)
        variables |= {"MALLOC_PERTURB_": perturb, "CUDA_VISIBLE_DEVICES": ""}
        variables |= {} if kind == "compile" else {"TRITON_INTERPRET": "1"}
        variables |= {"OMP_WAIT_POLICY": "passive"}  # idle threads that spin take the core from the judge
    return variables


def _import_path() -> list[str]:
    """Folders given by PYTHONPATH, without the one that `grader` itself was imported from."""
    ours = Path(protocol.__file__).resolve().parent.parent
    return [
        entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry).resolve() != ours
    ]
