"""`grader class run`: checks that this machine may grade the class, and hands its tasks to the stations until all are graded.

A run starts all gradings in its main thread, because a grading dies with the thread that started it (`grading.LEASH`). All
results are in the folder of the class. So a run that is started again, however the last one ended, reads the attempts,
locks a task that is left, removes the drafts of killed runs, and goes on.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.status import Status

import grader
from grader import nvidia
from grader.assignment import load_course
from grader.classroom import grading
from grader.classroom.folder import ClassError, ClassRun, RunFolder, course_of
from grader.classroom.grading import Command, RunningAttempt, grader_run, why_unusable
from grader.classroom.lock import NAME, lock
from grader.classroom.station import Station, stations
from grader.classroom.tasks import DRAFTS, Task, duration, read_again, read_tasks, spoilt, tally
from grader.cleanup import cleanup
from grader.console import EXIT_INFRA
from grader.fingerprint import fingerprint
from grader.nvidia import ListedGpu
from grader.report.model import Report
from grader.report.style import plain
from grader.runfolder import remove
from grader.sandbox.base import InfraError

TICK_S = 0.1
ELSEWHERE_S = 2.0  # until a task that another run has is asked for again
FULL_MIB = 64  # a disk with less free space counts as full: every grading would fail


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        gpus: UUIDs of the GPUs to use; all if empty.
        only: hand-ins or students to grade; all if empty.
        limit: how many gradings to start at most; None for no limit.
        anyway: whether to grade in spite of differences between gradings, and without locks.
        limit_s: seconds of one grading.
        command: makes the command of a grading; None for `grader run`.
        found: lists this machine's GPUs.
        locks: the folder of the GPUs' locks; None for the machine's.
    """

    gpus: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    limit: int | None = None
    anyway: bool = False
    limit_s: float = grading.LIMIT_S
    command: Command | None = None
    found: Callable[[], Sequence[ListedGpu]] = nvidia.gpus
    locks: Path | None = None


def grade_class(folder: RunFolder, console: Console, options: Options) -> bool:
    """Grade the tasks of a class that are left. Returns whether no fault of the machine has left a task ungraded.

    Raises:
        ClassError, CourseError, UsageError: the class cannot be graded, or not on this machine; the message says why.
        InfraError, OSError: this machine failed. Published attempts stay.
    """
    run = folder.run()
    load_course(course_of(run), run.assignments)
    everything, tasks = read_tasks(folder), read_tasks(folder, options.only)
    if lost := [one.handin for one in tasks if not (folder.handins / one.handin).is_dir()]:
        raise ClassError(f"{folder.handins}: {', '.join(lost)}: the files of a hand-in that counts are not there")
    here = stations(run, () if run.device == "cpu" else options.found(), options.gpus, options.locks)
    found = differences(run, here)
    refuse([] if options.anyway else found)
    with console.status("") as status:
        dispatch = Dispatch(folder, tasks, here, options, console, status)
        for words in found:
            dispatch.say(f"warning: {words}")
        try:
            with lock(folder.path / NAME) or contextlib.nullcontext():
                pass
        except ClassError:
            if not options.anyway:
                raise
            words = "lies on a file system without locks: see to it that one run alone is at work"
            dispatch.say(f"warning: {folder.path} {words}")
        drafted = [path for one in everything if any((path := folder.tasks(one.handin)).glob(DRAFTS))]
        for attempts in drafted:
            if held := lock(attempts / NAME, unlocked=options.anyway):  # otherwise a grading is running
                with held:
                    _remove_drafts(attempts)
        if any(one.state == "left" for one in everything):
            dispatch.clean_up()
        try:
            dispatch.run()
        finally:
            console.print(tally(dispatch.tasks.values()), soft_wrap=True)
        if drafted or dispatch.killed:
            dispatch.clean_up()  # again, because judges of killed gradings have ended by now
    return not any(
        one.state in ("failed", "left") and one.attempts and spoilt(one.attempts[-1]) for one in dispatch.tasks.values()
    )


def _remove_drafts(attempts: Path) -> None:
    """Remove the drafts of killed runs from the folder of a task that the caller has locked."""
    for draft in attempts.glob(DRAFTS):
        remove(draft)


# What gradings of one class must not mix ------------------------------------------------------------------------------


def differences(run: ClassRun, stations: Sequence[Station]) -> list[str]:
    """Differences of this grader, course and machine from those of the class, as sentences. Raises ClassError."""
    course = course_of(run)
    models = sorted({one.gpu.name if one.gpu else "" for one in stations})
    found = []
    if run.grader != grader.__version__:
        found.append(f"the class was made by grader {run.grader}, and this is grader {grader.__version__}")
    elif run.fingerprint != fingerprint(course):
        found.append(f"the course in {course}, or the grader's code, is not what it was when the class was made")
    if len(models) > 1:
        found.append(f"this machine has GPUs of several models ({', '.join(models)}); name those of one model by --gpu")
    elif run.gpu is not None and models != [run.gpu]:
        found.append(f"the class has been graded on {run.gpu or 'a CPU'} so far, and this is {models[0] or 'a CPU'}")
    return found


def refuse(found: Sequence[str]) -> None:
    """Raise ClassError if differences were found."""
    if found:
        raise ClassError(
            f"{'; '.join(found)}. Grades of one class would not mean the same; --anyway grades nevertheless"
        )


def settle(folder: RunFolder, report: Report, anyway: bool) -> None:
    """Compare a report with run.json, which the first report completes. Raises ClassError, OSError.

    Args:
        anyway: whether to accept differences.
    """
    while (held := lock(folder.path / NAME, unlocked=True)) is None:  # another node settles its own report
        time.sleep(TICK_S)
    with held:
        run = folder.run()
        gpu, image = report.environment.gpu or "", report.isolation.image or ""
        is_first = run.gpu is None
        found = []
        if not is_first and gpu != run.gpu:
            models = (run.gpu or "a CPU", gpu or "a CPU")
            found.append("the class has been graded on {} so far, and this grading ran on {}".format(*models))
        if not is_first and image != run.image_digest:
            ways = [f"in the image {one}" if one else "without a container" for one in (run.image_digest, image)]
            found.append("the class has been graded {} so far, and this grading ran {}".format(*ways))
        if report.fingerprint not in ("", run.fingerprint):
            found.append("the course or the grader's code was changed while the class is graded")
        refuse([] if anyway else found)
        if is_first:
            folder.write(run.model_copy(update={"gpu": gpu, "image_digest": image}))


# The run --------------------------------------------------------------------------------------------------------------


class Dispatch:
    """The run of a class on one machine.

    Attributes:
        tasks: by hand-in, in the order of grading.
        gradings: those that go on, by the station's name.
        started: how many gradings have been started.
        killed: how many gradings were ended by a signal; their judges may have left processes and files.
    """

    def __init__(
        self,
        folder: RunFolder,
        tasks: Sequence[Task],
        stations: Sequence[Station],
        options: Options,
        console: Console,
        status: Status | None = None,
    ) -> None:
        self.folder = folder
        self.facts = folder.run()
        self.tasks = {one.handin: one for one in sorted(tasks, key=lambda one: len(one.spoilt))}
        self.stations = stations
        self.gradings: dict[str, RunningAttempt] = {}
        self.started = 0
        self.killed = 0
        self._options = options
        self._command = options.command or grader_run(self.facts)
        self._console = console
        self._status = status if console.is_terminal and not console.is_dumb_terminal else None
        self._later: dict[str, float] = {}  # when a hand-in may be asked for again, by the monotonic clock
        self._said: set[str] = set()
        self._told = ""

    @property
    def left(self) -> list[Task]:
        return [one for one in self.tasks.values() if one.state == "left"]

    @property
    def in_service(self) -> list[Station]:
        return [one for one in self.stations if not one.out]

    @property
    def _at_limit(self) -> bool:
        return self._options.limit is not None and self.started >= self._options.limit

    def run(self) -> None:
        """Grade all tasks that are left. However this ends, no grading goes on and no draft of this run is left.

        Raises:
            ClassError: this machine must not grade the class; see `settle`.
            UsageError: `grader run` refuses these options for every hand-in.
            InfraError: no station is left, or the disk is full.
            OSError: RUN cannot be written.
        """
        try:
            while True:
                for station in self.stations:
                    if (ended := self.gradings.get(station.name)) and ended.poll() is not None:
                        self._finish(station, ended)
                for station in self.in_service:
                    if station.name not in self.gradings and self.left and not self._at_limit:
                        self._start(station)
                    if station.name not in self.gradings:
                        station.release()
                if not self.gradings and (self._at_limit or not self.left):
                    return
                if self.left and not self._at_limit and not self.in_service:
                    raise InfraError(f"nothing is left to grade on; {'; '.join(one.out for one in self.stations)}")
                self.draw()
                time.sleep(TICK_S)
        finally:
            self._end()

    def _start(self, station: Station) -> None:
        """Start a grading at a free station, if the station and a task can be locked.

        A task that a fault of this station spoilt goes to another station, if there is one.
        """
        if not station.lock():
            return self._say_once(f"{station.name} grades for another run on this machine; waiting for it")
        if (free_mib := shutil.disk_usage(self.folder.path).free >> 20) < FULL_MIB:
            raise InfraError(f"the disk with {self.folder.path} has {free_mib} MiB left; make room, then start again")
        now = time.monotonic()
        others = [one for one in self.in_service if one is not station and not one.waits]
        running = {one.task.handin for one in self.gradings.values()}
        for task in self.left:
            failed_here = bool(task.attempts) and spoilt(task.attempts[-1]) and task.attempts[-1].place == station.place
            if task.handin in running or self._later.get(task.handin, 0) > now or (failed_here and others):
                continue
            attempts = self.folder.tasks(task.handin)
            attempts.mkdir(parents=True, exist_ok=True)
            own = lock(attempts / NAME, station.place, unlocked=self._options.anyway)
            if own is None:
                self._later[task.handin] = now + ELSEWHERE_S
                self._say_once(f"{task.words}: is being graded by another run; its grading is waited for at the end")
                continue
            with contextlib.ExitStack() as held:
                held.enter_context(own)
                task = self.tasks[task.handin] = read_again(self.folder, task)  # another run may have ended it
                if task.state == "left":
                    _remove_drafts(attempts)
                    self.started += 1
                    limit_s = self._options.limit_s
                    self.gradings[station.name] = RunningAttempt(
                        self.folder, task, own, self._command, station, limit_s
                    )
                    held.pop_all()
                    return None
        return None

    def _finish(self, station: Station, ended: RunningAttempt) -> None:
        handin = ended.task.handin
        attempt, report = ended.result(lambda: why_unusable(self.facts, self.folder.handins / handin))
        if attempt.exit_code == EXIT_INFRA and self._fails_the_reference(station):
            # A fault of the station or the course, which counts against nobody. Other stations wait meanwhile.
            del self.gradings[station.name]
            ended.discard()
            self.started -= 1
            station.out = f"{station.place} is taken out: it grades the course's own files no better: {attempt.fault}"
        else:
            if report is not None:
                settle(self.folder, report, self._options.anyway)
            published = ended.publish(attempt)
            del self.gradings[station.name]
            task = read_again(self.folder, ended.task)
            self.tasks.pop(handin)
            self.tasks[handin] = task  # at the end: others come before a second attempt
            if not published:
                words = "another run has graded it in the meantime; that grading counts"
                return self.say(f"{task.words}: {words}")
            if attempt.exit_code < 0:
                self.killed += 1
                self.clean_up()
            if spoilt(attempt) or report is not None:
                station.note(handin, attempt.fault)
            if attempt.fault:
                again = "; it is tried again" if task.state == "left" else ""
                of_machine = f"attempt {attempt.number} was spoilt on {attempt.place}"
                what = of_machine if spoilt(attempt) else "cannot be graded"
                self.say(f"{task.words}: {what}: {attempt.fault}{again}")
            else:
                seconds = (attempt.ended - attempt.started).total_seconds()
                self.say(f"{task.words}: graded in {duration(seconds)} on {attempt.place}", "")
        if station.out:
            self.say(station.out)
            station.release()
        return None

    def _fails_the_reference(self, station: Station) -> bool:
        """Whether the reference fails at this station by a fault of the machine, or of the course."""
        reference = course_of(self.facts) / "reference"
        if not reference.is_dir():
            return False
        code, _ = grading.grade_the_courses(self._command, reference, station, self._options.limit_s)
        return code == EXIT_INFRA

    def _end(self) -> None:
        """End all gradings that still go on. A second Ctrl-C ends them at once."""
        try:
            for one in self.gradings.values():
                one.ask_to_end()
            deadline = time.monotonic() + grading.STOP_LIMIT_S
            while any(one.poll() is None for one in self.gradings.values()) and time.monotonic() < deadline:
                time.sleep(TICK_S)
        finally:
            for one in self.gradings.values():
                one.discard()
            self.gradings.clear()
            for station in self.stations:
                station.release()

    def clean_up(self) -> None:
        """Remove what killed gradings left on this machine."""
        try:
            for _ in cleanup():
                pass
        except Exception as why:  # whatever Docker's SDK raises: the class goes on
            self.say(f"warning: `grader cleanup`: {why}")

    def say(self, words: str, style: str = "yellow") -> None:
        self._console.print(plain(words, style), soft_wrap=True)

    def _say_once(self, words: str) -> None:
        if words not in self._said:
            self._said.add(words)
            self.say(words)

    def draw(self) -> None:
        """Show how far the class is: on a terminal with the gradings that go on, elsewhere in a line whenever it is another."""
        line = tally(self.tasks.values())
        told = line.plain
        line.append(f"; {self.time_to_go()}")
        if self._status:
            going = [f"{name}: {one.task.words} for {duration(one.seconds)}" for name, one in self.gradings.items()]
            self._status.update(line.append(plain("".join(f"\n  {one}" for one in going), "dim")))
        elif told != self._told:
            self.say(line.plain, "")
        self._told = told

    def time_to_go(self) -> str:
        """An estimate from the class's gradings so far."""
        every = [attempt for task in self.tasks.values() for attempt in task.graded if not attempt.fault]
        seconds = [(one.ended - one.started).total_seconds() for one in every]
        if not self.left:
            return "done"
        if not seconds or not self.in_service:
            return "time to go is not known yet"
        wanted = sum(one.wanted - len(one.graded) for one in self.left)
        spent = sum(min(one.seconds, fmean(seconds)) for one in self.gradings.values())
        return f"about {duration((wanted * fmean(seconds) - spent) / len(self.in_service))} to go"
