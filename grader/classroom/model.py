"""The models of a class: its rules of grading, its students, attempts and decisions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from grader.assignment import Strict

HandInId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[\w.@+-]{1,100}$")]

NOTHING = "handed in nothing that can be graded"  # a note of a student without a hand-in


class ClassRun(Strict):
    """How every hand-in of a class is graded (`RUN/run.json`).

    Attributes:
        grader: its version.
        course: the course's folder; empty for the grader's own course.
        fingerprint: of the grader's code and the course (`grader.fingerprint`), when the class was made.
        assignments: their names; empty for all.
        seed: of the inputs, the same for all hand-ins, so that no student has easier numbers.
        gpu: the model of the grading GPU, as `NVIDIA H100 80GB HBM3`; empty until the first grading ends, and on a CPU.
        image_digest: of the container's image; empty until the first grading ends, and on the host.
    """

    version: Literal[1] = 1
    made: datetime
    grader: str
    fingerprint: str
    course: str = ""
    assignments: tuple[str, ...] = ()
    seed: int = Field(ge=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    sandbox: Literal["auto", "host", "docker"] = "auto"
    image: str = ""
    require_isolation: bool = False
    speed: bool = True
    effort: Literal["quick", "full"] = "full"
    gpu: str = ""
    image_digest: str = ""


class Student(Strict):
    """One person of the class (`RUN/students.json`).

    Attributes:
        key: names the student in commands and files; unique in the class.
        ids: by column or platform: `email`, `sid`, `login`, `canvas`, `moodle`, `github`, `folder`; `gradescope` is the
            number of the submission that counts, `group` the name of the student's group.
        alias: the name on the leaderboard; empty for none.
        handin: the hand-in that counts; empty if the student handed in nothing that can be graded.
        notes: sentences about the intake, as "kernel.py was handed in twice: kernel-1.py is the later one".
    """

    key: Key
    name: str = ""
    ids: dict[str, str] = Field(default_factory=dict)
    alias: str = ""
    handin: HandInId | Literal[""] = ""
    late: bool = False
    notes: tuple[str, ...] = ()


class Students(Strict):
    """All students, in the order of the roster, and sentences about files that the intake could not use."""

    version: Literal[1] = 1
    students: tuple[Student, ...]
    notes: tuple[str, ...] = ()


class Attempt(Strict):
    """One grading of a hand-in (`RUN/tasks/<hand-in>/attempt.<n>/attempt.json`, beside the report).

    Attributes:
        exit_code: of `grader run`; negative for a signal.
        place: the machine and the GPU, as `node3 GPU-1234`, or `node3 cpu`.
        fault: why the attempt gives no grade, in one sentence; empty if it gives one.
    """

    number: int = Field(ge=1)
    started: datetime
    ended: datetime
    exit_code: int
    place: str
    fault: str = ""


class Decision(Strict):
    """A decision of a person about a student's grade: a line of `RUN/decisions.jsonl`, to which lines are only added.

    Attributes:
        by: the person's user name, or the name given with --by.
        who: the student's key.
        kind: `points` overrides the points; `counts` says which attempt counts; `regrade` asks for one more attempt at
            the student's hand-in.
        points: of kind `points`; None takes an earlier override back.
        counts: of kind `counts`: the latest attempt, the best, or the attempt with this number.
        handin: of the kinds `counts` and `regrade`: the student's hand-in at the time of the decision.
    """

    at: datetime
    by: str
    who: Key
    kind: Literal["points", "counts", "regrade"]
    reason: str
    points: float | None = None
    counts: Literal["latest", "best"] | int | None = None
    handin: HandInId | Literal[""] = ""
