"""The judge's own clock: how long a batch of calls took, whatever the process that ran it says.

A worker times its calls with CUDA events and sends the numbers. It runs the student's code, so they are a claim. The judge times
the same batch from outside:

    wipe      the arena holds nothing but filler; nobody has had the inputs of this batch yet
    start     -----------------------------------------------------------------------------------------------------
    fill      the judge copies k sets of new inputs into the arena: before this they are in no memory that the worker maps
    call      the worker is asked for k calls; it answers when they are done, and keeps the results
    freeze    SIGSTOP to the worker's process group; its threads have stopped when this returns
    probe     a small piece of the judge's own work finds the GPU to itself
    stop      -----------------------------------------------------------------------------------------------------
    wipe      the inputs are gone
    collect   -----------------------------------------------------------------------------------------------------
    thaw
    copy      the worker copies its k results to where the judge will look
    freeze    as above
    probe     as above
    end       -----------------------------------------------------------------------------------------------------
    check     every output is compared with the oracle, and inputs and guard bands are looked at, while the worker stands still

(A function in CUDA C++ writes to outputs that lie beside its inputs, and nothing is collected.)

A null contender goes through the same with the same k, and computes nothing. The differences are the submission's own:

    judged = (start to stop, of the submission − of the null contender) / k
    late   = (collect to end, of the submission − of the null contender) / k

Why no submission gets below that:

- It cannot begin before `start`. The inputs are drawn by the judge for this batch alone, and no one maps them until `fill`. Nothing
  computed for earlier inputs is an answer to these: every output is checked, so nothing can be remembered, by pointer, shape or count,
  and no recorded graph replayed on stale data.
- It cannot go on after `stop` unseen. After `freeze` none of its threads runs, and after `probe` no kernel of its does. What was left for
  later, by a lazy tensor, a thread, or a function that returns nothing yet, has to be done between `collect` and `end`, without the
  inputs, where an honest submission only copies: it takes longer than the null contender's copy, and then all of that time
  counts, the copy too. What can be hidden there is a last elementwise step on something half done, in place of the copy: at
  most what one copy of the outputs takes, and no time counts that is below the machine's limit.
- Nothing is gained by writing results to where they will be collected before they are asked for: what that saves is the copy, which
  no time that counts has in it, and so at most the same copy's time can be spent otherwise.
- It cannot move the clock: it is the judge's, in the judge's process, and nothing is asked of the worker in between but to be done.
- It cannot make the null contender slower: that runs in another process while the submission is frozen, in the same round. So do the
  baselines. Kernels that a frozen worker has left running show in `probe`, before anything else is timed.

One way is open, as far as can be seen from the code; it was not tried. Before a batch every worker writes over a block of memory again and
again (`_spacer` of `grader/worker/timing.py`), so that calls are queued without gaps, and what that takes is subtracted with the null
contender's time. A submission that patches it away, or works beside it on a stream that does not wait for the current one, gains up to
0.2 ms of a call, though no more than the machine's limit allows. To close it, the judge has to hold back the inputs until the calls stand
in the queue.

k calls are held against none, not against fewer calls, on purpose. A slope between two batch sizes looks finer, but a submission that
sees it is in the shorter batch can waste time there, and the slope falls below the truth. Time wasted in a single batch is only ever added.

When the claim is lower than the judge's time by more than `margin` (problem.toml, [timing]), or results were late by more than that, the
judge's time counts and the case is marked "not corroborated". So up to that margin can be gained, and what the judge's
time is too small by: on an H200 next to nothing for calls of 0.3 ms and more, 4 % for calls of 0.055 ms, whose gaps between calls are as
long as the null contender's, which are subtracted. Otherwise
the claim counts, because it is the finer one: it repeats within a few tenths of a percent, the difference of two batches within one
or two. And no time counts that is below what the machine's own limit takes (`roofline` in problem.toml).

What it costs: the null contender's batch in each round, and memory for a whole batch of inputs (twice) and outputs (twice). The freeze
takes 0.1 to 0.7 ms and the probe one; both are in the null contender's time too.

All this takes for granted that a worker cannot reach into the processes of the others: see `grader/contender/jail.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.contender.arena import Arena
from grader.contender.contender import Contender, Limits
from grader.contender.replies import ContenderFault, RanOperator, Returned
from grader.judge.gpu import Gauge
from grader.judge.trial import UPSTREAM, check_memory
from grader.problem import Call


class DeviceTime:
    """The judge's record of device time, as a clock: it goes on only by what the submission's calls took. pytest-benchmark reads it."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def __call__(self) -> float:
        return self._now_s

    def add(self, seconds: float) -> None:
        self._now_s += seconds


@dataclass(frozen=True)
class Batch:
    """One batch.

    claimed_s: what the worker says a call took, on average.
    wall_s: from `start` to `stop`, by the judge's clock.
    collect_s: from `collect` to `end`; 0 where nothing was collected.
    kinds: what came back.
    quiet: whether the GPU was, at `stop` and at `end`.
    operators: PyTorch's that ran, if the batch was watched.
    """

    calls: int
    claimed_s: float
    wall_s: float
    collect_s: float
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
        self._guests: list[Contender] = []
        self._arena = Arena(self._inputs(calls), self._slots(len(calls)) if in_place else {}, dtype, device)
        try:
            self._collected = Arena({}, self._slots(collected), dtype, device) if collected else None
        except BaseException:
            self._arena.close()
            raise
        self._collectable = collected
        self._changed: list[str] = []  # inputs that the last batch has changed
        self._place = self._arena  # where the outputs of the last batch are

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
        for contender in self._guests:
            if contender.lives():
                try:
                    contender.release(HOUSEKEEPING)
                    contender.freeze()
                except ContenderFault:
                    contender.kill()
        if self._collected is not None:
            self._collected.close()
        self._arena.close()

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
            sets.append((names, upstream, self._outputs_of(index) if self._in_place else []))
        results = None
        if collects and self._collected is not None:
            results = (self._collected, [self._outputs_of(index) for index in range(self._collectable)])
        self._guests.append(contender)
        contender.prepare(self._arena, sets, list(self.calls[0].options.values()), results, HOUSEKEEPING)
        contender.freeze()

    def renew(self, draw: Callable[[int], Sequence[Call]]) -> None:
        """Take new inputs for the batches to come, drawn when the old ones are gone."""
        count = len(self.calls)
        self.calls = ()
        self._arena.forget()
        self.calls = draw(count)
        self._arena.replace(self._inputs(self.calls))

    def run(
        self, contender: Contender, calls: int, limits: Limits, collect: bool, check: bool, watched: bool = False
    ) -> Batch:
        """Time one batch on the first `calls` sets, and leave the contender frozen.

        Args:
            check: whether `check_memory` will be asked.
            collect: whether to take the results too, where they were not written in place; only from those invited for that.
            watched: whether to note PyTorch's operators; the times are then not those of the calls alone.

        Raises:
            ContenderFault: there was no answer.
        """
        names = [name for index, call in enumerate(self.calls[:calls]) for name in _tensors(call, index)]
        contender.tidy(limits)
        if collect and self._collected is not None:
            self._collected.wipe()
        self._arena.wipe()
        start = time.perf_counter()
        self._arena.fill(names)
        reply = contender.time(calls, calls if collect else self._enough, watched, limits)
        wall_s, quiet = self._stop(contender, start)
        kinds: tuple[tuple[Returned, ...], ...] = ((Returned(kind="written"),),)
        collect_s = 0.0
        self._changed = self._arena.changed_inputs(names) if check else []
        self._place = self._arena
        if collect and self._collected is not None and not (reply.kinds and self._in_place):
            self._place = self._collected
            self._arena.wipe()  # whatever is computed from now on is not computed from these inputs
            start = time.perf_counter()
            kinds = contender.collect(calls, self._enough, limits)
            collect_s, still_quiet = self._stop(contender, start)
            quiet = quiet and still_quiet
        return Batch(calls, sum(reply.times_s) / calls, wall_s, collect_s, kinds, quiet, reply.operators)

    def _stop(self, contender: Contender, start: float) -> tuple[float, bool]:
        """Freeze the contender. Returns the time since `start`, and whether the GPU is quiet. Raises ContenderFault."""
        contender.freeze_group()
        quiet = self._gauge.is_quiet()
        passed_s = time.perf_counter() - start
        if contender.freeze_rest():  # something outside its process group worked on until now
            quiet = self._gauge.is_quiet()
            passed_s = time.perf_counter() - start
        return passed_s, quiet

    def output(self, index: int) -> dict[str, torch.Tensor]:
        """The outputs of a call of the last batch."""
        return {name: self._place.output(_of(name, index)) for name in self._shapes}

    def check_memory(self) -> None:
        """Whether the last batch, run with `check`, left alone what was not its own to change. Raises CheckFailed."""
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
