"""The one fault of a grading: why a case, a call or a start has no good end, and whose fault that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from grader.protocol import RaisedBy, RanOperator
from grader.report.model import ErrorMap, Outcome

Whose: TypeAlias = RaisedBy | Literal["answer", "machine"]


@dataclass(eq=False, repr=False)
class Fault(Exception):
    """A call gave no answer, an answer is wrong, or the machine or the course failed.

    Attributes:
        outcome: of the case.
        message: a sentence for the student.
        traceback: the student's frames, or a compiler's output.
        details: further sentences for the student.
        whose: `answer`, if the judge found the answer wrong. Without an answer: the `submission`'s own code, a `library` that it
            called, or the `toolchain`, which may mean the machine. `machine`, if this says nothing about the submission: a
            worker could not start, a tool is broken, or the course is wrong.
        of_file: whether the file is at fault before any call: it must not be run, or could not be built or loaded.
        map: of a wrong output.
        outside: a write outside of the tensors (`arena.OutOfBounds`), with the call's outputs; None for other faults.
        operators: of PyTorch that ran and must not, if that is the fault.
        cut_off: whether the call ended only because everything in its jail was ended, for what another worker had left
            behind: it says nothing, and is repeated.
        of_start: whether a worker did not start.
    """

    outcome: Outcome
    message: str
    traceback: str = ""
    details: tuple[str, ...] = ()
    whose: Whose = "library"
    of_file: bool = False
    map: ErrorMap | None = None
    outside: tuple[Any, Mapping[str, Any]] | None = None
    operators: tuple[RanOperator, ...] = ()
    cut_off: bool = False
    of_start: bool = False

    def __post_init__(self) -> None:
        self.message = self.message if self.message.strip() else "failed without a word"
        super().__init__(self.message)

    @classmethod
    def wrong(cls, message: str, details: tuple[str, ...] = (), map: ErrorMap | None = None) -> Fault:
        """The judge found the answer wrong: a sentence for the student, details, and a map of a wrong output."""
        return cls("failed", message, details=details, whose="answer", map=map)

    @classmethod
    def of_machine(cls, message: str, details: tuple[str, ...] = ()) -> Fault:
        """The case says nothing about the submission."""
        return cls("infra_error", message, details=details, whose="machine")

    @classmethod
    def no_worker(cls, message: str) -> Fault:
        """A worker did not start, by a fault of the machine."""
        return cls("infra_error", message, whose="machine", of_start=True)
