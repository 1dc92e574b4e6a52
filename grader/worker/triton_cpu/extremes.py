"""Gives `max`, `min` and their like in Triton's interpreter the meaning that they have on a GPU.

In a kernel Python's `max` and `min` are `tl.maximum` and `tl.minimum`, element by element; in Python they ask whether a
block is true. And of a number and a NaN, `tl.maximum`, `tl.minimum` and `tl.clamp` give the number unless they are told
to propagate NaN.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder

ELEMENTWISE = {"max": "maximum", "min": "minimum"}  # Python's names, and those of Triton's language.


def provide() -> None:
    """Patch the interpreter, which propagates NaN always."""
    clamp = InterpreterBuilder.create_clampf

    def clamped(builder: Any, argument: Any, low: Any, high: Any, propagated: Any) -> Any:
        if propagated != ir.PROPAGATE_NAN.NONE:
            return clamp(builder, argument, low, high, propagated)
        return builder.create_minnumf(builder.create_maxnumf(argument, low), high)

    InterpreterBuilder.create_maxnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmax)
    InterpreterBuilder.create_minnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmin)
    InterpreterBuilder.create_clampf = clamped


def builtin(name: str) -> Callable[..., Any]:
    """What `max` or `min` is in a kernel."""

    def choose(*values: Any) -> Any:
        if not any(isinstance(one, tl.tensor) for one in values):
            return getattr(builtins, name)(*map(tl.core._unwrap_if_constexpr, values))
        # Looked up now: while a kernel runs, the interpreter's function stands in its place.
        return reduce(getattr(tl, ELEMENTWISE[name]), values)

    return choose
