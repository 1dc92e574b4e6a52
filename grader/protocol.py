"""The frames between the judge and a worker: requests one way, replies the other.

A frame is a length of four bytes, big-endian, and a JSON object of at most `MAX_FRAME_BYTES`. The object has the fields
of one of the dataclasses below, and the class's name as `is`. The worker answers each request with one `Reply` of the
same id. A reply with id 0 is unasked: the first says that the worker is ready; in a timed batch, one says that all
calls are queued behind the gate.

The worker trusts requests. The judge checks replies in `grader/pool/replies.py`, by the types here and the `Bound`
of each field. Tensors never travel in frames: they lie in the arena, and a frame gives their places. Open files (the
arena's memory) travel beside a frame over the Unix socket.

This module imports the standard library only, because a worker sees nothing else of `grader`.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

MAX_CALLS = 1000  # in a timed batch; each call's tensors take up to 900 bytes of a frame
MAX_FRAME_BYTES = 1 << 20
MAX_FILES = 4
MAX_PACKED = 200_000  # characters of a compiled text in a frame
# Names of operators in a reply, many more than PyTorch has for plumbing. Of a call that fills the record nobody knows
# what else ran, so the judge forbids it (`grader/judge/ownership.py`).
MAX_OPERATORS = 256
MAX_KERNELS = 32  # names of kernels in a reply; the last stands for all kernels that took less time than the others
OTHER_KERNELS = "(all others)"  # its name; the judge counts their time as a library's
MAX_RAN = 64  # kernels of a traced call on a GPU that are told one by one
MATRIX = 8192  # rows and columns of the factors of the yardstick `matmul`
# The guard bytes read as NaN in every floating-point type. The fill pattern fills outputs, and memory that a worker newly
# allocates. In every type the fill pattern is finite (1.3e36; 61280 in float16) and unlike any answer: arithmetic would keep
# a NaN, and a NaN that was computed would look like one that was never overwritten. The fill pattern is positive: a maximum
# that was never set must not act as -inf.
GUARD_BYTE = 0xFF
FILL_BYTE = 0x7B
# A sample's tensors are so many elements shorter than whole windows, because a multiple of a large power of two is
# exact in float32.
SAMPLE_CUT = 221
# The value of an input's elements until its data have arrived on the given stream. Not the fill pattern: a copy of it must
# not look like an element that was never written. So large that an activation function returns it unchanged.
EARLY_VALUE = 1234.5

NAMED = 4  # functions in a sentence

# The module that torch imports in the first backward pass with a given gradient; it imports hundreds of others, such as
# sympy.
NEEDED_FOR_GRADIENTS = "torch.fx.experimental.symbolic_shapes"


class ProtocolError(Exception):
    """The other side sent no valid frame, or this side was about to send none."""


class Bound:
    """Limits of a reply's field, as pydantic's core schema. A worker does not import pydantic, because that takes
    long.
    """

    def __init__(self, **limits: object) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(source) | self._limits


MAX_LAUNCHED = 16  # launches of a request that are described
Name: TypeAlias = Annotated[str, Bound(max_length=200)]
Words: TypeAlias = Annotated[str, Bound(max_length=20_000)]
Size: TypeAlias = Annotated[int, Bound(ge=0, lt=1 << 63)]
Count: TypeAlias = Annotated[int, Bound(ge=0, le=1 << 40)]
Seconds: TypeAlias = Annotated[float, Bound(ge=0, le=1e6, allow_inf_nan=False)]
Option: TypeAlias = bool | int | float


@dataclass(frozen=True)
class Frame:
    """A request or a reply.

    Attributes:
        id: the number of the request; 0 for an unasked reply.
    """

    id: Size = field(default=0, kw_only=True)


# Requests ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory of the judge.

    Attributes:
        bytes: its length.
        handle: on a GPU, the handle of CUDA IPC in hexadecimal digits; "" for a file sent beside the frame.
    """

    bytes: int
    handle: str = ""


@dataclass(frozen=True)
class Ref:
    """A tensor in memory of the judge; `stride` in elements."""

    dtype: str
    start_bytes: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Operands:
    """The tensors of one call.

    Attributes:
        args: the function's first arguments, before the options.
        upstream: the gradient of the result if the call asks for gradients of `args`; else None.
        outputs: the places of the results; empty if they are collected.
    """

    args: tuple[Ref, ...]
    upstream: Ref | None
    outputs: tuple[Ref, ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a CUDA entry. In problem.toml a string of `grader.assignment.PARAMETER_FORMS`.

    A number with a `tensor` is the number of its elements, or its length along `axis`. A number without a `tensor` is
    an option of the call (`grader.problem.Call.options`). Inputs, options and outputs are in the order of problem.py.
    """

    type: Literal["const float*", "float*", "int64_t", "int", "bool", "float", "cudaStream_t"]
    name: str
    tensor: str | None = None
    axis: int | None = None


@dataclass(frozen=True)
class Build:
    """How to build a `.cu` file.

    Attributes:
        compiler: path of nvcc for a GPU, of g++ or clang++ for the CPU.
        limit_s: seconds that the build may take.
        nvcc: path of nvcc on a machine without a GPU, which then compiles the file for `arch` as well; else None.
        arch: as `sm_90`.
        signature: the entry's parameters.
    """

    compiler: str
    limit_s: float
    nvcc: str | None
    arch: str
    signature: tuple[Parameter, ...]


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, by CUDA's properties of a device.

    Attributes:
        name: the driver's.
        capability: 9 and 0 for `sm_90`.
        multiprocessors: their number; each has `threads`, `registers`, and `shared_bytes_of_all` bytes of shared memory.
        memory_mib, l2_mib: global memory and L2 cache in MiB.
        shared_bytes: most shared memory of one block that asks for more than 48 KiB.
        clock_khz, memory_clock_khz: of the multiprocessors and of the memory.
        memory_bits: width of the memory's bus.
        warp: threads of a warp.
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
    """Load the file at `path` and its function `entry`.

    Attributes:
        build: how to build CUDA C++; None for Python.
        compiled: whether to wrap the function in torch.compile.
        limit_s: seconds after which the worker prints its stack.
        gpu: the GPU that submissions are graded on, for a worker that has none.
    """

    path: str
    entry: str
    build: Build | None
    compiled: bool
    limit_s: float
    gpu: Gpu | None = None


@dataclass(frozen=True)
class Yardstick(Frame):
    """Load a yardstick of `grader/worker/yardsticks.py` by its name, instead of a file."""

    name: str


@dataclass(frozen=True)
class MakeCalls(Frame):
    """Make all these calls before the first backward pass, and before any result is looked at.

    Attributes:
        options: further arguments of each call.
        named: further arguments that are passed by name.
        wanted: by tensor of a call, whether its gradient is computed if there is an upstream gradient; empty for all.
        backwards: backward passes of each call, of which the last one's gradients are results.
        limit_s: seconds after which the worker prints its stack.
        reverse: whether the last call's backward pass comes first.
        windows: above 1, for CUDA C++ on a CPU: tensors repeat their memory so many times, but for the last SAMPLE_CUT
            elements, and large launches run in part.
        target: for a worker that compiles: the GPU to compile for.
        apart: whether each tensor gets an allocation of its own outside the arena, so that a tool sees its end.
        keep: whether the results stay in use until the next call has returned. A later result in the same memory is
            then `kept`.
        record: `kernels`: on a GPU, the reply names the kernels that ran. `trace`: the reply has a `trace`; on a CPU a few
            blocks of each launch run, and what they access is recorded in place of checking it; on a GPU the call is made
            under PyTorch's profiler; with a `target`, the reply has the compiler's output too. `counters`: on a GPU, the
            call is made between cudaProfilerStart and Stop, for a tool that counts, and the reply has an empty `trace`.
    """

    arena: Memory
    calls: tuple[Operands, ...]
    options: tuple[Option, ...]
    limit_s: float
    reverse: bool = False
    windows: int = 1
    target: Gpu | None = None
    apart: bool = False
    keep: bool = False
    record: Literal["nothing", "kernels", "trace", "counters"] = "nothing"
    named: tuple[tuple[str, Option], ...] = ()
    wanted: tuple[bool, ...] = ()
    backwards: int = 1


@dataclass(frozen=True)
class Prepare(Frame):
    """Map memory for timed batches, until `Release`.

    Attributes:
        arena, sets: the memory and the tensors of each call.
        gate: memory whose first word calls wait for; None on a CPU.
        places, results: the memory for collected results, and the places of each call's results there.
    """

    arena: Memory
    sets: tuple[Operands, ...]
    options: tuple[Option, ...]
    gate: Memory | None
    places: Memory | None = None
    results: tuple[tuple[Ref, ...], ...] = ()


@dataclass(frozen=True)
class Time(Frame):
    """Call the function on the first `calls` sets, time each call, and keep the results of the last `keep`.

    Attributes:
        watched: whether to record PyTorch's operators; such a batch is no measure of time.
        gate: the number that the gate's word must reach first; 0 without a gate.
    """

    calls: int
    keep: int
    watched: bool
    gate: int


@dataclass(frozen=True)
class Collect(Frame):
    """Copy result i of the last batch to slot order[i] of `Prepare.results`."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Tidy(Frame):
    """Collect Python's garbage now, because a batch does not."""


@dataclass(frozen=True)
class Release(Frame):
    """Unmap the memory of `Prepare`."""


@dataclass(frozen=True)
class Fork(Frame):
    """Fork a worker. Asked of a fork server alone, with three open files: the worker's socket, and the write ends of its
    pipes for replies and for prints. The reply has the worker's `pid`.

    Attributes:
        folder: the worker's scratch folder, and working folder.
        environment: names and values of variables that differ from the server's.
        imports: modules that the server imports first, and keeps for later workers.
        writable: the folders in which alone the worker may change files; empty if it may everywhere.
    """

    folder: str
    environment: tuple[tuple[str, str], ...]
    imports: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reap(Frame):
    """Collect a worker that has ended. Asked of a fork server alone. The reply has its exit `status`."""

    pid: int


Request: TypeAlias = Fork | Reap | Load | Yardstick | MakeCalls | Prepare | Time | Collect | Tidy | Release


# Replies -------------------------------------------------------------------------------------------------------------

RaisedBy = Literal["submission", "library", "toolchain"]
ErrorKind = Literal["failed", "not_implemented", "out_of_memory", "crashed", "build_failed", "unsupported"]


@dataclass  # one for each result of a timed batch: a frozen class would take three times as long
class Returned:
    """A result of the student's function, as the worker describes it. The judge uses the description to choose a
    message only.
    """

    kind: Literal["tensor", "kept", "input", "subclass", "other", "written", "not_differentiable"]
    type: Annotated[str, Bound(max_length=100)] = ""
    dtype: Annotated[str, Bound(max_length=40)] = ""
    shape: Annotated[tuple[Size, ...], Bound(max_length=64)] = ()
    device: Annotated[str, Bound(max_length=40)] = ""


@dataclass(frozen=True)
class RanOperator:
    """An ATen operator that ran in a call.

    Attributes:
        name: as `relu`.
        place: the student's first line that ran it, as `kernel.py:7`; "" if there is none, as in autograd.
    """

    name: Annotated[str, Bound(max_length=100)]
    place: Name


@dataclass(frozen=True)
class RanKernel:
    """A kernel that the worker's profiler saw on the GPU, with the number of its runs and their seconds in all."""

    name: Annotated[str, Bound(max_length=300)]
    calls: Count
    time_s: Seconds


@dataclass(frozen=True)
class WorkerError:
    """An exception in a worker, with the traceback cut to the student's own frames.

    Attributes:
        raised_by: "submission" if the innermost frame is the student's, "toolchain" for errors that a broken machine
            causes, else "library".
    """

    kind: ErrorKind
    type: Name
    message: Words
    traceback: Words
    raised_by: RaisedBy = "library"


@dataclass(frozen=True)
class CompiledText:
    """A text that a compiler made, compressed by zlib and encoded in base64.

    Attributes:
        kind: the language, which is the suffix of its file.
    """

    kind: Literal["ttgir", "ptx", "sass", "json", "py"]
    packed: Annotated[str, Bound(max_length=MAX_PACKED)]


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel that a worker has compiled: `shared_bytes` of a block, and the output of `ptxas -v`. `texts` if the call
    is traced.
    """

    name: Annotated[str, Bound(max_length=200, pattern=r"^\w+$")]
    warps: Annotated[int, Bound(ge=0, le=64)]
    shared_bytes: Annotated[int, Bound(ge=0, le=1 << 31)]
    ptxas: Annotated[str, Bound(max_length=2000)]
    texts: Annotated[tuple[CompiledText, ...], Bound(max_length=3)] = ()


@dataclass(frozen=True)
class CompiledCall:
    """The launches of a call, compiled for `arch` up to the first failure.

    Attributes:
        failed: name of the kernel that did not compile, with the reason in `error`.
        whole: whether the call came to its end. It may fail on results, because no launch has run.
    """

    arch: Annotated[str, Bound(pattern=r"^sm_[0-9]{2,3}[a-z]?$")]
    kernels: Annotated[tuple[CompiledKernel, ...], Bound(max_length=64)]
    failed: Annotated[str, Bound(max_length=200, pattern=r"^\w*$")]
    error: WorkerError | None
    whole: bool


@dataclass(frozen=True)
class TracedAccess:
    """All accesses of a launch in one line of the source, in one direction, to one tensor. Counts are of the blocks (in
    Triton: programs) that ran.

    A request is one access by all lanes at once: by the threads of a warp in CUDA, by a block of pointers in Triton. A
    lane is then a thread or a pointer. Counts that nobody knows are 0.

    Attributes:
        line: in the submission's file of name `file`; 0 if it is not known.
        tensor: name of the kernel's parameter, of the shared variable, or "" if it is not known.
        width_bytes: of one lane's access: 16 for a float4, 4 for a float.
        lanes: lanes that took part; `lanes_of_all` counts those that a branch or a mask turned off, too.
        sectors: of 32 bytes in global memory, for each request; `least_sectors` if its lanes' bytes lay side by side.
        passes: in shared memory, how often the banks were asked; `least_passes` without bank conflicts.
        steps: in Triton, the distance in bytes of neighbouring pointers along each axis of the block, whose lengths are
            `block`; both are empty if the distances vary.
        atomic: whether the accesses are atomic.
    """

    file: Name
    line: Count
    verb: Literal["reads", "writes"]
    space: Literal["global", "shared"]
    tensor: Name
    width_bytes: Count
    requests: Count
    lanes: Count
    lanes_of_all: Count
    sectors: Count = 0
    least_sectors: Count = 0
    passes: Count = 0
    least_passes: Count = 0
    steps: Annotated[tuple[Annotated[int, Bound(ge=-(1 << 62), le=1 << 62)], ...], Bound(max_length=8)] = ()
    block: Annotated[tuple[Count, ...], Bound(max_length=8)] = ()
    atomic: bool = False


@dataclass(frozen=True)
class TracedTensor:
    """A tensor in global memory that a launch accessed.

    Attributes:
        name: of the kernel's parameter.
        bytes: its size.
        is_of_call: whether it is an input or an output of the call; otherwise the submission allocated it.
        read_once_bytes, written_once_bytes: of different bytes that each block that ran has read or written, summed over these
            blocks. Two reads of a byte by one block count once, by two blocks twice.
    """

    name: Name
    bytes: Size
    is_of_call: bool
    read_once_bytes: Size = 0
    written_once_bytes: Size = 0


@dataclass(frozen=True)
class TracedDot:
    """Products of tiles (`tl.dot`) in one line, with the inputs' dtype, and the floating-point operations of the programs
    that ran.
    """

    line: Count
    dtype: Annotated[str, Bound(max_length=40)]
    flops: Size


@dataclass(frozen=True)
class TracedLaunch:
    """A launch of which `ran` blocks ran.

    All counts of accesses and bytes are of so many blocks. Where `ran` is less than the grid, CUDA's first and last block
    count as two of all blocks, so that counts times blocks over `ran` are the launch's.

    Attributes:
        kernel: its function's name.
        line: of the launch; 0 if it is not known.
        grid: blocks along x, y and z.
        threads: of a block; of a Triton program, 32 for each of its warps.
        shared_bytes, static_shared_bytes: dynamic and static shared memory of a block, in CUDA.
        cut: whether a block was stopped, because it made too many accesses: its counts are too low.
        launches: how many launches in a row were alike (kernel, line, grid and threads): this one stands for all.
    """

    kernel: Name
    line: Count
    grid: Annotated[tuple[Count, ...], Bound(min_length=3, max_length=3)]
    threads: Count
    ran: Count
    accesses: Annotated[tuple[TracedAccess, ...], Bound(max_length=64)] = ()
    tensors: Annotated[tuple[TracedTensor, ...], Bound(max_length=32)] = ()
    dots: Annotated[tuple[TracedDot, ...], Bound(max_length=16)] = ()
    shared_bytes: Count = 0
    static_shared_bytes: Count = 0
    cut: bool = False
    launches: Annotated[int, Bound(ge=1, le=1 << 40)] = 1


@dataclass(frozen=True)
class TracedOperator:
    """Calls of an ATen operator that moved data: the bytes of tensors that it read, and of new or changed ones.

    Attributes:
        name: as `zeros`.
        place: as in `RanOperator`.
    """

    name: Annotated[str, Bound(max_length=100)]
    place: Name
    calls: Count
    read_bytes: Size
    written_bytes: Size


@dataclass(frozen=True)
class RanLaunch:
    """A kernel, a copy or a fill that PyTorch's profiler saw on a GPU.

    Attributes:
        grid, block: blocks, and threads of a block, along x, y and z; zeros for copies and fills.
        registers: of a thread. shared_bytes: of a block.
        start_s: since the first one began. time_s: until it ended.
    """

    name: Annotated[str, Bound(max_length=300)]
    grid: Annotated[tuple[Count, ...], Bound(min_length=3, max_length=3)]
    block: Annotated[tuple[Count, ...], Bound(min_length=3, max_length=3)]
    registers: Count
    shared_bytes: Count
    start_s: Seconds
    time_s: Seconds


@dataclass(frozen=True)
class GpuTrace:
    """One call on a GPU, after others that compiled and tuned.

    Attributes:
        ran: in the order of their starts, at most `MAX_RAN`; `ran_of_all` counts the others, too.
        host_s: until the function has returned to the host; 0 if it waits for the GPU.
        device_s: from the start of the first kernel to the end of the last one. busy_s: of it, while a kernel ran.
        chrome: the profiler's trace.json; None if it is too long for a frame.
        generated: the Python code with Triton kernels that torch.compile made of the function.
    """

    ran: Annotated[tuple[RanLaunch, ...], Bound(max_length=MAX_RAN)] = ()
    ran_of_all: Count = 0
    host_s: Seconds = 0.0
    device_s: Seconds = 0.0
    busy_s: Seconds = 0.0
    chrome: CompiledText | None = None
    generated: CompiledText | None = None


@dataclass(frozen=True)
class Trace:
    """The work of a traced call, in its order: launches, and PyTorch's operators beside them. On a GPU `gpu` alone."""

    launches: Annotated[tuple[TracedLaunch, ...], Bound(max_length=32)] = ()
    operators: Annotated[tuple[TracedOperator, ...], Bound(max_length=64)] = ()
    gpu: GpuTrace | None = None


@dataclass(frozen=True)
class LaunchedKernel:
    """A launch of an interpreted Triton kernel, and the axes of the grid along which its programs asked for their index."""

    name: Annotated[str, Bound(max_length=200, pattern=r"^\w+$")]
    grid: Annotated[tuple[Size, ...], Bound(max_length=3)]
    asked: Annotated[tuple[Annotated[int, Bound(ge=0, le=2)], ...], Bound(max_length=3)]


@dataclass(frozen=True)
class Reply(Frame):
    """The answer to a request: the fields that belong to the request, or `error`.

    Attributes:
        returned: after `MakeCalls`, each result of each call.
        kinds: after `Time` and `Collect`, the different descriptions of calls' results.
        times_s: after `Time`, seconds of each call.
        operators, kernels, launches: that ran during the request.
        launched: after `MakeCalls` on a CPU, the first launches; they choose words, and decide nothing.
        ptxas: after `Load`, ptxas's words about the kernels.
        off_stream: after `MakeCalls` on a CPU, operations off the given stream, as `kernel.cu:12: the launch of scale`.
        same_value: after `MakeCalls` on a CPU, writes of what another thread had written, as `kernel.cu:12: y[4]`.
        compiled: after `MakeCalls`, by a worker that compiles.
        trace: after a traced `MakeCalls`.
        broken: whether the process can take no further requests.
        pid: of a fork server: after its start its own process id, after `Fork` the worker's, as its namespace counts.
        status: after `Reap`, the exit code of the worker, or the negative number of the signal that ended it.
    """

    returned: Annotated[tuple[Returned, ...], Bound(max_length=64)] = ()
    kinds: Annotated[tuple[Annotated[tuple[Returned, ...], Bound(max_length=64)], ...], Bound(max_length=16)] = ()
    times_s: Annotated[tuple[Seconds, ...], Bound(max_length=MAX_CALLS)] = ()
    operators: Annotated[tuple[RanOperator, ...], Bound(max_length=MAX_OPERATORS)] = ()
    kernels: Annotated[tuple[RanKernel, ...], Bound(max_length=MAX_KERNELS)] = ()
    launches: Count | None = None
    launched: Annotated[tuple[LaunchedKernel, ...], Bound(max_length=MAX_LAUNCHED)] = ()
    ptxas: Words = ""
    off_stream: Annotated[tuple[Name, ...], Bound(max_length=8)] = ()
    same_value: Annotated[tuple[Name, ...], Bound(max_length=8)] = ()
    compiled: CompiledCall | None = None
    trace: Trace | None = None
    error: WorkerError | None = None
    broken: bool = False
    pid: Count | None = None
    status: Annotated[int, Bound(ge=-64, le=255)] | None = None


# There and back -------------------------------------------------------------------------------------------------------


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises ProtocolError if there are too many."""
    body = json.dumps(frame, default=lambda record: {"is": type(record).__name__, **vars(record)}).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return struct.pack(">I", len(body)) + body


def decode(body: bytes) -> Request:
    """The request in a body from the judge."""
    request: Request = json.loads(body, object_hook=_record)
    return request


def _record(fields: dict[str, Any]) -> Any:
    return globals()[fields.pop("is")](**{name: _tuples(value) for name, value in fields.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def send(connection: socket.socket, frame: Frame, files: tuple[int, ...] = ()) -> None:
    """Send a frame, with open file descriptors beside it."""
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
    """Collects the bodies of frames from a socket, or from a pipe given by its descriptor, in whatever pieces the bytes
    arrive.

    The judge reads from pipes only: on a socket, open files and out-of-band bytes could make it wait without end.
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
            except BlockingIOError:  # another process has read the bytes
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
        """Close the received files that nobody has taken."""
        for file in self.files:
            os.close(file)
        self.files.clear()

    def next(self) -> bytes | None:
        """The body of the next frame; None if it is incomplete. Raises ProtocolError."""
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
        """The body of the next frame, after waiting for it; None at the end of the stream. Raises ProtocolError."""
        while (body := self.next()) is None:
            if not self.read_some():
                return None
        return body


def missing_function(file: str, entry: str, names: Iterable[str], has: str = "has") -> str:
    """A sentence about a file without its entry. The judge says it after reading the file, the worker after loading it.

    Args:
        names: of the file's functions; names like the entry's come first in the sentence.
    """
    found = sorted(dict.fromkeys(names), key=lambda name: -difflib.SequenceMatcher(None, name.lower(), entry).ratio())
    told = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
    none = "and no other: is it empty, or all of it a comment?" if has == "has" else "and no other"
    return f"{file} {has} no function {entry!r}, {f'only {told}' if found else none}"


# C++ as text -----------------------------------------------------------------------------------------------------------

_SPLICE = r"\\[ \t]*\r?\n"  # a backslash at the end of a line joins the next line to it, even within a name
_S = rf"(?:{_SPLICE})*+"
_CPP = re.compile(
    rf"""
      (?P<line>\n)
    | (?P<space>(?:[^\S\n]|{_SPLICE})++)
    | (?P<comment>/{_S}/(?:{_SPLICE}|[^\n])*+ | /{_S}\*.*?(?:\*{_S}/|\Z))
    | (?P<string>(?:
          (?:u{_S}8{_S}|[uUL]{_S})?R{_S}"(?P<mark>[^()\\\s"]{{0,16}})\(.*?(?:\)(?P=mark)"|\Z)
        | "(?:{_SPLICE}|\\{_S}.|[^"\\\n])*+"?
        | '(?:{_SPLICE}|\\{_S}.|[^'\\\n])*+'?
      )[\w$]*+)
    | (?P<word>\.?\d(?:{_S}(?:[\w.]|'{_S}\w))*+ | [\w$](?:{_S}[\w$])*+ | :{_S}:)
    | (?P<hash>(?:\#|%{_S}:)(?:{_S}(?:\#|%{_S}:))*+)
    | (?P<other>[^\s\w$"'/\#%\\:]++ | .)
    """,
    re.DOTALL | re.VERBOSE,
)
_HEADER = re.compile(r'<[^\n>]*+>|"[^\n"]*+"')
_DEFINE = re.compile(r"^[ \t]*+\#[ \t]*+define[ \t]++(\w++)[ \t]*+([^\n]*)", re.MULTILINE)
_OF_OTHERS = re.compile(r"_|CUDA|TORCH|NDEBUG")  # macros that a compiler or a header defines begin so
# A header that is included, in text of `code_of`.
INCLUDE = re.compile(r'\#\s*+(?:include(?:_next)?|import)\s*+[<"]([^\n>"]{1,250}+)[>"]')
OF_PYTORCH = ("torch/", "ATen/", "c10/", "pybind11/")  # how the names of its headers begin


def code_of(text: str, strings: bool = False) -> str:
    """C++ as a compiler reads it: without comments, strings and what `#if 0`, or a macro that nobody defines, leaves out.

    Whatever is asked about what a C++ file includes, declares, binds or calls is asked of this text. Lines keep their
    numbers, included headers their names; a name that a backslash divides is whole.

    Args:
        strings: whether to keep strings, and the backslashes that join lines.
    """
    code, line = list[str](), list[str]()  # the lines; the pieces of the current one
    joint = "\\\n" if strings else "\n"
    words: list[str] | None = []  # of the current line; None if it is no directive
    macros: dict[str, str] | None = dict(_DEFINE.findall(text))
    ifs = list[tuple[bool, bool]]()  # those that are open: is this branch dead, are all that follow?
    at = dead = 0
    while at <= len(text):
        names_header = words is not None and words[1:] in (["include"], ["include_next"], ["import"])
        header = _HEADER.match(text, at) if names_header else None
        token = header or _CPP.match(text, at)
        kind, piece = "header" if header else token.lastgroup if token else "line", token[0] if token else ""
        at = token.end() if token else len(text) + 1
        if kind == "header" and piece.startswith('"') and not dead:
            macros = None  # a file of the student's may define others
        if kind == "line":
            was_dead, dead = dead, dead + _branch(words or [], ifs, macros)
            whole = "".join(line)
            code.append(("\n" * whole.count("\n") if was_dead and dead else whole) + piece)
            line, words = [], []
            continue
        plain = piece
        if kind == "comment" or (kind in ("string", "mark") and not strings):
            piece = re.sub(r"[^\n\t]", " ", piece).replace("\n", joint if words else "\n")
        elif kind == "space" and not strings:
            piece = piece.replace("\\", " ")
        elif kind in ("word", "hash"):
            plain = re.sub(_SPLICE, "", piece).replace("%:", "#")
            piece = plain + joint * piece.count("\n")
        line.append(piece)
        if kind not in ("space", "comment") and words is not None:
            words = [*words, plain][:9] if words or kind == "hash" else None
    return "".join(code)


def _branch(words: list[str], ifs: list[tuple[bool, bool]], macros: Mapping[str, str] | None) -> int:
    """Follow a line, as ["#", "if", "0"], in the open `ifs`. Returns by how many the dead branches around it grow.

    Args:
        macros: what the file defines, by name; None if other files may define more.
    """
    name, condition = "".join(words[1:2]), words[2:]
    opens = name in ("if", "ifdef", "ifndef")
    goes_on = bool(ifs) and name in ("elif", "elifdef", "elifndef", "else", "endif")
    if words[:1] != ["#"] or not (opens or goes_on):
        return 0
    was_dead, rest_is_dead = (False, False) if opens else ifs.pop()
    if name == "endif":
        return -was_dead
    tested = "".join(condition) if name in ("if", "elif") else ""
    is_dead = rest_is_dead or tested in ("0", "false", "(0)", "!1") or tested.endswith("&&0")
    if macros is not None and not is_dead:
        asked = condition[:1] if name in ("ifdef", "elifdef") else re.findall(r"^defined\(?(\w+)\)?$|^(\w+)$", tested)
        for macro in filter(None, ("".join(one) for one in asked)):
            unknown = macro not in macros and macro.isidentifier() and not _OF_OTHERS.match(macro)
            is_dead = macro != "true" and (unknown or (tested == macro and macros.get(macro, "").strip() == "0"))
    ifs.append((is_dead, rest_is_dead or tested in ("1", "true")))
    return is_dead - was_dead
