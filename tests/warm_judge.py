"""A judge in a process where everything is imported, for tests that grade hundreds of submissions."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import queue
import secrets
import subprocess
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch

from grader.assignment import Assignment, Device, load_course
from grader.contender.contender import Contender, Limits
from grader.contender.pool import WorkerPool
from grader.job import Event, Finished, Job
from grader.judge.cases import BoundCase
from grader.judge.loading import load_file
from grader.judge.state import Judge
from grader.problem import Call
from grader.report.model import Report
from grader.runfolder import run_folder
from grader.submission import stage
from tests.checks import Check
from tests.conftest import ROOT

WARM = not torch.cuda.is_available()  # on a GPU workers start as they always do
# What has asked for a GPU once is no process to be forked from.
CONTEXT = multiprocessing.get_context("forkserver" if WARM else "spawn")
CONTEXT.set_forkserver_preload(["tests.warm_imports", "grader.judge.session", "hypothesis", "tests.warm_judge"])
SEED = 20251  # the same inputs in every run, so that a mutant's first case is always the same one
MEASURES_MEMORY = "flash_attention"  # has a case that looks at how much of the GPU's memory is free
PATIENCE = 10  # times what problem.toml gives all others on a CPU, which other tests may keep busy


def judge(
    submission: Path,
    course: Path,
    assignment: str,
    device: Device,
    stop_early: bool = False,
    part: str | None = None,
    without: Check | None = None,
) -> Report:
    """The report of a judge in a process where everything is imported: seconds less than a new one for each.

    On a CPU that is a fork; on a GPU one judge grades one submission after another, and each GPU has one.

    Args:
        stop_early: skip what comes after the first case that does not pass.
        part: skip the cases of every other part.
        without: a check that this judge lacks; on a CPU.
    """
    task = _Task(submission, course, assignment, device, stop_early, part, without)
    if not WARM and device == "cuda":
        assert without is None
        return _steady_judges().grade(task)
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_judge, args=(task, sender))
    process.start()
    sender.close()
    try:
        return Report.model_validate_json(receiver.recv_bytes())
    except EOFError:
        raise AssertionError("the judge ended without a report") from None
    finally:
        process.join()


@dataclass(frozen=True)
class _Task:
    """The arguments of `judge`."""

    submission: Path
    course: Path
    assignment: str
    device: Device
    stop_early: bool
    part: str | None
    without: Check | None


class _SteadyJudge:
    """A process that grades what it is given, one after another, until this one ends; on the GPU of this number."""

    def __init__(self, gpu: str) -> None:
        with patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": gpu}):
            self._pipe, theirs = CONTEXT.Pipe()
            self._process = CONTEXT.Process(target=_serve, args=(theirs,))
            self._process.start()
        theirs.close()
        atexit.register(self.close)

    def grade(self, task: _Task) -> Report:
        self._pipe.send(task)
        try:
            answer: bytes | str = self._pipe.recv()
        except EOFError:
            raise AssertionError("the judge ended without a report") from None
        assert isinstance(answer, bytes), answer
        return Report.model_validate_json(answer)

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


class _SteadyJudges:
    """One for each GPU, started when first needed."""

    def __init__(self) -> None:
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for gpu in named.split(",") if named else map(str, range(torch.cuda.device_count())):
            self._free.put(gpu)
        self._judges: dict[str, _SteadyJudge] = {}

    def grade(self, task: _Task) -> Report:
        """By whichever is free; waits for one."""
        gpu = self._free.get()
        try:
            if gpu not in self._judges:
                self._judges[gpu] = _SteadyJudge(gpu)
            return self._judges[gpu].grade(task)
        except AssertionError:
            self._judges.pop(gpu).close()
            raise
        finally:
            self._free.put(gpu)


@functools.cache
def _steady_judges() -> _SteadyJudges:
    return _SteadyJudges()


def _serve(tasks: Connection) -> None:
    """What the steady judge does: answer each task with a report, or with what went wrong."""
    from grader.judge import session

    with ExitStack() as lasting, ExitStack() as stack:
        lasting.enter_context(patch.object(session, "Judge", _state_with_a_lasting_reference(lasting)))
        ready: tuple[Path, WorkerPool] | None = None
        while True:
            try:
                task: _Task = tasks.recv()
            except EOFError:
                return
            with ExitStack() as own:
                folder, pool = ready or _place(own, task.device)
                if ready is not None:
                    own.enter_context(stack.pop_all())
                # The next one's worker starts meanwhile, where nobody looks at how much memory of the GPU is free.
                ready = None if task.assignment == MEASURES_MEMORY else _place(stack, task.device)
                try:
                    tasks.send(_report(task, folder, pool))
                except Exception:
                    tasks.send(traceback.format_exc())


def _state_with_a_lasting_reference(stack: ExitStack) -> type[Judge]:
    """A judge's state whose worker with the reference kernel serves all that come after it, until `stack` ends, and that keeps no spare."""
    lasting: dict[str, Contender] = {}
    folder = stack.enter_context(run_folder())

    class State(Judge):
        def __init__(self, job: Job, pool: WorkerPool, emit: Callable[[Event], None]) -> None:
            super().__init__(job, pool, emit)
            self._references = lasting

        def _ask_reference(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
            kept = lasting.get(case.assignment.name)
            if kept is None or not kept.lives():
                pool = WorkerPool(self.device_name, folder / secrets.token_hex(8))
                stack.callback(pool.close)
                kept = pool.start(self._kind(case.assignment))
                kept.ready()
                load_file(kept, self.job.course / "reference", case.assignment)
                lasting[case.assignment.name] = kept
            return super()._ask_reference(case, call)

        def _needs_a_spare(self, _assignment: Assignment) -> bool:
            return self._crashed

    return State


def _place(stack: ExitStack, device: Device) -> tuple[Path, WorkerPool]:
    """A run's folder with a worker that is on its way; both end with `stack`."""
    folder = stack.enter_context(run_folder())
    pool = WorkerPool(device, folder)
    stack.callback(pool.close)
    pool.prepare()
    return folder, pool


def _judge(task: _Task, sender: Connection) -> None:
    """What a judge does that is there for one task."""
    from grader.contender import processes
    from grader.judge import loading

    if task.device == "cpu":
        # its words are not those of the CPU's compiler, and not every machine has it
        patch.object(loading, "find_nvcc", return_value=None).start()
        if task.course == ROOT:
            _be_patient()
    if task.without is not None:
        task.without.remove()
    (one,) = load_course(task.course, [task.assignment])
    warm = None
    if task.device == "cpu" and WARM and one.spec.language == "triton":
        from tests.warm import Warm

        warm = Warm()
        stand_in = SimpleNamespace(**vars(subprocess) | {"Popen": warm.start})
        patch.object(processes, "subprocess", stand_in).start()
    try:
        with run_folder() as folder:
            pool = WorkerPool(task.device, folder)
            try:
                sender.send_bytes(_report(task, folder, pool))
            finally:
                pool.close()
    finally:
        if warm is not None:
            warm.close()


def _report(task: _Task, folder: Path, pool: WorkerPool) -> bytes:
    """Grade in this process; the report as JSON."""
    from grader.judge.session import run_session

    (one,) = load_course(task.course, [task.assignment])
    staged = stage(task.submission, folder / "submission", (one.spec.file,))
    job = Job(
        course=task.course,
        assignments=(task.assignment,),
        submission=staged.folder,
        info=staged.info,
        refused=staged.refused,
        seed=SEED,
        stop_early=task.stop_early,
        speed=False,
        compilation=False,
    )
    reports: list[bytes] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Finished):
            reports.append(event.report.model_dump_json().encode())

    others = _without_all_parts_but(task.part) if task.part is not None else nullcontext()
    with (folder / "log").open("w") as log, redirect_stdout(log), others:
        run_session(job, pool, on_event)
    return reports[0]


def _be_patient() -> None:
    from grader.judge import trial

    limits = trial._limits

    def longer(judge: Judge, case: BoundCase) -> Limits:
        usual = limits(judge, case)
        return Limits(PATIENCE * usual.time_s, usual.memory_gib)

    patch.object(trial, "_limits", longer).start()


@contextmanager
def _without_all_parts_but(wanted: str) -> Iterator[None]:
    from grader.judge.plugin import JudgePlugin

    reason_to_skip = JudgePlugin._reason_to_skip

    def reason(plugin: JudgePlugin, assignment: Assignment, case: BoundCase | None) -> str:
        if case is not None and case.part.name != wanted:
            return f"only {wanted} is of interest"
        return reason_to_skip(plugin, assignment, case)

    with patch.object(JudgePlugin, "_reason_to_skip", reason):
        yield
