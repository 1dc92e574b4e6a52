"""Runs the calls of one request on tensors in the judge's arena, and copies the results into the arena.

Objects that the student's function has touched are the student's: an attribute of a tensor may be code of theirs, and
so may whatever runs when the tensor is freed. So the worker takes results with PyTorch's functions as they were before
a submission was loaded, and only results that are exactly `torch.Tensor`; and the watch for PyTorch's operators ends
when the results lie in the arena and all that the call has left is freed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import torch

from grader import protocol
from grader.protocol import Returned
from grader.worker import interpreter
from grader.worker.errors import describe
from grader.worker.load import InPlace, check_signature
from grader.worker.memory import bytes_at, mapped, tensor_at
from grader.worker.operators import OperatorWatch, unwatched, watching
from grader.worker.profiling import profiled

FILL_BLOCK_BYTES = 1 << 30
COPIED_ALONE_BYTES = 4 << 20  # A GPU copies a smaller result in less time than Python takes to ask for the copy.
SMALL_BLOCK_BYTES = 1 << 20  # PyTorch's largest block for small tensors; two of them fill a segment.

_Tensor = torch.Tensor  # a parameter is a subclass
_backward: Callable[..., None] = _Tensor.backward
_detach, _copy, _copy_each = _Tensor.detach, _Tensor.copy_, torch._foreach_copy_
_address, _numel, _stride, _itemsize = _Tensor.data_ptr, _Tensor.numel, _Tensor.stride, _Tensor.element_size
_shape: Callable[..., torch.Size]
_shape, _dtype, _device = (vars(torch._C.TensorBase)[name].__get__ for name in ("shape", "dtype", "device"))
_name, _ancestors = type.__dict__["__name__"].__get__, type.__dict__["__mro__"].__get__  # a metaclass may have others
_collect = gc.collect

_earlier: list[torch.Tensor] = []  # results of the last request, if its `keep` was set


@dataclass(frozen=True)
class _Call:
    """One call of the function.

    Attributes:
        arguments, named: as they are passed to the function, by position and by name.
        inputs: the tensors among the arguments. With an `upstream` gradient, those of `wanted` are computed, in the
            last one of so many `backwards`.
        slots: the places of the results in the arena.
    """

    arguments: list[Any]
    inputs: list[torch.Tensor]
    upstream: torch.Tensor | None
    slots: list[torch.Tensor]
    named: dict[str, Any]
    wanted: list[torch.Tensor]
    backwards: int


def call(function: Callable[..., Any], request: protocol.MakeCalls, files: list[int], device: str) -> protocol.Reply:
    """Map the arena, make the calls, copy the results into the arena, and describe the results in the reply."""
    with mapped(request.arena, files, device) as memory:
        apart = request.apart
        calls = calls_of(memory, request)
        outputs = len(calls[0].slots)
        slots = [slot for one in calls for slot in one.slots]
        if not apart:
            _dirty_free_memory(slots, device)
        checks, launches = interpreter.INTERPRETER, 0
        checks.begin_call(memory, tensors_of(calls))
        watch = OperatorWatch(run=checks.run_operator)
        profile = device == "cuda" and request.record == "kernels"
        try:
            if type(function) is InPlace:
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
                returned = [Returned("written") for _ in slots]
                del given, written, places
            else:
                with watching(watch):
                    check_signature(function, calls[0].arguments, calls[0].named)
                    if profile:  # the first calls tune, which must not count as GPU time of the profiled calls
                        answers_of(function, calls)
                        forget_gradients(calls)
                    with profiled(profile) as kernels:
                        results = answers_of(function, calls, reverse=request.reverse)
                    launches = checks.launches
                    inputs = [one.inputs for one in calls for _ in one.slots]
                    with unwatched():
                        if launches and (words := checks.finding(results)):
                            watch.note(words, "")
                        returned = deliver(list(zip(results, slots, inputs, strict=True)))
                        in_use = _earlier[:]
                        for start in range(0, len(results), outputs):
                            mine = slice(start, start + outputs)
                            returned[mine] = _with_kept(results[mine], returned[mine], in_use)
                            in_use += _tensors(results[mine])
                        _earlier[:] = [_detach(one) for one in _tensors(results)] if request.keep else []
                        if device == "cuda":
                            torch.cuda.synchronize()
                    # Freeing one of these may run code of the student's, and so may a stream that they have put here.
                    del results, inputs, in_use, calls, slots
                    _collect()
                    for stream in (sys.stdout, sys.stderr):
                        with suppress(Exception):
                            stream.flush()
            if device == "cuda":
                torch.cuda.synchronize()
            checks.raise_fault()
        except BaseException as error:
            _earlier.clear()
            return failure(error, device)
        return protocol.Reply(
            tuple(returned),
            operators=watch.seen,
            kernels=tuple(kernels),
            launches=launches if device == "cpu" else None,
            launched=checks.launched,
        )


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
        wanted = []
        if upstream is not None:
            asked = request.wanted or [True] * len(inputs)
            inputs = [argument.detach().requires_grad_(want) for argument, want in zip(inputs, asked, strict=True)]
            wanted = list(compress(inputs, asked))
        slots = [tensor_at(memory, ref) for ref in one.outputs]
        arguments = [*inputs, *request.options]
        calls.append(_Call(arguments, inputs, upstream, slots, dict(request.named), wanted, request.backwards))
    return calls


def tensors_of(calls: Sequence[_Call]) -> list[torch.Tensor]:
    """The inputs and the upstream gradients of calls."""
    return [tensor for one in calls for tensor in (*one.inputs, one.upstream) if tensor is not None]


def answers_of(function: Callable[..., Any], calls: Sequence[_Call], reverse: bool = False) -> list[Any]:
    """The results of all calls, in their order. Every forward pass runs before the first backward pass.

    Args:
        reverse: whether the backward passes run from the last call to the first.
    """
    values = [function(*one.arguments, **one.named) for one in calls]
    if calls[0].upstream is None:
        return values
    found: dict[int, list[Any]] = {}
    for number in reversed(range(len(calls))) if reverse else range(len(calls)):
        one = calls[number]
        assert one.upstream is not None
        found[number] = gradients(values[number], one.wanted, one.upstream, one.backwards)
    return [result for number in range(len(calls)) for result in found[number]]


def forget_gradients(calls: list[_Call]) -> None:
    for tensor in (tensor for one in calls for tensor in one.inputs):
        tensor.grad = None


def _tensors(results: list[Any]) -> list[torch.Tensor]:
    return [result for result in results if type(result) is _Tensor]


def _with_kept(results: list[Any], returned: list[Returned], in_use: list[torch.Tensor]) -> list[Returned]:
    """The descriptions of a call's results. A result in memory of an earlier result, still `in_use`, becomes `kept`."""
    return [
        replace(words, kind="kept") if words.kind == "tensor" and any(overlap(result, one) for one in in_use) else words
        for result, words in zip(results, returned, strict=True)
    ]


def gradients(value: Any, inputs: list[torch.Tensor], upstream: torch.Tensor, backwards: int = 1) -> list[Any]:
    """The gradients of these inputs, from the last one of so many backward passes, then the result; `NotDifferentiable`
    for each if the result has no gradient.
    """
    if type(value) is not _Tensor or not value.requires_grad or value.shape != upstream.shape:
        return [NotDifferentiable(value)] * (len(inputs) + 1)
    for _ in range(backwards - 1):
        _backward(value, upstream, retain_graph=True)
        for tensor in inputs:
            tensor.grad = None
    _backward(value, upstream)
    return [*(tensor.grad for tensor in inputs), _detach(value)]


class NotDifferentiable:
    """Stands for the gradients of a result `value` that has none."""

    def __init__(self, value: Any) -> None:
        self.value = value


def deliver(given: Sequence[tuple[Any, torch.Tensor, list[torch.Tensor]]]) -> list[Returned]:
    """Copy each result that fits into its place in the arena, and describe all results; the judge decides which are right.

    Copying must be fast: in a timed batch, a submission that copied faster than the null worker would gain the
    difference. Large results are copied by the driver, the fastest way. Small results are copied together in few
    launches, because Python would need longer for one after another. Results are described while the GPU copies.

    Args:
        given: each result, its place, and the inputs of its call.
    """
    fitting = [(slot, _detach(result)) for result, slot, _ in given if _fits(result, slot)]
    small = [(slot, result) for slot, result in fitting if _nbytes(slot) < COPIED_ALONE_BYTES]
    for slot, result in fitting:
        if _nbytes(slot) >= COPIED_ALONE_BYTES:
            _copy(slot, result)
    if small:
        slots, results = zip(*small, strict=True)
        _copy_each(slots, results)
    return [_described(result, inputs) for result, _, inputs in given]


def _fits(result: Any, slot: torch.Tensor) -> bool:
    alike = type(result) is _Tensor and _dtype(result) == _dtype(slot) and _shape(result) == _shape(slot)
    return alike and _device(result) == _device(slot)


def _nbytes(tensor: torch.Tensor) -> int:
    return int(_numel(tensor) * _itemsize(tensor))


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the memory of two tensors, from the first element of each to its last, overlaps."""
    if not _numel(one) or not _numel(other):
        return False
    return _address(one) < _end(other) and _address(other) < _end(one)


def _end(tensor: torch.Tensor) -> int:
    last = sum((size - 1) * stride for size, stride in zip(_shape(tensor), _stride(tensor), strict=True))
    return _address(tensor) + (last + 1) * _itemsize(tensor)


def _described(result: Any, inputs: list[torch.Tensor]) -> Returned:
    if isinstance(result, NotDifferentiable):
        value = _described(result.value, [])
        return value if value.kind == "subclass" else replace(value, kind="not_differentiable")
    kind = type(result)
    name = _name(kind)[:100]
    if kind is not _Tensor:
        return Returned("subclass" if _Tensor in _ancestors(kind) else "other", name)
    is_input = _numel(result) and any(_address(result) == _address(tensor) for tensor in inputs)
    dtype, shape = str(_dtype(result)).removeprefix("torch."), tuple(_shape(result))
    return Returned("input" if is_input else "tensor", name, dtype, shape, _device(result).type)


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, and not a byte of memory around it."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _dirty_free_memory(slots: list[torch.Tensor], device: str) -> None:
    """Fill the memory that the student's next torch.empty will get with the fill pattern, so that unwritten elements show.

    PyTorch first takes gaps in segments that it could not free, then new segments. So this function allocates and frees
    one segment for small tensors and some for large tensors, and then fills every free block. On a CPU the allocator
    fills new memory (MALLOC_PERTURB_, set by the worker).
    """
    if device != "cuda":
        return
    torch.cuda.empty_cache()
    sizes = [SMALL_BLOCK_BYTES, *(min(slot.numel() * slot.element_size(), FILL_BLOCK_BYTES) for slot in slots)]
    with suppress(torch.OutOfMemoryError):  # then little free memory is left to fill
        blocks = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes * 2]
        del blocks
    for address, size in unused_blocks(torch.cuda.memory_snapshot()):
        bytes_at(address, size).fill_(protocol.FILL_BYTE)
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
