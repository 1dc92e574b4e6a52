"""Adds atomics by a tensor descriptor (`desc.atomic_add` and others) to Triton's interpreter, as atomics by
pointers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

OPERATIONS = ("AND", "OR", "XOR", "MIN", "MAX")


def provide() -> None:
    """Patch the interpreter with these atomics."""

    def reduced(builder: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> None:
        pointers, mask = descriptor.materialize_pointers(offsets)
        operation = _operation(kind, value.dtype.scalar)
        everywhere = TensorHandle(np.ascontiguousarray(mask), tl.int1)
        relaxed, whole = ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU
        builder.create_atomic_rmw(operation, pointers, value, everywhere, relaxed, whole)

    InterpreterBuilder.create_descriptor_reduce = reduced


def _operation(kind: Any, dtype: Any) -> Any:
    kinds, operations = ir.DESCRIPTOR_REDUCE_KIND, ir.ATOMIC_OP
    if kind == kinds.ADD:
        return operations.FADD if dtype.is_floating() else operations.ADD
    for name in OPERATIONS:
        if kind == getattr(kinds, name):
            unsigned = name in ("MIN", "MAX") and dtype.is_int_unsigned()
            return getattr(operations, f"U{name}" if unsigned else name)
    raise NotImplementedError(f"a descriptor's {kind} is not supported in interpreter mode")
