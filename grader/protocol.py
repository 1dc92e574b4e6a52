"""The frames that a contender and its worker exchange.

A frame is four bytes of length, big-endian, and a JSON object of at most `MAX_FRAME_BYTES`: one of the dataclasses below by the names of
its fields, and `id`, a number. A request says which it is by `do`, and the worker answers each with one `Reply` of the same id. A reply
with id 0 is unasked: the first says that the worker is ready, one in a timed batch that all calls stand behind their gate.

`decode` believes nothing: whatever a field's type does not allow is a ProtocolError, and nothing is allowed without a bound. Tensors never
travel in frames: they lie in the arena, and a frame only says where. Open files (the arena's memory) travel beside a frame over the Unix
socket.

Nothing but the standard library is imported here, and nothing else of `grader` is visible to a worker.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

MAX_CALLS = 1000  # of a timed batch; each call's tensors take up to 900 bytes of a frame
MAX_FRAME_BYTES = 1 << 20
MAX_FILES = 4
MATRIX = 8192  # rows and columns of the factors in the contender `matmul`
# What lies around tensors reads as NaN in every floating-point type. What lies where an output will be, and in memory that a
# worker newly allocates, is finite in each of them (1.3e36, in float16 61280) and unlike any answer: a NaN would be kept by
# arithmetic, and what was computed from it could not be told from what was never written. It is positive, or a maximum that
# was never set would act as -inf and be right by luck.
GUARD_BYTE = 0xFF
POISON_BYTE = 0x7B
# By how many elements a sample's tensors are shorter than whole windows: a multiple of a large power of two is exact even in float32.
SAMPLE_CUT = 221
# What an input holds until, on the stream that a function is given, its numbers have arrived. Unlike the poison, or whoever copied it to
# an output would be told that they never wrote there; and so large that GeLU leaves it as it is.
EARLY_VALUE = 1234.5

NAMED = 4  # functions that a sentence names

# What torch imports with the first backward pass that is given a gradient: hundreds of modules, sympy's among them.
NEEDED_FOR_GRADIENTS = "torch.fx.experimental.symbolic_shapes"
EARLY = "GRADER_EARLY"  # names of modules in a worker's environment, which it imports before it is ready


class ProtocolError(Exception):
    """The other side sent something that is no frame, or this one was about to."""


@dataclass(frozen=True)
class Within:
    """The bound of a field: of a number its values, of text and sequences their length; text must match `form` too."""

    low: float
    high: float
    form: str = ""


# Of fields that are not annotated: a size; seconds; a path, a sequence.
BOUNDS: dict[Any, Within] = {
    bool: Within(0, 1),
    int: Within(0, 2**63 - 1),
    float: Within(0, 1e6),
    str: Within(0, 4096),
}
HALF = re.compile("[\ud800-\udfff]")  # of a character: no report may have that in it
Name: TypeAlias = Annotated[str, Within(0, 200)]
Words: TypeAlias = Annotated[str, Within(0, 20_000)]
Count: TypeAlias = Annotated[int, Within(0, 1 << 40)]
Option: TypeAlias = Annotated[bool | int | float, Within(-1e308, 1e308)]


# What a contender asks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """Memory of the judge's: a file that comes beside the frame, or on a GPU what `handle` of CUDA IPC opens, in hexadecimal digits."""

    bytes: int
    handle: Annotated[str, Within(0, 256, "([0-9a-f]{2})*")] = ""


@dataclass(frozen=True)
class Ref:
    """A tensor in such memory; `stride` in elements."""

    dtype: Name
    start_bytes: int
    shape: Annotated[tuple[int, ...], Within(0, 64)]
    stride: Annotated[tuple[int, ...], Within(0, 64)]


Refs: TypeAlias = Annotated[tuple[Ref, ...], Within(0, 64)]


@dataclass(frozen=True)
class Operands:
    """The tensors of one call.

    args: what the function is given before the options. upstream: the gradient of its result, where the gradients of all `args` are asked
    for. outputs: places of the results; none where they are collected.
    """

    args: Refs
    upstream: Ref | None
    outputs: Refs


@dataclass(frozen=True)
class Build:
    """How a `.cu` file is built.

    compiler: nvcc for a GPU; g++ or clang++ where the CPU stands in for one.
    limit_s: seconds that it may take.
    nvcc: where there is one but no GPU; it compiles the file for `arch` (as `sm_90`) as well.
    """

    compiler: str
    limit_s: float
    nvcc: str | None
    arch: Name


@dataclass(frozen=True)
class Load:
    """Load the file at `path`, built where `build` is not None, and take its function `entry`, by torch.compile where `compiled`.

    limit_s: when the worker writes down where it is.
    """

    path: str
    entry: Name
    build: Build | None
    compiled: bool
    limit_s: float


@dataclass(frozen=True)
class Yardstick:
    """Take what stands for a limit of the machine, by its name in `grader/worker/yardsticks.py`, instead of a file."""

    name: Name


@dataclass(frozen=True)
class Call:
    """Make these calls, all of them before the first backward pass and before any result is looked at.

    limit_s: when the worker writes down where it is. options: further arguments of each call.
    reverse: whether the last call's backward pass comes first. windows: more than 1, tensors repeat what lies in the arena so many times.
    target: for what a worker that compiles should, as `sm_90`, and `shared_bytes` of a block there (0: nobody knows).
    apart: whether tensors are to lie outside the arena. profiled: whether kernels on the GPU are to be named.
    keep: whether the results are to be in use until the next call has returned.
    """

    arena: Memory
    calls: Annotated[tuple[Operands, ...], Within(1, 64)]
    options: tuple[Option, ...]
    limit_s: float
    reverse: bool = False
    windows: int = 1
    target: Name | None = None
    shared_bytes: int = 0
    apart: bool = False
    profiled: bool = False
    keep: bool = False


@dataclass(frozen=True)
class Results:
    """Where the results of each call can be collected."""

    arena: Memory
    outputs: tuple[Refs, ...]


@dataclass(frozen=True)
class Prepare:
    """Map memory for timed batches, until `Release`: a call's tensors each, and the gate, whose first word a batch waits for."""

    arena: Memory
    sets: tuple[Operands, ...]
    options: tuple[Option, ...]
    results: Results | None
    gate: Memory | None


@dataclass(frozen=True)
class Time:
    """Call the function on the first `calls` sets, tell the time of each, and keep the results of the last `keep`.

    watched: whether PyTorch's operators are to be noted. gate: the number that must stand in the gate's word first; 0 for no gate.
    """

    calls: int
    keep: int
    watched: bool
    gate: int


@dataclass(frozen=True)
class Collect:
    """Copy each call's results to that one of the places that `Prepare` has named."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Tidy:
    """Collect garbage: a batch does not."""


@dataclass(frozen=True)
class Release:
    """Unmap what `Prepare` has mapped."""


Request: TypeAlias = Load | Yardstick | Call | Prepare | Time | Collect | Tidy | Release
REQUESTS: dict[str, type[Request]] = {one.__name__.lower(): one for one in get_args(Request)}


# What a worker says ---------------------------------------------------------------------------------------------------

RaisedBy = Literal["submission", "library", "toolchain"]
ErrorKind = Literal["failed", "not_implemented", "out_of_memory", "crashed", "build_failed", "unsupported"]


@dataclass(frozen=True)
class Returned:
    """What a worker says came back; only ever used to choose words."""

    kind: Literal["tensor", "kept", "input", "subclass", "other", "written", "not_differentiable"]
    type: Annotated[str, Within(0, 100)] = ""
    dtype: Annotated[str, Within(0, 40)] = ""
    shape: Annotated[tuple[int, ...], Within(0, 64)] = ()
    device: Annotated[str, Within(0, 40)] = ""


@dataclass(frozen=True)
class RanOperator:
    """An ATen operator that a call of the submission has run, as `_softmax`, and the first of its lines that did, as `softmax.py:7`.

    The place is empty where no line of the student's called, as in autograd.
    """

    name: Annotated[str, Within(0, 100)]
    place: Name


@dataclass(frozen=True)
class RanKernel:
    """A kernel that a worker's profiler saw on the GPU: how often it ran, and seconds of all that together."""

    name: Annotated[str, Within(0, 300)]
    calls: Count
    time_s: float


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

    name: Annotated[str, Within(1, 200, r"\w+")]
    warps: Annotated[int, Within(0, 64)]
    shared_bytes: Annotated[int, Within(0, 1 << 31)]
    ptxas: Annotated[str, Within(0, 2000)]


@dataclass(frozen=True)
class CompiledCall:
    """A call's launches, compiled for `arch`, up to the first that could not be: `failed`, for the reason in `error`.

    whole: whether the call came to its end; it may stumble over results that no launch has left.
    """

    arch: Annotated[str, Within(1, 20, r"sm_[0-9]{2,3}[a-z]?")]
    kernels: Annotated[tuple[CompiledKernel, ...], Within(0, 64)]
    failed: Annotated[str, Within(0, 200, r"\w*")]
    error: WorkerError | None
    whole: bool


@dataclass(frozen=True)
class Reply:
    """An answer. What a request asks for is there, where it is `ok`; else `error`.

    returned: of `Call`, each result of each call. kinds: of `Time` and `Collect`, the different descriptions of what calls gave.
    times_s: of `Time`, seconds of each call. operators, kernels, launches: what ran meanwhile. ptxas: of `Load`.
    compiled: of `Call`, by a worker that compiles. broken: whether the process is in no state to go on.
    """

    ok: bool
    returned: Annotated[tuple[Returned, ...], Within(0, 64)] = ()
    kinds: Annotated[tuple[Annotated[tuple[Returned, ...], Within(0, 64)], ...], Within(0, 16)] = ()
    times_s: Annotated[tuple[float, ...], Within(0, MAX_CALLS)] = ()
    operators: Annotated[tuple[RanOperator, ...], Within(0, 64)] = ()
    kernels: Annotated[tuple[RanKernel, ...], Within(0, 32)] = ()
    launches: Count | None = None
    ptxas: Words = ""
    compiled: CompiledCall | None = None
    error: WorkerError | None = None
    broken: bool = False


REPLIES = {"reply": Reply}
Frame: TypeAlias = Request | Reply
F = TypeVar("F", bound=Frame)


# There and back -------------------------------------------------------------------------------------------------------


def _content(one: Any) -> dict[str, Any]:
    """A dataclass's fields, without those that hold their default."""
    kind: Any = type(one)
    found: dict[str, Any] = vars(one)
    if not (defaults := _defaults(kind)):
        return found
    return {name: value for name, value in found.items() if defaults.get(name, MISSING) is not value}


@functools.cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {one.name: one.default for one in fields(kind) if one.default is not MISSING}


_encoder = json.JSONEncoder(default=_content, allow_nan=False)


def _no_number(_word: str) -> NoReturn:
    raise ValueError


_decoder = json.JSONDecoder(parse_constant=_no_number)  # NaN and Infinity are no JSON


def encode(number: int, frame: Frame) -> bytes:
    """The bytes of a frame with the id `number`. Raises ProtocolError when they are too many, or a number is none."""
    do = {} if type(frame) is Reply else {"do": type(frame).__name__.lower()}
    try:
        body = _encoder.encode({"id": number, **do, **_content(frame)}).encode()
    except ValueError:
        raise ProtocolError("a frame with a number that is NaN or infinite") from None
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return struct.pack(">I", len(body)) + body


def decode(body: bytes, expected: Mapping[str, type[F]]) -> tuple[int, F]:
    """The id and the frame of a body. Raises ProtocolError, in words of ours alone, for anything but a frame of an expected class."""
    try:
        content = _decoder.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame that is not JSON: {type(error).__name__}") from None
    if type(content) is not dict:
        raise ProtocolError(f"a frame that is a {type(content).__name__}, not an object")
    do = content.pop("do", "reply")
    kind: Any = expected.get(do) if type(do) is str else None
    if kind is None:
        raise ProtocolError("a frame of the wrong form: nobody waits for one of its kind")
    try:
        return _checked(_kind(int), content.pop("id", None)), _record(kind, content)
    except ProtocolError as error:
        raise ProtocolError(f"a frame of the wrong form: {kind.__name__}{error}") from None


class Kind(NamedTuple):
    """The values that a field may have: `plain` is their type; `inner` is that of entries, a number's types, or the words allowed."""

    optional: bool
    plain: Any
    low: float
    high: float
    form: str
    inner: tuple[Any, ...]


def _checked(kind: Kind, value: Any) -> Any:
    """What a field of this kind holds, made of a JSON value. Raises ProtocolError, with the path to what is wrong."""
    optional, plain, low, high, form, inner = kind
    if optional and value is None:
        return None
    if plain is dataclass:
        return _record(inner[0], value)
    if plain is tuple:
        if type(value) is not list or not low <= len(value) <= high:
            raise ProtocolError(f" is no list of {low} to {high}")
        if inner[0].plain in (int, float) and len(set(map(type, value))) == 1:  # as of timed batches, which wait for it
            return tuple(value) if _checked(inner[0], min(value)) <= _checked(inner[0], max(value)) else ()
        return tuple(_checked(inner[0], one) for one in value)
    if plain is Literal:
        fits, wanted = type(value) is str and value in inner, f"one of {', '.join(inner)}"
    elif plain is str:
        fits = type(value) is str and low <= len(value) <= high and not HALF.search(value)
        fits = fits and (form == "" or re.fullmatch(form, value) is not None)
        wanted = f"text of {low} to {high} characters" + " in its form" * (form != "")
    else:
        fits, wanted = type(value) in inner and low <= value <= high, f"{plain.__name__} from {low} to {high}"
    if not fits:
        raise ProtocolError(f" is not {wanted}")
    return value


def _record(kind: Any, value: Any) -> Any:
    known, required = _fields(kind)
    if type(value) is not dict:
        raise ProtocolError(" is no object")
    if not required <= value.keys() <= known.keys():
        missing = sorted(required - value.keys())
        raise ProtocolError(f" lacks {missing[0]}" if missing else " has a field that is unknown")
    found = {}
    for name, given in value.items():
        try:
            found[name] = _checked(known[name], given)
        except ProtocolError as error:
            raise ProtocolError(f".{name}{error}") from None
    return kind(**found)


@functools.cache
def _fields(record: Any) -> tuple[dict[str, Kind], set[str]]:
    """The kinds of a dataclass's fields, and the names of those without a default."""
    known = get_type_hints(record, include_extras=True)
    return {name: _kind(one) for name, one in known.items()}, known.keys() - _defaults(record).keys()


@functools.cache
def _kind(annotation: Any) -> Kind:
    within = None
    if get_origin(annotation) is Annotated:
        annotation, within = get_args(annotation)
    plain, inner = get_origin(annotation) or annotation, get_args(annotation)
    if type(None) in inner:
        return _kind(inner[0])._replace(optional=True)
    if is_dataclass(plain):
        plain, inner = dataclass, (plain,)
    elif plain is tuple:
        inner = (_kind(inner[0]),)
    elif plain is UnionType:
        plain = float
    elif plain is not Literal:
        inner = (int, float) if plain is float else (plain,)
    within = within or BOUNDS.get(plain, BOUNDS[str])
    return Kind(False, plain, within.low, within.high, within.form, inner)


def send(connection: socket.socket, number: int, frame: Frame, files: tuple[int, ...] = ()) -> None:
    """Send a frame, and open file descriptors beside it."""
    data = encode(number, frame)
    if files:
        sent = socket.send_fds(connection, [data], list(files))
        data = data[sent:]
    connection.sendall(data)


def write(pipe: int, number: int, frame: Frame) -> None:
    """Write a frame to a pipe. Raises ProtocolError, OSError."""
    data = memoryview(encode(number, frame))
    while data:
        data = data[os.write(pipe, data) :]


class Reader(Generic[F]):
    """Collects frames from a connection, or from a pipe (its file descriptor), however the bytes arrive.

    A judge reads from a pipe alone: open files, and bytes out of band, which come over a socket can make it wait without end.

    Args:
        expected: the classes of frames that may come.
    """

    def __init__(self, connection: socket.socket | int, expected: Mapping[str, type[F]]) -> None:
        self.connection = connection
        self._expected = expected
        self._buffer = bytearray()
        self.files: list[int] = []

    def read_some(self) -> bool:
        """Read what has arrived (blocking until something has). Returns False at the end of the stream."""
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

    def next(self) -> tuple[int, F] | None:
        """The id of the next complete frame, and the frame; None while it is incomplete. Raises ProtocolError."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack(">I", self._buffer[:4])
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame that claims {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return decode(body, self._expected)

    def receive(self) -> tuple[int, F] | None:
        """As `next`, waiting for it; None at the end of the stream."""
        while True:
            frame = self.next()
            if frame is not None:
                return frame
            if not self.read_some():
                return None


def missing_function(file: str, entry: str, names: Iterable[str], has: str = "has") -> str:
    """A sentence about a file without its entry, which the judge may see at a first look, and the worker when it loads it.

    Args:
        names: of the functions that it has instead; those like the entry are named first.
    """
    found = sorted(dict.fromkeys(names), key=lambda name: -difflib.SequenceMatcher(None, name.lower(), entry).ratio())
    told = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
    return f"{file} {has} no function {entry!r}, {f'only {told}' if found else 'and no other'}"
