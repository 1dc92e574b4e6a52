"""What a worker says, as models of bounded size, and the faults that follow from it. None of it is believed."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from grader.protocol import MAX_CALLS
from grader.report.model import Outcome

RaisedBy = Literal["submission", "library", "toolchain"]
Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class ContenderFault(Exception):
    """A call that gave no answer.

    outcome: what became of it. message: a sentence for the student. traceback: the student's frames. details: what else is known.
    raised_by: the submission's own code; a library that it called; or what may be the toolchain's failure, and so the machine's.
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        traceback: str = "",
        details: tuple[str, ...] = (),
        raised_by: RaisedBy = "library",
    ) -> None:
        message = message if message.strip() else "failed without a word"
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.traceback = traceback
        self.details = details
        self.raised_by: RaisedBy = raised_by


class Returned(BaseModel):
    """What a worker says came back; only ever used to choose words."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["tensor", "kept", "input", "subclass", "other", "written", "not_differentiable"]
    type: str = Field(default="", max_length=100)
    dtype: str = Field(default="", max_length=40)
    shape: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(default=(), max_length=64)
    device: str = Field(default="", max_length=40)


class RanOperator(BaseModel):
    """An ATen operator that a call of the submission has run, as `relu`, and the first of its lines that did."""

    name: str = Field(max_length=100)
    place: str = Field(max_length=200)


class RanKernel(BaseModel):
    """A kernel that a worker's profiler saw on the GPU: how often it ran, and seconds of all that together."""

    name: str = Field(max_length=300)
    calls: int = Field(ge=0, le=1 << 40)
    time_s: Seconds


class WorkerError(BaseModel):
    kind: Literal["failed", "not_implemented", "out_of_memory", "crashed", "build_failed", "unsupported"]
    type: str = Field(max_length=200)
    message: str = Field(max_length=20_000)
    traceback: str = Field(max_length=20_000)
    raised_by: RaisedBy = "library"


class CompiledKernel(BaseModel):
    """A Triton kernel as a worker says that it was compiled: `shared_bytes` of a block, and the words of `ptxas -v`."""

    name: str = Field(pattern=r"^\w+$", max_length=200)
    warps: int = Field(ge=0, le=64)
    shared_bytes: int = Field(ge=0, le=1 << 31)
    ptxas: str = Field(max_length=2000)


class CompiledCall(BaseModel):
    """A call's launches, compiled for `arch`, up to the first that could not be: `failed`, for the reason in `error`.

    whole: whether the call came to its end; it may stumble over results that no launch has left.
    """

    arch: str = Field(pattern=r"^sm_\d{2,3}[a-z]?$")
    kernels: tuple[CompiledKernel, ...] = Field(max_length=64)
    failed: str = Field(pattern=r"^\w*$", max_length=200)
    error: WorkerError | None
    whole: bool


class Reply(BaseModel):
    model_config = ConfigDict(extra="ignore")

    ok: bool
    returned: tuple[Returned, ...] = Field(default=(), max_length=64)
    kinds: tuple[tuple[Returned, ...], ...] = Field(default=(), max_length=16)
    times_s: tuple[Seconds, ...] = Field(default=(), max_length=MAX_CALLS)
    operators: tuple[RanOperator, ...] = Field(default=(), max_length=64)
    kernels: tuple[RanKernel, ...] = Field(default=(), max_length=32)
    launches: int | None = Field(default=None, ge=0, le=1 << 40)
    ptxas: str = Field(default="", max_length=20_000)
    off_stream: tuple[Annotated[str, Field(max_length=200)], ...] = Field(default=(), max_length=8)
    compiled: CompiledCall | None = None
    error: WorkerError | None = None
    broken: bool = False


def fault_of(error: WorkerError, on_cpu: bool = True) -> ContenderFault:
    """An error that a worker tells of, as the fault of the call; `skipped` for what a CPU cannot run."""
    if error.kind == "unsupported":
        outcome: Outcome = "skipped" if on_cpu else "failed"
        return ContenderFault(outcome, error.message, error.traceback, raised_by="submission")
    if error.kind == "build_failed":
        return build_fault(error.message, error.raised_by)
    message = ": ".join(part for part in (error.type, error.message) if part)
    return ContenderFault(error.kind, message.strip(), error.traceback, raised_by=error.raised_by)


def build_fault(output: str, raised_by: RaisedBy = "toolchain") -> ContenderFault:
    """The compiler's first error and what it says after that, or before it where it names no line; `not_implemented` where the starter's
    own #error is still there.
    """
    lines = output.strip("\n").splitlines()
    errors = [index for index, line in enumerate(lines) if re.search(r"\berror\b|#error", line, re.IGNORECASE)]
    for stub in (lines[index] for index in errors if "is not implemented yet" in lines[index]):
        file = re.match(r"(?:.*/)?([^/:(]+)[:(]\d", stub)
        name = file[1] if file else "the file"
        return ContenderFault("not_implemented", f"{name} still has the starter's #error line: nothing was built")
    first = errors[0] if errors else -1
    message = lines[first] if errors else "the build failed"
    before = lines[:first][-5:] if errors and not re.match(r"[^\s:(]+[:(]\d", message) else []
    told = "\n".join([*before, *lines[first + 1 : first + 30]])
    return ContenderFault("build_failed", message, told, raised_by=raised_by)
