"""Whose kernel it was: an assignment's policy, held against a submission's source and against what PyTorch did while it ran."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from grader.assignment import Assignment
from grader.contender.replies import ContenderFault, RanKernel, RanOperator
from grader.report.model import GpuTime
from grader.verdict.gpu_time import Ran, decoy, gpu_time, triton_kernels, without_own
from grader.verdict.policy import Finding, Operator, cuda_findings, foreign_operators, python_findings
from grader.verdict.resources import kernel_resources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grader.judge.state import Judge

NOT_YOURS = "the work has to be done by your own kernel"
SUFFIXES = {"triton": (".py",), "cuda": (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")}
MAX_SHOWN = 3


def forbidden_use(assignment: Assignment, folder: Path, files: Sequence[str]) -> ContenderFault | None:
    """What the source of a submission must not use, before any of it has run; None where there is nothing.

    Args:
        folder: the staged submission; `files` are those in it.
    """
    policy, spec = assignment.spec.policy, assignment.spec
    if policy is None:
        return None
    sources = _sources(folder, files, SUFFIXES[spec.language])
    if spec.language == "triton":
        found = python_findings(sources, spec.file, spec.entry, policy.imports, policy.forbidden)
    else:
        found = cuda_findings(sources, policy.forbidden)
    if not found:
        return None
    first, more = found[0], f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    words = f"{first.file}, line {first.line}: {first.words}{more}; {NOT_YOURS}"
    return ContenderFault("forbidden", words, "".join(_frame(one, sources) for one in found[:MAX_SHOWN]))


def check_operators(operators: Sequence[RanOperator], assignment: Assignment) -> None:
    """Whether PyTorch did no more in a call than the policy allows it. Raises ContenderFault."""
    policy = assignment.spec.policy
    if policy is None:
        return
    ran = [Operator(one.name, one.place) for one in operators]
    if foreign := foreign_operators(ran, policy.operators):
        first = next((one for one in foreign if one.place), foreign[0])
        where = f"{first.place}: " if first.place else ""
        raise ContenderFault("forbidden", f"{where}PyTorch's operator `{first.name}` ran; {NOT_YOURS}")


def check_launches(launches: int | None, got: Iterable[torch.Tensor], assignment: Assignment) -> None:
    """Whether an answer can be a kernel's: outputs that are not all the same value need a launch. Raises ContenderFault.

    Args:
        launches: of the submission's Triton kernels; None where nobody counts them.
    """
    if assignment.spec.policy is None or assignment.spec.language != "triton" or launches != 0:
        return
    for output in got:
        first = output.flatten()[:1].expand(output.numel())
        if not torch.allclose(output.flatten(), first, rtol=0, atol=0, equal_nan=True):
            raise ContenderFault("forbidden", f"no kernel of your own was launched; {NOT_YOURS}")


def check_kernels(judge: Judge, assignment: Assignment, kernels: Sequence[RanKernel]) -> GpuTime | None:
    """In whose kernels the GPU spent its time; None where the profiler saw none. Raises ContenderFault where they are not the student's."""
    ran, own = [Ran(one.name, one.calls, one.time_s) for one in kernels], own_kernels(judge, assignment)
    found = gpu_time(ran, own)
    if found is not None and assignment.spec.policy is not None and (words := decoy(found) or without_own(ran, own)):
        raise ContenderFault("forbidden", f"{words}; {NOT_YOURS}")
    return found


def own_kernels(judge: Judge, assignment: Assignment) -> frozenset[str]:
    """Names of the kernels that the submission defines for an assignment."""
    if assignment.spec.language == "cuda":
        return frozenset(one.name for one in kernel_resources(judge.ptxas(assignment)))
    return triton_kernels(_sources(judge.job.submission, judge.job.info.files, SUFFIXES["triton"]))


def _sources(folder: Path, files: Sequence[str], suffixes: tuple[str, ...]) -> dict[str, str]:
    names = [name for name in files if name.endswith(suffixes)]
    return {name: (folder / name).read_text(encoding="utf-8", errors="replace") for name in names}


def _frame(finding: Finding, sources: dict[str, str]) -> str:
    """The line, as tracebacks show it."""
    text = sources[finding.file].splitlines()[finding.line - 1].strip()[:200]
    return f'  File "{finding.file}", line {finding.line}\n    {text}\n'
