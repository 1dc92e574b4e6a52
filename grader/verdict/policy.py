"""Finds forbidden uses: in a submission's source, and among the PyTorch operators that ran.

A submission may use PyTorch for plumbing (memory, views, copies) and for the uses that its assignment's policy names; its own kernels
do the work. The source is read as a syntax tree: aliases are followed, and code that would hide a name from this reader is refused
(`exec`, a computed `getattr`, a module passed on as a value, a way out of PyTorch to Python's threads). Code that no call reaches is not
read (`grader/verdict/liveness.py`): a comparison with PyTorch under `if __name__ == "__main__":`, or in a test function, is good
practice. At run time the worker names every ATen operator that the student's code called, in its threads too; `foreign_operators` picks
the forbidden ones. On a CPU the worker counts the launches of the student's kernels.

Operators that a submission registers by `torch.library`, in a namespace of its own, are allowed: the watch enters them.

Neither check is a proof. A submission that tampers with its own process hides from the run-time watch; the reader refuses the known
ways to do that. A kernel launched for show beside arithmetic in plain Python, element by element, is not found on a CPU.
"""

from __future__ import annotations

import ast
import pkgutil
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from grader.protocol import INCLUDE, RanOperator, code_of
from grader.verdict.liveness import BACKWARD, Running, running
from grader.verdict.sources import Entangled, Function, Module, imported_from, is_kernel, own_names


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ATen operators, without their overload, that make, copy, compare or inspect tensors: no kernel is made of these.
PLUMBING = _words(
    """
    empty empty_like empty_strided new_empty new_empty_strided new_zeros new_full new_ones zeros zeros_like ones
    ones_like full full_like fill fill_ zero_ copy_ clone _to_copy to contiguous lift_fresh detach detach_ alias view
    _unsafe_view view_as reshape _reshape_alias as_strided expand permute transpose t squeeze unsqueeze flatten
    unflatten select slice narrow split split_with_sizes chunk unbind diagonal cat stack constant_pad_nd pad
    slice_backward select_backward
    eq ne lt le gt ge any all isnan isinf isfinite abs logical_and logical_or logical_not
    is_same_size sym_size sym_stride sym_numel is_contiguous _local_scalar_dense item equal is_nonzero record_stream
    set_ resize_ arange scalar_tensor
    """
)
# Exceptions from patterns such as `torch._*` and `torch.nn.functional.*`: facts, checks, and a copy.
HARMLESS_NAMES = _words(
    """
    torch.__version__ torch.__version__.* torch._assert torch._check torch.nn.functional.pad torch.utils.data.Dataset
    torch.utils.data.TensorDataset torch.distributed.is_available torch.distributed.is_initialized
    importlib.metadata.version importlib.metadata.metadata importlib.metadata.PackageNotFoundError
    """
)
# Modules of packages that may not be imported, which may be: only their harmless names can be used.
HARMLESS_MODULES = _words("importlib.metadata")
# Functions of torch.library whose first argument says which operators they make, or of which operator they add to: these
# must be operators of the submission's own. Such an operator hides nothing: the watch at run time enters it.
REGISTERING = _words(
    """
    torch.library.Library torch.library.custom_op torch.library.define torch.library.impl torch.library.impl_abstract
    torch.library.register_autocast torch.library.register_autograd torch.library.register_fake
    torch.library.register_kernel torch.library.register_vmap torch.library.triton_op
    """
)
MAKING = _words(
    "torch.library.Library torch.library.custom_op torch.library.triton_op"
)  # what their results are passed to
BESIDE_REGISTERING = _words("torch.library.get_ctx torch.library.infer_schema torch.library.wrap_triton")
# The namespaces of PyTorch's operators, and names in torch.ops that are no namespaces.
NAMESPACES_OF_PYTORCH = _words(
    """
    aoti aoti_torch aten c10d c10d_functional caffe2 debug_mode_ops debugprims export fbgemm flex_lib fsdp
    higher_order inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn onnx onnx_symbolic prim prims profiler
    quantization quantized quantized_decomposed rngprims sparse static_runtime streams symm_mem tensorexpr
    torchaudio torchvision xnnpack
    import_module load_library loaded_libraries name
    """
)
# Names that lead to others, some of which are harmless; they may not be passed on as values.
LEADING = _words("importlib importlib.metadata torch.distributed torch.library torch.ops torch.utils.data")
# Forbidden in every assignment: patterns of names, in order of precedence, and the words of the finding.
HIDING = {
    pattern: words
    for patterns, words in (
        ("exec eval compile", "runs code from a string"),
        ("__import__", "imports by a computed name"),
        ("vars globals locals __builtins__", "looks up names by computed words"),
        ("sys.modules", "reaches into the modules of the process"),
        ("sys._getframe sys.settrace sys.setprofile", "reaches into its caller"),
        ("torch.utils._python_dispatch* torch.overrides*", "reaches into PyTorch's dispatcher"),
        ("torch._*", "reaches into PyTorch's internals"),
        ("triton._C*", "reaches into Triton's internals"),
        ("torch.ops* torch.classes*", "calls PyTorch's operators by their inner names"),
        ("torch.library*", "reaches into PyTorch's registry of operators"),
        ("importlib*", "imports by a computed name"),
        ("torch.multiprocessing* torch.distributed* torch.utils.data*", "starts processes"),
        ("torch.futures* torch.nn.parallel*", "starts threads"),
        ("torch.hub* torch.package*", "loads code"),
        ("os.fork* os.exec* os.spawn* os.posix_spawn* os.system os.popen", "starts processes"),
        ("typing*.get_type_hints typing*.ForwardRef*", "runs code from annotations"),
        ("typing*.evaluate_forward_ref typing*.get_annotations", "runs code from annotations"),
        ("functools.singledispatch*", "runs code from annotations"),
        ("jaxtyping.install_import_hook", "imports by a computed name"),
    )
    for pattern in patterns.split()
}
ON_THE_HOST = dict.fromkeys(
    ("torch.from_numpy", "torch.frombuffer", ".numpy", ".tolist", ".apply_", ".map_"), "computes on the host"
)
# Attributes of unknown objects that lead to all that Python can do.
ESCAPES = _words(
    """
    builtins concurrent ctypes importlib inspect multiprocessing np os subprocess sys threading torch
    _thread _C _ops _DisableTorchDispatch
    """
)
# Python has modules of these names; in other modules the names mean something else, or do no harm.
NO_ESCAPES = _words(
    "abc array chunk code copy functools math platform profile random select signal time trace types warnings"
)
# PyTorch's modules and classes whose attributes are safe; other modules re-export modules, as torch.functional.F is one.
FAMILIAR = _words(
    """
    Generator Size Tensor accelerator amp autograd backends compile compiler cpu cuda device dtype fft finfo iinfo jit
    linalg mps nn nested profiler random signal sparse special testing types utils version xpu
    """
)
DTYPE = re.compile(r"(b?float|complex|u?int|bits)[\dx]\w*|bool|half|float|double|long|int|short")
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
# What may be assigned to, of libraries: settings. Whatever else a library finds changed, it calls, as the grader does.
SETTINGS = ("torch.backends", "triton.knobs", "logging", "warnings")
NOWHERE = " in the submission, nor a package of that name"  # the end of a finding about a missing module
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+)', re.MULTILINE)
ABSENT = re.compile(r"ModuleNotFoundError: No module named '(\w+)'")


@dataclass(frozen=True)
class ForbiddenUse:
    """A forbidden use, with its file and line in the submission. words: as "uses torch.relu".

    absent: an import of a missing module, which is a mistake rather than a forbidden use.
    tried_out: a use in a statement outside of all functions that calls something, as a test of a kernel that runs at import.
    """

    file: str
    line: int
    words: str
    absent: bool = False
    tried_out: bool = False


@dataclass(frozen=True)
class Read:
    """A Python file's forbidden uses, and the submission's files that the file imports, itself included."""

    findings: tuple[ForbiddenUse, ...]
    files: tuple[str, ...]


def about_import(message: str, traceback: str) -> str:
    """Python's error about a module that does not exist, in the words of a finding; any other message as it is."""
    if (found := ABSENT.fullmatch(message)) is None:
        return message
    *_, place = ["", *(f"{file}, line {line}: " for file, line in FRAME.findall(traceback))]
    return f"{place}imports {found[1]}, and there is no {found[1]}.py{NOWHERE}"


def read_python(
    sources: Mapping[str, str | bytes], file: str, entry: str, imports: Sequence[str] | None, forbidden: Sequence[str]
) -> tuple[Read, Read]:
    """Forbidden uses in a Python file and in the files that it imports, in the order of its lines, then of theirs.

    Args:
        sources: every Python file of the submission, by its path there.
        file, entry: the file of the graded function, and the function's name.
        imports: packages that may be imported, besides files of the submission; None if nothing is forbidden.
        forbidden: dotted names, as `torch.nn.functional.*`; `.relu` is a method of anything, `@` the operator.

    Returns:
        The uses that a call without gradients reaches, and those that a call with gradients reaches.
    """
    try:
        modules = imported_from(file, sources)
        plain = _read(sources, running(modules, entry, gradients=False), imports, forbidden)
        if not any(module.defines(name) for module in modules[:1] for name in BACKWARD):
            return plain, plain
        return plain, _read(sources, running(modules, entry, gradients=True), imports, forbidden)
    except RecursionError:
        words = "nests expressions too deeply to be read"
    except Entangled:
        words = "passes names around until nobody can follow them"
    read = Read(() if imports is None else (ForbiddenUse(file, 1, words),), (file,))
    return read, read


def _read(
    sources: Mapping[str, str | bytes], runs: Sequence[Running], imports: Sequence[str] | None, forbidden: Sequence[str]
) -> Read:
    files = tuple(one.module.file for one in runs)
    if imports is None:
        return Read((), files)
    own = {part for name in sources for part in PurePosixPath(name).with_suffix("").parts}
    rules = _Rules(frozenset(imports), tuple(forbidden), frozenset(own))
    found = {finding for one in runs for finding in rules.check(one)}
    return Read(tuple(sorted(found, key=lambda one: (one.file not in files[:1], one.file, one.line, one.words))), files)


def included_from(file: str, sources: Mapping[str, str]) -> dict[str, str]:
    """The code, without comments and strings, of a C++ file and of all files of the submission that it includes, directly or not."""
    found: dict[str, str] = {}
    todo = [file]
    while todo:
        name = todo.pop()
        if name in found or name not in sources:
            continue
        found[name] = code_of(sources[name])
        if COMPUTED_INCLUDE.search(found[name]):
            todo += sources
        for header in INCLUDE.findall(found[name]):
            todo += {
                posixpath.normpath(posixpath.join(folder, header))
                for folder in (posixpath.dirname(name), posixpath.dirname(file))
            }
    return found


def cuda_kernels(codes: Iterable[str]) -> frozenset[str]:
    """Names of the functions that C++ files without comments declare as kernels. A name that a macro makes is not found."""
    heads = (ATTRIBUTE.sub("", one[:LONGEST_HEAD]) for code in codes for one in code.split("__global__")[1:])
    return frozenset(found[1] for head in heads if (found := KERNEL.match(head)))


def cuda_findings(codes: Mapping[str, str], file: str, forbidden: Sequence[str]) -> list[ForbiddenUse]:
    """Forbidden uses in a CUDA C++ file and the files that it includes: `codes`, of `included_from`. `forbidden`: as `at::relu`, `cublas`.

    A name without `::` is a library's: its namespace, or the beginning of its functions, as in `cublasSgemm(`; a variable may have that
    name. If the library's header is included, its types, macros and namespace aliases count too; the header alone is no use.
    """
    headers = {one for code in codes.values() for one in INCLUDE.findall(code)} - {
        posixpath.basename(one) for one in codes
    }
    anything = any(COMPUTED_INCLUDE.search(code) for code in codes.values())
    found = []
    for name in forbidden:
        word = r"\s*::\s*".join(re.escape(part) for part in name.split("::"))
        named = (
            [rf"{word}\b"]
            if "::" in name
            else [rf"{word}(?=\s*::)", rf"{word}[A-Z]\w*(?=\s*\()", rf"(?<=namespace ){word}(?=\s*;)"]
        )
        if "::" not in name and (anything or any(_is_of_library(one, name) for one in headers)):
            named += [rf"{word}[A-Z]\w*", rf"{word.upper()}_\w+", rf"{word}(?=\s*;|[ \t]*$)"]
            named += [rf"^[ \t]*#[ \t]*define\b[^\n]*\b{word}\b", "##"]
        before = {True: "", False: r"(?<!\w)(?<!\w::)"}
        pattern = re.compile("|".join(before[one == "##"] + f"(?:{one})" for one in named), re.MULTILINE)
        for file_name, code in codes.items():
            line, counted = 1, 0
            for match in pattern.finditer(code):
                line, counted = line + code.count("\n", counted, match.start()), match.start()
                words = f"pastes names together, beside a header of {name}" if match.group() == "##" else f"uses {name}"
                found.append(ForbiddenUse(file_name, line, words))
    return sorted(set(found), key=lambda one: (one.file != file, one.file, one.line))


def _is_of_library(header: str, name: str) -> bool:
    """Whether a header belongs to a library, as `cublas_v2.h` and `<./thrust/transform.h>` do."""
    return any(part.startswith(name) for part in posixpath.normpath(header).split("/"))


def foreign_operators(ran: Iterable[RanOperator], allowed: Sequence[str]) -> list[RanOperator]:
    """The operators that are neither plumbing nor allowed by the assignment."""
    return [one for one in ran if one.name not in PLUMBING and one.name not in allowed]


class _Rules:
    """Searches running code for forbidden uses. With `imports` None: only for uses that hide others from the reader or the watch.

    own: names of the submission's files and folders.
    """

    def __init__(self, imports: frozenset[str] | None, forbidden: tuple[str, ...], own: frozenset[str]) -> None:
        self._imports = imports
        self._forbidden = forbidden
        self._own = own
        self._unsure = self if imports is None else _Rules(None, (), own)
        self._methods = tuple(one for one in forbidden if one.startswith("."))
        self._hiding = HIDING if imports is None else HIDING | ON_THE_HOST

    def check(self, runs: Running) -> Iterator[ForbiddenUse]:
        for statement in runs.module.body:
            defines = isinstance(statement, Function | ast.ClassDef | ast.Import | ast.ImportFrom)
            calls = not defines and any(isinstance(one, ast.Call) for one in ast.walk(statement))
            for node, words in self._look(runs, statement):
                yield ForbiddenUse(runs.module.file, getattr(node, "lineno", 1), words, words.endswith(NOWHERE), calls)

    def _look(
        self, runs: Running, node: ast.AST, kernel: bool = False, own: frozenset[str] = frozenset()
    ) -> Iterator[tuple[ast.AST, str]]:
        """Forbidden uses below a node; inside a function that Triton compiles (`kernel`), only PyTorch's names.

        Args:
            own: names that are local to a function around the node, so not builtins.
        """
        if id(node) in runs.dead:
            return
        if id(node) in runs.unsure:
            yield from self._unsure._look(replace(runs, unsure=set()), node, kernel, own)
            return
        module = runs.module
        if kernel:
            if isinstance(node, ast.Name | ast.Attribute):
                for meant in sorted(one for one in module.resolve(node) if one.startswith("torch.")):
                    yield from self._name(node, meant)
        else:
            yield from self._node(runs, node, own)
        inside = own
        if isinstance(node, Function):
            inside = own_names(node, own)
        elif isinstance(node, ast.ClassDef):
            # A class's body reads a name as a builtin until the body itself assigns the name; functions around the
            # class have no effect.
            inside = frozenset()
        within = set[int]()
        if isinstance(node, Function | ast.ClassDef):
            within = {id(one) for one in (node.body if isinstance(node.body, list) else [node.body])}
        compiled = isinstance(node, ast.FunctionDef) and any(is_kernel(module, one) for one in node.decorator_list)
        for child in ast.iter_child_nodes(node):
            body = id(child) in within
            yield from self._look(runs, child, kernel or (compiled and body), inside if body else own)

    def _node(self, runs: Running, node: ast.AST, own: frozenset[str]) -> Iterator[tuple[ast.AST, str]]:
        module = runs.module
        match node:
            case ast.Import(names=names):
                for name in (alias.name for alias in names if id(alias) not in runs.dead):
                    yield from self._import(node, name)
            case ast.ImportFrom(module=str(name), level=0, names=names):
                names = [alias for alias in names if id(alias) not in runs.dead]
                if any(f"{name}.{alias.name}" not in HARMLESS_MODULES for alias in names):
                    yield from self._import(node, name)
                for alias in names:
                    if f"{name}.{alias.name}" not in LEADING:
                        yield from self._name(node, f"{name}.{alias.name}")
                if name.split(".")[0] == "torch" and any(alias.name == "*" for alias in names):
                    yield node, f"imports every name of {name}, which nobody can follow"
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "@" in self._forbidden:
                yield node, "uses the operator @"
            case ast.Call(func=ast.Name(id=name), args=arguments) as call if name in LOOKERS:
                yield from self._by_name(module, call, name, arguments)
            case ast.Name(id=name) if name in LOOKERS and id(node) not in module.calls:
                yield node, f"passes {name} on as a value, which nobody can follow"
            case ast.FunctionDef(name=name) | ast.Name(id=name) | ast.Constant(value=str(name)) if name in DISPATCHERS:
                yield node, f"reaches into PyTorch's dispatcher ({name})"
            case ast.Name(id=name) if name not in own and not module.resolve(node):
                yield from self._name(node, name)
            case ast.Attribute(value=value, attr=name, ctx=ast.Store() | ast.Del()):
                yield from self._changes(module, node, value)
            case ast.MatchClass(kwd_attrs=names):
                for name in names:
                    yield from self._name(node, f".{name}")
        if isinstance(node, ast.Name | ast.Attribute | ast.Call):
            for meant in sorted(module.resolve(node)):
                if meant in LEADING and id(node) in module.followed:
                    continue
                if meant in REGISTERING:
                    yield from self._registers(module, node, meant)
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
        self, module: Module, node: ast.Call, called: str, arguments: list[ast.expr]
    ) -> Iterator[tuple[ast.AST, str]]:
        """Forbidden uses by a call of `getattr`, `setattr` or `delattr`."""
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

    def _changes(self, module: Module, node: ast.AST, base: ast.expr) -> Iterator[tuple[ast.AST, str]]:
        """An assignment to an attribute of a library, other than to settings and to names of `sys`, such as `sys.path`."""
        for meant in sorted(module.resolve(base)):
            if meant.split(".")[0] not in {"", *self._own} and not meant.startswith(SETTINGS) and meant != "sys":
                yield node, f"changes {meant}"

    def _registers(self, module: Module, node: ast.expr, name: str) -> Iterator[tuple[ast.AST, str]]:
        """A registration of operators that are not certainly of the submission's own."""
        call = module.calls.get(id(node))
        if call is None:
            yield node, f"passes {name} on as a value, which nobody can follow"
        elif not call.args or not self._is_own_operator(module, call.args[0]):
            yield (
                node,
                f'registers an operator, and not by a plain name in a namespace of its own, as "my::name" ({name})',
            )

    def _is_own_operator(self, module: Module, node: ast.expr) -> bool:
        match module.constant(node):
            case [str(text)]:
                return _is_own_namespace(text.partition("::")[0])
            case _:
                meant = module.resolve(node)
                own = bool(meant) and all(map(_is_own_operators_name, meant))
                return own or (bool(made := module.made_by(node)) and made <= MAKING)

    def _import(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        package = name.split(".")[0]
        if self._imports is None or package in self._imports | self._own or name in HARMLESS_MODULES:
            return
        if _is_nowhere(package):
            yield node, f"imports {name}, and there is no {package}.py{NOWHERE}"
        else:
            yield node, f"imports {name}, which this assignment does not allow"

    def _name(self, node: ast.AST, name: str) -> Iterator[tuple[ast.AST, str]]:
        harmless = any(fnmatchcase(name, pattern) for pattern in HARMLESS_NAMES | REGISTERING | BESIDE_REGISTERING)
        if (harmless or _is_own_operators_name(name)) and name not in self._forbidden:
            return
        first, *parts = name.split(".")
        last = f".{parts[-1]}" if parts else ""
        for pattern, words in self._hiding.items():
            if fnmatchcase(name, pattern) or (first == "torch" and last == pattern):
                yield node, f"{words} ({name})"
                return
        if any(fnmatchcase(name, pattern) for pattern in self._forbidden):
            yield node, f"uses {name if first else 'the method ' + name}"
        elif (
            first == "torch"
            and parts[:1] != ["backends"]  # settings
            and any(fnmatchcase(last, pattern) for pattern in self._methods)
        ):
            yield node, f"uses {name}"
        elif any(_leads_out(part) for part in parts) if first else parts[-1] in ESCAPES:
            yield node, f"reaches another module by way of an object ({name})"
        elif first == "torch" and parts[1:] and parts[0] not in FAMILIAR and not DTYPE.fullmatch(parts[0]):
            yield node, f"reaches into PyTorch's internals ({name})"


def _is_nowhere(package: str) -> bool:
    """Whether no module has this name: the student forgot to hand in a file, or misspelt its name."""
    return package not in sys.stdlib_module_names and all(one.name != package for one in pkgutil.iter_modules())


def _is_own_namespace(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and name not in NAMESPACES_OF_PYTORCH


def _is_own_operators_name(name: str) -> bool:
    """Whether a name is an operator of the submission's own, or one of its overloads, as `torch.ops.my.name.default`."""
    match name.split("."):
        case ["torch", "ops", namespace, *names] if len(names) <= 2:
            return _is_own_namespace(namespace)
        case _:
            return False


def _leads_out(part: str) -> bool:
    """Whether an attribute of a module is another module that it imports, or leads to one."""
    plain = part.strip("_")
    return part in ESCAPES or (plain in sys.stdlib_module_names and plain not in NO_ESCAPES)


def _is_library(meant: str) -> bool:
    """Whether a name is PyTorch or one of its modules that computes or imports."""
    return meant == "torch" or meant.removeprefix("torch.") in MODULES


COMPUTED_INCLUDE = re.compile(r"\#\s*+(?:include(?:_next)?|import)\s++[A-Za-z_]")
# The declaration of a kernel, from its `__global__` on, and what may stand in it with parentheses of its own.
LONGEST_HEAD = 1000
KERNEL = re.compile(r"[^;{}()]*?\b(\w++)\s*+\(")
ATTRIBUTE = re.compile(
    r"\b__(?:launch_bounds|cluster_dims|attribute)__\s{0,100}\([^()]{0,200}(?:\([^()]{0,200}\)[^()]{0,200}){0,4}\)"
)
