"""Huge tensors in little memory: a window of the arena, mapped many times in a row.

An index that overflows shows in the address of its access, so all addresses must exist: n elements of address space, in
which every window shows the same memory, with wide empty gaps before and after.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grader.protocol import Ref

PROT_NONE = 0
GAP_BYTES = 1 << 34
MAP_FIXED, MAP_NORESERVE, MAP_FAILED = 0x10, 0x4000, ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


ELEMENT_BYTES = 4


class Floats(NamedTuple):
    """A contiguous run of float32 in memory."""

    address: int
    shape: tuple[int, ...]

    @classmethod
    def at(cls, address: int, ref: Ref) -> Floats:
        """The elements of a reference, at `address`."""
        assert ref.dtype == "float32"
        return cls(address, ref.shape)

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * ELEMENT_BYTES

    def content(self) -> bytes:
        return ctypes.string_at(self.address, self.size_bytes)

    def fill(self, content: bytes) -> None:
        ctypes.memmove(self.address, content, self.size_bytes)


@contextlib.contextmanager
def repeated(file: int, refs: Sequence[Ref], times: int, cut: int = 0) -> Iterator[list[Floats]]:
    """For each of `refs`, its elements of the arena's `file`, mapped `times` times in a row, without the last `cut`
    elements.

    Raises:
        MemoryError: there is not enough address space.
    """
    sizes = [Floats.at(0, ref).size_bytes for ref in refs]
    total = GAP_BYTES + sum(size * times + GAP_BYTES for size in sizes)
    start = _map(None, total, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    try:
        found, at = [], start + GAP_BYTES
        for ref, size in zip(refs, sizes, strict=True):
            for window in range(times):
                flags = mmap.MAP_SHARED | MAP_FIXED
                _map(at + window * size, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, ref.start_bytes)
            found.append(Floats(at, (size * times // ELEMENT_BYTES - cut,)))
            at += size * times + GAP_BYTES
        yield found
    finally:
        _libc.munmap(start, total)


def _map(address: int | None, length: int, protection: int, flags: int, file: int, offset: int) -> int:
    found = _libc.mmap(address, length, protection, flags, file, offset)
    if found is None or found == MAP_FAILED:
        raise MemoryError(f"{length} bytes of address space")
    return int(found)
