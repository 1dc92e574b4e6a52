"""Runs nvcc: builds a `.cu` file for this GPU, or on a machine without one compiles the file for nvcc's messages
only.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from grader.worker import doubles
from grader.worker.entries import undefined

OPTIONS = ["-O3", "-std=c++17", "-lineinfo", "-Xptxas=-v"]  # ptxas prints registers, spills and shared memory.
PTXAS = re.compile(r"^(ptxas info .*|    \d+ bytes stack frame, .*)\n?", re.MULTILINE)
# For `launches.cpp`. DWARF 4: in DWARF 5, addr2line (binutils 2.40) takes lines of the student's headers for the main
# file's.
LINKED = ["-Xcompiler=-fPIC,-g1,-gdwarf-4"]
LINKED += [
    f"-Xlinker=--wrap=__cuda{name}" for name in ("PushCallConfiguration", "PopCallConfiguration", "RegisterFunction")
]
MAX_TOLD = 16_000


class CompileError(Exception):
    """nvcc refused the student's source, or took too long; the message is nvcc's."""


class NvccUnusable(Exception):
    """nvcc itself does not work here; the message is nvcc's."""


class TrialBuild:
    """Compiles a file for a GPU that this machine lacks, in the background.

    Args:
        source: the student's file.
        nvcc: path of the compiler.
        arch: as `sm_90`.
        scratch: folder for nvcc's files.
        limit_s: seconds that nvcc may take.
    """

    def __init__(self, source: Path, nvcc: str, arch: str, scratch: Path, limit_s: float) -> None:
        self._kept = scratch / "trial"
        command = [nvcc, "-cubin", *OPTIONS, *_keeping(self._kept), f"-arch={arch}", "-o", str(scratch / "trial.cubin")]
        command.append(source.name)
        self._source = source
        self._limit_s = limit_s
        self._process = subprocess.Popen(
            command, cwd=source.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )

    def finish(self) -> str:
        """Wait for nvcc. Returns the first string of `build_library`. Raises CompileError, NvccUnusable."""
        try:
            output, _ = self._process.communicate(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise CompileError(f"nvcc did not finish within {self._limit_s:g} s") from None
        if self._process.returncode == 0:
            return _in_double(self._source, self._kept) + told(output)
        if blames(output, self._source.parent):
            raise CompileError(undefined(output, self._source) or without_told(output))
        raise NvccUnusable(output)


def build_library(source: Path, extra: Path, nvcc: str, arch: str, target: Path, limit_s: float) -> tuple[str, str]:
    """Build the student's `source` with the grader's `extra` into the shared library `target`.

    Returns:
        the lines computed in double (see `doubles.py`) with ptxas's words about the kernels, and the warnings.

    Raises:
        CompileError: nvcc refused the source, or took longer than `limit_s` seconds.
    """
    # By its name in its own folder, so that the compiler's messages name the file as the student does.
    kept = target.with_suffix(".kept")
    command = [nvcc, "-shared", *LINKED, *OPTIONS, *_keeping(kept), f"-arch={arch}", "-o", str(target), source.name]
    try:
        done = subprocess.run(
            [*command, str(extra)], cwd=source.parent, capture_output=True, text=True, errors="replace", timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"nvcc did not finish within {limit_s:g} s") from None
    output = done.stderr + done.stdout
    if done.returncode != 0:
        raise CompileError(undefined(output, source) or without_told(output))
    return _in_double(source, kept) + told(output), without_told(output)


def _keeping(folder: Path) -> list[str]:
    """Options that make nvcc leave the PTX in a new folder."""
    folder.mkdir(exist_ok=True)
    return ["--keep", f"--keep-dir={folder}"]


def _in_double(source: Path, kept: Path) -> str:
    """The words of `doubles.told` about the PTX in the folder `kept`."""
    places = [doubles.in_ptx(ptx.read_text(errors="replace"), source.parent) for ptx in kept.glob("*.ptx")]
    return doubles.told(set().union(*places), source.parent)


def told(output: str) -> str:
    """The lines of ptxas -v in nvcc's output."""
    return "\n".join(match.group(1) for match in PTXAS.finditer(output))[:MAX_TOLD]


def without_told(output: str) -> str:
    return PTXAS.sub("", output)


def blames(output: str, folder: Path) -> bool:
    """Whether an error is in a student's file; otherwise nvcc or its headers are broken here."""
    if re.search(r"^ptxas\b.*(\berror\b|Unresolved extern function)", output, re.MULTILINE):
        return True  # the code was parsed, and needs more than a device has
    if re.search(r"^At end of source: error\b", output, re.MULTILINE):
        return True  # something is left open, and no file is named
    return any(
        not Path(name).is_absolute() and (folder / name).is_file()
        for name in re.findall(r"^([^\s(:]+)[(:]\d+[):].*\berror\b", output, re.MULTILINE)
    )
