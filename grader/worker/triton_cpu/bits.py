"""Computes with bits in Triton's interpreter as a GPU does. Numbers of one bit: 1 + 1 is 0, and 0 - 1 is 1; in NumPy a sum of
bools is their `or`, and a difference an error. An atomic exchange of floats is one of their bits; the interpreter knows
exchanges of ints only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def provide() -> None:
    """Patch the interpreter's sums, differences and atomic exchanges."""
    InterpreterBuilder.create_add = _of_bits_too(InterpreterBuilder.create_add)
    InterpreterBuilder.create_sub = _of_bits_too(InterpreterBuilder.create_sub)
    InterpreterBuilder.create_atomic_rmw = _exchanging_floats(InterpreterBuilder.create_atomic_rmw)


def _of_bits_too(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(builder: Any, left: Any, right: Any) -> Any:
        if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
            return builder.binary_op(left, right, np.logical_xor)
        return compute(builder, left, right)

    return computed


def _exchanging_floats(update: Callable[..., Any]) -> Callable[..., Any]:
    def updated(builder: Any, operation: Any, pointers: Any, value: Any, *how: Any) -> Any:
        numbers = value.data
        if operation != ir.ATOMIC_OP.XCHG or numbers.dtype.kind != "f":
            return update(builder, operation, pointers, value, *how)
        bits = np.ascontiguousarray(numbers).view(f"int{8 * numbers.itemsize}")
        before = update(builder, operation, pointers, TensorHandle(bits, value.dtype), *how)
        return TensorHandle(before.data.view(numbers.dtype), value.dtype.scalar)

    return updated
