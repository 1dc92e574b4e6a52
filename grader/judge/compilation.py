"""On a machine without a GPU: compiles a submission's Triton kernels for the GPUs of `problem.toml`, beside
interpreting them.

The interpreter accepts kernels that a compiler refuses, such as `tl.dot` of two dtypes or blocks larger than shared
memory. So a worker compiles the launches of some cases while later cases run. A case fails if its kernel would not run
on the GPU that submissions are graded on; compiling earns no points.
"""

from __future__ import annotations

import re
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from grader.assignment import Assignment
from grader.judge.asking import arena_for, request_for
from grader.judge.cases import BoundCase
from grader.judge.evidence import described, with_input
from grader.judge.files import Files
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.messages import CaseNote
from grader.pool.fault import Fault
from grader.pool.replies import fault_of
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import CompiledCall, Gpu
from grader.report.model import NOT_COMPILED, KernelResources
from grader.verdict.resources import kernel_resources, misfit

# Triton's message when a block needs more shared memory than there is.
SHARED_MEMORY = re.compile(r"out of resource: shared memory, Required: (\d{1,10}),")
GRID_TOO_LARGE = "GridTooLarge"  # the error of `grader/worker/grids.py`
WAIT_S = 20.0  # seconds between two events that say that the judge still waits
OWN_NUMBER = 1_000_000  # the number of its call, higher than any case has


class Compilation:
    """Compiles the cases with `compiled` in problem.toml, in their order, one assignment at a time.

    Attributes:
        kernels: resources of each assignment's compiled kernels, by assignment name.
    """

    def __init__(self, run: Run, files: Files, workers: Workers) -> None:
        self._run, self._files, self._workers = run, files, workers
        is_wanted = run.device_name == "cpu" and run.request.compilation
        self._cases = [case for case in run.cases if case.case.compiled] if is_wanted else []
        self._assignment = ""
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: dict[str, Future[list[CompiledCall | Unknown]]] = {}
        self._worker: Worker | None = None
        self._given_up = ""
        self.kernels: dict[str, list[KernelResources]] = {}

    def start(self, assignment: Assignment) -> None:
        """Begin to compile an assignment's cases in the background. Does nothing if they have begun."""
        if not self._cases or self._assignment == assignment.name:
            return
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
        self._assignment, self._given_up = assignment.name, ""
        self._thread, self._ahead = ThreadPoolExecutor(1, thread_name_prefix="compilation"), {}
        with suppress(Fault):
            self._files.check_source(assignment)
            for case in self._cases:
                if case.assignment is assignment:
                    self._ahead[case.id] = self._thread.submit(self._compile, case)

    def drop(self, case: BoundCase) -> None:
        """Do not compile a case: it has failed anyway."""
        if (future := self._ahead.pop(case.id, None)) is not None:
            future.cancel()

    def check(self, case: BoundCase) -> str:
        """Wait until a case's launches are compiled. Returns a sentence about the result; "" if the case is not
        compiled.

        Raises:
            Fault: a kernel would not run on the GPU that submissions are graded on.
        """
        if (future := self._ahead.pop(case.id, None)) is None:
            return ""
        while not wait([future], timeout=WAIT_S).done:
            self._run.emit(CaseNote(text="is being compiled"))
        calls, kernels = future.result(), self.kernels.setdefault(case.assignment.name, [])
        for call in calls:
            where = {"part": case.part.name, "case": case.name}
            kernels += [one.model_copy(update=where) for one in _resources(call)]
        if isinstance(first := calls[0], Unknown):
            return first.why
        try:
            raise_fault(first)
        except Fault as fault:
            given = described(case.inputs(self._run.seed, OWN_NUMBER, self._run.device))
            fault.details = with_input(fault.details, fault.message, given, case.name)
            raise
        good = [call for call in calls if isinstance(call, CompiledCall) and call.kernels and call.error is None]
        if not good:
            return ""
        every = all(call.whole for call in good)
        which = "its kernels" if every else "its first kernels, up to where it looks at results,"
        return f"{which} were compiled for {', '.join(call.arch for call in good)}"

    def abandon(self) -> None:
        """Begin no other case. A compilation in progress ends with its worker."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _compile(self, case: BoundCase) -> list[CompiledCall | Unknown]:
        """Compile a case for every GPU, first the graded one. After a fault no other case is tried."""
        spec, done = case.assignment.spec, list[CompiledCall | Unknown]()
        others = () if self._run.request.effort == "quick" else spec.other_gpus
        for gpu in dict.fromkeys([spec.gpu, *others]):
            try:
                self._files.hangs.check(case.place)
                if self._given_up:
                    raise Fault("skipped", self._given_up)
                if self._worker is None or not self._worker.lives():
                    self._worker = self._workers.beside(case.assignment, "compile", logged=False)
                with self._files.hangs.ending(case.place, self._worker):
                    done.append(compiled_call(self._run, self._worker, case, gpu))
            except Fault as fault:
                if not self._files.hangs.has_given_up(case.place):
                    self._given_up = self._given_up or str(fault)
                done.append(Unknown(gpu.arch, f"could not be compiled here: {fault}"))
        return done

    def first_case(self, assignment: Assignment) -> BoundCase | None:
        """The first of an assignment's cases to be compiled; None if there is none."""
        return next((case for case in self._cases if case.assignment is assignment), None)

    def wait(self) -> None:
        """Wait until no case is being compiled."""
        wait(self._ahead.values())


def compiled_call(run: Run, worker: Worker, case: BoundCase, gpu: Gpu) -> CompiledCall:
    """A compiling worker's result for a case and a GPU. Raises Fault if there is no answer."""
    limits = case.assignment.spec.limits
    call = case.inputs(run.seed, OWN_NUMBER, run.device)
    with arena_for(call, case.problem.outputs(call), case.dtype, run.device) as arena:
        request = request_for(arena, call, limits.build_limit_s, target=gpu)
        reply = worker.do(request, CallLimits(limits.build_limit_s, limits.memory_gib), arena.files)
    if reply.compiled is None or reply.compiled.arch != gpu.arch:
        worker.kill()
        raise Fault("crashed", "the worker answered with something that is no answer")
    error = reply.compiled.error
    if error is not None and error.kind == "crashed":
        raise Fault("crashed", f"{error.type}: {error.message}")
    return reply.compiled


@dataclass(frozen=True)
class Unknown:
    """A call that could not be compiled for `arch`, for a reason that says nothing about its kernels."""

    arch: str
    why: str


def _resources(call: CompiledCall | Unknown) -> list[KernelResources]:
    if isinstance(call, Unknown):
        return [KernelResources(name="every kernel", arch=call.arch, registers=None, problem=call.why[:4000])]
    found = []
    for kernel in call.kernels:
        known = {"name": kernel.name, "arch": call.arch, "shared_bytes": kernel.shared_bytes}
        told = kernel_resources(kernel.ptxas)[:1]
        found += [one.model_copy(update=known) for one in told] or [KernelResources(registers=None, **known)]
    # The kernel was compiled, and its case tells the error
    if call.error is not None and call.error.type != GRID_TOO_LARGE:
        name = call.failed or "kernel"
        found.append(KernelResources(name=name, arch=call.arch, registers=None, problem=_problem(call)))
    return found


def _problem(call: CompiledCall) -> str:
    assert call.error is not None
    if lacking := SHARED_MEMORY.search(call.error.message):
        return misfit(call.arch, int(lacking[1]))
    return f"{NOT_COMPILED}{fault_of(call.error).message}"[:4000]


def raise_fault(call: CompiledCall) -> None:
    """Raise the error that keeps a call's kernels from being launched on the GPU, if there is one."""
    if call.error is None:
        return
    if SHARED_MEMORY.search(call.error.message):
        hint = "consistent with tiles that are too large, or with num_stages that keeps more of them than there is room for"
        raise Fault.wrong(f"{call.failed} {_problem(call)}: it cannot be launched", (hint,))
    fault = fault_of(call.error)
    if call.error.type == GRID_TOO_LARGE:
        raise Fault("failed", call.error.message, fault.traceback, whose="submission")
    words = f"{call.failed} does not compile for {call.arch}: {fault.message}"
    raise Fault("failed", words, fault.traceback, whose=fault.whose)
