"""Applies an assignment's policy: to a submission's source, to PyTorch's operators in a call, and to the kernels that
ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from grader.assignment import Assignment
from grader.judge.reading import CPU_LIMIT_S, MEMORY_LIMIT_BYTES, Answer, Question
from grader.pool.fault import Fault
from grader.protocol import MAX_OPERATORS, RanKernel, RanOperator
from grader.report.model import GpuTime, Outcome
from grader.verdict.gpu_time import decoy, gpu_time, without_own
from grader.verdict.policy import foreign_operators
from grader.verdict.sources import ForbiddenUse

NOT_YOURS = "the work has to be done by your own kernel"
READING_LIMITS = f"{CPU_LIMIT_S} s of a processor and {MEMORY_LIMIT_BYTES >> 30} GiB are what there is"
HINTS_SHOWN = 3  # lines that may have run an operator of which no line is known


def question_of(assignment: Assignment) -> Question:
    """The question to the reading process for an assignment."""
    policy, spec = assignment.spec.policy, assignment.spec
    imports, forbidden = (None, ()) if policy is None else (tuple(policy.imports), tuple(policy.forbidden))
    return Question(spec.file, spec.language, imports, forbidden)


def source_fault(assignment: Assignment, answer: Answer | None) -> Fault | None:
    """Why a submission's source must not be run or cannot be run; None if it may.

    Args:
        answer: of the reading process; None if the source exceeded its limits.
    """
    if answer is None:
        words = f"{assignment.spec.file} and the files beside it take too long to be read, or too much memory: {READING_LIMITS}"
        return Fault("forbidden", words, of_file=True)
    if not answer.refused:
        outcome: Outcome = "build_failed" if assignment.spec.language == "cuda" else "failed"
        return Fault(outcome, answer.unreadable, of_file=True) if answer.unreadable else None
    first, *others = answer.refused
    more = f" (and {answer.count - 1} more)" if others else ""
    told = f"    {first.code}\n" + "".join(
        f'  File "{one.file}", line {one.line}: {one.words}\n    {one.code}\n' for one in others
    )
    why = f"; {NOT_YOURS}" if assignment.spec.language == "cuda" else ""
    message = f"{first.file}, line {first.line}: {first.words}{more}{why}"
    return Fault("forbidden", message, told, of_file=True)


def check_operators(operators: Sequence[RanOperator], assignment: Assignment) -> None:
    """Raise Fault if PyTorch ran operators in a call that the policy does not allow."""
    policy = assignment.spec.policy
    if policy is None:
        return
    if foreign := foreign_operators(operators, policy.operators):
        told = next((one for one in foreign if " " in one.name), None)  # what `grader/worker/guard.py` has found
        first = told or next((one for one in foreign if one.place), foreign[0])
        where = f"{first.place}: " if first.place else ""
        if told is not None:
            raise Fault("forbidden", f"{where}the submission {told.name}; {NOT_YOURS}")
        words = f"{where}PyTorch's operator `{first.name}` ran; {NOT_YOURS}"
        raise Fault("forbidden", words, operators=tuple(foreign))
    if len(operators) >= MAX_OPERATORS:  # the record is full: whatever ran after that is not in it
        words = f"{len(operators)} different operators of PyTorch's ran in one call, and no more are noted"
        raise Fault("forbidden", f"{words}: nobody can tell what else ran; {NOT_YOURS}")


def in_words_of_the_source(fault: Fault, hints: Sequence[ForbiddenUse]) -> Fault:
    """A fault of `check_operators` with the student's own name for the operator and the line itself, where the source has a hint there.

    Of an operator whose line is not known, as in autograd's threads, the hints tell the lines that may have run it.
    """
    places = {f"{one.file}:{one.line}": one for one in reversed(hints)}
    first = next((one for one in fault.operators if one.place), None)
    if first is None and hints:
        named = "; ".join(f"{one.file}, line {one.line}, {one.words}" for one in hints[:HINTS_SHOWN])
        return Fault("forbidden", fault.message, details=(f"{named}: perhaps there",))
    found = places.get(first.place) if first is not None else None
    if found is None:
        return fault
    message = f"{found.file}, line {found.line}: {found.words}; {NOT_YOURS}"
    return Fault("forbidden", message, f"    {found.code}\n")


def check_launches(launches: int | None, got: Iterable[torch.Tensor], assignment: Assignment) -> None:
    """Raise Fault if a call launched no kernel and its outputs are not all one value.

    Args:
        launches: of the submission's kernels on a CPU; None if they were not counted.
    """
    if assignment.spec.policy is None or launches != 0:
        return
    for output in got:
        first = output.flatten()[:1].expand(output.numel())
        if not torch.allclose(output.flatten(), first, rtol=0, atol=0, equal_nan=True):
            raise Fault("forbidden", f"no kernel of your own was launched; {NOT_YOURS}")


def check_kernels(own: frozenset[str], assignment: Assignment, kernels: Sequence[RanKernel]) -> GpuTime | None:
    """The GPU's time by kernel; None if the profiler saw no kernel. Raises Fault if the student's kernels did
    too little.

    Args:
        own: names of the kernels that the submission defines for the assignment.
    """
    found = gpu_time(kernels, own)
    has_policy = assignment.spec.policy is not None
    if found is not None and has_policy and (words := decoy(found) or without_own(kernels, own)):
        raise Fault("forbidden", f"{words}; {NOT_YOURS}")
    return found
