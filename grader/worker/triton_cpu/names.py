"""Gives kernels in Triton's interpreter the names that they have on a GPU: variables of an enclosing function, functions
that a file imports from Triton's language by name, `max` and `min`, and the methods of a block that compute, as `x.exp()`.

Names that a GPU's compiler does not take are refused where a kernel uses them: global variables other than None that are
no `tl.constexpr`, and Python's other functions.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, NoReturn

import triton.language as tl
from triton import knobs
from triton.compiler.code_generator import CodeGenerator
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter
from triton.runtime.jit import JITCallable

from grader.worker.triton_cpu.patches import Patches

REFUSED = "_grader_refused_name"  # A kernel's globals have the function that refuses a name under this name.
ELEMENTWISE = {"max": "maximum", "min": "minimum"}  # Python's names, and those of Triton's language.
LOOPS = (tl.range, tl.static_range)  # Triton's loops, before the interpreter replaces them.
PATCHES = Patches()


def provide() -> None:
    """Change the interpreter, which compiles a kernel's text anew, and the methods of a block."""
    PATCHES.provide()
    # Triton marks the functions of `tl.math` alone, and the interpreter replaces what is marked. NumPy would call such a
    # method of a block that it is given, and a GPU has no NumPy.
    for name, method in vars(tl.tensor).items():
        is_method = inspect.isfunction(method) and hasattr(tl.math, name)
        if is_method and "_semantic" in inspect.signature(method).parameters:
            setattr(method, tl.core.TRITON_BUILTIN, True)
    tl.tensor.__array_ufunc__ = None


@PATCHES.replace(FunctionRewriter, "_compile_and_exec")
def _compiled(compile: Callable[..., Any], rewriter: Any, tree: ast.Module) -> Any:
    """Compile a kernel inside a function whose parameters are the kernel's names."""
    function = rewriter.fn
    tree = ast.fix_missing_locations(_Refusal(_refused_names(function)).visit(tree))
    if own := _own_names(function):
        enclosing: Any = ast.parse(f"def {function.__name__}({', '.join(own)}): return {function.__name__}").body[0]
        enclosing.body[:0] = tree.body
        kernel = compile(rewriter, ast.Module([enclosing], []))(**own)
    else:
        kernel = compile(rewriter, tree)
    # The interpreter knows a constant by the text `tl.constexpr`, and a GPU's compiler by the word in it.
    constants = [name for name, one in function.__annotations__.items() if "constexpr" in str(one)]
    kernel.__annotations__ |= dict.fromkeys(constants, "constexpr")
    return kernel


@PATCHES.replace(FunctionRewriter, "_find_def")
def _find_def(_before: Any, _rewriter: Any, lines: list[str]) -> int:
    """The interpreter takes the last line that begins with `def`, which may be a docstring's."""
    return next(number for number, line in enumerate(lines, 1) if line.lstrip().startswith("def "))


@PATCHES.replace(interpreter.ReduceScanOpInterface, "__init__")
def _combining(make: Callable[..., None], operation: Any, axis: Any, combine: Any) -> None:
    """Have `tl.reduce` and `tl.associative_scan` call a student's function as a kernel calls one: with the names that it has on a
    GPU. The interpreter would call it as it stands in the file.
    """
    if isinstance(combine, interpreter.InterpretedFunction) and not is_tritons(combine.fn):
        combine = SimpleNamespace(fn=combine.rewrite())
    make(operation, axis, combine)


def _own_names(function: Any) -> dict[str, Any]:
    code, scope = function.__code__, function.__globals__
    found = {name: scope[name] for name in code.co_names if _is_of_the_language(scope.get(name))}
    found |= {name: _elementwise(name) for name in ELEMENTWISE if name in code.co_names and name not in scope}
    found |= _enclosing_variables(function)
    return {name: _interpreted(one) if _is_of_the_language(one) else one for name, one in found.items()}


def _elementwise(name: str) -> Callable[..., Any]:
    """What Python's `max` or `min` is in a kernel; in Python they ask whether a block is true."""

    def choose(*values: Any) -> Any:
        if not any(isinstance(one, tl.tensor) for one in values):
            return getattr(builtins, name)(*map(tl.core._unwrap_if_constexpr, values))
        # Looked up now: while a kernel runs, the interpreter's function stands in its place.
        return functools.reduce(getattr(tl, ELEMENTWISE[name]), values)

    return choose


def _enclosing_variables(function: Any) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _refused_names(function: Any) -> dict[str, str]:
    """Why a GPU's compiler does not take a name that a kernel uses, by name."""
    if is_tritons(function) or knobs.compilation.allow_non_constexpr_globals:
        return {}
    enclosing = _enclosing_variables(function)
    scope, names = function.__globals__ | enclosing, {*_loaded_names(function.__code__), *enclosing}
    names -= CodeGenerator.builtin_namespace.keys()
    return {name: why for name in names if (why := _why_refused(name, scope))}


def is_tritons(function: Any) -> bool:
    """Whether a function that the interpreter compiles is one of Triton's own."""
    return str(function.__module__).startswith("triton.")


def _loaded_names(code: CodeType) -> Iterator[str]:
    """The global names that a function's code, and functions in it, load."""
    yield from (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loaded_names(inner)


def _why_refused(name: str, scope: Mapping[str, Any]) -> str:
    """The compiler's words; "" if it takes the name (`CodeGenerator._define_name_lookup`)."""
    if name not in scope:
        return f"{name} is not defined"
    value = scope[name]
    of_the_language = str(getattr(value, "__module__", "")).startswith(("triton.language", "triton.experimental.gluon"))
    marked = getattr(value, "__triton_builtin__", False) or getattr(value, "__triton_aggregate__", False)
    named_tuple = isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")
    kinds = (ModuleType, JITCallable, interpreter.InterpretedFunction, tl.dtype, tl.constexpr)
    if value is None or of_the_language or marked or named_tuple or isinstance(value, kinds):
        return ""
    return f"Cannot access global variable {name} from within @jit'ed function"


@PATCHES.add(interpreter, REFUSED)
def _refuse(why: str) -> NoReturn:
    raise NameError(why)


class _Refusal(ast.NodeTransformer):
    """Makes of each use of a refused name in a kernel's body a call that raises why."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        self._refused = refused

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(one) for one in node.body]  # a default may be any global variable
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if getattr(node.func, "attr", getattr(node.func, "id", "")) != "static_assert":
            return self.generic_visit(node)
        node.args[:1] = [self.visit(one) for one in node.args[:1]]  # the compiler looks at its message only if it fails
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or node.id not in self._refused:
            return node
        return ast.copy_location(
            ast.Call(ast.Name(REFUSED, ast.Load()), [ast.Constant(self._refused[node.id])], []), node
        )


def _is_of_the_language(value: Any) -> bool:
    """Whether a value is a function that the interpreter replaces in Triton's language, and only there."""
    known = tl.core.is_builtin(value) and value.__module__ in (tl.core.__name__, tl.math.__name__)
    return known or any(value is one for one in LOOPS)


def _interpreted(function: Any) -> Callable[..., Any]:
    """The interpreter's function, which is in place while a kernel runs."""
    name = function.__name__
    owner = tl if hasattr(tl, name) else tl.math

    @functools.wraps(function, updated=())  # without the mark of the language's functions
    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(owner, name)(*arguments, **named)

    return call
