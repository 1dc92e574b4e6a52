"""Loads a submission: imports a Python file, or compiles a CUDA file and binds its entry."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import inspect
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from grader.protocol import EARLY_VALUE, Build
from grader.worker import nvcc, torch_form
from grader.worker.entries import missing_in_library, missing_in_module, undefined
from grader.worker.errors import LoadError, set_root
from grader.worker.lines import frames, kernel_of, line_of
from grader.worker.signature import Signature

LAUNCHES = Path(__file__).with_name("launches.cpp")  # This source is built into the student's library.
# CUDA answers a launch of a wrong shape with one of these.
REFUSALS = (b"cudaErrorInvalidValue", b"cudaErrorInvalidConfiguration")
LIBRARY, TOLD = "library.so", "told.txt"  # of a build: what was made, and the compiler's messages
LATE_CYCLES = 20_000_000  # A late kernel waits this many cycles of the GPU, about 10 ms: longer than any launch takes.
LATE_ELEMENTS = 1 << 28  # Larger inputs are not copied, so they are never late.
# With -lineinfo compute-sanitizer names lines; only reports with a student's line are told.
CUDA_FLAGS = ["-O3", "-lineinfo"]


class Loaded(NamedTuple):
    """The student's function, and ptxas's words about its kernels."""

    function: Callable[..., Any]
    ptxas: str = ""


def load(path: Path, entry: str, build: Build | None, compiled: bool = False) -> Loaded:
    """The student's function from the file at `path`.

    Args:
        build: how to build a CUDA file, with nvcc as `compiler`; None for a Python file.
        compiled: whether to wrap the function in `torch.compile(dynamic=False)`, after all compiled code is dropped.
    """
    set_root(path.parent)
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]  # as if run by its name: the worker's own arguments would end a file that parses them
    if compiled:
        _start_compiler()
        torch._dynamo.reset()
        return Loaded(torch.compile(_load_python(path, entry), dynamic=False))
    if build is None:
        return Loaded(_load_python(path, entry))
    if torch_form.is_torch_form(path):
        return Loaded(_load_torch_extension(path, entry, Signature(build.signature, torch.Tensor.data_ptr)))
    return load_c_abi(path, entry, build)


@functools.cache
def _start_compiler() -> None:
    """Compile a small function with and without gradients, so that torch.compile's first imports on a GPU, which take
    seconds, are done.
    """
    if not torch.cuda.is_available():
        return

    def small(x: torch.Tensor) -> torch.Tensor:
        weights = (x @ x.transpose(-1, -2)).exp()
        return weights / weights.sum(-1, keepdim=True) @ x

    for wants_gradients in (False, True):
        x = torch.ones(2, 16, 16, dtype=torch.float16, device="cuda", requires_grad=wants_gradients)
        y = torch.compile(small, dynamic=False)(x)
        if wants_gradients:
            y.sum().backward()


def _load_python(path: Path, entry: str) -> Callable[..., Any]:
    module = _import(path.stem, path)
    function = getattr(module, entry, None)
    if function is None:
        raise missing_in_module(path, entry, module)
    if not callable(function):
        raise LoadError("failed", f"{entry!r} in {path.name} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError("failed", f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def check_signature(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any] | None = None
) -> None:
    """Raise LoadError, with words for the student, if the function's parameters cannot take these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # builtins and autograd's `apply` have no signature to look at
    try:
        signature.bind(*arguments, **(named or {}))
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        by_name = "".join(f" and {one}={value}" for one, value in (named or {}).items())
        raise LoadError(
            "failed",
            f"{name}{signature} cannot be called with {len(arguments)} arguments{by_name} as the contract says: {error}",
        ) from None


@dataclass(frozen=True)
class InPlace:
    """A bound C function, which takes inputs, options and outputs.

    Its type tells that it writes to given outputs, and not an attribute, which a Python function of a submission might
    have: such a function would run outside of the watch for PyTorch's operators.

    Attributes:
        on_stream: returns the function for one stream.
    """

    call: Callable[..., None]
    on_stream: Callable[[torch.cuda.Stream], Callable[..., None]]

    def __call__(self, *arguments: Any, late: bool = False) -> None:
        """See `call` of `load_c_abi`."""
        self.call(*arguments, late=late)


def load_c_abi(path: Path, entry: str, build: Build) -> Loaded:
    """Build a file with nvcc and bind its C function, which has the parameters of `build.signature`, through ctypes."""
    loaded, ptxas = _c_abi_library(path, build)
    if not hasattr(loaded, entry):
        raise missing_in_library(path, entry, Path(loaded._name))
    function, last_error = getattr(loaded, entry), loaded.grader_last_error
    function.restype, last_error.restype = None, ctypes.c_char_p
    signature = Signature(build.signature, torch.Tensor.data_ptr)
    function.argtypes = signature.types

    def on_stream(stream: torch.cuda.Stream) -> Callable[..., None]:
        def launch(*arguments: Any) -> None:
            function(*signature.values(arguments, stream.cuda_stream))
            if error := last_error():
                raise RuntimeError(f"the launch failed: {error.decode()}{refused_launch(loaded, path, error)}")

        return launch

    def call(*arguments: Any, late: bool = False) -> None:
        """Call the function on a new stream, and wait for the stream.

        Args:
            late: whether the inputs get their numbers on the stream, some milliseconds from now. A launch on another
                stream then reads EARLY_VALUE.
        """
        inputs = arguments[: len(signature.inputs)]
        late = late and sum(one.numel() for one in inputs) <= LATE_ELEMENTS
        numbers = [one.clone() for one in inputs] if late else []
        for one, _ in zip(inputs, numbers, strict=False):
            one.fill_(EARLY_VALUE)
        stream = torch.cuda.Stream()  # not the default stream, so that a launch off the given stream shows
        stream.wait_stream(torch.cuda.current_stream())
        if late:
            loaded.grader_load_kernels()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(LATE_CYCLES)
                for one, content in zip(inputs, numbers, strict=True):
                    one.copy_(content)
        on_stream(stream)(*arguments)
        stream.synchronize()

    return Loaded(InPlace(call, on_stream), ptxas)


def refused_launch(library: ctypes.CDLL, path: Path, error: bytes) -> str:
    """The line, the kernel and the reason of a refused launch, in the words of `launch.h`; "" if they are unknown."""
    line, kernel = ctypes.c_size_t(), ctypes.c_size_t()
    library.grader_refused_launch.restype = ctypes.c_char_p
    why = library.grader_refused_launch(ctypes.byref(line), ctypes.byref(kernel))
    if why is None or error not in REFUSALS:
        return ""
    built, folder = Path(library._name), path.parent.resolve()
    where = line_of(frames(built, line.value), path.name, lambda file: file.resolve().is_relative_to(folder))
    return f": line {where} launches {kernel_of(frames(built, kernel.value))} with {why.decode()}"


def build_folder(source: Path, *how: str) -> Path:
    """The folder of the library that is built of `source`, for all workers of the submission in this run. If the folder
    exists, the library in it is complete.

    Args:
        source: the student's file; its folder holds all files that it may include.
        how: the compiler and its options.
    """
    name = hashlib.sha256(repr((source.name, how)).encode())
    for path in sorted(source.parent.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name.update(repr((str(path.relative_to(source.parent)), path.read_bytes())).encode())
    return Path(os.environ["GRADER_BUILDS"], name.hexdigest())


def keep_build(folder: Path, library: Path, told: str = "") -> None:
    """Store a library and its compiler's messages in `folder`. Stores nothing if another worker was faster or the disk
    is full.
    """
    made = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        made.mkdir(parents=True)
        shutil.copyfile(library, made / LIBRARY)
        (made / TOLD).write_text(told, encoding="utf-8")
        made.rename(folder)
    shutil.rmtree(made, ignore_errors=True)


def _c_abi_library(path: Path, build: Build) -> tuple[ctypes.CDLL, str]:
    """The library of a `.cu` file, built by another worker or here, and ptxas's words."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}"
    kept = build_folder(path, build.compiler, arch)
    with suppress(OSError):  # the library is missing or damaged
        return ctypes.CDLL(str(kept / LIBRARY)), (kept / TOLD).read_text(encoding="utf-8")
    scratch = Path(os.environ["TMPDIR"])
    library = scratch / f"{path.stem}-{os.getpid()}.so"
    try:
        ptxas, warnings = nvcc.build_library(path, LAUNCHES, build.compiler, arch, library, build.limit_s)
    except nvcc.CompileError as error:
        raise LoadError("build_failed", str(error), "toolchain") from None
    if warnings.strip():
        print(warnings, file=sys.stderr)
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        if told := undefined(str(error), path):
            raise LoadError("build_failed", told) from None
        raise
    keep_build(kept, library, ptxas)
    return loaded, ptxas


def _load_torch_extension(path: Path, entry: str, signature: Signature) -> Callable[..., Any]:
    """Load a PyTorch extension, whose entry takes inputs and options and returns the output (`torch_form.py`)."""
    if len(signature.outputs) > 1:
        raise LoadError("failed", f'{path.name} has {len(signature.outputs)} outputs: write {entry} as extern "C"')
    major, minor = torch.cuda.get_device_capability()
    module = torch_extension(path, entry, signature, f"{major}.{minor}")
    if not hasattr(module, entry):
        bound = [name for name in vars(module) if not name.startswith("_")]
        raise torch_form.missing_in_extension(path, entry, bound)
    return getattr(module, entry)  # type: ignore[no-any-return]


def _build_with_pytorch(name: str, sources: list[str], folder: str, headers: str) -> ModuleType:
    from torch.utils import cpp_extension

    return cpp_extension.load(  # type: ignore[no-any-return]
        name, sources, build_directory=folder, extra_include_paths=[headers], extra_cuda_cflags=CUDA_FLAGS
    )


def torch_extension(
    path: Path, entry: str, signature: Signature, arch: str, build: Callable[..., ModuleType] = _build_with_pytorch
) -> ModuleType:
    """The extension of a `.cu` file for a GPU of the capability `arch`, built by another worker or here.

    Args:
        build: builds and imports a module, from its name, its sources, the folder for what it makes, and the folder with
            the student's headers.
    """
    forms = torch_form.extensions(path, entry, signature)
    kept = {form.name: build_folder(path, "torch", arch, entry, form.name) for form in forms}
    for name, library in kept.items():
        with suppress(OSError, ImportError):  # the library is missing or damaged
            return _import(name, library / LIBRARY)
    os.environ["TORCH_CUDA_ARCH_LIST"] = arch

    def built(form: torch_form.Extension) -> ModuleType:
        folder = Path(os.environ["TMPDIR"], f"{form.name}-{os.getpid()}")  # a new one: a killed build leaves a lock
        folder.mkdir()
        for name, text in form.texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        module = build(form.name, [str(folder / name) for name in form.texts], str(folder), str(path.parent))
        keep_build(kept[form.name], Path(str(module.__file__)))
        return module

    *narrow, own = forms
    for form in narrow:
        with suppress(RuntimeError, ImportError):
            return built(form)
    try:
        return built(own)
    except RuntimeError as error:
        told = str(error).replace(f"{path.parent}{os.sep}", "")
        raise LoadError("build_failed", told, "submission" if nvcc.blames(told, path.parent) else "toolchain") from None
