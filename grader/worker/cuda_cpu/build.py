"""Builds a `.cu` file for the CPU, and calls the built library.

`rewrite.py` rewrites the student's file, which is then compiled with -fsanitize=thread. `runtime.cpp` defines the
callbacks of that option: no sanitizer library is needed, and the runtime sees every access to memory with its thread
and its line.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.protocol import INCLUDE, code_of
from grader.worker import doubles, torch_form
from grader.worker.cuda_cpu import promotions
from grader.worker.cuda_cpu.rewrite import rewrite
from grader.worker.cuda_cpu.tokens import RewriteError, tokenize
from grader.worker.entries import undefined
from grader.worker.lines import StackFrame, frames, frames_of_all, line_of

HERE = Path(__file__).parent
RUNTIME = HERE / "runtime.o"  # The judge builds this file before a worker needs it.
RUNTIME_LIMIT_S = 120.0
WORD = (1 << 64) - 1
MAX_WORDS, MAX_FLOATS = 12, 8  # arguments that `cuda_cpu_call` passes on
TRANSLATED = "translated"  # The rewritten files lie in this folder.
MAX_PLACES = 4  # At most this many places of a stack are told.
# DWARF 4: in DWARF 5, addr2line (binutils 2.40) takes lines of the student's headers for the main file's.
COMMON = ["-std=c++17", "-fPIC", "-g1", "-gdwarf-4", f"-I{HERE / 'include'}"]
STUDENT = ["-O1", "-include", "cuda_runtime.h", "-fsanitize=thread,alignment", "-fsanitize-recover=alignment"]
STUDENT += ["-fno-threadsafe-statics"]  # only one host thread calls, so a static needs no atomic guard
# The errors of g++ and clang++ about an undeclared name, and the names that look like CUDA's.
UNDECLARED = re.compile(
    r"^(?P<place>[^\n:]+:\d+):\d+: (?:fatal )?error: (?:"
    r"[‘'](?P<gcc>[\w:]+)(?:\(.{0,1000}\))?[’'] (?:was not declared|has not been declared|does not name a type|"
    r"in namespace (?P<owner>[‘'](?:torch|at|c10)\b)?.{0,300} does not name a (?:template )?type|"
    r"is not a member of (?P<space>[‘'](?:torch|at|c10|cuda)\b)?|is not a namespace-name)"
    r"|there are no arguments to [‘'](?P<bare>\w+)[’'] that depend on a template parameter"
    r"|.*has no member named [‘'](?P<member>\w+)[’']|no member named '(?P<clang_member>\w+)' in "
    r"|(?:use of undeclared identifier|unknown type name|no type named|no template named) '(?P<clang>\w+)'"
    r"|.*(?:declared with (?:attribute error: |'error' attribute: )|static[_ ]assert.{0,300}?)not on the CPU: (?P<told>[^\n\"]+)"
    r"|(?P<header>[\w./]+\.(?:h|cuh|hpp)): No such file|'(?P<clang_header>[\w./]+\.(?:h|cuh|hpp))' file not found)",
    re.MULTILINE,
)
CUDAS = re.compile(
    r"cuda(?!_cpu)|CUDA|CU[A-Z_]|cu[A-Z]|__|(?:cooperative_groups|cg|nvcuda|cub|thrust)(?:::|$)|AT_|C10_|TORCH_"
    r"|(?:r?norm[34]d|normcdfinv|erfc?inv|cyl_bessel_i[01]|sincospi|tanpi)f?$"
)
STRUCTS = re.compile(
    r"[‘'](?:(?:const )?(?:struct |class |union )?(?:cuda|CU)\w*|[^’']*\b(?:c10|at|torch|cooperative_groups)::[^’']*)[’']"
)
# An error about PyTorch's C++ interface, as when `torch_tensor.h` lacks an overload.
OF_TORCH = re.compile(r"^(?P<place>[^\n:]+:\d+):\d+: error: [^\n]*\b(?:c10|at|torch)::(?P<name>\w+)", re.MULTILINE)
# Headers of the CUDA toolkit for which there is no stand-in in include/: nothing is declared by them here.
TOOLKIT = re.compile(
    r'^([ \t]*#\s*include\s*)[<"]('
    r"(?:cub|thrust|cuda|cooperative_groups|nv|nvtx3)/[\w./]+"
    r"|(?:cooperative_groups|mma|cuComplex|cudaProfiler|cudaTypedefs|nvrtc|nvToolsExt|library_types|driver_types|builtin_types"
    r"|cuda_(?:fp8|fp6|fp4|occupancy|profiler_api|device_runtime_api|(?:pipeline|awbarrier)(?:_helpers|_primitives)?)"
    r"|(?:vector|math|common|driver|texture_indirect|surface_indirect|device_atomic)_functions|(?:surface|texture)_types"
    r"|(?:cublas|cudnn|curand|cufft|cusparse|cusolver)\w*|sm_\d+_(?:atomic_functions|intrinsics)|channel_descriptor|host_defines"
    r')\.h)[>"]',
    re.MULTILINE,
)
CUDA_STD = re.compile(
    r"cuda/(?:cmath|std/(?:algorithm|array|climits|cmath|cstddef|cstdint|functional|limits|numeric|tuple|type_traits|utility))$"
)
# Libraries that no toolkit has.
FOREIGN = re.compile(r'\s*#\s*include\s*[<"]((?:cutlass|cute)/[^>"]*)[>"]')
# nvcc's error about a CUDA library that is not installed.
NO_LIBRARY = re.compile(
    r"fatal error: (?:cub|thrust|cooperative_groups|cuda|cutlass|cublas\w*|cudnn\w*|curand\w*)[./][^\n:]{0,300}: No such file"
)


class BuildFailed(Exception):
    """A failed build; the message has the compiler's messages, with the student's line numbers."""


class Unsupported(Exception):
    """A use that only a GPU can run. `line`: in the student's main file or in `header`; 0 if unknown."""

    def __init__(self, line: int, what: str, *, header: str = "", known: bool = True) -> None:
        why = (
            "is not available on the CPU; only a GPU can grade it"
            if known
            else "is not known to the CPU's CUDA: misspelt, or something that only a GPU can run"
        )
        where = f"line {line}{f' of {header}' if header else ''}: " if line else ""
        super().__init__(f"{where}{what} {why}")
        self.line = line


@dataclass(frozen=True)
class Fault:
    """A kernel's mistake. kind: as "race". text: a sentence with threads and lines."""

    kind: str
    text: str


def compile_library(source: Path, scratch: Path, compiler: str, limit_s: float, addition: str = "") -> Library:
    """Build the file at `source`, with `addition` after its text, into the folder `scratch`.

    Raises:
        BuildFailed: the compiler refused the file, or took longer than `limit_s` seconds.
        Unsupported: the file has a use that only a GPU can run.
    """
    translated = scratch / TRANSLATED
    left_out = _translate(source, source.parent.resolve(), translated, addition=addition)
    library = scratch / f"{source.stem}-cpu.so"
    runtime = RUNTIME if RUNTIME.exists() else scratch / RUNTIME.name
    if not runtime.exists():
        compile_runtime(compiler, runtime)
    kernel = [compiler, *COMMON, *STUDENT, "-c", "-x", "c++", str(translated / source.name)]
    kernel += [f"-I{source.parent}", "-o", f"{library}.o"]
    try:
        try:
            # From the student's folder, g++ shows the lines below its warnings.
            warnings = run_compiler([*kernel, promotions.WARNING], limit_s, source.parent)
        except BuildFailed:
            warnings = run_compiler([*kernel, "-w"], limit_s)  # the errors alone
        run_compiler([compiler, "-shared", "-o", str(library), f"{library}.o", str(runtime)], limit_s)
    except BuildFailed as error:
        refuse_unknown(str(error), source.name, left_out)
        raise
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"the compiler did not finish within {limit_s:g} s") from None
    names = [str(one.relative_to(translated)) for one in translated.rglob("*.*")]
    places = promotions.in_warnings(warnings, source.parent, names)
    return Library(library, source, doubles.told(places, source.parent))


def _translate(
    source: Path, folder: Path, target: Path, seen: frozenset[Path] = frozenset(), addition: str = ""
) -> list[str]:
    """Rewrite a file of `folder`, and the headers in `folder` that it includes, into `target` under the same relative paths.

    Returns the names of the toolkit's headers, whose includes are left out of the rewritten files.
    """
    inside = source.resolve().relative_to(folder)
    header = str(inside) if seen else ""
    text = source.read_text(encoding="utf-8-sig", errors="replace")
    own = {name: (source.parent / name).resolve() for name in INCLUDE.findall(code_of(text))}
    own = {name: found for name, found in own.items() if found.is_relative_to(folder) and found.is_file()}
    refuse_unsupported(text, header, own)
    try:
        rewritten = rewrite(text)
    except RewriteError as error:
        raise BuildFailed(f"{inside}:{error.line}: error: {error.message}") from None
    left_out: list[str] = []

    def without(found: re.Match[str]) -> str:
        if found[2] in own or (HERE / "include" / found[2]).is_file():
            return found[0]
        if CUDA_STD.match(found[2]):
            return f"{found[1]}<cuda_std.h>"
        left_out.append(found[2])
        return ""

    def directive(text: str) -> str:
        text = torch_form.HEADER.sub(lambda one: one[0] if one[2] in own else f"{one[1]}<torch_tensor.h>", text)
        return TOOLKIT.sub(without, text)

    rewritten = "".join(directive(one.text) if one.kind == "directive" else one.text for one in tokenize(rewritten))
    (target / inside).parent.mkdir(parents=True, exist_ok=True)
    (target / inside).write_text(f'#line 1 "{inside}"\n{rewritten}{addition}', encoding="utf-8")
    for found in own.values():
        if found not in seen and found != source.resolve():
            left_out += _translate(found, folder, target, seen | {source.resolve()})
    return left_out


def compile_runtime(compiler: str, target: Path) -> None:
    """Build `runtime.cpp`, which is the same for every submission, into the object file `target`. Raises RuntimeError."""
    command = [compiler, *COMMON, "-O2", "-c", str(HERE / "runtime.cpp"), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=RUNTIME_LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)


def run_compiler(command: list[str], limit_s: float, folder: Path | None = None) -> str:
    """Run a compiler in `folder`. Returns its messages. Raises BuildFailed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        cwd=folder,
        env=os.environ | {"LC_ALL": "C.UTF-8"},
    )
    said = done.stderr + done.stdout
    if done.returncode != 0:
        raise BuildFailed(said)
    return said


def refuse_unknown(said: str, source: str, left_out: Sequence[str] = ()) -> None:
    """Raise Unsupported if a compiler's error is about a name of CUDA's, or one that a header may declare that was left out.

    Args:
        said: the compiler's messages.
        source: the name of the student's main file.
    """
    for found in UNDECLARED.finditer(said):
        file, line = found["place"].rsplit(":", 1)
        header = "" if file == source else file
        member = found["member"] or found["clang_member"]
        name = found["gcc"] or found["bare"] or found["clang"] or found["header"] or found["clang_header"] or ""
        if found["told"]:
            raise Unsupported(int(line), found["told"], header=header)
        if (
            CUDAS.match(name)
            or found["space"]
            or found["owner"]
            or (member and STRUCTS.search(found.string[found.start() : found.string.find("\n", found.end())]))
        ):
            raise Unsupported(int(line), member or name, header=header, known=False)
        if left_out:
            told = f"{member or name}, which {left_out[0]} may declare,"
            raise Unsupported(int(line), told, header=header, known=False)
    if of_torch := OF_TORCH.search(said):
        file, line = of_torch["place"].rsplit(":", 1)
        raise Unsupported(int(line), f"this use of torch::{of_torch['name']}", header="" if file == source else file)


def refuse_unsupported(source: str, header: str = "", own: Container[str] = ()) -> None:
    """Raise Unsupported for the first known use that only a GPU can run. `own`: the student's headers, by the names in includes."""
    for token in tokenize(source):
        if token.kind == "directive" and (found := FOREIGN.match(token.text)):
            if found.group(1) in own:
                continue
            raise Unsupported(token.line, f"the header {found.group(1)}", header=header)
        if token.kind == "name" and token.text in ("__cluster_dims__", "__block_size__"):
            raise Unsupported(token.line, "a cluster of blocks", header=header)
        if token.kind == "name" and token.text in ("texture", "cudaTextureObject_t", "surf2Dread"):
            raise Unsupported(token.line, "a texture", header=header)


class Library:
    """A built file. `begin` comes before the calls of its functions, `fault` after them.

    Attributes:
        path: the library. source: the name of the student's main file, which sentences leave out.
        sizes: the student's names of the sizes, for sentences about an unchecked index.
        told: the compiler's words about the built lines (see `grader/worker/doubles.py`).
        launches: returns the number of accepted launches since `begin`.
        stack_was_full: returns whether a signal ended the call because the stack was full, as by endless recursion.
        in_a_kernel, reached_for: return whether a signal ended the call in a kernel, and the address of that access.
        unwritten_end_bytes: returns the bytes at the end of a sample's output that a full run would leave unwritten; 0 if
            the sample does not tell.

    Raises:
        Unsupported: the runtime lacks a callback that the compiler calls.
    """

    def __init__(self, path: Path, origin: Path, told: str) -> None:
        self.path = path
        self.source = origin.name
        self.sizes = "n"
        self.told = told
        self._own = {origin.name, *(file.name for file in path.parent.glob(f"{TRANSLATED}/**/*.*"))}
        try:
            self.functions = ctypes.CDLL(str(path))
        except OSError as error:
            if found := re.search(r"undefined symbol: (__tsan_\w+)", str(error)):
                raise Unsupported(0, f"what the compiler does by {found.group(1)}") from None
            if told := undefined(str(error), origin):
                raise BuildFailed(told) from None
            raise
        words = ("fault_kind", "fault_text", "refusal", "off_stream_what", "same_value_what", "trace")
        sizes = (
            "place",
            "base",
            "launches",
            "unwritten_end",
            "stack",
            "reached_for",
            "off_stream_place",
            "same_value_place",
        )
        kinds: dict[str, type[Any]] = {"cudaGetErrorName": ctypes.c_char_p} | {
            f"cuda_cpu_{word}": ctypes.c_char_p for word in words
        }
        kinds |= {f"cuda_cpu_{size}": ctypes.c_size_t for size in sizes}
        kinds |= {f"cuda_cpu_{asked}": ctypes.c_bool for asked in ("stack_was_full", "in_a_kernel")}
        for name, kind in kinds.items():
            getattr(self.functions, name).restype = kind
        self.launches: Callable[[], int] = self.functions.cuda_cpu_launches
        self.stack_was_full: Callable[[], bool] = self.functions.cuda_cpu_stack_was_full
        self.in_a_kernel: Callable[[], bool] = self.functions.cuda_cpu_in_a_kernel
        self.reached_for: Callable[[], int] = self.functions.cuda_cpu_reached_for
        self.unwritten_end_bytes: Callable[[], int] = self.functions.cuda_cpu_unwritten_end

    def begin(self, order: int = 0, sample: bool = False, traced: bool = False) -> None:
        """Forget everything of earlier calls. Threads and blocks run forwards (order 0) or backwards (1).

        With `sample`, large launches run in part: enough to check the addresses of their accesses, but not their
        results. With `traced` too; their accesses are counted (see `TraceReader`).
        """
        self.functions.cuda_cpu_begin(order, int(sample), int(traced))

    def array(self, address: int, length_bytes: int, name: str, element_bytes: int, output: bool = False) -> None:
        """Declare device memory that a kernel may touch; bytes of an `output` must be written before they are read."""
        self.functions.cuda_cpu_array(
            ctypes.c_void_p(address), ctypes.c_size_t(length_bytes), name.encode(), element_bytes, int(output)
        )

    def keep_from_the_host(self, address: int, length_bytes: int) -> None:
        """Close these pages, which hold inputs and outputs, for the host's code of the calls that follow; no bytes: none."""
        self.functions.cuda_cpu_pages(ctypes.c_void_p(address), ctypes.c_size_t(length_bytes))

    def call(self, function: Any, *values: int | float) -> int:
        """Call the student's function on addresses, integers and float32 numbers. Returns the signal that ended the call, or 0."""
        words = [one & WORD for one in values if isinstance(one, int)]
        floats = [struct.pack("<f4x", one) for one in values if isinstance(one, float)]
        return int(
            self.functions.cuda_cpu_call(
                ctypes.cast(function, ctypes.c_void_p),
                (ctypes.c_uint64 * MAX_WORDS)(*words),
                (ctypes.c_double * MAX_FLOATS).from_buffer_copy(b"".join(floats).ljust(8 * MAX_FLOATS, b"\0")),
            )
        )

    def locate(self) -> list[StackFrame]:
        """The student's lines in a call that another thread makes, as `ended_at`; empty if there is no call."""
        return self.ended_at() if self.functions.cuda_cpu_locate() else []

    def ended_at(self) -> list[StackFrame]:
        """The student's functions and lines at which a signal ended a call, innermost first."""
        addresses = [self.functions.cuda_cpu_stack(i) for i in range(self.functions.cuda_cpu_stack_depth())]
        found = [one for address in addresses if address for one in self._frames(address)]
        return list(dict.fromkeys(one for one in found if one.file.name in self._own))[:MAX_PLACES]

    def new_stream(self) -> int:
        """A new stream, which is not a default stream."""
        stream = ctypes.c_void_p()
        self.functions.cudaStreamCreateWithPriority(ctypes.byref(stream), 0, 0)
        return stream.value or 0

    def off_stream(self) -> list[str]:
        """The work on a default stream since `begin`, as `kernel.cu:12: the launch of scale`; only work whose line is known."""
        return self._noted("off_stream")

    def same_value(self) -> list[str]:
        """Writes since `begin` of what another thread had written, which nothing orders, as `kernel.cu:12: y[4]`."""
        return self._noted("same_value")

    def _noted(self, what: str) -> list[str]:
        found = []
        for number in range(getattr(self.functions, f"cuda_cpu_{what}_count")()):
            stack = self._frames(getattr(self.functions, f"cuda_cpu_{what}_place")(number))
            words = getattr(self.functions, f"cuda_cpu_{what}_what")(number).decode(errors="replace")
            found += [f"{one.file.name}:{one.line}: {words}" for one in stack if one.file.name in self._own][:1]
        return found

    def lines(self, addresses: Sequence[int]) -> dict[int, StackFrame]:
        """The student's innermost function and line at each of these addresses of code, where there is one."""
        base = int(self.functions.cuda_cpu_base())
        found = frames_of_all(self.path, [address - base for address in addresses])
        own = {at: [one for one in stack if one.file.name in self._own] for at, stack in found.items()}
        return {at + base: stack[0] for at, stack in own.items() if stack}

    def launch_error(self) -> str | None:
        """The name of cudaGetLastError's error, or None."""
        name: bytes = self.functions.cudaGetErrorName(self.functions.cudaGetLastError())
        return None if name == b"cudaSuccess" else name.decode()

    def launch_fault(self) -> str | None:
        """`launch_error`, with the line and the reason if a launch was refused."""
        refused = self.functions.cuda_cpu_refused() == self.functions.cudaPeekAtLastError()
        why = self.functions.cuda_cpu_refusal() if refused else None
        name = self.launch_error()
        if name is None or why is None:
            return name
        text: str = why.decode(errors="replace")
        return f"{name}: {text.replace('{refused}', self._line(self.functions.cuda_cpu_place(3)))}"

    def fault(self) -> Fault | None:
        """A kernel's mistake since `begin`, or None."""
        kind = self.functions.cuda_cpu_fault_kind()
        if kind is None:
            return None
        text: str = self.functions.cuda_cpu_fault_text().decode(errors="replace")
        lines = {
            word: self._line(self.functions.cuda_cpu_place(which))
            for which, word in enumerate(("{place}", "{other}", "{third}"))
            if word in text
        }
        if kind == b"race" and lines["{place}"] == lines["{other}"] and text.count(" writes ") == 2:
            text += ": consistent with an index that is not each thread's own"
        for word, line in (lines | {"{sizes}": self.sizes}).items():
            text = text.replace(word, line)
        return Fault(kind.decode(), text)

    def _line(self, address: int) -> str:
        """The student's line of the code at `address`, with the file if that is not the main file."""
        return line_of(self._frames(address), self.source, lambda file: not file.is_relative_to(HERE))

    def _frames(self, address: int) -> list[StackFrame]:
        return frames(self.path, address - self.functions.cuda_cpu_base())


if __name__ == "__main__":  # the judge, which may not import worker modules, runs this with COMPILER TARGET
    try:
        compile_runtime(sys.argv[1], Path(sys.argv[2]))
    except RuntimeError as error:
        sys.exit(str(error))
