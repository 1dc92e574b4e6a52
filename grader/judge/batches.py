"""Runs the batches of a race: on a quiet GPU, with the submission's outputs checked, and with each fault blamed on its
contender.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from grader.contender.replies import ContenderFault
from grader.judge.asking import check_returned
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.gpu import wait_for_quiet
from grader.judge.ownership import check_operators
from grader.judge.ruler import Ruler
from grader.judge.timing import Batch, Bench
from grader.judge.track import Lineup, Runner, Track
from grader.problem import Call

UNDER_TIMING = (
    "right in its correctness cases, wrong in a batch of calls that are queued before the inputs are there: also consistent with a "
    "stream that does not wait for the current one, or with results kept from earlier calls"
)


def open_bench(track: Track, case: BoundSpeedCase, sets: int, collected: int) -> Bench:
    """A bench with `sets` sets of new inputs, and places for `collected` results."""
    calls = track.draw(case, sets)
    outputs, in_place = case.problem.outputs(calls[0]), case.assignment.spec.language == "cuda"
    return Bench(calls, outputs, case.dtype, track.run.device, track.run.gauge, in_place, collected)


class Batches:
    """Runs the batches of a race, before the rounds and in them.

    Attributes:
        collects: whether the submission's results are collected; None before its first batch.
        repeats: how many batches ran again because the GPU was busy after them, by contender.

    Raises (all methods):
        CheckFailed: the submission's answers are wrong under timing.
        ContenderFault: the submission gave no answer, or let PyTorch do the work.
        CaseRefused: a baseline failed, or another program uses the GPU.
    """

    def __init__(self, track: Track, case: BoundSpeedCase, lineup: Lineup, ruler: Ruler, evidence: Evidence) -> None:
        self._track, self._case, self._lineup = track, case, lineup
        self._ruler, self._evidence = ruler, evidence
        self.collects: bool | None = None
        self.repeats: Counter[str] = Counter()

    def invite(self, bench: Bench, runner: Runner, collects: bool) -> None:
        """Have a contender map the bench's memory."""
        with self._faults_of(runner):
            bench.invite(runner.contender, collects)

    def run(
        self,
        bench: Bench,
        runner: Runner,
        calls: int,
        *,
        collect: bool = False,
        check: bool = False,
        watched: bool = False,
    ) -> Batch:
        """Run one batch until the GPU is quiet after it.

        Args:
            collect: whether to collect a baseline's outputs; the submission's always are.
            check: whether to check every output of the submission.
            watched: whether to check which of PyTorch's operators ran; such a batch is no measure of time.
        """
        ours = runner is self._lineup.submission
        judged = ours or runner is self._lineup.null
        how = {"judged": judged, "collect": collect or (judged and self.collects is not False)}
        for attempt in count(1):
            with self._faults_of(runner):
                batch = bench.run(runner.contender, calls, runner.limits, check=check, watched=watched, **how)
            if ours and self.collects is None:
                self.collects = batch.collected
            if ours and self.collects != batch.collected:
                raise CheckFailed("returned results in some batches, and wrote them to the given outputs in others")
            if ours and check:
                self._check(bench, batch)
            if watched:
                check_operators(batch.operators, self._case.assignment)
            if batch.quiet:
                break
            wait_for_quiet(self._track.run.gauge, self._lineup.submission.contender, ours, attempt)
            self.repeats[runner.name] += 1
            bench.renew(self.draw)  # no worker runs twice on the same inputs
        return batch

    def draw(self, sets: int) -> list[Call]:
        """Sets of inputs that no contender of any race has seen."""
        return self._track.draw(self._case, sets)

    @contextmanager
    def _faults_of(self, runner: Runner) -> Iterator[None]:
        """Let a fault of the submission pass; turn a fault of a baseline into the grader's."""
        try:
            yield
        except ContenderFault as fault:
            if runner is self._lineup.submission:
                raise
            words = f"the baseline {runner.name} failed in {self._case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self._track.run.device_name == "cuda":
                raise MemoryError(words) from None  # the submission may hold the memory
            raise CaseRefused(words) from None

    def _check(self, bench: Bench, batch: Batch) -> None:
        """Check every output of a batch by the correctness rule, and the memory around them. Raises CheckFailed."""
        case = self._case
        for kind in batch.kinds:
            check_returned(kind, case.problem.outputs(bench.calls[0]), case.dtype, self._track.run.device)
        bench.check_memory()
        for index, call in enumerate(bench.calls[: batch.calls]):
            got = bench.output(index)
            if not self._ruler.accepts(call, got):
                try:
                    self._track.comparison.compare(case, call, got, self._evidence)
                except CheckFailed as failed:
                    place = f"in call {index + 1} of {batch.calls} in a timed batch, each on new data: "
                    raise CheckFailed(place + failed.message, (*failed.details, UNDER_TIMING)) from None

    def check_baseline(self, bench: Bench, runner: Runner) -> None:
        """Raise CaseRefused if the baseline's answer is wrong."""
        self.run(bench, runner, 1, collect=True)
        if not self._ruler.accepts(bench.calls[0], bench.output(0)):
            raise CaseRefused(f"the baseline {runner.name} gives wrong answers in {self._case.id}")


def bytes_of_set(case: BoundSpeedCase, call: Call, collected: bool) -> int:
    """Bytes that the tensors of one call take.

    Inputs lie in the arena and in the judge's memory. Outputs lie in the judge's memory, and beside the inputs if
    functions may write to given outputs. If outputs are collected, the submission and the null contender hold them too,
    and each has a place in the arena.
    """
    tensors = [*call.args.values(), *([] if call.upstream is None else [call.upstream])]
    inputs = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    copies = (case.assignment.spec.language == "cuda") + 1 + 3 * collected
    return 2 * inputs + copies * bytes_of_results(case, call)


def bytes_of_results(case: BoundSpeedCase, call: Call) -> int:
    """Bytes of one call's outputs."""
    return sum(math.prod(shape) for shape in case.problem.outputs(call).values()) * case.dtype.itemsize
