"""The tasks of a class: for each hand-in its attempts, and whether more are wanted. Read from the files of the class alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rich.console import Console
from rich.text import Text

from grader.classroom.folder import NOTHING, Attempt, ClassError, RunFolder
from grader.classroom.lock import NAME, holder
from grader.classroom.roster import find, shown
from grader.report.style import counted, first_of, plain

MAX_FAULTS = 3  # spoilt attempts, for each attempt that is wanted
UNUSABLE = 2  # the exit code of `grader run` for a submission that nobody can grade
DRAFTS = ".attempt.*"  # in the folder of a hand-in's attempts: gradings that go on, or were cut off

State = Literal["graded", "unusable", "failed", "left"]
# States with the words for people, as "12 graded", and a colour.
STATES: dict[State, tuple[str, str]] = {
    "graded": ("graded", "green"),
    "unusable": ("cannot be graded", "yellow"),
    "failed": (f"failed: the machine spoilt {MAX_FAULTS} attempts", "bold magenta"),
    "left": ("left", ""),
}


def spoilt(attempt: Attempt) -> bool:
    """Whether a fault of the machine or the grader spoilt the attempt. Another attempt then takes its place."""
    return bool(attempt.fault) and attempt.exit_code != UNUSABLE


@dataclass(frozen=True)
class Task:
    """The gradings of one hand-in.

    Attributes:
        students: keys of the students with this hand-in, in the order of the roster.
        wanted: how many attempts without a fault of the machine are wanted: one, and one more for each regrade.
        attempts: the published attempts.
    """

    handin: str
    students: tuple[str, ...]
    wanted: int
    attempts: tuple[Attempt, ...] = ()

    @property
    def graded(self) -> tuple[Attempt, ...]:
        return tuple(one for one in self.attempts if not spoilt(one))

    @property
    def spoilt(self) -> tuple[Attempt, ...]:
        return tuple(one for one in self.attempts if spoilt(one))

    @property
    def state(self) -> State:
        """`graded`; `unusable`, if `grader run` refuses the hand-in; `failed`, if too many attempts are spoilt; else
        `left`, to be graded.
        """
        if len(self.graded) < self.wanted:
            lately = [one for one in self.attempts if not self.graded or one.number > self.graded[-1].number]
            return "failed" if len(lately) >= MAX_FAULTS * (self.wanted - len(self.graded)) else "left"
        return "unusable" if self.graded[-1].exit_code == UNUSABLE else "graded"

    @property
    def words(self) -> str:
        """The first few students, for messages."""
        return first_of(self.students, 3)


def read_again(folder: RunFolder, task: Task) -> Task:
    """The task with its attempts read from the folder again."""
    return Task(task.handin, task.students, task.wanted, tuple(folder.attempts(task.handin)))


def read_tasks(folder: RunFolder, only: Collection[str] = ()) -> list[Task]:
    """The tasks of all hand-ins that count for a student, in the order of the roster.

    Args:
        only: hand-ins, or students as `find` takes them, of whom tasks are wanted; all if empty.

    Raises ClassError.
    """
    students = folder.students().students
    owners: dict[str, list[str]] = {}
    for student in students:
        if student.handin:
            owners.setdefault(student.handin, []).append(student.key)
    wanted = owners.keys() & set(only)
    for name in only:
        if name not in owners:
            try:
                found = find(students, name)
            except ClassError as error:
                raise ClassError(f"{name}: no hand-in that counts; {error}") from None
            if not found.handin:
                raise ClassError(f"{shown(found)}: no hand-in that counts")
            wanted.add(found.handin)
    regrades = Counter(one.handin for one in folder.decisions() if one.kind == "regrade")
    return [
        read_again(folder, Task(one, tuple(keys), 1 + regrades[one]))
        for one, keys in owners.items()
        if one in wanted or not only
    ]


# What is said of them -------------------------------------------------------------------------------------------------


def tally(tasks: Iterable[Task]) -> Text:
    """The class in one line: "60 hand-ins: 12 graded, 48 left"."""
    counts = Counter(one.state for one in tasks)
    said = [Text(f"{counts[state]} {words}", style) for state, (words, style) in STATES.items() if counts[state]]
    line = Text(counted(counts.total(), "hand-in")).append(": " if said else "")
    return line.append_text(Text(", ").join(said))


def duration(seconds: float) -> str:
    """As "35 s", "12 min" or "2 h 5 min"."""
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def print_status(folder: RunFolder, console: Console) -> None:
    """Print the state of a class from its files. Raises ClassError."""
    tasks, students = read_tasks(folder), folder.students().students
    console.print(tally(tasks), soft_wrap=True)
    lines: list[tuple[str, str]] = []
    now = datetime.now(UTC)
    for task in tasks:
        attempts = folder.tasks(task.handin)
        if task.state == "left" and any(attempts.glob(DRAFTS)) and (by := holder(attempts / NAME)):
            place, since = by
            lines.append((f"running: {task.words} on {place} for {duration((now - since).total_seconds())}", ""))
    for task in tasks:
        if task.state == "unusable":
            lines.append((f"cannot be graded: {task.words}: {task.graded[-1].fault}", "yellow"))
    for task in tasks:
        style = STATES["failed"][1] if task.state == "failed" else "dim"
        of_machine = f"fault of the machine: {task.words}, attempt"
        lines += [(f"{of_machine} {one.number} on {one.place}: {one.fault}", style) for one in task.spoilt]
    for what in ("handed in nothing", NOTHING):
        keys = [one.key for one in students if not one.handin and (NOTHING in one.notes) == (what == NOTHING)]
        lines += [(f"{what}: {', '.join(keys)}", "")] * bool(keys)
    for words, style in lines:
        console.print(plain(f"  {words}", style), soft_wrap=True)
