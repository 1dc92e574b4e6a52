"""Every name of Triton's interpreter that is changed is in the list, and a Triton without one of them is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from triton.runtime import interpreter

from grader.worker.triton_cpu import patches
from tests.conftest import ROOT

OWNERS = {
    *(
        "ASTTransformer",
        "FunctionRewriter",
        "GridExecutor",
        "InterpretedFunction",
        "InterpreterBuilder",
        "TensorHandle",
    ),
    *("ReduceScanOpInterface", "interpreter"),
}
# Triton lacks these.
ADDED = {
    *("InterpreterBuilder.get_bf16", "InterpreterBuilder.create_descriptor_reduce"),
    *("ASTTransformer.visit_For", "ASTTransformer.visit_AnnAssign", "ASTTransformer.visit_AugAssign"),
}


def _changed(file: Path) -> Iterator[str]:
    """The names of triton.runtime.interpreter that a module assigns to."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(one, ast.Attribute) and (name := ast.unparse(one)).split(".")[0] in OWNERS:
                    yield name.removeprefix("interpreter.")


def test_every_change_stands_in_the_list() -> None:
    changed = {name for file in (ROOT / "grader" / "worker").rglob("*.py") for name in _changed(file)}
    assert len(changed) > 30
    assert changed - ADDED <= set(patches.NAMES)


def test_this_triton_has_all_that_is_replaced() -> None:
    patches.check()


def test_a_triton_without_one_of_them_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpreter, "_implicit_cvt")
    monkeypatch.delattr(interpreter.InterpreterBuilder, "create_masked_load")
    with pytest.raises(RuntimeError, match=r"has no InterpreterBuilder\.create_masked_load, _implicit_cvt$"):
        patches.check()
