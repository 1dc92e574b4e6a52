"""Loads a submission: imports a Python file, or compiles a CUDA file and binds its entry."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

MAX_MESSAGE = 4000
MAX_TRACEBACK = 12000
SUBMISSION_FRAMES = 12

# Built into the student's library: a launch error is kept by the CUDA runtime that is linked into it, and no other sees it.
LAST_ERROR = """
#include <cuda_runtime_api.h>
extern "C" const char* grader_last_error() {
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorName(error);
}
"""

_root = ""  # the staged submission; set when it is loaded


class LoadError(Exception):
    """Loading ended before the student's code ran; `kind` is the outcome's name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def load(path: Path, entry: str, compiler: str | None, device: str, build_limit_s: float) -> Callable[..., Any]:
    """The student's function from the file at `path`; a CUDA file is built with `compiler` first: nvcc, or for the CPU g++ or clang++."""
    global _root
    _root = str(path.parent)
    sys.path.insert(0, _root)
    if compiler is not None:
        build = _load_cuda if device == "cuda" else _load_cuda_for_cpu
        return build(path, entry, compiler, build_limit_s)
    return _load_python(path, entry)


def _load_python(path: Path, entry: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise LoadError("failed", f"{path.name} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, entry, None)
    if function is None:
        raise LoadError("failed", f"{path.name} has no function {entry!r}")
    if not callable(function):
        raise LoadError("failed", f"{entry!r} in {path.name} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def check_signature(function: Callable[..., Any], arguments: list[Any]) -> None:
    """Refuse a call that cannot bind, in words. Raises LoadError."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # builtins and autograd's `apply` do not tell
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        raise LoadError(
            "failed",
            f"{name}{signature} cannot be called with {len(arguments)} arguments as the contract says: {error}",
        ) from None


def _load_cuda(path: Path, entry: str, compiler: str, build_limit_s: float) -> Callable[..., Any]:
    if re.search(r'#\s*include\s*[<"](torch|ATen|c10)/', path.read_text(encoding="utf-8", errors="replace")):
        return _load_torch_extension(path, entry)
    return _load_c_abi(path, entry, compiler, build_limit_s)


def _load_c_abi(path: Path, entry: str, compiler: str, build_limit_s: float) -> Callable[..., Any]:
    """`extern "C" void entry(const float* x, float* y, int64_t n, cudaStream_t stream)`: built by nvcc, called through ctypes."""
    scratch = Path(os.environ["TMPDIR"])
    library, probe = scratch / f"{path.stem}-{os.getpid()}.so", scratch / "last_error.cpp"
    probe.write_text(LAST_ERROR, encoding="utf-8")
    major, minor = torch.cuda.get_device_capability()
    options = ["-shared", "-O3", "-std=c++17", "-Xcompiler", "-fPIC", f"-arch=sm_{major}{minor}", "-lineinfo"]
    # The file is named as the student knows it, so that the compiler's messages are too.
    command = [compiler, *options, "-o", str(library), path.name, str(probe)]
    try:
        done = subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, errors="replace", timeout=build_limit_s
        )
    except subprocess.TimeoutExpired:
        raise LoadError("build_failed", f"nvcc did not finish within {build_limit_s:g} s") from None
    if done.returncode != 0:
        raise LoadError("build_failed", done.stderr + done.stdout)
    if done.stderr.strip():
        print(done.stderr, file=sys.stderr)
    loaded = ctypes.CDLL(str(library))
    if not hasattr(loaded, entry):
        raise LoadError(
            "failed", f'{path.name} was built, but exports no function {entry!r}: is it declared extern "C"?'
        )
    function, last_error = getattr(loaded, entry), loaded.grader_last_error
    function.restype, last_error.restype = None, ctypes.c_char_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]

    def call(x: torch.Tensor, y: torch.Tensor) -> None:
        stream = torch.cuda.Stream()  # not the default stream: the contract gives the function the one to launch on
        stream.wait_stream(torch.cuda.current_stream())
        function(x.data_ptr(), y.data_ptr(), x.numel(), stream.cuda_stream)
        if error := last_error():
            raise RuntimeError(f"the launch failed: {error.decode()}")
        stream.synchronize()

    call.writes_to_output = True  # type: ignore[attr-defined]
    return call


def _load_cuda_for_cpu(path: Path, entry: str, compiler: str, build_limit_s: float) -> Callable[..., Any]:
    """The C form, with the CPU standing in for the GPU (see `grader.worker.cuda_cpu`)."""
    from grader.worker.cuda_cpu.build import BuildFailed, Unsupported, compile_library

    try:
        library = compile_library(path, Path(os.environ["TMPDIR"]), compiler, build_limit_s)
    except Unsupported as error:
        raise LoadError("unsupported", f"{path.name}, {error}") from None
    except BuildFailed as error:
        raise LoadError("build_failed", str(error)) from None
    if not hasattr(library.functions, entry):
        raise LoadError(
            "failed", f'{path.name} was built, but exports no function {entry!r}: is it declared extern "C"?'
        )
    function = getattr(library.functions, entry)
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]

    def once(x: torch.Tensor, y: torch.Tensor, order: int) -> None:
        library.begin(order)
        for name, tensor in (("x", x), ("y", y)):
            library.array(tensor.data_ptr(), tensor.numel() * tensor.element_size(), name, tensor.element_size())
        function(x.data_ptr(), y.data_ptr(), x.numel(), None)
        if fault := library.fault():
            raise LoadError("failed", f"{fault.kind.replace('_', ' ')}: {fault.text}")
        if error := library.launch_error():
            raise RuntimeError(f"the launch failed: {error}")

    def call(x: torch.Tensor, y: torch.Tensor) -> None:
        unwritten = y.clone()
        once(x, y, order=0)
        forwards = y.clone()
        y.copy_(unwritten)
        once(x, y, order=1)
        if not torch.equal(y.view(torch.uint8), forwards.view(torch.uint8)):
            raise LoadError("failed", "the result depends on the order in which threads run: consistent with a race")

    call.writes_to_output = True  # type: ignore[attr-defined]
    return call


def _load_torch_extension(path: Path, entry: str) -> Callable[..., Any]:
    """`torch::Tensor entry(torch::Tensor x)`: built as a PyTorch extension in a fresh folder, for a killed build leaves a lock."""
    from torch.utils import cpp_extension

    folder = Path(os.environ["TMPDIR"], f"extension-{os.getpid()}")
    folder.mkdir()
    source = path.read_text(encoding="utf-8", errors="replace")
    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"
    (folder / path.name).write_text(f'#line 1 "{path.name}"\n{source}', encoding="utf-8")
    sources = [str(folder / path.name)]
    if "PYBIND11_MODULE" not in source:
        binding = (
            f"#include <torch/extension.h>\ntorch::Tensor {entry}(torch::Tensor x);\n"
            f'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{entry}", &{entry}); }}\n'
        )
        (folder / "binding.cpp").write_text(binding, encoding="utf-8")
        sources.append(str(folder / "binding.cpp"))
    try:
        module = cpp_extension.load(
            name=f"submission_{path.stem}", sources=sources, build_directory=str(folder), extra_cuda_cflags=["-O3"]
        )
    except RuntimeError as error:
        raise LoadError("build_failed", str(error)) from None
    if not hasattr(module, entry):
        raise LoadError("failed", f"{path.name} was built, but binds no function {entry!r}")
    return getattr(module, entry)  # type: ignore[no-any-return]


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as the student should read it: its kind, its message, and the traceback cut to their own frames."""
    if isinstance(error, LoadError):
        return {"kind": error.kind, "type": "", "message": _clean(str(error))[:MAX_TRACEBACK], "traceback": ""}
    return {
        "kind": _kind(error),
        "type": _clean(type(error).__name__)[:100],
        "message": _clean(_message(error))[:MAX_MESSAGE],
        "traceback": _clean(_own_traceback(error))[-MAX_TRACEBACK:],
    }


def _clean(text: str) -> str:
    """Without lone surrogates, which undecodable file names bring and no JSON reader likes."""
    return text.encode(errors="replace").decode()


def _kind(error: BaseException) -> str:
    if isinstance(error, NotImplementedError):
        return "not_implemented"
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return "out_of_memory"
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "crashed"
    if "CUDA error" in _message(error) or type(error).__name__ == "AcceleratorError":
        return "crashed"
    return "failed"


def _message(error: BaseException) -> str:
    """The error's own words; for Triton's wrapped errors, those of the cause."""
    seen = error
    while seen.__cause__ is not None and type(seen).__name__ in ("InterpreterError", "CompilationError"):
        seen = seen.__cause__
    try:
        text = str(seen)
    except BaseException as failure:
        text = f"(its message cannot be shown: {type(failure).__name__})"
    return text if seen is error else ": ".join(part for part in (type(seen).__name__, text) if part)


def _own_traceback(error: BaseException) -> str:
    """The frames that lie in the submission, with paths as the student knows them, through the chain of causes."""
    frames: list[traceback.FrameSummary] = []
    seen: BaseException | None = error
    while seen is not None:
        frames += _submission_frames(seen.__traceback__)
        seen = seen.__cause__
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(_root):
        text = "".join(traceback.format_exception_only(error)[:-1])  # without the message, which is told apart
    else:
        text = "".join(traceback.format_list(frames[-SUBMISSION_FRAMES:]))
    return text.replace(f"{_root}{os.sep}", "")


def _submission_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(trace) if frame.filename.startswith(_root)]
