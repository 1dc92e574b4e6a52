"""Calls of a student's function on tensors in the arena.

All calls of a request run before the first backward pass, and before any result is handed in. What the student's code does
when the function has returned is watched as the function is, or has no effect.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
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
    function: Callable[..., Any], calls: list[list[str]], gradients: tuple[str, ...] = (), **how: Any
) -> tuple[protocol.Reply, list[torch.Tensor]]:
    """The reply to calls on the tensors a and b, and the results: the `gradients` and y of each call."""
    each = [*gradients, "y"]
    names = [f"{name} {number}" for number in range(len(calls)) for name in each]
    with Arena({"a": A, "b": B, "up": UP}, dict.fromkeys(names, (2, 3)), torch.float32, CPU) as arena:
        operands = tuple(
            arena.operands(call, "up" if gradients else None, names[number * len(each) : (number + 1) * len(each)])
            for number, call in enumerate(calls)
        )
        request = protocol.MakeCalls(arena.address, operands, (), limit_s=60.0, **how)
        reply = run.call(function, request, list(arena.files), "cpu")
        assert reply.error is None, reply
        gc.collect()  # as the worker does when it has answered
        return reply, [arena.output(name) for name in names]


# Several calls --------------------------------------------------------------------------------------------------------


def test_each_calls_result_lies_in_its_own_place() -> None:
    reply, got = ask(lambda x: 2 * x, [["a"], ["b"], ["a"]])
    assert [one.kind for one in reply.returned] == ["tensor"] * 3
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
    reply, _ = ask(lambda x: buffers[next(count) % 2].copy_(x), [["a"], ["a"], ["b"]])
    assert [one.kind for one in reply.returned] == ["tensor", "tensor", "kept"]


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
    _, got = ask(Cube.apply, [["a"], ["b"]], ("da",), reverse=reverse)
    assert order == [
        "forward 0",
        "forward 6",
        *(["backward 6", "backward 0"] if reverse else ["backward 0", "backward 6"]),
    ]
    assert [one.tolist() for one in got] == [(3 * A**2).tolist(), (A**3).tolist(), (3 * B**2).tolist(), (B**3).tolist()]


def test_gradients_of_a_tensor_that_is_there_twice_are_not_added_up() -> None:
    _, got = ask(Cube.apply, [["b"], ["b"]], ("da",))
    assert got[0].tolist() == got[2].tolist() == (3 * B**2).tolist()


def test_an_option_may_come_by_name_and_a_gradient_may_be_that_of_one_tensor_alone() -> None:
    met: list[bool] = []

    def product(x: torch.Tensor, y: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        met.extend([x.requires_grad, y.requires_grad])
        return factor * x * y

    _, (db, y) = ask(product, [["a", "b"]], ("db",), named=(("factor", 3.0),), wanted=(False, True))
    assert met == [False, True]
    assert torch.equal(db, 3 * A)
    assert torch.equal(y, 3 * A * B)


# Late ---------------------------------------------------------------------------------------------------------------

kept: list[Any] = []


class Late:
    """Computes the answer and writes it into the judge's memory, where the result's place is."""

    def __init__(self, x: torch.Tensor) -> None:
        whole = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        fill = bytes([protocol.FILL_BYTE]) * x.nbytes
        start = bytes(whole.tolist()).find(fill) // x.element_size()
        self.x = x.detach().clone()
        self.place = torch.empty(0).set_(x.untyped_storage(), start, tuple(x.shape), (3, 1))

    def __call__(self, *_: Any) -> torch.Tensor:
        return self.place.copy_(self.x.exp())


class Dies(Late):
    def __del__(self) -> None:
        self()


class Heir:
    def __del__(self) -> None:
        for late in kept:
            late()


class Stream:
    def __init__(self, late: Late, old: Any) -> None:
        self.flush, self.write = late, old.write


class Meta(type):
    __name__ = property(lambda _: [one() for one in kept] and "Result")  # type: ignore[assignment]


class Result(metaclass=Meta):
    pass


def with_attribute(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        setattr(y, name, Late(x))
        return y

    return function


def dying(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y.late = Dies(x)  # type: ignore[attr-defined]
    return y


def dying_in_a_circle(x: torch.Tensor) -> torch.Tensor:
    late = Dies(x)
    late.me = late  # type: ignore[attr-defined]
    return torch.zeros_like(x)


def dying_with_the_input(x: torch.Tensor) -> torch.Tensor:
    x.late = Dies(x)  # type: ignore[attr-defined]
    return torch.zeros_like(x)


def when_the_result_is_gone(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    weakref.finalize(y, Late(x))
    return y


def when_garbage_is_collected(x: torch.Tensor) -> torch.Tensor:
    gc.callbacks.append(Late(x))
    return torch.zeros_like(x)


def in_a_stream(x: torch.Tensor) -> torch.Tensor:
    sys.stdout = Stream(Late(x), sys.stdout)  # type: ignore[assignment]
    return torch.zeros_like(x)


def of_a_class(x: torch.Tensor) -> Any:
    kept.append(Late(x))
    return Result()


def on_a_stream(x: torch.Tensor, *places: torch.Tensor, **_: Any) -> torch.Tensor:
    for place in places:
        place.copy_(x.exp())
    return torch.zeros_like(x)


on_a_stream.on_stream = None  # type: ignore[attr-defined]  (as the worker's own functions have it)


class OfTheResult(torch.Tensor):
    @property
    def shape(self) -> Any:  # type: ignore[override]
        return [one() for one in kept] and torch.Size((2, 3))


def of_a_subclass(x: torch.Tensor) -> torch.Tensor:
    kept.append(Late(x))
    return torch.zeros_like(x).as_subclass(OfTheResult)


WAYS = {
    **{
        name: with_attribute(name)
        for name in ("detach", "copy_", "data_ptr", "numel", "stride", "element_size", "clone")
    },
    **{
        one.__name__: one
        for one in (
            *(dying, dying_in_a_circle, dying_with_the_input, when_the_result_is_gone, when_garbage_is_collected),
            *(in_a_stream, of_a_class, on_a_stream, of_a_subclass),
        )
    },
}


@pytest.fixture(autouse=True)
def everything_as_before() -> Iterator[None]:
    stream, callbacks = sys.stdout, gc.callbacks[:]
    yield
    sys.stdout, gc.callbacks[:] = stream, callbacks
    kept.clear()


def won(reply: protocol.Reply, got: torch.Tensor) -> bool:
    return torch.equal(got, A.exp()) and "exp" not in {one.name for one in reply.operators}


@pytest.mark.parametrize("way", WAYS)
def test_what_runs_late_is_watched(way: str) -> None:
    reply, (got,) = ask(WAYS[way], [["a"]])
    assert not won(reply, got)


def test_what_dies_with_an_earlier_result_is_watched() -> None:
    """A result that is kept dies in the next call."""

    def function(x: torch.Tensor) -> torch.Tensor:
        kept[:] = [Late(x)]
        y = torch.zeros_like(x)
        y.untyped_storage().heir = Heir()  # type: ignore[attr-defined]
        return y

    for keep in (True, True, False):
        reply, (got,) = ask(function, [["a"]], keep=keep)
        assert not won(reply, got)


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook", "backward"])
def test_what_runs_with_the_backward_pass_is_watched(hook: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1

        def late(*_: Any) -> None:
            x.grad = A.exp()

        if hook == "backward":
            y.backward = late  # type: ignore[assignment, method-assign]
        else:
            getattr(x, hook)(late)
        return y

    reply, (got, _) = ask(function, [["a"]], ("da",))
    assert not won(reply, got)
