"""Applies an assignment's policy: to a submission's source, to PyTorch's operators in a call, and to the kernels that
ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from grader.assignment import Assignment
from grader.contender.fault import Fault
from grader.judge.reading import CPU_LIMIT_S, MEMORY_LIMIT_BYTES, Answer, Question
from grader.protocol import MAX_OPERATORS, RanKernel, RanOperator
from grader.report.model import GpuTime, Outcome
from grader.verdict.gpu_time import decoy, gpu_time, without_own
from grader.verdict.policy import foreign_operators

NOT_YOURS = "the work has to be done by your own kernel"
TRIED_OUT = f'{NOT_YOURS}, and what tries it out stands below `if __name__ == "__main__":`'
READING_LIMITS = f"{CPU_LIMIT_S} s of a processor and {MEMORY_LIMIT_BYTES >> 30} GiB are what there is"


def question_of(assignment: Assignment) -> Question:
    """The question to the reading process for an assignment."""
    policy, spec = assignment.spec.policy, assignment.spec
    imports, forbidden = (None, ()) if policy is None else (tuple(policy.imports), tuple(policy.forbidden))
    return Question(spec.file, spec.entry, spec.language, imports, forbidden)


def source_fault(assignment: Assignment, answer: Answer | None, gradients: bool) -> Fault | None:
    """Why a submission's source must not be run or cannot be run; None if it may.

    Args:
        answer: of the reading process; None if the source exceeded its limits.
        gradients: whether a call asks for gradients.
    """
    if answer is None:
        words = f"{assignment.spec.file} and the files beside it take too long to be read, or too much memory: {READING_LIMITS}"
        return Fault("forbidden", words, of_file=True)
    uses = answer.gradients if gradients else answer.plain
    if not uses.count:
        outcome: Outcome = "build_failed" if assignment.spec.language == "cuda" else "failed"
        return Fault(outcome, answer.unreadable, of_file=True) if answer.unreadable else None
    (first, *others), (line, *other_lines) = uses.findings, uses.lines
    more = f" (and {uses.count - 1} more)" if others else ""
    frames = zip(others, other_lines, strict=True)
    told = f"    {line}\n" + "".join(
        f'  File "{one.file}", line {one.line}: {one.words}\n    {of}\n' for one, of in frames
    )
    if uses.count == uses.absent:
        message = f"{first.file}, line {first.line}: {first.words}{more}"
        return Fault("failed", message, told, of_file=not gradients)
    why = TRIED_OUT if first.tried_out else NOT_YOURS
    message = f"{first.file}, line {first.line}: {first.words}{more}; {why}"
    return Fault("forbidden", message, told, of_file=not gradients)


def check_operators(operators: Sequence[RanOperator], assignment: Assignment) -> None:
    """Raise Fault if PyTorch ran operators in a call that the policy does not allow."""
    policy = assignment.spec.policy
    if policy is None:
        return
    if foreign := foreign_operators(operators, policy.operators):
        first = next((one for one in foreign if one.place), foreign[0])
        where = f"{first.place}: " if first.place else ""
        raise Fault("forbidden", f"{where}PyTorch's operator `{first.name}` ran; {NOT_YOURS}")
    if len(operators) >= MAX_OPERATORS:  # the record is full: whatever ran after that is not in it
        words = f"{len(operators)} different operators of PyTorch's ran in one call, and no more are noted"
        raise Fault("forbidden", f"{words}: nobody can tell what else ran; {NOT_YOURS}")


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
