"""Profiles the speed cases of a submission: has workers trace, compile and time their calls, and emits a profile of each.

`grader/profile/facts.py` makes the profile from the workers' counts, which nobody checks: a profile is shown, not graded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grader.assignment import Assignment
from grader.judge.asking import arena_for, request_for
from grader.judge.baselines import COMPILE
from grader.judge.cases import BoundSpeedCase, SpeedSizes
from grader.judge.evidence import Evidence
from grader.judge.files import Files
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.judge.speed.benchmark import Benchmarks
from grader.judge.workers import Workers
from grader.messages import CaseNote, Profiled
from grader.nvidia import find_ncu, find_nvcc
from grader.pool import tools
from grader.pool.fault import Fault
from grader.pool.surroundings import WorkerKind
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.profile.compiled import unpack
from grader.profile.counters import EVERY, MAX_KERNELS, counters, why_none
from grader.profile.facts import case_profile, gpu_run, triton_in
from grader.profile.model import CaseProfile, GpuRun, KernelCounters, TimedSize
from grader.protocol import CompiledKernel, CompiledText, Gpu, GpuTrace, Reply, Trace
from grader.submission import read_staged
from grader.verdict.resources import kernel_resources
from grader.verdict.text import decoded

CPU = torch.device("cpu")
TRACE_LIMIT_S = 120.0
COUNT_LIMITS = CallLimits(time_s=120.0, memory_gib=64.0)  # each kernel is run several times
COUNTED_NOTHING = "Nsight Compute counted nothing"
NO_GPU = f"{COUNTED_NOTHING}: it counts on a GPU, and none was used"
NO_NCU = "there is no ncu; it comes with NVIDIA's CUDA toolkit"
UNKNOWN = "registers and occupancy are not known"
NO_ANSWER = "the worker answered with something that is no answer"
MAX_WORDS = 300  # of a fault
FRAME = re.compile(r'File "([^"\n]{1,120})", line (\d{1,9})')  # of a traceback
MAX_FILE_NAME = 200  # bytes, without the suffix
OWN_NUMBER = 2_000_000  # the number of its call, higher than any case has


@dataclass
class Profiler:
    """Profiles every speed case of the run, and emits its profile.

    Without a GPU a worker traces the case's call on memory of the case's real size that costs nothing until it is touched:
    all zeros. Another worker compiles the launches. On a machine with a GPU a third one makes the call there, and benchmark runs
    follow.
    """

    run: Run
    files: Files
    workers: Workers
    benchmarks: Benchmarks
    _beside: dict[WorkerKind, tuple[str, Worker]] = field(init=False, default_factory=dict)

    def run_all(self) -> None:
        for sizes in self.run.speed_cases:
            self.run.emit(sizes.place.started)
            self.run.emit(self._profile(sizes))

    def _profile(self, sizes: SpeedSizes) -> Profiled:
        try:
            self.files.check_present(sizes.declared.assignment)
        except Fault as absent:
            return Profiled(profile=_blank(sizes.declared, _words(absent)))
        found = self._without_a_gpu(sizes)
        if self.run.device_name == "cuda":
            return self._with_a_gpu(sizes, found)
        if self.run.request.profile != "count":
            return found
        return Profiled(profile=_also(found.profile, NO_GPU), texts=found.texts)

    def _without_a_gpu(self, sizes: SpeedSizes) -> Profiled:
        """The profile at the first size for which this machine has memory."""
        for case in sizes.cases:
            try:
                trace = self._trace(case)
            except (Fault, MemoryError) as fault:
                outcome = fault.outcome if isinstance(fault, Fault) else "out_of_memory"
                if outcome == "out_of_memory" and case is not sizes.cases[-1]:
                    continue
                return Profiled(profile=_blank(case, f"it could not be traced: {_words(fault)}"))
            kernels, missing = self._compiled(case)
            copied, sources = self.run.request.copied, {}
            for name in copied.info.files:
                with suppress(OSError):
                    sources[name] = decoded(read_staged(copied.folder, name))
            profile = case_profile(_blank(case, missing), trace, kernels, case.assignment.spec.gpu, sources)
            return Profiled(profile=profile, texts=texts_of(kernels))
        raise AssertionError("a speed case has a size")

    def _trace(self, case: BoundSpeedCase) -> Trace:
        """Raises Fault, MemoryError."""
        kind: WorkerKind = "cuda_cpu" if case.assignment.spec.language == "cuda" else "cpu"
        worker = self._worker(case.assignment, kind)
        worker.log.mark(case.place.heading)
        trace = self._ask(worker, case, TRACE_LIMIT_S).trace
        if trace is None:
            worker.kill()
            raise Fault("crashed", NO_ANSWER)
        return trace

    def _compiled(self, case: BoundSpeedCase) -> tuple[Sequence[CompiledKernel], str]:
        """The case's kernels for the GPU of problem.toml, and why some are missing."""
        assignment, gpu = case.assignment, case.assignment.spec.gpu
        if assignment.spec.language == "cuda":
            told = self.files.ptxas(assignment)
            why = "there is no nvcc here" if find_nvcc() is None else "nvcc told nothing of its kernels"
            missing = "" if kernel_resources(told) else f"{UNKNOWN}: {why}"
            return (CompiledKernel("all", 0, 0, told),) if told else (), missing
        self.run.emit(CaseNote(text=f"is being compiled for {gpu.name}"))
        try:
            worker = self._worker(assignment, "compile")
            compiled = self._ask(worker, case, assignment.spec.limits.build_limit_s, gpu).compiled
        except (Fault, MemoryError) as fault:
            return (), f"{UNKNOWN}: it could not be compiled: {_words(fault)}"
        if compiled is None:
            return (), f"{UNKNOWN}: {NO_ANSWER}"
        why = (
            f"{compiled.failed or 'a kernel'} did not compile: {_words(compiled.error.message)}"
            if compiled.error
            else ""
        )
        return compiled.kernels, why

    def _worker(self, assignment: Assignment, kind: WorkerKind) -> Worker:
        """A worker of a kind that has loaded the assignment's file; one at a time. Raises Fault."""
        name, known = self._beside.get(kind, ("", None))
        if known is None or name != assignment.name or not known.lives():
            if known is not None:
                known.kill()
            known = self.workers.beside(assignment, kind, logged=kind != "compile")
            self._beside[kind] = assignment.name, known
        return known

    def _ask(self, worker: Worker, case: BoundSpeedCase, limit_s: float, target: Gpu | None = None) -> Reply:
        """The reply to the case's call on sparse memory. Raises Fault, MemoryError."""
        limits = CallLimits(limit_s, case.assignment.spec.limits.memory_gib)
        with FakeTensorMode():
            drawn = case.inputs(self.run.seed, OWN_NUMBER, CPU)
            shapes = case.problem.outputs(drawn)
        args = {name: _on_meta(tensor) for name, tensor in drawn.args.items()}
        call = replace(drawn, args=args, upstream=None if drawn.upstream is None else _on_meta(drawn.upstream))
        with arena_for(call, shapes, case.dtype, CPU, sparse=True) as arena:
            request = request_for(arena, call, limit_s, target=target, record="trace")
            return worker.do(request, limits, arena.files)

    def _with_a_gpu(self, sizes: SpeedSizes, found: Profiled) -> Profiled:
        ran, texts, profile = None, dict(found.texts), found.profile
        try:
            ran, chrome = self._on_the_gpu(sizes)
            texts |= {"trace.json": chrome} if chrome else {}
        except (Fault, MemoryError) as fault:
            profile = _also(profile, f"it could not be traced on the GPU: {_words(fault)}")
        counted: tuple[KernelCounters, ...] = ()
        if self.run.request.profile == "count":
            try:
                counted, texts["counters.csv"] = self._counted(sizes)
            except (Fault, MemoryError) as fault:
                profile = _also(profile, f"{COUNTED_NOTHING}: {_words(fault)}")
        timed = tuple(self._timed(case) for case in sizes.cases)
        compiled, source = self._torch_compile(sizes)
        texts |= {"torch_compile.py": source} if source else {}
        update = {"ran": ran, "counters": counted, "compiled": compiled, "generated": triton_in(source), "timed": timed}
        return Profiled(profile=profile.model_copy(update=update), texts=texts)

    def _on_the_gpu(self, sizes: SpeedSizes) -> tuple[GpuRun, str]:
        """The call at the first size that the GPU has memory for, and the profiler's trace.json. Raises as `_trace`."""
        case = self._fitting(sizes)
        self.run.emit(CaseNote(text="runs under PyTorch's profiler"))
        own = self.files.own_kernels(case.assignment)
        return self._traced_there(self.workers.worker(case.assignment), case, own, lambda gpu: gpu.chrome)

    def _fitting(self, sizes: SpeedSizes) -> BoundSpeedCase:
        """The first size that the GPU has memory for. Raises MemoryError."""
        case = sizes.fitting(self.run.free_gib())
        if case is None:
            raise MemoryError("the GPU has not enough memory for any size")
        return case

    def _torch_compile(self, sizes: SpeedSizes) -> tuple[GpuRun | None, str]:
        """The same call of torch.compile's baseline, and the code that it generated; None if it cannot be traced."""
        self.run.emit(CaseNote(text="is looked at as torch.compile has it"))
        try:
            case = self._fitting(sizes)
            worker = self.workers.baselines.worker(COMPILE, case)
            return self._traced_there(worker, case, (), lambda gpu: gpu.generated)
        except (Fault, MemoryError):
            return None, ""

    def _traced_there(
        self,
        worker: Worker,
        case: BoundSpeedCase,
        own: Collection[str],
        text_of: Callable[[GpuTrace], CompiledText | None],
    ) -> tuple[GpuRun, str]:
        """A traced call of a worker on the GPU, whose kernels of the names `own` are its own, and a text of it."""
        limits = CallLimits(case.assignment.spec.limits.time_limit_s["cuda"], case.assignment.spec.limits.memory_gib)
        call = case.inputs(self.run.seed, OWN_NUMBER, self.run.device)
        with arena_for(call, case.problem.outputs(call), case.dtype, self.run.device) as arena:
            trace = worker.do(request_for(arena, call, limits.time_s, record="trace"), limits, arena.files).trace
        if trace is None or trace.gpu is None:
            worker.kill()
            raise Fault("crashed", NO_ANSWER)
        text = text_of(trace.gpu)
        found = gpu_run(trace.gpu, own, case.assignment.spec.gpu, torch.cuda.get_device_name())
        return found, "" if text is None else unpack(text)

    def _counted(self, sizes: SpeedSizes) -> tuple[tuple[KernelCounters, ...], str]:
        """What Nsight Compute counts in the call that `_on_the_gpu` traces, and its table. Raises as `_trace`."""
        case = self._fitting(sizes)
        if (ncu := find_ncu()) is None:
            raise Fault("skipped", NO_NCU)
        self.run.emit(CaseNote(text="runs under Nsight Compute"))
        call = case.inputs(self.run.seed, OWN_NUMBER, self.run.device)
        tool = self.workers.watched(case.assignment, tools.counters(ncu, EVERY, MAX_KERNELS))
        with arena_for(call, case.problem.outputs(call), case.dtype, self.run.device) as arena, tool:
            try:
                load_file(tool, self.run.request.copied.folder, case.assignment)
                tool.do(request_for(arena, call, COUNT_LIMITS.time_s, record="counters"), COUNT_LIMITS, arena.files)
            finally:
                tool.kill()  # the table is complete when the tool has ended
        found = counters(tool.tool_log, self.files.own_kernels(case.assignment))
        if not found:
            raise Fault("skipped", why_none(tool.tool_log))
        return found, tool.tool_log

    def _timed(self, case: BoundSpeedCase) -> TimedSize:
        size = TimedSize(size=case.case.tries)
        if (case.memory_gib or 0.0) > self.run.free_gib():
            return size.model_copy(update={"unknown": f"the GPU has less than {case.memory_gib:g} GiB free"})
        self.run.emit(CaseNote(text=f"is timed at {case.case.tries}"))
        evidence = Evidence()
        try:
            self.benchmarks.measure(case, evidence)
        except (Fault, MemoryError) as fault:
            return size.model_copy(update={"unknown": _words(fault)})
        return size.model_copy(update={"measured": evidence.measured, "unknown": evidence.words})


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same storage, shape and strides, without memory."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    storage = torch.empty(elements, dtype=tensor.dtype, device="meta")
    return storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _blank(case: BoundSpeedCase, unknown: str) -> CaseProfile:
    cost = case.problem.cost(case.params, case.dtype)
    return CaseProfile(
        assignment=case.assignment.name,
        part=case.part.name,
        case=case.name,
        size=case.case.tries,
        dtype=case.case.dtype,
        gpu=case.assignment.spec.gpu.name,
        unknown=unknown,
        needed_bytes=cost.bytes_moved,
        needed_flops=cost.flops,
    )


def _also(profile: CaseProfile, words: str) -> CaseProfile:
    """With these words about what is missing in it, after others."""
    return profile.model_copy(update={"unknown": "; ".join(filter(None, (profile.unknown, words)))})


def _words(fault: Exception | str) -> str:
    """A fault's message in one line, with the student's line if only the traceback has it; the submission may have written both."""
    words = " ".join(str(fault).split())
    words = words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS - 1].rstrip()}…"
    frames = FRAME.findall(fault.traceback) if isinstance(fault, Fault) else []
    if not frames or re.search(r"\bline \d", words):
        return words
    return f"{words} ({':'.join(frames[-1])})"


def texts_of(kernels: Sequence[CompiledKernel]) -> dict[str, str]:
    """By file name; of two kernels with one name, the last."""
    return {
        f"{one.name.encode()[:MAX_FILE_NAME].decode(errors='ignore')}.{text.kind}": found
        for one in kernels
        for text in one.texts
        if (found := unpack(text))
    }
