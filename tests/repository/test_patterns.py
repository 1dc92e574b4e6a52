"""Every regular expression of the package takes time in proportion to a text's length, also on the text that suits it worst."""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import importlib
import operator
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

from grader.protocol import code_of
from grader.verdict.hints import HINTS, searched
from grader.verdict.policy import cuda_findings
from tests.conftest import ROOT

pytestmark = pytest.mark.grading

SIZES = (25, 100, 400, 1600, 6400, 25_600, 102_400)  # characters
NOTICED_S = 0.05  # of processor time: less is no time
SLOW_S = 0.5  # of processor time for a hint: the square of what a hint sees takes less, its cube seconds
GROWTH = 9.0  # of time for four times the text; 4 in proportion, 16 by its square
FUNCTIONS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
CHARACTERS = " a0\n(<[\"'`-/.:,#\\_e=*Aj‘\t"
# Parts of patterns that are made where they are used: the first two are tried below, the others look for names of files.
ELSEWHERE = ("row", " in named", "_in_memory", "path.parent")
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
SINGLES = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
LONG = 500  # a repeat of so many may be without an end
MODULES = sorted(path for folder in ("grader", "assignments") for path in (ROOT / folder).rglob("*.py"))
WITH_PATTERNS = [path for path in MODULES if re.search(rf"\bre\.({'|'.join(FUNCTIONS)})\b", path.read_text("utf-8"))]


class Names(dict[str, Any]):
    """The names of a module; a function's own names stand for a word."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, "word")


class Use(NamedTuple):
    """A pattern, and the functions that it is used by."""

    pattern: re.Pattern[Any]
    by: frozenset[str]


def module_of(path: Path) -> dict[str, Any]:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return vars(importlib.import_module(".".join(parts).removesuffix(".__init__"))) if parts[0] == "grader" else {}


def uses(path: Path) -> dict[str, Use]:
    """Every pattern of a module, and how it is used."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    given_to = {
        id(call): {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for call in ast.walk(node.value)
    }
    names = Names(module_of(path)) if path.name != "__main__.py" else Names()
    found: dict[str, Use] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_of_re(node.func)):
        words = ast.unparse(call.args[0])
        if any(one in words for one in ELSEWHERE):
            continue
        given = eval(compile(ast.Expression(call.args[0]), words, "eval"), dict(names), names)
        flags = [getattr(re, name) for name in re.findall(r"\bre\.([A-Z]+)\b", ast.unparse(call))]
        pattern = re.compile(given, functools.reduce(operator.or_, flags, re.NOFLAG))
        by = {call.func.attr} - {"compile"}  # type: ignore[attr-defined]
        for name in given_to.get(id(call), set()):
            use = re.compile(rf"\b{name}\.({'|'.join(FUNCTIONS)})\b")
            by |= set(use.findall(text)) or {one for other in MODULES for one in use.findall(other.read_text("utf-8"))}
        found[words] = Use(pattern, frozenset(by))
    return found


def is_of_re(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id="re"), attr=name):
            return name in FUNCTIONS
    return False


def characters_of(node: Any) -> list[str]:
    """Some characters that a part of one character matches."""
    alone = _compiler.compile(_parser.SubPattern(_parser.State(), [node]))  # type: ignore[no-untyped-call]
    literals = re.findall(r"LITERAL, (\d+)|\((\d+), \d+\)", str(node))  # also the first of a range
    candidates = [*CHARACTERS, *(chr(int(one or first)) for one, first in literals)]
    return [one for one in candidates if alone.fullmatch(one)] or [" "]


def sample(parts: Any) -> str:
    """A short text that these parts of a pattern match."""
    text = ""
    for kind, value in parts:
        if kind in SINGLES:
            text += characters_of((kind, value))[0]
        elif kind in REPEATS:
            text += sample(value[2]) * max(value[0], min(value[1], 1))
        elif kind is op.SUBPATTERN:
            text += sample(value[-1])
        elif kind is op.ATOMIC_GROUP:
            text += sample(value)
        elif kind is op.BRANCH:
            text += sample(value[1][0])
        elif kind is op.ASSERT and value[0] < 0:
            text += sample(value[1])
    return text


def repeats(parts: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """The long repeats of a pattern: a text that leads to each, and one that it repeats."""
    for at, (kind, value) in enumerate(parts):
        lead = before + sample(list(parts)[:at])
        if kind in REPEATS:
            *_, most, body = value
            if most >= LONG:
                singles = list(body)
                if len(singles) == 1 and singles[0][0] in SINGLES:
                    own = characters_of(singles[0])
                    yield from ((lead, one) for one in dict.fromkeys([*own[:5], *(c for c in own if c in lead)]))
                else:
                    yield lead, sample(body)
            yield from repeats(body, lead)
        elif kind is op.SUBPATTERN:
            yield from repeats(value[-1], lead)
        elif kind is op.ATOMIC_GROUP:
            yield from repeats(value, lead)
        elif kind is op.BRANCH:
            for branch in value[1]:
                yield from repeats(branch, lead)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            yield from repeats(value[1], lead)


def worst(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Texts, each as a beginning and what is repeated after it."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    parsed = _parser.parse(source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    found = list(repeats(parsed))
    texts = [("", one) for one in dict.fromkeys(lead for lead, _ in found)]
    texts += [text for lead, one in found for text in ((lead, one), ("", lead + one), ("", one), ("", f"{one}\n"))]
    return [one for one in dict.fromkeys(texts) if one[1]]


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def growth(work: Callable[[str], object], beginning: str, repeated: str) -> str:
    """How the time of work on a text grows faster than the text does; "" if it does not."""
    before = NOTICED_S / GROWTH
    for size in SIZES:
        text = (beginning + repeated * (size // len(repeated) + 1))[:size] + "\0"
        taken = seconds(lambda: work(text))  # noqa: B023
        for _ in range(3):  # a machine may be busy
            if taken > max(NOTICED_S, GROWTH * before):
                taken = min(taken, seconds(lambda: work(text)))  # noqa: B023
        if taken > max(NOTICED_S, GROWTH * before):
            return (
                f"{beginning!r} + {repeated!r} * {size // len(repeated)}: {taken:.2f} s, {before:.3f} s for a quarter"
            )
        before = taken
    return ""


def work_of(use: Use) -> Callable[[str], object]:
    """The use of a pattern on a text: at its beginning alone, or wherever it is found."""
    names = use.by if use.by and use.by <= {"match", "fullmatch"} else {"finditer"}

    def work(text: str) -> None:
        subject = text.encode() if isinstance(use.pattern.pattern, bytes) else text
        for name in names:
            found = getattr(use.pattern, name)(subject)
            if name == "finditer":
                collections.deque(found, maxlen=0)

    return work


@pytest.mark.parametrize("path", WITH_PATTERNS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_modules_patterns_take_time_in_proportion_to_the_text(path: Path) -> None:
    found = uses(path)
    assert [
        (words, told)
        for words, use in found.items()
        for text in worst(use.pattern)
        if (told := growth(work_of(use), *text))
    ] == []


def test_patterns_are_found() -> None:
    assert sum(len(uses(path)) for path in WITH_PATTERNS) > 100


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_found_in_time(name: str) -> None:
    """Patterns of hints may take time by the square of the text: they see little of it."""
    slow = []
    for pattern, is_place in zip(HINTS[name][:2], (False, True), strict=True):
        for beginning, repeated in worst(pattern):
            text = beginning + repeated * SIZES[-1]
            message, place = searched("" if is_place else text, text if is_place else "")
            taken = min(seconds(lambda: pattern.search(place or message)) for _ in range(3))  # noqa: B023
            if taken > SLOW_S:
                slow.append((beginning, repeated, taken))
    assert not slow


@pytest.mark.parametrize(
    "text", ["cublas", "cublasS", "cublas ", "at ::", "#define cublas ", "cublas::cublas;", "namespace cublas ", "##"]
)
def test_libraries_are_looked_for_in_time(text: str) -> None:
    work = partial(cuda_findings, file="f", forbidden=["cublas", "at::relu"])
    assert not growth(lambda code: work({"f": f"#include <cublas.h>\n{code}"}), "", text)


@pytest.mark.parametrize(
    "text",
    ["/*", '"\\', 'R"a(', "\\\n", "a\\\n", "#if 0\n", "#if 1\n#else\n", "#include <", "'", "%", "1'1", "/", "u8"],
)
def test_code_is_read_in_time(text: str) -> None:
    assert not growth(code_of, "", text)
