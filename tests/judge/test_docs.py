"""The documents are true: what they tell a reader to type and to write works as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from grader.assignment import load_course
from tests.conftest import ROOT, StartRun

BLOCK = re.compile(r"^(At the end of )?`([^`\n]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def course_with_a_fifth(tmp_path: Path) -> Path:
    """A copy of the course with the assignment that CONTRIBUTING.md adds, made from that page alone."""
    course = tmp_path / "course"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    files = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(files) == 7
    for more, name, content in files:
        path = course / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text(encoding="utf-8") + content if more else content, encoding="utf-8")
    return course


def test_contributing_adds_a_fifth_assignment(course_with_a_fifth: Path, start_run: StartRun) -> None:
    course = course_with_a_fifth
    assert [one.name for one in load_course(course)][-1] == "elu"
    arguments = ("--course", course, "--device", "cpu", "--assignment", "elu")
    ran = start_run(course / "reference", *arguments).finish()
    assert ran.code == 0, ran.errors
    assert ran.report is not None
    assert (ran.report.score.earned, ran.report.score.graded, ran.report.score.possible) == (3, 3, 7)
    assert ran.case("elu", "test_positive_values_pass_through").tries == "A positive x comes back unchanged."
    stub = start_run(course / "starter", *arguments).finish()
    assert stub.case("elu", "n-1").outcome == "not_implemented"
    assert stub.case("elu", "test_positive_values_pass_through").outcome == "not_implemented"


def test_contributing_check_fails_a_wrong_kernel(
    course_with_a_fifth: Path, start_run: StartRun, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    kernel = (
        (course_with_a_fifth / "reference" / "elu.py")
        .read_text()
        .replace("tl.where(x > 0, x,", "tl.where(x > 0, x + 1,")
    )
    (wrong / "elu.py").write_text(kernel)
    ran = start_run(wrong, "--course", course_with_a_fifth, "--device", "cpu", "--assignment", "elu").finish()
    check = ran.case("elu", "test_positive_values_pass_through")
    assert check.outcome == "failed"
    assert "a positive x was changed" in check.message
    assert ran.case("elu", "n-1025").outcome == "failed"


def test_the_readme_test_command_is_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (sh scripts/bootstrap\.sh && .+)$", readme, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("grader run reference/")
    assert commands[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_handout_names_its_file_and_its_points() -> None:
    for assignment in load_course(ROOT):
        handout = (assignment.folder / "README.md").read_text(encoding="utf-8")
        assert assignment.spec.file in handout
        assert f"{assignment.spec.entry}(" in handout
        for part in assignment.spec.parts:
            for group in part.groups:
                assert group.title in handout, f"{assignment.name}: the handout does not speak of {group.title!r}"
