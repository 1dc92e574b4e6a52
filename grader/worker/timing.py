"""Runs batches of timed calls on input sets that lie in the judge's arena.

What is measured here is a claim: the judge holds it against its own clock (`grader/judge/timing.py`).
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
from grader.worker.load import check_signature
from grader.worker.memory import mapped, tensor_at
from grader.worker.operators import OperatorWatch, watching
from grader.worker.run import deliver, failure, gradients

MAX_KINDS = 8
Tell: TypeAlias = Callable[[], None]


class Bench:
    """Input sets of a speed case, mapped until `close`.

    Args:
        request: what to map.
        files: what came with it.
        device: `cpu` or `cuda`.
    """

    def __init__(self, request: protocol.Prepare, files: list[int], device: str) -> None:
        gc.collect()
        gc.freeze()  # modules by the thousand, after torch.compile: looking through them takes a tenth of a second
        gc.disable()  # until `close`: a collection in a batch would be part of it
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
        self._places: list[list[torch.Tensor]] = []  # where the results of each call are to be copied
        if request.places is not None:
            memory = self._stack.enter_context(mapped(request.places, files[-1:], device))
            self._places = [[tensor_at(memory, ref) for ref in refs] for refs in request.results]
            del memory
        self.results: list[list[Any]] = []  # of each call of the last batch, until they are collected
        self._gate = self._stack.enter_context(mapped(request.gate, [], device)) if request.gate else None

    def close(self) -> None:
        """Give back the arena and what the calls have left in PyTorch's allocator."""
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

        `tell` tells the judge, if there is a gate, that all calls stand behind it. `kinds` is in the reply if the function wrote to its
        outputs.
        """
        watch = OperatorWatch()
        try:
            on_stream = getattr(function, "on_stream", None)
            if on_stream is None:
                with watching(watch) if request.watched else contextlib.nullcontext():
                    times_s = self._run(function, request, tell)
                return protocol.Reply(times_s=times_s, operators=watch.seen)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                times_s = self._run(on_stream(stream), request, tell, writes=True)
            return protocol.Reply(times_s=times_s, kinds=((protocol.Returned("written"),),))
        except BaseException as error:
            return self._failure(error)

    def collect(self, order: Sequence[int]) -> protocol.Reply:
        """Copy the results of each call of the last batch to its place; `kinds` are the different descriptions of what came back.

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
        """Seconds of each call. `writes`: the function writes to its outputs, which follow the inputs.

        All calls are queued while the GPU waits for the inputs to be there, so that it need not wait for the host between them.
        """
        self.results = []
        marks = [
            self._mark() for _ in range(request.calls + 1)
        ]  # one between two calls: no time of a batch is nobody's
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
        """What the null contender returns: new tensors, as any call's results are, where they will be collected."""
        return [torch.empty_like(slot) for slot in self._places[0]] if self._places else [yardsticks.NOTHING]

    def _failure(self, error: BaseException) -> protocol.Reply:
        self.results = []
        return failure(error, self._device)

    def _mark(self) -> Any:
        return _DeviceMark() if self._device == "cuda" else _HostMark()


def wait_for(word: torch.Tensor, number: int) -> None:
    """Let the current stream wait until the word, of 32 bits in GPU memory, is at least this number. The host does not wait."""
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
