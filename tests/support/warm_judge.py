"""A warm judge: a judge in a process that has imported everything, for tests that grade hundreds of submissions."""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch
from zlib import crc32

import torch

from grader.assignment import Assignment, Device, Part, load_course
from grader.judge import run
from grader.judge.cases import BoundCase
from grader.messages import Event, Finished, Profiled, Request
from grader.pool.pool import WorkerPool
from grader.pool.watch import CallLimits
from grader.profile.model import CaseProfile
from grader.report.model import Isolation, Report
from grader.runfolder import run_folder
from grader.submission import stage
from tests.conftest import ROOT
from tests.support.checks import Check

WARM = not torch.cuda.is_available()  # on a GPU workers start as usual
# A process that has used a GPU cannot be forked.
CONTEXT = multiprocessing.get_context("forkserver" if WARM else "spawn")
CONTEXT.set_forkserver_preload(
    ["tests.support.warm_imports", "grader.judge.session", "torch._dynamo", "hypothesis", "tests.support.warm_judge"]
)  # torch._dynamo is imported by PyTorch's fake tensors, which profiles use
# The cases that may run beside other judges' on one GPU, or the others: they need much of its memory, or measure it.
Cases = Literal["all", "beside others", "alone", "a sample"]
ELSEWHERE: dict[Cases, str] = {
    "beside others": "only what runs alone is of interest",
    "alone": "runs alone",
}  # why they are skipped
SEED = 20251  # the same inputs in every run, so that a mutant's first case is always the same one
# Seconds between two looks at what a worker uses: each look reads the table of all processes of this machine.
LOOK_INTERVAL_S = 0.25
PATIENCE = 10  # times the limits of problem.toml on a CPU, which other tests may keep busy


def judge(
    submission: Path,
    course: Path,
    assignment: str | tuple[str, ...],
    device: Device,
    stop_early: bool = False,
    part: str | None = None,
    without: Check | None = None,
    cases: Cases = "all",
    case: str | None = None,
) -> Report:
    """The report of a warm judge, which takes seconds less than a new one.

    On a CPU the judge is a fork; on a GPU one judge grades one submission after another (see `tests.support.steady`).

    Args:
        assignment: its name, or the names of several that are graded in this order; on a GPU one.
        stop_early: skip the rest after the first case that does not pass.
        part: skip the cases of every other part.
        without: a check to take out of this judge; on a CPU only.
        cases: skip the other cases.
        case: skip every other case.
    """
    assignments = (assignment,) if isinstance(assignment, str) else assignment
    task = Task(submission, course, assignments, device, stop_early, part, without, cases, case)
    if not WARM and device == "cuda":
        from tests.support import steady

        assert without is None
        return steady.grade(task)
    return Report.model_validate_json(_in_a_fork(_judge, task))


def profile(submission: Path, course: Path, assignment: str, case: str, counted: bool = False) -> CaseProfile:
    """The profile of a speed case, as `large` or `forward/causal`, by a warm judge; `counted`: as --counters asks for."""
    task = Task(submission, course, (assignment,), "cpu", profiled=case, counted=counted)
    return CaseProfile.model_validate_json(_in_a_fork(_judge, task))


def interpreted(program: str) -> Any:
    """What a Python program prints as JSON where Triton's kernels run under its CPU interpreter."""
    return json.loads(_in_a_fork(_print, program))


def _print(program: str, sender: Connection) -> None:
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "<program>", "exec"), {"__name__": "program"})
    sender.send_bytes(printed.getvalue().encode())


def _in_a_fork(function: Callable[..., None], asked: Task | str) -> bytes:
    """What a function sends, called in a fork of the process that has imported everything."""
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=function, args=(asked, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv_bytes()
    except EOFError:
        raise AssertionError("it ended without an answer") from None
    finally:
        process.join()


@dataclass(frozen=True)
class Task:
    """The arguments of `judge`; `profiled` is the speed case to profile in place of grading, "" to grade."""

    submission: Path
    course: Path
    assignments: tuple[str, ...]
    device: Device
    stop_early: bool = False
    part: str | None = None
    without: Check | None = None
    cases: Cases = "all"
    case: str | None = None
    profiled: str = ""
    counted: bool = False


def _judge(task: Task, sender: Connection) -> None:
    """Do one task in a process of its own."""
    from grader.judge import loading, results
    from grader.judge.__main__ import keep_environment
    from grader.pool import processes, watch

    if task.device == "cpu":
        # the CPU compiler's words differ, and not every machine has nvcc
        patch.object(loading, "find_nvcc", return_value=None).start()
        patch.object(results, "fingerprint", return_value="").start()  # of all files of this repository
        patch.object(watch, "INTERVAL_S", LOOK_INTERVAL_S).start()
        patch.object(run, "load_course", assignments).start()
        if task.course == ROOT:
            _be_patient()
    if task.without is not None:
        task.without.remove()
    warm = None
    if (
        task.device == "cpu"
        and WARM
        and any(one.spec.language == "triton" for one in assignments(task.course, task.assignments))
    ):
        from tests.support.warm import Warm

        warm = Warm()
        stand_in = SimpleNamespace(**vars(subprocess) | {"Popen": warm.start})
        patch.object(processes, "subprocess", stand_in).start()
    keep_environment()
    try:
        with run_folder() as folder:
            pool = WorkerPool(task.device, folder)
            try:
                sender.send_bytes(report(task, folder, pool))
            finally:
                pool.close()
    finally:
        if warm is not None:
            warm.close()


def assignments(course: Path, names: Sequence[str] = ()) -> list[Assignment]:
    """As `load_course`; this repository's are read once, by the process that judges are forked from."""
    return [one for one in own_course() if one.name in names] if course == ROOT else load_course(course, names)


@functools.cache
def own_course() -> list[Assignment]:
    return load_course(ROOT)


def report(task: Task, folder: Path, pool: WorkerPool) -> bytes:
    """Grade or profile in this process. Returns the report, or the case's profile, as JSON."""
    from grader.judge.session import run_session

    files = tuple(one.spec.file for one in assignments(task.course, task.assignments))
    staged = stage(task.submission, folder / "submission", files)
    request = Request(
        submission=task.submission,
        course=task.course,
        assignments=task.assignments,
        staged=staged,
        seed=SEED,
        stop_early=task.stop_early,
        speed=bool(task.profiled),
        compilation=False,
        profile="no" if not task.profiled else "count" if task.counted else "trace",
        profiled=(task.profiled,) if task.profiled else (),
    )
    reports: list[bytes] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Profiled):
            reports.append(event.profile.model_dump_json().encode())
        elif isinstance(event, Finished):
            reports.append(event.report.model_dump_json().encode())

    with (folder / "log").open("w") as log, redirect_stdout(log), _only(task):
        run_session(request, pool, Isolation(jail=pool.jail.name), on_event)
    return reports[0]


def _be_patient() -> None:
    from grader.judge import asking

    limits = asking.limits_of

    def longer(of: run.Run, case: BoundCase, calls: int) -> CallLimits:
        usual = limits(of, case, calls)
        return CallLimits(PATIENCE * usual.time_s, usual.memory_gib)

    patch.object(asking, "limits_of", longer).start()


@contextmanager
def _only(task: Task) -> Iterator[None]:
    """Skip the cases that the task does not ask for."""
    from grader.judge.skip import SkipReasons

    reason_to_skip = SkipReasons.reason_to_skip

    def reason(skip: SkipReasons, assignment: Assignment, case: BoundCase | None) -> str:
        if case is not None and task.part not in (None, case.part.name):
            return f"only {task.part} is of interest"
        if task.case is not None and (case is None or case.name != task.case):
            return f"only {task.case} is of interest"
        if task.cases == "a sample" and (case is None or case.name not in sample(task, case.part)):
            return "not in the sample"
        own: Cases = "beside others" if case is None or case.shares_the_machine else "alone"
        if task.cases not in ("all", "a sample", own):
            return ELSEWHERE[own]
        return reason_to_skip(skip, assignment, case)

    with patch.object(SkipReasons, "reason_to_skip", reason):
        yield


def sample(task: Task, part: Part) -> list[str]:
    """A case of the part's first group and of two in three of the others: other groups and other cases for each submission."""
    chosen = []
    for group in part.groups:
        cases = [one.name for one in group.cases if task.device in one.devices and one.interpreted]
        number = crc32(f"{task.submission.name} {group.name}".encode())
        if cases and (number % 3 or not chosen):
            chosen.append(cases[number // 3 % len(cases)])
    return chosen
