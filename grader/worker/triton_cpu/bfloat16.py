"""bfloat16 in Triton's interpreter, which otherwise takes the bits for integers and computes nonsense.

A block of bfloat16 is kept as float32 numbers. Each result is rounded to the nearest even when its handle is made, as a
GPU rounds. Only loads, stores, atomics and bitcasts use 16 bits. (Issue 11584 of triton-lang/triton asks for this; pull
request 11585, for `tl.dot` alone, was not taken.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from grader.worker.triton_cpu.patches import Patches

FLOAT32 = np.dtype(np.float32)
BITS = np.dtype(np.uint16)
Floats = NDArray[np.float32]  # whose last 16 bits are 0: numbers of bfloat16
PATCHES = Patches()
_numpy_dtypes: dict[str, Any] = {"bf16": FLOAT32}


def _is_one(dtype: Any) -> bool:
    return getattr(dtype.scalar, "name", "") == "bf16"


@PATCHES.replace(interpreter, "_get_np_dtype")
def _numpy_dtype(find: Callable[..., Any], dtype: Any) -> Any:
    name = dtype.scalar.name
    if name not in _numpy_dtypes:
        _numpy_dtypes[name] = find(dtype)  # which makes a table of all types each time
    return _numpy_dtypes[name]


@PATCHES.replace(interpreter, "_validate_np_data_size")
def _fits(fits: Callable[..., Any], data: Any, dtype: Any) -> bool:
    return data.dtype.itemsize <= FLOAT32.itemsize if _is_one(dtype) else bool(fits(data, dtype))


@PATCHES.replace(TensorHandle, "__post_init__")
def _completed(complete: Callable[..., Any], handle: Any) -> None:
    if _is_one(handle.dtype) and handle.data.dtype.kind == "f":  # comparisons give bools
        handle.data = rounded(handle.data)
    complete(handle)


@PATCHES.add(InterpreterBuilder, "get_bf16")
def _constant(_builder: Any, value: float) -> Any:
    return TensorHandle(np.array([value], dtype=np.float32), tl.bfloat16)


@PATCHES.replace(InterpreterBuilder, "cast_impl")
def _cast(cast: Callable[..., Any], builder: Any, source: Any, target: Any) -> Any:
    if _is_one(source.dtype) or _is_one(target):
        return TensorHandle(source.data.astype(interpreter._get_np_dtype(target.scalar)), target.scalar)
    return cast(builder, source, target)


@PATCHES.replace(InterpreterBuilder, "create_fp_to_fp")
def _converted(convert: Callable[..., Any], builder: Any, source: Any, target: Any, rounding: Any) -> Any:
    if _is_one(target):
        if source.dtype.scalar.is_fp8():
            source = convert(builder, source, tl.float32, ir.ROUNDING_MODE.RTNE)
        numbers = source.data.astype(np.float32)
        return TensorHandle(cut(numbers) if rounding == ir.ROUNDING_MODE.RTZ else numbers, target.scalar)
    if _is_one(source.dtype):
        source = TensorHandle(source.data, tl.float32)
    return convert(builder, source, target, rounding)


@PATCHES.replace(InterpreterBuilder, "create_bitcast", "create_int_to_ptr", "create_ptr_to_int")
def _of_the_same_bits(bitcast: Callable[..., Any], builder: Any, source: Any, target: Any) -> Any:
    if _is_one(source.dtype) and not _is_one(target):
        source = TensorHandle(to_bits(source.data), tl.uint16)
    if _is_one(target) and not _is_one(source.dtype):
        return TensorHandle(from_bits(source.data), target.scalar)
    return bitcast(builder, source, target)


@PATCHES.replace(InterpreterBuilder, "create_fabs")
def _magnitude(absolute: Callable[..., Any], builder: Any, argument: Any) -> Any:
    return TensorHandle(np.abs(argument.data), tl.bfloat16) if _is_one(argument.dtype) else absolute(builder, argument)


@PATCHES.replace(InterpreterBuilder, "create_masked_load")
def _loaded(load: Callable[..., Any], builder: Any, ptrs: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
    if not _is_one(ptrs.get_element_ty()):
        return load(builder, ptrs, mask, other, *how, **named)
    instead = np.zeros(ptrs.data.shape, BITS) if other is None else to_bits(other.data.astype(np.float32))
    return TensorHandle(from_bits(interpreter._interpreter.load(ptrs.data, mask.data, instead, BITS)), tl.bfloat16)


@PATCHES.replace(InterpreterBuilder, "create_masked_store")
def _stored(store: Callable[..., Any], builder: Any, ptrs: Any, value: Any, mask: Any, *how: Any, **named: Any) -> Any:
    if _is_one(value.dtype):
        value = TensorHandle(to_bits(value.data), tl.uint16)
    return store(builder, ptrs, value, mask, *how, **named)


@PATCHES.replace(InterpreterBuilder, "create_atomic_rmw")
def _updated(update: Callable[..., Any], builder: Any, operation: Any, ptr: Any, val: Any, mask: Any, *how: Any) -> Any:
    if not _is_one(val.dtype) or operation != ir.ATOMIC_OP.FADD:
        return update(builder, operation, ptr, val, mask, *how)
    addresses, numbers = ptr.data.reshape(-1), np.broadcast_to(val.data, ptr.data.shape).reshape(-1)
    left = np.broadcast_to(mask.data, ptr.data.shape).reshape(-1).copy()
    found = np.zeros(numbers.shape, np.float32)
    while left.any():  # several lanes may add to one element, so they take turns
        lanes = np.flatnonzero(left)
        lanes = lanes[np.unique(addresses[lanes], return_index=True)[1]]
        everywhere = np.ones(lanes.shape, dtype=bool)
        old = interpreter._interpreter.load(addresses[lanes], everywhere, np.zeros(lanes.shape, BITS), BITS)
        found[lanes] = from_bits(old)
        new = to_bits(rounded(found[lanes] + numbers[lanes]))
        interpreter._interpreter.store(addresses[lanes], new, everywhere)
        left[lanes] = False
    return TensorHandle(found.reshape(ptr.data.shape), tl.bfloat16)


def rounded(numbers: NDArray[Any]) -> Floats:
    """Round numbers of any float dtype to the nearest bfloat16 number, to even in a tie. NaN stays NaN."""
    floats: Floats = np.ascontiguousarray(numbers, dtype=np.float32)
    bits = floats.view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    found: Floats = np.where(np.isnan(floats), floats, kept.view(np.float32)).reshape(numbers.shape)
    return cut(found)


def cut(numbers: Floats) -> Floats:
    """Round each number towards 0 to a bfloat16 number. NaN stays NaN."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    quiet = np.where(np.isnan(numbers), np.uint32(0x00400000), np.uint32(0)).reshape(bits.shape)
    found: Floats = ((bits | quiet) & np.uint32(0xFFFF0000)).view(np.float32).reshape(numbers.shape)
    return found


def to_bits(numbers: Floats) -> NDArray[np.uint16]:
    """The 16 bits of each bfloat16 number."""
    bits = np.ascontiguousarray(numbers).view(np.uint32) >> np.uint32(16)
    return bits.astype(np.uint16).reshape(numbers.shape)


def from_bits(bits: NDArray[Any]) -> Floats:
    """The bfloat16 numbers of 16-bit integers, signed or not."""
    found: Floats = (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found.reshape(bits.shape)
