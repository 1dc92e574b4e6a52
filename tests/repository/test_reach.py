"""Tests use what the modules offer: no name of somebody else's that begins with an underscore, no object without its `__init__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

TESTS = ROOT / "tests"
DOCUMENTED = {"_exit", "_getframe", "_asdict", "_replace"}  # Python's documentation has these
# Names of libraries that the worker calls or mends itself, and the ends of ours that have no other way to be tried.
ALLOWED = {
    "repository/test_patterns.py": {"_constants", "_parser"},
    "test_code_of.py": {"_translate"},
    "worker/test_run.py": {"_copy_each", "_foreach_copy_"},
    "worker/test_run_late.py": {"_earlier"},
    "worker/test_triton_cpu_libdevice.py": {"_create_extern_elementwise"},
    "worker/test_triton_cpu_patches.py": {"_implicit_cvt"},
}
REPLACING = ("setattr", "delattr", "patch", "object")  # of pytest's monkeypatch and of unittest.mock


def files() -> list[str]:
    """All Python of tests/ but the submissions."""
    paths = (path.relative_to(TESTS) for path in TESTS.rglob("*.py"))
    return sorted(path.as_posix() for path in paths if path.parts[0] != "corpora" or len(path.parts) <= 3)


def is_private(name: object) -> bool:
    """Also for a dotted name."""
    parts = name.split(".") if isinstance(name, str) else []
    return any(one.startswith("_") and not one.startswith("__") and one != "_" for one in parts)


def reaches(parsed: ast.Module) -> Iterator[str]:
    """The private names of others that a file uses. Its own are those of `self` and `cls`, unless a class inherits them from elsewhere."""
    imported = {
        one.asname or one.name for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom) for one in node.names
    }
    for node in ast.walk(parsed):
        if isinstance(node, ast.ImportFrom):
            yield from (one.name for one in node.names if is_private(f"{node.module}.{one.name}"))
        elif isinstance(node, ast.Attribute):
            owned = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr == "__new__" or (is_private(node.attr) and not owned):
                yield node.attr
        elif isinstance(node, ast.Call) and _name(node.func) in ("getattr", "hasattr", *REPLACING):
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and is_private(one.value))
        elif isinstance(node, ast.ClassDef) and any(_name(base) in imported for base in node.bases):
            yield from _inherited(node)


def _name(node: ast.expr) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _inherited(made: ast.ClassDef) -> Iterator[str]:
    """What a class takes from `self` and neither sets nor defines."""
    used = [node for node in ast.walk(made) if isinstance(node, ast.Attribute) and _name(node.value) == "self"]
    own = {node.attr for node in used if isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in made.body if isinstance(node, ast.FunctionDef)}
    yield from (node.attr for node in used if is_private(node.attr) and node.attr not in own)


def tree(file: str) -> ast.Module:
    return ast.parse((TESTS / file).read_text(encoding="utf-8"))


def test_no_test_reaches_for_what_is_private() -> None:
    found = {file: set(reaches(tree(file))) - DOCUMENTED for file in files()}
    assert {file: names for file, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "from grader.cli import _under",
        "from grader._cli import under",
        "pool._workers[0]",
        "self.contender._is_blank(4)",
        "monkeypatch.setattr(pool, '_start', slowly)",
        "monkeypatch.setattr('grader.worker._timing.deliver', None)",
        "patch.object(Admission, '_reason', reason)",
        "getattr(pool, '_workers')",
        "Contender.__new__(Contender)",
        "from grader.judge.crew import Crew\nclass Lasting(Crew):\n    def reference(self): return self._run",
    ],
)
def test_a_reach_is_seen(source: str) -> None:
    assert list(reaches(ast.parse(source)))


@pytest.mark.parametrize(
    "source", ["self._x = 1", "class A:\n    def f(self): return self._x", "x.__class__", "for _ in x: ..."]
)
def test_what_is_ones_own_is_none(source: str) -> None:
    assert not list(reaches(ast.parse(source)))
