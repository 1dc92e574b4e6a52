"""Hands the tasks of a class to the stations of this machine, until all are graded.

A run is one process without threads, because a grading dies with the thread that started it (`grading.LEASH`). All
results are in the folder of the class. So a run that is started again, however the last one ended, reads the attempts,
locks a task that is left, removes the drafts of killed runs, and goes on.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grader import nvidia
from grader.classroom import grading
from grader.classroom.differences import settle
from grader.classroom.folder import RunFolder
from grader.classroom.grading import Command, RunningAttempt
from grader.classroom.lock import NAME, Lock, lock
from grader.classroom.model import Attempt
from grader.classroom.station import Station
from grader.classroom.task import Task, read_again, spoilt
from grader.console import EXIT_INFRA
from grader.nvidia import ListedGpu
from grader.sandbox.base import InfraError

TICK_S = 0.1
ELSEWHERE_S = 2.0  # until a task that another run has is asked for again
FULL_MIB = 64  # a disk with less free space counts as full: every grading would fail


class Watcher(Protocol):
    """Shows the progress of a run."""

    def say(self, words: str) -> None: ...

    def ended(self, task: Task, attempt: Attempt) -> None:
        """Show an attempt that has ended; `task` contains the attempt."""

    def draw(self, dispatch: Dispatch) -> None: ...


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        gpus: UUIDs of the GPUs to use; all if empty.
        only: hand-ins or students to grade; all if empty.
        limit: how many gradings to start at most; None for no limit.
        anyway: whether to grade in spite of differences (`differences.py`), and without locks.
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


class Dispatch:
    """The run of a class on one machine.

    Args:
        command: makes the command of a grading.
        why_unusable: why a hand-in cannot be graded; "" if it can.
        begun: whether the class has a graded attempt.
        reference: the staff's files. Where a station fails them as well as a hand-in, the fault is the station's or the
            course's, and counts against nobody; None: no station is tried.
        clean_up: see `grading.clean_up`.

    Attributes:
        tasks: by hand-in, in the order of grading.
        started: how many gradings have been started.
        killed: how many gradings were ended by a signal; their judges may have left processes and files.
        seconds: duration of each grading that ended with a report.
    """

    def __init__(
        self,
        folder: RunFolder,
        tasks: Sequence[Task],
        stations: Sequence[Station],
        command: Command,
        why_unusable: Callable[[Path], str],
        watcher: Watcher,
        options: Options,
        *,
        begun: bool = False,
        reference: Path | None = None,
        clean_up: Callable[[], str] = grading.clean_up,
    ) -> None:
        self.folder = folder
        self.tasks = {one.handin: one for one in sorted(tasks, key=lambda one: len(one.spoilt))}
        self.stations = stations
        self.started = 0
        self.killed = 0
        self.seconds: list[float] = []
        self._command = command
        self._why_unusable = why_unusable
        self._watcher = watcher
        self._options = options
        self._begun = begun
        self._reference = reference
        self._clean_up = clean_up
        self._later: dict[str, float] = {}  # when a hand-in may be asked for again, by the monotonic clock
        self._said: set[str] = set()

    @property
    def left(self) -> list[Task]:
        return [one for one in self.tasks.values() if one.state == "left"]

    @property
    def in_service(self) -> list[Station]:
        return [one for one in self.stations if not one.out]

    def run(self) -> None:
        """Grade all tasks that are left. However this ends, no grading goes on and no draft of this run is left.

        Raises:
            ClassError: this machine must not grade the class; see `settle`.
            UsageError: `grader run` refuses these options for every hand-in.
            InfraError: no station is left, or the disk is full.
            OSError: RUN cannot be written.
        """
        try:
            while self._step():
                self._watcher.draw(self)
                time.sleep(TICK_S)
        finally:
            self._end()

    def _step(self) -> bool:
        """Finish ended gradings, and start others. Returns False if no grading goes on and none is left to start."""
        for station in self.stations:
            if station.grading is not None and station.grading.poll() is not None:
                self._finish(station, station.grading)
        for station in self.in_service:
            if station.grading is None:
                self._start(station)
        if self._at_limit:
            return bool(self._busy)
        if self.left and not self.in_service:
            raise InfraError(f"nothing is left to grade on; {'; '.join(one.out for one in self.stations)}")
        return bool(self._busy or self.left)

    @property
    def _at_limit(self) -> bool:
        return self._options.limit is not None and self.started >= self._options.limit

    @property
    def _busy(self) -> list[RunningAttempt]:
        return [one.grading for one in self.stations if one.grading is not None]

    def _start(self, station: Station) -> None:
        """Start a grading at a free station, if the station and a task can be locked. A station without one is released."""
        try:
            if self.left and not self._at_limit:
                if station.held is None and station.lock() is None:
                    return self._say_once(f"{station.name} grades for another run on this machine; waiting for it")
                if (free_mib := shutil.disk_usage(self.folder.path).free >> 20) < FULL_MIB:
                    raise InfraError(
                        f"the disk with {self.folder.path} has {free_mib} MiB left; make room, then start again"
                    )
                station.grading = self._new(station)
        finally:
            if station.grading is None:
                station.release()
        return None

    def _new(self, station: Station) -> RunningAttempt | None:
        """A grading for a locked station; None if no task is free."""
        task, own = self._next(station)
        if task is None or own is None:
            return None
        try:
            grading.remove_drafts(self.folder.tasks(task.handin))
            self.started += 1
            gpu = station.gpu.uuid if station.gpu else None
            holds = station.held.descriptors if station.held else ()
            return RunningAttempt(
                self.folder,
                task,
                own,
                self._command,
                gpu,
                station.place,
                holds,
                self._options.limit_s,
                cores=station.cores,
            )
        except BaseException:
            own.release()
            raise

    def _next(self, station: Station) -> tuple[Task | None, Lock | None]:
        """A task for a station, with its lock; None for both if no task is free. A task that a fault of this station
        spoilt goes to another station, if there is one.
        """
        now = time.monotonic()
        others = [one for one in self.in_service if one is not station and not one.waits]
        running = {one.task.handin for one in self._busy}
        for task in self.left:
            failed_here = bool(task.attempts) and spoilt(task.attempts[-1]) and task.attempts[-1].place == station.place
            if task.handin in running or self._later.get(task.handin, 0) > now or (failed_here and others):
                continue
            self.folder.tasks(task.handin).mkdir(parents=True, exist_ok=True)
            held = lock(self.folder.tasks(task.handin) / NAME, station.place, unlocked=self._options.anyway)
            if held is None:
                self._later[task.handin] = now + ELSEWHERE_S
                self._say_once(f"{task.words}: is being graded by another run; its grading is waited for at the end")
                continue
            task = self.tasks[task.handin] = read_again(self.folder, task)  # another run may have ended it
            if task.state == "left":
                return task, held
            held.release()
        return None, None

    def _finish(self, station: Station, ended: RunningAttempt) -> None:
        attempt, report = ended.result(self._why_unusable)
        if attempt.exit_code == EXIT_INFRA and self._fails_the_reference(station):
            ended.discard()
            station.grading = None
            self.started -= 1
            station.out = f"{station.place} is taken out: it grades the course's own files no better: {attempt.fault}"
            return self._leave(station)
        if report is not None:
            settle(self.folder, report, self._begun, self._options.anyway)
            self._begun = True
        published = ended.publish(attempt)
        station.grading = None
        task = read_again(self.folder, ended.task)
        self.tasks.pop(task.handin)
        self.tasks[task.handin] = task  # at the end: others come before a second attempt
        if not published:
            return self._watcher.say(f"{task.words}: another run has graded it in the meantime; that grading counts")
        if attempt.exit_code < 0:
            self.killed += 1
            if fault := self._clean_up():
                self._watcher.say(fault)
        if spoilt(attempt):
            station.note(task.handin, attempt.fault)
        elif report is not None:
            station.note(task.handin, "")
            self.seconds.append((attempt.ended - attempt.started).total_seconds())
        self._watcher.ended(task, attempt)
        return self._leave(station) if station.out else None

    def _leave(self, station: Station) -> None:
        """Leave a station that is taken out."""
        self._watcher.say(station.out)
        station.release()

    def _fails_the_reference(self, station: Station) -> bool:
        """Whether the reference fails at this station by a fault of the machine, or of the course. Other stations wait."""
        if self._reference is None or not self._reference.is_dir():
            return False
        gpu = station.gpu.uuid if station.gpu else None
        holds = station.held.descriptors if station.held else ()
        limit_s = self._options.limit_s
        code, _ = grading.grade_the_courses(self._command, self._reference, gpu, holds, station.cores, limit_s)
        return code == EXIT_INFRA

    def _end(self) -> None:
        """End all gradings that still go on. A second Ctrl-C ends them at once."""
        try:
            for one in self._busy:
                one.ask_to_end()
            deadline = time.monotonic() + grading.STOP_LIMIT_S
            while any(one.poll() is None for one in self._busy) and time.monotonic() < deadline:
                time.sleep(TICK_S)
        finally:
            for station in self.stations:
                if station.grading is not None:
                    station.grading.discard()
                station.grading = None
                station.release()

    def _say_once(self, words: str) -> None:
        if words not in self._said:
            self._said.add(words)
            self._watcher.say(words)
