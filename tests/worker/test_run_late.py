"""Code of the student's that runs when their function has returned: it is watched as the function is, or has no effect."""

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
X, UP = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
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
    run._earlier.clear()


def asked(
    function: Callable[..., Any], gradients: bool, keep: bool = False
) -> tuple[protocol.Reply, list[torch.Tensor]]:
    names = ["dx", "y"] if gradients else ["y"]
    with Arena({"x": X, "up": UP}, dict.fromkeys(names, (2, 3)), torch.float32, CPU) as arena:
        operands = arena.operands(["x"], "up" if gradients else None, names)
        request = protocol.MakeCalls(arena.address, (operands,), (), limit_s=60.0, keep=keep)
        reply = run.call(function, request, list(arena.files), "cpu")
        gc.collect()  # as the worker does when it has answered
        return reply, [arena.output(name) for name in names]


def won(reply: protocol.Reply, got: torch.Tensor) -> bool:
    return torch.equal(got, X.exp()) and "exp" not in {one.name for one in reply.operators}


@pytest.mark.parametrize("way", WAYS)
def test_what_runs_late_is_watched(way: str) -> None:
    reply, (got,) = asked(WAYS[way], gradients=False)
    assert reply.error is None, reply
    assert not won(reply, got)


def test_what_dies_with_an_earlier_result_is_watched() -> None:
    """A result that is kept dies in the next call."""

    def function(x: torch.Tensor) -> torch.Tensor:
        kept[:] = [Late(x)]
        y = torch.zeros_like(x)
        y.untyped_storage().heir = Heir()  # type: ignore[attr-defined]
        return y

    for _ in range(2):
        reply, (got,) = asked(function, gradients=False, keep=True)
        assert not won(reply, got)


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook", "backward"])
def test_what_runs_with_the_backward_pass_is_watched(hook: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 1

        def late(*_: Any) -> None:
            x.grad = X.exp()

        if hook == "backward":
            y.backward = late  # type: ignore[assignment, method-assign]
        else:
            getattr(x, hook)(late)
        return y

    reply, (got, _) = asked(function, gradients=True)
    assert not won(reply, got)
