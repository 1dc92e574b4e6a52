"""Compares outputs with the oracle, within the error budget of their case (see `grader.verdict.tolerance`)."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch

from grader.assignment import Device
from grader.background import later
from grader.judge.asking import answer
from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.pool.arena import OutOfBounds
from grader.pool.fault import Fault
from grader.problem import Call
from grader.protocol import FILL_BYTE, LaunchedKernel
from grader.report.model import ErrorMap, OutputError
from grader.verdict import diagnosis, tolerance
from grader.verdict.error_map import Compared, error_map
from grader.verdict.suspects import Scene
from grader.verdict.tolerance import Errors

Outputs: TypeAlias = Mapping[str, torch.Tensor]


class Scale:
    """The right outputs of one call (the oracle's, unless `expected` is given), and the scale of each output's
    errors.
    """

    def __init__(self, case: BoundCase, call: Call, expected: Outputs | None = None) -> None:
        self._spec = case.assignment.spec.tolerance
        self.expected = dict(case.problem.oracle(call) if expected is None else expected)
        self.scales = tolerance.scales(self.expected, self._spec.scale, self._spec.unit)

    def measure(self, outputs: Outputs) -> dict[str, Errors]:
        """Errors of the outputs, by name."""
        return {
            name: tolerance.measure(outputs[name], expected, self.scales[name], self._spec.scale[name])
            for name, expected in self.expected.items()
        }

    def are_within(self, outputs: Outputs, budgets: Mapping[str, Errors]) -> bool:
        """Whether all outputs are within their budgets: `measure` and `within`, sooner where one is not."""
        return all(
            tolerance.is_within(outputs[name], expected, self.scales[name], self._spec.scale[name], budgets[name])
            for name, expected in self.expected.items()
        )

    def compared(self, outputs: Outputs, name: str, limit: float) -> Compared:
        """An output beside its right values and scale; an error of at most `limit` is within budget."""
        return Compared(outputs[name], self.expected[name], self.scales[name], self._spec.scale[name], limit)

    def beyond(self, outputs: Outputs, name: str, limit: float) -> torch.Tensor:
        """A mask of the output's elements whose error exceeds `limit`."""
        expected, scale = self.expected[name], self.scales[name]
        return tolerance.beyond(outputs[name], expected, scale, self._spec.scale[name], limit)


class Right(NamedTuple):
    """What the outputs of a call are held against.

    Attributes:
        pytorch: PyTorch's errors, by the names of the outputs.
        trivial: a trivial answer within the budgets that follow from them, or None; not sought for a drawn input.
    """

    scale: Scale
    pytorch: dict[str, Errors]
    trivial: str | None


def budgets_of(device_name: Device, case: BoundCase, yardsticks: Mapping[str, Errors]) -> dict[str, Errors]:
    """The budget of each output: k times the yardstick's errors, plus the floor."""
    spec = case.assignment.spec.tolerance
    precision = spec.precision(case.case.dtype, device_name)
    floor = Errors(spec.floor[precision], spec.floor_rms[precision])
    return {name: tolerance.budget(spec.k, errors, floor) for name, errors in yardsticks.items()}


class Reference:
    """The staff's kernels, each in a worker of its own. Threads may share an instance; calls run one after another."""

    def __init__(self, run: Run, workers: Workers) -> None:
        self._run, self._workers = run, workers
        self._asking = threading.Lock()

    def answer(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        """The reference kernel's outputs for a call.

        Raises:
            Fault: the machine's: the reference gave no answer, broke the contract, or its worker did not start.
        """
        with self._asking:
            try:
                return self._ask(case, call)
            except Fault:
                if self._workers.is_busy:
                    raise
            self._workers.pool.evict()  # the submission has answered already, and may hold the memory that the reference needs
            return self._ask(case, call)

    def _ask(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        try:
            return answer(self._run, case, self._workers.reference(case.assignment), call)
        except Fault as fault:
            if fault.whose == "machine":
                raise
            if fault.whose == "answer":
                raise Fault.of_machine(
                    f"the reference kernel broke the contract in {case.id}: {fault.message}"
                ) from None
            words = f"the reference kernel gave no answer in {case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self._run.device_name == "cuda":
                raise MemoryError(words) from None  # the submission may hold the memory
            raise Fault.of_machine(words) from None


@dataclass(frozen=True)
class Comparison:
    """Compares outputs with the oracle. The budget comes from PyTorch's error, or the reference kernel's if that is
    larger.
    """

    run: Run
    reference: Reference

    def begin(self, case: BoundCase, call: Call) -> Future[Right] | None:
        """Compute what a call is held against while a worker answers it. On a GPU the two would share its memory: None."""
        return later(lambda: self._right(case, call)) if self.run.device_name == "cpu" else None

    def _right(self, case: BoundCase, call: Call, drawn: bool = False) -> Right:
        scale = Scale(case, call)
        pytorch = scale.measure(case.problem.baseline(call))
        budgets = budgets_of(self.run.device_name, case, pytorch)
        return Right(scale, pytorch, None if drawn else _passing_trivial_answer(case, call, scale, budgets))

    def compare(
        self,
        case: BoundCase,
        call: Call,
        got: Outputs,
        evidence: Evidence,
        *,
        right: Future[Right] | None = None,
        drawn: bool = False,
        before: int | None = None,
    ) -> None:
        """Raise Fault with a diagnosis if an output exceeds its budget.

        Args:
            evidence: gets the errors and budgets.
            right: what `begin` computes of this call; None to compute it now.
            drawn: the input was drawn at random, so a trivial answer may be right.
            before: for a piece, the number of entries of dimension 0 before it, all of them right; None for a whole
                call.

        Raises:
            Fault: an output is wrong; the machine's if a trivial answer would pass, or the reference is wrong.
        """
        scale, pytorch, trivial = self._right(case, call, drawn) if right is None else right.result()
        budgets = budgets_of(self.run.device_name, case, pytorch)
        errors = scale.measure(got)
        reference: dict[str, Errors] | None = None
        cap = case.assignment.spec.tolerance.reference_cap
        capped = {name: Errors(cap * one.worst, cap * one.rms) for name, one in budgets.items()}
        # Nearly every right kernel is within PyTorch's budget, and nearly every wrong one beyond the budget that the
        # worst of allowed references would give, so the reference is seldom asked.
        if not within(errors, budgets) and within(errors, budgets_of(self.run.device_name, case, capped)):
            reference = scale.measure(self.reference.answer(case, call))
            for name, largest in capped.items():
                if not reference[name].within(largest):  # it would widen the budget and pass wrong kernels
                    off = f"{name} is off by {reference[name].worst:.3g}"
                    raise Fault.of_machine(f"the reference kernel is wrong in {case.id}: {off}")
            larger = {name: Errors.larger(pytorch[name], reference[name]) for name in scale.expected}
            budgets = budgets_of(self.run.device_name, case, larger)
            trivial = None if drawn else _passing_trivial_answer(case, call, scale, budgets)
        if not drawn and not case.case.is_combination:
            if trivial is not None and case.case.degenerate is None:
                mend = "change it, or say why in its key `degenerate`"
                raise Fault.of_machine(f"{case.id} cannot tell right from wrong: {trivial} would pass; {mend}")
            if trivial is None and case.case.degenerate is not None:
                raise Fault.of_machine(f"{case.id} says it is degenerate, but no trivial answer passes: remove the key")
        evidence.errors = [
            OutputError(
                output=name,
                worst=errors[name].worst,
                worst_budget=budgets[name].worst,
                rms=errors[name].rms,
                rms_budget=budgets[name].rms,
                pytorch_worst=pytorch[name].worst,
                pytorch_rms=pytorch[name].rms,
                reference_worst=None if reference is None else reference[name].worst,
                reference_rms=None if reference is None else reference[name].rms,
            )
            for name in scale.expected
        ]
        bad = {
            name: scale.beyond(got, name, budgets[name].worst)
            for name in scale.expected
            if not errors[name].within(budgets[name])
        }
        if bad:
            lines = _explain(case, call, got, scale.expected, bad, self.run.seed, before, evidence.launched)
            gradients = list(scale.expected)[: len(call.differentiated)]
            first = min(bad, key=lambda name: (name in gradients, not bool(bad[name].any())))  # to be shown on a map
            compared = scale.compared(got, first, budgets[first].worst)
            shown = error_map(first, compared, bad[first], before) if bool(bad[first].any()) else None
            raise Fault.wrong(lines[0], tuple(lines[1:]), shown)

    def around(self, case: BoundCase, call: Call, write: OutOfBounds, got: Outputs) -> ErrorMap | None:
        """A map of the output beside which a call wrote."""
        (scale, pytorch, _), name = self._right(case, call, drawn=True), write.neighbour
        limit = budgets_of(self.run.device_name, case, pytorch)[name].worst
        bad = scale.beyond(got, name, limit)
        return error_map(name, scale.compared(got, name, limit), bad, outside=write.places)


def _explain(
    case: BoundCase,
    call: Call,
    got: Outputs,
    expected: Outputs,
    bad: Outputs,
    seed: int,
    before: int | None,
    launched: Sequence[LaunchedKernel],
) -> list[str]:
    """Sentences about the wrong outputs. A wrong result comes before wrong gradients."""
    earlier: list[Call] = []  # the calls of the case before this one
    if case.case.calls > 1:
        (device,) = {tensor.device for tensor in call.args.values()}
        for number in range(case.case.calls):
            other = case.inputs(seed, number, device)
            if all(torch.equal(other.args[name], tensor) for name, tensor in call.args.items()):
                break
            earlier.append(other)
        else:
            earlier = []
    is_queued = case.assignment.spec.language == "cuda" and any(tensor.is_cuda for tensor in got.values())

    def about(names: list[str], calls: list[Call]) -> list[str]:
        def of_these(outputs: Outputs) -> dict[str, torch.Tensor]:
            return {name: outputs[name] for name in names if name in outputs}

        def oracle(one: Call) -> dict[str, torch.Tensor]:
            return of_these(case.problem.oracle(one))

        scene = Scene(calls[0], oracle, calls[1:], before, case.problem.mistakes, is_queued, launched)
        return diagnosis.explain_call(of_these(got), of_these(expected), of_these(bad), scene)

    calls, number_of_gradients = [call, *earlier], len(call.differentiated)
    gradients, results = list(expected)[:number_of_gradients], list(expected)[number_of_gradients:]
    if not gradients:
        return about(results, calls)
    wrong, dependent = (" and ".join(name for name in bad if name in names) for names in (results, gradients))
    if not wrong:
        return about(gradients, calls)
    lines = about(results, [replace(one, upstream=None) for one in calls])
    if dependent:
        return [
            *lines,
            f"{dependent} of the same call {'are' if ' and ' in dependent else 'is'} wrong too: a backward pass computes with what its "
            f"forward returned and saved, so begin with {wrong}",
            *about(gradients, calls),
        ]
    lines.insert(
        1,
        f"the gradients of the same call are right, and only {wrong}, looked at after them, is not: consistent with a forward that "
        f"returns something else where gradients are wanted, or a backward that writes into the {wrong} it has saved",
    )
    return lines


def within(errors: Mapping[str, Errors], budgets: Mapping[str, Errors]) -> bool:
    return all(errors[name].within(budgets[name]) for name in budgets)


def _passing_trivial_answer(case: BoundCase, call: Call, scale: Scale, budgets: Mapping[str, Errors]) -> str | None:
    """An answer without work that is within the budgets, or None: a constant, unwritten memory, or a copy of an input."""
    device = next(iter(scale.expected.values())).device
    fill = torch.full((case.dtype.itemsize,), FILL_BYTE, dtype=torch.uint8).view(case.dtype).item()
    constants = {"zeros": 0.0, "ones": 1.0, "NaN": math.nan, "memory that was never written": fill}
    answers = {name: torch.full((), value, dtype=case.dtype, device=device) for name, value in constants.items()}
    for argument, tensor in call.args.items():
        if all(tensor.shape == output.shape for output in scale.expected.values()):
            answers[f"a copy of {argument}"] = tensor
    for name, trivial in answers.items():
        if scale.are_within({output: trivial.expand(one.shape) for output, one in scale.expected.items()}, budgets):
            return name
    return None
