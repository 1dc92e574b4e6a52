"""Frames arrive whole however their bytes do, and nothing that is no frame gets through."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader import protocol
from grader.protocol import (
    BOUNDS,
    MAX_FRAME_BYTES,
    Collect,
    Frame,
    ProtocolError,
    Reader,
    Reply,
    Tidy,
    Time,
    decode,
    encode,
    send,
)

EVERY: dict[str, type[Frame]] = {**protocol.REQUESTS, **protocol.REPLIES}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.settimeout(10)  # a bug must not hang the tests
        yield ours, theirs


def frames_of(chunks: Sequence[bytes], expected: Mapping[str, type[Frame]] = EVERY) -> list[tuple[int, Frame]]:
    """All frames that a reader makes of bytes arriving in these chunks, before the stream ends."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, found = Reader(ours, expected), []
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


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever a field of this type may hold, at its bounds too."""
    within, inner = None, get_args(kind)
    if get_origin(kind) is Annotated:
        kind, within = inner
        inner = get_args(kind)
    if type(None) in inner:
        return st.none() | values(inner[0])
    if is_dataclass(kind):
        return records(kind)
    if get_origin(kind) is Literal:
        return st.sampled_from(inner)
    if get_origin(kind) is tuple:
        limits = within or BOUNDS[str]
        return st.lists(values(inner[0]), min_size=int(limits.low), max_size=min(3, int(limits.high))).map(tuple)
    if kind is str:
        limits = within or BOUNDS[str]
        if limits.form:
            return st.from_regex(limits.form, fullmatch=True).filter(lambda text: len(text) <= limits.high)
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=min(30, int(limits.high)))
    if kind is bool:
        return st.booleans()
    limits = within or BOUNDS[float if kind is not int else int]
    if kind is int:
        return st.integers(int(limits.low), int(limits.high))
    numbers = st.floats(limits.low, limits.high)
    return numbers if kind is float else numbers | st.booleans() | st.integers(-(2**63), 2**63)


def records(kind: Any) -> st.SearchStrategy[Any]:
    """Dataclasses of this kind, whatever their fields hold."""
    types = get_type_hints(kind, include_extras=True)
    return st.fixed_dictionaries({name: values(one) for name, one in types.items()}).map(lambda found: kind(**found))


ids = st.integers(0, 2**63 - 1)
any_frame = st.one_of([records(one) for one in EVERY.values()])


# What is sent arrives -------------------------------------------------------------------------------------------------


def test_every_frame_is_a_request_or_a_reply() -> None:
    """The tests below go through these: a new one is among them as soon as somebody can send it."""
    records_of_protocol = {one for one in vars(protocol).values() if is_dataclass(one)}
    parts: set[Any] = set(EVERY.values())
    for one in EVERY.values():
        parts |= set(parts_of(one))
    assert parts == records_of_protocol - {protocol.Within}
    assert all(one.__doc__ and not one.__doc__.startswith(f"{one.__name__}(") for one in parts)


def parts_of(kind: Any) -> Iterator[Any]:
    """The dataclasses that the fields of one are made of."""
    waiting = [*get_type_hints(kind, include_extras=False).values()]
    while waiting:
        one = waiting.pop()
        if is_dataclass(one):
            yield one
            waiting += get_type_hints(one).values()
        waiting += get_args(one)


def test_a_frame_is_its_length_big_endian_and_its_json() -> None:
    assert encode(7, Reply(ok=True)) == b"\x00\x00\x00\x15" + b'{"id": 7, "ok": true}'
    assert encode(8, Time(2, 1, True, 0))[4:] == (
        b'{"id": 8, "do": "time", "calls": 2, "keep": 1, "watched": true, "gate": 0}'
    )


@pytest.mark.parametrize("name", EVERY)
@given(st.data(), ids)
def test_a_frame_survives_the_round_trip(name: str, data: st.DataObject, number: int) -> None:
    frame = data.draw(records(EVERY[name]))
    assert decode(encode(number, frame)[4:], {name: EVERY[name]}) == (number, frame)


@given(st.lists(any_frame, min_size=1, max_size=4), st.data())
def test_frames_arrive_in_order_however_their_bytes_are_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode(number, frame) for number, frame in enumerate(frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[low:high] for low, high in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert frames_of(chunks) == list(enumerate(frames))


def test_a_frame_that_arrives_byte_by_byte_is_there_with_its_last_byte(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    reader, first, second = Reader(ours, EVERY), Reply(ok=True, ptxas="é"), Collect((2, 0, 1))
    data = encode(1, first) + encode(2, second)
    found = []
    for number in range(len(data)):
        theirs.sendall(data[number : number + 1])
        assert reader.read_some()
        if (frame := reader.next()) is not None:
            found.append((number + 1, frame))
    assert found == [(len(encode(1, first)), (1, first)), (len(data), (2, second))]


def test_the_next_frame_waits_for_nothing_that_has_arrived_already(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(encode(1, Tidy()) + encode(2, Tidy()))
    reader = Reader(ours, EVERY)
    assert reader.receive() == (1, Tidy())
    assert reader.next() == (2, Tidy())
    assert reader.next() is None


@pytest.mark.parametrize("beginning", [b"", b"\x00", b"\x00\x00\x00\x05", b'\x00\x00\x00\x05{"a"'])
def test_a_stream_that_ends_gives_none_even_within_a_frame(
    pair: tuple[socket.socket, socket.socket], beginning: bytes
) -> None:
    ours, theirs = pair
    theirs.sendall(beginning)
    theirs.close()
    assert Reader(ours, EVERY).receive() is None


def test_open_files_travel_beside_a_frame(pair: tuple[socket.socket, socket.socket], tmp_path: Path) -> None:
    ours, theirs = pair
    (tmp_path / "file").write_bytes(b"contents")
    sent = os.open(tmp_path / "file", os.O_RDONLY)
    reader = Reader(ours, protocol.REQUESTS)
    large = protocol.Results(protocol.Memory(1), ((protocol.Ref("float32", 0, (1,), (1,)),),) * 4000)
    request = protocol.Prepare(protocol.Memory(1), (), (), large, None)
    # more than one read, and more than a socket may hold: somebody else sends
    assert len(encode(1, request)) > 200_000
    sender = threading.Thread(target=send, args=(theirs, 1, request, (sent,)))
    sender.start()
    arrived = reader.receive()
    sender.join()
    send(theirs, 2, Tidy())
    assert reader.receive() == (2, Tidy())
    os.close(sent)
    assert arrived == (1, request)
    (received,) = reader.files
    assert os.read(received, 100) == b"contents"
    os.close(received)


# What is no frame is refused ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """A frame of any length."""

    texts: tuple[str, ...]


def frame_of(length: int) -> Any:
    """One whose JSON has so many bytes."""
    empty = len(encode(1, Texts(()))[4:])  # type: ignore[arg-type]
    each = len(', ""') + 2000
    count, rest = divmod(length - empty + len(", ") - each, each)
    return Texts((*["t" * 2000] * count, "t" * (2000 + rest)))


def test_the_longest_frame_passes_and_a_longer_one_is_refused() -> None:
    data, kinds = encode(1, frame_of(MAX_FRAME_BYTES)), {"texts": Texts}
    assert len(data) == 4 + MAX_FRAME_BYTES
    chunks = [data[start : start + 50_000] for start in range(0, len(data), 50_000)]
    assert frames_of(chunks, kinds) == [(1, frame_of(MAX_FRAME_BYTES))]  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=f"a frame of {MAX_FRAME_BYTES + 1} bytes"):
        encode(1, frame_of(MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize("length", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_claim_of_too_many_bytes_is_refused_before_they_arrive(
    pair: tuple[socket.socket, socket.socket], length: int
) -> None:
    ours, theirs = pair
    theirs.sendall(struct.pack(">I", length))
    reader = Reader(ours, EVERY)
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
        b"NaN",
        b'{"id": 1, "ok": true, "times_s": [NaN]}',
        b'{"id": 1, "ok": true, "times_s": [-Infinity]}',
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        decode(body, EVERY)


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"[]", "list"), (b"1", "int"), (b'"x"', "str"), (b"null", "NoneType"), (b"true", "bool")],
)
def test_what_is_no_object_is_refused(body: bytes, kind: str) -> None:
    with pytest.raises(ProtocolError, match=f"is a {kind}, not an object"):
        decode(body, EVERY)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_deep_nesting_is_refused_and_does_no_harm(opening: bytes) -> None:
    body = opening * (MAX_FRAME_BYTES // len(opening))
    with pytest.raises(ProtocolError, match="not JSON"):
        decode(body, EVERY)
    closed = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    with pytest.raises(ProtocolError):
        decode(closed, EVERY)


def test_an_error_message_does_not_repeat_what_the_other_side_sent() -> None:
    with pytest.raises(ProtocolError) as error:
        decode(b"\x1b]0;title\x07 secret", EVERY)
    assert "secret" not in str(error.value)
    assert "\x1b" not in str(error.value)


TENSOR = {"kind": "tensor"}
ERROR = {"kind": "failed", "type": "", "message": "", "traceback": ""}
KERNEL = {"name": "k", "warps": 4, "shared_bytes": 0, "ptxas": ""}
COMPILED = {"arch": "sm_90", "kernels": [KERNEL], "failed": "", "error": None, "whole": True}
LOAD = {"do": "load", "path": "/s/x.py", "entry": "f", "build": None, "compiled": False, "limit_s": 1}
REF = {"dtype": "float32", "start_bytes": 0, "shape": [1], "stride": [1]}
CALL = {
    "do": "call",
    "arena": {"bytes": 1},
    "calls": [{"args": [REF], "upstream": None, "outputs": [REF]}],
    "options": [],
    "limit_s": 1,
}
TIME = {"do": "time", "calls": 1, "keep": 1, "watched": False, "gate": 0}


@pytest.mark.parametrize(
    "content",
    [
        {"ok": True, "times_s": [0, 1.5], "returned": [TENSOR], "error": ERROR, "compiled": COMPILED},
        LOAD,
        LOAD | {"build": {"compiler": "g++", "limit_s": 1.0, "nvcc": None, "arch": ""}},
        CALL,
        TIME,
    ],
)
def test_the_malformed_ones_below_are_right_but_for_one_thing(content: dict[str, Any]) -> None:
    decode(json.dumps({"id": 1} | content).encode(), EVERY)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"ok": True, "sure": True}, "Reply has a field that is unknown"),
        ({"times_s": []}, "Reply lacks ok"),
        ({"id": None, "ok": True}, "Reply is not int from 0"),
        ({"id": -1, "ok": True}, "Reply is not int from 0"),
        ({"id": True, "ok": True}, "Reply is not int from 0"),
        ({"do": "obey"}, "nobody waits for one of its kind"),
        ({"do": ["time"]}, "nobody waits for one of its kind"),
        ({"do": {}}, "nobody waits for one of its kind"),
        *(({"ok": one}, "Reply.ok is not bool") for one in (1, 0, None, "true", [], 1.0)),
        *(({"ok": True, "times_s": [0.5, one]}, "Reply.times_s is not float") for one in (-1e-9, 10**7, True, "1", None)),
        ({"ok": True, "times_s": [-1.0]}, "Reply.times_s is not float"),
        ({"ok": True, "times_s": [10**400]}, "Reply.times_s is not float"),
        ({"ok": True, "times_s": 1.0}, "Reply.times_s is no list"),
        ({"ok": True, "times_s": [0.0] * (protocol.MAX_CALLS + 1)}, "Reply.times_s is no list"),
        ({"ok": True, "launches": -1}, "Reply.launches is not int"),
        ({"ok": True, "launches": 1.0}, "Reply.launches is not int"),
        ({"ok": True, "launches": 2**41}, "Reply.launches is not int"),
        ({"ok": True, "ptxas": "x" * 20_001}, "Reply.ptxas is not text"),
        ({"ok": True, "ptxas": "\ud800"}, "Reply.ptxas is not text"),
        ({"ok": True, "ptxas": None}, "Reply.ptxas is not text"),
        ({"ok": True, "returned": [TENSOR | {"kind": "right"}]}, "Reply.returned.kind is not one of tensor, "),
        ({"ok": True, "returned": [{}]}, "Reply.returned lacks kind"),
        ({"ok": True, "returned": ["tensor"]}, "Reply.returned is no object"),
        ({"ok": True, "returned": [TENSOR | {"shape": [2, -1]}]}, "Reply.returned.shape is not int"),
        ({"ok": True, "returned": [TENSOR | {"shape": [2**63]}]}, "Reply.returned.shape is not int"),
        ({"ok": True, "returned": [TENSOR | {"shape": [True]}]}, "Reply.returned.shape is not int"),
        ({"ok": True, "returned": [TENSOR | {"shape": [1] * 65}]}, "Reply.returned.shape is no list"),
        ({"ok": True, "returned": [TENSOR] * 65}, "Reply.returned is no list"),
        ({"ok": True, "kinds": [[TENSOR]] * 17}, "Reply.kinds is no list"),
        ({"ok": True, "kinds": [TENSOR]}, "Reply.kinds is no list"),
        ({"ok": True, "kernels": [{"name": "k", "calls": 1, "time_s": -1}]}, "Reply.kernels.time_s is not float"),
        ({"ok": True, "operators": [{"name": "mul"}]}, "Reply.operators lacks place"),
        ({"ok": False, "error": ERROR | {"kind": "passed"}}, "Reply.error.kind is not one of failed, "),
        ({"ok": False, "error": ERROR | {"raised_by": "judge"}}, "Reply.error.raised_by is not one of submission"),
        ({"ok": True, "compiled": COMPILED | {"arch": "sm_90; x"}}, "Reply.compiled.arch is not text .* in its form"),
        ({"ok": True, "compiled": COMPILED | {"failed": "a b"}}, "Reply.compiled.failed is not text"),
        ({"ok": True, "compiled": COMPILED | {"kernels": [KERNEL | {"warps": 65}]}}, "Reply.compiled.kernels.warps is"),
        (LOAD | {"limit_s": -1}, "Load.limit_s is not float"),
        (LOAD | {"path": 3}, "Load.path is not text"),
        (CALL | {"calls": []}, "Call.calls is no list of 1 to"),
        (CALL | {"options": ["no"]}, "Call.options is not float"),
        (CALL | {"windows": -1}, "Call.windows is not int"),
        (CALL | {"arena": {"bytes": -1}}, "Call.arena.bytes is not int"),
        (CALL | {"arena": {"bytes": 1, "handle": "xyz"}}, "Call.arena.handle is not text"),
        (TIME | {"gate": -1}, "Time.gate is not int"),
        ({"do": "collect", "order": [0, 1.5]}, "Collect.order is not int"),
        ({"do": "collect", "order": [0, "1"]}, "Collect.order is not int"),
        ({"do": "tidy", "well": True}, "Tidy has a field that is unknown"),
    ],
)  # fmt: skip
def test_a_frame_of_the_wrong_form_is_refused_in_words(content: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError, match=f"^a frame of the wrong form: {words}"):
        decode(json.dumps({"id": 1} | content).encode(), EVERY)


def test_neither_side_takes_what_is_for_the_other() -> None:
    for number, frame, expected in ((1, Tidy(), protocol.REPLIES), (1, Reply(ok=True), protocol.REQUESTS)):
        with pytest.raises(ProtocolError, match="nobody waits for one of its kind"):
            decode(encode(number, frame)[4:], expected)


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_not_sent(time_s: float) -> None:
    with pytest.raises(ProtocolError, match="NaN or infinite"):
        encode(1, Reply(ok=True, times_s=(1.0, time_s)))


@pytest.mark.parametrize("name", EVERY)
@given(st.data())
def test_a_frame_without_one_of_its_fields_or_with_one_more_is_refused(name: str, data: st.DataObject) -> None:
    content = json.loads(encode(1, data.draw(records(EVERY[name])))[4:])
    required = [one.name for one in fields(EVERY[name]) if one.default is MISSING]
    spoilt = [content | {"another": 1}, *({key: content[key] for key in content if key != one} for one in required)]
    for one in spoilt:
        with pytest.raises(ProtocolError, match=r"has a field that is unknown|lacks "):
            decode(json.dumps(one).encode(), EVERY)


def check_fuzz(stream: bytes, chunk: int) -> None:
    """Bytes either become frames or a ProtocolError; a frame is one that can be sent."""
    chunks = [stream[start : start + chunk] for start in range(0, len(stream), chunk)]
    try:
        frames = frames_of(chunks)
    except ProtocolError:
        return
    for number, frame in frames:
        assert decode(encode(number, frame)[4:], EVERY) == (number, frame)


@given(st.binary(max_size=400), st.integers(1, 100))
def test_arbitrary_bytes_give_frames_or_a_protocol_error(stream: bytes, chunk: int) -> None:
    check_fuzz(stream, chunk)


@given(st.lists(st.binary(max_size=60), max_size=5), st.integers(1, 100))
def test_arbitrary_bodies_give_frames_or_a_protocol_error(bodies: list[bytes], chunk: int) -> None:
    check_fuzz(b"".join(map(framed, bodies)), chunk)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@given(any_frame, json_values, st.data())
def test_a_frame_with_anything_in_place_of_a_value_is_one_or_a_protocol_error(
    frame: Frame, value: Any, data: st.DataObject
) -> None:
    content = json.loads(encode(1, frame)[4:])
    place: Any = content
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = value
    check_fuzz(framed(json.dumps(content).encode()), 4096)


@given(any_frame, st.data())
def test_a_damaged_frame_gives_frames_or_a_protocol_error(frame: Frame, data: st.DataObject) -> None:
    stream = bytearray(encode(1, frame) * 2)
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    check_fuzz(bytes(stream), 64)


def test_a_reader_does_not_hoard_open_files(pair: tuple[socket.socket, socket.socket]) -> None:
    """A worker that sends open files beside an endless frame must not fill the judge's table of descriptors."""
    ours, theirs = pair
    reader = Reader(ours, EVERY)
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
    reader = Reader(ours, EVERY)
    reader.read_some()
    assert len(reader.files) <= protocol.MAX_FILES
    reader.close_files()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_guard_band_reads_as_nan_and_differs_from_poison() -> None:
    for kind in "edf":
        size = struct.calcsize(kind)
        assert math.isnan(struct.unpack(f"<{kind}", bytes([protocol.GUARD_BYTE] * size))[0])
        assert math.isfinite(struct.unpack(f"<{kind}", bytes([protocol.POISON_BYTE] * size))[0])
