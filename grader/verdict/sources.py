"""Reads a submission's Python files as syntax trees: which modules they import, where they use what the assignment wants
its students to write, and which kernels they define.

The files are parsed from the bytes that Python imports, and never run. An import of a module that the assignment does not
allow is refused; a use is only a hint, because nobody can tell from the source whether a call runs the line. What a call
may do is decided by what ran in it (`grader/judge/ownership.py`).
"""

from __future__ import annotations

import ast
import functools
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

MAX_MEANINGS = 8  # A name keeps so many meanings; later assignments add none.
MAX_LENGTH = 200  # Dotted names with more characters are not followed.
OWN_OBJECTS = {"self", "cls", "ctx"}  # The student's classes define the attributes of these names.
JIT = {"triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit"}
# Modules of packages that may not be imported, which may be.
HARMLESS_MODULES = {"importlib.metadata"}
# Modules of PyTorch and Triton that run code which the watch for operators does not see, or change PyTorch. So may every
# module with an underscore before its name.
WAYS_AROUND = {
    *("torch.hub", "torch.multiprocessing", "torch.overrides", "torch.package", "torch.utils.cpp_extension"),
    *("torch._C", "torch._ops", "torch.utils._python_dispatch", "triton._C"),
}
WATCHED_PACKAGES = {"torch", "triton"}
TAKE_OUT = 'take it out, or put it below `if __name__ == "__main__":`'


@dataclass(frozen=True)
class ForbiddenUse:
    """A place in a submission's source. words: as "uses torch.relu". code: the line itself, shortened."""

    file: str
    line: int
    words: str
    code: str = ""


@functools.lru_cache(maxsize=16)
def parsed(source: str | bytes) -> ast.Module:
    """The tree of a file, which nobody changes: its readers share it."""
    return ast.parse(source)


class Import(NamedTuple):
    """An import of a module, with "" for the submission's own package, or of a `name` from it.

    parts: every part of the dotted names. is_late: whether the import stands in a function.
    """

    line: int
    module: str
    name: str
    parts: frozenset[str]
    is_late: bool


class PythonFile:
    """A parsed file and the meanings of its names. A file that cannot be parsed is empty; the worker reports the error.

    Attributes:
        kernels: the names of the functions that Triton compiles.
        methods: the names of the functions that classes of the file define.
        imports: in the order of the source.
    """

    def __init__(self, file: str, source: str | bytes) -> None:
        self.file = file
        try:
            tree = parsed(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Module([], [])
        self._meanings: dict[str, set[str]] = {}
        self._nodes = list(_walk(tree))
        for node in self._nodes:
            self._note(node)
        functions = [node for node in self._nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        compiled = [one for one in functions if any(map(self._is_jit, one.decorator_list))]
        self._in_kernels = {id(node) for one in compiled for node in ast.walk(ast.Module(one.body, []))}
        passed = [
            node.args[0] for node in self._nodes if isinstance(node, ast.Call) and node.args and self._is_jit(node.func)
        ]
        self.kernels = {one.name for one in compiled} | {one.id for one in passed if isinstance(one, ast.Name)}
        classes = [node for node in self._nodes if isinstance(node, ast.ClassDef)]
        self.methods = {one.name for each in classes for one in each.body if isinstance(one, ast.FunctionDef)}
        in_functions = {id(node) for one in functions for node in ast.walk(one)}
        self.imports = [one for node in self._nodes for one in _imports(node, id(node) in in_functions)]

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.split(".")[0]
                    self._means(alias.asname or first, alias.name if alias.asname else first)
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    self._means(alias.asname or alias.name, f"{module}.{alias.name}" if module else alias.name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
                for meant in self.meanings(value):
                    self._means(name, meant)

    def _means(self, name: str, meant: str) -> None:
        known = self._meanings.setdefault(name, set())
        if len(known) < MAX_MEANINGS and len(meant) <= MAX_LENGTH:
            known.add(meant)

    def meanings(self, node: ast.AST) -> set[str]:
        """The dotted names that an expression may stand for, as `torch.nn.functional.relu`; `.relu` is an attribute of an
        unknown object.
        """
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        known = self._meanings.get(node.id, set()) if isinstance(node, ast.Name) else set()
        if known:
            return {".".join([one, *reversed(names)]) for one in known}
        is_own = isinstance(node, ast.Name) and node.id in OWN_OBJECTS
        return {f".{names[0]}"} if names and not is_own else set()

    def _is_jit(self, node: ast.expr) -> bool:
        meant = self.meanings(node.func if isinstance(node, ast.Call) else node)
        return bool(meant) and meant <= JIT

    def uses(self, forbidden: Sequence[str], own: set[str]) -> Iterator[tuple[int, str]]:
        """Where the file uses a forbidden name, with words; not inside kernels. `own`: names of the submission's functions."""
        for node in self._nodes:
            if id(node) in self._in_kernels:
                continue
            match node:
                case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "@" in forbidden:
                    yield node.lineno, "uses the operator @"
                case ast.Name() | ast.Attribute():
                    for meant in self.meanings(node):
                        method = f".{meant.rpartition('.')[2]}"
                        of_torch = meant.startswith("torch.") and method in forbidden
                        if meant.startswith(".") and meant[1:] in own:
                            continue
                        if of_torch or any(fnmatchcase(meant, pattern) for pattern in forbidden):
                            yield node.lineno, f"uses the method {meant}" if meant[0] == "." else f"uses {meant}"


def _imports(node: ast.AST, is_late: bool) -> Iterator[Import]:
    match node:
        case ast.Import(names=names):
            for one in names:
                yield Import(node.lineno, one.name, "", frozenset(one.name.split(".")), is_late)
        case ast.ImportFrom(module=module, level=level, names=names):
            for one in names:
                parts = frozenset(f"{module or ''}.{one.name}".split("."))
                yield Import(node.lineno, "" if level else module or "", one.name, parts, is_late)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes in the order of the source but those that do not run when the file is imported and used."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, ast.If) and _is_false(node.test):
            todo += reversed(node.orelse)
        else:
            todo += reversed(list(ast.iter_child_nodes(node)))


def _is_false(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"` or `TYPE_CHECKING`, or one of these and others: false where a file is imported."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            sides = {type(one): getattr(one, "id", getattr(one, "value", None)) for one in (left, right)}
            return sides == {ast.Name: "__name__", ast.Constant: "__main__"}
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_is_false, values))
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case _:
            return False


def imported_from(file: str, sources: Mapping[str, str | bytes], at_once: bool = False) -> list[PythonFile]:
    """A file and all files of the submission that it imports, directly or not; `at_once`, when it is imported itself."""
    found: dict[str, PythonFile] = {}
    todo = [file]
    while todo:
        name = todo.pop()
        if name in found or name not in sources:
            continue
        found[name] = PythonFile(name, sources[name])
        imported = {part for one in found[name].imports if not (at_once and one.is_late) for part in one.parts}
        todo += [other for other in sources if set(PurePosixPath(other).with_suffix("").parts) & imported]
    return list(found.values())


def refused_imports(
    files: Sequence[PythonFile], sources: Mapping[str, str | bytes], allowed: Sequence[str]
) -> Iterator[ForbiddenUse]:
    """Imports of modules that exist and that the assignment does not allow. Python itself reports one that does not exist.

    Args:
        files: those that are imported, of `sources`, the submission's Python files by path.
        allowed: packages.
    """
    own = {part for name in sources for part in PurePosixPath(name).with_suffix("").parts}
    for file in files:
        for line, module, name, *_ in file.imports:
            package, full = module.split(".")[0], f"{module}.{name}" if name else module
            if not package or package in own:
                continue
            is_private = package in WATCHED_PACKAGES and "._" in module
            around = {module, full} & WAYS_AROUND or ({module} if is_private else set())
            is_allowed = package in allowed or HARMLESS_MODULES & {module, full}
            if around or (not is_allowed and not _is_nowhere(package)):
                told = min(around, default=module)
                yield ForbiddenUse(file.file, line, f"imports {told}, which this assignment does not allow: {TAKE_OUT}")


def _is_nowhere(package: str) -> bool:
    """Whether no module has this name: the student forgot to hand in a file, or misspelt its name."""
    return package not in sys.stdlib_module_names and all(one.name != package for one in pkgutil.iter_modules())


def uses_of(files: Sequence[PythonFile], forbidden: Sequence[str]) -> Iterator[ForbiddenUse]:
    """The places where files use what the assignment wants its students to write: hints, in the order of the lines.

    Args:
        forbidden: dotted names, as `torch.nn.functional.*`; `.relu` is a method of anything, `@` the operator.
    """
    own = {name for file in files for name in file.methods}
    for file in files:
        for line, words in dict.fromkeys(file.uses(forbidden, own)):
            yield ForbiddenUse(file.file, line, words)


def triton_kernels(sources: Mapping[str, str | bytes]) -> frozenset[str]:
    """Names of the functions that a submission's Python files, by path, pass to triton.jit. Triton names kernels by them."""
    return frozenset(name for file, source in sources.items() for name in PythonFile(file, source).kernels)


def names_in(tree: ast.AST) -> set[str]:
    """Every name that a file binds or uses, in any scope; "*" for an import of everything."""
    nodes = list(ast.walk(tree))
    found = {getattr(node, field, None) for node in nodes for field in ("id", "name", "asname", "arg", "rest")}
    found |= {name for node in nodes for name in (node.names if isinstance(node, ast.Global | ast.Nonlocal) else ())}
    return {one.split(".")[0] for one in found if isinstance(one, str)}
