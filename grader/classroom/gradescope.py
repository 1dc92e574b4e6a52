"""Grades for Gradescope: a results.json for each student, and an autograder.zip that finds them by the submitted files.

Gradescope's containers have no GPU, so the zip grades nothing: "Regrade all" there fills the course with what was graded here.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grader.submission
from grader.classroom import lookup
from grader.classroom.folder import ClassError, RunFolder, file_names, write_whole
from grader.classroom.grades import Basis, Grade, number
from grader.classroom.roster import shown
from grader.report.json_file import REPORT, read_report
from grader.report.model import UNDECIDED, CaseResult, Points, presentable
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
# What grader/submission.py takes of grader/messages.py and grader/report/model.py, which need pydantic.
MESSAGES = '''"""A staged submission, without pydantic."""

from dataclasses import dataclass
from pathlib import Path
from typing import Dict

from grader.report.model import SubmissionInfo


@dataclass(frozen=True)
class Staged:
    folder: Path
    info: SubmissionInfo
    refused: Dict[str, str]
    misnamed: Dict[str, str]
'''
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


def export(folder: RunFolder, grades: Sequence[Grade], basis: Basis, into: Path) -> Path:
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
    for student in folder.students().students:  # of an earlier export
        if student.key not in texts:
            (into / "results" / f"{student.key}.json").unlink(missing_ok=True)
    for key, text in texts.items():
        write_whole(into / "results" / f"{key}.json", text)
    write_whole(
        into / "autograder.zip", _autograder(folder, [one for one in grades if one.student.key in texts], texts)
    )
    return into / "autograder.zip"


def results(grade: Grade, basis: Basis = "all") -> dict[str, Any]:
    """The content of a student's results.json. Raises ClassError."""
    assert grade.earned is not None
    lines = [f"{number(grade.earned)} points by a decision of the staff"] * (grade.override is not None)
    tests: list[dict[str, Any]] = []
    if grade.counting is not None and grade.points is not None:
        points = f"{number(grade.points.earned)} of {number(grade.points.possible)} points"
        lines.append(f"{points} (attempt {grade.counting.number})")
        for one, part in read_report(grade.counting.folder / REPORT).parts:
            title = one.title_of(part)
            tests += [_test(f"{title}: {group.title}", group.points, _wrong(group.cases)) for group in part.groups]
            speed = part.speed.cases if basis == "all" else ()
            tests += [_test(f"{title}: speed, {case.name}", case.points, case.message) for case in speed]
    return {
        "score": round(grade.earned, 4),
        "output": presentable("\n".join(lines)),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        **({"tests": tests} if tests else {}),
    }


def _test(name: str, points: Points, output: str) -> dict[str, Any]:
    return {
        "name": presentable(name),
        "score": round(points.earned, 4),
        "max_score": round(points.possible, 4),
        "status": "passed" if points.earned >= points.possible - 1e-9 else "failed",
        "output": presentable(output),
    }


def _wrong(cases: Iterable[CaseResult]) -> str:
    """The first wrong cases, one for each message, each with the sentence that explains it: what the mistake is consistent
    with, or what to do about an error.
    """
    wrong = [one for one in cases if one.outcome != "passed" and one.outcome not in UNDECIDED]
    first: dict[str, CaseResult] = {}
    for one in wrong:
        first.setdefault(one.message, one)
    lines = []
    for one in [*first.values()][:MAX_CASES]:
        cause = "".join(f"\n  {words[:MAX_WORDS]}" for words in one.diagnosis[:1])
        lines.append(f"{one.fault_of_file or one.title}: {one.message[:MAX_WORDS]}{cause}")
    if len(wrong) > MAX_CASES and not wrong[0].of_file:
        lines.append(f"and {len(wrong) - MAX_CASES} more cases")
    return "\n".join(lines)


def _autograder(folder: RunFolder, grades: Sequence[Grade], texts: dict[str, str]) -> bytes:
    """The zip that Gradescope runs, with the results of these grades."""
    wanted, known = file_names(folder.run())
    digests: dict[str, str] = {}  # that the autograder computes of submitted files, by hand-in
    alike: dict[tuple[str, str], list[Grade]] = defaultdict(list)  # by digest and results
    for grade in grades:
        handin = grade.student.handin
        try:
            digests[handin] = digests.get(handin) or lookup.content_hash(folder.handins / handin, wanted, known)
        except SubmissionError as error:
            raise ClassError(f"{shown(grade.student)}: {error}") from None
        alike[digests[handin], texts[grade.student.key]].append(grade)
    handins: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (digest, _), same in alike.items():
        people = {
            f"{kind}:{lookup.folded(value)}"
            for one in same
            for named, value in (*one.student.ids.items(), ("name", one.student.name))
            if value and (kind := "submission" if named == "gradescope" else named) in lookup.KINDS
        }
        # Results of an override are for its student alone; else anyone with these files may have them, if no others are known.
        is_anyones = sum(one == digest for one, _ in alike) == 1 and all(one.override is None for one in same)
        found = {"results": f"{same[0].student.key}.json", "people": sorted(people), "anyone": is_anyones}
        handins[digest].append(found)
    index = {
        "exported": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "wanted": wanted,
        "known": known,
        "handins": handins,
    }
    files = {
        "setup.sh": SETUP,
        "run_autograder": RUN_AUTOGRADER,
        "lookup.py": Path(lookup.__file__).read_text(encoding="utf-8"),
        "grader/__init__.py": "",
        "grader/submission.py": Path(grader.submission.__file__).read_text(encoding="utf-8"),
        "grader/messages.py": MESSAGES,
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
