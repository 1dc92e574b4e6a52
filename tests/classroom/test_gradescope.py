"""Grades for Gradescope: results.json by the published rules, and what autograder.zip does in a container as Gradescope's."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import grader.submission
from grader.classroom import lookup
from grader.classroom.folder import Student
from grader.classroom.grades import Grades
from grader.classroom.gradescope import export, results
from tests.support.classes import MadeClass, ending, sample, softmax, with_part

GPU = sample("gpu")
WORSE = ending(GPU, "softmax", "lengths", "1x1", "failed", "y[0, 3] is 2, and 1 is right\x1b[31m")
CAUSE = "consistent with a maximum that is not subtracted"
TEXT, NUMBER, FORMAT = {"type": "string"}, {"type": "number"}, {"enum": ["text"]}
# What is used of Gradescope's page "Autograder Specifications"; nobody publishes it as a schema.
TEST = {"score": NUMBER, "max_score": NUMBER, "status": {"enum": ["passed", "failed"]}, "name": TEXT, "output": TEXT}
PUBLISHED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["score"],
    "properties": {
        "score": NUMBER,
        "output": TEXT,
        "output_format": FORMAT,
        "test_output_format": FORMAT,
        "test_name_format": FORMAT,
        "tests": {"type": "array", "items": {"type": "object", "additionalProperties": False, "properties": TEST}},
    },
}


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    return MadeClass(tmp_path / "RUN")


def exported(made: MadeClass) -> Path:
    return export(made.folder, list(Grades(made.folder)), "all", made.folder.path / "exports")


@dataclass
class Container:
    """Gradescope's folder /autograder, with a Python that has its standard library alone."""

    root: Path

    def submit(
        self, files: dict[str, str | bytes], *people: dict[str, object], number: int = 1
    ) -> tuple[int, str, dict[str, Any] | None]:
        """Run the autograder on these files of these people; return its exit code, what it printed, and results.json."""
        shutil.rmtree(self.root / "submission", ignore_errors=True)
        shutil.rmtree(self.root / "results", ignore_errors=True)
        (self.root / "submission").mkdir()
        (self.root / "results").mkdir()
        for name, content in files.items():
            path = self.root / "submission" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (self.root / "submission_metadata.json").write_text(json.dumps({"id": number, "users": list(people)}))
        ran = subprocess.run(
            [self.root / "run_autograder"],
            cwd=self.root,
            env={"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "AUTOGRADER_ROOT": str(self.root)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.stderr == ""
        found = self.root / "results" / "results.json"
        return ran.returncode, ran.stdout, json.loads(found.read_text()) if found.exists() else None


def container(autograder: Path, root: Path) -> Container:
    """What Gradescope makes of an autograder.zip."""
    source = root / "source"
    source.mkdir(parents=True)
    with zipfile.ZipFile(autograder) as archive:
        for entry in archive.infolist():
            (source / archive.extract(entry, source)).chmod(entry.external_attr >> 16)
    shutil.copy(source / "run_autograder", root)
    (root / "bin").mkdir()
    python = root / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    python.chmod(0o755)
    assert subprocess.run([python, "-c", "import pydantic"], capture_output=True).returncode != 0
    return Container(root)


def person(student: Student) -> dict[str, object]:
    return {"email": student.ids.get("email", ""), "name": student.name, "id": 5}


def test_results_are_as_gradescope_publishes_it(made: MadeClass) -> None:
    made.attempt(made.student("ada", files=softmax(1)), WORSE)
    made.decide(made.students[0], "points", points=99, reason="the case\x1b is wrong")
    made.decide(made.student("bob"), "points", points=5)
    exported(made)
    (found,) = (made.folder.path / "exports" / "results").glob("*.json")  # bob handed in nothing
    told = json.loads(found.read_text())
    Draft202012Validator(PUBLISHED).validate(told)
    assert told["score"] == 99
    assert "is wrong" not in told["output"]
    assert told["output"] == "99 points by a decision of the staff\n98 of 100 points (attempt 1)", (
        "the reason is the staff's"
    )
    wrong = [one for one in told["tests"] if one["status"] == "failed"]
    assert [(one["name"], one["score"], one["max_score"]) for one in wrong] == [
        ("Row softmax in Triton: Any number of rows and columns", 0, 2)
    ]
    assert wrong[0]["output"].startswith("1x1: y[0, 3] is 2, and 1 is right")
    assert sum(one["score"] for one in told["tests"]) == pytest.approx(98)
    assert sum(one["max_score"] for one in told["tests"]) == pytest.approx(100)


def test_a_wrong_case_has_its_cause(made: MadeClass) -> None:
    def with_cause(part: dict[str, Any]) -> None:
        for case in (one for group in part["groups"] for one in group["cases"]):
            case["diagnosis"] = (CAUSE,)

    made.attempt(made.student("ada", files=softmax(1)), with_part(WORSE, "softmax", with_cause))
    (grade,) = Grades(made.folder)
    outputs = {one["status"]: one["output"] for one in results(grade)["tests"] if "Row softmax" in one["name"]}
    assert outputs["failed"].endswith(f"\n  {CAUSE}")
    assert CAUSE not in outputs["passed"]


def test_correctness_alone_has_no_speed(made: MadeClass) -> None:
    made.attempt(made.student("ada", files=softmax(1)), sample("cpu"))
    (grade,) = Grades(made.folder, "correctness")
    told = results(grade, "correctness")
    Draft202012Validator(PUBLISHED).validate(told)
    assert told["score"] == 50
    assert sum(one["max_score"] for one in told["tests"]) == pytest.approx(50)


def test_the_autograder_finds_each_students_results(made: MadeClass, tmp_path: Path) -> None:
    files = {"softmax.py": "x = 1\n", "lib/helper.py": "y = 2\n"}
    made.attempt(made.student("ada", files=files), WORSE)
    made.attempt(made.student("bob", files=softmax(2)), GPU)
    made.student("eve", files=softmax(3))
    at = container(exported(made), tmp_path / "autograder")
    code, words, told = at.submit({**files})
    assert (code, told and told["score"]) == (0, 98), words
    litter = {f"handin/{name}": text for name, text in files.items()}  # as an archive, or a browser, packs it
    litter |= {
        "__MACOSX/._softmax.py": "m",
        ".git/config": "g",
        "handin/__pycache__/a.pyc": "p",
        "handin/plot.png": "i",
    }
    assert at.submit({**litter})[2] == told
    code, words, told = at.submit({**softmax(2)})
    assert (code, told and told["score"]) == (0, 100), words


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (softmax(3), "not graded: the class has no grade for these files"),
        ({**softmax(1), "more.py": "z"}, "not graded: the class has no grade for these files"),
        ({"softmax.py": "VERSION = 1\r\n"}, "not graded: the class has no grade for these files"),
        ({}, "not graded: "),
        ({"a/softmax.py": "1", "b/softmax.py": "2"}, "not graded: the class has no grade for these files"),
    ],
)
def test_files_without_a_grade_get_a_sentence_and_no_score(
    made: MadeClass, tmp_path: Path, files: dict[str, str | bytes], words: str
) -> None:
    made.attempt(made.student("ada", files=softmax(1)), GPU)
    made.student("eve", files=softmax(3))
    at = container(exported(made), tmp_path / "autograder")
    assert at.submit({**softmax(1)})[0] == 0
    code, printed, told = at.submit(files)
    assert (code, told) == (1, None)
    assert printed.startswith(words)


def test_a_decision_is_for_its_student_alone_though_others_have_the_same_files(made: MadeClass, tmp_path: Path) -> None:
    ada = made.student("ada", files=softmax(1), name="Ada", ids={"email": "Ada@x.edu"})
    made.attempt(ada, GPU)
    bob = made.student("bob", handin=ada.handin, name="Bob B")
    twin = made.student("twin", handin=ada.handin, name="Bob B", ids={"gradescope": "77"})
    only = made.student("only", files=softmax(2), name="Only")
    made.attempt(only, GPU)
    made.decide(ada, "points", points=10)
    made.decide(twin, "points", points=20)
    made.decide(only, "points", points=30)
    at = container(exported(made), tmp_path / "autograder")

    def score(files: dict[str, str], *people: dict[str, object], number: int = 1) -> float | None:
        told = at.submit({**files}, *people, number=number)[2]
        return told and float(told["score"])

    assert score(softmax(1), {"email": "ada@X.edu", "name": "Bob B"}) == 10
    assert score(softmax(1), {"name": "somebody"}, {"name": "ADA"}) == 10
    assert score(softmax(1), {"id": 5, "name": "Bob B"}, number=77) == 20
    assert score(softmax(1), person(bob)) is None  # two of this name, and nothing else is known
    assert score(softmax(1), {"name": "a stranger"}) is None
    assert score(softmax(2), person(only)) == 30
    assert score(softmax(2), {"name": "a stranger"}) is None


def test_the_archive_is_as_gradescope_wants_it_and_old_results_go(made: MadeClass) -> None:
    ada = made.student("ada", files=softmax(1))
    number = made.attempt(ada, GPU)
    first = exported(made)
    with zipfile.ZipFile(first) as archive:
        assert {one.date_time for one in archive.infolist()} == {(2020, 1, 1, 0, 0, 0)}
        assert archive.testzip() is None
        modes = {one.filename: one.external_attr >> 16 & 0o777 for one in archive.infolist()}
    assert (modes["run_autograder"], modes["setup.sh"], modes["lookup.py"]) == (0o755, 0o755, 0o644)
    (first.parent / "results" / "notes.json").write_text("a person's")
    shutil.rmtree(made.folder.tasks(ada.handin) / f"attempt.{number}")
    exported(made)
    assert [one.name for one in (first.parent / "results").iterdir()] == ["notes.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"users": 3}', '{"users": [3]}', '{"users": null}'])
def test_metadata_that_is_none_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert lookup.owners(tmp_path / "m.json") == []
    assert lookup.owners(tmp_path / "none.json") == []


@pytest.mark.parametrize("module", [lookup, grader.submission])
def test_what_runs_at_gradescope_is_python_3_10(module: ModuleType) -> None:
    ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), feature_version=(3, 10))
