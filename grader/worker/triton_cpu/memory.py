"""The memory that kernels may touch: the inputs of a call, and the submission's own allocations."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from grader.protocol import FILL_BYTE
from grader.worker.triton_cpu.regions import Addresses, Given, Region, allocation, extent
from grader.worker.triton_cpu.writers import Writers

EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})

ANYWHERE = 1 << 63


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
        given = [one for value in (*arguments, *options.values()) for one in tensors_of(value)]
        self.writers.note(by_host=True, tensors=given)
        result = operator(*arguments, **options)
        self._note(operator, arguments, options, result)
        return result

    def _note(self, operator: Any, arguments: Sequence[Any], options: dict[str, Any], result: Any) -> None:
        schema = operator._schema
        written, made = list[torch.Tensor](), list[torch.Tensor]()
        for number, parameter in enumerate(schema.arguments):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                for tensor in tensors_of(arguments[number] if number < len(arguments) else options.get(parameter.name)):
                    written.append(tensor)
                    if (region := self._regions.get(allocation(tensor)[0])) is not None:
                        region.is_touched = True
        # Otherwise the results are views, or tensors that existed before.
        if all(one.alias_info is None for one in schema.returns):
            made = tensors_of(result)
        is_empty = operator.overloadpacket.__name__ in EMPTY
        for tensor in made:
            start, end = allocation(tensor)
            self._regions.pop(start, None)  # a freed allocation
            if is_empty and end > start:
                ctypes.memset(start, FILL_BYTE, end - start)
                self._regions[start] = Region(start, end, is_empty=True)
        self.writers.end_operator(operator, arguments, written, made)

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
            known += [
                allocation(one) for one in tensors_of([one for one in gc.get_objects() if type(one) is torch.Tensor])
            ]
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


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a value or list that lie in CPU memory."""
    values = value if isinstance(value, list | tuple) else [value]
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    return [one for one in tensors if one.device.type == "cpu" and one.layout == torch.strided]
