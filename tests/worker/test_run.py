"""What a worker hands in lies in its place where it fits, whatever else is handed in with it, and is described as what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader.protocol import Returned, Time
from grader.worker.errors import MAX_MESSAGE, describe
from grader.worker.run import COPIED_ALONE_BYTES, NotDifferentiable, deliver, gradients, overlap, unused_blocks
from grader.worker.timing import MappedBench
from grader.worker.yardsticks import NOTHING, load

X = torch.ones(3, 4)


def place() -> torch.Tensor:
    return torch.full((3, 4), torch.nan)


def given(*results: Any) -> tuple[list[torch.Tensor], list[Returned]]:
    places = [place() for _ in results]
    return places, deliver([(result, slot, [X]) for result, slot in zip(results, places, strict=True)])


def test_results_lie_in_their_places_in_order() -> None:
    strided = torch.arange(24.0).reshape(4, 6)[:, ::2].T
    places, words = given(2 * X, strided, (3 * X).requires_grad_(), torch.tensor(4.0).expand(3, 4))
    assert [slot.tolist() for slot in places] == [
        (2 * X).tolist(),
        strided.tolist(),
        (3 * X).tolist(),
        (4 * X).tolist(),
    ]
    assert {one.kind for one in words} == {"tensor"}
    assert not any(slot.requires_grad for slot in places)


def test_what_does_not_fit_is_described_and_nothing_else_suffers() -> None:
    misfits = [
        X.double(),
        X.half(),
        2 * X[:2],
        (2 * X).reshape(4, 3),
        torch.nn.Parameter(X.clone()),
        X.to("meta"),
        "words",
        None,
    ]
    places, words = given(2 * X, *misfits, 3 * X)
    assert places[0].tolist() == (2 * X).tolist()
    assert places[-1].tolist() == (3 * X).tolist()
    assert all(slot.isnan().all() for slot in places[1:-1])
    assert [one.kind for one in words] == ["tensor"] * 5 + ["subclass", "tensor", "other", "other", "tensor"]
    assert [one.dtype for one in words[:3]] == ["float32", "float64", "float16"]
    assert words[3].shape == (2, 4)
    assert words[6].device == "meta"


def test_an_input_is_told_from_a_result_that_has_no_gradient() -> None:
    _, (returned, without) = given(X, NotDifferentiable(X))
    assert returned.kind == "input"
    assert (without.kind, without.type, without.shape) == ("not_differentiable", "Tensor", (3, 4))


def test_memory_that_two_results_have_in_common_is_noticed_and_nothing_beside_it() -> None:
    pool = torch.zeros(8, 6)
    assert overlap(pool[:4], pool[3:])
    assert overlap(pool, pool.view(-1)[47:])
    assert not overlap(pool[:4], pool[4:])
    assert not overlap(pool, torch.zeros(8, 6))
    assert not overlap(pool, pool[:0])


class Collecting(MappedBench):
    """After a batch of two calls with two outputs each."""

    def __init__(self, results: list[list[Any]], places: list[list[torch.Tensor]], calls: int = 2) -> None:
        self._device, self.results, self._places = "cpu", results, places
        self._sets = [([X], None, [])] * calls
        self._gate, self._options, self._checked = None, [], True


def test_every_call_hands_in_all_of_its_outputs_each_to_its_place() -> None:
    places = [[place(), place()] for _ in range(2)]
    bench = Collecting([[1 * X, 2 * X], [3 * X, 4 * X]], places)
    reply = bench.collect([1, 0])
    assert reply.error is None
    assert [[slot[0, 0].item() for slot in slots] for slots in places] == [[3.0, 4.0], [1.0, 2.0]]
    assert [[one.kind for one in kind] for kind in reply.kinds] == [["tensor", "tensor"]]


def test_calls_that_hand_in_other_things_are_all_described() -> None:
    bench = Collecting([[1 * X, 2 * X], [3 * X, X.half()]], [[place(), place()] for _ in range(2)])
    kinds = bench.collect([0, 1]).kinds
    assert [[one.dtype for one in kind] for kind in kinds] == [["float32", "float32"], ["float32", "float16"]]


def test_the_null_entrant_hands_in_as_many_tensors_as_a_submission() -> None:
    bench = Collecting([], [[place(), place()] for _ in range(5)], calls=5)
    assert bench.time(load("null"), Time(5, 5, False, 0), lambda: None).error is None
    assert len({tensor.data_ptr() for results in bench.results for tensor in results}) == 10
    reply = bench.collect([4, 3, 2, 1, 0])
    assert [[one.kind for one in kind] for kind in reply.kinds] == [["tensor", "tensor"]]


def test_the_null_entrant_returns_nothing_where_functions_write_to_their_outputs() -> None:
    bench = Collecting([], [])
    assert bench.time(load("null"), Time(2, 2, False, 0), lambda: None).error is None
    assert bench.results == [[NOTHING]] * 2


def test_what_is_large_is_copied_by_itself() -> None:
    """The driver's copy is the fastest there is: whoever hands in faster than the null worker would gain by it."""
    together: list[int] = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ == "_foreach_copy_":
                together.extend(slot.nbytes for slot in args[0])
            return func(*args, **(kwargs or {}))

    sizes = [COPIED_ALONE_BYTES // 4 - 1, COPIED_ALONE_BYTES // 4, 7, COPIED_ALONE_BYTES // 4 + 1]
    results = [torch.randn(size) for size in sizes]
    places = [torch.zeros(size) for size in sizes]
    with Copies():
        told = deliver([(result, place, [X]) for result, place in zip(results, places, strict=True)])
    assert [one.kind for one in told] == ["tensor"] * 4
    assert all(torch.equal(place, result) for place, result in zip(places, results, strict=True))
    assert together == [COPIED_ALONE_BYTES - 4, 28]


def test_with_the_gradients_comes_the_result_itself() -> None:
    """Whoever trains with it has both."""
    x, y = torch.arange(3.0, requires_grad=True), torch.ones(3, requires_grad=True)
    dx, dy, result = gradients(x * y, [x, y], torch.full((3,), 2.0))
    assert (dx.tolist(), dy.tolist(), result.tolist()) == ([2.0] * 3, [0.0, 2.0, 4.0], [0.0, 1.0, 2.0])
    assert not result.requires_grad


def test_of_several_backward_passes_the_last_ones_gradients_count() -> None:
    x = torch.arange(3.0, requires_grad=True)
    dx, _ = gradients(x * x, [x], torch.ones(3), backwards=3)
    assert dx.tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("value", [None, torch.ones(3), torch.ones(2, requires_grad=True)])
def test_what_has_no_gradient_stands_in_the_place_of_all(value: Any) -> None:
    x = torch.ones(3, requires_grad=True)
    found = gradients(value, [x, x], torch.ones(3))
    assert [type(one) for one in found] == [NotDifferentiable] * 3


def test_the_end_of_a_long_error_is_kept() -> None:
    """Triton's errors end in their reason, which has a hint."""
    told = describe(ValueError("at 99:8:\n" + "    source\n" * 1000 + "unsupported AST node type: Break"))
    assert told.message.startswith("at 99:8:")
    assert told.message.endswith("unsupported AST node type: Break")
    assert len(told.message) == MAX_MESSAGE


def test_free_blocks_of_gpu_memory_are_found_behind_those_in_use() -> None:
    """As `torch.cuda.memory_snapshot()` has them. That they are filled before a call is seen on a GPU, by the corpus."""

    def segment(address: int, *blocks: tuple[str, int]) -> dict[str, Any]:
        return {"address": address, "blocks": [{"state": state, "size": size} for state, size in blocks]}

    segments = [
        segment(1000, ("active_allocated", 512), ("inactive", 1024), ("active_pending_free", 512), ("inactive", 64)),
        segment(9000, ("inactive", 2048)),
        segment(20000, ("active_allocated", 2048)),
    ]
    assert list(unused_blocks(segments)) == [(1512, 1024), (3048, 64), (9000, 2048)]
    assert list(unused_blocks([])) == []
