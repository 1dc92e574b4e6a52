"""The grader knows no assignment: what is specific to one lies in its own folder."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import grader
from grader.assignment import Assignment, load_course
from grader.problem import load_problem
from grader.protocol import Parameter
from tests.conftest import ROOT

PACKAGE = Path(grader.__file__).parent
SOURCES = {".py", ".cpp", ".h", ".ini", ".json", ".toml", ".md"}
# A place in grader/ that may have such a name, and why.
ALLOWED = {("report/speed.py", "FlashAttention"): "what PyTorch calls one of its own kernels"}


@functools.cache
def names_of(course: Path) -> set[str]:
    """What only this course has: its assignments, its files and functions, and the words that these are made of."""
    names: set[str] = set()
    for one in load_course(course):
        whole = {one.name, one.spec.entry, one.spec.file}
        parts = {part for name in (one.name, one.spec.entry) for part in name.split("_")}
        names |= whole | (parts - {"cuda", "triton", "flash"}) | {one.name.replace("_", "")}
    return names


@functools.cache
def course() -> tuple[Assignment, ...]:
    return tuple(load_course(ROOT))


def found_in(text: str, names: set[str]) -> list[str]:
    """The names in a text, also at a capital inside a word; `relu` has no `elu` in it."""
    words = "|".join(re.escape(name) for name in names)
    capitals = "|".join(re.escape(name.capitalize()) for name in names)
    return re.findall(rf"(?<![A-Za-z])(?i:{words})|(?<=[a-z])(?:{capitals})", text)


def is_declared(text: str, signature: tuple[Parameter, ...]) -> bool:
    """Whether a text has the parameters of an entry, one after the other, as C++ has them."""
    declared = [rf"{re.escape(one.type).replace(chr(92) + '*', r' ?[*]')} ?{one.name}" for one in signature]
    return re.search(r"\s*,\s*".join(declared).replace(r"\ ", r"\s+"), text) is not None


FILES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in SOURCES and "course_data" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_graders_code_names_no_assignment_no_file_and_no_signature_of_one(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for (place, word), _ in ALLOWED.items():
        text = text.replace(word, "") if path.relative_to(PACKAGE).as_posix() == place else text
    assert found_in(text, names_of(ROOT)) == []
    for one in course():
        assert not one.spec.signature or not is_declared(text, one.spec.signature)


@pytest.mark.parametrize(
    "text",
    [
        "gelu.cu still has an error",
        "_Z4geluPKfPfl",
        "torch.softmax",
        "class Attention:",
        "FlashAttention",
        "flash_attention",
        "triton_gelu",
        "def softmax_suspects()",
    ],
)
def test_a_name_of_the_course_is_found_wherever_it_stands(text: str) -> None:
    assert found_in(text, names_of(ROOT))


def test_a_name_inside_another_word_is_not_one() -> None:
    assert found_in("torch.relu", {"elu"}) == []
    assert found_in("torch.elu", {"elu"}) == ["elu"]


def test_a_signature_is_found_however_it_is_spaced() -> None:
    (cuda,) = [one.spec.signature for one in course() if one.spec.signature]
    assert is_declared("void f(const float *x, float* y,\n  int64_t n, cudaStream_t stream)", cuda)
    assert not is_declared("void f(const float* x, float* y, cudaStream_t stream)", cuda)


def test_every_assignment_of_the_course_has_mistakes_of_its_own() -> None:
    for assignment in course():
        problem, _ = load_problem(assignment)
        assert problem.mistakes is not None, assignment.name
