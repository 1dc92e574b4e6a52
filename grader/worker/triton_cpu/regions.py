"""Regions of memory, and the accesses of a launch to each of their elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grader.worker.triton_cpu.order import Ids

Addresses = NDArray[np.uint64]


class LastAccess:
    """The last access of one kind to each element of a region, by its number (see `AccessOrder`), and the lane of its
    block that made it; `last` is the highest number.
    """

    def __init__(self, elements: int = 0) -> None:
        self.numbers: Ids = np.zeros(elements, np.int32)
        self.lanes: Ids = np.zeros(elements, np.int32)
        self.last = 0

    def put(self, places: NDArray[np.int64], number: int, lanes: Ids | np.int32) -> None:
        self.numbers[places], self.lanes[places] = number, lanes
        self.last = number


@dataclass(eq=False)
class Region:
    """One allocation, or an input of the call in the judge's arena. Addresses in bytes; `end` is the first address past
    it.

    Attributes:
        is_input: an input, which nobody may change.
        is_empty: allocated by torch.empty or the like during the call, and filled with the fill pattern.
        is_touched: an operator of PyTorch has written into the region since.
        width: bytes of an element. 0 after accesses of different widths: the region is no longer followed.
        writes, reads, atomics: the last access of each kind to each element; of reads, the first in a launch.
    """

    start: int
    end: int
    is_input: bool = False
    is_empty: bool = False
    is_touched: bool = False
    width: int | None = None
    writes: LastAccess = field(default_factory=LastAccess)
    reads: LastAccess = field(default_factory=LastAccess)
    atomics: LastAccess = field(default_factory=LastAccess)

    def elements(self, addresses: Addresses, width: int) -> NDArray[np.int64] | None:
        """The indices of these elements in `writes`, `reads` and `atomics`; None if the region is not followed."""
        if self.width is None:
            self.width = width
            count = (self.end - self.start + width - 1) // width
            self.writes, self.reads, self.atomics = LastAccess(count), LastAccess(count), LastAccess(count)
        elif self.width != width:
            self.width = 0
        if not self.width:
            return None
        return ((addresses - np.uint64(self.start)) >> np.uint64(width.bit_length() - 1)).view(np.int64)


@dataclass(eq=False)
class Given:
    """A tensor that a kernel was given, with the name of its parameter."""

    tensor: torch.Tensor
    region: Region
    name: str = "a tensor"

    def place(self, address: int, width: int) -> str:
        """The element at an address in the student's terms, as `x_ptr[1024], 24 past the last of its 1000 elements`."""
        first, size = self.tensor.data_ptr(), self.tensor.element_size()
        index = (address - first) // size
        text = f"{self.name}[{index}]"
        if address < self.region.start:
            return f"{text}, before its start"
        if address + width <= self.region.end:
            return text + self._index_words(index)
        if self.tensor.is_contiguous() and self.region.end - first == self.tensor.nbytes:
            count = self.tensor.numel()
            elements = "1 element" if count == 1 else f"{count} elements"
            return (
                f"{text}, {index - count + 1} past the last of its {elements}"
                if count
                else f"{self.name}, which has no elements"
            )
        last = (self.region.end - first) // size - 1
        view = f"of shape {tuple(self.tensor.shape)} with strides {self.tensor.stride()}"
        return f"{text}, {index - last} past its last element, {self.name}[{last}], {view}"

    def _index_words(self, index: int) -> str:
        """The index in words, as ` ([1, 24] of shape (2, 1000))`; "" for one dimension, or if no element lies there."""
        shape, strides = self.tensor.shape, self.tensor.stride()
        if len(shape) < 2:
            return ""
        found, rest = [0] * len(shape), index
        for dim in sorted(range(len(shape)), key=lambda one: -strides[one]):
            if strides[dim] > 0 and shape[dim] > 1:
                found[dim] = min(rest // strides[dim], shape[dim] - 1)
                rest -= found[dim] * strides[dim]
        laid = "" if self.tensor.is_contiguous() else f" with strides {strides}"
        return f" ({found} of shape {tuple(shape)}{laid})" if rest == 0 and index >= 0 else ""


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first element and of the end of its last."""
    if not tensor.numel():
        return tensor.data_ptr(), tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def allocation(tensor: torch.Tensor) -> tuple[int, int]:
    """The start and end address of the memory that a tensor is a view of."""
    storage: Any = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
