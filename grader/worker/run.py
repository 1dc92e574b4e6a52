"""Runs the calls of one request on tensors in the judge's arena, and copies the results into the arena."""

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
COPIED_ALONE_BYTES = 4 << 20  # a GPU copies less than this in less time than Python takes to request the copy
SMALL_BLOCK_BYTES = 1 << 20  # PyTorch's largest block from a segment for small tensors; two blocks fill a segment

_earlier: list[torch.Tensor] = []  # results of the last request, if its `keep` was set


@dataclass(frozen=True)
class _Call:
    """One call of the function.

    Attributes:
        arguments: as they are passed to the function.
        inputs: the tensors among the arguments. With an `upstream` gradient, their gradients are computed.
        slots: the places of the results in the arena.
    """

    arguments: list[Any]
    inputs: list[torch.Tensor]
    upstream: torch.Tensor | None
    slots: list[torch.Tensor]


def call(function: Callable[..., Any], request: protocol.MakeCalls, files: list[int], device: str) -> protocol.Reply:
    """Map the arena, make the calls, copy the results into the arena, and describe the results in the reply."""
    earlier = _earlier[:]
    _earlier.clear()
    with mapped(request.arena, files, device) as memory:
        apart = request.apart
        calls = calls_of(memory, request)
        slots = [slot for one in calls for slot in one.slots]
        if not apart:
            _dirty_free_memory(slots, device)
        checks = MemoryChecks(
            memory, [tensor for one in calls for tensor in (*one.inputs, one.upstream) if tensor is not None]
        )
        watch, launches = OperatorWatch(run=checks.run_operator), LaunchWatch()
        profile = device == "cuda" and request.profiled
        try:
            if hasattr(function, "on_stream"):
                written = [_apart(slot) for slot in slots] if apart else slots
                places = iter(written)
                given = [[*one.arguments, *(next(places) for _ in one.slots)] for one in calls]
                if profile:
                    function(*given[0])  # loads the kernel, which must not count as GPU time of the profiled calls
                with profiled(profile) as kernels:
                    for arguments in given:
                        function(*arguments, late=not (profile or apart))
                for slot, own in zip(slots if apart else [], written, strict=False):
                    slot.copy_(own)
                results: list[Any] = []
                returned = [Returned("written") for _ in slots]
            else:
                check_signature(function, calls[0].arguments)
                if profile:  # the first calls tune, which must not count as GPU time of the profiled calls
                    with watching(watch):
                        answers_of(function, calls)
                    for tensor in calls[0].inputs:
                        tensor.grad = None
                with profiled(profile) as kernels, launches, watching(watch, absent_gpu.asking):
                    results = answers_of(function, calls, reverse=request.reverse)
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
        seen, told = watch.seen, checks.launched
        return protocol.Reply(tuple(returned), operators=seen, kernels=tuple(kernels), launches=launched, launched=told)


def failure(error: BaseException, device: str) -> protocol.Reply:
    """The reply to calls that raised an error."""
    return protocol.Reply(error=describe(error), broken=device == "cuda" and context_is_lost())


def calls_of(memory: torch.Tensor, request: protocol.MakeCalls) -> list[_Call]:
    """The calls of a request. A tensor that several calls refer to is one object."""
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


def answers_of(function: Callable[..., Any], calls: Sequence[_Call], reverse: bool = False) -> list[Any]:
    """The results of all calls, in their order. Every forward pass runs before the first backward pass.

    Args:
        reverse: whether the backward passes run from the last call to the first.
    """
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
    """The descriptions of a call's results. A result in memory of an earlier result, still `in_use`, becomes `kept`."""
    return [
        replace(words, kind="kept") if words.kind == "tensor" and any(overlap(result, one) for one in in_use) else words
        for result, words in zip(results, returned, strict=True)
    ]


def gradients(value: Any, inputs: list[torch.Tensor], upstream: torch.Tensor) -> list[Any]:
    """The gradients of all inputs, then the result; `NotDifferentiable` for each if the result has no gradient."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.shape != upstream.shape:
        return [NotDifferentiable(value)] * (len(inputs) + 1)
    value.backward(upstream)
    return [*(tensor.grad for tensor in inputs), value.detach()]


class NotDifferentiable:
    """Stands for the gradients of a result `value` that has none."""

    def __init__(self, value: Any) -> None:
        self.value = value


def deliver(given: Sequence[tuple[Any, torch.Tensor, list[torch.Tensor]]]) -> list[Returned]:
    """Copy each result that fits into its place in the arena, and describe all results; the judge decides which are right.

    Copying must be fast: in a timed batch, a submission that copied faster than the null contender would gain the
    difference. Large results are copied by the driver, the fastest way. Small results are copied together in few
    launches, because Python would need longer for one after another. Results are described while the GPU copies.

    Args:
        given: each result, its place, and the inputs of its call.
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
    """Whether the memory of two tensors, from the first element of each to its last, overlaps."""
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
    """Fill the memory that the student's next torch.empty will get with poison, so that unwritten elements show.

    PyTorch first takes gaps in segments that it could not free, then new segments. So this function allocates and frees
    one segment for small tensors and some for large tensors, and then fills every free block. On a CPU the allocator
    fills new memory (MALLOC_PERTURB_, set by the contender).
    """
    if device != "cuda":
        return
    torch.cuda.empty_cache()
    sizes = [SMALL_BLOCK_BYTES, *(min(slot.numel() * slot.element_size(), FILL_BLOCK_BYTES) for slot in slots)]
    with suppress(torch.OutOfMemoryError):  # then little free memory is left to fill
        blocks = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes * 2]
        del blocks
    for address, size in unused_blocks(torch.cuda.memory_snapshot()):
        bytes_at(address, size).fill_(protocol.POISON_BYTE)
    torch.cuda.synchronize()


def unused_blocks(segments: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Address and size in bytes of each free block in segments as `torch.cuda.memory_snapshot()` returns them."""
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
