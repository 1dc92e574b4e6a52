"""Builds the CUDA runtime of `worker/cuda_cpu/`, once for each machine, and puts it into a worker's runtime folder.

`python -m grader.pool.cuda_cpu` builds it into the installed package, for an image: a container keeps no cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import grader
from grader.pool.fault import Fault
from grader.pool.pool import stage_runtime

BUILD_LIMIT_S = 180.0

_broken: dict[Path, Fault] = {}  # failed builds by runtime folder: failing again would take seconds


def cache_folder() -> Path | None:
    """The grader's cache folder of this user; None if the user has no home."""
    with contextlib.suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-lab-grader"
    return None


def provide_runtime(runtime: Path, compiler: str) -> None:
    """Put the object file of `worker/cuda_cpu/runtime.cpp` beside its staged source, from the cache or newly built.

    Args:
        runtime: the folder with the staged worker (see `stage_runtime`).
        compiler: path of g++ or clang++.

    Raises:
        Fault: the source does not build here.
    """
    sources = runtime / "grader" / "worker" / "cuda_cpu"
    target = sources / "runtime.o"
    if target.exists():
        return
    if (broken := _broken.get(runtime)) is not None:
        raise broken
    name = f"cuda-cpu-{_fingerprint(sources, compiler)}.o"
    half = target.with_suffix(".half")
    if (brought := sources / name).exists():
        brought.replace(target)
        return
    kept = (cache_folder() or sources) / name
    try:
        shutil.copyfile(kept, half)
    except OSError:
        try:
            _build(runtime, compiler, half)
        except Fault as error:
            _broken[runtime] = error
            raise
        with contextlib.suppress(OSError):  # without a cache folder each run builds anew
            kept.parent.mkdir(parents=True, exist_ok=True)
            copy = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
            shutil.copyfile(half, copy)
            copy.replace(kept)
    half.replace(target)


def _build(runtime: Path, compiler: str, target: Path) -> None:
    command = [sys.executable, "-P", "-s", "-m", "grader.worker.cuda_cpu.build", compiler, str(target)]
    how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "timeout": BUILD_LIMIT_S}
    how["env"] = os.environ | {"PYTHONPATH": str(runtime), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, **how)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault.no_worker(f"the CPU's stand-in for CUDA could not be built: {error}") from None
    if done.returncode != 0:
        words = done.stderr.strip()[-2000:]
        raise Fault.no_worker(f"the CPU's stand-in for CUDA does not build with {compiler}:\n{words}")


def _fingerprint(sources: Path, compiler: str) -> str:
    """A hash of the sources and the compiler, on which the object file depends."""
    digest = hashlib.sha256()
    for path in sorted([*sources.rglob("*"), sources.parent / "launch.h"]):
        if path.is_file() and path.suffix != ".o":
            digest.update(path.relative_to(sources.parent).as_posix().encode() + path.read_bytes())
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        digest.update(subprocess.run([compiler, "--version"], capture_output=True, timeout=20).stdout)
    digest.update(compiler.encode())
    return digest.hexdigest()[:24]


def main() -> None:
    """Build the object file into the installed package."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        sys.exit("there is no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        runtime = stage_runtime(Path(folder) / "runtime")
        sources = runtime / "grader" / "worker" / "cuda_cpu"
        name = f"cuda-cpu-{_fingerprint(sources, compiler)}.o"
        provide_runtime(runtime, compiler)
        shutil.copyfile(sources / "runtime.o", Path(grader.__file__).parent / "worker" / "cuda_cpu" / name)


if __name__ == "__main__":
    main()
