"""Parses a submission's Python files and resolves their names, through imports, aliases and files of the submission, to dotted names
such as `torch.nn.functional.relu`.

The files are parsed from the bytes that Python imports, and never run. `liveness.py` finds the running parts, `policy.py` the
forbidden ones.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

MAX_MEANINGS = 50  # of a name; assignments multiply meanings
MAX_LENGTH = 500  # characters of a meaning
OWN_OBJECTS = {"self", "cls", "ctx"}  # their attributes are the student's
COMPARED = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not}
TYPE_CHECKING = {"typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"}  # false when a file is imported


class Entangled(Exception):
    """A name has more meanings than are followed."""


def imported_from(file: str, sources: Mapping[str, str | bytes]) -> list[Module]:
    """A file and all files of the submission that it imports, directly or not. Raises RecursionError, Entangled."""
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
        module.link(own, list(modules.values()))
    return list(modules.values())


Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [one for one in every if one]


def called(node: ast.expr) -> ast.expr:
    """The called function of a call; any other expression itself."""
    return node.func if isinstance(node, ast.Call) else node


def given(node: ast.expr) -> list[ast.expr]:
    """The arguments of a call; none of any other expression."""
    return [*node.args, *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []


def own_names(function: Function, outer: frozenset[str]) -> frozenset[str]:
    """The local names in a function's body: its parameters, the names it assigns, and `outer`, those of functions around it.

    Targets of comprehensions are local to the comprehension and not counted.
    """
    own, foreign = {one.arg for one in parameters(function.args)}, set[str]()
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


def triton_kernels(sources: Mapping[str, str | bytes]) -> frozenset[str]:
    """Names of the functions that a submission's Python files, by path, pass to triton.jit. Triton names kernels by them.

    A file that cannot be parsed or followed defines none.
    """
    found = set[str]()
    for file, source in sources.items():
        with contextlib.suppress(RecursionError, Entangled):
            module = Module(file, source)
            for node in module.nodes:
                match node:
                    case ast.FunctionDef(name=name, decorator_list=decorators):
                        found |= {name for one in decorators if is_kernel(module, one)}
                    case ast.Call(args=[ast.Name(id=name), *_], func=function) if is_kernel(module, function):
                        found.add(name)
    return frozenset(found)


class Module:
    """A parsed file and the meanings of its names. A file that is not Python has an empty body; the worker reports the error.

    Raises RecursionError, Entangled.

    Attributes:
        body: statements, without those below `if __name__ == "__main__":`. nodes: all nodes in them.
        parts: parts of the file's path, by which other files import it. imported: every part of the names of imported modules.
        mentioned: names anywhere in the file.
        postponed: whether annotations are not evaluated.
        followed: ids of nodes that may stand for a module, because their meaning is followed further.
        calls: every call, by the id of the expression that is called.
    """

    def __init__(self, file: str, source: str | bytes) -> None:
        self.file = file
        self.parts = frozenset(PurePosixPath(file).with_suffix("").parts)
        try:
            body = parsed(source).body
        except (SyntaxError, ValueError):
            body = []
        except MemoryError:
            raise RecursionError from None  # the parser's stack is full, or memory is
        nodes = [node for statement in body for node in ast.walk(statement)]
        self.mentioned = {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Store)}
        renamed = any(map(_renames, nodes))
        if not renamed and any(map(_is_main_guard, body)):
            body = [one for node in body for one in (node.orelse if _is_main_guard(node) else [node])]  # type: ignore[attr-defined]
            nodes = [node for statement in body for node in ast.walk(statement)]
        self.body = body
        self.nodes = nodes
        self.imported: set[str] = set()
        self.followed: set[int] = set()
        self.calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        self.postponed = False
        self._stands_for: dict[str, set[str]] = {}
        self._stars: set[str] = set()
        self._own: dict[str, Module] = {}
        self._all: Sequence[Module] = (self,)
        self._methods: dict[str, set[str]] = {}  # by the submission's class
        self._instances: dict[str, set[str]] = {}  # by assignment target: the classes whose instances were assigned
        self._bound = Counter(name for node in self.nodes for name in binds(node))
        # The bindings by imports.
        self._aliases = Counter(name for node in self.nodes if isinstance(node, ast.alias) for name in binds(node))
        self._changed: set[str] = set()  # attributes that are set on some object or module
        self._constants: dict[str, object] = {} if renamed else {"__name__": PurePosixPath(file).stem}
        self._constants |= dict(_constants(body))
        self._definitions = {one.name: one for one in body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
        for node in nodes:
            self._note(node)
        # A class's members are reached through the class, not by their own names.
        members = {id(one) for node in nodes if isinstance(node, ast.ClassDef) for one in node.body}
        # The assignments that give a name a value.
        self._named = [
            (target.id, value)
            for node in nodes
            if id(node) not in members
            for target, value in _assigned(node)
            if isinstance(target, ast.Name)
        ]
        self.followed.update(id(value) for _, value in self._named)
        self._follow()

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                self.imported |= self.parts_imported(node)
                for alias in names:
                    first = alias.name.split(".")[0]
                    self._means(alias.asname or first, alias.name if alias.asname else first)
            case ast.ImportFrom(module=module, names=names):
                self.imported |= self.parts_imported(node)
                self.postponed |= module == "__future__" and any(alias.name == "annotations" for alias in names)
                for alias in names:
                    if alias.name == "*":
                        self._stars.add((module or "").split(".")[-1])
                    else:
                        self._means(alias.asname or alias.name, f"{module}.{alias.name}" if module else alias.name)
            case ast.Attribute(value=value, attr=name, ctx=context):
                self.followed.add(id(value))
                if not isinstance(context, ast.Load):
                    self._changed.add(name)
            case ast.Call(func=ast.Name(id=name), args=arguments):
                if name in ("setattr", "delattr"):
                    self._changed |= {str(one.value) for one in arguments[1:2] if isinstance(one, ast.Constant)}
                if name in ("getattr", "hasattr"):
                    self.followed |= {id(value) for value in arguments[:1]}
            case ast.ClassDef(name=name, body=body):
                self._methods[name] = {one.name for one in body if isinstance(one, ast.FunctionDef)}
        for target, value in _assigned(node):
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                self._instances.setdefault(ast.unparse(target), set()).add(value.func.id)

    def _follow(self) -> None:
        """Resolve aliases, and aliases of aliases."""
        for _ in range(3):
            for name, value in self._named:
                for meant in self.resolve(value):
                    if not meant.startswith("."):
                        self._means(name, meant)

    @staticmethod
    def parts_imported(node: ast.Import | ast.ImportFrom) -> set[str]:
        """Every part of the names of the modules that an import may load."""
        parts = {part for alias in node.names for part in alias.name.split(".")}
        return parts | set((node.module or "").split(".")) if isinstance(node, ast.ImportFrom) else parts

    def _means(self, name: str, meant: str) -> None:
        meanings = self._stands_for.setdefault(name, set())
        meanings.add(meant)
        if len(meanings) > MAX_MEANINGS or len(meant) > MAX_LENGTH:
            raise Entangled

    def link(self, own: Mapping[str, Module], modules: Sequence[Module]) -> None:
        """Resolve names from the submission's other modules. `own`: all modules by the names of their files."""
        self._all = modules
        self._own = {name: module for name, module in own.items() if module is not self}
        for star in self._stars & set(self._own):
            for name, meanings in self._own[star]._stands_for.items():
                for meant in meanings:
                    self._means(name, meant)
        self._follow()

    def resolve(self, node: ast.expr) -> set[str]:
        """Dotted names that an expression may stand for, as `torch.nn.functional.relu`; `.relu` is an attribute of an unknown object."""
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
        """The meanings of attribute `name` of the dotted name `base`."""
        module = None if base.startswith(("torch", "triton")) else self._own.get(base.split(".")[-1])
        if module is not None and name in module._stands_for:
            return module._stands_for[name]
        if base.startswith("."):
            return {f".{name}"}
        return {f"{base}.{name}" if base else name}

    # Names with one meaning
    # ---------------------------------------------------------------------------------------------------------------------

    def _is_fixed(self, name: str) -> bool:
        """Whether a name of the module is bound in one place, and no module sets an attribute of that name."""
        if name != "__name__" and (self._bound[name] != 1 or hasattr(builtins, name) or self._stars):
            return False
        return not any(name in module._changed for module in self._all)

    def is_builtin(self, name: str) -> bool:
        """Whether a name is a builtin that the module does not bind."""
        return hasattr(builtins, name) and not self._bound[name] and not self._stars

    def library(self, node: ast.expr) -> set[str]:
        """As `resolve`, but only for expressions that certainly stand for a library's object; empty for others."""
        root, names = node, set[str]()
        while isinstance(root, ast.Attribute):
            names.add(root.attr)
            root = root.value
        own = {part for module in self._all for part in module.parts}
        if not isinstance(root, ast.Name) or self._bound[root.id] != self._aliases[root.id] or self._stars:
            return set()
        meant = self.resolve(node)
        if (
            not all(names.isdisjoint(module._changed) for module in self._all)
            or {one.split(".")[0] for one in meant} & own
        ):
            return set()
        return meant

    def definition(self, node: ast.expr) -> ast.FunctionDef | ast.ClassDef | None:
        """The function or class of the module that a name stands for, if that is certain."""
        return self._definitions.get(node.id) if isinstance(node, ast.Name) and self._is_fixed(node.id) else None

    def made_by(self, node: ast.expr) -> set[str]:
        """The functions that have made whatever a name stands for, as `torch.library.Library`: they were called, or decorate
        it. Empty if the name may stand for anything else.
        """
        if not isinstance(node, ast.Name):
            return set()
        makers = [
            called(value) if isinstance(value, ast.Call) else None for name, value in self._named if name == node.id
        ]
        definition = self._definitions.get(node.id)
        if definition is not None:
            makers.append(called(definition.decorator_list[0]) if definition.decorator_list else None)
        names = [self.resolve(one) if one is not None else set[str]() for one in makers]
        return set().union(*names) if all(names) and self._bound[node.id] == len(makers) else set()

    def defines(self, name: str) -> bool:
        """Whether the submission's modules bind a name."""
        return any(module._bound[name] for module in self._all)

    def constant(self, node: ast.expr) -> list[object]:
        """A list with the value of a constant expression; empty if the expression is not known to be constant."""
        if isinstance(node, ast.Constant):
            return [node.value]
        known = isinstance(node, ast.Name) and node.id in self._constants and self._is_fixed(node.id)
        return [self._constants[node.id]] if known else []  # type: ignore[attr-defined]

    def truth(self, node: ast.expr) -> bool | None:
        """True if a condition always holds, False if it never does, None if neither is known."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = self.truth(operand)
                return None if truth is None else not truth
            case ast.BoolOp(op=op, values=values):
                decides, found = isinstance(op, ast.Or), [self.truth(one) for one in values]
                return decides if decides in found else None if None in found else not decides
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
                sides = [*self.constant(left), *self.constant(right)]
                return bool(COMPARED[type(op)](*sides)) if len(sides) == 2 else None
            case _:
                if value := self.constant(node):
                    return bool(value[0])
                return False if self.library(node) & TYPE_CHECKING else None

    def is_own_method(self, node: ast.AST) -> bool:
        """Whether an attribute is a method that a class of the submission defines, accessed on the class or on an instance."""
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id=name)), attr=method):
                classes = {name}
            case ast.Attribute(value=value, attr=method):
                text = ast.unparse(value)
                classes = {text, *self._instances.get(text, set())}
            case _:
                return False
        return any(method in self._methods.get(one, set()) for one in classes)


@functools.lru_cache(maxsize=16)
def parsed(source: str | bytes) -> ast.Module:
    """The tree of a file, which nobody changes: its readers share it."""
    return ast.parse(source)


def _assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value."""
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
    meant = module.resolve(called(decorator))
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
    """Whether a node binds `__name__`."""
    match node:
        case ast.Name(id="__name__", ctx=ast.Store()) | ast.Attribute(attr="__name__", ctx=ast.Store()):
            return True
        case ast.alias(asname="__name__") | ast.FunctionDef(name="__name__") | ast.ClassDef(name="__name__"):
            return True
        case _:
            return False


def binds(node: ast.AST) -> Iterator[str]:
    """Names that a node binds, in any scope."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.split(".")[0]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _ if type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):  # since Python 3.12
            yield node.name  # type: ignore[attr-defined]


def _constants(body: list[ast.stmt]) -> Iterator[tuple[str, object]]:
    """The names that a module's own statements assign a constant, with the constants."""
    for target, value in (pair for statement in body for pair in _assigned(statement)):
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            yield target.id, value.value
