"""The calls of a case: draw inputs, have a worker answer (`asking.py`), and compare the outputs
(`comparison.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from grader.judge.asking import answers, arena_for, ask, check_memory
from grader.judge.cases import BoundCase, Piece
from grader.judge.comparison import Comparison
from grader.judge.evidence import Evidence
from grader.judge.files import Files
from grader.judge.ownership import check_kernels, check_launches
from grader.judge.run import Run
from grader.pool.arena import same_bits
from grader.pool.fault import Fault
from grader.pool.worker import Worker
from grader.problem import Call
from grader.protocol import FILL_BYTE, SAMPLE_CUT
from grader.report.model import OutputError
from grader.verdict import diagnosis

FEW_ELEMENTS = 2**16 + 3  # of a case with `cpu_windows`, that are tried alone where all of them go wrong
OF_OTHERS = 1000  # first call numbers of `together`'s other inputs, above the `calls` of any case


@dataclass
class CallGrader:
    """Grades the calls of a case on a worker."""

    run: Run
    files: Files
    comparison: Comparison

    def grade(self, case: BoundCase, worker: Worker, evidence: Evidence) -> None:
        """Grade the case's calls. Raises Fault: an answer is wrong, there was none, or the case itself is at fault."""
        for number in range(case.case.calls):
            self._grade_call(case, worker, number, evidence)

    def _grade_call(self, case: BoundCase, worker: Worker, number: int, evidence: Evidence) -> None:
        sample = self.run.device.type == "cpu" and case.case.cpu_windows > 1
        if case.case.pieces > 1 and not sample:
            self._run_in_pieces(case, worker, number, evidence)
            return
        call = case.inputs(self.run.seed, number, self.run.device)
        if sample:
            self._run_sample(case, worker, call, evidence)
            return
        if case.case.together > 1:
            numbers = range(OF_OTHERS + 1, OF_OTHERS + case.case.together)
            others = [case.inputs(self.run.seed, other, self.run.device) for other in numbers]
            self._run_together(case, worker, [call, call, *others], evidence)
            return
        calls_after, repeats = case.case.calls - 1 - number, case.case.repeats
        right = self.comparison.begin(case, call)
        (got,) = self._answers(case, worker, [call], evidence, keep=calls_after + repeats > 1)
        self.comparison.compare(case, call, got, evidence, right=right)
        if number:
            _check_kept(evidence)
        check_launches(evidence.launches, got.values(), case.assignment)
        for repeats_after in reversed(range(repeats - 1)):
            self._repeat(case, worker, call, got, evidence, keep=calls_after + repeats_after > 0)

    def _answers(
        self, case: BoundCase, worker: Worker, calls: Sequence[Call], evidence: Evidence, **how: Any
    ) -> list[dict[str, torch.Tensor]]:
        """As `asking.answers`. A profiled case also fails if kernels of others took the GPU's time."""
        try:
            got = answers(self.run, case, worker, calls, evidence, **how)
        except Fault as fault:
            if fault.outside is None:
                raise
            write, outputs = fault.outside
            has_values = how.get("windows", 1) == 1 and write.neighbour in outputs
            shown = self.comparison.around(case, calls[0], write, outputs) if has_values else None
            raise Fault.wrong(fault.message, fault.details, shown) from None
        if case.case.profiled:
            own = self.files.own_kernels(case.assignment)
            evidence.gpu_time = check_kernels(own, case.assignment, evidence.kernels)
        return got

    def _repeat(
        self,
        case: BoundCase,
        worker: Worker,
        call: Call,
        first: dict[str, torch.Tensor],
        evidence: Evidence,
        keep: bool,
    ) -> None:
        """Make the same call again: its outputs must equal the `first` ones bit for bit, but for outputs that
        `may_vary`.
        """
        (again,) = self._answers(case, worker, [call], evidence, keep=keep)
        may_vary = case.assignment.spec.tolerance.may_vary
        for name, tensor in again.items():
            if name not in may_vary and (told := diagnosis.differs(name, first[name], tensor)):
                raise Fault.wrong(told[0], tuple(told[1:]))
        _check_kept(evidence)
        if varied := [name for name in may_vary if name in again and diagnosis.differs(name, first[name], again[name])]:
            self.comparison.compare(case, call, again, Evidence())
            words = "differed in the last digits between calls on the same inputs, within the error budget"
            evidence.words = f"{' and '.join(varied)} {words}: sums in no fixed order do, and may here"

    def _run_sample(self, case: BoundCase, worker: Worker, call: Call, evidence: Evidence) -> None:
        """Make a call on more elements than there is memory for (`cpu_windows`). Its reads and writes are checked, not
        its values.
        """
        windows = case.case.cpu_windows
        elements = windows * max(tensor.numel() for tensor in call.args.values()) - SAMPLE_CUT
        cause = "consistent with an index or a length kept in 32 bits, int or float"
        hint = f"with {elements:,} elements, more than an int can count, and not with {FEW_ELEMENTS:,}: {cause}"
        few = replace(call, args={name: tensor.reshape(-1)[:FEW_ELEMENTS] for name, tensor in call.args.items()})
        try:
            (got,) = self._answers(case, worker, [call], evidence, windows=windows)
        except Fault as fault:
            if fault.outcome != "failed" or fault.whose == "answer":
                raise
            raise Fault.wrong(fault.message, (hint,) * self._is_right(case, worker, few)) from None
        if all(bool((output.view(torch.uint8) == FILL_BYTE).all()) for output in got.values()):
            told = (hint,) * self._is_right(case, worker, few)
            raise Fault.wrong("nothing was written by any of the blocks that were tried", told)
        evidence.words = "only where it reads and writes was looked at: its values show on a GPU"

    def _is_right(self, case: BoundCase, worker: Worker, call: Call) -> bool:
        """Whether the worker answers a call that is made alone, and rightly."""
        try:
            (got,) = self._answers(case, worker, [call], Evidence())
            self.comparison.compare(case, call, got, Evidence(), drawn=True)
        except Fault:
            return False
        return True

    def _run_together(self, case: BoundCase, worker: Worker, calls: list[Call], evidence: Evidence) -> None:
        """Make several calls before any result is compared. With gradients, all forward passes run before the backward
        passes, which run in both orders.
        """
        with_gradients = calls[0].upstream is not None
        for reverse in (False, True) if with_gradients else (False,):
            got = self._answers(case, worker, calls, evidence, reverse=reverse)
            _check_kept(evidence)
            for number, (call, outputs) in enumerate(zip(calls, got, strict=True), 1):
                try:
                    self.comparison.compare(case, call, outputs, evidence)
                except Fault as failed:
                    if failed.whose != "answer":
                        raise
                    words = f"of call {number} of {len(calls)}: {failed.message}"
                    order = (
                        "all calls were made before any result was looked at, the second one on the first one's tensors"
                    )
                    cause = "something that is kept from one call to the next"
                    if with_gradients:
                        first = "last" if reverse else "first"
                        order = f"all forward passes ran before the backward passes, of which that of the {first} call came first"
                        cause = "something that a forward pass keeps elsewhere than in ctx and the next one overwrites"
                    hint = f"{order}; made alone, this call is right: consistent with {cause}"
                    hints = (hint,) if self._is_right(case, worker, call) else ()
                    raise Fault.wrong(words, (*hints, *failed.details), failed.map) from None
            check_launches(evidence.launches, got[0].values(), case.assignment)

    def _run_in_pieces(self, case: BoundCase, worker: Worker, number: int, evidence: Evidence) -> None:
        """Make a call whose tensors fill the GPU's memory: inputs are drawn, and outputs compared, in pieces of
        dimension 0.
        """
        pieces = case.cut()

        def inputs() -> Iterator[tuple[Piece, Call, int]]:
            """Each piece, its inputs, and the number of entries of dimension 0 before it."""
            start = 0
            for piece in pieces:
                call = piece.inputs(self.run.seed, number, self.run.device)
                yield piece, call, start
                start += len(next(iter(call.args.values())))

        whole = _whole([{name: one.shape for name, one in call.args.items()} for _, call, _ in inputs()], case.dtype)
        with arena_for(whole, case.problem.outputs(whole), case.dtype, self.run.device) as arena:
            for _, call, start in inputs():
                for name, tensor in call.args.items():
                    arena.entries(name, start, len(tensor)).copy_(tensor)
            arena.settle()
            ask(self.run, case, worker, arena, [(list(whole.args), None)], whole, evidence)
            there = ((name, start, tensor) for _, call, start in inputs() for name, tensor in call.args.items())
            changed = [name for name, start, one in there if not same_bits(arena.entries(name, start, len(one)), one)]
            check_memory(changed, arena.out_of_bounds(), case.dtype)
            worst: list[OutputError] = []
            for piece, call, start in inputs():
                shapes = case.problem.outputs(call)
                got = {name: arena.entries(name, start, shape[0]).clone() for name, shape in shapes.items()}
                self.comparison.compare(piece, call, got, evidence, before=start)
                pairs = zip(worst or evidence.errors, evidence.errors, strict=True)
                worst = [max(pair, key=lambda one: one.worst) for pair in pairs]
            evidence.errors = worst


def _check_kept(evidence: Evidence) -> None:
    """Raise Fault if a call has overwritten a result of an earlier call."""
    if evidence.kept:
        raise Fault.wrong(
            f"{evidence.kept[0]} lies in memory that an earlier call has returned and that is still in use: it is changed there",
            ("consistent with an output buffer that is kept and used again: each call must return a new tensor",),
        )


def _whole(shapes: Sequence[Mapping[str, torch.Size]], dtype: torch.dtype) -> Call:
    lengths = {name: sum(one[name][0] for one in shapes) for name in shapes[0]}
    sizes = {name: (length, *shapes[0][name][1:]) for name, length in lengths.items()}
    return Call({name: torch.empty(size, dtype=dtype, device="meta") for name, size in sizes.items()})
