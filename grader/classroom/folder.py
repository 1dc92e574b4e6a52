"""The folder of a class, RUN: the whole state of the class, as files.

    RUN/run.json                                the rules of grading (`ClassRun`)
    RUN/students.json                           the students and their hand-ins (`Students`)
    RUN/handins/<hand-in>/                      read-only copies of the files, named by a hash of names and contents
    RUN/tasks/<hand-in>/attempt.<n>/            one grading: attempt.json, output.txt, and report.json with its page if there is a report
    RUN/decisions.jsonl                         the decisions of people (`Decision`), a line each

Every file and folder but decisions.jsonl appears whole or not at all: it is written under a name that begins with a
dot, and then renamed. All other files of a class can be made again from these.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AwareDatetime, Field, StringConstraints, ValidationError

from grader.assignment import Strict, load_course, stub_names
from grader.course import own_course
from grader.sandbox.base import InfraError, UsageError

T = TypeVar("T", bound=Strict)
HandInId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Key = Annotated[str, StringConstraints(pattern=r"^[\w.@+-]{1,100}$")]
NOTHING = "handed in nothing that can be graded"  # a note of a student without a hand-in
ATTEMPT = re.compile(r"attempt\.([1-9][0-9]{0,5})")


class ClassError(UsageError):
    """The folder of a class, or a file given for the class, cannot be used; the message says why."""


class ClassRun(Strict):
    """How every hand-in of a class is graded (`RUN/run.json`).

    Attributes:
        grader: its version.
        course: the course's folder; empty for the grader's own course.
        fingerprint: of the grader's code and the course (`grader.fingerprint`), when the class was made.
        assignments: their names; empty for all.
        seed: of the inputs, the same for all hand-ins, so that no student has easier numbers.
        gpu: the model of the grading GPU, as `NVIDIA H100 80GB HBM3`; empty for a CPU, None until the first grading ends.
        image_digest: of the container's image; empty on the host, and until the first grading ends.
    """

    version: Literal[1] = 1
    made: AwareDatetime
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
    gpu: str | None = None
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
    started: AwareDatetime
    ended: AwareDatetime
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

    at: AwareDatetime
    by: str
    who: Key
    kind: Literal["points", "counts", "regrade"]
    reason: str
    points: float | None = None
    counts: Literal["latest", "best"] | int | None = None
    handin: HandInId | Literal[""] = ""


class RunFolder:
    """The folder of one class. Methods that read raise ClassError if a file is missing or has another form than the
    grader's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def handins(self) -> Path:
        return self.path / "handins"

    @property
    def decisions_file(self) -> Path:
        return self.path / "decisions.jsonl"

    def tasks(self, handin: str) -> Path:
        return self.path / "tasks" / handin

    def run(self) -> ClassRun:
        return self._read("run.json", ClassRun)

    def students(self) -> Students:
        return self._read("students.json", Students)

    def write(self, found: ClassRun | Students) -> None:
        """Replace run.json or students.json. Raises OSError."""
        name = "run.json" if isinstance(found, ClassRun) else "students.json"
        write_whole(self.path / name, found.model_dump_json(indent=1) + "\n")

    def attempts(self, handin: str) -> dict[Attempt, Path]:
        """The ended attempts at a hand-in with their folders, by number. An interrupted grading leaves no attempt."""
        tasks = self.tasks(handin)
        every = {ATTEMPT.fullmatch(path.name): path for path in (tasks.iterdir() if tasks.is_dir() else ())}
        found = {int(named[1]): path for named, path in every.items() if named}
        return {
            self._read(f"tasks/{handin}/{path.name}/attempt.json", Attempt): path for _, path in sorted(found.items())
        }

    def decisions(self) -> list[Decision]:
        """All decisions, the oldest first. A last line without a line end was cut off in writing, and does not count."""
        try:
            content = self.decisions_file.read_bytes()
            text = content[: content.rfind(b"\n") + 1].decode()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ClassError(f"{self.decisions_file}: cannot be read ({error})") from None
        lines = text.split("\n")[:-1]  # `splitlines` would split a reason too
        return [self._parsed(line, f"{self.decisions_file}:{number}", Decision) for number, line in enumerate(lines, 1)]

    def decide(self, decision: Decision) -> None:
        """Add a decision. Raises OSError."""
        with self.decisions_file.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # removes a last line that was cut off
            file.write(decision.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, name: str, kind: type[T]) -> T:
        path = self.path / name
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            why = f"there is no {name} in it" if self.path.is_dir() else "there is no such folder"
            raise ClassError(f"{self.path}: {why}; `grader class new` makes the folder of a class") from None
        except (OSError, ValueError) as error:
            raise ClassError(f"{path}: cannot be read ({error})") from None
        return self._parsed(text, str(path), kind)

    def _parsed(self, text: str, where: str, kind: type[T]) -> T:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "the text"
            raise ClassError(f"{where}: is not what this grader writes; {place}: {first['msg']}") from None


def course_of(run: ClassRun) -> Path:
    """The course's folder. Raises ClassError."""
    course = Path(run.course) if run.course else own_course()
    if course is None:
        raise ClassError("run.json names no course, and this grader came without one")
    if not course.is_dir():
        raise ClassError(f"{course}: the folder of the course, which run.json names, is not here")
    return course


def file_names(run: ClassRun) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The file names of the class's assignments, and those of all that students of the course start from.

    Raises ClassError, CourseError.
    """
    course = course_of(run)
    return tuple(one.spec.file for one in load_course(course, run.assignments)), tuple(stub_names(course))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, which appears whole and synced to the disk, or not at all, and its folder if that is missing.

    Raises OSError, InfraError if the disk is full.
    """
    data = content.encode() if isinstance(content, str) else content
    draft = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # noqa: PTH101
        os.replace(draft, path)  # noqa: PTH105
    except BaseException as error:
        if draft is not None:
            Path(draft).unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(next(one for one in path.absolute().parents if one.exists())).free
        wanted = f"{len(data) / 1024:.1f} KiB are to be written, {free / 1024:.1f} KiB are left on that disk"
        raise InfraError(f"{path}: {error.strerror}: {wanted}; make room, then start again") from None
