"""The grader knows no assignment: what is specific to one lies in its own folder."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import grader
from grader.assignment import load_course
from grader.problem import load_problem
from tests.conftest import ROOT

PACKAGE = Path(grader.__file__).parent
SOURCES = {".py", ".cpp", ".h", ".ini", ".json", ".toml", ".md"}
FILES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in SOURCES and "course_data" not in path.parts)
ALLOWED = {"report/speed.py": "FlashAttention"}  # PyTorch calls one of its own kernels so


@functools.cache
def pattern() -> re.Pattern[str]:
    """What only this course has: its assignments, files and functions, and the words of these, also at a capital in a word."""
    names: set[str] = set()
    for one in load_course(ROOT):
        parts = {part for name in (one.name, one.spec.entry) for part in name.split("_")} - {"cuda", "triton", "flash"}
        names |= {one.name, one.name.replace("_", ""), one.spec.entry, one.spec.file, *parts}
    words, capitals = ("|".join(re.escape(name) for name in form) for form in (names, map(str.capitalize, names)))
    return re.compile(rf"(?<![A-Za-z])(?i:{words})|(?<=[a-z])(?:{capitals})")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_graders_code_names_no_assignment(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(ALLOWED.get(path.relative_to(PACKAGE).as_posix(), "\0"), "")
    assert pattern().findall(text) == []


@pytest.mark.parametrize(
    "text", ["gelu.cu", "_Z4geluPKfPfl", "torch.softmax", "class FlashAttention:", "softmax_suspects()"]
)
def test_a_name_of_the_course_is_found_wherever_it_stands(text: str) -> None:
    assert pattern().search(text)


def test_every_assignment_of_the_course_has_mistakes_of_its_own() -> None:
    for assignment in load_course(ROOT):
        problem, _ = load_problem(assignment)
        assert problem.mistakes is not None, assignment.name
