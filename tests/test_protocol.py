"""Frames arrive whole however their bytes do, and nothing that is no frame gets through."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import protocol
from grader.pool import replies
from grader.protocol import (
    MAX_FRAME_BYTES,
    Collect,
    Frame,
    ProtocolError,
    Reader,
    Reply,
    Request,
    Tidy,
    Yardstick,
    encode,
    send,
)
from tests.support.open_files import open_files

# A reply with every field at something else than its default.
TEXT = protocol.CompiledText("ptx", "eJwDAAAAAAE=")
ACCESS = protocol.TracedAccess("k.py", 7, "reads", "global", "x_ptr", 4, 2, 60, 64, 9, 8, 7, 6, (4,), (32,), True)
LAUNCH = protocol.TracedLaunch(
    "k", 11, (2, 1, 1), 128, 1, (ACCESS,),
    (protocol.TracedTensor("x_ptr", 4096, True, 240, 120),),
    (protocol.TracedDot(9, "bfloat16", 1 << 40),),
    1024, 64, True, 5,
)  # fmt: skip
RAN = protocol.RanLaunch("k", (2, 1, 1), (128, 1, 1), 32, 1024, 0.5, 0.25)
TRACE = protocol.Trace(
    (LAUNCH,),
    (protocol.TracedOperator("zeros", "k.py:3", 1, 0, 4096),),
    protocol.GpuTrace((RAN,), 2, 0.5, 0.75, 0.25, TEXT, TEXT),
)
ERROR = protocol.WorkerError("failed", "ValueError", "é", "", "submission")
RETURNED = protocol.Returned("tensor", "Tensor", "float32", (2, 3), "cuda")
COMPILED = protocol.CompiledKernel("k", 4, 0, "words", (TEXT,))
REPLY = Reply(
    (RETURNED, protocol.Returned("other")),
    ((RETURNED,), ()),
    (0.0, 1.5, 1e6),
    (protocol.RanOperator("mul", ""),),
    (protocol.RanKernel("k", 3, 0.5),),
    0,
    (protocol.LaunchedKernel("k", (0, 2), (1,)),),
    "ptxas",
    ("kernel.cu:12: the launch of scale",),
    ("kernel.cu:12: y[4]",),
    protocol.CompiledCall("sm_90a", (COMPILED,), "k", ERROR, True),
    TRACE,
    ERROR,
    True,
    7,
    -9,
    id=9,
)
FRAMES = (Tidy(id=1), Collect((2, 0, 1)), Yardstick("é"), REPLY, Reply())


def decode(body: bytes) -> Frame:
    """As the side that waits for this frame does."""
    return protocol.decode(body) if json.loads(body)["is"] != "Reply" else replies.decode(body)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.settimeout(10)  # a bug must not hang the tests
        yield ours, theirs


def frames_of(chunks: Sequence[bytes], decode: Callable[[bytes], Frame] = decode) -> list[Frame]:
    """All frames that a reader makes of bytes arriving in these chunks, before the stream ends."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, found = Reader(ours), []
        for chunk in filter(None, chunks):
            theirs.sendall(chunk)
            assert reader.read_some()
            while (frame := reader.next()) is not None:
                found.append(decode(frame))
        theirs.close()
        assert not reader.read_some()
        return found


# What is sent arrives -------------------------------------------------------------------------------------------------


def test_a_frame_is_its_length_big_endian_and_its_json() -> None:
    body = b'{"is": "Time", "id": 8, "calls": 2, "keep": 1, "watched": true, "gate": 0}'
    assert encode(protocol.Time(2, 1, True, 0, id=8)) == b"\x00\x00\x00" + bytes([len(body)]) + body


@pytest.mark.parametrize("kind", get_args(Request))
@settings(max_examples=10)
@given(data=st.data())
def test_a_request_arrives_as_it_was_sent(kind: type[Frame], data: st.DataObject) -> None:
    frame = data.draw(st.builds(kind, **{field.name: ... for field in fields(kind)}))
    assert repr(protocol.decode(encode(frame)[4:])) == repr(frame), "of the same types, and NaN too"


def test_the_judge_takes_a_reply_with_all_its_fields() -> None:
    assert [field.name for field in fields(Reply) if getattr(REPLY, field.name) == field.default] == []
    assert replies.decode(encode(REPLY)[4:]) == REPLY


def test_whatever_a_reply_holds_is_bounded() -> None:
    """By a frame's length alone a message could fill a report, and a number be one of a million digits."""

    def check(schema: Any, path: str) -> None:
        kind = schema.get("type")
        limits = {"str": {"max_length", "pattern"}, "tuple": {"max_length"}, "int": {"ge"}, "float": {"ge", "le"}}
        assert kind not in limits or limits[kind] & schema.keys(), path
        for name, inner in schema.items():
            for one in inner if isinstance(inner, list) else [inner]:
                if isinstance(one, dict):
                    check(one, f"{path}.{name}")

    check(replies.REPLY.core_schema, "Reply")


@given(st.lists(st.sampled_from(FRAMES), min_size=1, max_size=4), st.data())
def test_frames_arrive_in_order_however_their_bytes_are_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(map(encode, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[low:high] for low, high in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert frames_of(chunks) == frames


@pytest.mark.parametrize("beginning", [b"", b"\x00", b"\x00\x00\x00\x05", b'\x00\x00\x00\x05{"a"'])
def test_a_stream_that_ends_gives_none_even_within_a_frame(
    pair: tuple[socket.socket, socket.socket], beginning: bytes
) -> None:
    ours, theirs = pair
    theirs.sendall(beginning)
    theirs.close()
    assert Reader(ours).receive() is None


def test_open_files_travel_beside_a_frame(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    ours, theirs = pair
    (tmp_path / "file").write_bytes(b"contents")
    sent = os.open(tmp_path / "file", os.O_RDONLY)
    reader = Reader(ours)
    # more than one read, and more than a socket may hold: somebody else sends
    sender = threading.Thread(target=send, args=(theirs, Yardstick("x" * 200_000), (sent,)))
    sender.start()
    frame = reader.receive()
    sender.join()
    send(theirs, Tidy())
    assert reader.receive() == encode(Tidy())[4:]
    os.close(sent)
    assert frame == encode(Yardstick("x" * 200_000))[4:]
    (received,) = reader.files
    assert os.read(received, 100) == b"contents"
    os.close(received)


# What is no frame is refused ------------------------------------------------------------------------------------------


def test_the_longest_frame_passes_and_a_longer_one_is_refused() -> None:
    room = MAX_FRAME_BYTES + 4 - len(encode(Yardstick("")))
    longest = Yardstick("a" * room)
    data = encode(longest)
    assert len(data) == 4 + MAX_FRAME_BYTES
    assert frames_of([data[start : start + 50_000] for start in range(0, len(data), 50_000)]) == [longest]
    with pytest.raises(ProtocolError, match=f"a frame of {MAX_FRAME_BYTES + 1} bytes"):
        encode(Yardstick("a" * (room + 1)))


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_claim_of_too_many_bytes_is_refused_before_they_arrive(
    pair: tuple[socket.socket, socket.socket], length: int
) -> None:
    ours, theirs = pair
    theirs.sendall(struct.pack(">I", length))
    reader = Reader(ours)
    with pytest.raises(ProtocolError, match=f"claims {length} bytes"):
        reader.receive()


GOOD = json.loads(encode(REPLY)[4:])
TENSOR, KERNELS, COMPILED = GOOD["returned"][0], GOOD["kernels"][0], GOOD["compiled"]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"ok", b"{'id': 1}", b'{"id": 1} x', b'{"id": \xff}', b"\xff\xfe", b'{"a": "\x01"}', b"NaN"),
        *(b"[]", b"1", b'"x"', b"null", b"true", b"1" * 5000, b'{"a": ' + b"9" * 5000 + b"x}"),
        *(one * (MAX_FRAME_BYTES // len(one)) for one in (b"[", b'{"a":', b'[{"a":')),
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x1b]0;title\x07 secret",
        b'{"times_s": [NaN]}',
        b'{"times_s": [-Infinity]}',
        b'{"ptxas": "\\ud800"}',
        *(json.dumps(GOOD | one).encode() for one in ({"id": None}, {"id": -1}, {"id": True}, {"id": "1"})),
        *(json.dumps(GOOD | {"broken": one}).encode() for one in (1, 0, None, "true", [], 1.0)),
        *(json.dumps(GOOD | {"times_s": one}).encode() for one in ([-1e-9], [10**7], [True], ["1"], [None], 1.0, "")),
        *(json.dumps(GOOD | {"times_s": one}).encode() for one in ([10**400], [0.0] * (protocol.MAX_CALLS + 1), {})),
        *(json.dumps(GOOD | {"launches": one}).encode() for one in (-1, 1.0, 2**41)),
        *(json.dumps(GOOD | {"ptxas": one}).encode() for one in ("x" * 20_001, None, 1)),
        *(json.dumps(GOOD | {"off_stream": one}).encode() for one in (["x" * 201], ["x"] * 9, [1], "x")),
        *(json.dumps(GOOD | {"returned": one}).encode() for one in ([{}], ["tensor"], [TENSOR] * 65)),
        *(json.dumps(GOOD | {"returned": [TENSOR | one]}).encode() for one in ({"kind": "right"}, {"type": "x" * 101})),
        *(
            json.dumps(GOOD | {"returned": [TENSOR | {"shape": one}]}).encode()
            for one in ([2, -1], [2**63], [True], [1] * 65)
        ),
        *(json.dumps(GOOD | {"kinds": one}).encode() for one in ([[TENSOR]] * 17, [TENSOR])),
        *(json.dumps(GOOD | {"kernels": [KERNELS | one]}).encode() for one in ({"time_s": -1}, {"calls": 2**41})),
        json.dumps(GOOD | {"operators": [{"name": "mul"}]}).encode(),
        *(json.dumps(GOOD | {"error": vars(ERROR) | one}).encode() for one in ({"kind": "passed"}, {"raised_by": "me"})),
        *(json.dumps(GOOD | {"compiled": COMPILED | one}).encode() for one in ({"arch": "sm_90; x"}, {"failed": "a b"})),
    ],
    ids=lambda body: repr(body[:30]),
)  # fmt: skip
def test_what_is_no_reply_is_refused_in_words_of_the_judge(body: bytes) -> None:
    replies.decode(json.dumps(GOOD).encode())
    with pytest.raises(ProtocolError, match=r"^a frame of the wrong form$"):
        replies.decode(body)


def test_a_field_that_nobody_knows_is_passed_over() -> None:
    assert replies.decode(json.dumps(GOOD | {"sure": True}).encode()) == REPLY


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    stream = bytearray(encode(draw(st.sampled_from([REPLY, Reply()]))) * 2)
    for _ in range(draw(st.integers(1, 3))):
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    return bytes(stream)


bodies = st.lists(st.binary(max_size=60).map(lambda body: struct.pack(">I", len(body)) + body), max_size=5).map(
    b"".join
)


@given(st.one_of(st.binary(max_size=400), bodies, damaged()), st.integers(1, 100))
def test_any_bytes_become_replies_that_can_be_sent_or_a_protocol_error(stream: bytes, chunk: int) -> None:
    chunks = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    with contextlib.suppress(ProtocolError):
        for reply in frames_of(chunks, replies.decode):
            assert replies.decode(encode(reply)[4:]) == reply


def test_a_reader_does_not_hoard_open_files(pair: tuple[socket.socket, socket.socket]) -> None:
    """A worker that sends open files beside an endless frame must not fill the judge's table of descriptors."""
    ours, theirs = pair
    reader = Reader(ours)
    before = open_files(first=True)
    theirs.sendall(struct.pack(">I", 1000))
    reader.read_some()

    def flood() -> None:
        for _ in range(25):
            socket.send_fds(theirs, [b" "], [0, 0, 0, 0])
            reader.read_some()
            assert reader.next() is None
            assert len(reader.files) <= protocol.MAX_FILES

    with pytest.raises(ProtocolError, match="open files"):
        flood()
    assert reader.files == []
    assert open_files() == before


def test_more_files_in_one_message_than_are_allowed_do_not_arrive(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = open_files(first=True)
    socket.send_fds(theirs, [b" "], [0] * 100)
    reader = Reader(ours)
    reader.read_some()
    assert len(reader.files) <= protocol.MAX_FILES
    reader.close_files()
    assert open_files() == before


def test_a_guard_band_reads_as_nan_and_differs_from_poison() -> None:
    for kind in "edf":
        size = struct.calcsize(kind)
        assert math.isnan(struct.unpack(f"<{kind}", bytes([protocol.GUARD_BYTE] * size))[0])
        assert math.isfinite(struct.unpack(f"<{kind}", bytes([protocol.FILL_BYTE] * size))[0])
