"""Checks a worker's replies, and turns reported errors into faults."""

from __future__ import annotations

import re

from pydantic import TypeAdapter, ValidationError

from grader.protocol import ProtocolError, RaisedBy, Reply, WorkerError
from grader.report.model import Outcome

REPLY = TypeAdapter(Reply)


class ContenderFault(Exception):
    """A call that gave no answer.

    Attributes:
        outcome: of the case.
        message: a sentence for the student.
        traceback: the student's frames, or a compiler's output.
        details: further sentences for the student.
        raised_by: the submission's own code, a library that it called, or the toolchain, which may mean the machine.
        of_file: whether the file is at fault before any call: it must not be run, or could not be built or loaded.
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        traceback: str = "",
        details: tuple[str, ...] = (),
        raised_by: RaisedBy = "library",
        of_file: bool = False,
    ) -> None:
        self.outcome: Outcome = outcome
        self.message = message if message.strip() else "failed without a word"
        super().__init__(self.message)
        self.traceback, self.details = traceback, details
        self.raised_by: RaisedBy = raised_by
        self.of_file = of_file


class CutOff(ContenderFault):
    """A call that ended because everything in its jail was ended, for what another worker had left behind."""

    def __init__(self) -> None:
        super().__init__("crashed", "ended together with other processes of the submission, which had left some behind")


def decode(body: bytes) -> Reply:
    """Parse the body of a reply. Raises ProtocolError unless it is a reply within all bounds."""
    try:
        return REPLY.validate_json(body, strict=True)
    except ValidationError:
        raise ProtocolError("a frame of the wrong form") from None


def fault_of(error: WorkerError, on_cpu: bool = True) -> ContenderFault:
    """The fault for an error that a worker reports; `skipped` if a CPU cannot run the code."""
    if error.kind == "unsupported":
        outcome: Outcome = "skipped" if on_cpu else "failed"
        return ContenderFault(outcome, error.message, error.traceback, raised_by="submission")
    if error.kind == "build_failed":
        return build_fault(error.message, error.raised_by)
    message = ": ".join(part for part in (error.type, error.message) if part)
    return ContenderFault(error.kind, message.strip(), error.traceback, raised_by=error.raised_by)


def build_fault(output: str, raised_by: RaisedBy = "toolchain") -> ContenderFault:
    """The fault of a failed build, with the compiler's first error and the lines after it (before it, if the error
    names no line).

    The outcome is `not_implemented` if the starter's own #error is still there.
    """
    lines = output.strip("\n").splitlines()
    errors = [index for index, line in enumerate(lines) if re.search(r"\berror\b|#error", line, re.IGNORECASE)]
    for stub in (lines[index] for index in errors if "is not implemented yet" in lines[index]):
        named = re.match(r"(?:.*/)?([^/:(]+)[:(]\d", stub)
        name = named[1] if named else "the file"
        return ContenderFault("not_implemented", f"{name} still has the starter's #error line: nothing was built")
    first = errors[0] if errors else -1
    message = lines[first] if errors else "the build failed"
    before = lines[:first][-5:] if errors and not re.match(r"[^\s:(]+[:(]\d", message) else []
    told = "\n".join([*before, *lines[first + 1 : first + 30]]).strip("\n")
    return ContenderFault("build_failed", message, told, raised_by=raised_by)
