"""Maps the judge's memory into a worker, and makes tensors in it."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

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
