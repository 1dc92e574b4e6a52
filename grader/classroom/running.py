"""The order of `grader class run`: choose the tasks, check that this machine may grade them, grade, and sum up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rich.console import Console

from grader.assignment import load_course
from grader.classroom import grading
from grader.classroom.differences import LOCK, course_of, of_grader, of_stations, refuse
from grader.classroom.dispatch import Dispatch, Options
from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.grading import grader_run, why_unusable
from grader.classroom.lock import NAME, lock
from grader.classroom.station import stations
from grader.classroom.task import Task, chosen, read_tasks, spoilt
from grader.classroom.view import View, count, tally


def grade_class(folder: RunFolder, console: Console, options: Options) -> bool:
    """Grade the tasks of a class that are left. Returns whether no fault of the machine has left a task ungraded.

    Raises:
        ClassError, CourseError, UsageError: the class cannot be graded, or not on this machine; the message says why.
        InfraError, OSError: this machine failed. Published attempts stay.
    """
    run = folder.run()
    course = course_of(run)
    load_course(course, run.assignments)
    everything = read_tasks(folder)
    tasks = chosen(everything, options.only, folder.students().students)
    if lost := [one.handin for one in tasks if not (folder.handins / one.handin).is_dir()]:
        raise ClassError(f"{folder.handins}: {', '.join(lost)}: the files of a hand-in that counts are not there")
    here = stations(run, () if run.device == "cpu" else options.found(), options.gpus, options.locks)
    graded = any(not attempt.fault for one in everything for attempt in one.attempts)
    begun = graded or bool(run.gpu or run.image_digest)
    differences = [*of_grader(run, course), *of_stations(run, here, begun)]
    if not options.anyway:
        refuse(differences)
    with View(console) as view:
        for words in differences:
            view.say(f"warning: {words}")
        has_drafts = _prepare(folder, everything, options.anyway, view.say)
        dispatch = Dispatch(
            folder,
            tasks,
            here,
            options.command or grader_run(run, course),
            partial(why_unusable, course, run.assignments),
            view,
            options,
            begun=begun,
            reference=course / "reference",
        )
        try:
            dispatch.run()
        finally:
            counts = count(dispatch.tasks.values())
            console.print(tally(counts), soft_wrap=True)
        if has_drafts or dispatch.killed:
            _clean_up(view.say)  # again, because judges of killed gradings have ended by now
    return not any(
        one.state in ("failed", "left") and one.attempts and spoilt(one.attempts[-1]) for one in dispatch.tasks.values()
    )


def _prepare(folder: RunFolder, tasks: Sequence[Task], anyway: bool, say: Callable[[str], None]) -> bool:
    """Remove drafts of killed runs, and their processes and files on this machine. Returns whether there were drafts.

    Raises ClassError on a file system without locks, unless `anyway`.
    """
    probe = lock(folder.path / LOCK, unlocked=anyway)
    if probe is not None:
        if not probe.descriptors:
            say(f"warning: {folder.path} lies on a file system without locks: see to it that one run alone is at work")
        probe.release()
    drafted = [path for one in tasks if any((path := folder.tasks(one.handin)).glob(grading.DRAFTS))]
    for attempts in drafted:
        if held := lock(attempts / NAME, unlocked=anyway):  # otherwise a grading is running
            with held:
                grading.remove_drafts(attempts)
    if any(one.state == "left" for one in tasks):
        _clean_up(say)
    return bool(drafted)


def _clean_up(say: Callable[[str], None]) -> None:
    if fault := grading.clean_up():
        say(f"warning: {fault}")
