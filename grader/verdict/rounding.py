"""Roundings of intermediate results to 16 bits: candidates for a mistake of a kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LOW_PRECISION = "a conversion to too low a precision: float32 is needed"
SIGN_EXPONENT_AND_7_BITS = -(1 << 16)  # a mask: the bits of float32 that bfloat16 keeps


def cut_to_bfloat16(x: Tensor) -> Tensor:
    """Round towards 0, as Triton's interpreter does. x: any float dtype; returns float64 of the same shape."""
    return (x.float().view(torch.int32) & SIGN_EXPONENT_AND_7_BITS).view(torch.float32).double()


# The type that is rounded to, and the rounding of float64 tensors.
ROUNDINGS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("float16", lambda x: x.half().double()),
    ("bfloat16", lambda x: x.bfloat16().double()),
    ("bfloat16, as Triton's interpreter does, towards 0", cut_to_bfloat16),
)
