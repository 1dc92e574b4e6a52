"""What PyTorch's operators move in a traced call, and how much memory is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grader.worker import errors
from grader.worker.operators import OperatorWatch
from grader.worker.traffic import LARGE_BYTES, Traffic

X = torch.ones(100, 50)


@pytest.fixture
def traffic() -> Traffic:
    errors.set_root(Path(__file__).parent)
    return Traffic()


def moved(traffic: Traffic, function: Any) -> dict[str, tuple[int, int, int]]:
    with OperatorWatch(run=traffic.run):
        function()
    return {one.name: (one.calls, one.read_bytes, one.written_bytes) for one in traffic.operators()}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: X.to(torch.float16), {"_to_copy": (1, 20_000, 10_000)}),
        (lambda: X.t().contiguous(), {"clone": (1, 20_000, 20_000)}),
        (lambda: X.contiguous(), {}),
        (lambda: torch.zeros(100), {"zeros": (1, 0, 400)}),
        (lambda: torch.zeros_like(X), {"zeros_like": (1, 0, 20_000)}),
        (lambda: X.new_full((7,), 1.0), {"new_full": (1, 0, 28)}),
        (lambda: torch.empty(100), {}),
        (lambda: torch.empty_like(X), {}),
        (lambda: X.clone().add_(X[0]), {"clone": (1, 20_000, 20_000), "add_": (1, 20_200, 20_000)}),
        (lambda: torch.empty(100, 50).copy_(X), {"copy_": (1, 20_000, 20_000)}),
        (lambda: torch.add(X, X, out=torch.empty(100, 50)), {"add": (1, 40_000, 20_000)}),
        (lambda: X[:1].expand(100, 50) + 1, {"add": (1, 200, 20_000)}),
        (lambda: [X.sum(1) for _ in range(3)], {"sum": (3, 60_000, 1200)}),
        (lambda: X @ X.t(), {"mm": (1, 40_000, 40_000)}),
        (lambda: torch.cat([X, X]), {"cat": (1, 40_000, 40_000)}),
        (lambda: X.view(50, 100)[3:].t().unsqueeze(0), {}),
    ],
)
def test_operators_move_what_they_read_and_write(traffic: Traffic, function: Any, expected: object) -> None:
    assert moved(traffic, function) == expected


def test_an_operator_has_the_students_line(traffic: Traffic) -> None:
    moved(traffic, X.exp)
    (one,) = traffic.operators()
    assert one.place.startswith("test_traffic.py:")


def test_large_operators_make_shapes_only(traffic: Traffic) -> None:
    large = torch.empty(LARGE_BYTES // 4 // 64, 64)
    large[0] = 1.0
    found: list[torch.Tensor] = []

    def call() -> None:
        found.extend((large.to(torch.float16), large.t().contiguous(), large.sum(1), large * large[:1], large.add_(1)))
        found.extend(torch.max(large, 1))
        found.append(torch.zeros(LARGE_BYTES, dtype=torch.int8))

    moved(traffic, call)
    rows = len(large)
    shapes = [(rows, 64), (64, rows), (rows,), (rows, 64), (rows, 64), (rows,), (rows,), (LARGE_BYTES,)]
    assert [one.shape for one in found] == shapes
    assert [one.dtype for one in found[:1]] + [one.dtype for one in found[6:]] == [
        torch.float16,
        torch.int64,
        torch.int8,
    ]
    assert large[0, 0] == 1.0  # not computed
    assert found[4] is large
    assert not found[2].any()  # small results are zeros, not whatever lay in memory


def test_operators_whose_results_depend_on_values_run(traffic: Traffic) -> None:
    large = torch.zeros(LARGE_BYTES // 4)
    large[5] = 3.0
    found: list[Any] = []
    moved(traffic, lambda: found.extend((large.nonzero(), large.sum().item())))
    assert found[0].tolist() == [[5]]


def test_an_allocation_of_the_call_has_a_number_as_long_as_it_lives(traffic: Traffic) -> None:
    kept = [torch.empty(10)]

    def call() -> None:
        first, second = torch.empty(1000), torch.empty(300)
        kept.extend((first[10:], second))  # the first lives on in the view

    moved(traffic, call)
    numbers = [traffic.number_of(one) for one in kept]
    assert numbers[0] is None
    assert len({*numbers}) == 3
    kept.pop()
    moved(traffic, lambda: kept.append(torch.empty(300)))
    assert traffic.number_of(kept[-1]) not in numbers
