"""The arena: memory that the judge owns and a worker maps, for the tensors of a call or a batch.

An arena holds a copy of every input's storage and a slot for every output, each between guard bands:

    guard | input 0 | guard | input 1 | guard | ... | guard | output 0 | guard | ...

Before a call, guard bands are filled with `GUARD_BYTE` and output slots with `FILL_BYTE`. After the call, a different
byte in a guard band is a write out of bounds, a different input was changed, and the fill pattern in a slot was never written.

On a CPU the memory is an anonymous sealed file, sent to the worker over the socket. The file has no name that could
stay behind, and the worker cannot shrink it. On a GPU the memory is a CUDA allocation shared by CUDA IPC.

An input whose elements lie far apart, as by strides that pass 2³¹, has its elements alone copied and compared on a CPU:
the memory between them is 0, and nobody has touched it.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from grader.protocol import FILL_BYTE, GUARD_BYTE, MakeCalls, Memory, Operands, Ref

ALIGNMENT = max(256, mmap.PAGESIZE)  # on a CPU a worker may map a tensor's pages alone
GUARD_BYTES = 256 * 1024
GUARD_WORD = int.from_bytes(bytes([GUARD_BYTE]) * 8, "little", signed=True)
MAX_PLACES = 4096  # places kept of an out-of-bounds write
# CUDA packs small allocations into shared blocks of this size, and IPC opens a whole block: an arena fills whole
# blocks.
GRANULE_BYTES = 2 << 20
CHECK_BYTES = 1 << 28
FAR_BYTES = 1 << 28  # storages from this size on may be sparse


@dataclass(frozen=True)
class OutOfBounds:
    """A write into a guard band.

    Attributes:
        neighbour: the name of the nearest tensor.
        offset_bytes: of the nearest byte, past the tensor's end; negative before its start.
        elements: number of places hit, each of the tensor's element size.
        places: the nearest places in elements, from the tensor's end; negative from its start.
    """

    neighbour: str
    offset_bytes: int
    elements: int
    places: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Slot:
    """A tensor's place in the arena; `stride` in elements."""

    name: str
    offset: int
    length: int
    start_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def is_sparse(self) -> bool:
        """Whether the elements lie so far apart that most of the storage's pages hold none."""
        return self.length > max(FAR_BYTES, mmap.PAGESIZE * math.prod(self.shape))

    def elements(self, memory: torch.Tensor) -> torch.Tensor:
        """The tensor in the arena's memory."""
        typed = memory[self.offset : self.offset + self.length].view(self.dtype)
        start = (self.start_bytes - self.offset) // self.dtype.itemsize
        return typed.as_strided(self.shape, self.stride, typed.storage_offset() + start)

    def region(self, memory: torch.Tensor) -> torch.Tensor:
        """The bytes of the slot in the arena's memory."""
        return memory[self.offset : self.offset + self.length]

    def ref(self) -> Ref:
        return Ref(str(self.dtype).removeprefix("torch."), self.start_bytes, self.shape, self.stride)


Copies: TypeAlias = tuple[list[torch.Tensor], list[torch.Tensor]]  # destinations and sources


class Arena:
    """Shared memory with copies of `inputs` and filled slots for `outputs`.

    Args:
        inputs: tensors by name, of any strides; the whole storage of each is copied. A tensor on device `meta` gets a
            slot only, to be filled through `entries`.
        outputs: shapes by name; outputs are contiguous.
        dtype: of the outputs.
        device: `cpu` or `cuda`.
        starts: distance of an output from an aligned address in elements, by name; 0 by default.
        sparse: the memory is zero everywhere and takes none of the machine's until somebody touches it; nothing is
            copied, filled or guarded. On a CPU.

    Attributes:
        address: names the memory in a request.
        files: file descriptors to be sent with the request.

    Raises:
        MemoryError: the device has not enough memory.
    """

    def __init__(
        self,
        inputs: dict[str, torch.Tensor],
        outputs: dict[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
        starts: dict[str, int] | None = None,
        sparse: bool = False,
    ) -> None:
        self._originals = inputs
        self._end = GUARD_BYTES
        self.inputs = {name: self._slot(name, tensor) for name, tensor in inputs.items()}
        empty = {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in outputs.items()}
        self.outputs = {name: self._slot(name, one, (starts or {}).get(name, 0)) for name, one in empty.items()}
        length = -(-self._end // GRANULE_BYTES) * GRANULE_BYTES
        on_cpu = device.type == "cpu"
        self._far = {name: slot for name, slot in self.inputs.items() if on_cpu and slot.is_sparse}
        self._memory = _HostMemory(length, sparse or bool(self._far)) if on_cpu else DeviceMemory(length)
        self._device = device
        self.bytes, self.address, self.files = self._memory.bytes, self._memory.address, self._memory.files
        if sparse:
            return
        self.wipe()
        self.fill(self.copies(name for name, tensor in inputs.items() if tensor.device.type != "meta"))
        self.settle()

    def _slot(self, name: str, tensor: torch.Tensor, start: int = 0) -> Slot:
        """The next slot, `start` elements past an aligned address, with guard bands around it."""
        offset = -(-self._end // ALIGNMENT) * ALIGNMENT + start * tensor.element_size()
        slot = _slot_of(name, tensor, offset)
        self._end = offset + slot.length + GUARD_BYTES
        return slot

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory. Tensors in it must not be used any more."""
        del self.bytes
        self._memory.close()

    def wipe(self, wait: bool = True) -> None:
        """Overwrite all inputs and outputs with guard bytes and the fill pattern.

        Args:
            wait: whether to wait until that is done; on a GPU the work is only queued otherwise.
        """
        begin = 0
        for slot in self._far.values():
            self.bytes[begin : slot.offset].fill_(GUARD_BYTE)
            begin = slot.offset + slot.length
        self.bytes[begin:].fill_(GUARD_BYTE)
        for slot in self.outputs.values():
            slot.region(self.bytes).fill_(FILL_BYTE)
        if wait:
            self.settle()

    def copies(self, names: Iterable[str]) -> Copies:
        """The copies of these inputs into the arena, prepared for `fill`."""
        names = list(names)
        near = [name for name in names if name not in self._far]
        pairs = [(self.inputs[name].region(self.bytes), _storage_bytes(self._originals[name])) for name in near]
        places, originals = _unzipped(pair for pair in pairs if pair[1].numel())
        far = [name for name in names if name in self._far]
        places += [self._far[name].elements(self.bytes) for name in far]
        return places, originals + [self._originals[name] for name in far]

    def fill(self, copies: Copies) -> None:
        """Run prepared copies. On a GPU they are queued in few kernels, which takes the host no time."""
        if copies[0]:
            torch._foreach_copy_(*copies)

    def takes(self, names: Iterable[str], mine: Iterable[torch.Tensor]) -> Copies:
        """The copies of outputs into the judge's memory `mine`, contiguous tensors of the same sizes, prepared for
        `fill`.
        """
        both = zip(names, mine, strict=True)
        return _unzipped(
            (tensor.view(-1).view(torch.uint8), self.outputs[name].region(self.bytes)) for name, tensor in both
        )

    def still_holds(self, name: str, mine: torch.Tensor) -> bool:
        """Whether an output in the arena still equals its copy `mine` bit for bit."""
        return same_bits(mine, self.outputs[name].region(self.bytes))

    def forget(self) -> None:
        """Drop the judge's own inputs, so that their memory can be freed."""
        self._originals = {}

    def replace(self, inputs: dict[str, torch.Tensor]) -> None:
        """Replace the inputs by others of the same names, sizes and layouts. `fill` then copies them."""
        assert inputs.keys() == self.inputs.keys()
        for name, tensor in inputs.items():
            slot = self.inputs[name]
            assert _slot_of(name, tensor, slot.offset) == slot
        self._originals = inputs

    def settle(self) -> None:
        """Wait for all queued work of this process on the device; a worker's context would not wait."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def request(
        self, asked: Sequence[tuple[Sequence[str], str | None]], options: Iterable[Any], limit_s: float, **how: Any
    ) -> MakeCalls:
        """The request for one or several calls, each given by the names of its inputs and upstream gradient.

        The calls share out the outputs in order.

        Args:
            how: further fields of `protocol.MakeCalls`.
        """
        names = list(self.outputs)
        count = len(names) // len(asked)
        operands = (
            self.operands(args, upstream, names[number * count : (number + 1) * count])
            for number, (args, upstream) in enumerate(asked)
        )
        return MakeCalls(self.address, tuple(operands), tuple(options), limit_s, **how)

    def operands(self, args: Iterable[str], upstream: str | None, outputs: Iterable[str]) -> Operands:
        """The tensors of a call, by their names in the arena."""
        gradient = None if upstream is None else self.inputs[upstream].ref()
        return Operands(tuple(self.inputs[name].ref() for name in args), gradient, self.places(outputs))

    def places(self, outputs: Iterable[str]) -> tuple[Ref, ...]:
        """The places of these outputs."""
        return tuple(self.outputs[name].ref() for name in outputs)

    def output(self, name: str) -> torch.Tensor:
        """A private copy of an output; the worker cannot change the copy."""
        slot = self.outputs[name]
        return slot.region(self.bytes).clone().view(slot.dtype).view(slot.shape)

    def entries(self, name: str, start: int, count: int) -> torch.Tensor:
        """A view of `count` entries of dimension 0 of a contiguous input or output. A worker can change the entries."""
        slot = self.inputs.get(name) or self.outputs[name]
        whole = self.bytes[slot.start_bytes : slot.offset + slot.length].view(slot.dtype)
        return whole.view(slot.shape)[start : start + count]

    def changed_inputs(self, names: Iterable[str] | None = None) -> list[str]:
        """Names of the inputs (all, or the given ones) whose storage was changed."""
        found = []
        for name in self._originals if names is None else names:
            if (slot := self._far.get(name)) is not None:
                if not same_bits(self._originals[name].contiguous(), slot.elements(self.bytes).contiguous()):
                    found.append(name)
                continue
            mine, theirs = _storage_bytes(self._originals[name]), self.inputs[name].region(self.bytes)
            pairs = zip(mine.split(CHECK_BYTES), theirs.split(CHECK_BYTES), strict=True)
            if not all(torch.equal(*_words_of_both(*pair)) for pair in pairs):
                found.append(name)
        return found

    def out_of_bounds(self) -> list[OutOfBounds]:
        """Writes into guard bands, one for each band that was hit."""
        found = []
        slots = [*self.inputs.values(), *self.outputs.values()]
        bounds = [0, *(edge for slot in slots for edge in (slot.offset, slot.offset + slot.length)), self.bytes.numel()]
        for band in range(len(slots) + 1):
            start, end = bounds[2 * band], bounds[2 * band + 1]
            guard = self.bytes[start:end]
            # Words are compared first, which is much faster than finding the places at once.
            aligned = -guard.storage_offset() % 8
            last = aligned + (guard.numel() - aligned) // 8 * 8
            words, ends = guard[aligned:last].view(torch.int64), (guard[:aligned], guard[last:])
            if bool((words == GUARD_WORD).all()) and all(bool((one == GUARD_BYTE).all()) for one in ends):
                continue
            hits = torch.nonzero(guard != GUARD_BYTE).flatten()
            first, last = start + int(hits[0]), start + int(hits[-1])
            before, after = (slots[band - 1] if band else None), (slots[band] if band < len(slots) else None)
            if before is not None and (after is None or first - start <= end - 1 - last):
                places = _elements(hits, before.dtype.itemsize)
                found.append(OutOfBounds(before.name, first - start, len(places), tuple(places[:MAX_PLACES])))
            elif after is not None:
                places = [-1 - place for place in _elements(end - start - 1 - hits, after.dtype.itemsize)]
                found.append(OutOfBounds(after.name, last - end, len(places), tuple(places[:MAX_PLACES])))
        return found


def _slot_of(name: str, tensor: torch.Tensor, offset: int) -> Slot:
    """The slot of a tensor whose storage begins at `offset`."""
    start = offset + int(tensor.storage_offset()) * tensor.element_size()
    length = tensor.untyped_storage().nbytes()
    return Slot(name, offset, length, start, tensor.dtype, tuple(tensor.shape), tensor.stride())


def _elements(distances: torch.Tensor, size: int) -> list[int]:
    """Elements of `size` bytes that were hit. A written NaN may differ from the guard in some of its bytes only."""
    return [int(place) for place in torch.unique(distances // size)]


def _unzipped(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Copies:
    words = [_words_of_both(*pair) for pair in pairs]
    return [place for place, _ in words], [original for _, original in words]


def _words_of_both(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of both as 8-byte words if possible: words are copied and compared faster."""
    if all(data.numel() % 8 == 0 and data.data_ptr() % 8 == 0 for data in (one, other)):
        return one.view(torch.int64), other.view(torch.int64)
    return one, other


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two contiguous tensors hold the same bytes; NaN equals NaN, and -0 differs from 0."""
    return torch.equal(*_words_of_both(*(tensor.view(-1).view(torch.uint8) for tensor in (one, other))))


def _storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (storage.nbytes(),), (1,))


class _HostMemory:
    """An anonymous file of fixed size that the judge and the worker map."""

    def __init__(self, length: int, sparse: bool) -> None:
        self._file = os.memfd_create("grader-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            if sparse:
                os.ftruncate(self._file, length)
            else:
                os.posix_fallocate(self._file, 0, length)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._map = mmap.mmap(self._file, length)
        except OSError as error:
            os.close(self._file)
            raise MemoryError(f"{length} bytes of shared memory: {error.strerror}") from error
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self.files = (self._file,)
        self.address = Memory(length)

    def close(self) -> None:
        del self.bytes
        del self._map  # unmapped with its last view: closing a map under a view would crash the judge
        os.close(self._file)


class DeviceMemory:
    """A CUDA allocation that another process can open through CUDA IPC."""

    files: tuple[int, ...] = ()

    def __init__(self, length: int) -> None:
        from cuda.bindings import runtime

        torch.cuda.synchronize()
        none_left = runtime.cudaError_t.cudaErrorMemoryAllocation
        status, pointer = runtime.cudaMalloc(length)
        if status == none_left:
            torch.cuda.empty_cache()
            status, pointer = runtime.cudaMalloc(length)
        if status == none_left:
            raise MemoryError(f"{length} bytes of GPU memory")
        _succeeded("cudaMalloc", status)
        self._pointer = int(pointer)
        status, handle = runtime.cudaIpcGetMemHandle(self._pointer)
        _succeeded("cudaIpcGetMemHandle", status)
        data = (self._pointer, False)
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": data, "version": 3}
        self.bytes = torch.as_tensor(self, device="cuda")
        self.address = Memory(length, bytes(handle.reserved).hex())

    def close(self) -> None:
        from cuda.bindings import runtime

        del self.bytes
        torch.cuda.synchronize()
        (status,) = runtime.cudaFree(self._pointer)
        _succeeded("cudaFree", status)


def _succeeded(call: str, status: Any) -> None:
    if int(status) != 0:
        raise RuntimeError(f"{call}: {status.name}")
