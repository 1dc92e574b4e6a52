"""Classes whose hand-ins say how `grader run` would end: each is a shell script that takes its place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import grader
from grader.classroom.folder import Attempt, ClassRun, RunFolder, Student, Students
from grader.classroom.lock import NAME, lock
from grader.fingerprint import fingerprint
from grader.report.model import Environment, Isolation, Points, Report, SubmissionInfo

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTHING = Points(earned=0, graded=0, possible=0)
# What a script may call: `graded`, `graded_on MODEL`, `spoilt WORDS`, `once` (true the first time that this hand-in is graded).
PRELUDE = """
handin=$1; output=$2; gpu=$3; notes=$4
graded() { cp "$notes/report.json" "$output/report.json"; echo "report: written"; exit 0; }
graded_on() { sed "s/\\"gpu\\": null/\\"gpu\\": \\"$1\\"/" "$notes/report.json" > "$output/report.json"; exit 0; }
spoilt() { echo "infra_error: $1"; exit 3; }
once() { mkdir "$notes/once-$(basename "$handin")" 2>/dev/null; }
echo "$(basename "$handin") $gpu" >> "$notes/started"
"""


def report(**fields: object) -> Report:
    """A whole report of nothing."""
    whole = {
        "started": AT,
        "duration_s": 1.0,
        "seed": 1,
        "environment": Environment(grader="0", python="3", torch="2", triton=None, device="cpu"),
        "isolation": Isolation(jail="none"),
        "submission": SubmissionInfo(path="x", sha256="0" * 64, files=()),
        "score": NOTHING,
        "correctness": NOTHING,
        "speed": NOTHING,
        "assignments": (),
    }
    return Report(**whole | fields)  # type: ignore[arg-type]


def a_run(**fields: object) -> ClassRun:
    """The rules of a class."""
    return ClassRun.model_validate({"made": AT, "grader": grader.__version__, "fingerprint": "f", "seed": 1} | fields)


def attempted(run: RunFolder, handin: str, number: int = 1, code: int = 0, fault: str = "", name: str = "") -> Attempt:
    """An ended attempt at a hand-in, without a report; its folder may have another name."""
    path = run.tasks(handin) / (name or f"attempt.{number}")
    path.mkdir(parents=True)
    attempt = Attempt(number=number, started=AT, ended=AT, exit_code=code, place="node7 cpu", fault=fault)
    (path / "attempt.json").write_text(attempt.model_dump_json())
    return attempt


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock of a file."""
    if (held := lock(path)) is not None:
        held.close()
    return held is not None


class Scripted:
    """A class of which each hand-in is a script.

    Args:
        folder: for all of it.
        course: its course.
        scripts: of students, by key; "" for a student who handed nothing in. Equal scripts are one hand-in.
        fields: of `ClassRun`.
    """

    def __init__(self, folder: Path, course: Path, scripts: Mapping[str, str], **fields: object) -> None:
        self.notes = folder / "notes"
        self.notes.mkdir()
        (self.notes / "report.json").write_text(report().model_dump_json(indent=2))
        self.run = RunFolder(folder / "run")
        self.run.handins.mkdir(parents=True)
        students = []
        for key, script in scripts.items():
            handin = hashlib.sha256(script.encode()).hexdigest()[:16] if script else ""
            if script:
                (self.run.handins / handin).mkdir(exist_ok=True)
                (self.run.handins / handin / "double.py").write_text("def double(x):\n    return x * 2\n")
                (self.run.handins / handin / "script.md").write_text(PRELUDE + script)
            students.append(Student(key=key, handin=handin))
        self.run.write(Students(students=tuple(students)))
        usual = {"fingerprint": fingerprint(course), "course": str(course), "sandbox": "host"}
        self.run.write(a_run(**usual | fields))

    def command(self, handin: Path, output: Path, gpu: str | None) -> Sequence[str]:
        """See `grading.Command`."""
        return ["/bin/sh", str(handin / "script.md"), str(handin), str(output), gpu or "cpu", str(self.notes)]

    def handin(self, key: str) -> str:
        return next(one.handin for one in self.run.students().students if one.key == key)

    def attempts(self, key: str) -> list[Attempt]:
        return list(self.run.attempts(self.handin(key)))

    @property
    def started(self) -> list[list[str]]:
        """Hand-in and station of every grading that has begun, in their order."""
        path = self.notes / "started"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def leftovers(self) -> list[str]:
        """Drafts below the class."""
        hidden = {path for path in self.run.path.rglob(".*") if path.name != NAME}
        return sorted(str(path.relative_to(self.run.path)) for path in hidden)
