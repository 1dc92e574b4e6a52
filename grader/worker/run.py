"""Runs one call of the submission on tensors that lie in the judge's arena, and copies its results there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from grader import protocol
from grader.protocol import Returned
from grader.worker import absent_gpu
from grader.worker.errors import describe
from grader.worker.interpreting import LaunchWatch, MemoryChecks
from grader.worker.load import check_signature
from grader.worker.memory import bytes_at, mapped, tensor_at
from grader.worker.operators import OperatorWatch, watching
from grader.worker.profiling import profiled

FILL_BLOCK_BYTES = 1 << 30
COPIED_ALONE_BYTES = 4 << 20  # a device copies that much in less time than Python takes to ask for it
SMALL_BLOCK_BYTES = 1 << 20  # the largest that PyTorch takes from a segment for small tensors; two fill one

_earlier: list[torch.Tensor] = []  # results of the call before, where the judge wants them to be in use still


@dataclass(frozen=True)
class _Call:
    """One call of the function.

    arguments: as they are passed. inputs: the tensors among them, whose gradients are asked for where there is an `upstream` one.
    slots: the places of the results.
    """

    arguments: list[Any]
    inputs: list[torch.Tensor]
    upstream: torch.Tensor | None
    slots: list[torch.Tensor]


def call(function: Callable[..., Any], request: protocol.Call, files: list[int], device: str) -> protocol.Reply:
    """Map the arena, make the calls, copy the results out, describe what came back."""
    earlier = _earlier[:]
    _earlier.clear()
    with mapped(request.arena, files, device) as memory:
        apart = request.apart
        calls = _calls(memory, request)
        slots = [slot for one in calls for slot in one.slots]
        if not apart:
            _dirty_free_memory(slots, device)
        checks = MemoryChecks(
            memory, [tensor for one in calls for tensor in (*one.inputs, one.upstream) if tensor is not None]
        )
        watch, launches = OperatorWatch(after=checks.after_operator), LaunchWatch()
        profile = device == "cuda" and request.profiled
        try:
            if hasattr(function, "on_stream"):
                written = [_apart(slot) for slot in slots] if apart else slots
                places = iter(written)
                given = [[*one.arguments, *(next(places) for _ in one.slots)] for one in calls]
                if profile:
                    function(*given[0])  # what is done once, such as loading the kernel, is nobody's GPU time
                with profiled(profile) as kernels:
                    for arguments in given:
                        function(*arguments, late=not (profile or apart))
                for slot, own in zip(slots if apart else [], written, strict=False):
                    slot.copy_(own)
                results: list[Any] = []
                returned = [Returned("written") for _ in slots]
            else:
                check_signature(function, calls[0].arguments)
                if profile:  # what is done once, such as tuning, is nobody's GPU time
                    with watching(watch):
                        _answers(function, calls)
                    for tensor in calls[0].inputs:
                        tensor.grad = None
                with profiled(profile) as kernels, launches, watching(watch, absent_gpu.asking):
                    results = _answers(function, calls, reverse=request.reverse)
                inputs = [one.inputs for one in calls for _ in one.slots]
                returned = deliver(list(zip(results, slots, inputs, strict=True)))
                in_use = earlier
                for start in range(0, len(results), len(calls[0].slots)):
                    mine = slice(start, start + len(calls[0].slots))
                    returned[mine] = _with_kept(results[mine], returned[mine], in_use)
                    in_use = in_use + _tensors(results[mine])
                if request.keep:
                    _earlier.extend(result.detach() for result in _tensors(results))
            if device == "cuda":
                torch.cuda.synchronize()
            checks.raise_fault()
        except BaseException as error:
            return failure(error, device)
        del calls, slots, results
        launched = launches.count if device == "cpu" else None
        return protocol.Reply(tuple(returned), operators=watch.seen, kernels=tuple(kernels), launches=launched)


def failure(error: BaseException, device: str) -> protocol.Reply:
    """The reply to calls that raised an error."""
    return protocol.Reply(error=describe(error), broken=device == "cuda" and context_is_lost())


def _calls(memory: torch.Tensor, request: protocol.Call) -> list[_Call]:
    """The calls that are asked for. Where two refer to the same tensor, it is one object."""
    known: dict[protocol.Ref, torch.Tensor] = {}

    def tensor(ref: protocol.Ref) -> torch.Tensor:
        if ref not in known:
            known[ref] = _apart(tensor_at(memory, ref)) if request.apart else tensor_at(memory, ref)
        return known[ref]

    calls = []
    for one in request.calls:
        inputs = [tensor(ref) for ref in one.args]
        upstream = None if one.upstream is None else tensor(one.upstream)
        if upstream is not None:
            inputs = [argument.detach().requires_grad_() for argument in inputs]
        slots = [tensor_at(memory, ref) for ref in one.outputs]
        calls.append(_Call([*inputs, *request.options], inputs, upstream, slots))
    return calls


def _answers(function: Callable[..., Any], calls: Sequence[_Call], reverse: bool = False) -> list[Any]:
    """The results of all calls, in their order. Every forward pass runs before the first backward pass, the last call's if `reverse`."""
    values = [function(*one.arguments) for one in calls]
    if calls[0].upstream is None:
        return values
    found: dict[int, list[Any]] = {}
    for number in reversed(range(len(calls))) if reverse else range(len(calls)):
        upstream = calls[number].upstream
        assert upstream is not None
        found[number] = gradients(values[number], calls[number].inputs, upstream)
    return [result for number in range(len(calls)) for result in found[number]]


def _tensors(results: list[Any]) -> list[torch.Tensor]:
    return [result for result in results if type(result) is torch.Tensor]


def _with_kept(results: list[Any], returned: list[Returned], in_use: list[torch.Tensor]) -> list[Returned]:
    """What a call returned, with those marked that lie in memory of results of earlier calls that are still in use."""
    return [
        replace(words, kind="kept") if words.kind == "tensor" and any(overlap(result, one) for one in in_use) else words
        for result, words in zip(results, returned, strict=True)
    ]


def gradients(value: Any, inputs: list[torch.Tensor], upstream: torch.Tensor) -> list[Any]:
    """The gradients of all inputs and the result itself, or what came instead of a differentiable result."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.shape != upstream.shape:
        return [NotDifferentiable(value)] * (len(inputs) + 1)
    value.backward(upstream)
    return [*(tensor.grad for tensor in inputs), value.detach()]


class NotDifferentiable:
    """Stands for the gradients of a result that has none."""

    def __init__(self, value: Any) -> None:
        self.value = value


def deliver(given: Sequence[tuple[Any, torch.Tensor, list[torch.Tensor]]]) -> list[Returned]:
    """Copy results into their places in the arena where they fit, and say what they are; the judge decides whether that is right.

    given: each result, its place, and the inputs of its call. They are described while a GPU copies. In a timed batch it is copied as fast
        as can be: who hands in faster than the null contender has that much of a call for nothing. The driver's copy is the fastest for
        what is large; the small ones go in few launches, for what Python takes for one after the other would be time as well.
    """
    fitting = [(slot, result.detach()) for result, slot, _ in given if _fits(result, slot)]
    small = [(slot, result) for slot, result in fitting if slot.nbytes < COPIED_ALONE_BYTES]
    for slot, result in fitting:
        if slot.nbytes >= COPIED_ALONE_BYTES:
            slot.copy_(result)
    if small:
        slots, results = zip(*small, strict=True)
        torch._foreach_copy_(slots, results)
    return [_described(result, inputs) for result, _, inputs in given]


def _fits(result: Any, slot: torch.Tensor) -> bool:
    alike = type(result) is torch.Tensor and result.dtype == slot.dtype and result.shape == slot.shape
    return alike and result.device == slot.device


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors that are both in use have memory in common, from the first element of each to its last."""
    if not one.numel() or not other.numel():
        return False
    return one.data_ptr() < _end(other) and other.data_ptr() < _end(one)


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _described(result: Any, inputs: list[torch.Tensor]) -> Returned:
    if isinstance(result, NotDifferentiable):
        return replace(_described(result.value, []), kind="not_differentiable")
    name = type(result).__name__[:100]
    if not isinstance(result, torch.Tensor):
        return Returned("other", name)
    kind: Literal["subclass", "input", "tensor"] = "tensor"
    if type(result) is not torch.Tensor:
        kind = "subclass"
    elif result.numel() and any(result.data_ptr() == tensor.data_ptr() for tensor in inputs):
        kind = "input"
    return Returned(kind, name, str(result.dtype).removeprefix("torch."), tuple(result.shape), result.device.type)


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, and not a byte of memory around it."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _dirty_free_memory(slots: list[torch.Tensor], device: str) -> None:
    """Leave poison in the memory that the student's next torch.empty will get, so that elements they never write show.

    That is whatever PyTorch keeps for later: gaps in segments that it could not give back, which it takes first, and new segments,
    of which one for small tensors and some for large ones are asked for here. On the CPU the allocator does it (MALLOC_PERTURB_, set
    by the contender).
    """
    if device != "cuda":
        return
    torch.cuda.empty_cache()
    sizes = [SMALL_BLOCK_BYTES, *(min(slot.numel() * slot.element_size(), FILL_BLOCK_BYTES) for slot in slots)]
    with suppress(torch.OutOfMemoryError):  # then there is little left to be dirty
        blocks = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes * 2]
        del blocks
    for address, size in unused_blocks(torch.cuda.memory_snapshot()):
        bytes_at(address, size).fill_(protocol.POISON_BYTE)
    torch.cuda.synchronize()


def unused_blocks(segments: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Address and bytes of each free block of PyTorch's memory, from `torch.cuda.memory_snapshot()`."""
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                yield address, block["size"]
            address += block["size"]


def context_is_lost() -> bool:
    """Whether the CUDA context can no longer be used, as after an illegal memory access."""
    try:
        torch.cuda.synchronize()
        torch.zeros(1, device="cuda").item()
    except Exception:
        return True
    return False
