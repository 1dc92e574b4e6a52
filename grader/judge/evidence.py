"""The evidence that a case, check or speed case gathers."""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.problem import Call
from grader.protocol import SAMPLE_CUT, LaunchedKernel, RanKernel
from grader.report.model import BandResult, GpuTime, OutputError, SpeedMeasurement


@dataclass
class Evidence:
    """Measurements of a case, check or speed case; the report shows them, however the case ends."""

    given: tuple[str, ...] = ()  # inputs of the last call (see `described`)
    errors: list[OutputError] = field(default_factory=list)
    time_s: float = 0.0
    kernels: tuple[RanKernel, ...] = ()  # run by the GPU in the last call, if that was profiled
    gpu_time: GpuTime | None = None
    launches: int | None = None  # of the submission's kernels in the last call, if they were counted
    launched: tuple[LaunchedKernel, ...] = ()  # the first of them, in the worker's words
    kept: tuple[str, ...] = ()  # outputs of the last call in memory that an earlier call had returned
    size: str = ""  # that a speed case was timed at
    bands: tuple[BandResult, ...] = ()
    measured: SpeedMeasurement | None = None
    words: str = ""  # of a passed check, or of a speed case that was not measured to the end
    pattern: str = ""  # of the wrong answer that ends a check (`contract.pattern`)


def described(call: Call, windows: int = 1) -> tuple[str, ...]:
    """A call's inputs in words, as "q of shape (2, 72, 64)", "k and v of shape (2, 200, 64)", "float32", "is_causal
    True".
    """
    alike: dict[str, list[str]] = {}
    for name, tensor in call.args.items():
        size = f"shape {tuple(tensor.shape)}" if windows == 1 else f"{windows * tensor.numel() - SAMPLE_CUT:,} elements"
        alike.setdefault(size, []).append(name)
    tensors = [
        f"{', '.join(names[:-1])}{' and ' if names[1:] else ''}{names[-1]} of {size}" for size, names in alike.items()
    ]
    dtypes = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in call.args.values())
    options = (f"{name}{'=' if call.by_name else ' '}{value}" for name, value in call.options.items())
    wanted = "" if call.wanted is None else f"gradients of {' and '.join(call.differentiated)} only"
    backwards = "" if call.backwards == 1 else f"{call.backwards} backward passes"
    return (*tensors, *dtypes, *options, *filter(None, (wanted, backwards)))


def with_input(details: tuple[str, ...], message: str, given: tuple[str, ...], case: str) -> tuple[str, ...]:
    """The details of a failed case, with its inputs added unless the details or the message name them."""
    told = "\n".join([message, *details])
    if all(one.partition(" of ")[2].removeprefix("shape ") in told if " of " in one else one in told for one in given):
        return details
    return (*details, f"the input of {case}: {', '.join(given)}")
