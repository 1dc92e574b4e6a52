"""The worker's side of CUDA C++ on the CPU: loads a `.cu` file and calls it on the arena. No PyTorch, so the worker starts at once."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from grader import protocol
from grader.worker import nvcc, torch_form
from grader.worker.cuda_cpu import windows
from grader.worker.cuda_cpu.build import NO_LIBRARY, BuildFailed, Library, Unsupported, compile_library
from grader.worker.cuda_cpu.tracing import TraceReader, has_vectors, sources_of
from grader.worker.cuda_cpu.windows import ELEMENT_BYTES, Floats
from grader.worker.entries import missing_in_library
from grader.worker.errors import LoadError, describe, set_root
from grader.worker.late import told_where
from grader.worker.signature import Signature

NULL_BYTES = 4096  # A smaller address came of a null pointer.


class EndedBySignal(LoadError):
    """A signal ended a call; the worker cannot make further calls."""


class Kernel:
    """The student's function. A call's arguments are inputs, options and outputs, in this order. ptxas: the output of `ptxas -v`."""

    def __init__(self, library: Library, entry: str, signature: Signature, ptxas: str, folder: Path) -> None:
        self.ptxas = ptxas
        self.signature = signature
        self._folder = folder
        self.library = library
        self.library.sizes = " or ".join(signature.sizes) or "the number of elements"
        self._entry = entry
        self._stream = library.new_stream()
        self.off_stream: list[str] = []  # of the first call with such work
        self.same_value: list[str] = []  # of the first call with such writes

    def _tensors(self, arguments: Sequence[Any]) -> tuple[dict[str, Floats], dict[str, Floats]]:
        """The inputs and the outputs among the arguments, by name."""
        inputs, outputs = self.signature.inputs, self.signature.outputs
        given, written = arguments[: len(inputs)], arguments[-len(outputs) :]
        return dict(zip(inputs, given, strict=True)), dict(zip(outputs, written, strict=True))

    def _run(self, arguments: Sequence[Any], order: int = 0, sample: bool = False, traced: bool = False) -> None:
        self.library.begin(order, sample, traced)
        inputs, outputs = self._tensors(arguments)
        self._declare(inputs, outputs, sample)
        number, fault = self._call(arguments), self.library.fault()
        if number and (fault is None or fault.kind != "host_access"):
            raise EndedBySignal("crashed", self._ending(number))
        if fault is not None:
            ended = EndedBySignal if number else LoadError
            raise ended("failed", f"{fault.kind.replace('_', ' ')}: {fault.text}")
        if error := self.library.launch_fault():
            raise LoadError("failed", f"the launch failed: {error}")

    def _declare(self, inputs: dict[str, Floats], outputs: dict[str, Floats], sample: bool) -> None:  # noqa: ARG002
        for name, floats in (inputs | outputs).items():
            self.library.array(floats.address, floats.size_bytes, name, ELEMENT_BYTES, output=name in outputs)

    def _call(self, arguments: Sequence[Any]) -> int:
        """Call the function. Returns the signal that ended it, or 0."""
        function = getattr(self.library.functions, self._entry)
        return self.library.call(function, *self.signature.values(arguments, self._stream))

    def returned(self) -> protocol.Returned:
        """The description of each output of the last call."""
        return protocol.Returned("written")

    def _ending(self, number: int) -> str:
        """A sentence about a call that a signal ended."""
        main, stack = self.library.source, self.library.ended_at()
        lines = [f"line {one.line}{'' if one.file.name == main else f' of {one.file.name}'}" for one in stack]
        where = f"{', called from '.join(lines)}" if lines else "its own code"
        name = signal.Signals(number).name
        in_a_kernel = self.library.in_a_kernel()
        code = "device code" if in_a_kernel else "host code"
        if number == signal.SIGFPE:
            return f"{code} divides an integer by 0 in {where} ({name})"
        if number != signal.SIGILL and self.library.stack_was_full():
            if in_a_kernel:
                return (
                    f"device code has filled a thread's stack in {where} ({name}): does it call itself without an end?"
                )
            return f"host code calls itself until its stack is full, in {where} ({name})"
        if number == signal.SIGILL or in_a_kernel:  # whose accesses are checked before they are made
            return (
                f"{code} runs into what is no instruction in {where} ({name}): does each function return what it says?"
            )
        address = self.library.reached_for()
        what = "a null pointer" if address < NULL_BYTES else "a pointer to where there is no memory"
        return f"host code follows {what} in {where} ({name})"

    def place(self) -> str:
        """The student's lines in the running call, in the form of a Python traceback."""
        stack = self.library.locate()
        lines = (f'  File "{self._folder / one.file.name}", line {one.line} in {one.plain}\n' for one in stack)
        return "".join(lines)

    def call(self, arguments: Sequence[Any]) -> int:
        """Run the function with threads forwards, then backwards: results that differ depend on the threads' order.
        Raises LoadError.

        Returns:
            The number of launches.
        """
        inputs, outputs = (list(tensors.values()) for tensors in self._tensors(arguments))
        given, unwritten = _contents(inputs), _contents(outputs)
        self._run(arguments, order=0)
        launches = self.library.launches()
        self.off_stream = self.off_stream or self.library.off_stream()
        self.same_value = self.same_value or self.library.same_value()
        if _contents(inputs) != given:
            return launches  # an input was changed: the judge has a better sentence for that
        forwards = _contents(outputs)
        for output, content in zip(outputs, unwritten, strict=True):
            output.fill(content)
        self._run(arguments, order=1)
        if _contents(outputs) != forwards:
            raise LoadError("failed", "the result depends on the order in which threads run: consistent with a race")
        return launches

    def sample(self, arguments: Sequence[Any]) -> None:
        """Run large launches in part, to check the addresses of accesses and the end of the last output. Raises LoadError."""
        self._run(arguments, sample=True)
        if missing := self.library.unwritten_end_bytes() // ELEMENT_BYTES:
            words = f"the last {missing} elements" if missing > 1 else "the last element"
            name, end = self.signature.outputs[-1], arguments[-1].elements - 1
            raise LoadError(
                "failed", f"{words} of {name}, up to {name}[{end}], were never written: the blocks end before them"
            )

    def trace(self, arguments: Sequence[Any]) -> protocol.Trace:
        """Run a few blocks of each launch, and count what they access. Raises LoadError."""
        sources = sources_of(self._folder / self.library.source)
        self.library.functions.cuda_cpu_trace_vectors(has_vectors(sources))
        self._run(arguments, traced=True)
        return TraceReader(self.library, sources, self.signature.outputs[-1]).trace()


class Value(ctypes.Structure):
    """`cuda_cpu_value` of torch_tensor.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("dims", ctypes.c_int64),
        ("whole", ctypes.c_int64),
        ("real", ctypes.c_double),
    )

    @classmethod
    def of(cls, argument: Any) -> Value:
        if not isinstance(argument, Floats):
            return cls(whole=int(argument), real=float(argument))
        return cls(argument.address, (ctypes.c_int64 * len(argument.shape))(*argument.shape), len(argument.shape))


class Result(ctypes.Structure):
    """`cuda_cpu_result` of torch_tensor.h."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_bytes", ctypes.c_int64),
        ("told", ctypes.c_char * 1024),
        ("kind", ctypes.c_char * 16),
        ("type", ctypes.c_char * 64),
        ("dtype", ctypes.c_char * 16),
        ("device", ctypes.c_char * 16),
        ("sizes", ctypes.c_int64 * 16),
        ("dims", ctypes.c_int64),
        ("unsupported", ctypes.c_int32),
    )


class TorchForm(Kernel):
    """A function that takes tensors and returns a new one, which is copied to the output's place (see `include/torch_tensor.h`)."""

    _result = Result()
    _wanted: tuple[int, ...] = ()

    def _declare(self, inputs: dict[str, Floats], outputs: dict[str, Floats], sample: bool) -> None:
        # The function allocates its output; of a sample it gets the output's memory, for nothing is copied then.
        super()._declare(inputs, outputs if sample else {}, sample)

    def _call(self, arguments: Sequence[Any]) -> int:
        given, output = [Value.of(one) for one in arguments[:-1]], arguments[-1]
        values, entry = (Value * len(given))(*given), ctypes.create_string_buffer(self._entry.encode())
        result = self._result = Result(output.address, output.size_bytes)
        self._wanted = output.shape
        addresses = (ctypes.addressof(entry), ctypes.addressof(values), len(given), ctypes.addressof(result))
        return self.library.call(self.library.functions.cuda_cpu_torch, *addresses)

    def _run(self, arguments: Sequence[Any], order: int = 0, sample: bool = False, traced: bool = False) -> None:
        super()._run(arguments, order, sample, traced)
        self.off_stream = []  # the current stream of PyTorch is a default stream
        if told := self._result.told.decode(errors="replace"):
            raise (
                LoadError("unsupported", f"needs a GPU: {told} is not available on the CPU")
                if (self._result.unsupported)
                else LoadError("failed", f"RuntimeError: {told}")
            )

    def returned(self) -> protocol.Returned:
        """The description of the returned tensor, as `worker/run.py` makes it; "written" for a right dtype and shape."""
        one, shape = self._result, tuple(self._result.sizes[: self._result.dims])
        words = [one.kind.decode(), one.type.decode(), one.dtype.decode(), one.device.decode()]
        if words == ["tensor", "Tensor", "float32", "cpu"] and shape == self._wanted:
            return protocol.Returned("written")
        return protocol.Returned(words[0], words[1], words[2], shape, words[3])


def _contents(tensors: Sequence[Floats]) -> list[bytes]:
    return [one.content() for one in tensors]


def load(path: Path, entry: str, build: protocol.Build) -> Kernel:
    """Build the file at `path`.

    Args:
        build: `compiler`, g++ or clang++; `limit_s`, its limit in seconds; `nvcc`, which compiles the file for `arch`
            too, or None; `signature`, the entry's parameters. A file that nvcc refuses is a failed build.

    Raises:
        LoadError: build_failed; unsupported, if only a GPU can run the file; failed, if the entry is missing.
    """
    set_root(path.parent)
    scratch = Path(os.environ["TMPDIR"])
    trial, signature, addition = None, Signature(build.signature, attrgetter("address")), ""
    form: type[Kernel] = TorchForm if torch_form.is_torch_form(path) else Kernel
    if form is TorchForm:
        if told := torch_form.undeclared_tensor(path):
            raise LoadError("build_failed", told)
        source = path.read_text(encoding="utf-8-sig", errors="replace")
        if binding := torch_form.binding(source, entry, signature):
            addition = f'\n#line 1 "the binding of {entry}"\n{binding}'
    elif build.nvcc:  # which has no PyTorch headers
        trial = nvcc.TrialBuild(path, build.nvcc, build.arch, scratch, build.limit_s)
    try:
        try:
            library = compile_library(path, scratch, build.compiler, build.limit_s, addition)
        finally:
            # nvcc's refusal comes before the CPU's.
            by_nvcc = _told(trial, path.name) if trial else None
    except Unsupported as error:
        raise LoadError("unsupported", f"needs a GPU: {path.name}, {error}") from None
    except (BuildFailed, nvcc.CompileError) as error:
        raise LoadError("build_failed", str(error), "toolchain") from None
    if form is TorchForm:
        tell = library.functions.cuda_cpu_bound
        tell.restype = ctypes.c_char_p
        bound = [name.decode() for name in itertools.takewhile(bool, map(tell, itertools.count()))]
        if entry not in bound:
            raise torch_form.missing_in_extension(path, entry, bound)
    elif not hasattr(library.functions, entry):
        raise missing_in_library(path, entry, Path(f"{library.path}.o"))
    told = library.told if by_nvcc is None else by_nvcc
    return form(library, entry, signature, told, path.parent)


def _told(trial: nvcc.TrialBuild, name: str) -> str | None:
    """The compiler's words (see `nvcc.TrialBuild`); None if nvcc does not work, or lacks a library's header. Raises nvcc.CompileError."""
    try:
        return trial.finish()
    except nvcc.CompileError as error:
        if NO_LIBRARY.search(str(error)):
            return None  # the build for the CPU reports the header
        raise
    except nvcc.NvccUnusable as error:
        print(f"nvcc does not work here, so {name} was only built for the CPU:\n{error}", file=sys.stderr)
        return None


def call(kernel: Kernel, request: protocol.MakeCalls, files: Sequence[int]) -> protocol.Reply:
    """Make the calls: the outputs of each are in the arena afterwards. If a call is traced or has windows, only the first is
    made. Raises LoadError.
    """
    first = request.calls[0]

    def arguments(floats: Sequence[Floats]) -> list[Any]:
        return [*floats[: len(first.args)], *request.options, *floats[len(first.args) :]]

    launches = None  # unknown where large launches run in part
    try:
        with told_where(request.limit_s, kernel.place):
            if request.record == "trace":
                with _floats(request, files) as (floats, *_):
                    return protocol.Reply(trace=kernel.trace(arguments(floats)))
            if request.windows > 1:
                refs = (*first.args, *first.outputs)
                with windows.repeated(files[0], refs, request.windows, protocol.SAMPLE_CUT) as floats:
                    kernel.sample(arguments(floats))
            else:
                with _floats(request, files, kernel) as calls:
                    launches = sum(kernel.call(arguments(floats)) for floats in calls)
    except EndedBySignal as error:
        return protocol.Reply(error=describe(error), broken=True)
    returned = tuple(kernel.returned() for one in request.calls for _ in one.outputs)
    off_stream, same_value = (tuple(one[:200] for one in found) for found in (kernel.off_stream, kernel.same_value))
    return protocol.Reply(returned=returned, launches=launches, off_stream=off_stream, same_value=same_value)


@contextlib.contextmanager
def _floats(
    request: protocol.MakeCalls, files: Sequence[int], kernel: Kernel | None = None
) -> Iterator[list[list[Floats]]]:
    """The tensors of each call in the arena: inputs, then outputs. The host's code of a `kernel` cannot touch them."""
    memory = mmap.mmap(files[0], request.arena.bytes)
    view = ctypes.c_char.from_buffer(memory)
    try:
        start = ctypes.addressof(view)
        if kernel is not None:
            kernel.library.keep_from_the_host(start, request.arena.bytes)
        refs = [(*one.args, *one.outputs) for one in request.calls]
        yield [[Floats.at(start + ref.start_bytes, ref) for ref in one] for one in refs]
    finally:
        if kernel is not None:
            kernel.library.keep_from_the_host(0, 0)
        del view
        memory.close()
