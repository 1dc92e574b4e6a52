"""The judge's clock on one batch: inputs go in, the worker answers behind a gate, the judge takes the results.

docs/CLOCK.md shows the order of a batch, and says why no submission gets below the judge's time.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

import torch

from grader.judge.asking import UPSTREAM, check_memory
from grader.judge.gpu import Gauge
from grader.pool.arena import GRANULE_BYTES, Arena, DeviceMemory
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call
from grader.protocol import Prepare, RanOperator, Release, Returned, Tidy, Time

QUEUE_S = 0.004  # most seconds until a worker has queued its first calls
QUEUE_CALL_S = 0.0002  # more for each call, longer than launching one takes, forward and backward
FLUSH_BYTES = 256 << 20  # larger than any GPU's cache
BUSY_PASSES = 4  # over FLUSH_BYTES, to keep the GPU busy for a moment
WIDE_OPEN = 2**31 - 1


class Gate:
    """A word of GPU memory that the queued calls of a worker's batch wait for.

    A worker may write to its own gate. Its calls then run early, before the inputs are in the arena.
    """

    def __init__(self) -> None:
        self.memory = DeviceMemory(GRANULE_BYTES)
        self._word = self.memory.bytes[:4].view(torch.int32)
        self._word.zero_()
        self.number = 0

    def close_again(self) -> int:
        """Shut the gate until `open`. Returns the number that calls have to wait for."""
        self.number += 1
        return self.number

    def open(self, forever: bool = False) -> None:
        """Let the calls run once all queued work of this process is done."""
        self._word.fill_(WIDE_OPEN if forever else self.number)

    def close(self) -> None:
        """Free the memory. No call may be waiting."""
        del self._word
        self.memory.close()


@dataclass(frozen=True)
class Batch:
    """One batch of a worker.

    Attributes:
        claimed_s: mean seconds of a call, as the worker claims.
        wall_s: seconds from START to END of the whole batch by the judge's clock.
        collected: whether results were collected, not written to given outputs.
        kinds: results of each call, as the worker describes them.
        quiet: whether the GPU was quiet once the worker was frozen.
        operators: of PyTorch that ran, if the batch was watched.
    """

    calls: int
    claimed_s: float
    wall_s: float
    collected: bool
    kinds: tuple[tuple[Returned, ...], ...]
    quiet: bool
    operators: tuple[RanOperator, ...]


class InputSets:
    """An arena with one set of inputs for each of `calls`. Entrants map it and run batches by turns, and are frozen
    meanwhile.

    Args:
        calls: inputs of each set, all of the same shapes and strides.
        outputs: shape of each output, by name.
        dtype: of the outputs.
        gauge: of the arena's device.
        in_place: whether functions may write to given outputs beside the inputs, as CUDA C++ does.
        collected: number of calls whose results can be collected.

    Attributes:
        tidied_s: seconds that entrants took before batches to get ready; no clock counts them.
        gates: by worker, on a GPU.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        outputs: dict[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
        gauge: Gauge,
        in_place: bool = False,
        collected: int = 0,
    ) -> None:
        self.calls = calls
        self._gauge = gauge
        self._shapes, self._dtype, self._device = outputs, dtype, device
        self._in_place = in_place
        # Results that a worker keeps at a time: together larger than the GPU's cache, so that a worker that reuses
        # their memory in turn finds none of it there.
        one = sum(math.prod(shape) for shape in outputs.values()) * dtype.itemsize
        self._enough = max(2, math.ceil(4 * gauge.cache_bytes / max(one, 1))) if gauge.cache_bytes else len(calls)
        self.tidied_s = 0.0
        self._guests: list[Worker] = []
        self._flush = torch.empty(FLUSH_BYTES if device.type == "cuda" else 0, dtype=torch.uint8, device=device)
        self.gates: dict[Worker, Gate] = {}
        with ExitStack() as opened:
            arena = Arena(_inputs(calls), self._slots(len(calls)) if in_place else {}, dtype, device)
            self._arena = opened.enter_context(arena)
            self._collected: Arena | None = None
            if collected:
                self._collected = opened.enter_context(Arena({}, self._slots(collected), dtype, device))
            taken = [*outputs.values()] * max(collected, len(calls) if in_place else 0)
            self._mine = [torch.empty(shape, dtype=dtype, device=device) for shape in taken]
            self._memory = opened.pop_all()
        self._collectable = collected
        self._changed: list[str] = []  # inputs changed by the last batch
        self._place = self._arena  # holds the outputs of the last batch
        self._order: list[int] = []  # the place of each call's outputs in `_place`
        places = [place for place in (self._arena, self._collected) if place is not None and place.outputs]
        self._takes = {place: place.takes(place.outputs, self._mine[: len(place.outputs)]) for place in places}
        self._taken = False  # whether the judge has copied the outputs of the last batch

    def _slots(self, calls: int) -> dict[str, tuple[int, ...]]:
        return {_of(name, index): shape for index in range(calls) for name, shape in self._shapes.items()}

    def __enter__(self) -> InputSets:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the arena. Workers that live unmap it and are frozen again."""
        for gate in self.gates.values():
            gate.open(forever=True)  # else a call that still waits would wait for ever
        for worker in self._guests:
            if worker.lives():
                try:
                    worker.do(Release(), HOUSEKEEPING)
                    worker.freeze()
                except Fault:
                    worker.kill()
        del self._flush
        self._takes.clear()
        self._mine.clear()
        self._memory.close()

    def invite(self, worker: Worker, collects: bool) -> None:
        """Have a worker map the arena, and freeze it. Raises Fault.

        Args:
            collects: whether its results may be collected.
        """
        self._arena.wipe()
        if self._collected is not None:
            self._collected.wipe()  # outputs collected from a baseline are right answers
        sets = []
        for index, call in enumerate(self.calls):
            names = list(_tensors(call, index))
            upstream = names.pop() if call.upstream is not None else None
            sets.append(self._arena.operands(names, upstream, self._places(index) if self._in_place else []))
        self._guests.append(worker)
        gate = None
        if self._device.type == "cuda":
            self.gates[worker] = self._memory.enter_context(closing(Gate()))
            gate = self.gates[worker].memory.address
        files = self._arena.files
        request = Prepare(self._arena.address, tuple(sets), tuple(self.calls[0].options.values()), gate)
        if collects and self._collected is not None:
            files += self._collected.files
            results = tuple(self._collected.places(self._places(index)) for index in range(self._collectable))
            request = replace(request, places=self._collected.address, results=results)
        worker.do(request, HOUSEKEEPING, files)
        worker.freeze()

    def renew(self, draw: Callable[[int], Sequence[Call]]) -> None:
        """Draw new inputs for later batches, after the old ones are freed."""
        count = len(self.calls)
        self.calls = ()
        self._arena.forget()
        self.calls = draw(count)
        self._arena.replace(_inputs(self.calls))

    def run(
        self,
        worker: Worker,
        calls: int,
        limits: CallLimits,
        *,
        judged: bool = False,
        collect: bool = False,
        check: bool = False,
        watched: bool = False,
    ) -> Batch:
        """Run and time one batch on the first `calls` sets, and freeze the worker. Raises Fault.

        Args:
            judged: whether the judge's clock counts: the judge takes the results before END.
            collect: whether to collect results that were not written to given outputs; only from workers invited
                with `collects`.
            check: whether `check_memory` will be called.
            watched: whether to record PyTorch's operators and, with `check`, changed inputs. Such a batch is no measure
                of time.
        """
        names = [name for index, call in enumerate(self.calls[:calls]) for name in _tensors(call, index)]
        began = time.perf_counter()
        worker.do(Tidy(), limits)
        self.tidied_s += time.perf_counter() - began
        # Baselines are trusted, and may see old outputs. The null entrant is wiped too: its time is subtracted from
        # the submission's, so the same must come before both.
        if judged or not worker.trusted:
            if collect and self._collected is not None:
                self._collected.wipe(wait=False)
            self._arena.wipe(wait=False)
        copies = self._arena.copies(names)
        self._arena.settle()  # the wipe, and inputs still being drawn, must not be timed
        keep = calls if collect else self._enough
        if (gate := self.gates.get(worker)) is not None:
            worker.send(Time(calls, keep, watched, gate.close_again()))
            worker.wait_until_queued(QUEUE_S + QUEUE_CALL_S * calls)
        else:
            worker.freeze()  # on a CPU nobody works beside `fill`
        start = time.perf_counter()
        self._arena.fill(copies)
        if gate is not None:
            self._flush.zero_()
            gate.open()
        else:
            worker.send(Time(calls, keep, watched, gate=0))
        reply = worker.finish(calls, limits)
        written = bool(reply.kinds) and self._in_place
        self._place, self._order, self._changed = self._arena, list(range(calls)), []
        if watched and check and not written:
            self._changed = self._arena.changed_inputs(names)
        collected = collect and self._collected is not None and not written
        kinds = self._collect(worker, limits) if collected else ((Returned(kind="written"),),)
        self._taken = judged and self._place in self._takes
        if self._taken:
            number, (mine, places) = calls * len(self._shapes), self._takes[self._place]
            self._place.fill((mine[:number], places[:number]))
            self._place.settle()
        wall_s = time.perf_counter() - start
        worker.freeze()
        quiet = self._gauge.is_quiet(thoroughly=not worker.trusted)
        if check and written:
            self._changed = self._arena.changed_inputs(names)
        claimed_s = sum(reply.times_s) / calls
        return Batch(calls, claimed_s, wall_s, collected, kinds, quiet, reply.operators)

    def _collect(self, worker: Worker, limits: CallLimits) -> tuple[tuple[Returned, ...], ...]:
        assert self._collected is not None
        self._wipe_busily()  # work that starts from now on cannot read these inputs
        self._place = self._collected
        random.SystemRandom().shuffle(self._order)
        return worker.collect(self._order, limits)

    def _wipe_busily(self) -> None:
        """Wipe the arena, and keep the GPU busy until the next request has arrived."""
        self._arena.wipe(wait=False)
        if self._device.type == "cuda":
            wiped = torch.cuda.Event()
            wiped.record()
            for _ in range(BUSY_PASSES):
                self._flush.zero_()
            wiped.synchronize()

    def _places(self, *numbers: int) -> list[str]:
        return [_of(name, number) for number in numbers for name in self._shapes]

    def output(self, index: int) -> dict[str, torch.Tensor]:
        """The outputs of a call of the last batch, by name, in memory of the judge. Valid until the next batch.

        Raises:
            Fault: their place in the arena was written to after the batch.
        """
        number = self._order[index]
        if not self._taken:
            return {name: self._place.output(_of(name, number)) for name in self._shapes}
        first = number * len(self._shapes)
        outputs = dict(zip(self._shapes, self._mine[first : first + len(self._shapes)], strict=True))
        if not all(self._place.still_holds(_of(name, number), mine) for name, mine in outputs.items()):
            raise Fault.wrong(
                "outputs were still written when your function had returned and its stream was done: "
                "consistent with work on a stream or in a thread that nothing waits for"
            )
        return outputs

    def check_memory(self) -> None:
        """Raise Fault if the last batch, run with `check`, wrote to inputs or guard bands.

        If results are collected, inputs are wiped before that; their changes are seen only in a watched batch.
        """
        out_of_bounds = self._arena.out_of_bounds() + (
            self._place.out_of_bounds() if self._place is not self._arena else []
        )
        check_memory(self._changed, out_of_bounds, self._dtype)


HOUSEKEEPING = CallLimits(time_s=60.0, memory_gib=64.0)


def _inputs(calls: Sequence[Call]) -> dict[str, torch.Tensor]:
    return {name: tensor for index, call in enumerate(calls) for name, tensor in _tensors(call, index).items()}


def _tensors(call: Call, index: int) -> dict[str, torch.Tensor]:
    """The tensors of a set by their names in the arena, the upstream gradient last."""
    upstream = {} if call.upstream is None else {UPSTREAM: call.upstream}
    return {_of(name, index): tensor for name, tensor in (call.args | upstream).items()}


def _of(name: str, index: int) -> str:
    return f"{name} of call {index}"
