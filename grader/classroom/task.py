"""The tasks of a class: for each hand-in its attempts, and whether more are wanted. Read from the files of the class alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.model import Attempt, Student
from grader.classroom.roster import find, shown
from grader.report.style import first_of

MAX_FAULTS = 3  # Give up after 3 machine faults for each attempt that is wanted.
UNUSABLE = 2  # the exit code of `grader run` for a submission that nobody can grade

State = Literal["graded", "unusable", "failed", "left"]


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
            return "failed" if self._spoilt_lately >= MAX_FAULTS * (self.wanted - len(self.graded)) else "left"
        return "unusable" if self.graded[-1].exit_code == UNUSABLE else "graded"

    @property
    def _spoilt_lately(self) -> int:
        """How many attempts are spoilt since the last that is not."""
        lately = [one for one in self.attempts if not self.graded or one.number > self.graded[-1].number]
        return len(lately)

    @property
    def words(self) -> str:
        """The first few students, for messages."""
        return first_of(self.students, 3)


def read_again(folder: RunFolder, task: Task) -> Task:
    """The task with its attempts read from the folder again."""
    return Task(task.handin, task.students, task.wanted, tuple(folder.attempts(task.handin)))


def read_tasks(folder: RunFolder) -> list[Task]:
    """The tasks of all hand-ins that count for a student, in the order of the roster. Raises ClassError."""
    owners: dict[str, list[str]] = {}
    for student in folder.students().students:
        if student.handin:
            owners.setdefault(student.handin, []).append(student.key)
    regrades = Counter(one.handin for one in folder.decisions() if one.kind == "regrade")
    return [read_again(folder, Task(one, tuple(keys), 1 + regrades[one])) for one, keys in owners.items()]


def chosen(tasks: list[Task], only: Collection[str], students: Sequence[Student]) -> list[Task]:
    """The tasks of these hand-ins or students, each named as `find` takes it; all if `only` is empty. Raises ClassError."""
    handins = {one.handin for one in tasks}
    found = []
    for name in (name for name in only if name not in handins):
        try:
            found.append(find(students, name))
        except ClassError as error:
            raise ClassError(f"{name}: no hand-in that counts; {error}") from None
    if without := [shown(one) for one in found if one.handin not in handins]:
        raise ClassError(f"{', '.join(without)}: no hand-in that counts")
    wanted = {*only, *(one.handin for one in found)}
    return [one for one in tasks if not only or one.handin in wanted]
