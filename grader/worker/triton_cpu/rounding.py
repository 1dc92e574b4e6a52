"""bfloat16 numbers in numpy: float32 numbers whose last 16 bits are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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
