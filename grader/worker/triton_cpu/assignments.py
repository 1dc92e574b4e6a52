"""Makes tensors of the numbers that a kernel assigns in Triton's interpreter, as on a GPU: also those of a tuple, as in
`low, high = 0, n`, of `start: tl.int32 = 0`, and of `start += 1`.
"""

from __future__ import annotations

import ast
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

NAME = "_grader_assigned"  # A kernel's globals have the interpreter's own function under this name.


def provide() -> None:
    """Have the interpreter, which makes a tensor of a number that stands alone in `x = 0`, rewrite every assignment."""
    visit = interpreter.ASTTransformer.visit_Assign

    def visit_assign(rewriter: Any, node: ast.Assign) -> ast.Assign:
        value = node.value
        visit(rewriter, node)  # which refuses `a = b = 0`, as a GPU does
        node.value = ast.copy_location(ast.Call(ast.Name(NAME, ast.Load()), [value], []), value)
        return node

    def visit_with_annotation(rewriter: Any, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        made = visit_assign(rewriter, ast.copy_location(ast.Assign([node.target], node.value), node))
        made.value.args.append(node.annotation)  # type: ignore[attr-defined]
        return made

    def visit_in_place(rewriter: Any, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return node
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        after = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return visit_assign(rewriter, ast.copy_location(ast.Assign([node.target], after), node))

    interpreter.ASTTransformer.visit_Assign = visit_assign
    interpreter.ASTTransformer.visit_AnnAssign = visit_with_annotation
    interpreter.ASTTransformer.visit_AugAssign = visit_in_place
    setattr(interpreter, NAME, _assigned)


def _assigned(value: Any, annotation: Any = None) -> Any:
    if annotation is tl.constexpr:
        return value
    if isinstance(value, tl.tuple):
        return tl.tuple([_assigned(one) for one in value.values], value.type)
    if isinstance(value, list | tuple):
        parts = [_assigned(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return interpreter.interpreter_semantic.to_tensor(value, False)
