"""Makes variables of loops tensors in Triton's interpreter, as on a GPU: those of `range` and `tl.range`, not of
`tl.static_range`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

NAME = "_grader_values_of_loop"  # A kernel's globals have the interpreter's own function under this name.
WIDE = {tl.int64, tl.uint64}


def provide() -> None:
    """Have the interpreter, which rewrites assignments of a kernel, rewrite its loops over `range` and `tl.range` too."""

    def visit(transformer: ast.NodeTransformer, loop: ast.For) -> ast.AST:
        transformer.generic_visit(loop)
        call = loop.iter
        if isinstance(call, ast.Call) and "range" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
            call.args.insert(0, call.func)
            call.func = ast.Name(NAME, ast.Load())
        return loop

    interpreter.ASTTransformer.visit_For = visit
    setattr(interpreter, NAME, values)


def values(numbers: Callable[..., range], *bounds: Any, **options: Any) -> Iterator[Any]:
    """The values of a loop: int64 tensors if one of the bounds has 64 bits, else int32."""
    is_wide = any(getattr(one, "dtype", None) in WIDE for one in bounds)
    dtype, kept = (tl.int64, np.int64) if is_wide else (tl.int32, np.int32)
    for number in numbers(*bounds, **options):
        yield tl.tensor(TensorHandle(np.array([number], dtype=kept), dtype), dtype)
