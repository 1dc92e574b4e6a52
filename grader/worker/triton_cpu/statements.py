"""Gives a kernel's statements in Triton's interpreter the meaning that they have on a GPU.

- The numbers that a kernel assigns are tensors: also those of a tuple, as in `low, high = 0, n`, of `start: tl.int32 = 0`,
  and of `start += 1`. The interpreter makes a tensor of a number that stands alone in `x = 0`.
- The variables of loops over `range` and `tl.range` are tensors; those of `tl.static_range` are not.
- `and`, `or` and `not` combine blocks element by element, and a branch on a block is refused; in Python a block is true.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import ASTTransformer, FunctionRewriter, TensorHandle

from grader.worker.triton_cpu.patches import Patches

# A kernel's globals have the interpreter's own functions under these names.
ASSIGNED, VALUES_OF_LOOP = "_grader_assigned", "_grader_values_of_loop"
COMBINED, NOT, DECIDED = "_grader_combined", "_grader_not", "_grader_decided"
PATCHES = Patches()


@PATCHES.replace(ASTTransformer, "visit_Assign")
def _visit_assign(visit: Callable[..., Any], rewriter: Any, node: ast.Assign) -> ast.Assign:
    value = node.value
    visit(rewriter, node)  # which refuses `a = b = 0`, as a GPU does
    node.value = ast.copy_location(ast.Call(ast.Name(ASSIGNED, ast.Load()), [value], []), value)
    return node


@PATCHES.add(ASTTransformer, "visit_AnnAssign")
def _visit_with_annotation(rewriter: Any, node: ast.AnnAssign) -> ast.AST:
    if node.value is None:
        return node
    made = rewriter.visit(ast.copy_location(ast.Assign([node.target], node.value), node))
    made.value.args.append(node.annotation)
    return made  # type: ignore[no-any-return]


@PATCHES.add(ASTTransformer, "visit_AugAssign")
def _visit_in_place(rewriter: Any, node: ast.AugAssign) -> ast.AST:
    if not isinstance(node.target, ast.Name):
        return node
    before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
    after = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
    return rewriter.visit(ast.copy_location(ast.Assign([node.target], after), node))  # type: ignore[no-any-return]


@PATCHES.add(ASTTransformer, "visit_For")
def _visit_loop(rewriter: Any, loop: ast.For) -> ast.AST:
    rewriter.generic_visit(loop)
    call = loop.iter
    if isinstance(call, ast.Call) and "range" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
        call.args.insert(0, call.func)
        call.func = ast.Name(VALUES_OF_LOOP, ast.Load())
    return loop


@PATCHES.replace(FunctionRewriter, "_compile_and_exec")
def _compiled(compile: Callable[..., Any], rewriter: Any, tree: ast.Module) -> Any:
    return compile(rewriter, ast.fix_missing_locations(_Operators().visit(tree)))


@PATCHES.add(interpreter, ASSIGNED)
def _assigned(value: Any, annotation: Any = None) -> Any:
    if annotation is tl.constexpr:
        return value
    if isinstance(value, tl.tuple):
        return tl.tuple([_assigned(one) for one in value.values], value.type)
    if isinstance(value, list | tuple):
        parts = [_assigned(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return interpreter.interpreter_semantic.to_tensor(value, False)


@PATCHES.add(interpreter, VALUES_OF_LOOP)
def _values(numbers: Callable[..., range], *bounds: Any, **options: Any) -> Iterator[Any]:
    """The values of a loop: int64 tensors if one of the bounds has 64 bits, else int32."""
    is_wide = any(getattr(one, "dtype", None) in (tl.int64, tl.uint64) for one in bounds)
    dtype, kept = (tl.int64, np.int64) if is_wide else (tl.int32, np.int32)
    for number in numbers(*bounds, **options):
        yield tl.tensor(TensorHandle(np.array([number], dtype=kept), dtype), dtype)


class _Operators(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments([], [], None, [], [], None, [])
        goes_on = ast.Constant(isinstance(node.op, ast.And))
        values = [ast.Lambda(nothing, one) for one in node.values]
        return ast.copy_location(ast.Call(ast.Name(COMBINED, ast.Load()), [goes_on, *values], []), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name(NOT, ast.Load()), [node.operand], []), node)

    def _visit_branch(self, node: ast.If | ast.IfExp | ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(ast.Call(ast.Name(DECIDED, ast.Load()), [node.test], []), node.test)
        return node

    visit_If = visit_IfExp = visit_While = _visit_branch  # noqa: N815


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block()


@PATCHES.add(interpreter, COMBINED)
def _combined(goes_on: bool, *values: Callable[[], Any]) -> Any:
    """`and` of values, which goes on after true ones, or `or`, which goes on after false ones."""
    found = values[0]()
    for value in values[1:]:
        if not _is_block(found) and bool(found) is not goes_on:
            return found
        other = value()
        if _is_block(found) and isinstance(other, tl.tensor):
            found = found.logical_and(other) if goes_on else found.logical_or(other)
        elif not _is_block(found) or bool(other) is not goes_on:  # a constant may decide alone
            found = other
    return found


@PATCHES.add(interpreter, NOT)
def _negated(value: Any) -> Any:
    return value.__not__() if _is_block(value) else not value


@PATCHES.add(interpreter, DECIDED)
def _decided(value: Any) -> Any:
    """A condition's value. Raises the compiler's words for a block of several numbers."""
    if _is_block(value) and value.type.numel > 1:
        raise TypeError("Boolean value of Tensor with more than one value is ambiguous")
    return value
