"""The models of a report, which refuse contradictions. `grader schema` prints their JSON Schema.

Points are counted three ways: `earned`, `possible`, and `graded`, the part of the possible points that the run decided. A skipped case
and an `infra_error` leave points ungraded; ungraded points are never counted as lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

SCHEMA_VERSION: Literal[1] = 1

# The worst first: the outcome of a part is the first of these that one of its cases has.
Outcome = Literal[
    "infra_error",
    "forbidden",
    "build_failed",
    "crashed",
    "timed_out",
    "out_of_memory",
    "failed",
    "not_implemented",
    "passed",
    "skipped",
]
SEVERITY: tuple[Outcome, ...] = get_args(Outcome)
NEEDS_GPU = "needs a CUDA GPU"  # The reason that speed is not graded on a CPU.
Effort = Literal["full", "quick"]
INTERRUPTED = "not graded: the run was interrupted"
CUT_SHORT = "the run was interrupted before everything was graded"
NOT_RUN = "not run"  # The message of a case that was skipped after a failed one begins so.
NOT_COMBINED = "not run: no case that tries less has passed"
UNDECIDED: frozenset[Outcome] = frozenset({"skipped", "infra_error"})

# JSON has no infinities: an infinite error is written as null.
Finite = Annotated[
    float,
    BeforeValidator(lambda value: float("inf") if value is None else value),
    PlainSerializer(
        lambda value: value if abs(value) != float("inf") and value == value else None, return_type=float | None
    ),
]


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # Control characters (C0, C1) but tab and newline.
# The address in an object's repr, as in `<function scale at 0x7f21a2a00000>`.
ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")


def presentable(text: str) -> str:
    """A submission's words without control characters but tab and newline, which a program that reads the report may show, and without
    the addresses of reprs.
    """
    text = ADDRESS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


Words = Annotated[str, AfterValidator(presentable)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Points(Model):
    """Points of a group, a part or the whole."""

    earned: float = Field(ge=0, allow_inf_nan=False)
    graded: float = Field(ge=0, allow_inf_nan=False, description="how many of the possible points this run decided")
    possible: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Points:
        if not self.earned <= self.graded + 1e-9 <= self.possible + 2e-9:
            raise ValueError(
                f"points out of order: {self.earned} earned of {self.graded} graded of {self.possible} possible"
            )
        return self

    @property
    def is_open(self) -> bool:
        """Whether some points were not graded."""
        return self.graded < self.possible - 1e-9

    @staticmethod
    def total(points: Iterable[Points]) -> Points:
        every = list(points)
        return Points(
            earned=sum(one.earned for one in every),
            graded=sum(one.graded for one in every),
            possible=sum(one.possible for one in every),
        )


class OutputError(Model):
    """One output's error against its budget, both relative to the output's scale (see problem.toml)."""

    output: str
    worst: Finite = Field(description="largest error of an element")
    worst_budget: float
    rms: Finite = Field(description="root mean square of the errors")
    rms_budget: float
    pytorch_worst: Finite
    pytorch_rms: Finite
    reference_worst: Finite | None = Field(
        default=None, description="only measured where PyTorch's error alone was not budget enough"
    )
    reference_rms: Finite | None = None


class KernelTime(Model):
    """A kernel that ran on the GPU, and its share of the time of all kernels."""

    name: Words = Field(max_length=200)
    own: bool = Field(description="whether the submission defines it")
    calls: int = Field(ge=0)
    share: float = Field(ge=0, le=1)


class GpuTime(Model):
    """The GPU time of a call by kernels, from the profiler in the worker."""

    own_share: float = Field(ge=0, le=1, description="of the submission's own kernels")
    library_share: float = Field(ge=0, le=1, description="of kernels of PyTorch and NVIDIA's libraries")
    kernels: tuple[KernelTime, ...] = Field(description="the longest ones")


MAP_ROWS, MAP_COLUMNS = 64, 160  # cells of a map at most
# The marks of a map's cells, the worst last; a cell has the worst mark of its elements.
NO_ELEMENT, FINE, LEVELS, IS_NAN, UNWRITTEN, OUTSIDE = " ", ".", "123456789", "n", "u", "o"
MARKS = "".join((NO_ELEMENT, FINE, LEVELS, IS_NAN, UNWRITTEN, OUTSIDE))

Cells = Annotated[str, Field(max_length=MAP_COLUMNS, pattern=f"^[{MARKS}]*$")]


class ErrorMap(Model):
    """A map of a wrong output: a picture of its worst matrix, the last two dimensions, in cells of several elements.

    The marks of a cell: "." all elements are within budget; a digit, the worst error over its budget on a log scale: "1" up to 10 budgets,
    "2" up to 100, ..., "9" beyond 10⁸ budgets or infinite; "n" NaN where a number is right; "u" never written; "o" written outside of the
    tensor; " " no element there, as behind the end of a folded vector.

    A vector is folded: row r has its elements from r · `columns` on, and the last row may be shorter.

    A map takes up to 11 KB. One for each of hundreds of failed cases would make the report too large to mail, and cases that fail alike
    look alike: of each part, only the first case of each of its first few causes has a map (`grader/verdict/causes.py`).
    """

    output: str
    leading: tuple[int, ...] = Field(
        default=(), max_length=16, description="sizes of the dimensions before the matrix's two"
    )
    at: tuple[int, ...] = Field(default=(), max_length=16, description="the matrix's indices in them")
    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    first: int = Field(
        default=0,
        ge=0,
        description="rows of the output before the map's first row, which are right; of a vector, elements",
    )
    folded: bool = Field(default=False, description="the output is a vector")
    cell_rows: int = Field(ge=1, description="rows that a cell stands for")
    cell_columns: int = Field(ge=1)
    cells: tuple[Cells, ...] = Field(min_length=1, max_length=MAP_ROWS)
    before: Cells = Field(
        default="", description="memory before the output, a row of it; empty if nothing was written there"
    )
    after: Cells = Field(default="", description="memory after the output's last row, a row of it")
    matrices: Cells = Field(default="", description="the worst mark of each matrix; empty if there is but one")
    cell_matrices: int = Field(default=1, ge=1, description="matrices that one mark of `matrices` stands for")

    @model_validator(mode="after")
    def _fits(self) -> ErrorMap:
        wide, high = -(-self.columns // self.cell_columns), -(-self.rows // self.cell_rows)
        if len(self.cells) != high or any(len(row) != wide for row in self.cells):
            raise ValueError(f"the map of {self.output!r} does not have {high} × {wide} cells")
        if any(row and len(row) != wide for row in (self.before, self.after)):
            raise ValueError(f"the memory around {self.output!r} does not have {wide} cells")
        if len(self.at) != len(self.leading) or any(
            not 0 <= one < size for one, size in zip(self.at, self.leading, strict=True)
        ):
            raise ValueError(f"there is no matrix {self.at} of {self.output!r} in {self.leading}")
        return self


def title(name: str, tries: str) -> str:
    """The name of a case as the student reads it; for a check (a test function) the line that says what it tries."""
    return tries if name.startswith("test_") and tries else name


_FAULTS_OF_FILES: Mapping[Outcome, str] = {
    "build_failed": "does not build",
    "crashed": "crashes while it is loaded",
    "forbidden": "is forbidden",
    "out_of_memory": "takes too much memory to load",
    "timed_out": "takes too long to load",
}


class Result(Model):
    """How a case or a speed case ended, and the words for it."""

    name: str
    outcome: Outcome
    message: Words = Field(default="", description="what is wrong, in a student's words, or why it was skipped")
    diagnosis: tuple[Words, ...] = ()
    traceback: Words = Field(default="", description="the student's own frames")
    time_s: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if self.outcome != "passed" and not self.message:
            raise ValueError(f"{self.name!r} is {self.outcome} without a message")
        return self


class CaseResult(Result):
    """The result of a case or check."""

    tries: str
    of_file: bool = Field(default=False, description="a fault of the file, and of no case: nothing was called")
    errors: tuple[OutputError, ...] = ()
    map: ErrorMap | None = Field(default=None, description="of the output that the message is about")
    follows: str = Field(default="", description="the case that fails for the same fault alone, and costs the points")
    gpu_time: GpuTime | None = Field(default=None, description="of a case that problem.toml has profiled on a GPU")

    @property
    def title(self) -> str:
        return title(self.name, self.tries)

    @property
    def fault_of_file(self) -> str:
        """What holds for the file, as "does not build"; "" if the result is a case's own."""
        return _FAULTS_OF_FILES.get(self.outcome, "cannot be loaded") if self.of_file else ""


class GroupResult(Model):
    """Cases and checks of one idea; the points are earned if none that ran went wrong."""

    name: str
    title: str
    points: Points
    provisional: bool = Field(default=False, description="some of its cases could not run here")
    cases: tuple[CaseResult, ...]

    @property
    def note(self) -> str:
        """Why its points are not final, not graded or not lost, where its cases' marks do not show that; "" otherwise."""
        follow = [case.follows for case in self.cases if case.follows]
        if follow and self.points.earned:
            return f"{len(follow)} cost nothing more: what they combine fails alone, as {follow[0]}"
        if self.provisional:
            left_out = [case.message for case in self.cases if case.outcome == "skipped"]
            return f"some cases {'need a GPU' if all('needs a GPU' in one for one in left_out) else 'were skipped'}"
        unseen = self.points.is_open and all(case.outcome == "passed" for case in self.cases)
        return "not graded: its values show on a GPU only, and other cases went wrong" if unseen else ""


class Interval(Model):
    """A median and its 95% confidence interval."""

    median: float
    low: float
    high: float


class EntrantTime(Model):
    """The times of one entrant."""

    name: str
    time_s: Interval = Field(description="of one call")
    calls: int = Field(ge=1, description="in a batch, each on inputs of its own")
    bytes_per_s: float = Field(
        ge=0, description="of the bytes that must be read and written at the least; a yardstick's are its own"
    )
    flops_per_s: float = Field(ge=0, description="a yardstick's are its own: none of a copy, those of its product")
    roofline_share: float = Field(ge=0, description="of what this machine does at most, measured in the same rounds")
    speedup: Interval | None = Field(default=None, description="its time over the submission's, paired by round")


class BandResult(Model):
    """Points for being at least `speedup` times as fast as a baseline."""

    vs: str
    speedup: float
    points: float
    reached: bool
    undecided: bool = Field(
        default=False, description="the interval lies across the edge: paid, for the doubt is the grader's"
    )


class Round(Model):
    """One round: a batch of every entrant, in `order`, with the state of the GPU before it."""

    order: tuple[str, ...]
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    times_s: dict[str, float] = Field(description="of a call of each entrant, as its worker claims")
    batch_s: float = Field(description="of the submission's batch, by the judge's clock")
    nothing_s: float = Field(description="of a batch of as many calls that do nothing, by the judge's clock")
    repeats: int | None = Field(
        default=None,
        ge=0,
        description="batches that were run again, as the GPU was busy after them; null: not recorded",
    )


class Alone(Model):
    """Times measured after the end of the submission's process, which bound those of the rounds."""

    times_s: dict[str, float] = Field(default={}, description="of a call of each baseline")
    nothing_s: float | None = Field(default=None, description="of a batch of calls that do nothing; null: no bound")


class SpeedMeasurement(Model):
    """The measurements of one speed case."""

    roofline: str = Field(description="the entrant that shows what this machine does at most")
    entrants: tuple[EntrantTime, ...]
    claimed_s: Interval = Field(description="of the submission, by its worker's clock")
    judged_s: Interval = Field(description="of the submission, by the judge's clock")
    corroborated: bool = Field(description="whether the claim stands; where not, the judge's time counts")
    flags: tuple[str, ...] = ()
    rounds: tuple[Round, ...]
    alone: Alone = Alone()


class SpeedCaseResult(Result):
    """The result of a speed case. `passed` means that the submission was timed; points depend on the bands."""

    size: str
    points: Points
    bands: tuple[BandResult, ...]
    measured: SpeedMeasurement | None = None

    @model_validator(mode="after")
    def _timed(self) -> SpeedCaseResult:
        if self.outcome == "passed" and self.measured is None and not self.message:
            raise ValueError(f"speed case {self.name!r} passed without a measurement")
        return self


class SpeedResult(Model):
    """A part's speed points and speed cases."""

    points: Points
    cases: tuple[SpeedCaseResult, ...] = ()


class PartResult(Model):
    name: str
    title: str
    outcome: Outcome
    points: Points
    pattern: str = Field(default="", description="which levels of the contract decide whether a case fails")
    speed: SpeedResult
    groups: tuple[GroupResult, ...]

    @property
    def cases(self) -> Iterator[CaseResult]:
        return (case for group in self.groups for case in group.cases)


class WorkerLog(Model):
    """The student's output, cut to a bounded size; each line with its case, as `[n-1025] m = 3`."""

    text: Words = Field(max_length=200_000)
    others: tuple[Words, ...] = Field(
        default=(), description="output of libraries and of Python, each line once and with its count"
    )
    total_bytes: int = Field(ge=0)


NOT_COMPILED = "does not compile: "  # `KernelResources.problem` of a kernel that does not compile begins so.


class KernelResources(Model):
    """A kernel's resources on a multiprocessor, from its compiler."""

    name: Words = Field(max_length=200)
    part: str = ""
    case: str = Field(default="", description="the case of the launch; empty for CUDA C++")
    arch: str = Field(description="the compiled architecture, as sm_90", max_length=20)
    registers: int | None = Field(
        ge=0, description="of a thread; null if unknown, as of a kernel that does not compile"
    )
    spill_store_bytes: int = Field(default=0, ge=0, description="of a thread, for want of registers")
    spill_load_bytes: int = Field(default=0, ge=0)
    stack_bytes: int = Field(default=0, ge=0, description="of a thread in local memory, spills included")
    shared_bytes: int = Field(default=0, ge=0, description="of a block; in CUDA C++ without what a launch adds")
    problem: Words = Field(default="", max_length=4000, description="why this architecture cannot launch the kernel")


MAX_SOURCES, MAX_SOURCE_LINES, MAX_SOURCE_WIDTH = 20, 40, 200  # excerpts of an assignment, their lines and characters


class SourceLines(Model):
    """An excerpt of a student's file, around lines that results name."""

    file: str
    first: int = Field(ge=1, description="the number of the first line")
    lines: tuple[Annotated[Words, Field(max_length=MAX_SOURCE_WIDTH)], ...] = Field(
        min_length=1, max_length=MAX_SOURCE_LINES, description="each cut to that many characters"
    )
    blamed: tuple[int, ...] = Field(
        max_length=MAX_SOURCE_LINES, description="the numbers of the lines that results name"
    )


class AssignmentResult(Model):
    name: str
    title: str
    file: str
    parts: tuple[PartResult, ...]
    kernels: tuple[KernelResources, ...] = Field(
        default=(), description="of a CUDA file, and of Triton kernels that were compiled without a GPU"
    )
    hints: tuple[Words, ...] = Field(default=(), description="what could be better in a right kernel; costs no points")
    sources: tuple[SourceLines, ...] = Field(
        default=(), max_length=MAX_SOURCES, description="the student's source around lines that results name"
    )
    log: WorkerLog

    def title_of(self, part: PartResult) -> str:
        return f"{self.title}, {part.title}" if len(self.parts) > 1 else self.title


class SubmissionInfo(Model):
    """The graded folder. `sha256` covers the names and contents of the staged files."""

    path: str
    sha256: str
    files: tuple[str, ...]
    notes: tuple[Words, ...] = Field(default=(), description="files that were ignored, with the reasons")


class Environment(Model):
    """The machine and the versions of a grading."""

    grader: str
    python: str
    torch: str
    triton: str | None
    device: Literal["cpu", "cuda"]
    gpu: str | None = None
    gpu_memory_gib: float | None = None
    driver: str | None = None
    cuda: str | None = None
    nvcc: str | None = None
    cpu: str = ""
    platform: str = ""


class ContainerLimits(Model):
    """The limits of a container, for the judge and all its workers. A case's own limits are in problem.toml."""

    memory_gib: float = Field(gt=0, description="files in it included")
    cpus: float = Field(gt=0)
    pids: int = Field(gt=0)


class Isolation(Model):
    """The walls between the submission and the rest of the machine."""

    sandbox: Literal["host", "docker"] = "host"
    jail: Literal["bubblewrap", "uid", "none"] = Field(
        description="of the submission's processes: namespaces of their own, another user, or nothing"
    )
    image: str | None = Field(default=None, description="digest of the container's image")
    limits: ContainerLimits | None = None
    note: str = Field(default="", description="what a submission without isolation could reach")

    @property
    def isolated(self) -> bool:
        """Whether the machine's files, processes and network are out of the submission's reach; `grader doctor` tries that as "escape".

        The jail `uid` is no isolation on a host: another user reads public files, sees every process and has the network. In a container
        there are only the container's files, processes and network, and another user is kept from the judge's.
        """
        return self.jail == "bubblewrap" or (self.sandbox == "docker" and self.jail == "uid")

    @property
    def words(self) -> str:
        jail = {"bubblewrap": "bubblewrap", "uid": "another user", "none": "unisolated"}[self.jail]
        return f"docker, {jail}" if self.sandbox == "docker" else jail


class Report(Model):
    """One run of the grader over one submission."""

    schema_version: Literal[1] = SCHEMA_VERSION
    started: datetime
    duration_s: float = Field(ge=0)
    seed: int = Field(ge=0, description="replays the run: grader run --seed")
    effort: Effort = Field(
        default="full",
        description="a quick run leaves out the largest cases and compute-sanitizer, and times fewer rounds",
    )
    isolation: Isolation = Isolation(jail="none")
    environment: Environment
    fingerprint: str = Field(
        default="", description="SHA-256 of the grader's code and the course; empty where it was not recorded"
    )
    submission: SubmissionInfo
    score: Points = Field(description="correctness and speed together")
    correctness: Points
    speed: Points
    assignments: tuple[AssignmentResult, ...]
    incomplete: bool = Field(
        default=False, description="the run was interrupted; points of cases not graded by then are open"
    )
    infra_errors: tuple[Words, ...] = Field(
        default=(), description="faults of the grader or the machine; cases that they touched are not graded"
    )

    @property
    def parts(self) -> Iterator[tuple[AssignmentResult, PartResult]]:
        """Every part, with its assignment."""
        return ((one, part) for one in self.assignments for part in one.parts)

    @property
    def left_out(self) -> Iterator[str]:
        """What the score says nothing about, in sentences: points that are not graded, and a quick run's limits."""
        if self.correctness.is_open:
            open_points = self.correctness.possible - self.correctness.graded
            yield f"{open_points:g} points of correctness could not be graded here; they are not lost"
        if self.speed.is_open:
            cases = [case for _, part in self.parts for case in part.speed.cases]
            reasons = "; ".join(sorted({case.message for case in cases if case.points.is_open}))
            why = reasons if cases else "speed was not asked for"
            yield f"{self.speed.possible - self.speed.graded:g} points of speed are not graded ({why}); they are not lost"
        if self.effort == "quick":
            yield "a quick look: a full run tries more and larger cases, and times more rounds"

    @model_validator(mode="after")
    def _adds_up(self) -> Report:
        total = Points.total([self.correctness, self.speed])
        for name in Points.model_fields:
            if abs(getattr(total, name) - getattr(self.score, name)) > 1e-6:
                raise ValueError(
                    f"the score's {name} points are not the sum of correctness and speed: {self.score}, {total}"
                )
        return self


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of a part with cases of these outcomes."""
    return min(outcomes, key=SEVERITY.index, default="skipped")
