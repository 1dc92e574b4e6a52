"""The frames that a contender and its worker exchange.

A frame is four bytes of length, big-endian, and a JSON object of at most `MAX_FRAME_BYTES`. Tensors never travel in
frames: they lie in the arena, and a frame only says where. Open files (the arena's memory) travel beside a frame over
the Unix socket.

Nothing but the standard library is imported here, and nothing else of `grader` is visible to a worker.

From the contender, each but "time" with "limit_s", the seconds that an answer may take:
    {"id", "do": "load", "path", "entry", "build": how a .cu file is built, or null, "compiled": by torch.compile}
    {"id", "do": "yardstick", "name"}                     instead of a file: what stands for a limit of the machine
    {"id", "do": "call", "arena": {...}, "args": [ref...], "options": [...], "upstream": ref | null, "outputs": [ref...],
     "windows", "target": [arch, bytes] | null, "apart": whether tensors are to lie outside the arena,
     "beside": [{"args", "upstream", "outputs"}...]: further calls, made before the first backward pass and before any result is
     looked at, "reverse": whether the last call's backward pass comes first}
    {"id", "do": "prepare", "arena": {...}, "options": [...], "sets": [{"args", "upstream", "outputs"}...],
     "results": {"arena": {...}, "outputs": [[ref...]...]} | null, "gate": {...} | null}
    {"id", "do": "time", "calls", "keep", "watched", "gate"}
                                                          call it on so many of the sets, tell the time of each, keep the last results
    {"id", "do": "collect", "order"}                      copy each call's results to that one of the places that "results" named
    {"id", "do": "tidy"}                                  collect garbage: a batch does not
    {"id", "do": "release"}                               unmap what "prepare" has mapped
From the worker, one for each request, with its id:
    {"id", "ok": true, ...} or {"id", "ok": false, "error": {"kind", "type", "message", "traceback"}}
and unasked, with id 0:
    {"id": 0, "ok": true}                                 it is ready for requests
    {"id": 0, "queued": true}                             all calls of a batch wait behind its gate
"""

from __future__ import annotations

import difflib
import json
import os
import socket
import struct
from collections.abc import Iterable
from typing import Any, TypeAlias

Frame: TypeAlias = dict[str, Any]

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
# an output would be told that they never wrote there; and so large that an activation function leaves it as it is.
EARLY_VALUE = 1234.5

NAMED = 4  # functions that a sentence names

# What torch imports with the first backward pass that is given a gradient: hundreds of modules, sympy's among them.
NEEDED_FOR_GRADIENTS = "torch.fx.experimental.symbolic_shapes"
EARLY = "GRADER_EARLY"  # names of modules in a worker's environment, which it imports before it is ready


class ProtocolError(Exception):
    """The other side sent something that is no frame."""


def encode(frame: Frame) -> bytes:
    """A frame's bytes. Raises ProtocolError when it is too long."""
    body = json.dumps(frame).encode()
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return struct.pack(">I", len(body)) + body


def send(connection: socket.socket, frame: Frame, files: tuple[int, ...] = ()) -> None:
    """Send a frame, and open file descriptors beside it."""
    data = encode(frame)
    if files:
        sent = socket.send_fds(connection, [data], list(files))
        data = data[sent:]
    connection.sendall(data)


def decode(body: bytes) -> Frame:
    """The object in a frame's body. Raises ProtocolError for anything but a JSON object of sane depth."""
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame that is not JSON: {type(error).__name__}") from None
    if not isinstance(frame, dict):
        raise ProtocolError(f"a frame that is a {type(frame).__name__}, not an object")
    return frame


def write(pipe: int, frame: Frame) -> None:
    """Write a frame to a pipe. Raises ProtocolError, OSError."""
    data = memoryview(encode(frame))
    while data:
        data = data[os.write(pipe, data) :]


class Reader:
    """Collects frames from a connection, or from a pipe (its file descriptor), however the bytes arrive.

    A judge reads from a pipe alone: open files, and bytes out of band, which come over a socket can make it wait without end.
    """

    def __init__(self, connection: socket.socket | int) -> None:
        self.connection = connection
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

    def next(self) -> Frame | None:
        """The next complete frame, or None while it is incomplete. Raises ProtocolError."""
        if len(self._buffer) < 4:
            return None
        (length,) = struct.unpack(">I", self._buffer[:4])
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame that claims {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
        if len(self._buffer) < 4 + length:
            return None
        body = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return decode(body)

    def receive(self) -> Frame | None:
        """The next frame, waiting for it; None at the end of the stream."""
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
