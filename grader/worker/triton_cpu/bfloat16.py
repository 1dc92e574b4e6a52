"""bfloat16 in Triton's interpreter, which otherwise takes the bits for integers and computes nonsense.

A block of bfloat16 is kept as float32 numbers. Each result is rounded to the nearest even when its handle is made, as a
GPU rounds. Only loads, stores, atomics and bitcasts use 16 bits. (Issue 11584 of triton-lang/triton asks for this; pull
request 11585, for `tl.dot` alone, was not taken.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

FLOAT32 = np.dtype(np.float32)
BITS = np.dtype(np.uint16)
Floats = NDArray[np.float32]  # whose last 16 bits are 0: numbers of bfloat16


def provide() -> None:
    """Patch the interpreter to compute in bfloat16."""
    _keep_float32()
    _convert()
    _load_and_store()
    _add_atomically()


def _is_one(dtype: Any) -> bool:
    return getattr(dtype.scalar, "name", "") == "bf16"


def _keep_float32() -> None:
    dtype_of, fits, complete = interpreter._get_np_dtype, interpreter._validate_np_data_size, TensorHandle.__post_init__
    known: dict[str, Any] = {"bf16": FLOAT32}

    def numpy_dtype(dtype: Any) -> Any:
        name = dtype.scalar.name
        if name not in known:
            known[name] = dtype_of(dtype)  # which makes a table of all types each time
        return known[name]

    def is_of_its_size(data: Any, dtype: Any) -> bool:
        return data.dtype.itemsize <= FLOAT32.itemsize if _is_one(dtype) else bool(fits(data, dtype))

    def completed(handle: Any) -> None:
        if _is_one(handle.dtype) and handle.data.dtype.kind == "f":  # comparisons give bools
            handle.data = rounded(handle.data)
        complete(handle)

    interpreter._get_np_dtype, interpreter._validate_np_data_size = numpy_dtype, is_of_its_size
    TensorHandle.__post_init__ = completed
    InterpreterBuilder.get_bf16 = lambda _, value: TensorHandle(np.array([value], dtype=np.float32), tl.bfloat16)


def _convert() -> None:
    cast, convert = InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp
    bitcast, absolute = InterpreterBuilder.create_bitcast, InterpreterBuilder.create_fabs

    def casted(builder: Any, source: Any, target: Any) -> Any:
        if _is_one(source.dtype) or _is_one(target):
            return TensorHandle(source.data.astype(interpreter._get_np_dtype(target.scalar)), target.scalar)
        return cast(builder, source, target)

    def converted(builder: Any, source: Any, target: Any, rounding: Any) -> Any:
        if _is_one(target):
            towards_zero = rounding == ir.ROUNDING_MODE.RTZ
            numbers = _as_float32(builder, source, convert)
            return TensorHandle(cut(numbers) if towards_zero else numbers, target.scalar)
        if _is_one(source.dtype):
            source = TensorHandle(source.data, tl.float32)
        return convert(builder, source, target, rounding)

    def of_the_same_bits(builder: Any, source: Any, target: Any) -> Any:
        if _is_one(source.dtype) and not _is_one(target):
            source = TensorHandle(to_bits(source.data), tl.uint16)
        if _is_one(target) and not _is_one(source.dtype):
            return TensorHandle(from_bits(source.data), target.scalar)
        return bitcast(builder, source, target)

    def magnitude(builder: Any, argument: Any) -> Any:
        return (
            TensorHandle(np.abs(argument.data), tl.bfloat16) if _is_one(argument.dtype) else absolute(builder, argument)
        )

    InterpreterBuilder.cast_impl, InterpreterBuilder.create_fp_to_fp = casted, converted
    InterpreterBuilder.create_bitcast = of_the_same_bits
    InterpreterBuilder.create_int_to_ptr = InterpreterBuilder.create_ptr_to_int = of_the_same_bits
    InterpreterBuilder.create_fabs = magnitude


def _as_float32(builder: Any, source: Any, convert: Any) -> Floats:
    """The numbers of a handle as float32. Numbers of 8 bits take the interpreter's own conversion."""
    if source.dtype.scalar.is_fp8():
        source = convert(builder, source, tl.float32, ir.ROUNDING_MODE.RTNE)
    numbers: Floats = source.data.astype(np.float32)
    return numbers


def _load_and_store() -> None:
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def loaded(builder: Any, ptrs: Any, mask: Any, other: Any, *how: Any, **named: Any) -> Any:
        if not _is_one(ptrs.get_element_ty()):
            return load(builder, ptrs, mask, other, *how, **named)
        instead = np.zeros(ptrs.data.shape, BITS) if other is None else to_bits(other.data.astype(np.float32))
        bits = interpreter._interpreter.load(ptrs.data, mask.data, instead, BITS)
        return TensorHandle(from_bits(bits), tl.bfloat16)

    def stored(builder: Any, ptrs: Any, value: Any, mask: Any, *how: Any, **named: Any) -> Any:
        if _is_one(value.dtype):
            value = TensorHandle(to_bits(value.data), tl.uint16)
        return store(builder, ptrs, value, mask, *how, **named)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = loaded, stored


def _add_atomically() -> None:
    update = InterpreterBuilder.create_atomic_rmw

    def updated(builder: Any, operation: Any, ptr: Any, val: Any, mask: Any, *how: Any) -> Any:
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
            interpreter._interpreter.store(
                addresses[lanes], to_bits(rounded(found[lanes] + numbers[lanes])), everywhere
            )
            left[lanes] = False
        return TensorHandle(found.reshape(ptr.data.shape), tl.bfloat16)

    InterpreterBuilder.create_atomic_rmw = updated


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
