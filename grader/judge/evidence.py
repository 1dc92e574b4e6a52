"""What a check finds: the ways it can end, and what it measured on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.report.model import BandResult, GpuTime, OutputError, SpeedMeasurement


class CheckFailed(Exception):
    """A check that a submission did not pass: a sentence for the student, and what else was seen."""

    def __init__(self, message: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class CaseRefused(Exception):
    """A case that cannot tell right from wrong, or whose reference is wrong: a fault of the course."""


class MachineFault(Exception):
    """A failure of the machine's tools, not of the submission's: what they say, and what became of the submission."""

    def __init__(self, message: str, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


@dataclass
class Evidence:
    """What a check has measured so far; it goes into the report whatever the check's end."""

    errors: list[OutputError] = field(default_factory=list)
    time_s: float = 0.0
    gpu_time: GpuTime | None = None
    launches: int | None = None  # of the submission's kernels in its last call, where somebody counts them
    kept: tuple[str, ...] = ()  # outputs of its last call that lie in memory of what the call before it returned
    bands: tuple[BandResult, ...] = ()
    measured: SpeedMeasurement | None = None
    words: str = ""  # of a check that was passed, and of a speed case that was not measured to the end
