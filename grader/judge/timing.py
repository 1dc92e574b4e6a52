"""The judge's own clock: how long a batch of calls took, whatever the process that ran it says.

A worker times its calls with CUDA events and sends the numbers. It runs the student's code, so they are a claim. The judge
times the same batch from outside:

    wipe      the arena holds nothing but filler; the worker has never seen the inputs of this batch
    start     ---------------------------------------------------------------------------------------------
    fill      the judge copies k sets of new inputs into the arena: before this they are in no memory that the worker maps
    call      the worker is asked for k calls; it answers when it has copied k results to their places in the arena
    freeze    SIGSTOP to the worker's process group; its threads have stopped when this returns
    probe     a small piece of the judge's own work finds the GPU to itself
    stop      ---------------------------------------------------------------------------------------------
    check     every output is compared with the oracle, and inputs and guard bands are looked at, while the worker stands still

A null contender goes through the same with the same k, and computes nothing. The difference is what the k calls took:

    judged = (batch of the submission − batch of the null contender) / k

Why no submission gets below it:

- It cannot begin before `start`. The inputs are drawn by the judge for this batch alone, and no one maps them until `fill`.
  Nothing computed for earlier inputs is an answer to these: every output is checked, so nothing can be remembered, by
  pointer, shape or count, and no recorded graph replayed on stale data.
- It cannot end after `stop`. After `freeze` none of its threads runs, and after `probe` no kernel of its does. What was not in
  the arena by then is still poison, and the check fails. Threads, side streams, graphs, lazy tensors, returning early:
  all of that only moves work to another place between `start` and `stop`.
- It cannot move either end: both are read from the judge's clock in the judge's process, and nothing is asked of the worker in
  between but to be done.
- It cannot make the null contender slower: that runs in another process while the submission is frozen, in the same round. So do the
  baselines. Kernels that a frozen worker has left running would show in `probe`, before anything else is timed.

Measuring k calls against none, not against fewer calls, is on purpose. A slope between two batch sizes looks finer, but a
submission that sees it is in the shorter batch can waste time there, and the slope falls below the truth. Time wasted in a single
batch is only ever added.

What remains in a submission's favour, and is no more than this: the null contender's results are copied to their places in
the arena as everybody's are, because a Python function returns a new tensor. A submission that found those places, wrote
there directly and forged its claim would be credited with that copy (of its outputs, once, at the speed of memory). Two
things bound this: no time counts that is below what the machine's own limit takes (`roofline` in problem.toml: a device copy,
for what memory bounds), and for attention the copy is under 5 % of the fastest kernels' time. Functions in CUDA C++ write
their output in place, and have nothing to save.

When the claim is lower than the judge's time by more than `margin` (problem.toml, [timing]), the judge's time counts and the
case is marked "not corroborated". Otherwise the claim counts, because it is the finer one: it repeats within a few tenths
of a percent, the difference of two batches within one or two.

What it costs: the null contender's batch in each round, and that outputs must be held for a whole batch. The freeze takes
about a tenth of a millisecond and the probe half of one; both are in the null contender's time too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.contender.arena import Arena
from grader.contender.contender import Contender, ContenderFault, Limits, Returned
from grader.judge.gpu import Gauge
from grader.problem import Call

UPSTREAM = "upstream gradient"


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
    """One batch: what the worker claims a call took, what the judge's clock says of the whole, and what came back."""

    calls: int
    claimed_s: float
    wall_s: float
    kinds: tuple[tuple[Returned, ...], ...]
    quiet: bool


class Bench:
    """An arena with `len(calls)` sets of inputs and outputs, which contenders map and run batches on.

    A context manager. Contenders are frozen but while they run.

    Args:
        calls: a set's inputs each; all of the same shapes and strides.
        outputs: shape of each output, by name.
        dtype: of the outputs.
        device: where it all lies.
        gauge: of the same device.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        outputs: dict[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
        gauge: Gauge,
    ) -> None:
        self.calls = calls
        self._gauge = gauge
        self._outputs = list(outputs)
        shapes = {f"{name} of call {index}": shape for index in range(len(calls)) for name, shape in outputs.items()}
        self._arena = Arena(self._inputs(calls), shapes, dtype, device)
        self._guests: list[Contender] = []

    def _inputs(self, calls: Sequence[Call]) -> dict[str, torch.Tensor]:
        return {name: tensor for index, call in enumerate(calls) for name, tensor in _tensors(call, index).items()}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the arena back; contenders that still live unmap it."""
        for contender in self._guests:
            if contender.lives():
                contender.thaw()
                try:
                    contender.release(HOUSEKEEPING)
                except ContenderFault:
                    contender.kill()
        self._arena.close()

    def invite(self, contender: Contender) -> None:
        """Let a contender map the arena, and freeze it. Raises ContenderFault."""
        self._arena.wipe()
        sets = []
        for index, call in enumerate(self.calls):
            names = list(_tensors(call, index))
            upstream = names.pop() if call.upstream is not None else None
            sets.append((names, upstream, [f"{name} of call {index}" for name in self._outputs]))
        contender.thaw()
        self._guests.append(contender)
        contender.prepare(self._arena, sets, list(self.calls[0].options.values()), HOUSEKEEPING)
        self._freeze(contender)

    def renew(self, draw: Callable[[int], Sequence[Call]]) -> None:
        """Take new inputs for the batches to come, drawn when the old ones are gone."""
        count = len(self.calls)
        self.calls = ()
        self._arena.forget()
        self.calls = draw(count)
        self._arena.replace(self._inputs(self.calls))

    def run(self, contender: Contender, calls: int, limits: Limits) -> Batch:
        """Time one batch on the first `calls` sets, and leave the contender frozen. Raises ContenderFault."""
        names = [name for index, call in enumerate(self.calls[:calls]) for name in _tensors(call, index)]
        self._arena.wipe()
        contender.thaw()
        start = time.perf_counter()
        self._arena.fill(names)
        times_s, kinds = contender.time(calls, limits)
        contender.freeze()
        quiet = self._gauge.is_quiet()
        wall_s = time.perf_counter() - start
        contender.freeze_rest()
        return Batch(calls, sum(times_s) / calls, wall_s, kinds, quiet)

    def output(self, index: int) -> dict[str, torch.Tensor]:
        """The outputs of a call of the last batch."""
        return {name: self._arena.output(f"{name} of call {index}") for name in self._outputs}

    def damage(self, calls: int) -> str:
        """What the last batch did to memory that was not its own, or nothing."""
        names = [name for index, call in enumerate(self.calls[:calls]) for name in _tensors(call, index)]
        if changed := self._arena.changed_inputs(names):
            return f"the input {changed[0]} was changed: the function must leave its inputs as they are"
        if strays := self._arena.strays():
            return f"{strays[0].elements} elements were written outside {strays[0].neighbour}"
        return ""

    def _freeze(self, contender: Contender) -> None:
        contender.freeze()
        contender.freeze_rest()


HOUSEKEEPING = Limits(time_s=60.0, memory_gib=64.0)


def _tensors(call: Call, index: int) -> dict[str, torch.Tensor]:
    """A set's tensors by their names in the arena, the upstream gradient last."""
    upstream = {} if call.upstream is None else {UPSTREAM: call.upstream}
    return {f"{name} of call {index}": tensor for name, tensor in (call.args | upstream).items()}
