"""The profile of a speed case, from the trace of a call and the compiler's output: pure numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from grader.protocol import CompiledKernel, Gpu, Trace, TracedLaunch
from grader.report.profile import CaseProfile
from grader.verdict.advice import IN_DOUBLE
from grader.verdict.changes import as_shared
from grader.verdict.compiled import coalescing, read
from grader.verdict.prediction import ERRORS, Workload, launch_seconds
from grader.verdict.remarks import remarks
from grader.verdict.resources import kernel_resources
from grader.verdict.traffic import Facts, Launch, launch_profile, operator_traffic

CUT = "a block made too many accesses and was stopped: its counts are too low, and no time is predicted"
NOTHING = "the call launched no kernel, and no operator of PyTorch moved data"
Compiled = list[tuple[str, CompiledKernel, Facts]]  # with names
MAX_NAMES = 3  # functions of a line


def case_profile(
    case: CaseProfile, trace: Trace, compiled: Sequence[CompiledKernel], gpu: Gpu, sources: Mapping[str, str]
) -> CaseProfile:
    """A case with its launches, operators, predicted time and remarks.

    Args:
        case: with the names of the case, its GPU's, `needed_bytes` and `needed_flops` (`cost` of problem.py).
        trace: the worker's, of a traced call at the case's size.
        compiled: kernels for `gpu`, as far as they were compiled. A CUDA file's kernels may share one entry, with
            the compiler's words as its `ptxas`: each kernel is found by its name there, and lines in double precision.
        sources: text of the submission's files, by name.
    """
    work = Workload(
        launches=tuple(launches(trace.launches, compiled, gpu)),
        operators=trace.operators,
        gpu=gpu,
        dtype=case.dtype,
        needed_bytes=case.needed_bytes,
        needed_flops=case.needed_flops,
        in_double=tuple(place for one in compiled for place, _ in IN_DOUBLE.findall(one.ptxas)),
    )
    predicts = bool(work.launches or work.operators) and not work.is_cut
    return case.model_copy(
        update={
            "unknown": _unknown(case.unknown, work),
            "moved_bytes": work.moved_bytes,
            "least_ms": work.least_seconds * 1e3,
            "predicted_ms": work.seconds * 1e3 if predicts else None,
            "bound": work.bound if predicts else "",
            "prediction_error": ERRORS[work.bound] if predicts and work.is_told else None,
            "allocated_bytes": float(trace.allocated_bytes),
            "launches": tuple(
                launch_profile(one, sources, None if one.traced.cut else launch_seconds(one)) for one in work.launches
            ),
            "operators": tuple(map(operator_traffic, trace.operators)),
            "remarks": remarks(work),
        }
    )


def _unknown(told: str, work: Workload) -> str:
    """What is missing in a profile: what was `told` before the trace was read, and what the trace lacks."""
    if not work.launches and not work.operators:
        return NOTHING
    return "; ".join(filter(None, (told, CUT if work.is_cut else "")))


def _known(compiled: Sequence[CompiledKernel]) -> Compiled:
    found: Compiled = []
    for kernel in compiled:
        told = kernel_resources(kernel.ptxas)
        for one in told:
            is_own = len(told) == 1 and kernel.warps > 0
            facts = Facts(
                registers=one.registers,
                spilled_bytes=one.spill_store_bytes + one.spill_load_bytes,
                shared_bytes=kernel.shared_bytes if is_own else one.shared_bytes,
            )
            found.append((kernel.name if is_own else one.name, kernel, facts))
    return found


def launches(traced: Sequence[TracedLaunch], compiled: Sequence[CompiledKernel], gpu: Gpu) -> Iterator[Launch]:
    """Launches with the facts of their kernels. Of kernels of one name, the n-th belongs to the n-th different launch.

    A Triton kernel has the warps with which it was compiled: a submission that asks which GPU there is may choose others in
    the interpreter.
    """
    known = _known(compiled)
    seen: dict[str, int] = {}
    for launch in map(as_shared, traced):
        name = _own_name(launch.kernel)
        fitting = [one for one in known if one[0] == name]
        fitting = [one for one in fitting if one[1].warps * gpu.warp == launch.threads] or fitting
        facts = Facts()
        if fitting:
            _, kernel, facts = fitting[min(seen.get(name, 0), len(fitting) - 1)]
            facts = _with_texts(facts, kernel, launch)
            launch = replace(launch, threads=kernel.warps * gpu.warp or launch.threads)
        seen[name] = seen.get(name, 0) + 1
        yield Launch(launch, facts, gpu)


def _with_texts(facts: Facts, kernel: CompiledKernel, launch: TracedLaunch) -> Facts:
    """The facts, with those of the kernel's TTGIR and PTX about the lines of a launch."""
    file = next((one.file for one in launch.accesses if one.file), "")
    if not kernel.texts or not file:
        return facts
    found = read(kernel, file)
    widths = {(verb, line): max(bytes_) for (verb, line), bytes_ in found.widths.items()}
    ratios: dict[tuple[str, int], float] = {}
    for one in launch.accesses:
        place = (one.verb, one.line)
        known = (coalescing(one, layout, widths.get(place, 0)) for layout in found.layouts.get(place, ()))
        if one.space == "global" and (fewest := [ratio for ratio in known if ratio is not None]):
            ratios[place] = max(min(fewest), ratios.get(place, 0.0))
    return replace(
        facts,
        instructions=found.instructions,
        doubles=sum(found.doubles.values()),
        tensor_cores=found.has_tensor_cores if found.has_dot else None,
        notes=tuple(
            f"line {line} calls {', '.join(names[:MAX_NAMES])}" for line, names in found.functions.items() if line
        ),
        widths={place: bytes_ for place, bytes_ in widths.items() if place[1]},
        ratios=ratios,
    )


def _own_name(kernel: str) -> str:
    """Without template arguments and namespace."""
    return kernel.partition("<")[0].rpartition("::")[2].strip()
