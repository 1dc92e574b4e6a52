"""Refuses in Triton's interpreter the parts of Python that Triton's compiler takes with no signature, as `break` or a lambda.

What the compiler takes is asked of its own `CodeGenerator`. It goes through all of a kernel's text, loops that make no
turn included; of an `if` it takes both branches where the condition is a tensor, and else the one that the constant
chooses. So a refused part counts from the beginning of the block that has it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import triton.language as tl
from triton.compiler.code_generator import CodeGenerator, ContainsReturnChecker
from triton.runtime import interpreter
from triton.runtime.interpreter import FunctionRewriter

from grader.worker.triton_cpu import statements
from grader.worker.triton_cpu.names import is_tritons
from grader.worker.triton_cpu.patches import Patches

# In the globals of a kernel
REFUSED, IS_TENSOR = "_grader_refused_syntax", "_grader_is_tensor"
CONDITION = "_grader_condition"  # A variable of this name is put into a kernel.
RETURN_IN_A_LOOP = "Cannot have `return` statements inside `while` or `for` statements in triton."
OPERATORS = {
    ast.Compare: {ast.Is, ast.IsNot, *CodeGenerator._method_name_for_comp_op},
    ast.BinOp: {*CodeGenerator._method_name_for_bin_op},
}

PATCHES = Patches()


class UnsupportedLanguageConstruct(Exception):
    """The compiler's error of this name, without its copy of the source."""


class Refused(NamedTuple):
    """A part of a kernel that no GPU's compiler takes, and the compiler's words about it."""

    node: ast.AST
    why: str


@PATCHES.replace(FunctionRewriter, "_compile_and_exec")
def _compiled(compile: Callable[..., Any], rewriter: Any, tree: ast.Module) -> Any:
    """Have a kernel raise where Triton's compiler would refuse its text."""
    if not is_tritons(rewriter.fn):
        (kernel,) = tree.body
        assert isinstance(kernel, ast.FunctionDef)
        kernel.body = _block(kernel.body, in_loop=False)
        ast.fix_missing_locations(tree)
    return compile(rewriter, tree)


@PATCHES.add(interpreter, REFUSED)
def _refuse(why: str) -> NoReturn:
    raise UnsupportedLanguageConstruct(why)


@PATCHES.add(interpreter, IS_TENSOR)
def _is_tensor(condition: Any) -> bool:
    return isinstance(condition, tl.tensor)


def _block(statements: list[ast.stmt], in_loop: bool) -> list[ast.stmt]:
    """The statements; if one is refused, a statement that raises why."""
    if (found := _of_block(statements, in_loop)) is not None:
        return [_raising(found)]
    return [changed for one in statements for changed in _changed(one, in_loop)]


def _changed(statement: ast.stmt, in_loop: bool) -> Iterator[ast.stmt]:
    """A statement that is itself taken, with its blocks looked at."""
    if isinstance(statement, ast.If):
        returns = in_loop and ContainsReturnChecker({}).visit(statement)
        found = Refused(statement, RETURN_IN_A_LOOP) if returns else None
        found = found or _of_block(statement.body, in_loop) or _of_block(statement.orelse, in_loop)
        if found is not None:
            condition = ast.Name(CONDITION, ast.Load())
            is_tensor = ast.Call(ast.Name(IS_TENSOR, ast.Load()), [condition], [])
            yield ast.copy_location(ast.Assign([ast.Name(CONDITION, ast.Store())], statement.test), statement)
            yield ast.copy_location(ast.If(is_tensor, [_raising(found)], []), statement)
            statement.test = ast.copy_location(condition, statement.test)
        statement.body, statement.orelse = _block(statement.body, in_loop), _block(statement.orelse, in_loop)
    elif isinstance(statement, ast.For | ast.While | ast.With):
        statement.body = _block(statement.body, in_loop or _is_loop(statement))
    yield statement


def _raising(found: Refused) -> ast.stmt:
    call = ast.Call(ast.Name(REFUSED, ast.Load()), [ast.Constant(found.why)], [])
    return ast.copy_location(ast.Expr(call), found.node)


def _of_block(statements: list[ast.stmt], in_loop: bool) -> Refused | None:
    """The first refused part of these statements. The compiler looks at none after a `return`."""
    for one in statements:
        if found := _within(one, in_loop):
            return found
        if isinstance(one, ast.Return):
            return Refused(one, RETURN_IN_A_LOOP) if in_loop else None
    return None


def _within(node: ast.AST, in_loop: bool = False) -> Refused | None:
    """The first refused part of what the compiler looks at wherever it looks at `node`."""
    if why := _why_refused(node):
        return Refused(node, why)
    if isinstance(node, ast.For | ast.While):
        return _of_block(node.body, in_loop=True) if _is_loop(node) else None
    if isinstance(node, ast.With):
        return _of_block(node.body, in_loop)
    return next(filter(None, map(_within, _parts(node))), None)


def _parts(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.If() | ast.IfExp():
            return [node.test]
        case ast.BoolOp():  # a constant may decide alone
            return node.values[:1]
        case ast.Call():
            arguments = node.args[:1] if _name(node.func) == "static_assert" else node.args
            starred = [one.value if isinstance(one, ast.Starred) else one for one in arguments]
            return [node.func, *starred, *(one.value for one in node.keywords)]
        case ast.JoinedStr():
            return [one.value for one in node.values if isinstance(one, ast.FormattedValue)]
        case ast.ListComp():
            return [node.generators[0].iter]
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr | ast.keyword)]


def _why_refused(node: ast.AST) -> str:
    """The compiler's words about a node, whatever the values in it; "" if it takes some."""
    kind = type(node).__name__
    if not hasattr(CodeGenerator, f"visit_{kind}"):
        return f"unsupported AST node type: {kind}"
    match node:
        case ast.FunctionDef():
            return "nested function definition is not supported."
        case ast.Compare(ops=[_, _, *_]):
            return "simultaneous multiple comparison is not supported"
        case ast.Compare(ops=[operator]) | ast.BinOp(op=operator) if type(operator) not in OPERATORS[type(node)]:
            return f"AST operator '{type(operator).__name__}' is not implemented."
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
            return _why_no_target(target)
        case ast.While(orelse=[_, *_]) | ast.For(orelse=[_, *_]) if _is_loop(node):
            return "`else` after a loop is not supported"
        case ast.For(iter=iterated, target=target):
            if not isinstance(iterated, ast.Call):
                return "Only `range` and `static_range` iterators are currently supported"
            return "" if isinstance(target, ast.Name) else _why_no_target(target) or "a loop has one variable"
        case ast.ListComp(generators=[_, _, *_]):
            return "nested comprehensions are not supported"
        case ast.ListComp(generators=[ast.comprehension(iter=ast.Call(func=function))]):
            return "only tuple comprehensions are supported" if _name(function) == "range" else ""
    return ""


def _why_no_target(target: ast.expr) -> str:
    match target:
        case ast.Name():
            return ""
        case ast.Tuple():
            return next(filter(None, map(_why_no_target, target.elts)), "")
        case ast.Subscript():
            return "__setitem__ is not supported in triton"
        case ast.Attribute():
            return "Attribute assignment is not supported in triton"
    return f"unsupported AST node type: {type(target).__name__} on the left of `=`"


def _is_loop(node: ast.AST) -> bool:
    """Whether a node is a loop on a GPU: a `while`, or a `for` over `range` or `tl.range`, which `statements.py` has marked."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        return _name(node.iter.func) == statements.VALUES_OF_LOOP
    return isinstance(node, ast.While)


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))
