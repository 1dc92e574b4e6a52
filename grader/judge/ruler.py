"""A quick look at timed outputs: whether they are right, mostly without asking the oracle."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from contextlib import suppress

import torch

from grader.assignment import Device
from grader.judge.cases import BoundCase
from grader.judge.comparison import Outputs, Scale, budgets_of, within
from grader.judge.evidence import CaseRefused
from grader.problem import Call
from grader.verdict.tolerance import Errors

CAUTION = 2.0


class Ruler:
    """The budget of one call, for looking quickly at many calls of the same kind: how far PyTorch is off is asked once, not each time.

    The oracle takes several times as long as PyTorch, in float64. So outputs are held against PyTorch's first, those of the problem's
    `stand_in` where it has one. If those are off by e, and the outputs differ from them by d, then the outputs are off by d + e at most;
    of d relative to PyTorch's numbers, by (1 + e) d + e. The e of other inputs of the same kind is taken to be no more than `CAUTION`
    times the one that was measured.
    """

    def __init__(self, device_name: Device, case: BoundCase, call: Call) -> None:
        self.case = case
        scale = Scale(case, call)
        yardsticks = scale.measure(case.problem.baseline(call))
        self.budgets = budgets_of(device_name, case, yardsticks)
        self.stand_in = _stand_in(case)
        own = scale.measure(self.stand_in(call))
        off = max((one.worst for one in own.values()), default=0.0)  # a scale may be common to all outputs
        self._nearer = {name: _nearer(budget, own[name], off) for name, budget in self.budgets.items()}

    def accepts(self, call: Call, got: Outputs) -> bool:
        """Whether the outputs are right by that budget; where not, `compare` has the last word."""
        return self.is_near(call, got) or within(Scale(self.case, call).measure(got), self.budgets)

    def is_near(self, call: Call, got: Outputs) -> bool:
        """Whether the outputs are so near to PyTorch's that they are right, whatever the oracle says."""
        theirs = {name: tensor.float() for name, tensor in self.stand_in(call).items()}
        if not all(math.isfinite(float(tensor.sum())) for tensor in theirs.values()):
            return False  # where PyTorch overflows the oracle may not
        return within(Scale(self.case, call, theirs).measure(got), self._nearer)


def load_early(case: BoundCase, device: torch.device) -> None:
    """Have PyTorch load what the kernels of the case's `stand_in` lie in, which takes a second with the first call."""
    if getattr(case.problem, "stand_in", None) is not None:
        with suppress(torch.OutOfMemoryError, CaseRefused):  # told when it is asked for
            _stand_in(case)(case.inputs(secrets.randbits(53), 0, device))
            torch.cuda.empty_cache()


def _stand_in(case: BoundCase) -> Callable[[Call], Outputs]:
    """The problem's `stand_in`, held to the outputs it owes, or else its `baseline`."""
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
            raise CaseRefused(f"{where}: {type(error).__name__}: {error}") from error
        owed = case.problem.outputs(call)
        if not isinstance(outputs, dict) or outputs.keys() != owed.keys():
            raise CaseRefused(f"{where} must return a dict of {', '.join(owed)}")
        for name, shape in owed.items():
            one, words = outputs[name], f"must be a tensor of floating-point numbers and of shape {tuple(shape)}"
            if not (isinstance(one, torch.Tensor) and one.shape == tuple(shape) and one.is_floating_point()):
                raise CaseRefused(f"{where}: {name} {words}")
        return outputs

    return checked


def _nearer(budget: Errors, own: Errors, off: float) -> Errors:
    """How far outputs may be off from something that is off itself, by no more than `CAUTION` times `own`, and its scale by `off`."""
    worst, rms, wider = CAUTION * own.worst, CAUTION * own.rms, 1 + CAUTION * off
    return Errors((budget.worst - worst) / wider, (budget.rms - rms) / wider)
