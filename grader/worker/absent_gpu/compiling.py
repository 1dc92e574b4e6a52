"""Compiles a submission's Triton kernels for GPUs that this machine lacks, instead of running them.

The submission is called as usual, on tensors in the CPU's memory. Each launch of the call is compiled for a given
architecture, as Triton would compile on such a GPU, and not run. So the results of the call mean nothing; the reply has
the registers, shared memory and errors of its kernels.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from triton import knobs
from triton.compiler.errors import CompilationError
from triton.errors import TritonError
from triton.runtime import driver, jit
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from grader import protocol
from grader.protocol import CompiledKernel, Gpu, WorkerError
from grader.worker import absent_gpu, run, tracing
from grader.worker.errors import MAX_CAUSES, MAX_MESSAGE, clean, describe, name_in
from grader.worker.grids import GridTooLarge, check_grid
from grader.worker.nvcc import told
from grader.worker.texts import texts_of

WARP, MAX_THREADS = 32, 1024  # threads of a warp, and those that every GPU allows a program
# Messages of other exceptions than TritonError with which Triton refuses a kernel.
REFUSALS = re.compile(r"PassManager|^Unsupported function referenced|was specified but unrecognised|^num_warps must be")
MAX_TOLD = 1500  # What ptxas says of a kernel is cut to this many characters.
MAX_KERNELS = 16  # At most this many kernels are compiled for a call and an architecture.
MAX_TEXTS = 800_000  # A frame holds at most this many characters of packed compiler output.


class Compiler:
    """Replaces Triton's launch and autotuner in this process, for good: every launch is compiled only.

    Attributes:
        failures: the failed launches of the last call: a kernel's name, its error as raised, and the error for the
            student, with the line in the kernel.
    """

    def __init__(self) -> None:
        knobs.nvidia.dump_ptxas_log = True
        # By a kernel's identity; holds the kernel too, so that no later kernel can get the same identity.
        self._told: dict[int, tuple[Any, CompiledKernel]] = {}
        self._launched: list[tuple[Any, CompiledKernel]] = []
        self.failures: list[tuple[str, WorkerError, WorkerError]] = []
        self._gpu: Gpu | None = None
        # Of compiled kernels, by a function's identity and the architecture.
        self._caches: dict[tuple[int, str], Any] = {}
        launch, tune = JITFunction.run, Autotuner.run

        def compile_only(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            words = io.StringIO()
            try:
                # Triton caches by device, and here every GPU is device 0.
                key = id(function), str(driver.active.get_current_target().arch)
                function.device_caches = self._caches.setdefault(key, defaultdict(function.create_binder))
                with contextlib.redirect_stdout(words), torch._C.DisableTorchFunction():
                    kernel = launch(function, *args, grid=grid, warmup=True, **options)
                if kernel is not None:
                    self._keep(kernel, _name(function), words.getvalue())
                if not warmup:
                    check_grid(_name(function), grid(_bound(function, args, options)) if callable(grid) else grid)
            except Exception as error:
                # Any other error of a launch, such as a full disk, is this machine's fault.
                blamed = isinstance(error, TritonError | GridTooLarge) or bool(REFUSALS.search(str(error)))
                original = describe(error)
                described = _where(error, original) if blamed else replace(original, kind="crashed")
                self.failures.append((_name(function), original, described))
                raise
            return kernel

        def tune_anew(tuner: Any, *args: Any, **options: Any) -> Any:
            tuner.cache.clear()  # the tuner keeps its choice for an input, and would keep it for the next architecture
            return tune(tuner, *args, **options)

        JITFunction.run, Autotuner.run = compile_only, tune_anew

    def _keep(self, kernel: Any, name: str, words: str) -> None:
        """Note a kernel. Raises OutOfResources, as its launch would, if it needs more shared memory or threads than the GPU has."""
        if id(kernel) not in self._told:
            metadata = kernel.metadata
            noted = CompiledKernel(name, int(metadata.num_warps), int(metadata.shared), told(words)[:MAX_TOLD])
            self._told[id(kernel)] = (kernel, noted)
        _, noted = self._told[id(kernel)]
        if self._gpu is not None and noted.shared_bytes > self._gpu.shared_bytes:
            raise OutOfResources(noted.shared_bytes, self._gpu.shared_bytes, "shared memory")
        if (threads := WARP * noted.warps) > MAX_THREADS:
            raise OutOfResources(threads, MAX_THREADS, "threads")
        if all(noted != other for _, other in self._launched):
            self._launched.append((kernel, noted))

    def answer(self, function: Callable[..., Any], request: protocol.MakeCalls, files: list[int]) -> protocol.Reply:
        """Compile the launches of the calls for the GPU `request.target`.

        The reply reports a failed launch only if its error ended the call: a submission may try a launch and catch the
        error. Another error of the call is not reported, because it may come from results that mean nothing. If the
        call is traced, its tensors may be sparse memory, and the kernels have `texts`.
        """
        assert request.target is not None
        self._gpu, arch = request.target, request.target.arch
        self._launched, self.failures = [], []
        absent_gpu.provide(request.target)
        traced = request.record == "trace"
        reply = tracing.call(function, request, files) if traced else run.call(function, request, files, "cpu")
        ended = reply.error
        failed, error = "", None
        for name, original, described in self.failures:
            if ended and (original.type, original.message) == (ended.type, ended.message):
                failed = name
                error = replace(described, traceback=described.traceback or ended.traceback)  # where it was launched
        launched, left = [], MAX_TEXTS if traced else 0
        for kernel, noted in self._launched[:MAX_KERNELS]:
            texts = texts_of(kernel, left) if left else ()
            left -= sum(len(one.packed) for one in texts)
            launched.append(replace(noted, texts=texts))
        return protocol.Reply(compiled=protocol.CompiledCall(arch, tuple(launched), failed, error, ended is None))


def _bound(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """A kernel's arguments by name, as Triton passes them to a function that computes the grid."""
    known = {name: value for name, value in options.items() if name in function.arg_names}
    bound = inspect.signature(function.fn).bind(*args, **known)
    bound.apply_defaults()
    return bound.arguments


def _name(function: Any) -> str:
    return re.sub(r"\W", "_", str(function.fn.__name__))[:200] or "_"


def _where(error: BaseException, described: WorkerError) -> WorkerError:
    """The description with the message and the student's line of Triton's compiler, if the compiler names a line."""
    seen: Any = error
    for _ in range(MAX_CAUSES):  # an error in a called kernel is the cause of an error in the calling kernel
        named = isinstance(seen, CompilationError) and seen.src and hasattr(seen.node, "lineno")
        if named and (place := _line_of(str(seen.src), seen.node.lineno)):  # empty for a function of Triton's own
            line = str(seen.src).splitlines()[seen.node.lineno - 1].strip()[:200]
            described = replace(described, traceback=clean(f"  File {place}\n    {line}\n"))
        if seen.__cause__ is None:
            break
        seen = seen.__cause__
    if isinstance(seen, CompilationError) and seen.error_message:
        described = replace(described, message=clean(str(seen.error_message))[:MAX_MESSAGE])
    return described


def _line_of(source: str, line: int) -> str:
    """A kernel's line, counted from its `def`, as `"kernel.py", line 7`; "" if the kernel is not the student's."""
    known = getattr(jit, "_triton_jit_function_registry", {})  # Triton 3.6 has none
    for function in list(known.values()):
        if function.src == source and (name := name_in(function.fn.__code__.co_filename)):
            before = next(index for index, text in enumerate(function.raw_src) if re.match(r"\s*def\s", text))
            return f'"{name}", line {function.starting_line_number + before + line - 1}'
    return ""
