"""What the judge is asked to do, and what it tells while it works: the two ends of a sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from grader.assignment import Tool
from grader.report.model import CaseResult, Effort, Isolation, Report, SpeedCaseResult, SubmissionInfo

WantedDevice: TypeAlias = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class HeadStart:
    """What a judge starts before it knows its job, as far as the machine is good for it: workers take seconds to come up.

    workers: of the submission, as many as there will be work for.
    tools: those of compute-sanitizer that will each watch a worker on a GPU, in any order.
    """

    workers: int = 1
    tools: tuple[Tool, ...] = ()

    @property
    def words(self) -> list[str]:
        """As the judge's program takes them."""
        return [f"workers={self.workers}", *([f"tools={','.join(self.tools)}"] if self.tools else [])]

    @classmethod
    def of(cls, words: Iterable[str]) -> HeadStart:
        """From such words; others are not looked at, and tools that there are none of are left out."""
        told = dict(word.partition("=")[::2] for word in words)
        tools = (cast("Tool", one) for one in told.get("tools", "").split(",") if one in get_args(Tool))
        return cls(int(told.get("workers", 0)), tuple(tools))


NO_MORE = HeadStart()  # than a worker


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")


class Job(Message):
    """One grading run, complete: the judge needs nothing else.

    course: folder with assignments/, reference/ and starter/.
    assignments: their names, in the order in which they are graded.
    submission: the staged copy; `info` describes it and `refused` says why a file is not in it.
    misnamed: for a file that is not there, what was found in its stead, as a sentence.
    files: where the judge cannot see that copy: its files by their paths in it, for the judge to put there.
    fingerprint: what the judge's own code and course must have, where it came with a copy of its own.
    seed: None draws a secret one.
    stop_early: leave an assignment at its first case that does not pass; the rest of its cases are skipped.
    speed: whether speed is measured.
    compilation: whether Triton's launches are compiled for GPUs where there is none.
    effort: `quick` leaves out the largest cases and compute-sanitizer, and times fewer rounds.
    contenders: `needed` are those that bands and roofline are about; `all` are the reference and vendors' kernels too.
    """

    course: Path
    assignments: tuple[str, ...]
    submission: Path
    info: SubmissionInfo
    refused: dict[str, str]
    misnamed: dict[str, str] = {}
    files: dict[str, bytes] | None = None
    fingerprint: str | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop_early: bool = False
    speed: bool = True
    compilation: bool = True
    effort: Effort = "full"
    contenders: Literal["needed", "all"] = "needed"


class PlannedPart(Message):
    assignment: str
    part: str
    file: str
    title: str
    cases: int


class Planned(Message):
    """What will be graded, on which device, and what keeps it from the machine. Nothing of the student's has run yet."""

    event: Literal["planned"] = "planned"
    device: str
    parts: tuple[PlannedPart, ...]
    isolation: Isolation


class CaseStarted(Message):
    event: Literal["case_started"] = "case_started"
    assignment: str
    part: str
    case: str


class CaseDone(Message):
    event: Literal["case_done"] = "case_done"
    assignment: str
    part: str
    result: CaseResult


class CaseNote(Message):
    """What is being done in the case that was started last."""

    event: Literal["case_note"] = "case_note"
    text: str


class SpeedDone(Message):
    event: Literal["speed_done"] = "speed_done"
    assignment: str
    part: str
    result: SpeedCaseResult


class Benchmarked(Message):
    """pytest-benchmark's own record of the speed cases, as the JSON text that `pytest-benchmark compare` reads."""

    event: Literal["benchmarked"] = "benchmarked"
    json_text: str


class Finished(Message):
    event: Literal["finished"] = "finished"
    report: Report


class Refused(Message):
    """The run cannot be done at all: `usage` is the asker's to mend, `infra` the machine's."""

    event: Literal["refused"] = "refused"
    kind: Literal["usage", "infra"]
    message: str


Event = Annotated[
    Planned | CaseStarted | CaseNote | CaseDone | SpeedDone | Benchmarked | Finished | Refused,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
MAX_EVENT_BYTES = 32 << 20
