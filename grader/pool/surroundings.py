"""The surroundings of a worker: its environment variables, and the folders that it may write to."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from grader import protocol
from grader.course import own_course
from grader.pool import processes
from grader.pool.usage import Look

DU_LIMIT_S = 5.0
SHARE_OF_DISK = 1 / 8  # of the free disk, for one worker: other workers and the judge write too
MAX_FILES = 100_000
PASSED = ("PATH", "LD_LIBRARY_PATH", "CC", "CXX", "TRITON_PTXAS_PATH")
PASSED_OF_CUDA = ("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
# `cuda`; `cpu`: Triton's interpreter; `cuda_cpu`: CUDA C++ on the CPU; `compile`: Triton's launches are compiled for
# GPUs that are not here, and not run.
WorkerKind = Literal["cpu", "cuda", "cuda_cpu", "compile"]


class WatchedFolder:
    """Watches the size of the folders that a worker writes to, all on one disk.

    The disk's free space can be read at once. The folders are counted only after enough was written anywhere on the
    disk.
    """

    def __init__(self, *paths: Path) -> None:
        self._paths = [str(path) for path in paths]
        self._free_at_first, self._nodes_at_first = self._free()

    def allowed(self, size: int) -> int:
        """How many bytes the folders' files may take: `size` or a share of the free disk, whichever is less."""
        return int(min(size, self._free_at_first * SHARE_OF_DISK))

    def grown_beyond(self, size: int, look: Look) -> bool:
        """Whether the folders' files take more than `size` bytes, with deleted files that the processes keep open or
        mapped. Raises LookTooLong, LookCutShort.
        """
        if self._free_at_first - self._free()[0] < size:
            return False
        return self.size(*self._paths, look=look) + look.bytes_on_disk() > size

    def holds_more_than(self, files: int, look: Look) -> bool:
        """Whether the folders have more than `files` files; a disk has room for a limited number, however small. Raises
        LookCutShort.
        """
        if self._nodes_at_first - self._free()[1] < files:
            return False
        return self._du(["--inodes", "-s"], self._paths, look) > files

    @staticmethod
    def size(*paths: str | Path, look: Look | None = None) -> float:
        """Bytes that files in folders take; infinity if `du` takes too long. Raises LookCutShort."""
        return 1024 * WatchedFolder._du(["-sk"], paths, look or Look(()))

    @staticmethod
    def _du(options: list[str], paths: Iterable[str | Path], look: Look) -> float:
        try:
            output = processes.output_of(["du", *options, *map(str, paths)], min(DU_LIMIT_S, look.left_s))
        except subprocess.TimeoutExpired:
            look.go_on()
            return math.inf
        return sum(int(line.split()[0]) for line in output.splitlines())

    def _free(self) -> tuple[float, float]:
        """Free bytes and free files of the disk. Some disks do not count files."""
        try:
            status = os.statvfs(self._paths[0])
        except OSError:
            return math.inf, math.inf
        return status.f_bavail * status.f_frsize, status.f_favail


def environment(
    kind: WorkerKind, runtime: Path, scratch: Path, caches: Path | None, trusted: bool = False
) -> dict[str, str]:
    """Environment variables of a worker; of the judge's own, only those that name tools.

    Args:
        caches: folder for compiled kernels, `scratch` by default. Libraries are built there too, unless the worker is
            `trusted`: the course's caches are kept for months, and not everything that a library depends on is known.
    """
    variables = {name: os.environ[name] for name in (*PASSED, *PASSED_OF_CUDA) if name in os.environ}
    # Not the checkout that `grader` was imported from, because the course lies in it
    entries, hidden = os.environ.get("PYTHONPATH", "").split(os.pathsep), own_course()
    import_path = [str(runtime), *(entry for entry in entries if entry and Path(entry).resolve() != hidden)]
    variables |= {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str((caches or scratch) / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str((caches or scratch) / "inductor"),
        "GRADER_BUILDS": str((scratch if trusted else caches or scratch) / "builds"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # one kernel is not worth a pool of processes
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "LANG": "C.UTF-8",
        "USER": "student",
        "PYTHONPATH": os.pathsep.join(import_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    # NumPy would start a thread for each processor when it is imported; a fork server may have one thread alone.
    variables["OPENBLAS_NUM_THREADS"] = "1"
    if kind != "cuda":
        # glibc fills new memory with the complement of this byte, so `torch.empty` never holds an earlier answer.
        perturb = str(protocol.FILL_BYTE ^ 0xFF)
        variables |= {"MALLOC_PERTURB_": perturb, "CUDA_VISIBLE_DEVICES": ""}
        variables |= {} if kind == "compile" else {"TRITON_INTERPRET": "1"}
        variables |= {"OMP_WAIT_POLICY": "passive"}  # idle threads that spin would take the core from the judge
    return variables
