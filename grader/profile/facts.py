"""The profile of a speed case: pure numbers, from the trace of a call, the compiler's output, and PyTorch's profiler on a GPU."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence

from grader.profile.launches import Launch, conflicts, idle_share, launches
from grader.profile.model import CaseProfile, GpuRun, LaunchProfile, LineTraffic, RanLine
from grader.profile.occupancy import occupancy
from grader.profile.remarks import Work, remarks
from grader.protocol import CompiledKernel, Gpu, GpuTrace, Trace
from grader.verdict import text
from grader.verdict.advice import IN_DOUBLE
from grader.verdict.gpu_time import is_own, short_name

CUT = "a block made too many accesses and was stopped: its counts are too low"
NOTHING = "the call launched no kernel, and no operator of PyTorch moved data"
MAX_SOURCE = 200  # A line of source is cut to this many characters.


def case_profile(
    case: CaseProfile, trace: Trace, compiled: Sequence[CompiledKernel], gpu: Gpu, sources: Mapping[str, str]
) -> CaseProfile:
    """A case with its launches, operators and remarks.

    Args:
        case: with the names of the case, its GPU's, `needed_bytes` and `needed_flops` (`cost` of problem.py).
        trace: the worker's, of a traced call at the case's size.
        compiled: kernels for `gpu`, as far as they were compiled. A CUDA file's kernels may share one entry, with
            the compiler's words as its `ptxas`: each kernel is found by its name there, and lines in double precision.
        sources: text of the submission's files, by name.
    """
    work = Work(
        launches=tuple(launches(trace.launches, compiled, gpu)),
        operators=trace.operators,
        dtype=case.dtype,
        needed_bytes=case.needed_bytes,
        needed_flops=case.needed_flops,
        in_double=tuple(place for one in compiled for place, _ in IN_DOUBLE.findall(one.ptxas)),
    )
    is_cut = any(one.is_cut for one in work.launches)
    unknown = "; ".join(filter(None, (case.unknown, CUT if is_cut else "")))
    return case.model_copy(
        update={
            "unknown": unknown if work.launches or work.operators else NOTHING,
            "moved_bytes": work.moved_bytes,
            "is_cut": is_cut,
            "launches": tuple(launch_profile(one, sources) for one in work.launches),
            "operators": trace.operators,
            "remarks": remarks(work),
        }
    )


def launch_profile(launch: Launch, sources: Mapping[str, str]) -> LaunchProfile:
    traced, facts = launch.traced, launch.facts
    known = facts.registers is not None
    return LaunchProfile(
        kernel=traced.kernel,
        line=traced.line,
        grid=(traced.grid[0], traced.grid[1], traced.grid[2]),
        threads=traced.threads,
        launches=traced.launches,
        registers=facts.registers,
        spilled_bytes=facts.spilled_bytes,
        shared_bytes=launch.shared_bytes,
        occupancy=launch.occupancy if known else None,
        waves=launch.waves if known and launch.waves.slots else None,
        flops=launch.flops,
        moved_bytes=launch.moved_bytes,
        lines=tuple(
            LineTraffic(
                file=one.file,
                line=one.line,
                source=source_line(sources, one.file, one.line),
                verb=one.verb,
                space=one.space,
                tensor=one.tensor,
                bytes=launch.asked(one),
                sectors_ratio=launch.ratio(one),
                idle_share=idle_share(one),
                conflicts=conflicts(one),
                atomic=one.atomic,
            )
            for one in traced.accesses
        ),
        notes=tuple(f"line {line} calls {', '.join(names)}" for line, names in facts.texts.functions.items()),
    )


def source_line(sources: Mapping[str, str], file: str, line: int) -> str:
    lines = text.lines(sources.get(file, ""))
    return lines[line - 1].strip()[:MAX_SOURCE] if 0 < line <= len(lines) else ""


def gpu_run(trace: GpuTrace, own: Collection[str], table: Gpu, name: str) -> GpuRun:
    """A traced call on the GPU of this `name`. Alike kernels in a row are one line.

    Args:
        own: names of the submission's kernels, without namespace, template arguments and parameters.
        table: a GPU of its kind, for the occupancy.
    """
    total_s = sum(one.time_s for one in trace.ran) or 1.0
    kernels = []
    alike = itertools.groupby(
        trace.ran, key=lambda one: (one.name, one.grid, one.block, one.registers, one.shared_bytes)
    )
    for (long_name, grid, block, registers, shared_bytes), ran in alike:
        each_s = [one.time_s for one in ran]
        threads = math.prod(block)
        held = occupancy(table, threads, registers, shared_bytes) if threads and registers else None
        kernels.append(
            RanLine(
                name=short_name(long_name),
                own=is_own(long_name, own),
                calls=len(each_s),
                time_ms=sum(each_s) * 1e3,
                share=sum(each_s) / total_s,
                grid=grid,
                threads=threads,
                registers=registers,
                shared_bytes=shared_bytes,
                occupancy=None if held is None else held.share,
            )
        )
    return GpuRun(
        gpu=name,
        kernels=tuple(kernels),
        host_ms=trace.host_s * 1e3,
        device_ms=trace.device_s * 1e3,
        busy_ms=trace.busy_s * 1e3,
        missing=max(trace.ran_of_all - len(trace.ran), 0),
    )


def triton_in(source: str) -> str:
    """The Triton functions in code that torch.compile generated, which holds them as strings."""
    return "\n\n".join(re.findall(r"^@triton\.jit\n(def .*?)^'''", source, re.MULTILINE | re.DOTALL)).strip()
