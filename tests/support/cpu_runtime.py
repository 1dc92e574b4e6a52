"""The CUDA runtime of a CPU, built once for all processes of a pytest: a build takes seconds, and is the same for every source."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from grader.worker.cuda_cpu.build import compile_runtime
from tests.conftest import TEMPORARY


def place_runtime(compiler: str, folder: Path) -> None:
    """Put `runtime.o` by this compiler, a program's name or path, into the folder."""
    program = os.path.realpath(shutil.which(compiler) or compiler)
    built = TEMPORARY / f"runtime-{Path(program).name}.o"
    with built.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            compile_runtime(program, half := built.with_suffix(".half.o"))
            half.rename(built)
    shutil.copyfile(built, folder / "runtime.o")
