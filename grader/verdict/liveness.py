"""Finds the pieces of a submission's Python files that run when its function is called, by one walk from the imports and the call.

A piece runs as a whole or not at all: the statements of a file, the body of a function or of a class, an imported name, a plain
assignment. A piece waits until a running piece mentions its name. Code that gets hold of a function by other means makes the function
run at once: an unknown decorator, a metaclass, a base class that may call any method. Branches that a constant closes never run.

A library may mention a name too, as `print` calls the `write` of its file. So an unmentioned method of a running class is `unsure`:
`policy.py` leaves such a method to the operator watch at run time, and refuses only code that would blind that watch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grader.verdict.sources import Module, called, given, parameters

# Decorators after which a function or a class still waits for a call by its name.
PATIENT = frozenset(
    """
    triton.jit triton.runtime.jit triton.runtime.jit.jit triton.autotune triton.heuristics triton.testing.perf_report
    torch.no_grad torch.enable_grad torch.inference_mode torch.set_grad_enabled torch.autograd.no_grad torch.autograd.enable_grad
    torch.autograd.set_grad_enabled torch.autograd.inference_mode torch.compile torch.compiler.disable torch.jit.script
    torch.jit.ignore torch.jit.unused torch.autograd.function.once_differentiable torch.autocast torch.amp.autocast
    torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.autocast torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd
    torch.cuda.nvtx.range torch.profiler.record_function torch.autograd.profiler.record_function torch.vmap torch.func.vmap
    functools.lru_cache functools.cache functools.wraps functools.cached_property functools.total_ordering
    contextlib.contextmanager contextlib.asynccontextmanager dataclasses.dataclass abc.abstractmethod jaxtyping.jaxtyped
    typing.final typing.override typing.no_type_check typing_extensions.final typing_extensions.override
    """.split()  # noqa: SIM905 (a list of strings is no easier to read)
)
PATIENT_BUILTINS = {"property", "classmethod", "staticmethod"}
# Functions that call the backward methods of a torch.autograd.Function, besides autograd itself when gradients are asked for.
ASKING_FOR_GRADIENTS = frozenset(
    ["backward", "grad", "grad_and_value", "hessian", "hvp", "jacobian", "jacrev", "run_backward", "vhp", "vjp"]
)
BACKWARD = {"backward", "vjp"}
# Attributes of Function and Module that begin with one underscore: PyTorch calls a method of such a name, which
# overrides its own.
UNDERSCORED = frozenset(
    """
    _backward_cls _compiled_autograd_backward_state _compiled_autograd_key _get_compiled_autograd_symints _input_metadata
    _is_pure_view _materialize_non_diff_grads _raw_saved_tensors _register_hook _register_hook_dict _sequence_nr _set_sequence_nr
    _apply _call_impl _compiled_call_impl _get_backward_hooks _get_backward_pre_hooks _get_name _load_from_state_dict
    _maybe_warn_non_full_backward_hook _named_members _register_load_state_dict_pre_hook _register_state_dict_hook
    _replicate_for_data_parallel _save_to_state_dict _slow_forward _wrapped_call_impl
    """.split()  # noqa: SIM905 (as above)
)
FUNCTION = frozenset({"apply", "forward", "jvp", "setup_context", "vmap", *BACKWARD, *UNDERSCORED})
EVERY = frozenset({"*"})  # stands for every method
# The only methods that each of these base classes calls, once a class that is derived from it is used.
CALLED_BY = {
    "torch.autograd.Function": FUNCTION,
    "torch.autograd.function.Function": FUNCTION,
    "torch.nn.Module": frozenset({"forward", *UNDERSCORED}),
    "torch.nn.modules.module.Module": frozenset({"forward", *UNDERSCORED}),
    **dict.fromkeys(
        ("abc.ABC", "enum.Enum", "enum.IntEnum", "typing.Generic", "typing.NamedTuple", "typing.Protocol"),
        frozenset[str](),
    ),
}
# A class of torch.nn may call any method then; none of them calls one when a class is derived from it.
NN_CLASS = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*")
PLAIN_TYPES = {"dict", "float", "frozenset", "int", "list", "set", "str", "tuple"}  # nor does any of these
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ACTING = (ast.Call, ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(eq=False)
class ModulePiece:
    """A piece of a module.

    names: a mention of any of them makes the piece run, `.name` as an attribute; a piece without names runs with the piece around it.
    unsure: the piece is a method that a library might call without a mention.
    nodes: the topmost nodes of the piece. mentions: names in the piece. imports: every part of the names of imported modules.
    inner: pieces directly inside this piece.
    """

    names: frozenset[str] = frozenset()
    unsure: bool = False
    nodes: list[ast.AST] = field(default_factory=list)
    mentions: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    inner: list[ModulePiece] = field(default_factory=list)

    def add(self, names: Iterable[str], nodes: Iterable[ast.AST], unsure: bool = False) -> ModulePiece:
        self.inner.append(ModulePiece(frozenset(names), unsure, list(nodes)))
        return self.inner[-1]


@dataclass(frozen=True)
class Running:
    """The running part of a module: all nodes but those with an id in `dead`; those in `unsure` may run."""

    module: Module
    dead: set[int]
    unsure: set[int]


def running(modules: Sequence[Module], entry: str, gradients: bool) -> list[Running]:
    """The parts of modules that run when the first module, which may import the others, is imported and its `entry` is called.

    Args:
        gradients: whether gradients are asked for; otherwise the backward methods of autograd functions do not run.

    Raises:
        RecursionError: expressions are nested too deeply.
    """
    if not modules:
        return []
    imported = {part for module in modules for part in module.imported}
    walks = [_Walk(module, gradients, not imported.isdisjoint(module.parts)) for module in modules]
    live = _live(walks, entry)
    return [_running(walk, live) for walk in walks if walk.root in live]


def _live(walks: Sequence[_Walk], entry: str) -> set[ModulePiece]:
    live, mentioned = set[ModulePiece](), {entry}
    waiting: dict[str, list[ModulePiece]] = {}
    unimported, todo = list(walks[1:]), [walks[0].root]
    while todo:
        piece = todo.pop()
        if piece in live:
            continue
        live.add(piece)
        fresh = piece.mentions - mentioned
        mentioned |= fresh
        for name in fresh:
            todo += waiting.pop(name, [])
        for inner in piece.inner:
            if not inner.names or not inner.names.isdisjoint(mentioned):
                todo.append(inner)
            for name in inner.names:
                waiting.setdefault(name, []).append(inner)
        todo += [walk.root for walk in unimported if not piece.imports.isdisjoint(walk.module.parts)]
    return live


def _running(walk: _Walk, live: set[ModulePiece]) -> Running:
    dead, unsure, todo = set(walk.never), set[int](), [walk.root]
    while todo:
        for inner in todo.pop().inner:
            if inner in live:
                todo.append(inner)
            else:
                (unsure if inner.unsure else dead).update(map(id, inner.nodes))
    return Running(walk.module, dead, unsure)


class _Walk:
    """Splits a module into pieces.

    Attributes:
        root: the module's own statements.
        never: ids of nodes that no call makes run.
    """

    def __init__(self, module: Module, gradients: bool, imported: bool) -> None:
        self.module = module
        self.never: set[int] = set()
        self.root = ModulePiece()
        self._gradients = gradients
        self._imported = imported
        self._block(module.body, self.root, ast.Module)

    def _block(self, body: Sequence[ast.stmt], piece: ModulePiece, scope: type[ast.AST]) -> None:
        for number, statement in enumerate(body):
            self._visit(statement, piece, scope)
            if self._leaves(statement):
                self.never.update(map(id, body[number + 1 :]))
                return

    def _leaves(self, statement: ast.stmt) -> bool:
        """Whether a statement ends its block, so that later statements of the block never run."""
        match statement:
            case ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                return True
            case ast.If(test=test, body=body, orelse=orelse):
                truth = self.module.truth(test)
                branches = [body] * (truth is not False) + [orelse] * (truth is not True)
                return all(any(map(self._leaves, branch)) for branch in branches)
            case _:
                return False

    def _visit(self, node: ast.AST, piece: ModulePiece, scope: type[ast.AST], labels: bool = False) -> None:
        """Add a node to a piece, and the waiting parts of the node as inner pieces.

        Args:
            scope: the type of the nearest definition around the node.
            labels: strings in the node are labels, such as a benchmark's line names, and mention no function.
        """
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(node, piece, scope)
            case ast.ClassDef():
                return self._class(node, piece, scope)
            case ast.Import() | ast.ImportFrom():
                return self._import(node, piece, scope)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                labels = True
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._waits(name, value, scope):
                return self._visit(value, piece.add(self._reached(name, scope), [node]), scope)
            case ast.AnnAssign(annotation=annotation) if scope is ast.FunctionDef or self.module.postponed:
                self.never.add(id(annotation))
            case ast.Expr() if _is_docstring(node):
                return None
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                truth = self.module.truth(test)
                closed = [] if truth is None else node.orelse if truth else node.body
                self.never.update(map(id, closed if isinstance(closed, list) else [closed]))
            case ast.BoolOp(op=op, values=values):
                ends = [self.module.truth(one) is isinstance(op, ast.Or) for one in values]
                if True in ends:
                    self.never.update(map(id, values[ends.index(True) + 1 :]))
            case ast.AugAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Load() | ast.Del()):
                piece.mentions.add(name)
            case ast.Attribute(attr=name):
                piece.mentions.add(f".{name}")
            case ast.MatchClass(kwd_attrs=names):
                piece.mentions.update(f".{name}" for name in names)
            case ast.Constant(value=str(text)) if not labels:
                piece.mentions |= {text, f".{text}"}
        for _, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            if children and all(isinstance(one, ast.stmt) for one in children):
                if not self.never.issuperset(map(id, children)):
                    self._block(children, piece, scope)
            else:
                for child in children:
                    if isinstance(child, ast.AST) and id(child) not in self.never:
                        self._visit(child, piece, scope, labels)
        return None

    def _waits(self, name: str, value: ast.expr, scope: type[ast.AST]) -> bool:
        """Whether an assignment has no effect until the name is used."""
        return scope is not ast.FunctionDef and "__" not in name and self._is_inert(value)

    def _reached(self, name: str, scope: type[ast.AST]) -> set[str]:
        """The mentions of a definition: as an attribute too, if it stands in a class or in a module that another module imports."""
        is_attribute = scope is ast.ClassDef or (scope is ast.Module and self._imported)
        return {name, f".{name}"} if is_attribute else {name}

    def _import(self, node: ast.Import | ast.ImportFrom, piece: ModulePiece, scope: type[ast.AST]) -> None:
        """The import always runs; a name that a file's own statements import is a piece that waits for a mention."""
        piece.imports |= self.module.parts_imported(node)
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            inside = piece
            if scope is ast.Module and bound in self.module.mentioned:
                inside = piece.add(self._reached(bound, scope), [alias])
            inside.mentions |= {alias.name, f".{alias.name}"}

    def _function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        piece: ModulePiece,
        scope: type[ast.AST],
        callers: frozenset[str] | None = frozenset(),
    ) -> None:
        """Decorators, defaults and annotations run with the definition, the body as a piece.

        callers: names of methods that the class's bases call; None if they may call any.
        """
        names = self._reached(node.name, scope)
        if callers is None or not callers.isdisjoint({*EVERY, node.name}) or "__" in node.name:
            names = set()  # Python mangles names with two underscores, and calls some of them
        if callers and node.name in BACKWARD and not self._gradients:
            names = _names_of_backward(node.name)
        names = names if self._decorate(node, piece, scope) else set()
        inner = piece.add(names, node.body, unsure=scope is ast.ClassDef)
        inner.nodes += self._applied_by_name(node)
        for one in self._applied_by_name(node):
            self._visit(one, inner, scope)
        annotations = [one for one in [*(one.annotation for one in parameters(node.args)), node.returns] if one]
        if self.module.postponed:
            self.never.update(map(id, annotations))
            annotations = []
        for one in [*annotations, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self._visit(one, piece, scope)
        self._block(node.body, inner, ast.FunctionDef)

    def _class(self, node: ast.ClassDef, piece: ModulePiece, scope: type[ast.AST]) -> None:
        callers = _callers(self.module, node)
        waits = self._decorate(node, piece, scope) and callers is not None and "__" not in node.name
        waits = waits and not self.module.defines("__set_name__")
        for base in [*node.bases, *node.keywords]:
            self._visit(base, piece, scope)
        if waits and not any(self._acts(statement) for statement in node.body):
            piece = piece.add(self._reached(node.name, scope), node.body)
            piece.nodes += self._applied_by_name(node)
        for one in self._applied_by_name(node):
            self._visit(one, piece, scope)
        for statement in node.body:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._function(statement, piece, ast.ClassDef, callers)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute()) if (
                    callers and name in BACKWARD and not self._gradients
                ):  # as `backward = Other.backward`
                    self._visit(statement, piece.add(_names_of_backward(name), [statement]), ast.ClassDef)
                case _:
                    self._visit(statement, piece, ast.ClassDef)

    def _acts(self, statement: ast.stmt) -> bool:
        """Whether a statement of a class's body calls something, which may get hold of the class."""
        parts: list[ast.AST] = [statement]
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not all(map(self._is_patient, statement.decorator_list)):
                return True
            parts = [part for one in statement.decorator_list for part in given(one)]
            parts += [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        return any(isinstance(one, ACTING) for part in parts for one in ast.walk(part))

    # Decorators
    # ---------------------------------------------------------------------------------------------------------------------

    def _decorate(self, node: Definition, piece: ModulePiece, scope: type[ast.AST]) -> bool:
        """Add the running parts of a definition's decorators to a piece. Returns whether the decorated definition still waits."""
        waiting = self._applied_by_name(node)
        for decorator in node.decorator_list:
            if not self._is_patient(decorator) or self._is_own(decorator):
                self._visit(decorator, piece, scope)
            else:
                for one in given(decorator):
                    if one not in waiting:
                        self._visit(one, piece, scope, labels=True)
        return all(self._is_patient(one) for one in node.decorator_list)

    def _applied_by_name(self, node: Definition) -> list[ast.expr]:
        """A definition's patient library decorators and the plain names given to them: they matter only once the definition is called."""
        patient = [one for one in node.decorator_list if self._is_patient(one) and not self._is_own(one)]
        parts = [part for one in patient for part in given(one) if not isinstance(part, ast.Constant)]
        return [called(one) for one in patient] + [part for part in parts if self._is_inert(part)]

    def _is_own(self, decorator: ast.expr) -> bool:
        return self.module.definition(called(decorator)) is not None

    def _is_patient(self, decorator: ast.expr) -> bool:
        """Whether a definition with this decorator runs only when it is called by its name."""
        match decorator:
            case ast.Call(func=function, args=[first, *_]) if self.module.library(function) == {"functools.partial"}:
                return self._is_patient(first)
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name in PATIENT_BUILTINS:
                if self.module.is_builtin(name):
                    return True
        own = self.module.definition(called(decorator))
        if own is not None:
            return _only_wraps(self.module, own, is_factory=isinstance(decorator, ast.Call))
        meant = self.module.library(called(decorator))
        return bool(meant) and meant <= PATIENT

    def _is_inert(self, value: ast.expr | None) -> bool:
        """Whether evaluating an expression runs no code of the submission."""
        match value:
            case ast.Name() | ast.Constant():
                return True
            case ast.Attribute():
                return bool(self.module.library(value))
            case ast.Lambda(args=arguments):
                return not arguments.defaults and not any(arguments.kw_defaults)
            case ast.Call(func=function):
                patient = self._is_patient(function) and not self._is_own(function)
                return patient and all(self._is_inert(one) for one in [*given(value), *given(function)])
            case _:
                return False


def _callers(module: Module, node: ast.ClassDef, depth: int = 10) -> frozenset[str] | None:
    """Names of methods that the bases of a class call, or EVERY; None if they may act when the class is made."""
    if node.keywords or not depth:
        return None
    callers = frozenset[str]()
    for base in node.bases:
        own = module.definition(base)
        plain = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(base, ast.Name) and (base.id == "object" or base.id.endswith(("Error", "Exception"))):
            names = frozenset[str]() if module.is_builtin(base.id) else None
        elif isinstance(base, ast.Name) and base.id in PLAIN_TYPES and module.is_builtin(base.id):
            names = EVERY
        elif own is not None:
            seen = {getattr(one, "name", getattr(one, "id", "")) for one in ast.walk(own)}
            looks = own.decorator_list or seen & {"__init_subclass__", "__class_getitem__", "__mro_entries__"}
            names = _callers(module, own, depth - 1) if isinstance(own, ast.ClassDef) and not looks else None
        else:
            found = [
                CALLED_BY.get(one.replace("typing_extensions.", "typing."), EVERY if NN_CLASS.fullmatch(one) else None)
                for one in module.library(plain)
            ]
            names = None if None in found or not found else frozenset(name for one in found for name in one or ())
        if names is None:
            return None
        callers |= names
    return callers


def _names_of_backward(name: str) -> set[str]:
    """The mentions that make a backward method of this name run."""
    return {mention for one in (name, *ASKING_FOR_GRADIENTS) for mention in (one, f".{one}")}


def _only_wraps(module: Module, function: ast.stmt, is_factory: bool) -> bool:
    """Whether a decorator of the submission returns a wrapper around its argument, and does nothing else with the argument."""
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    if is_factory:
        match [one for one in function.body if not _is_docstring(one)]:
            case [ast.FunctionDef(name=name) as decorate, ast.Return(value=ast.Name(id=returned))]:
                return name == returned and _only_wraps(module, decorate, is_factory=False)
            case _:
                return False
    held = {one.name for one in function.body if isinstance(one, ast.FunctionDef)}
    held |= {one.arg for one in [*function.args.posonlyargs, *function.args.args][:1]}
    for statement in function.body:
        outside: list[ast.AST] = [statement]
        match statement:
            case ast.FunctionDef(args=arguments, returns=returns, decorator_list=decorators):
                if not all(_is_wraps(module, one) for one in decorators):
                    return False
                outside = [arguments, *([returns] if returns else [])]
            case ast.Return(value=ast.Name()):
                outside = []
            case ast.Assign(targets=[ast.Attribute(value=ast.Name())], value=ast.Constant()):
                outside = []
        if any(isinstance(one, ast.Name) and one.id in held for part in outside for one in ast.walk(part)):
            return False
    return bool(held)


def _is_wraps(module: Module, decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func=function, args=[ast.Name()], keywords=[]):
            return module.library(function) == {"functools.wraps"}
        case _:
            return False


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
