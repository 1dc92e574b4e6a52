"""Runs batches of timed calls on sets of inputs in the judge's arena.

The times are claims: the judge compares them with its own clock (`grader/judge/timing.py`).
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any, TypeAlias

import torch

from grader import protocol
from grader.worker import yardsticks
from grader.worker.load import InPlace, check_signature
from grader.worker.memory import mapped, tensor_at
from grader.worker.operators import OperatorWatch, in_contexts, unwatched, watching
from grader.worker.run import deliver, failure, gradients

MAX_KINDS = 8  # So many different descriptions of results are kept; they only choose words.
Tell: TypeAlias = Callable[[], None]


class MappedBench:
    """The sets of a speed case, mapped until `close`.

    Args:
        request: the memory to map.
        files: the files sent with the request.
        device: `cpu` or `cuda`.
    """

    def __init__(self, request: protocol.Prepare, files: list[int], device: str) -> None:
        gc.collect()
        gc.freeze()  # thousands of modules, after torch.compile: looking through them takes a tenth of a second
        gc.disable()  # until `close`: a collection would be timed with the batch
        self._device = device
        self._checked = False
        self._stack = contextlib.ExitStack()
        memory = self._stack.enter_context(mapped(request.arena, files, device))
        self._options = request.options
        self._sets = [
            (
                [tensor_at(memory, ref) for ref in one.args],
                None if one.upstream is None else tensor_at(memory, one.upstream),
                [tensor_at(memory, ref) for ref in one.outputs],
            )
            for one in request.sets
        ]
        del memory
        self._places: list[list[torch.Tensor]] = []  # the places of each call's collected results
        if request.places is not None:
            memory = self._stack.enter_context(mapped(request.places, files[-1:], device))
            self._places = [[tensor_at(memory, ref) for ref in refs] for refs in request.results]
            del memory
        self.results: list[list[Any]] = []  # of each call of the last batch, until they are collected
        self._gate = self._stack.enter_context(mapped(request.gate, [], device)) if request.gate else None

    def close(self) -> None:
        """Unmap the arena, and free the memory that calls have left in PyTorch's allocator."""
        self._sets.clear()
        self._places.clear()
        self.results = []
        self._gate = None
        gc.collect()
        if self._device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self._stack.close()
        gc.enable()

    def time(self, function: Callable[..., Any], request: protocol.Time, tell: Tell) -> protocol.Reply:
        """Call `function` on the first sets, one after another.

        If there is a gate, `tell` tells the judge that all calls are queued behind it. The reply has `kinds` if the
        function wrote to given outputs.
        """
        watch = OperatorWatch()
        try:
            if type(function) is not InPlace:
                with watching(watch) if request.watched else in_contexts():
                    times_s = self._run(function, request, tell)
                return protocol.Reply(times_s=times_s, operators=watch.seen)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                times_s = self._run(function.on_stream(stream), request, tell, writes=True)
            return protocol.Reply(times_s=times_s, kinds=((protocol.Returned("written"),),))
        except BaseException as error:
            return self._failure(error)

    def collect(self, order: Sequence[int]) -> protocol.Reply:
        """Copy the results of each call of the last batch to its place. The reply's `kinds` are the different
        descriptions of results.

        Args:
            order: the number of each call's place.
        """
        try:
            places = [self._places[number] for number in order]
            kinds: list[tuple[protocol.Returned, ...]] = []
            given = [
                (result, slot, arguments)
                for (arguments, _, _), results, slots in zip(self._sets, self.results, places, strict=False)
                for result, slot in zip(results, slots, strict=True)
            ]
            with unwatched():
                words = iter(deliver(given))
            for _, slots in zip(self.results, places, strict=False):
                described = tuple(next(words) for _ in slots)
                if described not in kinds and len(kinds) < MAX_KINDS:
                    kinds.append(described)
            self.results = []
            if self._device == "cuda":
                torch.cuda.synchronize()
            return protocol.Reply(kinds=tuple(kinds))
        except BaseException as error:
            return self._failure(error)

    def _run(
        self, function: Callable[..., Any], request: protocol.Time, tell: Tell, writes: bool = False
    ) -> tuple[float, ...]:
        """Run the batch, and return the seconds of each call. With `writes`, the function takes outputs after the
        inputs.

        All calls are queued while the GPU waits at the gate, so the GPU never waits for the host between them.
        """
        self.results = []
        # One mark between two calls, so that each moment of a batch belongs to a call.
        marks = [self._mark() for _ in range(request.calls + 1)]
        if self._gate is not None and request.gate:
            wait_for(self._gate, request.gate)
        marks[0].record()
        for (arguments, upstream, slots), end in zip(self._sets[: request.calls], marks[1:], strict=True):
            given: list[Any] = arguments
            if upstream is not None:
                given = [argument.detach().requires_grad_() for argument in arguments]
            complete = [*given, *self._options, *(slots if writes else [])]
            if not writes and not self._checked:
                check_signature(function, complete)
                self._checked = True
            value = function(*complete)
            if value is yardsticks.NOTHING:
                results = self._untouched()
            else:
                results = [value] if upstream is None else gradients(value, given, upstream)
            end.record()
            self.results.append(results)
            if len(self.results) > request.keep:
                self.results[-request.keep - 1] = []
            del value, results
        if request.gate:
            tell()
        if self._device == "cuda":
            torch.cuda.synchronize()
        return tuple(start.seconds_to(end) for start, end in pairwise(marks))

    def _untouched(self) -> list[Any]:
        """The null worker's results: new tensors like any call's, if results will be collected."""
        return [torch.empty_like(slot) for slot in self._places[0]] if self._places else [yardsticks.NOTHING]

    def _failure(self, error: BaseException) -> protocol.Reply:
        self.results = []
        return failure(error, self._device)

    def _mark(self) -> Any:
        return _DeviceMark() if self._device == "cuda" else _HostMark()


def wait_for(word: torch.Tensor, number: int) -> None:
    """Let the current stream wait until a 32-bit word in GPU memory is at least `number`. The host does not wait."""
    from cuda.bindings import driver

    at_least = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    (status,) = driver.cuStreamWaitValue32(torch.cuda.current_stream().cuda_stream, word.data_ptr(), number, at_least)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuStreamWaitValue32: {status.name}")


class _DeviceMark:
    """A CUDA event in the current stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        self._event.record()

    def seconds_to(self, later: _DeviceMark) -> float:
        return float(self._event.elapsed_time(later._event)) / 1e3


class _HostMark:
    """A moment of the host's clock."""

    def __init__(self) -> None:
        self._moment = 0.0

    def record(self) -> None:
        self._moment = perf_counter()

    def seconds_to(self, later: _HostMark) -> float:
        return later._moment - self._moment
