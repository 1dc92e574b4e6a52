"""The messages between the command line and the judge: a request goes in, events come out. A sandbox carries both."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from grader.profile.model import CaseProfile
from grader.report.model import CaseResult, Effort, Isolation, Report, SpeedCaseResult, SubmissionInfo

SandboxName: TypeAlias = Literal["host", "docker"]
WantedDevice: TypeAlias = Literal["auto", "cpu", "cuda"]
Profiling: TypeAlias = Literal["no", "trace", "count"]
DEFAULT_IMAGE = "gpu-lab-grader"


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")


class Place(Message):
    """The requested place of a grading.

    Attributes:
        sandbox: `auto` is `docker` if a daemon and the image are here, else `host`; see `grader.grading.choose`.
        device: `auto` is the GPU if there is one.
        require_isolation: refuse to run a submission that could reach the machine (see `Isolation.isolated`).
        image: the name of the grading image.
        gpu: UUID of the GPU to grade on; None takes the first.
        memory_gib, cpus: limits of a container; None is most of the machine.
    """

    sandbox: Literal["auto"] | SandboxName = "host"
    device: WantedDevice = "auto"
    require_isolation: bool = False
    image: str = DEFAULT_IMAGE
    gpu: str | None = None
    memory_gib: float | None = None
    cpus: float | None = None


class Staged(Message):
    """The copy of a submission's files that is graded.

    Attributes:
        folder: of the copy.
        info: description of the submission for the report.
        refused: why a file was not staged, by the file's path.
        misnamed: by the name of a missing file, a sentence about the file that was found in its place.
        files: contents of the copy by path, for a judge that cannot read the folder; else None.
        fingerprint: of the grader and course, for a judge that has its own copy of both; else None.
    """

    folder: Path
    info: SubmissionInfo
    refused: dict[str, str] = {}
    misnamed: dict[str, str] = {}
    files: dict[str, bytes] | None = None
    fingerprint: str | None = None


class Request(Message):
    """A grading, from the command line to the judge, which needs nothing else.

    Attributes:
        submission: the student's folder.
        course: folder with assignments/, reference/ and starter/.
        assignments: names, in the order of grading; empty for all.
        seed: replays a run; None draws a secret seed.
        stop_early: skip the rest of an assignment after its first case that does not pass.
        speed: whether speed is measured, if the device allows that.
        compilation: whether Triton's launches are compiled for GPUs on a machine without one.
        effort: `quick` leaves out the largest cases and compute-sanitizer, and times fewer rounds.
        entrants: `needed` are the baselines and yardsticks of bands and roofline; `all` adds the reference and the
            functions of baselines.py that problem.toml names.
        profile: profile the speed cases in place of grading; the report then has no assignments. `count` has Nsight Compute
            count, too.
        profiled: names of the speed cases to profile, as `wide` or `forward/wide`; empty for all.
        staged: what `grade` adds before a judge reads the request.
    """

    submission: Path
    course: Path
    assignments: tuple[str, ...] = ()
    place: Place = Place()
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop_early: bool = False
    speed: bool = True
    compilation: bool = True
    effort: Effort = "full"
    entrants: Literal["needed", "all"] = "needed"
    profile: Profiling = "no"
    profiled: tuple[str, ...] = ()
    staged: Staged | None = None

    @property
    def copied(self) -> Staged:
        """What is graded, in a request that `grade` has sent."""
        assert self.staged is not None
        return self.staged


class OfPart(Message):
    assignment: str
    part: str


class PlannedPart(OfPart):
    file: str
    title: str
    cases: int


class Planned(Message):
    """The plan of the grading: its parts, device and isolation. Sent before any code of the student's runs."""

    event: Literal["planned"] = "planned"
    device: str
    parts: tuple[PlannedPart, ...]
    isolation: Isolation


class CaseStarted(OfPart):
    event: Literal["case_started"] = "case_started"
    case: str


class CaseDone(OfPart):
    """A case has ended.

    Attributes:
        pattern: as `PartResult.pattern`, of a wrong answer that ends a check.
    """

    event: Literal["case_done"] = "case_done"
    result: CaseResult
    pattern: str = ""


class CaseNote(Message):
    """A note on the progress of the case that was started last."""

    event: Literal["case_note"] = "case_note"
    text: str


class SpeedDone(OfPart):
    event: Literal["speed_done"] = "speed_done"
    result: SpeedCaseResult


class Profiled(Message):
    """The profile of a speed case.

    Attributes:
        texts: what compilers made of its kernels, by file name, as `scale_kernel.ptx`.
    """

    event: Literal["profiled"] = "profiled"
    profile: CaseProfile
    texts: dict[str, str] = {}


class Benchmarked(Message):
    """pytest-benchmark's record of the speed cases, as the JSON text that `pytest-benchmark compare` reads."""

    event: Literal["benchmarked"] = "benchmarked"
    json_text: str


class Finished(Message):
    event: Literal["finished"] = "finished"
    report: Report


class Refused(Message):
    """The judge refuses the request: `usage` is a fault of the request, `infra` of the machine."""

    event: Literal["refused"] = "refused"
    kind: Literal["usage", "infra"]
    message: str


Event = Annotated[
    Planned | CaseStarted | CaseNote | CaseDone | SpeedDone | Profiled | Benchmarked | Finished | Refused,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
MAX_EVENT_BYTES = 32 << 20
