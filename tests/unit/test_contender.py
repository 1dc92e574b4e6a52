"""What a worker says of itself decides which words a student reads, never whether a case counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from grader import protocol
from grader.contender.arena import Arena
from grader.contender.contender import LOG_HEAD_BYTES, LOG_TAIL_BYTES, Contender, ContenderFault, Limits, Log, Reply
from grader.report.model import UNDECIDED

LIMITS = Limits(time_s=1, memory_gib=1)


def contender_that_hears(monkeypatch: pytest.MonkeyPatch, frame: dict[str, Any]) -> Contender:
    """A contender without a process, whose worker answers everything with the same frame."""
    reply = Reply.model_validate(protocol.decode(protocol.encode(frame)[4:]))
    monkeypatch.setattr(Contender, "_ask", lambda *_, **__: reply)
    return Contender.__new__(Contender)


def error_frame(**error: str) -> dict[str, Any]:
    return {"ok": False, "error": {"type": "", "message": "", "traceback": ""} | error}


@pytest.mark.xfail(
    strict=True,
    reason="`raise grader.worker.load.LoadError('no_compiler', '')` in the student's function makes a case skipped, and the group"
    " still earns its points; kind 'unsupported' makes it infra_error, which is never counted as lost",
)
@pytest.mark.parametrize("kind", ["no_compiler", "unsupported"])
def test_a_call_that_gave_no_answer_is_lost_whatever_the_worker_calls_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    contender = contender_that_hears(monkeypatch, error_frame(kind=kind))
    with (
        Arena({"x": torch.zeros(1)}, {"y": (1,)}, torch.float32, torch.device("cpu")) as arena,
        pytest.raises(ContenderFault) as fault,
    ):
        contender.call(arena, ["x"], [], None, LIMITS)
    assert fault.value.outcome not in UNDECIDED


@pytest.mark.parametrize("kind", ["failed", "not_implemented", "out_of_memory", "crashed"])
def test_a_students_exception_keeps_its_kind_its_type_and_its_words(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    frame = error_frame(kind=kind, type="ValueError", message="bad shape", traceback="  File x")
    with pytest.raises(ContenderFault) as fault:
        contender_that_hears(monkeypatch, frame).load(Path("/s/x.py"), "f", "triton", 1, LIMITS)
    assert (fault.value.outcome, fault.value.message, fault.value.traceback) == (
        kind, "ValueError: bad shape", "  File x",
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["passed", "skipped", "infra_error", "forbidden", "", "no_such"])
def test_a_worker_cannot_name_an_outcome_itself(kind: str) -> None:
    with pytest.raises(ValidationError):
        Reply.model_validate(error_frame(kind=kind))


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"ok": "perhaps"},
        {"ok": True, "returned": [{"kind": "right"}]},
        {"ok": True, "returned": [{"kind": "tensor", "shape": [1] * 100}]},
        {"ok": True, "returned": [{"kind": "tensor"}] * 100},
        {"ok": True, "returned": [{"kind": "tensor", "type": "x" * 1000}]},
        error_frame(kind="failed", message="x" * 100_000),
    ],
)
def test_a_reply_of_the_wrong_form_is_none(frame: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Reply.model_validate(frame)


@pytest.mark.xfail(
    strict=True,
    raises=ValidationError,
    reason="an exception whose message holds a lone surrogate (an undecodable file name) is refused as a frame of the wrong"
    " form: the student reads that the connection was misused, and not their own exception",
)
def test_an_exception_with_an_undecodable_name_in_it_is_still_told() -> None:
    frame = error_frame(kind="failed", type="OSError", message=os.fsdecode(b"no such file: caf\xe9"))
    Reply.model_validate(json.loads(json.dumps(frame)))


# What a worker prints ---------------------------------------------------------------------------------------------------


def logged(*pieces: bytes) -> Log:
    read_end, write_end = os.pipe()
    log = Log(read_end)
    for piece in pieces:
        os.write(write_end, piece)
    os.close(write_end)
    log.finish()
    return log


def test_a_short_log_is_kept_whole() -> None:
    log = logged(b"hello ", b"world\n", "é".encode())
    assert log.text() == "hello world\né"
    assert log.total_bytes == 14


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    data = b"".join(b"%09d\n" % number for number in range(20_000))
    log = logged(data[:60_000], data[60_000:61_000], data[61_000:])
    assert log.total_bytes == len(data)
    left_out = len(data) - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    middle = f"\n... {left_out} bytes left out ...\n".encode()
    assert log.text().encode() == data[:LOG_HEAD_BYTES] + middle + data[-LOG_TAIL_BYTES:]


def test_a_log_of_just_what_is_kept_leaves_nothing_out() -> None:
    data = b"x" * LOG_HEAD_BYTES + b"y" * LOG_TAIL_BYTES
    assert logged(data[:100], data[100:]).text().encode() == data


def test_a_log_that_is_no_text_can_be_shown() -> None:
    assert logged(b"\xff\x00a\xc3").text() == "\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}"
