"""Properties of right answers, tried on inputs that Hypothesis draws: for the checks in an assignment's own `test_*.py`.

Each property is tried on some inputs of any size; if one is answered wrongly, the smallest such input is looked for. The oracle decides
what is wrong there too. The property gives the words: "row 2 changed when later keys were changed" tells a student more than numbers do.

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
from grader.contender.replies import ContenderFault
from grader.job import CaseNote
from grader.judge.asking import answer
from grader.judge.cases import BoundCase, Place
from grader.judge.comparison import Comparison
from grader.judge.crew import Crew
from grader.judge.evidence import CheckFailed, Evidence, described
from grader.judge.run import Run
from grader.problem import Call, Params, Problem, bind_params

LIMIT_S = 300.0  # for all examples of a property
SEARCH_S = 5.0  # for a smaller input, after the first that is answered wrongly


class Trial:
    """One drawn input, and what was answered to it and to what a property makes of it.

    Attributes:
        inputs: the call that problem.py makes of the drawn parameters.
        generator: of random numbers, the same each time that this input is tried.
    """

    def __init__(self, properties: Properties, case: BoundCase) -> None:
        self._properties, self._case = properties, case
        self._wrong: CheckFailed | None = None
        run = properties.run
        self.inputs = case.inputs(run.seed, 0, run.device)
        self.generator = torch.Generator(run.device).manual_seed(run.seed & 0xFFFF_FFFF)

    def ask(self, call: Call) -> dict[str, torch.Tensor]:
        """The submission's outputs in float64. Raises CheckFailed, ContenderFault where there are none to look at."""
        own = self._properties
        own.run.emit(CaseNote(text="on drawn inputs"))  # many examples are no standstill
        contender = own.crew.worker(self._case.assignment, own.lane)
        got = answer(own.run, self._case, contender, call)
        try:
            own.comparison.compare(self._case, call, got, Evidence(), drawn=True)
        except CheckFailed as failed:
            self._wrong = self._wrong or failed
        return {name: tensor.double() for name, tensor in got.items()}

    def agree(self, first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], words: str) -> None:
        """As `hold`, with the largest difference of the two."""
        for name, tensor in first.items():
            gaps = (tensor - second[name]).abs().nan_to_num(torch.inf)
            self.hold(float(gaps.amax()) if gaps.numel() else 0.0, words)

    def hold(self, gap: float, words: str) -> None:
        """Raise CheckFailed with these words, and by how much the property is missed, if an answer is wrong by the oracle."""
        tolerated = self._case.assignment.spec.tolerance.floor[self._case.case.dtype]
        if self._wrong is not None and not gap <= tolerated:
            raise CheckFailed(
                f"{words}, by up to {gap:.3g}", (self._wrong.message, *self._wrong.details), self._wrong.map
            )

    def conclude(self) -> None:
        """Raise CheckFailed if an answer is wrong by the oracle, whatever the property says."""
        if self._wrong is not None:
            raise self._wrong


@dataclass(frozen=True)
class Properties:
    """Tries properties on a submission.

    Attributes:
        place: of the check; the defaults of its part hold.
        problem, model: the assignment's problem.py and its keys.
        lane: whose worker is asked.
    """

    run: Run
    crew: Crew
    comparison: Comparison
    place: Place
    problem: Problem
    model: type[Params]
    lane: int = 0

    def hold(self, law: Callable[..., None], **strategies: st.SearchStrategy[Any]) -> None:
        """Try `law(trial, ...)` on drawn inputs; the seed of the grading draws the same ones again.

        Args:
            law: asks the submission, and raises CheckFailed.
            strategies: for keys of problem.py, and for further arguments of `law`.

        Raises:
            CheckFailed: about the smallest input found.
            ContenderFault: of the first input without an answer. Faults of the grader pass through.
        """
        assignment, part = self.place.assignment, self.place.part
        self.crew.worker(assignment, self.lane)  # what cannot be loaded is no input's fault
        draw_alike_everywhere()
        started = time.monotonic()
        known: dict[str, CheckFailed | None] = {}
        give_up_at: float | None = None

        def example(drawn: dict[str, Any]) -> None:
            nonlocal give_up_at
            key = _words(drawn)
            if key not in known:
                if give_up_at is not None and time.monotonic() > give_up_at:
                    return  # whatever is smaller was not found in time
                if time.monotonic() > started + LIMIT_S:
                    raise _Stopped(ContenderFault("timed_out", f"the examples were not answered within {LIMIT_S:g} s"))
                known[key] = self._try(law, drawn)
            if (failed := known[key]) is not None:
                give_up_at = give_up_at or time.monotonic() + SEARCH_S
                raise failed.with_traceback(None)

        text = f"{self.run.seed}/{assignment.name}/{part.name}/{self.place.name}"
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
        except CheckFailed as failed:
            raise failed.with_traceback(None) from None  # the smallest, whose frames may hold GPU memory

    def _try(self, law: Callable[..., None], drawn: Mapping[str, Any]) -> CheckFailed | None:
        place, own = self.place, {key: value for key, value in drawn.items() if key in self.model.model_fields}
        case = Case(name=place.name, tries=place.title, params=own)
        given: tuple[str, ...] = ()
        try:
            params = bind_params(place.assignment, place.part, case, self.model, own)
            bound = BoundCase(place.assignment, self.problem, place.part, case, params)
            trial = Trial(self, bound)
            given = described(trial.inputs)
            law(trial, **{key: value for key, value in drawn.items() if key not in own})
            trial.conclude()
        except CheckFailed as failed:
            found = f"the smallest input found: {_words(drawn, given)}"
            return CheckFailed(failed.message, (*failed.details, found), failed.map)
        except ContenderFault as fault:
            fault.details = (*fault.details, f"the input: {_words(drawn, given)}")
            raise _Stopped(fault) from None
        except (AssertionError, HypothesisException):  # what the law says, and what Hypothesis does
            raise
        except Exception as error:
            raise _Stopped(error) from None  # the grader's own: no other input is tried
        return None


def draw_alike_everywhere() -> None:
    """Keep Hypothesis from drawing numbers that it finds in the source of whatever modules are loaded, and from keeping files."""
    set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")
    if hasattr(providers, "_get_local_constants"):  # since 6.131
        from hypothesis.internal.constants_ast import Constants

        nothing = Constants()
        providers._get_local_constants = lambda: nothing


class _Stopped(BaseException):
    """Ends Hypothesis's search: it takes any other exception for something to look at more closely."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


def _words(drawn: Mapping[str, Any], given: Sequence[str] = ()) -> str:
    """A drawn input: the tensors that were made of it, and what was drawn, but for a shape that these have."""
    tensors = ", ".join(given)
    more = {key: value for key, value in drawn.items() if not (isinstance(value, tuple) and str(value) in tensors)}
    return "; ".join(filter(None, [tensors, ", ".join(f"{key} {value}" for key, value in more.items())]))
