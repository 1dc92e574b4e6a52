"""`tl.reduce` and `tl.associative_scan` with a function of the student's own, under Triton's interpreter: for many elements at once.

The interpreter calls the function in Python for each element, which takes right kernels more time than a case has. Here it is called
on whole blocks, in the few steps that a GPU needs, with neighbours in their order. A function that branches on its arguments cannot be
called so; for that, and for whatever else goes wrong with blocks, there still is the interpreter's own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_on_blocks = 0  # calls of a combine function with blocks for numbers that are going on


class _NoBranch(Exception):
    """A function wants to know whether a block is true."""


def provide() -> None:
    """Have the interpreter call a function on blocks where it can."""
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        tensor.__bool__ = _only_of_numbers(tensor.__bool__)  # the scope has what stood there before

    interpreter._patch_lang_tensor = patched
    reduce, scan = interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan
    interpreter.ReduceOps.generic_reduce = lambda self, given: _or_else(_reduce, reduce, self, given)
    interpreter.ScanOps.generic_scan = lambda self, given: _or_else(_scan, scan, self, given)


def _only_of_numbers(is_true: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def ask(tensor: Any) -> bool:
        if _on_blocks and tensor.handle.data.size > 1:
            raise _NoBranch
        return is_true(tensor)

    return ask


def _or_else(fast: Callable[[Any, Any], Any], slow: Callable[[Any, Any], Any], operation: Any, given: Any) -> Any:
    global _on_blocks
    _on_blocks += 1
    try:
        with np.errstate(all="ignore"):  # of elements that are combined in vain
            return fast(operation, given)
    except Exception:
        pass
    finally:
        _on_blocks -= 1
    return slow(operation, given)


def _reduce(operation: Any, given: Any) -> list[Any]:
    """Each element with its neighbour, until there is one left."""
    flat, axis = operation.unravel(given, operation.axis)
    dtypes, data = [one.dtype for one in flat], [one.handle.data for one in flat]
    dimensions = given[0].handle.data.ndim
    while (length := data[0].shape[axis]) > 1:
        even, odd = (
            [np.take(one, range(start, length, 2), axis=axis) for one in data] for start in (0, 1)
        )  # of lengths that differ, and then cannot be combined, where the length is no power of two
        data = _combined(operation, dtypes, even, odd)
    if not operation.keep_dims:
        shape = data[0].shape[:axis] + data[0].shape[axis + 1 :]
        data = [one.reshape(shape) if shape else one.item() for one in data]
    elif operation.axis is None:
        data = [one.reshape((1,) * dimensions) for one in data]
    return [operation.to_tensor(one, dtype) for one, dtype in zip(data, dtypes, strict=True)]


def _scan(operation: Any, given: Any) -> list[Any]:
    """Each element with what the one so many before it has: 1, 2, 4 and so on."""
    dtypes, data = [one.dtype for one in given], [one.handle.data for one in given]
    length, axis = data[0].shape[operation.axis], operation.axis
    places = np.arange(length).reshape(
        [length if number == axis % data[0].ndim else 1 for number in range(data[0].ndim)]
    )
    before = 1
    while before < length:
        new = _combined(operation, dtypes, [np.roll(one, before, axis=axis) for one in data], data)
        data = [np.where(places >= before, changed, one) for changed, one in zip(new, data, strict=True)]
        before *= 2
    return [operation.to_tensor(one, dtype) for one, dtype in zip(data, dtypes, strict=True)]


def _combined(operation: Any, dtypes: Sequence[Any], left: list[Any], right: list[Any]) -> list[Any]:
    """What the function makes of two blocks, in the dtypes that went in."""
    blocks = [
        operation.to_tensor(one, dtype) for side in (left, right) for one, dtype in zip(side, dtypes, strict=True)
    ]
    found = operation.combine_fn.fn(*blocks)
    parts = found if isinstance(found, tuple) else (found,)
    values = [one.handle.data if isinstance(one, tl.tensor) else tl.core._unwrap_if_constexpr(one) for one in parts]
    return [
        np.broadcast_to(np.asarray(value), one.shape).astype(one.dtype)
        for value, one in zip(values, left, strict=False)
    ]
