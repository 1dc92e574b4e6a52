"""`grader class run` in its order: what is to be graded, whether this machine may grade it, the gradings, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from grader.assignment import load_course
from grader.classroom import grading
from grader.classroom.claim import NAME, claim
from grader.classroom.differences import LOCK, course_of, of_grader, of_stations, refuse
from grader.classroom.dispatch import Dispatch
from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.grading import Command, Handins, grader_run
from grader.classroom.station import stations
from grader.classroom.task import Task, chosen, read_tasks
from grader.classroom.view import View, count, tally
from grader.nvidia import Gpu, gpus


def grade_class(
    folder: RunFolder,
    console: Console,
    wanted: Sequence[str] = (),
    only: Sequence[str] = (),
    *,
    limit: int | None = None,
    anyway: bool = False,
    limit_s: float = grading.LIMIT_S,
    command: Command | None = None,
    found: Callable[[], Sequence[Gpu]] = gpus,
    locks: Path | None = None,
) -> bool:
    """Grade what is left of a class on this machine. Returns whether the machine spoilt no grading for good.

    Args:
        wanted: UUIDs of the GPUs; all if empty.
        only: hand-ins or students; all if empty.
        limit: of the gradings that are started; None for no limit.
        anyway: grade in spite of differences that would be refused.
        limit_s: of one grading.
        command: makes the command of a grading; None is `grader run`.
        found: lists this machine's GPUs.
        locks: the folder of the locks of GPUs; None for the machine's.

    Raises:
        ClassError, CourseError, UsageError: the class cannot be graded, or not here; the message says why.
        InfraError, OSError: this machine failed. What is graded stays.
    """
    run = folder.run()
    course = course_of(run)
    load_course(course, run.assignments)
    everything = read_tasks(folder)
    tasks = chosen(everything, only)
    if lost := [one.handin for one in tasks if not (folder.handins / one.handin).is_dir()]:
        raise ClassError(f"{folder.handins}: {', '.join(lost)}: the files of a hand-in that counts are not there")
    here = stations(run, () if run.device == "cpu" else found(), wanted, locks)
    begun = any(not attempt.fault for one in everything for attempt in one.attempts)
    differences = [*of_grader(run, course), *of_stations(run, here, begun)]
    if not anyway:
        refuse(differences)
    with View(console) as view:
        for words in differences:
            view.say(f"warning: {words}")
        _prepare(folder, everything, anyway, view.say)
        handins = Handins(course, run.assignments)
        make = command or grader_run(run, course)
        dispatch = Dispatch(
            folder,
            tasks,
            here,
            make,
            handins.why_unusable,
            view,
            begun=begun,
            anyway=anyway,
            limit=limit,
            limit_s=limit_s,
        )
        try:
            dispatch.run()
        finally:
            counts = count(dispatch.tasks.values())
            console.print(tally(counts), soft_wrap=True)
    return not counts["failed"]


def _prepare(folder: RunFolder, tasks: Sequence[Task], anyway: bool, say: Callable[[str], None]) -> None:
    """Remove what killed runs left, in the class and on this machine. Raises ClassError where there are no locks."""
    probe = claim(folder.path / LOCK, unlocked=anyway)
    if probe is not None:
        if not probe.descriptors:
            say(f"warning: {folder.path} lies on a file system without locks: see to it that one run alone is at work")
        probe.release()
    for task in tasks:
        attempts = folder.tasks(task.handin)
        if any(attempts.glob(grading.DRAFTS)) and (held := claim(attempts / NAME, unlocked=anyway)):
            with held:
                grading.remove_drafts(attempts)
    if any(one.state == "left" for one in tasks) and (fault := grading.clean_up()):
        say(f"warning: {fault}")
