"""A quick check of timed outputs, which seldom needs the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from grader.assignment import Device
from grader.judge.cases import BoundCase
from grader.judge.comparison import Outputs, Scale, budgets_of, within
from grader.pool.fault import Fault
from grader.problem import Call
from grader.verdict.tolerance import Errors

CAUTION = 2.0


class QuickCheck:
    """Checks the outputs of many calls of one kind against a budget that is measured once.

    The oracle in float64 takes several times as long as PyTorch. So the quick check first compares outputs with a stand-in:
    the problem's `stand_in`, or else PyTorch's `baseline`. If the stand-in is off by e and the outputs differ from it
    by d, the outputs are off by d + e at most; for a d relative to the stand-in's values, by (1 + e) d + e. For other
    inputs of the same kind, e is assumed to be at most `CAUTION` times the measured one.
    """

    def __init__(self, device_name: Device, case: BoundCase, call: Call) -> None:
        self.case = case
        scale = Scale(case, call)
        yardsticks = scale.measure(case.problem.baseline(call))
        self.budgets = budgets_of(device_name, case, yardsticks)
        self.stand_in = _stand_in(case)
        own = scale.measure(self.stand_in(call))
        off = max((one.worst for one in own.values()), default=0.0)  # outputs may share a scale
        # The largest errors against the stand-in that keep outputs within the budgets
        wider, self._nearer = 1 + CAUTION * off, dict[str, Errors]()
        for name, budget in self.budgets.items():
            worst, rms = CAUTION * own[name].worst, CAUTION * own[name].rms
            self._nearer[name] = Errors((budget.worst - worst) / wider, (budget.rms - rms) / wider)

    def accepts(self, call: Call, got: Outputs) -> bool:
        """Whether the outputs are within the budget. After False, `Comparison.compare` decides."""
        return self.is_near(call, got) or within(Scale(self.case, call).measure(got), self.budgets)

    def is_near(self, call: Call, got: Outputs) -> bool:
        """Whether the outputs are so near to the stand-in's that they must be within the budget."""
        theirs = {name: tensor.float() for name, tensor in self.stand_in(call).items()}
        if not all(math.isfinite(float(tensor.sum())) for tensor in theirs.values()):
            return False  # PyTorch has overflowed; the oracle may not have
        return within(Scale(self.case, call, theirs).measure(got), self._nearer)


def _stand_in(case: BoundCase) -> Callable[[Call], Outputs]:
    """The problem's `stand_in`, with its outputs checked, or else its `baseline`."""
    function: Callable[[Call], Outputs] | None = getattr(case.problem, "stand_in", None)
    if function is None:
        return case.problem.baseline

    def checked(call: Call) -> Outputs:
        where = f"stand_in in {case.assignment.folder / 'problem.py'}"
        try:
            outputs = function(call)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise Fault.of_machine(f"{where}: {type(error).__name__}: {error}") from error
        owed = case.problem.outputs(call)
        if not isinstance(outputs, dict) or outputs.keys() != owed.keys():
            raise Fault.of_machine(f"{where} must return a dict of {', '.join(owed)}")
        for name, shape in owed.items():
            one, words = outputs[name], f"must be a tensor of floating-point numbers and of shape {tuple(shape)}"
            if not (isinstance(one, torch.Tensor) and one.shape == tuple(shape) and one.is_floating_point()):
                raise Fault.of_machine(f"{where}: {name} {words}")
        return outputs

    return checked
