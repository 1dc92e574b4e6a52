"""The judge's checks, to be taken out one by one: each check is a `raise` in one of these modules."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from dataclasses import dataclass

MODULES = (
    "grader.judge.asking",
    "grader.judge.calls",
    "grader.judge.comparison",
    "grader.judge.ownership",
    "grader.judge.properties",
)
ENDS = ("Fault",)


@dataclass(frozen=True)
class Check:
    """A `raise` of a module, named by the beginning of its exception."""

    module: str
    raised: str

    def remove(self) -> None:
        """Let this process's judge go on at this `raise`."""
        module = importlib.import_module(self.module)
        tree = ast.parse(inspect.getsource(module))
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and _raised(node) == self.raised]
        assert len(found) == 1, self
        changed = types.ModuleType(module.__name__)
        changed.__dict__.update(module.__dict__)
        exec(compile(_Without(found[0]).visit(tree), str(module.__file__), "exec"), changed.__dict__)
        _take_over(vars(module), vars(changed), module.__name__)


def all_checks() -> list[Check]:
    """All checks, in the order of the source."""
    checks = []
    for name in MODULES:
        tree = ast.parse(inspect.getsource(importlib.import_module(name)))
        raises = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        raises.sort(key=lambda node: node.lineno)
        checks += [Check(name, _raised(node)) for node in raises if _raised(node).startswith((*ENDS, "self."))]
    return checks


def _raised(node: ast.Raise) -> str:
    return "" if node.exc is None else ast.unparse(node.exc)[:90]


class _Without(ast.NodeTransformer):
    def __init__(self, unwanted: ast.Raise) -> None:
        self._unwanted = unwanted

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node is self._unwanted else node


def _take_over(old: dict[str, object], new: dict[str, object], module: str) -> None:
    """Give functions that other modules have imported the code of the new ones."""
    for name, thing in list(old.items()):
        if getattr(thing, "__module__", None) != module:
            continue
        if isinstance(thing, types.FunctionType):
            thing.__code__ = new[name].__code__  # type: ignore[attr-defined]
        elif isinstance(thing, type):
            _take_over(dict(vars(thing)), dict(vars(new[name])), module)  # type: ignore[call-overload]
