"""Whose kernel it was: what a submission's source says, and what PyTorch's own operators did while it ran.

A submission may use PyTorch for plumbing (memory, views, copies) and for what its assignment's policy names beside that; the work is
its kernels'. The source is read as a syntax tree, not as text: aliases are followed, and whatever would hide a name from
a reader (`exec`, a computed `getattr`, a module that is passed on as a value, a way out of PyTorch to Python's threads) is refused as
such. What nobody calls is not looked at: a comparison with PyTorch under `if __name__ == "__main__":` or in a function of one's own
for testing is good practice. The run is watched by the worker, which names every ATen operator that came from the student's code, in
threads that it starts too; `foreign_operators` picks those that are not allowed. On a CPU it counts the launches of the student's kernels.

Neither is a proof. A submission that tampers with its own process hides from the second, and what the first refuses is what is
known to lead there. A kernel that is launched for show beside arithmetic in plain Python, element by element, is not found on a CPU.
"""

from __future__ import annotations

import ast
import re
import sys
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
        slice_backward select_backward
        eq ne lt le gt ge any all isnan isinf isfinite abs logical_and logical_or logical_not
    is_same_size sym_size sym_stride sym_numel is_contiguous _local_scalar_dense item equal is_nonzero record_stream
        set_ resize_ arange scalar_tensor
        """,
    )
)
# What patterns such as `torch._*` and `torch.nn.functional.*` take in and is nobody's kernel: facts, checks, and a copy.
HARMLESS_NAMES = (
    "torch.__version__",
    "torch.__version__.*",
    "torch._assert",
    "torch._check",
    "torch.nn.functional.pad",
)
HIDING = {
    "exec": "runs code from a string",
    "eval": "runs code from a string",
    "compile": "runs code from a string",
    "__import__": "imports by a computed name",
    "vars": "looks up names by computed words",
    "globals": "looks up names by computed words",
    "locals": "looks up names by computed words",
    "__builtins__": "looks up names by computed words",
    "sys.modules": "reaches into the modules of the process",
    "sys._getframe": "reaches into its caller",
    "sys.settrace": "reaches into its caller",
    "sys.setprofile": "reaches into its caller",
    "torch.utils._python_dispatch*": "reaches into PyTorch's dispatcher",
    "torch.overrides*": "reaches into PyTorch's dispatcher",
    "torch._*": "reaches into PyTorch's internals",
    "triton._C*": "reaches into Triton's internals",
    "torch.ops*": "calls PyTorch's operators by their inner names",
    "torch.classes*": "calls PyTorch's operators by their inner names",
    "torch.library*": "hides what runs behind an operator of its own",
    "torch.multiprocessing*": "starts processes",
    "torch.distributed*": "starts processes",
    "torch.utils.data*": "starts processes",
    "torch.futures*": "starts threads",
    "torch.nn.parallel*": "starts threads",
    "torch.hub*": "loads code",
    "torch.package*": "loads code",
    "os.fork*": "starts processes",
    "os.exec*": "starts processes",
    "os.spawn*": "starts processes",
    "os.posix_spawn*": "starts processes",
    "os.system": "starts processes",
    "os.popen": "starts processes",
    "torch.from_numpy": "computes on the host",
    "torch.frombuffer": "computes on the host",
    ".numpy": "computes on the host",
    ".tolist": "computes on the host",
    ".apply_": "computes on the host",
    ".map_": "computes on the host",
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Attributes of objects that nobody can follow, which lead to all that Python can do.
ESCAPES = _words(
    """
    builtins concurrent ctypes importlib inspect multiprocessing np os subprocess sys threading torch
    _thread _C _ops _DisableTorchDispatch
    """
)
# Python has modules of these names too; what other modules call so is something else, or does no harm.
NO_ESCAPES = _words("abc array chunk code copy functools math profile random select signal trace types warnings")
# Of PyTorch's own modules and classes, those that may be looked into: others import what they please, as torch.functional.F.
FAMILIAR = _words(
    """
    Generator Size Tensor accelerator amp autograd backends compile compiler cpu cuda device dtype fft finfo iinfo jit
    linalg mps nn nested profiler random signal sparse special testing types utils version xpu
    """
)
DTYPE = re.compile(r"(b?float|complex|u?int|bits)[\dx]+\w*|bool|half|float|double|long|int|short")
# PyTorch's modules, without `torch.`, that must not be passed on as values.
MODULES = _words(
    """
    accelerator amp autograd backends compiler cpu cuda fft jit linalg mps nested nn nn.functional special sparse testing
    utils xpu
    """
)
# Names between two underscores that a right submission may use as attributes.
HARMLESS = _words(
    """
    __annotations__ __call__ __class__ __doc__ __enter__ __eq__ __exit__ __file__ __func__ __getitem__ __hash__ __init__
    __iter__ __len__ __module__ __name__ __new__ __next__ __post_init__ __qualname__ __repr__ __setitem__ __str__
    __version__
    """
)
MATRIX_PRODUCTS = _words("__matmul__ __rmatmul__ __imatmul__")
DISPATCHERS = _words("__torch_dispatch__ __torch_function__")
LOOKERS = _words("getattr setattr delattr")
# Decorators after which a definition still waits until somebody calls it by its name.
PATIENT = _words(
    """
    triton.jit triton.runtime.jit triton.runtime.jit.jit triton.autotune triton.heuristics
    torch.no_grad torch.enable_grad torch.inference_mode torch.compile torch.autograd.function.once_differentiable
    torch.amp.custom_fwd torch.amp.custom_bwd torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd
    functools.lru_cache functools.cache functools.wraps functools.cached_property contextlib.contextmanager
    dataclasses.dataclass typing.final typing.overload property classmethod staticmethod
    triton.testing.perf_report
    """
)
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
    own = {PurePosixPath(name).stem: module for name, module in modules.items()}
    for module in modules.values():
        module.link(own)
    return list(modules.values())


def cuda_findings(sources: Mapping[str, str], forbidden: Sequence[str]) -> list[Finding]:
    """Forbidden uses in CUDA C++ files: `forbidden` are names and header prefixes, as `at::gelu` and `cublas`.

    A name without `::` is a library's: its namespace, or how its functions begin, as `cublasSgemm(`. A variable may have it.
    """
    found = []
    for file, text in sorted(sources.items()):
        code = _without_comments(text)
        for name in forbidden:
            word = r"\s*::\s*".join(re.escape(part) for part in name.split("::"))
            named = (
                rf"{word}\b"
                if "::" in name
                else rf"{word}(?=\s*::)|{word}[A-Z]\w*(?=\s*\()|(?<=namespace ){word}(?=\s*;)"
            )
            pattern = rf'(?<!\w)(?<!\w::)(?:{named})|#\s*include\s*[<"]{re.escape(name)}'
            for match in re.finditer(pattern, code):
                found.append(Finding(file, code.count("\n", 0, match.start()) + 1, f"uses {name}"))
    return sorted(set(found), key=lambda one: (one.file, one.line))


def foreign_operators(ran: Iterable[Operator], allowed: Sequence[str]) -> list[Operator]:
    """Those operators that are neither plumbing nor allowed by the assignment."""
    return [one for one in ran if one.name not in PLUMBING and one.name not in allowed]


@dataclass(frozen=True, eq=False)
class _Unit:
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


class _Module:
    """A parsed file, and what its names stand for. A file that cannot be parsed has no units: the worker will say why."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            body = []
        nodes = [node for statement in body for node in ast.walk(statement)]
        if not any(_renames(node) for node in nodes):
            body = [one for node in body for one in (node.orelse if _is_main_guard(node) else [node])]  # type: ignore[attr-defined]
        self._nodes = [node for statement in body for node in ast.walk(statement)]
        self._stands_for: dict[str, set[str]] = {}
        self._stars: set[str] = set()
        self._own: dict[str, _Module] = {}
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
                [_Unit(getattr(node, "name", None), node), *_decorating(node)]
                if _waits(self, node)
                else [_Unit(None, node)]
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
        self._stands_for.setdefault(name, set()).add(meant)

    def link(self, own: Mapping[str, _Module]) -> None:
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


class _Rules:
    def __init__(self, imports: frozenset[str], forbidden: tuple[str, ...]) -> None:
        self._imports = imports
        self._forbidden = forbidden
        self._methods = tuple(one for one in forbidden if one.startswith("."))

    def check(self, module: _Module, unit: _Unit) -> Iterator[Finding]:
        for node, words in self._look(module, unit.node):
            yield Finding(module.file, getattr(node, "lineno", 1), words)

    def _look(self, module: _Module, node: ast.AST, kernel: bool = False) -> Iterator[tuple[ast.AST, str]]:
        """Forbidden uses below a node; of what Triton compiles, which is the kernel itself, only PyTorch's names."""
        if isinstance(node, ast.FunctionDef) and any(_is_kernel(module, one) for one in node.decorator_list):
            for statement in node.body:
                yield from self._look(module, statement, kernel=True)
            return
        if kernel:
            if isinstance(node, ast.Name | ast.Attribute):
                for meant in sorted(one for one in module.resolve(node) if one.startswith("torch.")):
                    yield from self._name(node, meant)
        else:
            yield from self._node(module, node)
        for child in ast.iter_child_nodes(node):
            yield from self._look(module, child, kernel)

    def _node(self, module: _Module, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        match node:
            case ast.Import(names=names):
                for name in (alias.name for alias in names):
                    yield from self._import(node, name)
            case ast.ImportFrom(module=str(name), level=0, names=names):
                yield from self._import(node, name)
                for alias in names:
                    yield from self._name(node, f"{name}.{alias.name}")
                if name.split(".")[0] == "torch" and any(alias.name == "*" for alias in names):
                    yield node, f"imports every name of {name}, which nobody can follow"
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "@" in self._forbidden:
                yield node, "uses the operator @"
            case ast.Call(func=ast.Name(id=name), args=arguments) as call if name in LOOKERS:
                yield from self._by_name(module, call, name, arguments)
            case ast.Name(id=name) if name in LOOKERS and id(node) not in module.called:
                yield node, f"passes {name} on as a value, which nobody can follow"
            case ast.FunctionDef(name=name) | ast.Name(id=name) | ast.Constant(value=str(name)) if name in DISPATCHERS:
                yield node, f"reaches into PyTorch's dispatcher ({name})"
            case ast.Name(id=name) if not module.resolve(node):
                yield from self._name(node, name)
            case ast.Attribute(value=value, attr=name, ctx=ast.Store() | ast.Del()):
                yield from self._changes(module, node, value)
            case _:
                pass
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            for meant in sorted(module.resolve(node)):
                if not (meant.startswith(".") and meant[1:] not in ESCAPES and module.is_own_method(node)):
                    yield from self._name(node, meant)
                loaded = isinstance(getattr(node, "ctx", None), ast.Load)
                if loaded and _is_library(meant) and id(node) not in module.followed:
                    yield node, f"passes {meant} on as a value, which nobody can follow"
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and node.attr.endswith("__"):
            if node.attr in MATRIX_PRODUCTS and "@" in self._forbidden:
                yield node, "uses the operator @"
            elif node.attr not in HARMLESS:
                yield node, f"reaches into the innards of an object ({node.attr})"

    def _by_name(
        self, module: _Module, node: ast.Call, called: str, arguments: list[ast.expr]
    ) -> Iterator[tuple[ast.AST, str]]:
        """What `getattr` and its like do."""
        match arguments:
            case [base, ast.Constant(value=str(name)), *_] if not isinstance(base, ast.Starred):
                if name.startswith("__") and name not in HARMLESS:
                    yield node, f"reaches into the innards of an object ({name})"
                if called != "getattr":
                    yield from self._changes(module, node, base)
            case [base, name, *_] if (
                called == "getattr"
                and not isinstance(base, ast.Starred)
                and not isinstance(name, ast.Starred)
                and module.resolve(base)
                and all(one.split(".")[0] == "triton" for one in module.resolve(base))
            ):
                pass
            case _:
                yield node, f"picks a function by a computed name ({called})"

    def _changes(self, module: _Module, node: ast.AST, base: ast.expr) -> Iterator[tuple[ast.AST, str]]:
        """Functions that are put in the place of PyTorch's and Triton's; their settings may be set."""
        for meant in sorted(module.resolve(base)):
            if meant.split(".")[0] in ("torch", "triton") and not meant.startswith(("torch.backends", "triton.knobs")):
                yield node, f"changes {meant}"

    def _import(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        if name.split(".")[0] not in self._imports:
            yield node, f"imports {name}, which this assignment does not allow"

    def _name(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        if any(fnmatchcase(name, pattern) for pattern in HARMLESS_NAMES) and name not in self._forbidden:
            return
        first, *parts = name.split(".")
        last = f".{parts[-1]}" if parts else ""
        for pattern, words in HIDING.items():
            if fnmatchcase(name, pattern) or (first == "torch" and last == pattern):
                yield node, f"{words} ({name})"
                return
        if any(fnmatchcase(name, pattern) for pattern in self._forbidden):
            yield node, f"uses {name if first else 'the method ' + name}"
        elif (
            first == "torch"
            and parts[:1] != ["backends"]  # whose names are settings
            and any(fnmatchcase(last, pattern) for pattern in self._methods)
        ):
            yield node, f"uses {name}"
        elif any(_leads_out(part) for part in parts) if first else parts[-1] in ESCAPES:
            yield node, f"reaches another module by way of an object ({name})"
        elif first == "torch" and parts[1:] and parts[0] not in FAMILIAR and not DTYPE.fullmatch(parts[0]):
            yield node, f"reaches into PyTorch's internals ({name})"


def _leads_out(part: str) -> bool:
    """Whether an attribute of a module is some other module that it imports for itself, or a way to one."""
    plain = part.strip("_")
    return part in ESCAPES or (plain in sys.stdlib_module_names and plain not in NO_ESCAPES)


def _is_library(meant: str) -> bool:
    """Whether a name is PyTorch or one of its modules that computes or imports."""
    return meant == "torch" or meant.removeprefix("torch.") in MODULES


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


def _is_kernel(module: _Module, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    meant = module.resolve(called)
    return bool(meant) and meant <= {"triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit"}


def _waits(module: _Module, node: ast.stmt) -> bool:
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


def _decorating(node: ast.stmt) -> list[_Unit]:
    """What the decorators of a definition and of its methods are given: that is worked out even where nobody calls them."""
    definitions = [node, *(node.body if isinstance(node, ast.ClassDef) else [])]
    return [
        _Unit(None, ast.copy_location(ast.Expr(given), given), labels=True)
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


def _without_comments(text: str) -> str:
    """C++ with comments and strings blanked out, but for the names of headers; line numbers are kept."""

    def blank(match: re.Match[str]) -> str:
        return match.group() if match.group().startswith("#") else re.sub(r"[^\n]", " ", match.group())

    return re.sub(
        r'#\s*include\s*[<"][^\n>"]*[>"]|"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', blank, text, flags=re.DOTALL
    )
