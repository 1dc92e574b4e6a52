"""The staff's kernel: what it answers in a case, where PyTorch's error alone is not budget enough."""

from __future__ import annotations

import threading

import torch

from grader.contender.contender import WorkerUnavailable
from grader.contender.replies import ContenderFault
from grader.judge.asking import answer
from grader.judge.cases import BoundCase
from grader.judge.crew import Crew
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.run import Run
from grader.problem import Call


class Reference:
    """Asks the reference kernels, each in a worker of its own. Threads may share it; they ask one after another."""

    def __init__(self, run: Run, crew: Crew) -> None:
        self._run = run
        self._crew = crew
        self._asking = threading.Lock()

    def answer(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        """The reference kernel's outputs for `call`. Raises CaseRefused, WorkerUnavailable when it gives none."""
        with self._asking:
            try:
                return self._ask(case, call)
            except (CaseRefused, WorkerUnavailable):
                if self._crew.is_busy:
                    raise
            self._crew.evict()  # the submission has answered, and may have filled what the reference needs
            return self._ask(case, call)

    def _ask(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        try:
            return answer(self._run, case, self._crew.reference(case.assignment), call, Evidence())
        except ContenderFault as fault:
            words = f"the reference kernel gave no answer in {case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self._run.device_name == "cuda":
                raise MemoryError(words) from None  # perhaps the submission has it
            raise CaseRefused(words) from None
        except CheckFailed as failed:
            raise CaseRefused(f"the reference kernel broke the contract in {case.id}: {failed.message}") from None
