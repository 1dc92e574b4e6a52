"""The error budget: how far from the float64 oracle an output may be.

A fixed tolerance is too wide for float32 or too narrow for bfloat16, and ignores how hard a case is. So errors are compared with
PyTorch's own errors on the same input in the same dtype: an output may be off by k times the larger of PyTorch's error and the
reference kernel's, plus a floor for cases in which both happen to be exact.

Errors are counted twice, relative to a scale s (see `scales`):

    worst = max |got − expected| / s            finds a single wrong element
    rms   = sqrt(mean((got − expected)² / s²))  finds small errors everywhere; with a constant s = rms(expected) this is the
                                                relative Frobenius norm ‖got − expected‖ / ‖expected‖

An element counts as right if expected and got are the same infinity, or both NaN; any other non-finite element is an
infinite error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from grader.assignment import Scale

CHUNK = 2**25  # Outputs are compared in slices of this many elements.
LOOK = 2**20  # An output that is probably wrong is looked at in slices of this many elements.
TINY = 1e-30


@dataclass(frozen=True)
class Errors:
    """The errors of an output against the oracle, relative to its scale."""

    worst: float
    rms: float

    def within(self, budget: Errors) -> bool:
        return self.worst <= budget.worst and self.rms <= budget.rms

    @staticmethod
    def larger(first: Errors, second: Errors) -> Errors:
        return Errors(max(first.worst, second.worst), max(first.rms, second.rms))


def scales(expected: Mapping[str, torch.Tensor], kinds: Mapping[str, Scale], unit: float) -> dict[str, torch.Tensor]:
    """The scale of each output's errors: a tensor that broadcasts against the output.

    `element`: max(|expected|, unit). `row`: the largest |expected| along the last dimension. `all`: the root mean
    square over every output of that kind together, so that an output which is exactly zero (dq for a single key) is
    measured by its companions.

    Args:
        expected: float64 outputs of the oracle.
        kinds: the kind of each output's scale.
        unit: the smallest scale of an element.
    """
    together = [expected[name] for name, kind in kinds.items() if kind == "all" and name in expected]
    count = sum(tensor.numel() for tensor in together)
    square = sum(float(tensor.nan_to_num(0.0, 0.0, 0.0).square().sum()) for tensor in together)
    common = torch.tensor(max(math.sqrt(square / count), TINY) if count else 1.0, dtype=torch.float64)
    result = {}
    for name, tensor in expected.items():
        kind = kinds[name]
        if kind == "all":
            result[name] = common.to(tensor.device)
        elif kind == "row" and tensor.numel():
            result[name] = _largest_of_rows(tensor).clamp_(min=TINY)
        else:
            result[name] = tensor.new_tensor(unit)  # `differences` takes the larger of this and the element
    return result


def _largest_of_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The largest finite |element| of each row; (…, 1)."""
    least, most = tensor.aminmax(dim=-1, keepdim=True)
    largest = torch.maximum(most, -least)
    if not bool(largest.isfinite().all()):
        largest = tensor.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=-1, keepdim=True)
    return largest


def relative_errors(got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, kind: Scale) -> torch.Tensor:
    """|got − expected| / s for every element, in float64; infinite if one of the two is not finite and they differ."""
    error = differences(got, expected, scale, kind).abs_()
    if not math.isfinite(float(error.sum())):
        same = (got == expected) | (got.isnan() & expected.isnan())
        error = torch.where(same, 0.0, error.nan_to_num(nan=math.inf, posinf=math.inf))
    return error


def differences(got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, kind: Scale) -> torch.Tensor:
    """(got − expected) / s for every element, in the dtype of `expected`; not finite if one of the two is not."""
    size = torch.maximum(expected.abs(), scale) if kind == "element" else scale
    return torch.sub(got, expected).div_(size)


def _chunks(
    function: Callable[..., torch.Tensor],
    got: torch.Tensor,
    expected: torch.Tensor,
    scale: torch.Tensor,
    kind: Scale,
    size: int,
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Apply `function` to slices along dimension 0, so that memory stays bounded for outputs of billions of elements.

    A slice has `size` elements at most, unless a row has more.
    """
    if expected.ndim == 0:
        got, expected = got.reshape(1), expected.reshape(1)
    rows = max(1, size * expected.shape[0] // max(1, expected.numel()))
    for start in range(0, expected.shape[0], rows):
        part = slice(start, start + rows)
        yield part, function(got[part], expected[part], scale[part] if scale.ndim > 1 else scale, kind)


def measure(got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, kind: Scale) -> Errors:
    """The errors of an output of any floating dtype against the oracle."""
    if expected.numel() == 0:
        return Errors(0.0, 0.0)
    # Nearly always all elements are finite. Then the first function is enough, and the GPU need not wait for the host between slices.
    for function in (differences, relative_errors):
        extremes = [_extremes(error) for _, error in _chunks(function, got, expected, scale, kind, CHUNK)]
        rows = torch.stack(extremes).tolist()
        worst, norm = (
            max(max(abs(least), abs(most)) for least, most, _ in rows),
            math.hypot(*(one for _, _, one in rows)),
        )
        if math.isfinite(worst) and math.isfinite(norm):
            break
    return Errors(worst, norm / math.sqrt(expected.numel()))


def is_within(got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, kind: Scale, limit: Errors) -> bool:
    """Whether an output's errors are within a limit. The first slice with a larger error settles it."""
    slices = _chunks(relative_errors, got, expected, scale, kind, LOOK)
    within_worst = all(bool((error <= limit.worst).all()) for _, error in slices)
    return within_worst and measure(got, expected, scale, kind).within(limit)


def _extremes(error: torch.Tensor) -> torch.Tensor:
    """Least, most and norm, (3,) float64. A GPU sums in pairs, so float32 is enough there, and twice as fast."""
    norm = torch.linalg.vector_norm(error, dtype=None if error.is_cuda else torch.float64)
    return torch.stack([one.double() for one in (*error.aminmax(), norm)])


def beyond(got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, kind: Scale, limit: float) -> torch.Tensor:
    """Bool, same shape: the elements with a relative error above `limit`."""
    bad = torch.zeros(expected.shape, dtype=torch.bool, device=expected.device)
    for part, error in _chunks(relative_errors, got, expected, scale, kind, CHUNK):
        (bad if bad.ndim else bad.reshape(1))[part] = ~(error <= limit)
    return bad


def budget(k: float, yardstick: Errors, floor: Errors) -> Errors:
    """k times the yardstick's errors plus the floor; of a yardstick that is not finite, the floor alone."""
    return Errors(
        (k * yardstick.worst if math.isfinite(yardstick.worst) else 0.0) + floor.worst,
        (k * yardstick.rms if math.isfinite(yardstick.rms) else 0.0) + floor.rms,
    )
