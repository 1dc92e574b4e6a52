"""Makes `and`, `or` and `not` of blocks element by element in Triton's interpreter, and refuses a branch on a block, as
on a GPU; in Python a block is true.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter

# In the globals of a kernel
ALL, ANY, NOT = "_grader_all", "_grader_any", "_grader_not"
DECIDED = "_grader_decided"


def provide() -> None:
    """Have the interpreter rewrite these operators and the conditions of a kernel's text."""
    execute = FunctionRewriter._compile_and_exec

    def executed(rewriter: Any, tree: ast.Module) -> Any:
        return execute(rewriter, ast.fix_missing_locations(_Operators().visit(tree)))

    FunctionRewriter._compile_and_exec = executed
    for name, function in ((ALL, _combined(True)), (ANY, _combined(False)), (NOT, _negated), (DECIDED, _decided)):
        setattr(interpreter, name, function)


class _Operators(ast.NodeTransformer):
    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments([], [], None, [], [], None, [])
        values: list[ast.expr] = [ast.Lambda(nothing, one) for one in node.values]
        name = ast.Name(ALL if isinstance(node.op, ast.And) else ANY, ast.Load())
        return ast.copy_location(ast.Call(name, values, []), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name(NOT, ast.Load()), [node.operand], []), node)

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._visit_branch(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._visit_branch(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._visit_branch(node)

    def _visit_branch(self, node: ast.If | ast.IfExp | ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = ast.copy_location(ast.Call(ast.Name(DECIDED, ast.Load()), [node.test], []), node.test)
        return node


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block()


def _combined(goes_on: bool) -> Callable[..., Any]:
    def combined(*values: Callable[[], Any]) -> Any:
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

    return combined


def _negated(value: Any) -> Any:
    return value.__not__() if _is_block(value) else not value


def _decided(value: Any) -> Any:
    """A condition's value. Raises the compiler's words for a block of several numbers."""
    if _is_block(value) and value.type.numel > 1:
        raise TypeError("Boolean value of Tensor with more than one value is ambiguous")
    return value
