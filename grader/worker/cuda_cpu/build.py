"""Builds a `.cu` file for the CPU, and runs it as the worker asks.

The student's file, after `rewrite.py`, is compiled with -fsanitize=thread, whose callbacks `runtime.cpp` defines: no
sanitizer library is needed, and every access to memory is known with its thread and its line.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from grader.worker.cuda_cpu.rewrite import RewriteError, rewrite, tokenize

HERE = Path(__file__).parent
COMMON = ["-std=c++17", "-fPIC", "-g1", f"-I{HERE / 'include'}"]
STUDENT = ["-O1", "-w", "-include", "cuda_runtime.h", "-fsanitize=thread,alignment", "-fsanitize-recover=alignment"]
# Headers whose contents only a GPU, or a library for one, can provide.
FOREIGN = re.compile(
    r'#\s*include\s*[<"]((?:cub|thrust|cooperative_groups|cuda/|mma|cublas|cudnn|curand|cutlass|torch|ATen)[^>"]*)[>"]'
)


class BuildFailed(Exception):
    """The compiler's messages, in the student's line numbers."""


class Unsupported(Exception):
    """Something that the CPU cannot stand in for; `line` is the student's."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what} is not available on the CPU; only a GPU can grade it")
        self.line = line


@dataclass(frozen=True)
class Fault:
    """What a kernel did wrong: a word for it, and a sentence with threads and lines."""

    kind: str
    text: str


def find_compiler() -> str | None:
    """g++ or clang++, whichever is there."""
    return shutil.which("g++") or shutil.which("clang++")


def compile_library(source: Path, scratch: Path, compiler: str, limit_s: float) -> Library:
    """Build the file at `source` into `scratch`.

    Raises:
        BuildFailed: the compiler refused it, or took longer than `limit_s` seconds.
        Unsupported: it uses what only a GPU has.
    """
    text = source.read_text(encoding="utf-8", errors="replace")
    refuse_unsupported(text)
    try:
        rewritten = rewrite(text)
    except RewriteError as error:
        raise BuildFailed(f"{source.name}:{error.line}: error: {error.message}") from None
    translated = scratch / f"{source.stem}.cpp"
    translated.write_text(f'#line 1 "{source.name}"\n{rewritten}', encoding="utf-8")
    library = scratch / f"{source.stem}-cpu.so"
    kernel = [compiler, *COMMON, *STUDENT, f"-I{source.parent}", "-c", str(translated), "-o", f"{library}.o"]
    runtime = [compiler, *COMMON, "-O2", "-c", str(HERE / "runtime.cpp"), "-o", f"{library}.runtime.o"]
    link = [compiler, "-shared", "-o", str(library), f"{library}.o", f"{library}.runtime.o"]
    beside = subprocess.Popen(runtime, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _run(kernel, limit_s)
        output, _ = beside.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"the compiler did not finish within {limit_s:g} s") from None
    finally:
        beside.kill()
        beside.communicate()
    if beside.returncode != 0:
        raise RuntimeError(f"the CPU's stand-in for the CUDA runtime does not build with {compiler}:\n{output}")
    _run(link, limit_s)
    return Library(library)


def _run(command: list[str], limit_s: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit_s)
    if done.returncode != 0:
        raise BuildFailed(done.stderr + done.stdout)


def refuse_unsupported(source: str) -> None:
    """Raise Unsupported for what is known to be beyond a CPU, with its line."""
    for token in tokenize(source):
        if token.kind == "directive" and (found := FOREIGN.search(token.text)):
            raise Unsupported(token.line + token.text[: found.start()].count("\n"), f"the header {found.group(1)}")
        if token.kind == "name" and token.text in ("asm", "__asm__"):
            raise Unsupported(token.line, "PTX in asm()")
        if token.kind == "name" and token.text in ("texture", "cudaTextureObject_t", "surf2Dread"):
            raise Unsupported(token.line, "a texture")


class Library:
    """A built file. Calls of its functions are bracketed by `begin` and `fault`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.functions = ctypes.CDLL(str(path))
        for name in ("cuda_cpu_fault_kind", "cuda_cpu_fault_text", "cudaGetErrorName"):
            getattr(self.functions, name).restype = ctypes.c_char_p
        for name in ("cuda_cpu_fault_place", "cuda_cpu_base"):
            getattr(self.functions, name).restype = ctypes.c_size_t

    def begin(self, order: int = 0) -> None:
        """Forget everything of earlier calls. Threads and blocks run forwards (order 0) or backwards (1)."""
        self.functions.cuda_cpu_begin(order)

    def array(self, address: int, length_bytes: int, name: str, element_bytes: int) -> None:
        """Declare device memory that a kernel may touch."""
        self.functions.cuda_cpu_array(
            ctypes.c_void_p(address), ctypes.c_size_t(length_bytes), name.encode(), element_bytes
        )

    def launch_error(self) -> str | None:
        """The name of the error that cudaGetLastError would tell, or None."""
        name: bytes = self.functions.cudaGetErrorName(self.functions.cudaGetLastError())
        return None if name == b"cudaSuccess" else name.decode()

    def fault(self) -> Fault | None:
        """What a kernel did wrong since `begin`."""
        kind = self.functions.cuda_cpu_fault_kind()
        if kind is None:
            return None
        text: str = self.functions.cuda_cpu_fault_text().decode(errors="replace")
        for which, word in enumerate(("{place}", "{other}")):
            if word in text:
                text = text.replace(word, self._line(self.functions.cuda_cpu_fault_place(which)))
        return Fault(kind.decode(), text)

    def _line(self, address: int) -> str:
        """The line of the source that the code at `address` was compiled from."""
        offset = hex(address - self.functions.cuda_cpu_base())
        try:
            done = subprocess.run(
                ["addr2line", "-e", str(self.path), offset], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.SubprocessError):
            return "?"
        found = re.search(r":(\d+)", done.stdout)
        return found.group(1) if found else "?"
