"""Speeds up `tl.reduce` and `tl.associative_scan` with a student's function in Triton's interpreter, by calling the
function on blocks.

The interpreter calls the function in Python for each element, which takes a right kernel longer than a case's time
limit. Here the function is called on whole blocks, in the few steps that a GPU needs, with neighbours in order. A
function that branches on its arguments cannot be called on blocks; for such a function, and after any error, the
interpreter's own way remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from grader.worker.triton_cpu.patches import Patches

PATCHES = Patches()
_on_blocks = 0  # calls of student's functions with blocks that are in progress


class _NoBranch(Exception):
    """A function branches on a block."""


@PATCHES.replace(interpreter, "_patch_lang_tensor")
def _patch(patch: Callable[..., Any], tensor: Any, scope: Any) -> None:
    patch(tensor, scope)
    is_true = tensor.__bool__

    def ask(one: Any) -> bool:
        if _on_blocks and one.handle.data.size > 1:
            raise _NoBranch
        return bool(is_true(one))

    tensor.__bool__ = ask  # the scope has the methods before the patch


@PATCHES.replace(interpreter.ReduceOps, "generic_reduce")
def _reduced(reduce: Callable[..., Any], operation: Any, given: Any) -> Any:
    return _or_else(_reduce, reduce, operation, given)


@PATCHES.replace(interpreter.ScanOps, "generic_scan")
def _scanned(scan: Callable[..., Any], operation: Any, given: Any) -> Any:
    return _or_else(_scan, scan, operation, given)


def _or_else(fast: Callable[[Any, Any], Any], slow: Callable[[Any, Any], Any], operation: Any, given: Any) -> Any:
    global _on_blocks
    _on_blocks += 1
    try:
        with np.errstate(all="ignore"):  # elements may be combined in vain
            return fast(operation, given)
    except Exception:
        pass
    finally:
        _on_blocks -= 1
    return slow(operation, given)


def _reduce(operation: Any, given: Any) -> list[Any]:
    """Combine each element with its neighbour until one is left. Fails on a length that is no power of two."""
    flat, axis = operation.unravel(given, operation.axis)
    dtypes, data = [one.dtype for one in flat], [one.handle.data for one in flat]
    dimensions = given[0].handle.data.ndim
    while (length := data[0].shape[axis]) > 1:
        # For a length that is no power of two, the lengths differ at some step, and combining fails.
        even, odd = ([np.take(one, range(start, length, 2), axis=axis) for one in data] for start in (0, 1))
        data = _combined(operation, dtypes, even, odd)
    if not operation.keep_dims:
        shape = data[0].shape[:axis] + data[0].shape[axis + 1 :]
        data = [one.reshape(shape) if shape else one.item() for one in data]
    elif operation.axis is None:
        data = [one.reshape((1,) * dimensions) for one in data]
    return [operation.to_tensor(one, dtype) for one, dtype in zip(data, dtypes, strict=True)]


def _scan(operation: Any, given: Any) -> list[Any]:
    """Combine each element with the element 1 before it, then 2, 4 and so on."""
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
    """The function's results for two blocks, in the dtypes of the arguments."""
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
