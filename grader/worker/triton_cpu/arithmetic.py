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

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from grader.worker.triton_cpu.patches import Patches

WARP = 32  # A warp has this many threads.
OPERATIONS = ("ADD", "AND", "OR", "XOR", "MIN", "MAX")  # of a descriptor
CONSTANTS_OPERATORS = [
    f"__{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"),
        *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "gt", "ge", "lt", "le", "eq", "ne"),
    )
]
PATCHES = Patches()


@PATCHES.replace(InterpreterBuilder, "create_add", "create_sub")
def _of_bits_too(compute: Callable[..., Any], builder: Any, left: Any, right: Any) -> Any:
    if left.data.dtype == np.bool_ and right.data.dtype == np.bool_:
        return builder.binary_op(left, right, np.logical_xor)
    return compute(builder, left, right)


PATCHES.replace(InterpreterBuilder, "create_maxnumf")(lambda _, builder, a, b: builder.binary_op(a, b, np.fmax))
PATCHES.replace(InterpreterBuilder, "create_minnumf")(lambda _, builder, a, b: builder.binary_op(a, b, np.fmin))


@PATCHES.replace(InterpreterBuilder, "create_clampf")
def _clamped(clamp: Callable[..., Any], builder: Any, argument: Any, low: Any, high: Any, propagated: Any) -> Any:
    if propagated != ir.PROPAGATE_NAN.NONE:
        return clamp(builder, argument, low, high, propagated)
    return builder.create_minnumf(builder.create_maxnumf(argument, low), high)


@PATCHES.replace(InterpreterBuilder, "create_atomic_rmw")
def _updated(update: Callable[..., Any], builder: Any, operation: Any, pointers: Any, value: Any, *how: Any) -> Any:
    numbers = value.data
    if operation != ir.ATOMIC_OP.XCHG or numbers.dtype.kind != "f":
        return update(builder, operation, pointers, value, *how)
    bits = np.ascontiguousarray(numbers).view(f"int{8 * numbers.itemsize}")
    before = update(builder, operation, pointers, TensorHandle(bits, value.dtype), *how)
    return TensorHandle(before.data.view(numbers.dtype), value.dtype.scalar)


@PATCHES.add(InterpreterBuilder, "create_descriptor_reduce")
def _reduced_by_a_descriptor(builder: Any, kind: Any, descriptor: Any, value: Any, offsets: Any) -> None:
    pointers, mask = descriptor.materialize_pointers(offsets)
    kinds, dtype = ir.DESCRIPTOR_REDUCE_KIND, value.dtype.scalar
    name = next((one for one in OPERATIONS if kind == getattr(kinds, one)), "")
    if not name:
        raise NotImplementedError(f"a descriptor's {kind} is not supported in interpreter mode")
    if name == "ADD" and dtype.is_floating():
        name = "FADD"
    elif name in ("MIN", "MAX") and dtype.is_int_unsigned():
        name = f"U{name}"
    everywhere = TensorHandle(np.ascontiguousarray(mask), tl.int1)
    relaxed, whole = ir.MEM_SEMANTIC.RELAXED, ir.MEM_SYNC_SCOPE.GPU
    builder.create_atomic_rmw(getattr(ir.ATOMIC_OP, name), pointers, value, everywhere, relaxed, whole)


@PATCHES.replace(tl.constexpr, *CONSTANTS_OPERATORS)
def _operate(operator: Callable[..., Any], constant: Any, other: Any) -> Any:
    """A tensor where the operator has made one, and not a constant that holds it."""
    result = operator(constant, other)
    return result.value if isinstance(result.value, tl.tensor) else result


def provide() -> None:
    """Change the interpreter's builder, and the operators of `tl.constexpr`."""
    PATCHES.provide()
    # What Triton's compiler asks of tiles, the same for all of NVIDIA's GPUs.
    interpreter.interpreter_builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, WARP))
