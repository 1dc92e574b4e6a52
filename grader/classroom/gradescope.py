"""Grades for Gradescope: a results.json for each student, and an autograder.zip that finds them by the submitted files.

Gradescope's containers have no GPU, so the zip grades nothing: "Regrade all" there fills the course with what was graded here.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grader.submission
from grader.classroom import lookup
from grader.classroom.folder import ClassError, RunFolder, full_disk_told, write_whole
from grader.classroom.grades import Basis, Grade, number
from grader.classroom.model import Student
from grader.classroom.roster import folded, shown
from grader.report.json_file import REPORT, read_report
from grader.report.model import UNDECIDED, CaseResult, Points, Report, presentable
from grader.submission import SubmissionError

MAX_CASES, MAX_WORDS = 3, 600  # of a test in results.json: cases with different messages, and characters of each
ZIP_TIME = (2020, 1, 1, 0, 0, 0)  # of every file, so that equal exports are equal files
RUN_AUTOGRADER = f"""#!/bin/bash
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "not graded: this autograder needs Python 3.10; choose a base image with Ubuntu 22.04 or later in Gradescope"
    exit 1
fi
exec python3 "${{{lookup.ROOT}:-/autograder}}/source/lookup.py"
"""
SETUP = """#!/bin/bash
# lookup.py needs Python's standard library alone.
command -v python3 > /dev/null || (apt-get update && apt-get install -y python3)
"""
UNKNOWN_FILES = (
    "Gradescope cannot say that something is not graded: for files without a grade here the autograder fails with a sentence, and sets no "
    "score; where Gradescope shows a 0 for that, it is no grade"
)
# What grader/submission.py takes of grader/report/model.py, which needs pydantic.
MODEL = '''"""The description of a staged submission, without pydantic."""

from dataclasses import dataclass
from typing import Tuple


@dataclass(frozen=True)
class SubmissionInfo:
    path: str
    sha256: str
    files: Tuple[str, ...]
    notes: Tuple[str, ...] = ()
'''


@dataclass(frozen=True)
class Names:
    """The files that the class grades, and those of the course's other assignments."""

    wanted: tuple[str, ...]
    known: tuple[str, ...]


def export(folder: RunFolder, grades: Sequence[Grade], basis: Basis, names: Names, into: Path) -> Path:
    """Write `into`/results/ and `into`/autograder.zip; return the zip's path.

    Raises:
        ClassError: a report or a hand-in's files cannot be read.
        OSError, InfraError: something cannot be written.
    """
    texts = {
        one.student.key: json.dumps(results(one, basis), indent=1, ensure_ascii=False) + "\n"
        for one in grades
        if one.student.handin and one.earned is not None
    }
    with full_disk_told(into):
        (into / "results").mkdir(parents=True, exist_ok=True)
    for student in folder.students().students:  # of an earlier export
        if student.key not in texts:
            (into / "results" / f"{student.key}.json").unlink(missing_ok=True)
    for key, text in texts.items():
        write_whole(into / "results" / f"{key}.json", text)
    write_whole(into / "autograder.zip", _autograder(folder, grades, texts, names))
    return into / "autograder.zip"


def results(grade: Grade, basis: Basis = "all") -> dict[str, Any]:
    """The content of a student's results.json. Raises ClassError."""
    assert grade.earned is not None
    found: dict[str, Any] = {
        "score": round(grade.earned, 4),
        "output": _summary(grade),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
    }
    if grade.counting is not None and grade.points is not None:
        report = read_report(grade.counting.folder / REPORT)
        found["tests"] = list(_tests(report, basis))
    return found


def _summary(grade: Grade) -> str:
    lines = []
    if grade.override is not None:
        lines.append(f"{number(grade.earned or 0)} points by a decision of the staff")
    if grade.points is not None and grade.counting is not None:
        lines.append(
            f"{number(grade.points.earned)} of {number(grade.points.possible)} points (attempt {grade.counting.number})"
        )
    return presentable("\n".join(lines))


def _tests(report: Report, basis: Basis) -> Iterable[dict[str, Any]]:
    for one, part in report.parts:
        title = one.title_of(part)
        for group in part.groups:
            yield _test(f"{title}: {group.title}", group.points, _wrong(group.cases))
        for speed in part.speed.cases if basis == "all" else ():
            yield _test(f"{title}: speed, {speed.name}", speed.points, speed.message)


def _test(name: str, points: Points, output: str) -> dict[str, Any]:
    return {
        "name": presentable(name),
        "score": round(points.earned, 4),
        "max_score": round(points.possible, 4),
        "status": "passed" if points.earned >= points.possible - 1e-9 else "failed",
        "output": presentable(output),
    }


def _wrong(cases: Iterable[CaseResult]) -> str:
    """The first wrong cases, one for each message."""
    wrong = [one for one in cases if one.outcome != "passed" and one.outcome not in UNDECIDED]
    found = {one.message: one for one in reversed(wrong)}
    first = [one for one in wrong if found[one.message] is one]
    more = f"\nand {len(wrong) - MAX_CASES} more cases" if len(wrong) > MAX_CASES and not wrong[0].of_file else ""
    return "\n".join(map(_told, first[:MAX_CASES])) + more


def _told(case: CaseResult) -> str:
    """A case, and the sentence that explains it: what the mistake is consistent with, or what to do about an error."""
    cause = next(iter(case.diagnosis), "")
    words = f"{case.fault_of_file or case.title}: {case.message[:MAX_WORDS]}"
    return f"{words}\n  {cause[:MAX_WORDS]}" if cause else words


# The autograder -------------------------------------------------------------------------------------------------------


def _autograder(folder: RunFolder, grades: Sequence[Grade], texts: dict[str, str], names: Names) -> bytes:
    handins: dict[str, list[dict[str, Any]]] = {}
    for digest, shared in _by_files(folder, grades, texts, names).items():
        handins[digest] = list(_choices(shared, texts))
    index = {
        "exported": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "wanted": names.wanted,
        "known": names.known,
        "handins": handins,
    }
    files = {
        "setup.sh": SETUP,
        "run_autograder": RUN_AUTOGRADER,
        "lookup.py": Path(lookup.__file__).read_text(encoding="utf-8"),
        "grader/__init__.py": "",
        "grader/submission.py": Path(grader.submission.__file__).read_text(encoding="utf-8"),
        "grader/report/__init__.py": "",
        "grader/report/model.py": MODEL,
        lookup.INDEX: json.dumps(index, indent=1),
        **{f"results/{key}.json": text for key, text in texts.items()},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.external_attr = (0o100755 if name in ("setup.sh", "run_autograder") else 0o100644) << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _by_files(
    folder: RunFolder, grades: Sequence[Grade], texts: dict[str, str], names: Names
) -> dict[str, list[Grade]]:
    """The exported grades by the hash that the autograder computes of submitted files."""
    digests: dict[str, str] = {}
    found: dict[str, list[Grade]] = {}
    for grade in grades:
        handin = grade.student.handin
        if grade.student.key not in texts:
            continue
        if handin not in digests:
            try:
                digests[handin] = lookup.content_hash(folder.handins / handin, names.wanted, names.known)
            except SubmissionError as error:
                raise ClassError(f"{shown(grade.student)}: {error}") from None
        found.setdefault(digests[handin], []).append(grade)
    return found


def _choices(shared: Sequence[Grade], texts: dict[str, str]) -> Iterable[dict[str, Any]]:
    """The different results of students with the same files, each with the people to whom it belongs. Results of an
    override are for its student alone.
    """
    by_text: dict[str, list[Grade]] = {}
    for grade in shared:
        by_text.setdefault(texts[grade.student.key], []).append(grade)
    for alike in by_text.values():
        people = {person for one in alike for person in _people(one.student)}
        yield {
            "results": f"{alike[0].student.key}.json",
            "people": sorted(people),
            "anyone": len(by_text) == 1 and all(one.override is None for one in alike),
        }


def _people(student: Student) -> Iterable[str]:
    """The names under which Gradescope may list a student as the owner of a submission."""
    for kind, value in (*student.ids.items(), ("name", student.name)):
        if value and (named := {"gradescope": "submission"}.get(folded(kind), folded(kind))) in lookup.KINDS:
            yield f"{named}:{folded(value)}"
