"""Maps the judge's memory into a worker, makes tensors in it, and tells where a tensor lies."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from typing import Any

import torch

from grader.protocol import Memory, Ref


@contextlib.contextmanager
def mapped(where: Memory, files: list[int], device: str) -> Iterator[torch.Tensor]:
    """The judge's memory as a tensor of bytes: a received file on a CPU, a CUDA IPC handle on a GPU."""
    if device == "cpu":
        yield torch.frombuffer(mmap.mmap(files[0], where.bytes), dtype=torch.uint8)
        return
    from cuda.bindings import runtime

    handle = runtime.cudaIpcMemHandle_t()
    handle.reserved = bytes.fromhex(where.handle)
    status, pointer = runtime.cudaIpcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess)
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaIpcOpenMemHandle: {status.name}")
    try:
        yield bytes_at(int(pointer), where.bytes)
    finally:
        runtime.cudaIpcCloseMemHandle(pointer)


def bytes_at(address: int, length: int) -> torch.Tensor:
    """GPU memory at an address, as a tensor of bytes."""
    return torch.as_tensor(_Pointer(address, length), device="cuda")


class _Pointer:
    """Device memory in the form that torch.as_tensor takes."""

    def __init__(self, pointer: int, length: int) -> None:
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def tensor_at(memory: torch.Tensor, ref: Ref) -> torch.Tensor:
    """The tensor of a reference, as a view of the arena."""
    dtype = getattr(torch, ref.dtype)
    start = ref.start_bytes // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=memory.device).set_(
        memory.untyped_storage(), start, ref.shape, ref.stride
    )


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
