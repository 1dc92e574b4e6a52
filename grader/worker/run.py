"""Runs one call of the submission on tensors that lie in the judge's arena, and copies its results there."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import torch

from grader import protocol
from grader.worker.errors import describe
from grader.worker.load import check_signature

FILL_BLOCK_BYTES = 1 << 30


def call(function: Callable[..., Any], frame: protocol.Frame, files: list[int], device: str) -> protocol.Frame:
    """Answer a "call" frame: map the arena, run, copy the results out, describe what came back."""
    with _arena(frame["arena"], files, device) as memory:
        arguments: list[Any] = [_tensor(memory, ref) for ref in frame["args"]]
        upstream = _tensor(memory, frame["upstream"]) if frame["upstream"] else None
        slots = [_tensor(memory, ref) for ref in frame["outputs"]]
        inputs = list(arguments)
        if upstream is not None:
            arguments = [argument.detach().requires_grad_() for argument in arguments]
            inputs = list(arguments)
        arguments += frame["options"]
        _dirty_free_memory(slots, device)
        try:
            if getattr(function, "writes_to_output", False):
                function(*arguments, *slots)
                results: list[Any] = []
                returned: list[dict[str, Any]] = [{"kind": "written"}]
            else:
                check_signature(function, arguments)
                value = function(*arguments)
                results = [value] if upstream is None else _gradients(value, inputs, upstream)
                returned = [_deliver(result, slot, inputs) for result, slot in zip(results, slots, strict=True)]
            if device == "cuda":
                torch.cuda.synchronize()
        except BaseException as error:
            return {"ok": False, "error": describe(error), "broken": device == "cuda" and _context_is_lost()}
        reply = {"ok": True, "returned": returned}
        del arguments, inputs, upstream, slots, results
        return reply


def _gradients(value: Any, inputs: list[torch.Tensor], upstream: torch.Tensor) -> list[Any]:
    """The gradients of all inputs, or what came instead of a differentiable result."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.shape != upstream.shape:
        return [_NotDifferentiable(value)] * len(inputs)
    value.backward(upstream)
    return [tensor.grad for tensor in inputs]


class _NotDifferentiable:
    """Stands for the gradients of a result that has none."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _deliver(result: Any, slot: torch.Tensor, inputs: list[torch.Tensor]) -> dict[str, Any]:
    """Copy a result into its place in the arena where it fits, and say what it is; the judge decides whether that is right."""
    if isinstance(result, _NotDifferentiable):
        return _deliver(result.value, torch.empty(0), []) | {"kind": "not_differentiable"}
    if not isinstance(result, torch.Tensor):
        return {"kind": "other", "type": type(result).__name__[:100]}
    described = {
        "kind": "tensor",
        "type": type(result).__name__[:100],
        "dtype": str(result.dtype).removeprefix("torch."),
        "shape": list(result.shape),
        "device": result.device.type,
    }
    if type(result) is not torch.Tensor:
        return described | {"kind": "subclass"}
    if result.numel() and any(result.data_ptr() == tensor.data_ptr() for tensor in inputs):
        described["kind"] = "input"
    if result.dtype == slot.dtype and result.shape == slot.shape and result.device == slot.device:
        slot.copy_(result.detach())
    return described


def _tensor(memory: torch.Tensor, ref: dict[str, Any]) -> torch.Tensor:
    """The tensor that a reference describes, as a view of the arena."""
    dtype = getattr(torch, ref["dtype"])
    start = ref["start_bytes"] // dtype.itemsize
    return torch.empty(0, dtype=dtype, device=memory.device).set_(
        memory.untyped_storage(), start, ref["shape"], ref["stride"]
    )


@contextlib.contextmanager
def _arena(where: dict[str, Any], files: list[int], device: str) -> Iterator[torch.Tensor]:
    """The judge's memory as a tensor of bytes: a passed file on the CPU, a CUDA IPC handle on a GPU."""
    if device == "cpu":
        yield torch.frombuffer(mmap.mmap(files[0], where["bytes"]), dtype=torch.uint8)
        return
    from cuda.bindings import runtime

    handle = runtime.cudaIpcMemHandle_t()
    handle.reserved = bytes.fromhex(where["handle"])
    status, pointer = runtime.cudaIpcOpenMemHandle(handle, runtime.cudaIpcMemLazyEnablePeerAccess)
    if status != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaIpcOpenMemHandle: {status.name}")
    try:
        yield torch.as_tensor(_Pointer(int(pointer), where["bytes"]), device="cuda")
    finally:
        runtime.cudaIpcCloseMemHandle(pointer)


class _Pointer:
    """Device memory as torch.as_tensor takes it."""

    def __init__(self, pointer: int, length: int) -> None:
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": (pointer, False), "version": 3}


def _dirty_free_memory(slots: list[torch.Tensor], device: str) -> None:
    """Leave poison in the memory that the student's next torch.empty will get, so that elements they never write show.

    On the CPU the allocator does it (MALLOC_PERTURB_, set by the contender).
    """
    if device != "cuda":
        return
    torch.cuda.empty_cache()
    sizes = [min(slot.numel() * slot.element_size(), FILL_BLOCK_BYTES) for slot in slots]
    blocks = [
        torch.full((max(size, 512),), protocol.POISON_BYTE, dtype=torch.uint8, device="cuda") for size in sizes * 2
    ]
    torch.cuda.synchronize()
    del blocks


def _context_is_lost() -> bool:
    """Whether the CUDA context can no longer be used, as after an illegal memory access."""
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except Exception:
        return True
    return False
