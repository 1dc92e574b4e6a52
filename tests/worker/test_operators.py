"""What runs inside an operator of the student's is recorded, by whatever way it is registered; the worker's own work is not."""

from __future__ import annotations

import gc
import importlib.util
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.worker import errors, operators
from grader.worker.operators import OperatorWatch, unwatched, watching

HEAD = """
import torch
from torch.nn.functional import gelu

def setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)

def backward(ctx, g):
    (x,) = ctx.saved_tensors
    return torch.tanh(x) * g
"""
IN_LIBRARY = """
lib = torch.library.Library("{name}", "DEF")
lib.define("f(Tensor x) -> Tensor")
"""
# Each defines `f`, around gelu in its forward pass, and tanh in its backward pass if it has one.
WAYS = {
    "custom_op": """
@torch.library.custom_op("{name}::f", mutates_args=())
def f(x: torch.Tensor) -> torch.Tensor: return gelu(x)
f.register_autograd(backward, setup_context=setup)
""",
    "custom_op_for_a_device": """
@torch.library.custom_op("{name}::f", mutates_args=(), device_types="cpu")
def f(x: torch.Tensor) -> torch.Tensor: return gelu(x)
torch.library.register_autograd("{name}::f", backward, setup_context=setup)
""",
    "triton_op": """
@torch.library.triton_op("{name}::f", mutates_args=())
def f(x: torch.Tensor) -> torch.Tensor: return gelu(x)
f.register_autograd(backward, setup_context=setup)
""",
    "library": IN_LIBRARY
    + """
lib.impl("f", gelu, "CPU")
torch.library.register_autograd("{name}::f", backward, setup_context=setup, lib=lib)
f = torch.ops.{name}.f
""",
    "library_of_every_device": IN_LIBRARY
    + """
@torch.library.impl(lib, "f", "CompositeExplicitAutograd")
def kernel(x): return gelu(x)
torch.library.register_autograd("{name}::f", backward, setup_context=setup, lib=lib)
f = torch.ops.{name}.f.default
""",
    "library_without_python": IN_LIBRARY
    + """
lib.m.impl("f", "CPU", gelu, False)
def f(x): return torch.ops.{name}.f(x.detach())
""",
    "writes_in_place": """
@torch.library.custom_op("{name}::g", mutates_args=("y",))
def g(x: torch.Tensor, y: torch.Tensor) -> None: y.copy_(gelu(x))
def f(x):
    y = torch.empty_like(x)
    g(x.detach(), y)
    return y
""",
    "without_tensors": """
@torch.library.custom_op("{name}::g", mutates_args=())
def g(n: int) -> torch.Tensor: return gelu(torch.ones(n))
def f(x): return g(len(x))
""",
    "of_lists": """
lib = torch.library.Library("{name}", "DEF")
lib.define("g(Tensor[] x) -> Tensor[]")
lib.impl("g", lambda x: [gelu(one) for one in x], "CPU")
def f(x): return torch.ops.{name}.g([x.detach()])[0]
""",
    "within_another": """
@torch.library.custom_op("{name}::g", mutates_args=())
def g(x: torch.Tensor) -> torch.Tensor: return gelu(x)
@torch.library.custom_op("{name}::f", mutates_args=())
def f(x: torch.Tensor) -> torch.Tensor: return g(x)
f.register_autograd(backward, setup_context=setup)
""",
    "without_memory": """
lib = torch.library.Library("{name}", "DEF")
lib.define("g(Tensor x) -> Tensor")
def f(x):
    lib.impl("g", lambda _: gelu(x), "Meta")
    return torch.ops.{name}.g(torch.empty(1, device="meta"))
""",
}


@pytest.fixture
def submission(tmp_path: Path) -> Iterator[Callable[[str], types.ModuleType]]:
    """Imports this source as a file of a submission."""
    errors.set_root(tmp_path)

    def imported(source: str) -> types.ModuleType:
        (tmp_path / "kernel.py").write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("kernel", tmp_path / "kernel.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield imported
    errors.set_root(Path())


def names_of(function: Callable[[torch.Tensor], Any]) -> set[str]:
    watch, x = OperatorWatch(), torch.randn(3, requires_grad=True)
    with watching(watch):
        y = function(x)
        if y.requires_grad:
            y.backward(torch.ones_like(y))
    return {one.name for one in watch.seen}


@pytest.mark.parametrize("way", WAYS)
def test_an_operator_of_the_students_is_entered(way: str, submission: Callable[[str], types.ModuleType]) -> None:
    names = names_of(submission(HEAD + WAYS[way].replace("{name}", f"of_tests_{way}")).f)
    assert "gelu" in names
    assert ("tanh" in names) == ("setup_context" in WAYS[way])


def test_pytorchs_own_operators_outside_of_aten_still_run() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("a label"):
            return torch.ops.prims.exp(x.detach())

    assert "exp" in names_of(function)


@pytest.mark.parametrize(
    "how", ['torch.library.Library("aten", "IMPL")', 'type(lib)("aten", "IMPL")', 'type(lib)("_", "IMPL")']
)
def test_pytorchs_operators_keep_their_kernels(
    how: str, submission: Callable[[str], types.ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.library.Library, "__init__", torch.library.Library.__init__)
    operators.protect_pytorchs_operators()
    with pytest.raises(RuntimeError, match="is PyTorch's"):
        submission(f'import torch\nlib = torch.library.Library("of_tests_mine", "DEF")\nother = {how}')
    torch.library.Library("aten", "IMPL")  # as PyTorch's own modules do


def test_the_workers_own_work_is_unwatched_and_nothing_else_runs_in_it() -> None:
    watch, x = OperatorWatch(), torch.ones(3)
    with watching(watch):
        with unwatched():
            assert not gc.isenabled()
            x.copy_(torch.zeros(3))
        assert gc.isenabled()
        assert watch.seen == ()
        x.exp()
    assert [one.name for one in watch.seen] == ["exp"]
