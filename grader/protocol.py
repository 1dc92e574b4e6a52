"""The frames that a contender and its worker exchange.

A frame is four bytes of length, big-endian, and a JSON object of at most `MAX_FRAME_BYTES`: the fields of one of the dataclasses below, and
in `is` its name. The worker answers each request with one `Reply` of the same id. A reply with id 0 is unasked: the first says that the
worker is ready, one in a timed batch that all calls stand behind their gate.

The worker takes requests as they are, for the judge is trusted. `grader/contender/replies.py` checks replies, by the types here and the
`Bound` of each field. Tensors never travel in frames: they lie in the arena, and a frame only says where. Open files (the arena's memory)
travel beside a frame over the Unix socket.

Nothing but the standard library is imported here, and nothing else of `grader` is visible to a worker.
"""

from __future__ import annotations

import difflib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

MAX_CALLS = 1000  # of a timed batch; each call's tensors take up to 900 bytes of a frame
MAX_FRAME_BYTES = 1 << 20
MAX_FILES = 4
MATRIX = 8192  # rows and columns of the factors in the contender `matmul`
# The guard around tensors reads as NaN in every floating-point type. The poison, in outputs and in memory that a worker newly allocates, is
# finite in each of them (1.3e36, in float16 61280) and unlike any answer: arithmetic would keep a NaN, and a computed NaN could not be told
# from one that was never overwritten. It is positive, or a maximum that was never set would act as -inf and be right by luck.
GUARD_BYTE = 0xFF
POISON_BYTE = 0x7B
# By how many elements a sample's tensors are shorter than whole windows: a multiple of a large power of two is exact even in float32.
SAMPLE_CUT = 221
# The elements of an input until, on the stream that a function is given, its numbers have arrived. Unlike the poison, so that a copy of it
# is not taken for an element that was never written; and so large that an activation function leaves it as it is.
EARLY_VALUE = 1234.5

NAMED = 4  # functions that a sentence names

# What torch imports with the first backward pass that is given a gradient: hundreds of modules, sympy's among them.
NEEDED_FOR_GRADIENTS = "torch.fx.experimental.symbolic_shapes"
EARLY = "GRADER_EARLY"  # names of modules in a worker's environment, which it imports before it is ready


class ProtocolError(Exception):
    """The other side sent something that is no frame, or this side was about to."""


class Bound:
    """Limits of a field of a reply, in the words of pydantic's core schemas. A worker does without pydantic, which takes long to import."""

    def __init__(self, **limits: object) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(source) | self._limits


Name: TypeAlias = Annotated[str, Bound(max_length=200)]
Words: TypeAlias = Annotated[str, Bound(max_length=20_000)]
Size: TypeAlias = Annotated[int, Bound(ge=0, lt=1 << 63)]
Count: TypeAlias = Annotated[int, Bound(ge=0, le=1 << 40)]
Seconds: TypeAlias = Annotated[float, Bound(ge=0, le=1e6, allow_inf_nan=False)]
Option: TypeAlias = bool | int | float


@dataclass(frozen=True)
class Frame:
    """A request, or the reply to one.

    id: the number of the request; 0 of a reply that nobody asked for.
    """

    id: Size = field(default=0, kw_only=True)


# What a contender asks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory of the judge's: a file that comes beside the frame, or on a GPU what `handle` of CUDA IPC opens, in hexadecimal digits."""

    bytes: int
    handle: str = ""


@dataclass(frozen=True)
class Ref:
    """A tensor in such memory; `stride` in elements."""

    dtype: str
    start_bytes: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Operands:
    """The tensors of one call.

    args: what the function is given before the options. upstream: the gradient of its result, where the gradients of all `args` are asked
    for. outputs: places of the results; none where they are collected.
    """

    args: tuple[Ref, ...]
    upstream: Ref | None
    outputs: tuple[Ref, ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a CUDA entry; in problem.toml a string, as `grader.assignment.PARAMETER_FORMS` has it.

    A number with a `tensor` is the number of its elements, or its length along `axis`. A number without a tensor is an option of the call
    (`grader.problem.Call.options`). Inputs, options and outputs have the order of problem.py.
    """

    type: Literal["const float*", "float*", "int64_t", "int", "bool", "float", "cudaStream_t"]
    name: str
    tensor: str | None = None
    axis: int | None = None


@dataclass(frozen=True)
class Build:
    """How a `.cu` file is built: by `compiler`, in at most `limit_s` seconds. `signature`: the entry's parameters.

    compiler: nvcc for a GPU; g++ or clang++ where the CPU stands in for one.
    nvcc: where there is one but no GPU; it compiles the file for `arch` (as `sm_90`) as well.
    """

    compiler: str
    limit_s: float
    nvcc: str | None
    arch: str
    signature: tuple[Parameter, ...]


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, as CUDA tells of it.

    name: its driver's. capability: 9 and 0 for `sm_90`. multiprocessors: how many; each has so many `threads` and `registers`, and
    `shared_bytes_of_all` of shared memory. memory_mib, l2_mib: in MiB. shared_bytes: of a block that asks for more than the 48 KiB of each.
    clock_khz: the multiprocessors'; memory_clock_khz, memory_bits: of the memory, and its width. warp: threads of a warp.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_mib: int
    shared_bytes: int
    shared_bytes_of_all: int
    threads: int
    l2_mib: int
    clock_khz: int
    memory_clock_khz: int
    memory_bits: int
    registers: int = 65_536
    warp: int = 32

    @property
    def arch(self) -> str:
        """As `sm_90`."""
        return "sm_{}{}".format(*self.capability)


@dataclass(frozen=True)
class Load(Frame):
    """Load the file at `path`, built where `build` is not None, and take its function `entry`, by torch.compile where `compiled`.

    limit_s: when the worker writes down where it is. gpu: the GPU that submissions are graded on, for a worker that has none.
    """

    path: str
    entry: str
    build: Build | None
    compiled: bool
    limit_s: float
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Yardstick(Frame):
    """Take what stands for a limit of the machine, by its name in `grader/worker/yardsticks.py`, instead of a file."""

    name: str


@dataclass(frozen=True)
class Call(Frame):
    """Make these calls, all of them before the first backward pass and before any result is looked at.

    options: further arguments of each call. limit_s: when the worker writes down where it is.
    reverse: whether the last call's backward pass comes first.
    windows: more than 1, for CUDA C++ on the CPU: tensors repeat their memory so many times, but for the last few elements, and large
        launches are run in part.
    target: of a worker that compiles, the GPU to compile for.
    apart: whether each tensor is to lie in an allocation of its own, not in the arena: a tool then sees where it ends.
    profiled: whether the reply is to name the kernels that ran on the GPU.
    keep: whether the results are to be in use until the next call has returned; its own are `kept` where a buffer is used again.
    """

    arena: Memory
    calls: tuple[Operands, ...]
    options: tuple[Option, ...]
    limit_s: float
    reverse: bool = False
    windows: int = 1
    target: Gpu | None = None
    apart: bool = False
    profiled: bool = False
    keep: bool = False


@dataclass(frozen=True)
class Prepare(Frame):
    """Map memory for timed batches, until `Release`: the tensors of each call, the gate, and where results can be collected.

    gate: its first word is what a batch waits for. results: of each call, in the memory `places`.
    """

    arena: Memory
    sets: tuple[Operands, ...]
    options: tuple[Option, ...]
    gate: Memory | None
    places: Memory | None = None
    results: tuple[tuple[Ref, ...], ...] = ()


@dataclass(frozen=True)
class Time(Frame):
    """Call the function on the first `calls` sets, tell the time of each, and keep the results of the last `keep`.

    watched: whether PyTorch's operators are to be noted; such a batch is no measure of time.
    gate: the number that must stand in the gate's word first; 0 for no gate.
    """

    calls: int
    keep: int
    watched: bool
    gate: int


@dataclass(frozen=True)
class Collect(Frame):
    """Copy the results of each call of the last batch to those of this number among `Prepare.results`."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Tidy(Frame):
    """Collect garbage: a batch does not."""


@dataclass(frozen=True)
class Release(Frame):
    """Unmap what `Prepare` has mapped."""


Request: TypeAlias = Load | Yardstick | Call | Prepare | Time | Collect | Tidy | Release


# What a worker says ---------------------------------------------------------------------------------------------------

RaisedBy = Literal["submission", "library", "toolchain"]
ErrorKind = Literal["failed", "not_implemented", "out_of_memory", "crashed", "build_failed", "unsupported"]


@dataclass  # one for each result of a timed batch: a frozen one takes three times as long to make
class Returned:
    """What a worker says came back; only ever used to choose words."""

    kind: Literal["tensor", "kept", "input", "subclass", "other", "written", "not_differentiable"]
    type: Annotated[str, Bound(max_length=100)] = ""
    dtype: Annotated[str, Bound(max_length=40)] = ""
    shape: Annotated[tuple[Size, ...], Bound(max_length=64)] = ()
    device: Annotated[str, Bound(max_length=40)] = ""


@dataclass(frozen=True)
class RanOperator:
    """An ATen operator that a call of the submission has run, as `relu`, and the first of its lines that did, as `kernel.py:7`.

    The place is empty where no line of the student's called, as in autograd.
    """

    name: Annotated[str, Bound(max_length=100)]
    place: Name


@dataclass(frozen=True)
class RanKernel:
    """A kernel that a worker's profiler saw on the GPU: how often it ran, and seconds of all that together."""

    name: Annotated[str, Bound(max_length=300)]
    calls: Count
    time_s: Seconds


@dataclass(frozen=True)
class WorkerError:
    """An exception as the student should read it: its kind, its message, and the traceback cut to their own frames.

    raised_by: "submission" where the innermost frame is the student's, "toolchain" for errors that a broken machine causes, else "library".
    """

    kind: ErrorKind
    type: Name
    message: Words
    traceback: Words
    raised_by: RaisedBy = "library"


@dataclass(frozen=True)
class CompiledKernel:
    """A Triton kernel as a worker says that it was compiled: `shared_bytes` of a block, and the words of `ptxas -v`."""

    name: Annotated[str, Bound(max_length=200, pattern=r"^\w+$")]
    warps: Annotated[int, Bound(ge=0, le=64)]
    shared_bytes: Annotated[int, Bound(ge=0, le=1 << 31)]
    ptxas: Annotated[str, Bound(max_length=2000)]


@dataclass(frozen=True)
class CompiledCall:
    """A call's launches, compiled for `arch`, up to the first that could not be: `failed`, for the reason in `error`.

    whole: whether the call came to its end; it may stumble over results that no launch has left.
    """

    arch: Annotated[str, Bound(pattern=r"^sm_[0-9]{2,3}[a-z]?$")]
    kernels: Annotated[tuple[CompiledKernel, ...], Bound(max_length=64)]
    failed: Annotated[str, Bound(max_length=200, pattern=r"^\w*$")]
    error: WorkerError | None
    whole: bool


@dataclass(frozen=True)
class Reply(Frame):
    """An answer. What the request asks for is there, or `error`.

    returned: of `Call`, each result of each call. kinds: of `Time` and `Collect`, the different descriptions of what calls gave.
    times_s: of `Time`, seconds of each call. operators, kernels, launches: what ran meanwhile. ptxas: of `Load`.
    off_stream: of `Call`, work on another stream than the given one, on a CPU, as `kernel.cu:12: the launch of scale`.
    compiled: of `Call`, by a worker that compiles. broken: whether the process is in no state to go on.
    """

    returned: Annotated[tuple[Returned, ...], Bound(max_length=64)] = ()
    kinds: Annotated[tuple[Annotated[tuple[Returned, ...], Bound(max_length=64)], ...], Bound(max_length=16)] = ()
    times_s: Annotated[tuple[Seconds, ...], Bound(max_length=MAX_CALLS)] = ()
    operators: Annotated[tuple[RanOperator, ...], Bound(max_length=64)] = ()
    kernels: Annotated[tuple[RanKernel, ...], Bound(max_length=32)] = ()
    launches: Count | None = None
    ptxas: Words = ""
    off_stream: Annotated[tuple[Name, ...], Bound(max_length=8)] = ()
    compiled: CompiledCall | None = None
    error: WorkerError | None = None
    broken: bool = False


# There and back -------------------------------------------------------------------------------------------------------


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises ProtocolError when they are too many."""
    body = json.dumps(frame, default=lambda record: {"is": type(record).__name__, **vars(record)}).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return struct.pack(">I", len(body)) + body


def decode(body: bytes) -> Request:
    """The request in a body that the judge has sent."""
    request: Request = json.loads(body, object_hook=_record)
    return request


def _record(fields: dict[str, Any]) -> Any:
    return globals()[fields.pop("is")](**{name: _tuples(value) for name, value in fields.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def send(connection: socket.socket, frame: Frame, files: tuple[int, ...] = ()) -> None:
    """Send a frame, and open file descriptors beside it."""
    data = encode(frame)
    if files:
        sent = socket.send_fds(connection, [data], list(files))
        data = data[sent:]
    connection.sendall(data)


def write(pipe: int, frame: Frame) -> None:
    """Write a frame to a pipe. Raises ProtocolError, OSError."""
    data = memoryview(encode(frame))
    while data:
        data = data[os.write(pipe, data) :]


class Reader:
    """Collects the bodies of frames from a connection, or from a pipe (its file descriptor), however the bytes arrive.

    A judge reads from a pipe alone: over a socket, open files and bytes out of band can make it wait without end.
    """

    def __init__(self, connection: socket.socket | int) -> None:
        self.connection = connection
        self._buffer = bytearray()
        self.files: list[int] = []

    def read_some(self) -> bool:
        """Wait for bytes, and read them. Returns False at the end of the stream."""
        if isinstance(self.connection, int):
            try:
                data = os.read(self.connection, 65536)
            except BlockingIOError:  # somebody else has read it
                return True
        else:
            data, files, _, _ = socket.recv_fds(self.connection, 65536, MAX_FILES)
            self.files += files
        if len(self.files) > MAX_FILES:
            self.close_files()
            raise ProtocolError(f"more than {MAX_FILES} open files came along")
        self._buffer += data
        return bool(data)

    def close_files(self) -> None:
        """Close the files that came along and were not taken."""
        for file in self.files:
            os.close(file)
        self.files.clear()

    def next(self) -> bytes | None:
        """The body of the next frame; None while it is incomplete. Raises ProtocolError."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack(">I", self._buffer[:4])
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame that claims {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return body

    def receive(self) -> bytes | None:
        """As `next`, waiting for it; None at the end of the stream."""
        while (body := self.next()) is None:
            if not self.read_some():
                return None
        return body


def missing_function(file: str, entry: str, names: Iterable[str], has: str = "has") -> str:
    """A sentence about a file without its entry, which the judge may see at a first look, and the worker when it loads it.

    Args:
        names: of the functions that it has instead; those like the entry are named first.
    """
    found = sorted(dict.fromkeys(names), key=lambda name: -difflib.SequenceMatcher(None, name.lower(), entry).ratio())
    told = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
    return f"{file} {has} no function {entry!r}, {f'only {told}' if found else 'and no other'}"
