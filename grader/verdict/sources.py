"""A submission's Python files as they are read: which of their pieces anybody needs, and what their names stand for.

The files are read as syntax trees, and never run. Names are followed through imports, aliases and files of the submission, to dotted
names such as `torch.nn.functional.softmax`. What is forbidden is another matter: `grader/verdict/policy.py`.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

# Decorators after which a definition still waits until somebody calls it by its name.
PATIENT = frozenset(
    """
    triton.jit triton.runtime.jit triton.runtime.jit.jit triton.autotune triton.heuristics torch.no_grad
    torch.enable_grad torch.inference_mode torch.compile torch.autograd.function.once_differentiable
    torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd functools.lru_cache
    functools.cache functools.wraps functools.cached_property contextlib.contextmanager dataclasses.dataclass
    typing.final typing.overload property classmethod staticmethod triton.testing.perf_report
    """.split()  # noqa: SIM905 (a list of strings is no easier to read)
)
MAX_MEANINGS = 50  # of a name: it is multiplied by those of others that are assigned to it
MAX_LENGTH = 500  # of what a name stands for
OWN_OBJECTS = {"self", "cls", "ctx"}  # whose attributes are the student's own


class Entangled(Exception):
    """Names are passed around so often that nobody can follow them."""


def imported_from(file: str, sources: Mapping[str, str]) -> list[Module]:
    """A file and all files of the submission that it imports, also by way of others. Raises RecursionError, Entangled."""
    modules: dict[str, Module] = {}
    todo = [file]
    while todo:
        name = todo.pop()
        if name in modules or name not in sources:
            continue
        modules[name] = module = Module(name, sources[name])
        todo += [other for other in sources if set(PurePosixPath(other).with_suffix("").parts) & module.imported]
    own = {PurePosixPath(name).stem: module for name, module in modules.items()}
    for module in modules.values():
        module.link(own)
    return list(modules.values())


def live_units(modules: Iterable[Module], entry: str) -> list[tuple[Module, Unit]]:
    """What happens when the modules are imported, and whatever is needed to call `entry`, in the modules' order."""
    units = [(module, unit) for module in modules for unit in module.units]
    named: dict[str, list[Unit]] = {}
    for _, unit in units:
        if unit.name is not None:
            named.setdefault(unit.name, []).append(unit)
    todo = [unit for _, unit in units if unit.name is None] + named.pop(entry, [])
    live = set(todo)
    while todo:
        for name in todo.pop().mentions & named.keys():
            fresh = named.pop(name)
            live.update(fresh)
            todo += fresh
    return [(module, unit) for module, unit in units if unit in live]


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def own_names(function: Function, outer: frozenset[str]) -> frozenset[str]:
    """Names that in all of a function's body are its own, or another function's around it, whatever Python means by them elsewhere.

    Its parameters and what it assigns; no targets of comprehensions, which are theirs alone.

    Args:
        outer: those of the functions around it.
    """
    arguments = function.args
    each = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    own, foreign = {one.arg for one in each if one}, set[str]()
    todo: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        match node := todo.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                foreign.update(names)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case _:
                todo += ast.iter_child_nodes(node)
    return frozenset((outer | own) - foreign)


def triton_kernels(sources: Mapping[str, str]) -> frozenset[str]:
    """Names of the functions that a submission's Python files (by their path) give to triton.jit, wherever they are defined.

    Triton calls kernels by them. Files that nobody can read define none.
    """
    found = set[str]()
    for file, text in sources.items():
        with contextlib.suppress(RecursionError, Entangled):
            found |= _kernel_definitions(file, text)
    return frozenset(found)


def _kernel_definitions(file: str, text: str) -> set[str]:
    module, found = Module(file, text), set()
    for node in (node for unit in module.units for node in ast.walk(unit.node)):
        match node:
            case ast.FunctionDef(name=name, decorator_list=decorators):
                if any(is_kernel(module, one) for one in decorators):
                    found.add(name)
            case ast.Call(args=[ast.Name(id=name), *_], func=function) if is_kernel(module, function):
                found.add(name)
            case _:
                pass
    return found


@dataclass(frozen=True, eq=False)
class Unit:
    """A piece of a module that is live or not as a whole: a top-level definition, or (without a name) any other statement.

    labels: its strings are labels, as those of a benchmark's lines, and name no function.
    """

    name: str | None
    node: ast.stmt
    labels: bool = False

    @property
    def mentions(self) -> set[str]:
        """Every name in it, as a variable or an attribute."""
        found = set()
        for node in ast.walk(self.node):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    found.add(name)
                case ast.Constant(value=str(text)) if not self.labels:
                    found.add(text)
                case _:
                    pass
        return found


class Module:
    """A parsed file, and what its names stand for. A file that is not Python has no units: the worker will say why.

    Raises RecursionError, Entangled.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError):
            body = []
        except MemoryError:
            raise RecursionError from None  # the parser's stack is full; or memory is, and who knows whether it will be again
        nodes = [node for statement in body for node in ast.walk(statement)]
        if not any(_renames(node) for node in nodes):
            body = [one for node in body for one in (node.orelse if _is_main_guard(node) else [node])]  # type: ignore[attr-defined]
        self._nodes = [node for statement in body for node in ast.walk(statement)]
        self._stands_for: dict[str, set[str]] = {}
        self._stars: set[str] = set()
        self._own: dict[str, Module] = {}
        self.imported: set[str] = set()  # every part of every name of a module
        self.followed: set[int] = set()  # nodes that may be a module, for somebody follows them
        self.called: set[int] = set()  # nodes that name what is called there
        self._methods: dict[str, set[str]] = {}  # by the submission's class
        self._instances: dict[str, set[str]] = {}  # classes, by what was assigned one of them
        for node in self._nodes:
            self._note(node)
        self._follow()
        self.units = [
            unit
            for node in body
            for unit in (
                [Unit(getattr(node, "name", None), node), *_decorating(node)]
                if _waits(self, node)
                else [Unit(None, node)]
            )
        ]

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    self.imported |= set(alias.name.split("."))
                    first = alias.name.split(".")[0]
                    self._means(alias.asname or first, alias.name if alias.asname else first)
            case ast.ImportFrom(module=module, names=names, level=level):
                self.imported |= {*(module or "").split("."), *(alias.name for alias in names)}
                for alias in names:
                    if alias.name == "*":
                        self._stars.add((module or "").split(".")[-1])
                    elif not level and module is not None:
                        self._means(alias.asname or alias.name, f"{module}.{alias.name}")
                    else:  # of the submission
                        self._means(alias.asname or alias.name, f"{module}.{alias.name}" if module else alias.name)
            case ast.Attribute(value=value):
                self.followed.add(id(value))
            case ast.Call(func=ast.Name(id=name) as called, args=arguments):
                self.called.add(id(called))
                if name in ("getattr", "hasattr"):
                    self.followed |= {id(value) for value in arguments[:1]}
            case ast.ClassDef(name=name, body=body):
                self._methods[name] = {one.name for one in body if isinstance(one, ast.FunctionDef)}
            case _:
                pass
        for target, value in _assigned(node):
            match value:
                case ast.Call(func=ast.Name(id=name)):
                    self._instances.setdefault(ast.unparse(target), set()).add(name)
                case _:
                    pass

    def _follow(self) -> None:
        """Aliases, and aliases of aliases."""
        members = {
            id(one) for node in self._nodes if isinstance(node, ast.ClassDef) for one in node.body
        }  # reached by another's name
        for _ in range(3):
            for node in self._nodes:
                for target, value in _assigned(node):
                    if not isinstance(target, ast.Name) or id(node) in members:
                        continue
                    self.followed.add(id(value))
                    for meant in self.resolve(value):
                        if not meant.startswith("."):
                            self._means(target.id, meant)

    def _means(self, name: str, meant: str) -> None:
        meanings = self._stands_for.setdefault(name, set())
        meanings.add(meant)
        if len(meanings) > MAX_MEANINGS or len(meant) > MAX_LENGTH:
            raise Entangled

    def link(self, own: Mapping[str, Module]) -> None:
        """Let names of the submission's other modules, by their files' names, stand for what those mean by them."""
        self._own = {name: module for name, module in own.items() if module is not self}
        for star in self._stars & set(self._own):
            for name, meanings in self._own[star]._stands_for.items():
                for meant in meanings:
                    self._means(name, meant)
        self._follow()

    def resolve(self, node: ast.expr) -> set[str]:
        """Dotted names that an expression may stand for, as `torch.nn.functional.softmax`; `.softmax` is one of something unknown."""
        match node:
            case ast.Name(id=name):
                meanings = [meant.rpartition(".") for meant in self._stands_for.get(name, set())]
                return {one for base, _, last in meanings for one in self._member(base, last)}
            case ast.Attribute(value=value, attr=name):
                pass
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name)), *_]):
                pass
            case _:
                return set()
        if isinstance(value, ast.Name) and value.id in OWN_OBJECTS:
            return set()
        return {one for base in self.resolve(value) or {"."} for one in self._member(base, name)}

    def _member(self, base: str, name: str) -> set[str]:
        """What `name` stands for in what `base` stands for."""
        module = None if base.startswith(("torch", "triton")) else self._own.get(base.split(".")[-1])
        if module is not None and name in module._stands_for:
            return module._stands_for[name]
        if base.startswith("."):
            return {f".{name}"}
        return {f"{base}.{name}" if base else name}

    def is_own_method(self, node: ast.AST) -> bool:
        """Whether an attribute is a method that a class of the submission defines, of that class or of what was made one of it."""
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=method):
                classes = {name}
            case ast.Attribute(value=value, attr=method):
                text = ast.unparse(value)
                classes = {text, *self._instances.get(text, set())}
            case _:
                return False
        return any(method in self._methods.get(one, set()) for one in classes)


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment, and what it is given."""
    match node:
        case ast.Assign(targets=targets, value=value):
            pairs = [(target, value) for target in targets]
        case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
            pairs = [(node.target, value)]
        case _:
            return []
    found = []
    for target, value in pairs:
        match target, value:
            case ((ast.Tuple(elts=left) | ast.List(elts=left)), (ast.Tuple(elts=right) | ast.List(elts=right))) if len(
                left
            ) == len(right) and not any(isinstance(one, ast.Starred) for one in [*left, *right]):
                found += list(zip(left, right, strict=True))
            case _:
                found.append((target, value))
    return found


def is_kernel(module: Module, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    meant = module.resolve(called)
    return bool(meant) and meant <= {"triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit"}


def _is_main_guard(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`"""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            sides = {type(one): getattr(one, "id", getattr(one, "value", None)) for one in (left, right)}
            return sides == {ast.Name: "__name__", ast.Constant: "__main__"}
        case _:
            return False


def _renames(node: ast.AST) -> bool:
    """Whether it gives `__name__` another value."""
    match node:
        case ast.Name(id="__name__", ctx=ast.Store()) | ast.Attribute(attr="__name__", ctx=ast.Store()):
            return True
        case ast.alias(asname="__name__") | ast.FunctionDef(name="__name__") | ast.ClassDef(name="__name__"):
            return True
        case _:
            return False


def _waits(module: Module, node: ast.stmt) -> bool:
    """Whether a definition does nothing until somebody calls it by its name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if name.startswith("__") and name.endswith("__"):
                return False  # Python calls those
            arguments = node.args
            each = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            early = [one.annotation for one in each if one] + [
                *arguments.defaults,
                *arguments.kw_defaults,
                node.returns,
            ]
        case ast.ClassDef():
            known = {"torch", "typing", "enum", "abc", "collections"}
            if node.keywords or any(
                not {one.split(".")[0] for one in module.resolve(base)} & known for base in node.bases
            ):
                return False  # a class of one's own may look at those that are made from it
            early = [*node.bases]
            for statement in node.body:
                match statement:
                    case ast.FunctionDef(name=name):
                        if name in ("__init_subclass__", "__set_name__", "__class_getitem__") or not _waits(
                            module, _renamed(statement)
                        ):
                            return False
                    case ast.AnnAssign(annotation=annotation, value=value):
                        early += [annotation, value]
                    case ast.Assign(value=value) | ast.Expr(value=value):
                        early.append(value)
                    case ast.Pass():
                        pass
                    case _:
                        return False
        case _:
            return False
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        meant = module.resolve(called) or {ast.unparse(called)}
        if not meant <= PATIENT:
            return False
    acting = (ast.Call, ast.Lambda, ast.NamedExpr, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
    return not any(isinstance(one, acting) for part in early if part is not None for one in ast.walk(part))


def _decorating(node: ast.stmt) -> list[Unit]:
    """What the decorators of a definition and of its methods are given: that is worked out even where nobody calls them."""
    definitions = [node, *(node.body if isinstance(node, ast.ClassDef) else [])]
    return [
        Unit(None, ast.copy_location(ast.Expr(given), given), labels=True)
        for definition in definitions
        for decorator in getattr(definition, "decorator_list", [])
        if isinstance(decorator, ast.Call)
        for given in [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
    ]


def _renamed(method: ast.FunctionDef) -> ast.FunctionDef:
    """The same under a plain name: a method with underscores is called by a class that somebody has to name first."""
    copied = ast.FunctionDef(**dict(ast.iter_fields(method)))
    copied.name = "method"
    return copied
