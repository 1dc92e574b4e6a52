"""The table of what is changed in Triton's interpreter names every change, and each finds what it replaces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from triton.runtime import interpreter

from grader.worker.triton_cpu import patches
from tests.conftest import ROOT

WORKER = ROOT / "grader" / "worker"
OWNERS = (
    "ASTTransformer",
    "FunctionRewriter",
    "GridExecutor",
    "InterpretedFunction",
    "InterpreterBuilder",
    "TensorHandle",
)
OWNERS += ("interpreter",)
ADDED = {
    "InterpreterBuilder.get_bf16",
    "InterpreterBuilder.create_descriptor_reduce",
    "ASTTransformer.visit_For",
    "ASTTransformer.visit_AnnAssign",
    "ASTTransformer.visit_AugAssign",
}  # which Triton lacks


def _changed(file: Path) -> Iterator[str]:
    """The names of triton.runtime.interpreter that a module assigns to."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for one in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(one, ast.Attribute) and (name := ast.unparse(one)).split(".")[0] in OWNERS:
                    yield name.removeprefix("interpreter.")


def test_every_change_stands_in_the_table() -> None:
    for module in sorted({one.module for one in patches.PATCHES}):
        told = {name for one in patches.PATCHES if one.module == module for name in one.names}
        assert set(_changed(WORKER / f"{module}.py")) - ADDED <= told, module


def test_the_table_names_every_module_that_changes_the_interpreter() -> None:
    files = [file for file in WORKER.rglob("*.py") if any(_changed(file))]
    named = {WORKER / f"{one.module}.py" for one in patches.PATCHES}
    assert set(files) <= named


def test_this_triton_has_all_that_is_replaced() -> None:
    patches.check()


def test_a_triton_without_one_of_them_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(interpreter, "_implicit_cvt")
    monkeypatch.delattr(interpreter.InterpreterBuilder, "create_masked_load")
    with pytest.raises(RuntimeError, match=r"has no _implicit_cvt, InterpreterBuilder\.create_masked_load$"):
        patches.check()
