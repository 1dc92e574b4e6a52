"""Runs a case under compute-sanitizer: a small input, in a worker of its own under NVIDIA's tool.

The tool sees errors that guard bands cannot: reads out of bounds, races in shared memory, uninitialised memory. Every
tensor has an allocation of its own for that. The answer is compared as always, so a submission that does nothing fails.

The tool's log lies in the submission's scratch folder. A submission can empty the log (the case is skipped) or forge
it. So the tool finds mistakes, and proves nothing.
"""

from __future__ import annotations

from pathlib import Path

from grader.judge.asking import arena_for, check_returned, request_for
from grader.judge.cases import BoundCase
from grader.judge.comparison import Comparison
from grader.judge.evidence import Evidence, described
from grader.judge.files import Files
from grader.judge.loading import load_file
from grader.judge.ownership import check_operators
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.nvidia import find_sanitizer
from grader.pool import tools
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.verdict.sanitizer import findings

LIMITS = CallLimits(time_s=150.0, memory_gib=16.0)  # a kernel is many times slower under the tool
MAX_TOLD = 6
UNUSABLE = "compute-sanitizer gave no verdict here"
COMPLETE = "SUMMARY"  # begins the last line of a complete log


def run_watched(
    run: Run, files: Files, workers: Workers, comparison: Comparison, case: BoundCase, evidence: Evidence
) -> None:
    """Run the case's first call under its tool.

    Raises:
        Fault: the tool found an error in the student's kernels, the answer is wrong, or there is no file or it cannot be
            loaded; `skipped` if the tool cannot be used here.
    """
    assert case.case.tool is not None
    call = case.inputs(run.seed, 0, run.device)
    shapes = case.problem.outputs(call)
    program = find_sanitizer()
    assert program is not None  # otherwise `skip.py` has refused the case
    try:
        worker = workers.watched(case.assignment, tools.sanitizer(program, case.case.tool))
    except Fault as unavailable:
        if unavailable.whose != "machine":
            raise
        raise Fault("skipped", f"{UNUSABLE}: {unavailable}") from None
    fault, reply, loaded = None, None, False
    with arena_for(call, shapes, case.dtype, run.device) as arena, worker:
        request = request_for(arena, call, LIMITS.time_s, apart=True)
        try:
            with files.hangs.ending(case.place, worker):
                load_file(worker, run.request.copied.folder, case.assignment)
                loaded = True
                worker.log.mark(case.place.heading)
                evidence.given = described(call)
                reply = worker.do(request, LIMITS, arena.files)
        except Fault as ended:
            if ended.whose == "machine":
                raise
            fault = ended  # the tool's findings are told first: they may be the cause
        worker.kill()
        got = {name: arena.output(name) for name in shapes}
    names = {Path(name).name for name in run.request.copied.info.files} | {case.assignment.spec.file}
    found = findings(worker.tool_log, names)
    if case.assignment.spec.language != "cuda":
        # The tool misreports shared memory of tensor cores' operands. Triton lays that memory out, not the student.
        found = [one for one in found if one.space == "global"]
    if found:
        more = [f"... and in {len(found) - MAX_TOLD} more places"] if len(found) > MAX_TOLD else []
        sentences = [one.sentence for one in found[:MAX_TOLD]]
        raise Fault.wrong(f"{case.case.tool}: {sentences[0]}", (*sentences[1:], *more))
    if fault is not None and not loaded and (own := files.fault_of_file(case.assignment, fault)) is not None:
        raise own
    if fault is not None:
        files.hangs.check(case.place)
    if fault is not None or reply is None or COMPLETE not in worker.tool_log:
        why = "it wrote no summary" if fault is None else fault.message
        raise Fault("skipped", f"{UNUSABLE}: {why}")
    check_operators(reply.operators, case.assignment)
    check_returned(reply.returned, shapes, case.dtype, run.device)
    comparison.compare(case, call, got, evidence)
