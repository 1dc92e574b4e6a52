"""Checks a worker's replies, and turns reported errors into faults."""

from __future__ import annotations

import re

from pydantic import TypeAdapter, ValidationError

from grader.pool.fault import Fault, Whose
from grader.protocol import ProtocolError, Reply, WorkerError
from grader.report.model import Outcome

REPLY = TypeAdapter(Reply)


def decode(body: bytes) -> Reply:
    """Parse the body of a reply. Raises ProtocolError unless it is a reply within all bounds."""
    try:
        return REPLY.validate_json(body, strict=True)
    except ValidationError:
        raise ProtocolError("a frame of the wrong form") from None


def fault_of(error: WorkerError, on_cpu: bool = True) -> Fault:
    """The fault for an error that a worker reports; `skipped` if a CPU cannot run the code."""
    if error.kind == "unsupported":
        outcome: Outcome = "skipped" if on_cpu else "failed"
        return Fault(outcome, error.message, error.traceback, whose="submission")
    if error.kind == "build_failed":
        return build_fault(error.message, error.raised_by)
    message = ": ".join(part for part in (error.type, error.message) if part)
    return Fault(error.kind, message.strip(), error.traceback, whose=error.raised_by)


def build_fault(output: str, whose: Whose = "toolchain") -> Fault:
    """The fault of a failed build, with the first error that names a line and the lines after it (an error without a line
    only if there is no other, with the lines before it).

    The outcome is `not_implemented` if the starter's own #error is still there.
    """
    lines = output.strip("\n").splitlines()
    errors = [index for index, line in enumerate(lines) if re.search(r"\berror\b|#error", line, re.IGNORECASE)]
    for stub in (lines[index] for index in errors if "is not implemented yet" in lines[index]):
        named = re.match(r"(?:.*/)?([^/:(]+)[:(]\d", stub)
        name = named[1] if named else "the file"
        return Fault("not_implemented", f"{name} still has the starter's #error line: nothing was built")
    placed = [index for index in errors if re.match(r"(?:.*/)?[^\s:(/]+[:(]\d", lines[index])]
    first = next(iter([*placed, *errors]), -1)  # a build tool's own words come before the compiler's
    message = lines[first] if errors else "the build failed"
    before = lines[:first][-5:] if errors and not re.match(r"[^\s:(]+[:(]\d", message) else []
    told = "\n".join([*before, *lines[first + 1 : first + 30]]).strip("\n")
    return Fault("build_failed", message, told, whose=whose)
