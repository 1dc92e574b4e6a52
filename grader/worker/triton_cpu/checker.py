"""Checks every load, store and atomic of an interpreted Triton kernel against the known tensors.

A faulty kernel may seem to work on a GPU. Here the first faulty access ends the call, with a sentence:

- A pointer may reach the memory of the tensor that it was given by (`KnownMemory.given`). Masked lanes reach nothing.
- A load of the fill pattern is a fault if the memory is from `torch.empty` and no kernel has written there.
- Two programs that access an element without an atomic, one of them writing, are a race if nothing orders them
  (`AccessOrder`). A store of the value that the element already has is no fault, because tiles may overlap.
- A store that changes an input of the call is a fault.
- Two warps of a program that access an element, one of them writing, are a race unless the program's threads have waited
  for each other in between (`threads.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from grader.protocol import FILL_BYTE
from grader.worker.errors import KernelFault, is_own_file
from grader.worker.triton_cpu.bfloat16 import to_bits
from grader.worker.triton_cpu.memory import Addresses, Given, KnownMemory
from grader.worker.triton_cpu.order import AccessOrder, Ids, Program
from grader.worker.triton_cpu.threads import EVERY, Block, differ

# An element of so many bytes with the fill pattern was never written; in a smaller element the fill pattern may be a computed value.
FILLED_BYTES = 4
BFLOAT16_BYTES = 2
MAX_FRAMES = 40
TAKEN_FOR_CONTIGUOUS = "an index that takes a tensor to be contiguous: torch.empty_like(x) has the strides of x"
CONFLICTS = {"reads": ("writes", "updates"), "writes": ("updates", "writes", "reads"), "updates": ("writes", "reads")}
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
Mask = NDArray[np.bool_]
Read = Callable[[Addresses, int], NDArray[Any]]


class UnmaskedLanes(NamedTuple):
    """The lanes of an access that are not masked.

    Attributes:
        addresses: of each lane.
        width: bytes of an element.
        mask: which lanes of the block these are; None for all.
        shape: of the block.
    """

    given: Given
    addresses: Addresses
    width: int
    mask: Mask | None
    shape: tuple[int, ...]

    def numbers(self) -> Ids:
        """The numbers of these lanes in the block."""
        if self.mask is None:
            return np.arange(self.addresses.size, dtype=np.int32)
        return np.flatnonzero(np.broadcast_to(self.mask, self.shape)).astype(np.int32)

    def bits(self, values: NDArray[Any]) -> NDArray[Any]:
        """The bits of these lanes in a block of values. Values of bfloat16 are float32 (see `bfloat16.py`)."""
        if values.dtype == np.float32 and self.width == BFLOAT16_BYTES:
            values = to_bits(values)
        if self.mask is not None:
            values = np.broadcast_to(values, self.mask.shape)[self.mask]
        return np.ascontiguousarray(values).reshape(-1).view(UNSIGNED[self.width])


class Checker:
    """Follows the programs of a launch.

    Attributes:
        fault: the first fault of the call, which fails even if its code goes on.
        loads_a_number: the load in progress is of one element, which every thread loads.
    """

    traces = False
    loads_a_number = False

    def __init__(self, memory: KnownMemory) -> None:
        self.fault: KernelFault | None = None
        self._memory = memory
        self._order = AccessOrder()
        self._kernel, self._axes, self._warps = "the kernel", 1, 1
        self._grid: tuple[int, ...] = ()
        self._program: Program = ()
        self._stale: dict[int, str] = {}  # numbers of which some threads may have an old value, by address: why

    def begin_launch(self, kernel: str, grid: Sequence[int], warps: int) -> None:
        self._kernel, self._grid, self._program, self._warps = kernel, tuple(grid), (), warps
        self._axes = max((axis + 1 for axis, programs in enumerate(grid) if programs > 1), default=1)
        self._order.begin_launch()

    def reach(
        self, pointers: Any, mask: Mask, width: int, program: Program, verb: str, unguarded: str
    ) -> UnmaskedLanes | None:
        """The lanes of an access before it is made; None if all are masked. Raises KernelFault if a lane is out of
        bounds.

        Args:
            pointers: the interpreter's handle of a block of addresses.
            width: bytes of an element.
            program: its index in the grid, the same object in all accesses of the program.
            verb: for a sentence, as "reads".
            unguarded: the likely cause of a lane out of bounds, for a sentence.
        """
        if program is not self._program:
            self._program = program
            self._order.begin_program(program)
            self._stale = {}
        addresses: Addresses = pointers.data
        chosen = None
        if not mask.all():
            chosen = np.broadcast_to(mask, addresses.shape)
            addresses = addresses[chosen]
            if not addresses.size:
                return None
        addresses = addresses.reshape(-1)
        given = getattr(pointers.dtype.scalar, "given", None) or self._memory.search(addresses)
        if given is None:
            self._raise("out of bounds", f"{verb} address {int(addresses[0])} in {self._line()}, where no tensor is")
        region = given.region
        if addresses.min() < region.start or int(addresses.max()) + width > region.end:
            outside = (addresses < region.start) | (addresses > region.end - width)
            address = int(addresses[np.argmax(outside)])
            hint = f": consistent with {unguarded}" if address >= region.start else ""
            if hint and outside.all() and any(program) and region.end > region.start:
                grid = f"more programs than there is work for, as the grid is {self._grid}"
                hint = f": consistent with {grid}, or with {unguarded}"
            self._raise("out of bounds", f"{verb} {given.place(address, width)}, in {self._line()}{hint}")
        return UnmaskedLanes(given, addresses, width, chosen, pointers.data.shape)

    def threads_meet(self) -> None:
        """The threads of the running program wait for each other."""
        self._order.threads_meet()

    def loaded(self, lanes: UnmaskedLanes, values: NDArray[Any], is_volatile: bool) -> None:
        """Check a load after it is made. Raises KernelFault.

        Args:
            is_volatile: the program waits for another one, which orders the two like an atomic.
        """
        region = lanes.given.region
        if self.loads_a_number:
            self._stale.pop(int(lanes.addresses[0]), None)
        if region.is_input or (places := region.elements(lanes.addresses, lanes.width)) is None:
            return
        if is_volatile:
            self._order.meet(region.last["updates"].numbers[places])
            self._order.meet(region.last["writes"].numbers[places])
        else:
            self._check_order(lanes, places, "reads")
        self._check_written(lanes, places, values)
        unread = region.last["reads"].numbers[places] < self._order.launch
        if unread.any():
            number = self._order.note(self._where()[1], lanes.shape)
            region.last["reads"].put(places[unread], number, EVERY if self.loads_a_number else lanes.numbers()[unread])

    def stores(self, lanes: UnmaskedLanes, values: NDArray[Any], read: Read) -> None:
        """Check a store before it is made. `read` returns the bits at addresses now. Raises KernelFault."""
        region = lanes.given.region

        def changed() -> Mask:
            difference: Mask = lanes.bits(values) != read(lanes.addresses, lanes.width)
            return difference

        if region.is_input:
            if (marked := changed()).any():
                self._changes_input(lanes, int(np.argmax(marked)))
        elif (places := region.elements(lanes.addresses, lanes.width)) is not None:
            if self._stale and len(places) > 1:
                self._raise("race", next(iter(self._stale.values())))
            self._check_order(lanes, places, "writes", changed)
            region.last["writes"].put(places, self._order.note(self._where()[1], lanes.shape), lanes.numbers())

    def updates(self, lanes: UnmaskedLanes) -> None:
        """Check an atomic before it is made. Raises KernelFault."""
        region = lanes.given.region
        if region.is_input:
            self._changes_input(lanes, 0)
        if (places := region.elements(lanes.addresses, lanes.width)) is not None:
            self._check_order(lanes, places, "updates")

    def updated(self, lanes: UnmaskedLanes, values: NDArray[Any]) -> None:
        """Check an atomic after it is made, by the values that it found. Raises KernelFault."""
        region = lanes.given.region
        if (places := region.elements(lanes.addresses, lanes.width)) is not None:
            self._check_written(lanes, places, values)
            self._order.meet(region.last["updates"].numbers[places])
            region.last["updates"].put(places, self._order.note(self._where()[1], lanes.shape), lanes.numbers())
            self.threads_meet()

    def _check_order(
        self,
        lanes: UnmaskedLanes,
        places: NDArray[np.int64],
        verb: str,
        changed: Callable[[], Mask] | None = None,
    ) -> None:
        """Look for unordered accesses by other programs. Of a store, only lanes that have `changed` a value count."""
        for other_verb in CONFLICTS[verb]:
            accesses = lanes.given.region.last[other_verb]
            if accesses.last < self._order.launch:
                continue
            numbers = accesses.numbers[places]
            self._check_threads(lanes, numbers, accesses.lanes[places], verb, other_verb, changed)
            if (marked := self._order.unordered(numbers)) is None:
                continue
            if changed is not None:
                marked &= changed()
                if not marked.any():
                    continue
            lane = int(np.argmax(marked))
            other = self._order.access(int(numbers[lane]))
            cause = "" if lanes.given.tensor.is_contiguous() else f": consistent with {TAKEN_FOR_CONTIGUOUS}"
            self._raise(
                "race",
                f"{verb} {self._place(lanes, lane)} in {self._line()}, and {self._name(other.program)} {other_verb} it in "
                f"{_line_of(other.line)}: nothing orders the two, and a GPU runs programs in any order{cause}",
            )

    def _check_threads(
        self,
        lanes: UnmaskedLanes,
        numbers: Ids,
        others: Ids,
        verb: str,
        other_verb: str,
        changed: Callable[[], Mask] | None,
    ) -> None:
        """Look for accesses by other warps of this program since its threads last met.

        Args:
            numbers, others: the earlier accesses, and the lanes that made them.
        """
        recent = numbers >= self._order.met
        if self._warps == 1 or not recent.any():
            return
        mine, by_all = lanes.numbers(), self.loads_a_number
        for number in np.unique(numbers[recent]).tolist():
            other, marked = self._order.access(number), numbers == number
            if not by_all:
                earlier, now = Block(others[marked], other.shape), Block(mine[marked], lanes.shape)
                marked[marked] = differ(earlier, now, lanes.width, self._warps)
            if changed is not None and marked.any():
                marked &= changed()
            if not marked.any():
                continue
            words = (
                f"{verb} {self._place(lanes, int(np.argmax(marked)))} in {self._line()}, and another thread of the same program "
                f"{other_verb} it in {_line_of(other.line)}, with no tl.debug_barrier() between: on a GPU a program is many "
                "threads, and each goes on without waiting for the others"
            )
            if not by_all:
                self._raise("race", words)
            self._stale[int(lanes.addresses[0])] = words

    def _check_written(self, lanes: UnmaskedLanes, places: NDArray[np.int64], values: NDArray[Any]) -> None:
        region = lanes.given.region
        if not region.is_empty or (lanes.width < FILLED_BYTES and region.is_touched):
            return
        unwritten = lanes.bits(values) == int.from_bytes(bytes([FILL_BYTE]) * lanes.width, "little")
        if unwritten.any():
            unwritten &= (region.last["writes"].numbers[places] == 0) & (region.last["updates"].numbers[places] == 0)
        if unwritten.any():
            self._raise(
                "unwritten memory",
                f"reads {self._place(lanes, int(np.argmax(unwritten)))} in {self._line()}, where nothing has been written yet: "
                "the numbers that torch.empty leaves are arbitrary",
            )

    def _changes_input(self, lanes: UnmaskedLanes, lane: int) -> NoReturn:
        self._raise(
            "changed input",
            f"changes {self._place(lanes, lane)} in {self._line()}, memory of an input: the function must leave its inputs as they are",
        )

    def _place(self, lanes: UnmaskedLanes, lane: int) -> str:
        return lanes.given.place(int(lanes.addresses[lane]), lanes.width)

    def _raise(self, kind: str, words: str) -> NoReturn:
        fault = KernelFault(f"{kind}: {self._name(self._program)} of {self._kernel} {words}")
        self.fault = self.fault or fault
        raise fault

    def _name(self, program: Program) -> str:
        """`program 3`, or `program (3, 1)` in a grid with two axes."""
        return f"program {program[0] if self._axes == 1 else program[: self._axes]}"

    def _where(self) -> tuple[str, int]:
        """The file and the innermost line of the submission that runs; ("", 0) if they are not known."""
        frame: Any = sys._getframe(1)
        for _ in range(MAX_FRAMES):
            if frame is None:
                break
            if is_own_file(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return "", 0

    def _line(self) -> str:
        return _line_of(self._where()[1])


def _line_of(line: int) -> str:
    return f"line {line}" if line else "a line that is not known"
