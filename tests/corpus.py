"""The corpus: wrong kernels in `mutants/`, right ones in `accepted/`, a folder for each, below the name of its assignment."""

from __future__ import annotations

import atexit
import functools
import multiprocessing
import os
import queue
import re
import secrets
import shutil
import subprocess
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, Self, TypeVar
from unittest.mock import patch

import pytest
import torch
from pydantic import Field, model_validator

from grader.assignment import Assignment, load_course
from grader.contender.contender import Contender, Limits
from grader.contender.pool import WorkerPool
from grader.job import Event, Finished, Job
from grader.judge.cases import BoundCase
from grader.judge.loading import load_file
from grader.judge.state import Judge
from grader.problem import Call
from grader.report.model import CaseResult, Outcome, Report
from grader.runfolder import run_folder
from grader.submission import stage
from tests.checks import Check
from tests.conftest import ROOT
from tests.data import Pattern, Strict

WARM = not torch.cuda.is_available()  # on a GPU workers start as they always do
# What has asked for a GPU once is no process to be forked from.
CONTEXT = multiprocessing.get_context("forkserver" if WARM else "spawn")
CONTEXT.set_forkserver_preload(["tests.warm_imports", "grader.judge.session", "hypothesis", "tests.corpus"])
Device = Literal["cpu", "cuda"]
SEED = 20251  # the same inputs in every run, so that a mutant's first case is always the same one
# On a GPU as well, where there is one: `make gpu-corpus` runs those.
ON_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.timeout(600)])
DEVICES = ["cpu", *([ON_GPU] if torch.cuda.is_available() else [])]
MEASURES_MEMORY = "flash_attention"  # has a case that looks at how much of the GPU's memory is free
HANGING_LIMIT_S = 2  # for kernels without an end: every case waits for its own
PATIENCE = 10  # times what problem.toml gives all others on a CPU, which other tests may keep busy


class Expected(Strict):
    """The first case that does not pass, in the order of problem.toml.

    case: its name; only left out where more than one may be the first.
    says: regular expressions, each found in its message or its diagnosis.
    """

    outcome: Outcome
    case: str | None = None
    says: tuple[Pattern, ...] = ()


class Change(Strict):
    """A place of a right kernel, which must be there exactly once, and what a student wrote there."""

    old: str
    new: str


class Changed(Strict):
    """What both kinds of kernels may be: another right kernel with a change.

    base: that kernel, a folder of `accepted/` for the same assignment. Left out where the folder holds a file of its own.
    """

    base: str | None = None
    change: tuple[Change, ...] = ()

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.base is None) != (not self.change):
            raise ValueError("base and change belong together")
        return self


class Mutant(Changed):
    """mutant.toml: one plausible mistake, and what the grader says of it.

    part: of the assignment, where it has several: the one whose cases are run.
    cpu, cuda: what is expected there. Left out where the kernel is right there, or nobody can say what becomes of it.
    """

    mistake: str = Field(min_length=10, pattern=r"^[^\n]+$")
    part: str | None = None
    cpu: Expected | None = None
    cuda: Expected | None = None

    @model_validator(mode="after")
    def _is_wrong_somewhere(self) -> Self:
        if self.cpu is None and self.cuda is None:
            raise ValueError("it must be wrong on cpu, on cuda or on both")
        return self

    def on(self, device: Device) -> Expected | None:
        return self.cpu if device == "cpu" else self.cuda


class Accepted(Changed):
    """accepted.toml: how this right kernel differs from the others."""

    how: str = Field(min_length=10, pattern=r"^[^\n]+$")


Model = TypeVar("Model", Mutant, Accepted)


class Entry:
    """A folder of the corpus, which is a submission."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.assignment = folder.parent.name
        self.id = f"{self.assignment}-{folder.name}"

    @cached_property
    def mutant(self) -> Mutant:
        return self._toml("mutant.toml", Mutant)

    @cached_property
    def accepted(self) -> Accepted:
        return self._toml("accepted.toml", Accepted)

    def _toml(self, name: str, model: type[Model]) -> Model:
        return model.model_validate(tomllib.loads((self.folder / name).read_text(encoding="utf-8")))

    def submission(self, scratch: Path) -> Path:
        """The folder to grade; made in `scratch` where it is another kernel with a change."""
        model: Changed = self.mutant if (self.folder / "mutant.toml").is_file() else self.accepted
        if model.base is None:
            return self.folder
        target = scratch / self.folder.name
        base = ROOT / "tests" / "accepted" / self.assignment / model.base
        shutil.copytree(base, target, ignore=shutil.ignore_patterns("*.toml", "__pycache__"))
        for change in model.change:
            texts = {path: path.read_text(encoding="utf-8") for path in target.iterdir()}
            found = sum(text.count(change.old) for text in texts.values())
            assert found == 1, f"{self.id}: {change.old!r} is there {found} times"
            for path, text in texts.items():
                path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        return target

    @property
    def expected(self) -> dict[Device, Expected]:
        """What becomes of it where it is wrong; nothing for a right kernel."""
        if not (self.folder / "mutant.toml").is_file():
            return {}
        both: dict[Device, Expected | None] = {"cpu": self.mutant.cpu, "cuda": self.mutant.cuda}
        return {device: one for device, one in both.items() if one is not None}

    def grade(self, device: Device, scratch: Path, *, stop_early: bool = False) -> Report:
        """The report on this folder, of the part with the mistake; in `scratch` lies what it needs beside."""
        expected = self.expected.get(device)
        hangs = expected is not None and expected.outcome == "timed_out"
        course = _impatient_course(scratch, self.assignment) if hangs else ROOT
        part = self.mutant.part if self.expected else None
        return judge(self.submission(scratch), course, self.assignment, device, stop_early, part)

    def fault(self, device: Device, report: Report) -> str:
        """How the grader was wrong about this kernel, or nothing."""
        if report.infra_errors:
            return f"infra errors: {report.infra_errors}"
        ran = [case for case in cases(report) if case.outcome != "skipped"]
        first = next((case for case in ran if case.outcome != "passed"), None)
        if not ran:
            return "every case was skipped"
        expected = self.expected.get(device)
        if expected is None:
            return "" if first is None else f"{first.name} {first.outcome}: {words(first)}"
        if first is None:
            return "every case that ran passed"
        told = f"{first.name} {first.outcome}: {words(first)}"
        if first.outcome != expected.outcome or expected.case not in (None, first.name):
            return f"expected {expected.case or 'a case'} to be {expected.outcome}; got {told}"
        unsaid = [pattern for pattern in expected.says if not re.search(pattern, words(first))]
        if unsaid:
            return f"{unsaid} is not in: {told}"
        return "" if report.correctness.earned < report.correctness.possible else "full points"


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
        stand_in = SimpleNamespace(Popen=warm.start, TimeoutExpired=subprocess.TimeoutExpired)
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


def entries(kind: Literal["mutants", "accepted"]) -> list[Entry]:
    """Every folder of that kind, for all assignments."""
    names = sorted(path.name for path in (ROOT / "assignments").iterdir())
    return [Entry(path) for name in names for path in sorted((ROOT / "tests" / kind / name).glob("*")) if path.is_dir()]


def cases(report: Report) -> list[CaseResult]:
    """All cases in the order of problem.toml."""
    return [case for one in report.assignments for part in one.parts for case in part.cases]


def words(case: CaseResult) -> str:
    """What a student reads of a case."""
    return "\n".join([case.message, *case.diagnosis])


def _impatient_course(scratch: Path, assignment: str) -> Path:
    """The course with time limits of a few seconds."""
    course = scratch / "course"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    toml = course / "assignments" / assignment / "problem.toml"
    limit = f"{{ cpu = {HANGING_LIMIT_S}, cuda = {HANGING_LIMIT_S} }}"
    text = re.sub(r"time_limit_s = \{.*?\}", f"time_limit_s = {limit}", toml.read_text(encoding="utf-8"))
    toml.write_text(re.sub(r"time_limit_s = \d+", f"time_limit_s = {HANGING_LIMIT_S}", text), encoding="utf-8")
    return course
