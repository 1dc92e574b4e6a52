"""The memory that kernels may touch: the inputs of a call, and the submission's own allocations, with the accesses of a
launch to each of their elements.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from grader.protocol import FILL_BYTE
from grader.worker.memory import allocation, extent
from grader.worker.operators import EMPTY, on_cpu, written_by
from grader.worker.triton_cpu.order import Ids
from grader.worker.triton_cpu.writers import Writers

Addresses = NDArray[np.uint64]
ANYWHERE = 1 << 63
VERBS = ("reads", "writes", "updates")  # Kinds of accesses; an atomic updates.


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
        last: by verb, the last access of each kind to each element; of reads, the first in a launch.
    """

    start: int
    end: int
    is_input: bool = False
    is_empty: bool = False
    is_touched: bool = False
    width: int | None = None
    last: dict[str, LastAccess] = field(default_factory=lambda: {verb: LastAccess() for verb in VERBS})

    def elements(self, addresses: Addresses, width: int) -> NDArray[np.int64] | None:
        """The indices of these elements in `last`; None if the region is not followed."""
        if self.width is None:
            self.width = width
            count = (self.end - self.start + width - 1) // width
            self.last = {verb: LastAccess(count) for verb in VERBS}
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


class KnownMemory:
    """The known regions of memory in a call. One instance for the process, like the interpreter.

    Attributes:
        in_launch: whether a launch runs. PyTorch's operators are then the interpreter's own, which write nothing.
        in_kernel: whether its programs run. Before, its grid is asked for.
    """

    def __init__(self) -> None:
        self.in_launch = self.in_kernel = False
        self._regions: dict[int, Region] = {}  # the submission's allocations, by start
        self._inputs: list[Region] = []
        self._arena = (0, 0)
        self.writers = Writers()

    def begin_call(self, arena: torch.Tensor, inputs: Iterable[torch.Tensor]) -> None:
        """Forget earlier calls. `inputs` are the tensors in the judge's `arena` that this call may read."""
        self.in_launch = self.in_kernel = False
        self._regions.clear()
        self.writers = Writers()
        self._arena = allocation(arena)
        self._inputs = [Region(*extent(one), is_input=True) for one in inputs if one.numel()]

    def run_operator(self, operator: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """Run an operator of PyTorch, and note memory that it has allocated or written. Memory from `torch.empty` is
        filled with the fill pattern.
        """
        if self.in_launch:
            return operator(*arguments, **options)
        self.writers.note(by_host=True, tensors=on_cpu([*arguments, *options.values()]))
        result = operator(*arguments, **options)
        written = [tensor for _, tensors in written_by(operator, arguments, options) for tensor in tensors]
        for tensor in written:
            if (region := self._regions.get(allocation(tensor)[0])) is not None:
                region.is_touched = True
        # Otherwise the results are views, or tensors that existed before.
        made = on_cpu([result]) if all(one.alias_info is None for one in operator._schema.returns) else []
        is_empty = operator.overloadpacket.__name__ in EMPTY
        for tensor in made:
            start, end = allocation(tensor)
            self._regions.pop(start, None)  # a freed allocation
            if is_empty and end > start:
                ctypes.memset(start, FILL_BYTE, end - start)
                self._regions[start] = Region(start, end, is_empty=True)
        self.writers.end_operator(operator, arguments, written, made)
        return result

    def given(self, tensor: torch.Tensor) -> Given:
        """A tensor as an argument of a kernel. A view may reach its whole allocation; in the arena, the whole input."""
        start, end = allocation(tensor)
        if self._arena[0] <= start < self._arena[1]:
            first = tensor.data_ptr()
            inputs = (one for one in self._inputs if one.start <= first < one.end)
            return Given(tensor, next(inputs, None) or Region(*extent(tensor), is_input=True))
        region = self._regions.get(start)
        if region is None or region.end != end:  # unknown, or a freed allocation
            region = self._regions[start] = Region(start, end)
        return Given(tensor, region)

    def search(self, addresses: Addresses) -> Given | None:
        """A region for pointers of unknown origin whose addresses all lie in tensors; None if an address lies in no
        tensor.

        Accesses through such pointers are not checked further.
        """
        known = [*((one.start, one.end) for one in (*self._inputs, *self._regions.values()))]
        if not _inside(addresses, known):
            known += map(allocation, on_cpu(one for one in gc.get_objects() if type(one) is torch.Tensor))
            if not _inside(addresses, known):
                return None
        return Given(torch.empty(0), Region(0, ANYWHERE, width=0))


def _inside(addresses: Addresses, known: Iterable[tuple[int, int]]) -> bool:
    left = addresses
    for start, end in known:
        left = left[(left < start) | (left >= end)]
        if not left.size:
            return True
    return False
