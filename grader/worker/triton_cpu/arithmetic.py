"""Computes in Triton's interpreter as a GPU does.

- Numbers of one bit: 1 + 1 is 0, and 0 - 1 is 1; in NumPy a sum of bools is their `or`, and a difference an error.
- Of a number and a NaN, `tl.maximum`, `tl.minimum` and `tl.clamp` give the number unless they are told to propagate NaN.
- `C * x` with a constant C and a tensor x is a tensor, and not a constant.
- `tl.dot` refuses tiles that are too small for a GPU; the interpreter multiplies tiles of any size.
- An atomic exchange of floats is one of their bits; the interpreter knows exchanges of ints only.
- Atomics by a tensor descriptor (`desc.atomic_add` and others) are atomics by pointers; the interpreter has none. A
  Triton whose interpreter has `create_descriptor_reduce` needs no other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

WARP = 32  # A warp has this many threads.
OPERATIONS = ("AND", "OR", "XOR", "MIN", "MAX")  # of a descriptor, beside ADD
CONSTANTS_OPERATORS = [
    f"__{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"),
        *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "gt", "ge", "lt", "le", "eq", "ne"),
    )
]


def provide() -> None:
    """Patch the interpreter's builder, and the operators of `tl.constexpr`."""
    InterpreterBuilder.create_add = _of_bits_too(InterpreterBuilder.create_add)
    InterpreterBuilder.create_sub = _of_bits_too(InterpreterBuilder.create_sub)
    InterpreterBuilder.create_maxnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmax)
    InterpreterBuilder.create_minnumf = lambda builder, left, right: builder.binary_op(left, right, np.fmin)
    InterpreterBuilder.create_clampf = _clamping_to_numbers(InterpreterBuilder.create_clampf)
    InterpreterBuilder.create_atomic_rmw = _exchanging_floats(InterpreterBuilder.create_atomic_rmw)
    InterpreterBuilder.create_descriptor_reduce = _reduced_by_a_descriptor
    # What Triton's compiler asks of tiles, the same for all of NVIDIA's GPUs.
    interpreter.interpreter_builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, WARP))
    for name in CONSTANTS_OPERATORS:
        setattr(tl.constexpr, name, _tensor_where_it_is_one(getattr(tl.constexpr, name), tl.tensor))


def _of_bits_too(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(builder: Any, left: Any, right: Any) -> Any:
        if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
            return builder.binary_op(left, right, np.logical_xor)
        return compute(builder, left, right)

    return computed


def _clamping_to_numbers(clamp: Callable[..., Any]) -> Callable[..., Any]:
    def clamped(builder: Any, argument: Any, low: Any, high: Any, propagated: Any) -> Any:
        if propagated != ir.PROPAGATE_NAN.NONE:
            return clamp(builder, argument, low, high, propagated)
        return builder.create_minnumf(builder.create_maxnumf(argument, low), high)

    return clamped


def _exchanging_floats(update: Callable[..., Any]) -> Callable[..., Any]:
    def updated(builder: Any, operation: Any, pointers: Any, value: Any, *how: Any) -> Any:
        numbers = value.data
        if operation != ir.ATOMIC_OP.XCHG or numbers.dtype.kind != "f":
            return update(builder, operation, pointers, value, *how)
        bits = np.ascontiguousarray(numbers).view(f"int{8 * numbers.itemsize}")
        before = update(builder, operation, pointers, TensorHandle(bits, value.dtype), *how)
        return TensorHandle(before.data.view(numbers.dtype), value.dtype.scalar)

    return updated


def _reduced_by_a_descriptor(builder: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> None:
    pointers, mask = descriptor.materialize_pointers(offsets)
    operation = _operation(kind, value.dtype.scalar)
    everywhere = TensorHandle(np.ascontiguousarray(mask), tl.int1)
    relaxed, whole = ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU
    builder.create_atomic_rmw(operation, pointers, value, everywhere, relaxed, whole)


def _operation(kind: Any, dtype: Any) -> Any:
    kinds, operations = ir.DESCRIPTOR_REDUCE_KIND, ir.ATOMIC_OP
    if kind == kinds.ADD:
        return operations.FADD if dtype.is_floating() else operations.ADD
    for name in OPERATIONS:
        if kind == getattr(kinds, name):
            unsigned = name in ("MIN", "MAX") and dtype.is_int_unsigned()
            return getattr(operations, f"U{name}" if unsigned else name)
    raise NotImplementedError(f"a descriptor's {kind} is not supported in interpreter mode")


def _tensor_where_it_is_one(operator: Callable[..., Any], tensor: type) -> Callable[..., Any]:
    @functools.wraps(operator)
    def operate(constant: Any, other: Any) -> Any:
        result = operator(constant, other)
        return result.value if isinstance(result.value, tensor) else result

    return operate
