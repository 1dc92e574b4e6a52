"""Roundings of intermediate results to 16 bits: candidates for a mistake of a kernel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

LOW_PRECISION = "a conversion to too low a precision: float32 is needed"

# The type that is rounded to, and the rounding of float64 tensors.
ROUNDINGS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("float16", lambda x: x.half().double()),
    ("bfloat16", lambda x: x.bfloat16().double()),
)
