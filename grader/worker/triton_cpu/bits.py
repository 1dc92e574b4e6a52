"""Adds and subtracts numbers of one bit in Triton's interpreter as a GPU does: 1 + 1 is 0, and 0 - 1 is 1. In NumPy a sum of
bools is their `or`, and a difference an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder


def provide() -> None:
    """Patch the interpreter's sums and differences."""
    InterpreterBuilder.create_add = _of_bits_too(InterpreterBuilder.create_add)
    InterpreterBuilder.create_sub = _of_bits_too(InterpreterBuilder.create_sub)


def _of_bits_too(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(builder: Any, left: Any, right: Any) -> Any:
        if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
            return builder.binary_op(left, right, np.logical_xor)
        return compute(builder, left, right)

    return computed
