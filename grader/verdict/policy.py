"""Whose kernel it was: what a submission's source says, and what PyTorch's own operators did while it ran.

A submission may use PyTorch for plumbing (memory, views, copies) and for what its assignment's policy names beside that; the work is
its kernels'. The source is read as a syntax tree, not as text: aliases are followed, and whatever would hide a name from
a reader (`exec`, a computed `getattr`, an odd import) is refused as such. What nobody calls is not looked at: a comparison with PyTorch
under `if __name__ == "__main__":` or in a function of one's own for testing is good practice. The run is watched by the worker, which names
every ATen operator that came from the student's code; `foreign_operators` picks those that are not allowed. A submission that
tampers with its own process can hide from the second, and has to use what the first refuses to do so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

# ATen operators, without their overload, that make, copy, compare, or look at tensors in another way: nobody's kernel is made of these.
PLUMBING = frozenset(
    re.findall(
        r"\w+",
        """
        empty empty_like empty_strided new_empty new_empty_strided new_zeros new_full new_ones zeros zeros_like ones
        ones_like full full_like fill fill_ zero_ copy_ clone _to_copy to contiguous lift_fresh detach detach_ alias view
        _unsafe_view view_as reshape _reshape_alias as_strided expand permute transpose t squeeze unsqueeze flatten
        unflatten select slice narrow split split_with_sizes chunk unbind diagonal cat stack constant_pad_nd pad
        eq ne lt le gt ge any all isnan isinf isfinite logical_and logical_or logical_not
    is_same_size sym_size sym_stride sym_numel is_contiguous _local_scalar_dense item equal is_nonzero record_stream
        set_ resize_ arange scalar_tensor
        """,
    )
)
HIDING = {
    "exec": "runs code from a string",
    "eval": "runs code from a string",
    "compile": "runs code from a string",
    "__import__": "imports by a computed name",
    "sys.modules": "reaches into the modules of the process",
    "sys._getframe": "reaches into its caller",
    "sys.settrace": "reaches into its caller",
    "sys.setprofile": "reaches into its caller",
    "torch.utils._python_dispatch*": "reaches into PyTorch's dispatcher",
    "torch.overrides*": "reaches into PyTorch's dispatcher",
    "torch._C*": "reaches into PyTorch's internals",
    "torch.ops*": "calls PyTorch's operators by their inner names",
}
INNARDS = {"__dict__", "__getattribute__", "__globals__", "__builtins__", "__subclasses__", "__code__", "__closure__"}
OWN_OBJECTS = {"self", "cls", "ctx"}  # whose attributes are the student's own


@dataclass(frozen=True)
class Finding:
    """A forbidden use: in which file of the submission, in which line, and what it is, as "uses torch.softmax"."""

    file: str
    line: int
    words: str


@dataclass(frozen=True)
class Operator:
    """An ATen operator that ran, without its overload, as `_softmax`; and the student's line that called it, or nothing."""

    name: str
    place: str = ""


def python_findings(
    sources: Mapping[str, str], file: str, entry: str, imports: Sequence[str], forbidden: Sequence[str]
) -> list[Finding]:
    """Forbidden uses in a Python file and what it imports of the submission, in the order of its lines, then of theirs.

    Args:
        sources: every Python file of the submission, by its path in it.
        file, entry: where the graded function is, and its name.
        imports: packages that may be imported; files of the submission always may.
        forbidden: dotted names, as `torch.nn.functional.*`; `.softmax` is a method of anything, `@` the operator.
    """
    try:
        return _python_findings(sources, file, entry, imports, forbidden)
    except RecursionError:
        return [Finding(file, 1, "nests expressions too deeply to be read")]


def _python_findings(
    sources: Mapping[str, str], file: str, entry: str, imports: Sequence[str], forbidden: Sequence[str]
) -> list[Finding]:
    modules = _imported_from(file, sources)
    own = {part for name in sources for part in PurePosixPath(name).with_suffix("").parts}
    rules = _Rules(frozenset(imports) | own, tuple(forbidden))
    wanted = {entry}
    units = [unit for module in modules for unit in module.units]
    live: list[_Unit] = []
    while fresh := [unit for unit in units if unit not in live and (unit.name is None or unit.name in wanted)]:
        live += fresh
        wanted |= {name for unit in fresh for name in unit.mentions}
    findings = [
        finding for module in modules for unit in module.units if unit in live for finding in rules.check(module, unit)
    ]
    return sorted(set(findings), key=lambda one: (one.file != file, one.file, one.line, one.words))


def _imported_from(file: str, sources: Mapping[str, str]) -> list[_Module]:
    """A file and all files of the submission that it imports, also by way of others."""
    modules: dict[str, _Module] = {}
    todo = [file]
    while todo:
        name = todo.pop()
        if name in modules or name not in sources:
            continue
        modules[name] = module = _Module(name, sources[name])
        todo += [other for other in sources if set(PurePosixPath(other).with_suffix("").parts) & module.imported]
    return list(modules.values())


def cuda_findings(sources: Mapping[str, str], forbidden: Sequence[str]) -> list[Finding]:
    """Forbidden uses in CUDA C++ files: `forbidden` are names and header prefixes, as `at::gelu` and `cublas`."""
    found = []
    for file, text in sorted(sources.items()):
        code = _without_comments(text)
        for name in forbidden:
            pattern = rf'(?<![\w:]){re.escape(name)}\b|#\s*include\s*[<"]{re.escape(name)}'
            for match in re.finditer(pattern, code):
                found.append(Finding(file, code.count("\n", 0, match.start()) + 1, f"uses {name}"))
    return sorted(set(found), key=lambda one: (one.file, one.line))


def foreign_operators(ran: Iterable[Operator], allowed: Sequence[str]) -> list[Operator]:
    """Those operators that are neither plumbing nor allowed by the assignment."""
    return [one for one in ran if one.name not in PLUMBING and one.name not in allowed]


@dataclass(frozen=True, eq=False)
class _Unit:
    """A piece of a module that is live or not as a whole: a top-level definition, or (without a name) any other statement."""

    name: str | None
    node: ast.stmt

    @property
    def mentions(self) -> set[str]:
        """Every name in it, as a variable or an attribute."""
        found = set()
        for node in ast.walk(self.node):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    found.add(name)
                case ast.Constant(value=str(text)):
                    found.add(text)
                case _:
                    pass
        return found


class _Module:
    """A parsed file, and what its names stand for. A file that cannot be parsed has no units: the worker will say why."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = []
        self.units = [
            _Unit(node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else None, node)
            for node in body
            if not _is_main_guard(node)
        ]
        self._stands_for: dict[str, str] = {}
        self.imported: set[str] = set()  # every part of every name of a module
        for node in (node for statement in body for node in ast.walk(statement)):
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        self.imported |= set(alias.name.split("."))
                        first = alias.name.split(".")[0]
                        self._stands_for[alias.asname or first] = alias.name if alias.asname else first
                case ast.ImportFrom(module=module, names=names, level=level):
                    self.imported |= {*(module or "").split("."), *(alias.name for alias in names)}
                    if level or module is None:
                        continue
                    self._stands_for |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
                case _:
                    pass
        for _ in range(3):  # aliases of aliases
            for node in (node for statement in body for node in ast.walk(statement)):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    meant = self.resolve(node.value)
                    for target in targets:
                        if isinstance(target, ast.Name) and meant is not None and not meant.startswith("."):
                            self._stands_for.setdefault(target.id, meant)

    def resolve(self, node: ast.expr) -> str | None:
        """The dotted name that an expression stands for, as `torch.nn.functional.softmax`; `.softmax` is one of something unknown."""
        match node:
            case ast.Name(id=name):
                return self._stands_for.get(name)
            case ast.Attribute(value=value, attr=name):
                pass
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
                pass
            case _:
                return None
        if isinstance(value, ast.Name) and value.id in OWN_OBJECTS:
            return None
        base = self.resolve(value)
        return f".{name}" if base is None or base.startswith(".") else f"{base}.{name}"


class _Rules:
    def __init__(self, imports: frozenset[str], forbidden: tuple[str, ...]) -> None:
        self._imports = imports
        self._forbidden = forbidden

    def check(self, module: _Module, unit: _Unit) -> Iterator[Finding]:
        for node, words in self._look(module, unit.node):
            yield Finding(module.file, getattr(node, "lineno", 1), words)

    def _look(self, module: _Module, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """Forbidden uses below a node; what Triton compiles is the kernel itself and not looked at."""
        if isinstance(node, ast.FunctionDef) and any(_is_kernel(module, one) for one in node.decorator_list):
            return
        match node:
            case ast.Import(names=names):
                for name in (alias.name for alias in names):
                    yield from self._import(node, name)
            case ast.ImportFrom(module=str(name), level=0, names=names):
                yield from self._import(node, name)
                for alias in names:
                    yield from self._name(node, f"{name}.{alias.name}")
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "@" in self._forbidden:
                yield node, "uses the operator @"
            case ast.Call(func=ast.Name(id="getattr"), args=[base, name, *_]) if not isinstance(name, ast.Constant):
                if not (module.resolve(base) or "").startswith("triton"):
                    yield node, "picks a function by a computed name (getattr)"
            case ast.Name(id=name) if module.resolve(node) is None:
                yield from self._name(node, name)
            case _:
                pass
        if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (meant := module.resolve(node)):
            yield from self._name(node, meant)
        if isinstance(node, ast.Attribute) and node.attr in INNARDS:
            yield node, f"reaches into the innards of an object ({node.attr})"
        for child in ast.iter_child_nodes(node):
            yield from self._look(module, child)

    def _import(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        if name.split(".")[0] not in self._imports:
            yield node, f"imports {name}, which this assignment does not allow"

    def _name(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        for pattern, words in HIDING.items():
            if fnmatchcase(name, pattern):
                yield node, f"{words} ({name})"
                return
        if any(fnmatchcase(name, pattern) for pattern in self._forbidden):
            yield node, f"uses {name.removeprefix('.') if not name.startswith('.') else 'the method ' + name}"


def kernel_definitions(file: str, text: str) -> set[str]:
    """Names of the functions in a Python file that are given to triton.jit, wherever they are defined; none that nobody can read."""
    try:
        return _kernel_definitions(file, text)
    except RecursionError:
        return set()


def _kernel_definitions(file: str, text: str) -> set[str]:
    module, found = _Module(file, text), set()
    for node in (node for unit in module.units for node in ast.walk(unit.node)):
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if any(_is_kernel(module, one) for one in decorators):
                    found.add(name)
            case ast.Call(args=[ast.Name(id=name), *_], func=function) if _is_kernel(module, function):
                found.add(name)
            case _:
                pass
    return found


def _is_main_guard(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    if not isinstance(node, ast.If):
        return False
    names = {one.id for one in ast.walk(node.test) if isinstance(one, ast.Name)}
    return names == {"__name__"}


def _is_kernel(module: _Module, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (module.resolve(called) or "") in ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit")


def _without_comments(text: str) -> str:
    """C++ with comments and strings blanked out, but for the names of headers; line numbers are kept."""

    def blank(match: re.Match[str]) -> str:
        return match.group() if match.group().startswith("#") else re.sub(r"[^\n]", " ", match.group())

    return re.sub(
        r'#\s*include\s*[<"][^\n>"]*[>"]|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, text, flags=re.DOTALL
    )
