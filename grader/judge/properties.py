"""Properties: laws of right answers, tried on inputs that Hypothesis draws. An assignment's own `test_*.py` uses them.

Each property is tried on some inputs of any size. After a wrong answer Hypothesis searches for the smallest input with
a wrong answer. The oracle decides whether an answer is wrong; the property gives the words: "row 2 changed when later
keys were changed" tells a student more than numbers do.

    def test_keys_in_another_order(properties: Properties) -> None:
        "Keys in another order, with their values, change nothing."

        def law(trial: Trial) -> None:
            ...
            trial.agree(trial.ask(permuted), trial.ask(trial.inputs), "o changed when the keys were put in another order")

        properties.hold(law, n=st.integers(1, 40), d=st.sampled_from([16, 32]))
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import HypothesisException
from hypothesis.internal.conjecture import providers

from grader.assignment import Case
from grader.judge.asking import answer
from grader.judge.cases import BoundCase, BoundCheck
from grader.judge.comparison import Comparison
from grader.judge.evidence import Evidence, described
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.messages import CaseNote
from grader.pool.fault import Fault
from grader.problem import Call, bind_params

LIMIT_S = 300.0  # for all inputs of a property
SEARCH_S = 5.0  # for the search for a smaller input after the first wrong answer


class Trial:
    """One drawn input, and the submission's answers to it and to inputs that a law derives from it.

    Attributes:
        inputs: the call that problem.py makes of the drawn parameters.
        generator: of random numbers, the same ones each time this input is tried.
    """

    def __init__(self, properties: Properties, case: BoundCase) -> None:
        self._properties, self._case = properties, case
        self._wrong: Fault | None = None
        run = properties.run
        self.inputs = case.inputs(run.seed, 0, run.device)
        self.generator = torch.Generator(run.device).manual_seed(run.seed & 0xFFFF_FFFF)

    def ask(self, call: Call) -> dict[str, torch.Tensor]:
        """The submission's outputs in float64, by name. Raises Fault if there are none."""
        own = self._properties
        own.run.emit(CaseNote(text="on drawn inputs"))  # an event, so that many inputs do not look like a standstill
        worker = own.workers.worker(self._case.assignment, own.lane)
        got = answer(own.run, self._case, worker, call)
        try:
            own.comparison.compare(self._case, call, got, Evidence(), drawn=True)
        except Fault as failed:
            if failed.whose != "answer":
                raise
            self._wrong = self._wrong or failed
        return {name: tensor.double() for name, tensor in got.items()}

    def agree(self, first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], words: str) -> None:
        """Hold the largest difference of two answers (see `hold`)."""
        for name, tensor in first.items():
            gaps = (tensor - second[name]).abs().nan_to_num(torch.inf)
            self.hold(float(gaps.amax()) if gaps.numel() else 0.0, words)

    def hold(self, gap: float, words: str) -> None:
        """Raise Fault with `words` if the law is missed by `gap` and the oracle has called an answer wrong."""
        tolerated = self._case.assignment.spec.tolerance.floor[self._case.case.dtype]
        if self._wrong is not None and not gap <= tolerated:
            raise Fault.wrong(
                f"{words}, by up to {gap:.3g}", (self._wrong.message, *self._wrong.details), self._wrong.map
            )

    def conclude(self) -> None:
        """Raise Fault if the oracle has called an answer wrong, even if the law held."""
        if self._wrong is not None:
            raise self._wrong


@dataclass(frozen=True)
class Properties:
    """Tries the properties of one check on a submission.

    Attributes:
        lane: the lane whose worker is asked.
    """

    run: Run
    workers: Workers
    comparison: Comparison
    check: BoundCheck
    lane: int = 0

    def hold(self, law: Callable[..., None], **strategies: st.SearchStrategy[Any]) -> None:
        """Try `law(trial, ...)` on drawn inputs. `array_seed` of the part decides their sizes, the seed of the grading their values.

        Args:
            law: asks the submission and raises Fault.
            strategies: for parameters of problem.py, and for further arguments of `law`.

        Raises:
            Fault: about the smallest input found, or the first input without an answer. The grader's own errors pass through.
        """
        assignment, part = self.check.assignment, self.check.part
        self.workers.worker(assignment, self.lane)  # a file that cannot be loaded is not an input's fault
        draw_alike_everywhere()
        started = time.monotonic()
        known: dict[str, Fault | None] = {}
        give_up_at: float | None = None

        def example(drawn: dict[str, Any]) -> None:
            nonlocal give_up_at
            key = _words(drawn)
            if key not in known:
                if give_up_at is not None and time.monotonic() > give_up_at:
                    return  # no time is left for a smaller input
                if time.monotonic() > started + LIMIT_S:
                    raise _Stopped(Fault("timed_out", f"the examples were not answered within {LIMIT_S:g} s"))
                known[key] = self._try(law, drawn)
            if (failed := known[key]) is not None:
                give_up_at = give_up_at or time.monotonic() + SEARCH_S
                raise failed.with_traceback(None)

        # Not of the run's seed, which draws values alone: the points of a kernel depend on no luck
        text = f"{part.array_seed}/{assignment.name}/{part.name}/{self.check.name}"
        search = settings(
            max_examples=assignment.spec.examples[self.run.device_name],
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )(given(st.fixed_dictionaries(dict(strategies)))(example))
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        try:
            hypothesis.seed(seed)(search)()
        except _Stopped as stopped:
            raise stopped.fault from None
        except Fault as failed:
            raise failed.with_traceback(None) from None  # of the smallest input; frames may hold GPU memory

    def _try(self, law: Callable[..., None], drawn: Mapping[str, Any]) -> Fault | None:
        check, model = self.check, self.check.model
        own = {key: value for key, value in drawn.items() if key in model.model_fields}
        case = Case(name=check.name, tries=check.place.title)
        inputs: tuple[str, ...] = ()
        try:
            params = bind_params(check.assignment, check.part, case, model, own)
            bound = BoundCase(check.assignment, check.problem, check.part, case, params)
            trial = Trial(self, bound)
            inputs = described(trial.inputs)
            law(trial, **{key: value for key, value in drawn.items() if key not in own})
            trial.conclude()
        except Fault as fault:
            if fault.whose == "answer":
                found = f"the smallest input found: {_words(drawn, inputs)}"
                return Fault.wrong(fault.message, (*fault.details, found), fault.map)
            if fault.whose != "machine":
                fault.details = (*fault.details, f"the input: {_words(drawn, inputs)}")
            raise _Stopped(fault) from None
        except (AssertionError, HypothesisException):  # of the law, or Hypothesis's own control flow
            raise
        except Exception as error:
            raise _Stopped(error) from None  # an error of the grader: no other input is tried
        return None


def draw_alike_everywhere() -> None:
    """Keep Hypothesis from drawing constants of the source of loaded modules, and from storing files here."""
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")
    if hasattr(providers, "_get_local_constants"):  # since 6.131
        from hypothesis.internal.constants_ast import Constants

        nothing = Constants()
        providers._get_local_constants = lambda: nothing


class _Stopped(BaseException):
    """Ends Hypothesis's search at once: any other exception is a failing example to shrink."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


def _words(drawn: Mapping[str, Any], given: Sequence[str] = ()) -> str:
    """A drawn input in words: its tensors, and the drawn parameters but shapes that the tensors show."""
    tensors = ", ".join(given)
    more = {key: value for key, value in drawn.items() if not (isinstance(value, tuple) and str(value) in tensors)}
    return "; ".join(filter(None, [tensors, ", ".join(f"{key} {value}" for key, value in more.items())]))
