"""Follows who wrote each element of a call's memory last: a kernel or an operator of PyTorch, or the host behind their backs.

While the host's code runs, only operators may write to tensors, and the watch sees each of them; while a launch runs, only the
kernel writes. So an element whose bits are others than at the end of the last operator or launch was written by the host: by
NumPy, the C library, or another process. Memory that no operator has made is not followed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef

from grader.protocol import FILL_BYTE

UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
# A call in which more memory than this was compared, which takes seconds, is followed no further.
MOST_BYTES = 4 << 30
TOLERATED = 0.1  # A result may have this share of elements that the host wrote last.
COPIES = {"clone": 0, "_to_copy": 0, "contiguous": 0, "copy_": 1}  # operators that only move elements of this argument
FROM_THE_HOST = "lift_fresh"  # the operator that hands out what torch.tensor has made of numbers and arrays
JOINS = {"cat", "stack"}  # operators that only move elements of a list of tensors


@dataclass
class Followed:
    """An allocation. start, end: its addresses. bits: of each element, as far as operators and kernels wrote them. by_host: which
    elements the host wrote last.
    """

    start: int
    end: int
    width: int
    weak: StorageWeakRef
    bits: NDArray[Any] = field(init=False)
    by_host: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.bits = self.now().copy()
        self.by_host = np.zeros(self.bits.shape, dtype=bool)

    def now(self) -> NDArray[Any]:
        """The memory itself."""
        count = (self.end - self.start) // self.width
        memory = (ctypes.c_uint8 * (count * self.width)).from_address(self.start)
        found: NDArray[Any] = np.frombuffer(memoryview(memory), dtype=UNSIGNED[self.width])
        return found

    def is_there(self) -> bool:
        """Whether the allocation is neither freed nor moved, as `resize_` may move it."""
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self.weak.cdata)
        return storage is not None and (storage.data_ptr(), storage.nbytes()) == (self.start, self.end - self.start)

    def note(self, by_host: bool) -> None:
        """Note who wrote the elements that have changed."""
        now = self.now()
        changed = now != self.bits
        if changed.any():
            self.by_host[changed] = by_host
            self.bits[changed] = now[changed]

    def mask(self, tensor: torch.Tensor) -> torch.Tensor:
        """`by_host` of the elements of a view, which shares its memory."""
        return torch.from_numpy(self.by_host).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


class Writers:
    """The followed allocations of a call, by start."""

    def __init__(self) -> None:
        self._all: dict[int, Followed] = {}
        self._left_bytes = MOST_BYTES

    def _of(self, tensor: torch.Tensor) -> Followed | None:
        try:
            found = self._all.get(tensor.untyped_storage().data_ptr())
        except RuntimeError:  # a tensor without memory of its own, as in torch.func
            return None
        if found is None or not found.is_there():
            return None
        return found if found.width == tensor.element_size() else None

    def note(self, by_host: bool, tensors: Sequence[torch.Tensor] | None = None) -> None:
        """What has changed in the memory of these tensors (None: in all) was written by the host, or by a kernel."""
        if tensors is None:
            self._all = {start: one for start, one in self._all.items() if one.is_there()}
        found = [*self._all.values()] if tensors is None else map(self._of, tensors)
        for one in filter(None, found):
            self._left_bytes -= one.end - one.start
            if self._left_bytes < 0:
                self._all.clear()
                break
            one.note(by_host)

    def end_operator(
        self, operator: Any, arguments: Sequence[Any], written: Sequence[Any], made: Sequence[Any]
    ) -> None:
        """After an operator: it wrote elements of the tensors `written`, and allocated the tensors `made`."""
        if self._left_bytes < 0:
            return
        name = operator.overloadpacket.__name__
        masks = self._moved(name, operator, arguments)
        for tensor in made:
            self._follow(tensor)
        if name == FROM_THE_HOST and (one := self._follow(arguments[0])) is not None:
            one.by_host[:] = True
        for tensor in (*written, *made):
            if (one := self._of(tensor)) is not None:
                one.note(by_host=False)
                one.mask(tensor).copy_(torch.zeros((), dtype=torch.bool) if masks is None else masks)

    def _follow(self, tensor: torch.Tensor) -> Followed | None:
        """Follow the allocation of a new tensor; None if its elements cannot be compared."""
        storage, width = tensor.untyped_storage(), tensor.element_size()
        start = storage.data_ptr()
        self._all.pop(start, None)
        if width not in UNSIGNED or not storage.nbytes() or start % width:
            return None
        return self._all.setdefault(start, Followed(start, start + storage.nbytes(), width, StorageWeakRef(storage)))

    def _moved(self, name: str, operator: Any, arguments: Sequence[Any]) -> torch.Tensor | None:
        """Which elements of the result the host wrote, if the operator only moves elements; None if it computes."""
        if name in COPIES:
            source = next(iter(arguments[COPIES[name] :]), None)
            return self._mask(source).clone() if isinstance(source, torch.Tensor) else None
        if name in JOINS and arguments and any(self._of(one) is not None for one in arguments[0]):
            joined: torch.Tensor = operator([self._mask(one) for one in arguments[0]], *arguments[1:])
            return joined
        return None

    def _mask(self, tensor: torch.Tensor) -> torch.Tensor:
        one = self._of(tensor)
        return torch.zeros(tensor.shape, dtype=torch.bool) if one is None else one.mask(tensor)

    def finding(self, results: Sequence[Any]) -> str:
        """Words about a result that the host wrote; empty if there is none. Zeros and the fill pattern are nobody's."""
        for number, tensor in enumerate(results):
            one = self._of(tensor) if type(tensor) is torch.Tensor and tensor.device.type == "cpu" else None
            if one is None or not tensor.numel():
                continue
            one.note(by_host=True)
            bits = torch.from_numpy(one.bits.view(f"i{one.width}") if one.width > 1 else one.bits)
            bits = bits.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            fill = int.from_bytes(bytes([FILL_BYTE]) * one.width, "little")
            counts = (bits != 0) & (bits != fill)
            by_host, some = int((one.mask(tensor) & counts).sum()), int(counts.sum())
            if by_host > TOLERATED * some:
                return f"returns what no kernel wrote: the host wrote {by_host} of {some} elements of result {number + 1} last"
        return ""
