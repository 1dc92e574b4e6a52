"""Calls that a worker makes together: all of them before the first backward pass, and before any result is handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader import protocol
from grader.pool.arena import Arena
from grader.worker import run

pytestmark = pytest.mark.grading

CPU = torch.device("cpu")
A, B = torch.arange(6.0).reshape(2, 3), torch.arange(6.0, 12.0).reshape(2, 3)
UP = torch.ones(2, 3)


def ask(
    function: Callable[..., Any], calls: list[list[str]], *, gradients: bool = False, reverse: bool = False
) -> tuple[list[str], list[torch.Tensor]]:
    """What came back of each result, and the results, of calls on the tensors a and b."""
    each = ["da", "y"] if gradients else ["y"]
    names = [f"{name} {number}" for number in range(len(calls)) for name in each]
    with Arena({"a": A, "b": B, "up": UP}, dict.fromkeys(names, (2, 3)), torch.float32, CPU) as arena:
        operands = tuple(
            arena.operands(call, "up" if gradients else None, names[number * len(each) : (number + 1) * len(each)])
            for number, call in enumerate(calls)
        )
        request = protocol.MakeCalls(arena.address, operands, (), limit_s=60.0, reverse=reverse)
        reply = run.call(function, request, list(arena.files), "cpu")
        assert reply.error is None, reply
        return [one.kind for one in reply.returned], [arena.output(name) for name in names]


def test_each_calls_result_lies_in_its_own_place() -> None:
    kinds, got = ask(lambda x: 2 * x, [["a"], ["b"], ["a"]])
    assert kinds == ["tensor"] * 3
    assert [one.tolist() for one in got] == [(2 * x).tolist() for x in (A, B, A)]


def test_a_tensor_that_is_there_twice_is_one_object() -> None:
    met: list[int] = []

    def note(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        met.extend([id(x), id(y)])
        return x + y

    ask(note, [["a", "a"], ["a", "b"]])
    assert met[0] == met[1] == met[2] != met[3]


def test_a_result_in_memory_of_an_earlier_calls_is_told() -> None:
    buffers = [torch.empty(2, 3), torch.empty(2, 3)]
    count = iter(range(9))
    kinds, _ = ask(lambda x: buffers[next(count) % 2].copy_(x), [["a"], ["a"], ["b"]])
    assert kinds == ["tensor", "tensor", "kept"]


order: list[str] = []


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        order.append(f"forward {float(x[0, 0]):g}")
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        order.append(f"backward {float(x[0, 0]):g}")
        return 3 * x**2 * upstream


@pytest.mark.parametrize("reverse", [False, True])
def test_forward_passes_come_before_the_backward_passes_in_either_order(reverse: bool) -> None:
    order.clear()
    _, got = ask(Cube.apply, [["a"], ["b"]], gradients=True, reverse=reverse)
    assert order == [
        "forward 0",
        "forward 6",
        *(["backward 6", "backward 0"] if reverse else ["backward 0", "backward 6"]),
    ]
    assert [one.tolist() for one in got] == [(3 * A**2).tolist(), (A**3).tolist(), (3 * B**2).tolist(), (B**3).tolist()]


def test_gradients_of_a_tensor_that_is_there_twice_are_not_added_up() -> None:
    _, got = ask(Cube.apply, [["b"], ["b"]], gradients=True)
    assert got[0].tolist() == got[2].tolist() == (3 * B**2).tolist()


def test_an_option_may_come_by_name_and_a_gradient_may_be_that_of_one_tensor_alone() -> None:
    met: list[bool] = []

    def product(x: torch.Tensor, y: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        met.extend([x.requires_grad, y.requires_grad])
        return factor * x * y

    with Arena({"a": A, "b": B, "up": UP}, dict.fromkeys(["db", "y"], (2, 3)), torch.float32, CPU) as arena:
        operands = (arena.operands(["a", "b"], "up", ["db", "y"]),)
        how: dict[str, Any] = {"named": (("factor", 3.0),), "wanted": (False, True)}
        reply = run.call(
            product, protocol.MakeCalls(arena.address, operands, (), 60.0, **how), list(arena.files), "cpu"
        )
        assert reply.error is None, reply
        assert met == [False, True]
        assert torch.equal(arena.output("db"), 3 * A)
        assert torch.equal(arena.output("y"), 3 * A * B)
