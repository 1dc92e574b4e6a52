"""The judge's own clock: how long a batch of calls took, whatever the process that ran it says.

A worker times its calls with CUDA events and sends the numbers. It runs the student's code, so they are a claim. The judge times
the same batch from outside:

    wipe      the arena holds nothing but filler; nobody has had the inputs of this batch yet
    ask       the worker is asked for k calls, and on a GPU queues them behind a gate, a word of memory that the GPU waits for, until it
              says that all are there, but not for long
    start     -----------------------------------------------------------------------------------------------------
    fill      the judge copies k sets of new inputs into the arena: before this they are in no memory that the worker maps
    open      the judge clears the GPU's cache and writes the gate's word; on a CPU the worker is asked only now
    call      the worker answers when its calls are done, and keeps the results
    wipe      the inputs are gone
    collect   the worker copies its k results to where the judge will look, each to a place that it is told only now
    take      the judge copies each result to memory that nobody else has
    end       -----------------------------------------------------------------------------------------------------
    freeze    SIGSTOP to the worker's processes
    probe     a small piece of the judge's own work finds the GPU to itself, before anyone else is timed
    check     each copy must be within its error budget; and its place must not have been written to since

(A function in CUDA C++ writes to outputs that lie beside its inputs: those are taken, and nothing is wiped or collected before.)

A null contender goes through the same with the same k: it returns new tensors, as many as a submission, and computes nothing. The
difference is the submission's own:

    judged = (start to end, of the submission − what the null contender usually takes) / k

Why no submission gets below that:

- It cannot begin before `start`. The inputs are drawn by the judge for this batch alone, and no one maps them until `fill`. Nothing
  computed for earlier inputs is an answer to these: every output is checked, so nothing can be remembered, by pointer, shape or count,
  and no recorded graph replayed on stale data. A second race does not repeat the first one's inputs: another worker could have written
  down the answers. What runs before `fill`, on whatever stream, runs on filler.
- It cannot go on after `end`. What is checked is what the judge had taken by then, in memory of its own. (A sum over the bytes would not
  do: within a tolerance there is a right answer for any sum, and what is written later could be made to have it.) It does not matter
  whether a thread, a kernel or a copy on some stream that nobody sees writes later, or whether the worker stands still by then. SIGSTOP
  does not stop what a process has queued on a GPU, and `probe` sees only what runs at that moment: nothing here relies on either.
- It gains nothing that computes by putting work off until the results are collected. The inputs are wiped by then: what it needs of them
  it must have written down while it was timed. But an honest submission copies its results then, and what that takes is subtracted: who
  has written down fewer bits than a result has, and makes the rest of it then, saves them twice. A float32 result may be right with 17
  bits of 32, one in bfloat16 with 8 of 16: by this clock a call that does nothing but read and write can seem to take
  little more than half of its time, though never less than the machine's limit. (Not to count what is handed in faster than by the
  null contender is no way out: noise then only adds, and honest claims on an H200 were lifted by 2 to 6 %.) It is the
  driver that copies, as fast as the device can: a worker whose copies are faster has the difference. Who writes to the places ahead of
  time does not know whose they will be: of k results one lies where it must, on average.
- It gains little by merging calls: returning tensors that hold nothing yet, and computing all k results in the last launch. All of it
  still lies between `start` and `end`, and both clocks divide the whole batch by k, so what is saved is k - 1 gaps between launches, about
  2 microseconds each on an H200, and the idle multiprocessors at the end of each launch. That is some thousandths of a call that takes a
  millisecond. Of a small case it may be much; there the machine's limit is the bound where `roofline` is `copy`: the copy is timed with a
  launch for each call, so merged calls count as no faster than a copy that reads and writes as much. A small case with the `matmul`
  roofline has no such bound: leave it out of problem.toml.
- It cannot overlap its work with the judge's. A GPU lets processes run by turns, and the judge keeps it busy from `start` until the gate
  opens, while it wipes and until the next request has arrived: what a submission runs beside that makes it longer. What is left are
  the moments in which the GPU waits for the host, before the wipe and before results are taken. They are subtracted with the null
  contender's time, and code that works in them gains as much: on an H200 0.3 and 0.2 ms of a batch, 6 % of one that lasts 8 ms.
- A submission does not choose how many calls there are so as to make that more of a call: `Race` has enough of them for what the
  machine's limit allows, not only for what was claimed while it warmed up. Nor does it leave no memory for them: what it holds then, if
  there is room for fewer, is seen when it is ended, and more than it may hold is `out_of_memory`.
- It cannot move the clock: it is the judge's, in the judge's process, and nothing is asked of the worker in between but to be done.
- It cannot make the null contender or the baselines slower to any use. A frozen process may have work on the GPU's queue that starts when
  theirs does: so all of them run once more, by turns, when it has been ended. No time of a baseline in the rounds counts that is longer
  than then by more than `margin`, and none of the null contender's by more than 0.15 ms.

k calls are held against none, not against fewer calls, on purpose. A slope between two batch sizes looks finer, but a submission that
sees it is in the shorter batch can waste time there, and the slope falls below the truth. Time wasted in a single batch is only ever added.

What counts is not below the median of the judge's times by more than `margin` (problem.toml, [timing]); and when the claim is that far
below even the lower end of their interval, all of the judge's time counts and the case is marked "not corroborated". So up to that margin
can be gained, and what the judge's time is too small by; and up to that margin by making a baseline slower. On an H200 the judge's time
lay, the median of five rounds, between 2 % below and 5 % above the claims of honest kernels, and from 4 % below to 5 % above where a call
takes 0.05 ms. Otherwise the claim counts, because it is the finer one: it repeats within a few tenths of a percent. Where the judge's
clock lifts a claim, there are further rounds, then a second race (`grader/judge/heats.py`). And no time counts that is below what the
machine's own limit takes (`roofline` in problem.toml).

What it costs: the null contender's batch in each round, and memory for a whole batch of inputs, twice, and of outputs, four
times where they are collected.

All this takes for granted that a worker cannot reach into the processes of the others: see `grader/contender/jail.py`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.contender.arena import GRANULE_BYTES, Arena, DeviceMemory
from grader.contender.contender import Contender, Limits
from grader.contender.replies import ContenderFault
from grader.judge.asking import UPSTREAM, check_memory
from grader.judge.evidence import CheckFailed
from grader.judge.gpu import Gauge
from grader.problem import Call
from grader.protocol import Prepare, RanOperator, Release, Results, Returned, Tidy, Time

QUEUE_S = 0.004  # at most, until a worker that was asked has queued its first calls
QUEUE_CALL_S = 0.0002  # and for each call: more than it takes to launch one, forward and backward
FLUSH_BYTES = 256 << 20  # more than any GPU's cache
BUSY_PASSES = 4  # over so much memory: 0.3 ms on an H200
WIDE_OPEN = 2**31 - 1


class Gate:
    """What all calls of one contender's batch wait for on a GPU, once they stand in the queue: a word of its memory.

    A worker could write to its own. Its calls would then run on what the arena holds before the inputs are there.
    """

    def __init__(self) -> None:
        self.memory = DeviceMemory(GRANULE_BYTES)
        self._word = self.memory.bytes[:4].view(torch.int32)
        self._word.zero_()
        self.number = 0

    def close_again(self) -> int:
        """Shut it until `open`; returns the number to wait for."""
        self.number += 1
        return self.number

    def open(self, forever: bool = False) -> None:
        """Let the calls run when all that this process has queued is done."""
        self._word.fill_(WIDE_OPEN if forever else self.number)

    def close(self) -> None:
        """Give the memory back; nobody may wait any more."""
        del self._word
        self.memory.close()


@dataclass(frozen=True)
class Batch:
    """One batch.

    claimed_s: what the worker says a call took, on average.
    wall_s: from `start` to `end`, by the judge's clock.
    collected: whether results were, and were not written in place.
    kinds: what came back.
    quiet: whether the GPU was, when the contender had been frozen.
    operators: PyTorch's that ran, if the batch was watched.
    """

    calls: int
    claimed_s: float
    wall_s: float
    collected: bool
    kinds: tuple[tuple[Returned, ...], ...]
    quiet: bool
    operators: tuple[RanOperator, ...]


class Bench:
    """An arena with `len(calls)` sets of inputs, which contenders map and run batches on.

    A context manager. Contenders are frozen but while they run.

    Args:
        calls: a set's inputs each; all of the same shapes and strides.
        outputs: shape of each output, by name.
        dtype: of the outputs.
        device: where it all lies.
        gauge: of the same device.
        in_place: whether functions may write to outputs that lie beside the inputs, as the contract of CUDA C++ has it.
        collected: of how many calls results can be collected.
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
        # So many results are more than the GPU's cache holds: who keeps no more than these takes turns with memory that is not in it.
        one = sum(math.prod(shape) for shape in outputs.values()) * dtype.itemsize
        self._enough = max(2, math.ceil(4 * gauge.cache_bytes / max(one, 1))) if gauge.cache_bytes else len(calls)
        self.tidied_s = 0.0  # seconds that contenders took to get ready for batches, which nobody counts
        self._guests: list[Contender] = []
        self._flush = torch.empty(FLUSH_BYTES if device.type == "cuda" else 0, dtype=torch.uint8, device=device)
        self._gates: dict[Contender, Gate] = {}
        self._arena = Arena(self._inputs(calls), self._slots(len(calls)) if in_place else {}, dtype, device)
        self._collected: Arena | None = None
        try:
            if collected:
                self._collected = Arena({}, self._slots(collected), dtype, device)
            most = max(collected, len(calls) if in_place else 0)
            self._mine = [
                torch.empty(shape, dtype=dtype, device=device) for _ in range(most) for shape in outputs.values()
            ]
        except BaseException:
            for arena in (self._arena, self._collected):
                if arena is not None:
                    arena.close()
            raise
        self._collectable = collected
        self._changed: list[str] = []  # inputs that the last batch has changed
        self._place = self._arena  # where the outputs of the last batch are
        self._order: list[int] = []  # the number of each call's place there
        self._takes = {
            place: place.takes(names := self._places(len(place.outputs) // len(outputs)), self._mine[: len(names)])
            for place in (self._arena, self._collected)
            if place is not None and place.outputs
        }
        self._taken = False  # whether the outputs of the last batch were

    def _inputs(self, calls: Sequence[Call]) -> dict[str, torch.Tensor]:
        return {name: tensor for index, call in enumerate(calls) for name, tensor in _tensors(call, index).items()}

    def _outputs_of(self, index: int) -> list[str]:
        return [_of(name, index) for name in self._shapes]

    def _slots(self, calls: int) -> dict[str, tuple[int, ...]]:
        return {_of(name, index): shape for index in range(calls) for name, shape in self._shapes.items()}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the arena back; contenders that still live unmap it, and stand still again."""
        for gate in self._gates.values():
            gate.open(forever=True)  # whoever was left waiting would wait for ever
        for contender in self._guests:
            if contender.lives():
                try:
                    contender.do(Release(), HOUSEKEEPING)
                    contender.freeze()
                except ContenderFault:
                    contender.kill()
        del self._flush
        self._takes.clear()
        self._mine.clear()
        for memory in (*self._gates.values(), self._collected, self._arena):
            if memory is not None:
                memory.close()

    def invite(self, contender: Contender, collects: bool) -> None:
        """Let a contender map the arena, and freeze it. Raises ContenderFault.

        Args:
            collects: whether its results may be collected.
        """
        self._arena.wipe()
        if self._collected is not None:
            self._collected.wipe()  # what a baseline has handed in there is the right answer
        sets = []
        for index, call in enumerate(self.calls):
            names = list(_tensors(call, index))
            upstream = names.pop() if call.upstream is not None else None
            sets.append(self._arena.operands(names, upstream, self._outputs_of(index) if self._in_place else []))
        results, files = None, self._arena.files
        if collects and self._collected is not None:
            places = (self._collected.places(self._outputs_of(index)) for index in range(self._collectable))
            results = Results(self._collected.address, tuple(places))
            files += self._collected.files
        self._guests.append(contender)
        if self._device.type == "cuda":
            self._gates[contender] = Gate()
        gate = self._gates.get(contender)
        address = None if gate is None else gate.memory.address
        options = tuple(self.calls[0].options.values())
        contender.do(Prepare(self._arena.address, tuple(sets), options, results, address), HOUSEKEEPING, files)
        contender.freeze()

    def renew(self, draw: Callable[[int], Sequence[Call]]) -> None:
        """Take new inputs for the batches to come, drawn when the old ones are gone."""
        count = len(self.calls)
        self.calls = ()
        self._arena.forget()
        self.calls = draw(count)
        self._arena.replace(self._inputs(self.calls))

    def run(
        self,
        contender: Contender,
        calls: int,
        limits: Limits,
        *,
        judged: bool = False,
        collect: bool = False,
        check: bool = False,
        watched: bool = False,
    ) -> Batch:
        """Time one batch on the first `calls` sets, and leave the contender frozen.

        Args:
            judged: whether the judge's clock is to be of use: results are taken.
            collect: whether to take the results too, where they were not written in place; only from those invited for that.
            check: whether `check_memory` will be asked.
            watched: whether to note PyTorch's operators and, with `check`, changed inputs; such a batch is no measure of time.

        Raises:
            ContenderFault: there was no answer.
        """
        names = [name for index, call in enumerate(self.calls[:calls]) for name in _tensors(call, index)]
        began = time.perf_counter()
        contender.do(Tidy(), limits)
        self.tidied_s += time.perf_counter() - began
        # The course's own code need not be kept from what is there, and writes all that it should. But the null contender's time is
        # taken from the submission's: what comes before it is the same.
        if judged or not contender.trusted:
            if collect and self._collected is not None:
                self._collected.wipe(wait=False)
            self._arena.wipe(wait=False)
        copies = self._arena.copies(names)
        self._arena.settle()  # that, and inputs that are still being drawn, are not to be timed with this batch
        keep = calls if collect else self._enough
        if (gate := self._gates.get(contender)) is not None:
            contender.send(Time(calls, keep, watched, gate.close_again()))
            contender.wait_until_queued(QUEUE_S + QUEUE_CALL_S * calls)
        else:
            contender.freeze()  # on a CPU nobody works beside `fill`
        start = time.perf_counter()
        self._arena.fill(copies)
        if gate is not None:
            self._flush.zero_()
            gate.open()
        else:
            contender.send(Time(calls, keep, watched, gate=0))
        reply = contender.finish(calls, limits)
        kinds: tuple[tuple[Returned, ...], ...] = ((Returned(kind="written"),),)
        self._place, self._order, self._changed = self._arena, list(range(calls)), []
        written = bool(reply.kinds) and self._in_place
        if watched and check and not written:
            self._changed = self._arena.changed_inputs(names)
        collected = collect and self._collected is not None and not written
        if collected and self._collected is not None:
            self._wipe_busily()  # whatever is computed from now on is not computed from these inputs
            self._place = self._collected
            random.SystemRandom().shuffle(self._order)
            kinds = contender.collect(self._order, limits)
        self._taken = judged and self._place in self._takes
        if self._taken:
            number = calls * len(self._shapes)
            mine, places = self._takes[self._place]
            self._place.fill((mine[:number], places[:number]))
            self._place.settle()
        wall_s = time.perf_counter() - start
        contender.freeze()
        quiet = self._gauge.is_quiet(thoroughly=not contender.trusted)
        if check and written:
            self._changed = self._arena.changed_inputs(names)
        claimed_s = sum(reply.times_s) / calls
        return Batch(calls, claimed_s, wall_s, collected, kinds, quiet, reply.operators)

    def _wipe_busily(self) -> None:
        """Wipe the arena, and leave the GPU busy for as long as it takes the next request to arrive."""
        self._arena.wipe(wait=False)
        if self._device.type == "cuda":
            wiped = torch.cuda.Event()
            wiped.record()
            for _ in range(BUSY_PASSES):
                self._flush.zero_()
            wiped.synchronize()

    def _places(self, calls: int) -> list[str]:
        return [_of(name, number) for number in range(calls) for name in self._shapes]

    def output(self, index: int) -> dict[str, torch.Tensor]:
        """The outputs of a call of the last batch, in memory that nobody else has, until the next batch.

        Raises:
            CheckFailed: what lies in their place is no longer what lay there when the batch was over.
        """
        number = self._order[index]
        if not self._taken:
            return {name: self._place.output(_of(name, number)) for name in self._shapes}
        first = number * len(self._shapes)
        outputs = dict(zip(self._shapes, self._mine[first : first + len(self._shapes)], strict=True))
        if not all(self._place.still_holds(_of(name, number), mine) for name, mine in outputs.items()):
            raise CheckFailed(
                "outputs were still written when your function had returned and its stream was done: "
                "consistent with work on a stream or in a thread that nothing waits for"
            )
        return outputs

    def check_memory(self) -> None:
        """Whether the last batch, run with `check`, left alone what was not its own to change. Raises CheckFailed.

        Where results are collected, inputs are looked at only if the batch was watched: they are gone otherwise.
        """
        strays = self._arena.strays() + (self._place.strays() if self._place is not self._arena else [])
        check_memory(self._changed, strays, self._dtype)


HOUSEKEEPING = Limits(time_s=60.0, memory_gib=64.0)


def _tensors(call: Call, index: int) -> dict[str, torch.Tensor]:
    """A set's tensors by their names in the arena, the upstream gradient last."""
    upstream = {} if call.upstream is None else {UPSTREAM: call.upstream}
    return {_of(name, index): tensor for name, tensor in (call.args | upstream).items()}


def _of(name: str, index: int) -> str:
    """The name of a call's tensor in an arena."""
    return f"{name} of call {index}"
