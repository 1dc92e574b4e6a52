"""The corpus: wrong kernels in `mutants/`, right ones in `accepted/`, a folder for each, below the name of its assignment."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import subprocess
import tomllib
from contextlib import redirect_stdout
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
from grader.contender.contender import Limits
from grader.job import Event, Finished, Job
from grader.judge.cases import BoundCase
from grader.judge.state import Judge
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

    def grade(
        self, device: Device, scratch: Path, *, hangs: bool = False, stop_early: bool = False, part: str | None = None
    ) -> Report:
        """The report on this folder, from a judge and workers of its own; in `scratch` lies what it needs beside."""
        course = _impatient_course(scratch, self.assignment) if hangs else ROOT
        return judge(self.submission(scratch), course, self.assignment, device, stop_early, part)


def judge(
    submission: Path,
    course: Path,
    assignment: str,
    device: Device,
    stop_early: bool = False,
    part: str | None = None,
    without: Check | None = None,
) -> Report:
    """The report of a judge of its own; on a CPU it is forked from a process where everything is imported, which saves seconds for each.

    Args:
        stop_early: skip what comes after the first case that does not pass.
        part: skip the cases of every other part.
        without: a check that this judge lacks.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    arguments = (submission, course, assignment, device, stop_early, part, without, sender)
    process = CONTEXT.Process(target=_judge, args=arguments)
    process.start()
    sender.close()
    try:
        return Report.model_validate_json(receiver.recv_bytes())
    except EOFError:
        raise AssertionError("the judge ended without a report") from None
    finally:
        process.join()


def _judge(
    submission: Path,
    course: Path,
    assignment: str,
    device: Device,
    stop_early: bool,
    part: str | None,
    without: Check | None,
    sender: Connection,
) -> None:
    from grader.contender import processes
    from grader.contender.pool import WorkerPool
    from grader.judge import loading
    from grader.judge.session import run_session

    if device == "cpu":
        # its words are not those of the CPU's compiler, and not every machine has it
        patch.object(loading, "find_nvcc", return_value=None).start()
        if course == ROOT:
            _be_patient()
    if part is not None:
        _leave_out_all_parts_but(part)
    if without is not None:
        without.remove()
    with run_folder() as folder:
        (one,) = load_course(course, [assignment])
        warm = None
        if device == "cpu" and WARM and one.spec.language == "triton":
            from tests.warm import Warm

            warm = Warm()
            stand_in = SimpleNamespace(Popen=warm.start, TimeoutExpired=subprocess.TimeoutExpired)
            patch.object(processes, "subprocess", stand_in).start()
        staged = stage(submission, folder / "submission", (one.spec.file,))
        job = Job(
            course=course,
            assignments=(assignment,),
            submission=staged.folder,
            info=staged.info,
            refused=staged.refused,
            seed=SEED,
            stop_early=stop_early,
            speed=False,
            compilation=False,
        )

        def on_event(event: Event) -> None:
            if isinstance(event, Finished):
                sender.send_bytes(event.report.model_dump_json().encode())

        pool = WorkerPool(device, folder)
        try:
            with (folder / "log").open("w") as log, redirect_stdout(log):
                run_session(job, pool, on_event)
        finally:
            pool.close()
            if warm is not None:
                warm.close()


def _be_patient() -> None:
    from grader.judge import trial

    limits = trial._limits

    def longer(judge: Judge, case: BoundCase) -> Limits:
        usual = limits(judge, case)
        return Limits(PATIENCE * usual.time_s, usual.memory_gib)

    patch.object(trial, "_limits", longer).start()


def _leave_out_all_parts_but(wanted: str) -> None:
    from grader.judge.plugin import JudgePlugin

    reason_to_skip = JudgePlugin._reason_to_skip

    def reason(plugin: JudgePlugin, assignment: Assignment, case: BoundCase | None) -> str:
        if case is not None and case.part.name != wanted:
            return f"only {wanted} is of interest"
        return reason_to_skip(plugin, assignment, case)

    patch.object(JudgePlugin, "_reason_to_skip", reason).start()


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
