"""What a check finds: the ways it can end, and what it measured on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from grader.contender.arena import Stray
from grader.problem import Call
from grader.protocol import SAMPLE_CUT, RanKernel
from grader.report.model import BandResult, ErrorMap, GpuTime, OutputError, SpeedMeasurement


class _Told(Exception):
    def __init__(self, message: str, details: tuple[str, ...] = (), error_map: ErrorMap | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.map = error_map


class CheckFailed(_Told):
    """A check that a submission did not pass: a sentence for the student, what else was seen, and a map of a wrong output."""


class WroteOutside(CheckFailed):
    """A write beside a tensor of a call. got: the call's outputs."""

    def __init__(self, message: str, stray: Stray, got: Mapping[str, Tensor]) -> None:
        super().__init__(message)
        self.stray = stray
        self.got = got


class CaseRefused(_Told):
    """A case that says nothing about the submission: a fault of the course, as a wrong reference, or of the machine's tools."""


@dataclass
class Evidence:
    """What a check has measured so far; it goes into the report whatever the check's end."""

    given: tuple[str, ...] = ()  # to its last call (see `described`)
    errors: list[OutputError] = field(default_factory=list)
    time_s: float = 0.0
    kernels: tuple[RanKernel, ...] = ()  # that the GPU ran in the last call, where that was profiled
    gpu_time: GpuTime | None = None
    launches: int | None = None  # of the submission's kernels in its last call, where somebody counts them
    kept: tuple[str, ...] = ()  # outputs of its last call that lie in memory of what the call before it returned
    bands: tuple[BandResult, ...] = ()
    measured: SpeedMeasurement | None = None
    words: str = ""  # of a check that was passed, and of a speed case that was not measured to the end


def described(call: Call, windows: int = 1) -> tuple[str, ...]:
    """What a call is given, as "q of shape (2, 72, 64)", "k and v of shape (2, 200, 64)", "float32", "is_causal True".

    Args:
        windows: how many times the tensors repeat their memory (`cpu_windows` of problem.toml).
    """
    alike: dict[str, list[str]] = {}
    for name, tensor in call.args.items():
        size = f"shape {tuple(tensor.shape)}" if windows == 1 else f"{windows * tensor.numel() - SAMPLE_CUT:,} elements"
        alike.setdefault(size, []).append(name)
    tensors = [
        f"{', '.join(names[:-1])}{' and ' if names[1:] else ''}{names[-1]} of {size}" for size, names in alike.items()
    ]
    dtypes = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in call.args.values())
    return (*tensors, *dtypes, *(f"{name} {value}" for name, value in call.options.items()))


def with_input(details: tuple[str, ...], message: str, given: tuple[str, ...], case: str) -> tuple[str, ...]:
    """The details of a case that went wrong and, unless they or the message have it already, what its call was given."""
    told = "\n".join([message, *details])
    if all(one.partition(" of ")[2].removeprefix("shape ") in told if " of " in one else one in told for one in given):
        return details
    return (*details, f"the input of {case}: {', '.join(given)}")
