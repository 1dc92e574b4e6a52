"""Frames arrive whole however their bytes do, and nothing that is no frame gets through."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader import protocol
from grader.protocol import MAX_FRAME_BYTES, Frame, ProtocolError, Reader, decode, encode, send


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.settimeout(10)  # a bug must not hang the tests
        yield ours, theirs


def frames_of(chunks: Sequence[bytes]) -> list[Frame]:
    """All frames that a reader makes of bytes arriving in these chunks, before the stream ends."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, found = Reader(ours), []
        for chunk in filter(None, chunks):
            theirs.sendall(chunk)
            assert reader.read_some()
            while (frame := reader.next()) is not None:
                found.append(frame)
        theirs.close()
        assert not reader.read_some()
        return found


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
frame_values = st.dictionaries(st.text(max_size=8), json_values, max_size=5)


# What is sent arrives -------------------------------------------------------------------------------------------------


def test_a_frame_is_its_length_big_endian_and_its_json() -> None:
    assert encode({"ok": True}) == b"\x00\x00\x00\x0c" + b'{"ok": true}'


@given(frame_values)
def test_a_frame_survives_the_round_trip(frame: Frame) -> None:
    assert decode(encode(frame)[4:]) == frame


@given(st.lists(frame_values, min_size=1, max_size=4), st.data())
def test_frames_arrive_in_order_however_their_bytes_are_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(map(encode, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[low:high] for low, high in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert frames_of(chunks) == frames


def test_a_frame_that_arrives_byte_by_byte_is_there_with_its_last_byte(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    reader, data = Reader(ours), encode({"a": [1, 2.5, "é"]}) + encode({"b": None})
    first = len(encode({"a": [1, 2.5, "é"]}))
    found = []
    for number in range(len(data)):
        theirs.sendall(data[number : number + 1])
        assert reader.read_some()
        if (frame := reader.next()) is not None:
            found.append((number + 1, frame))
    assert found == [(first, {"a": [1, 2.5, "é"]}), (len(data), {"b": None})]


def test_the_next_frame_waits_for_nothing_that_has_arrived_already(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(encode({"n": 1}) + encode({"n": 2}))
    reader = Reader(ours)
    assert reader.receive() == {"n": 1}
    assert reader.next() == {"n": 2}
    assert reader.next() is None


def test_an_empty_object_is_a_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    send(theirs, {})
    assert Reader(ours).receive() == {}


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
    sender = threading.Thread(target=send, args=(theirs, {"do": "call", "pad": "x" * 200_000}, (sent,)))
    sender.start()
    frame = reader.receive()
    sender.join()
    send(theirs, {"and": "another"})
    assert reader.receive() == {"and": "another"}
    os.close(sent)
    assert frame is not None
    assert len(frame["pad"]) == 200_000
    (received,) = reader.files
    assert os.read(received, 100) == b"contents"
    os.close(received)


# What is no frame is refused ------------------------------------------------------------------------------------------


def test_the_longest_frame_passes_and_a_longer_one_is_refused() -> None:
    room = MAX_FRAME_BYTES - len(json.dumps({"x": ""}))
    longest = {"x": "a" * room}
    data = encode(longest)
    assert len(data) == 4 + MAX_FRAME_BYTES
    assert frames_of([data[start : start + 50_000] for start in range(0, len(data), 50_000)]) == [longest]
    with pytest.raises(ProtocolError, match=f"a frame of {MAX_FRAME_BYTES + 1} bytes"):
        encode({"x": "a" * (room + 1)})


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_claim_of_too_many_bytes_is_refused_before_they_arrive(
    pair: tuple[socket.socket, socket.socket], length: int
) -> None:
    ours, theirs = pair
    theirs.sendall(struct.pack(">I", length))
    reader = Reader(ours)
    with pytest.raises(ProtocolError, match=f"claims {length} bytes"):
        reader.receive()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"ok",
        b'{"a": 1} x',
        b"{'a': 1}",
        b'{"a": \xff}',
        b"\xff\xfe",
        b'{"a": "\x01"}',
        b"1" * 5000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b"cos\nsystem\n(S'true'\ntR.",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        decode(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"[]", "list"), (b"1", "int"), (b'"x"', "str"), (b"null", "NoneType"), (b"true", "bool"), (b"NaN", "float")],
)
def test_what_is_no_object_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(ProtocolError, match=f"is a {kind}, not an object"):
        decode(body)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_nesting_is_refused_and_does_no_harm(opening: bytes) -> None:
    body = opening * (MAX_FRAME_BYTES // len(opening))
    with pytest.raises(ProtocolError, match="not JSON"):
        decode(body)
    closed = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    with pytest.raises(ProtocolError):
        decode(closed)


def test_an_error_message_does_not_repeat_what_the_other_side_sent() -> None:
    with pytest.raises(ProtocolError) as error:
        decode(b"\x1b]0;title\x07 secret")
    assert "secret" not in str(error.value)
    assert "\x1b" not in str(error.value)


def check_fuzz(stream: bytes, chunk: int) -> None:
    """Bytes either become frames or a ProtocolError, and frames are only ever objects of the bytes' own JSON."""
    chunks = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    try:
        frames = frames_of(chunks)
    except ProtocolError:
        return
    assert all(isinstance(frame, dict) for frame in frames)
    position = 0
    for frame in frames:
        (length,) = struct.unpack(">I", stream[position : position + 4])
        expected = json.loads(stream[position + 4 : position + 4 + length])
        assert frame == expected or repr(frame) == repr(expected)  # NaN differs from itself
        position += 4 + length
    rest = stream[position:]
    assert len(rest) < 4 or len(rest) < 4 + struct.unpack(">I", rest[:4])[0]


@given(st.binary(max_size=400), st.integers(1, 100))
def test_arbitrary_bytes_give_frames_or_a_protocol_error(stream: bytes, chunk: int) -> None:
    check_fuzz(stream, chunk)


@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(1, 100))
def test_arbitrary_bodies_give_frames_or_a_protocol_error(bodies: list[bytes], chunk: int) -> None:
    check_fuzz(b"".join(map(framed, bodies)), chunk)


@given(frame_values, st.data())
def test_a_damaged_frame_gives_frames_or_a_protocol_error(frame: Frame, data: st.DataObject) -> None:
    stream = bytearray(encode(frame) * 2)
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    check_fuzz(bytes(stream), 64)


def test_a_reader_does_not_hoard_open_files(pair: tuple[socket.socket, socket.socket]) -> None:
    """A worker that sends open files beside an endless frame must not fill the judge's table of descriptors."""
    ours, theirs = pair
    reader = Reader(ours)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
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
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_more_files_in_one_message_than_are_allowed_do_not_arrive(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    socket.send_fds(theirs, [b" "], [0] * 100)
    reader = Reader(ours)
    reader.read_some()
    assert len(reader.files) <= protocol.MAX_FILES
    reader.close_files()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_guard_band_reads_as_nan_and_differs_from_poison() -> None:
    for kind in "edf":
        size = struct.calcsize(kind)
        assert math.isnan(struct.unpack(f"<{kind}", bytes([protocol.GUARD_BYTE] * size))[0])
        assert math.isfinite(struct.unpack(f"<{kind}", bytes([protocol.POISON_BYTE] * size))[0])
