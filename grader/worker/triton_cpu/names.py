"""Gives kernels in Triton's interpreter the names that they have on a GPU: variables of an enclosing function, functions
that a file imports from Triton's language by name, `max` and `min`, and the methods of a block that compute, as `x.exp()`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import FunctionRewriter

from grader.worker.triton_cpu import extremes

LOOPS = (tl.range, tl.static_range)  # as they are before the interpreter replaces them


def provide() -> None:
    """Have the interpreter, which compiles a kernel's text anew, compile the text inside a function whose parameters are
    those names.
    """
    execute = FunctionRewriter._compile_and_exec

    def executed(rewriter: Any, tree: ast.Module) -> Any:
        kernel = enclosed(rewriter, tree)
        # The interpreter knows a constant by the text `tl.constexpr`, and a GPU's compiler by the word in it.
        kernel.__annotations__ |= {
            name: "constexpr" for name, one in rewriter.fn.__annotations__.items() if "constexpr" in str(one)
        }
        return kernel

    def enclosed(rewriter: Any, tree: ast.Module) -> Any:
        own = _own_names(rewriter.fn)
        if not own:
            return execute(rewriter, tree)
        (kernel,) = tree.body
        header = f"def {rewriter.fn.__name__}({', '.join(own)}): return {rewriter.fn.__name__}"
        enclosing: Any = ast.parse(header).body[0]
        enclosing.body.insert(0, kernel)
        return execute(rewriter, ast.Module([enclosing], []))(**own)

    FunctionRewriter._compile_and_exec = executed
    _have_methods_of_blocks_found()
    # The interpreter takes the last line that begins with `def`, which may be a docstring's.
    FunctionRewriter._find_def = lambda _, lines: next(
        number for number, line in enumerate(lines, 1) if line.lstrip().startswith("def ")
    )


def _have_methods_of_blocks_found() -> None:
    """Mark the methods of a block that are functions of `tl.math`: Triton marks the functions alone, and the interpreter replaces
    what is marked. NumPy would call such a method of a block that it is given, and a GPU has no NumPy.
    """
    for name, method in vars(tl.tensor).items():
        if (
            inspect.isfunction(method)
            and hasattr(tl.math, name)
            and "_semantic" in inspect.signature(method).parameters
        ):
            setattr(method, tl.core.TRITON_BUILTIN, True)
    tl.tensor.__array_ufunc__ = None


def _own_names(function: Any) -> dict[str, Any]:
    code, scope = function.__code__, function.__globals__
    found = {name: scope[name] for name in code.co_names if _is_of_the_language(scope.get(name))}
    found |= {
        name: extremes.builtin(name) for name in extremes.ELEMENTWISE if name in code.co_names and name not in scope
    }
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        found[name] = cell.cell_contents
    return {name: _interpreted(one) if _is_of_the_language(one) else one for name, one in found.items()}


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
