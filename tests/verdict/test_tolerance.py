"""The error budget counts what its formulas say: hand-computed examples, non-finite values, and laws it must keep."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from grader.verdict import tolerance
from grader.verdict.tolerance import Errors, beyond, budget, is_within, measure, relative_errors, scales

INF, NAN = math.inf, math.nan
ONE = torch.tensor(1.0, dtype=torch.float64)


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def one_output(got: torch.Tensor, expected: torch.Tensor, kind: str, unit: float = 1.0) -> Errors:
    scale = scales({"y": expected}, {"y": kind}, unit)["y"]
    return measure(got, expected, scale, kind)


# Hand-computed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "unit", "got", "expected", "errors"),
    [
        ("element", 1.0, [2.2, -0.4, 0.3], [2.0, -0.5, 0.0], [0.2 / 2, 0.1, 0.3]),
        ("element", 0.25, [2.2, -0.4, 0.3], [2.0, -0.5, 0.0], [0.2 / 2, 0.1 / 0.5, 0.3 / 0.25]),
        ("row", 1.0, [[1.4, -4.0], [0.5, 0.35]], [[1.0, -4.0], [0.5, 0.25]], [0.4 / 4, 0.0, 0.0, 0.1 / 0.5]),
    ],
)
def test_errors_are_relative_to_the_larger_of_element_and_unit_or_to_the_largest_of_the_row(
    kind: str, unit: float, got: object, expected: object, errors: list[float]
) -> None:
    found = one_output(f64(got), f64(expected), kind, unit)
    assert found.worst == pytest.approx(max(errors))
    assert found.rms == pytest.approx(math.sqrt(sum(one**2 for one in errors) / len(errors)))


def test_errors_of_all_are_relative_to_the_root_mean_square_of_all_outputs_together() -> None:
    expected = {"dq": f64([[0.0, 0.0]]), "dk": f64([[1.0, 2.0]]), "dv": f64([[2.0, 4.0]])}
    scale = scales(expected, dict.fromkeys(expected, "all"), unit=1.0)
    common = math.sqrt((1 + 4 + 4 + 16) / 6)
    assert [float(one) for one in scale.values()] == pytest.approx([common] * 3)
    assert measure(f64([[2.0, 3.0]]), expected["dk"], scale["dk"], "all").worst == pytest.approx(1 / common)


def test_only_outputs_of_the_kind_all_share_a_scale() -> None:
    expected = {"o": f64([[100.0, 100.0]]), "dq": f64([[3.0, 4.0]])}
    scale = scales(expected, {"o": "row", "dq": "all"}, unit=1.0)
    assert float(scale["dq"]) == pytest.approx(math.sqrt(25 / 2))
    assert scale["o"].tolist() == [[100.0]]


def test_a_scale_of_nothing_but_zeros_is_tiny_but_not_zero() -> None:
    for kind in ("row", "all"):
        assert one_output(torch.zeros(1, 3), f64([[0.0, 0.0, 0.0]]), kind) == Errors(0.0, 0.0)
        assert one_output(f64([[1e-20, 0.0, 0.0]]), f64([[0.0, 0.0, 0.0]]), kind).worst == pytest.approx(1e10)


def test_infinities_and_nan_do_not_enter_a_rows_scale() -> None:
    scale = scales({"y": f64([[1.0, -INF, 2.0], [NAN, NAN, NAN], [0.5, INF, NAN]])}, {"y": "row"}, 1.0)["y"]
    assert scale.flatten().tolist() == [2.0, tolerance.TINY, 0.5]


def test_the_rms_for_a_constant_scale_is_the_relative_frobenius_norm() -> None:
    generator = torch.Generator().manual_seed(1)
    expected = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    got = expected + 1e-3 * torch.randn(7, 5, generator=generator, dtype=torch.float64)
    relative_norm = float(torch.linalg.norm(got - expected) / torch.linalg.norm(expected))
    assert one_output(got, expected, "all").rms == pytest.approx(relative_norm, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_errors_are_computed_in_float64_whatever_the_outputs_dtype(dtype: torch.dtype) -> None:
    expected = f64([1 / 3, 2 / 3])
    got = expected.to(dtype)
    error = (got.double() - expected).abs()
    assert one_output(got, expected, "element").worst == float(error.max())


# Non-finite values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["element", "row"])
def test_the_same_infinities_and_nan_are_right(kind: str) -> None:
    expected = f64([[INF, -INF, NAN, 1.0]])
    assert one_output(expected.float(), expected, kind) == Errors(0.0, 0.0)


@pytest.mark.parametrize("kind", ["element", "row"])
def test_what_is_not_finite_on_one_side_is_an_infinite_error(kind: str) -> None:
    of_nan = [(NAN, 1.0), (NAN, INF), (NAN, -INF), (1.0, NAN), (INF, NAN)]
    for got, expected in (
        *of_nan,
        *[(INF, 1.0), (-INF, 1.0), (1.0, INF), (1.0, -INF), (INF, -INF), (-INF, INF), (0.0, -INF)],
    ):
        errors = one_output(f64([[2.0, got, 2.0]]), f64([[2.0, expected, 2.0]]), kind)
        assert errors == Errors(INF, INF), (got, expected)
        assert not errors.within(Errors(1e300, 1e300))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", ["element", "row", "all"])
def test_a_wrong_element_in_a_later_slice_is_seen(monkeypatch: pytest.MonkeyPatch, bad: float, kind: str) -> None:
    monkeypatch.setattr(tolerance, "CHUNK", 2)
    expected = torch.ones(4, 2, dtype=torch.float64)
    got = expected + 0.001
    got[2, 1] = bad
    assert one_output(got, expected, kind) == Errors(INF, INF)


def test_an_exact_answer_has_no_error_not_even_a_negative_zero() -> None:
    errors = one_output(f64([[1.0, -2.0]]), f64([[1.0, -2.0]]), "element")
    assert [str(errors.worst), str(errors.rms)] == ["0.0", "0.0"]


def test_errors_whose_squares_float32_does_not_hold_are_counted() -> None:
    errors = one_output(torch.tensor([1e30, 1.0]), torch.tensor([1.0, 1.0]), "element")
    assert errors.worst == pytest.approx(1e30)
    assert errors.rms == pytest.approx(1e30 / math.sqrt(2))


# Empty outputs and chunks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["element", "row", "all"])
@pytest.mark.parametrize("chunk", [1, 7, 13, 64, 10**9])
def test_chunks_change_neither_the_errors_nor_the_elements_beyond_a_limit(
    monkeypatch: pytest.MonkeyPatch, chunk: int, kind: str
) -> None:
    generator = torch.Generator().manual_seed(2)
    expected = torch.randn(23, 3, 4, generator=generator, dtype=torch.float64) * torch.arange(1, 24)[:, None, None]
    got = expected + torch.randn(23, 3, 4, generator=generator, dtype=torch.float64)
    scale = scales({"y": expected}, {"y": kind}, 1.0)["y"]
    whole = relative_errors(got, expected, scale, kind)
    monkeypatch.setattr(tolerance, "CHUNK", chunk)
    errors = measure(got, expected, scale, kind)
    assert errors.worst == float(whole.max())
    assert errors.rms == pytest.approx(float(whole.square().mean().sqrt()), rel=1e-12)
    limit = float(whole.median())
    expected[7, 0, 0] = got[7, 0, 0] = -INF
    got[5, 1, 2], got[22, 2, 3] = NAN, INF
    whole[7, 0, 0], whole[5, 1, 2], whole[22, 2, 3] = 0, INF, INF
    assert torch.equal(beyond(got, expected, scale, kind, limit), whole > limit)


@pytest.mark.parametrize(
    "shape", [(), (0,), (3,), (3, 0), (0, 3), (3, 0, 2), (tolerance.LOOK + 3,), (3, tolerance.LOOK)]
)
def test_an_output_of_any_shape_is_looked_at_in_slices(shape: tuple[int, ...]) -> None:
    expected = torch.ones(shape, dtype=torch.float64)
    for kind in ("element", "row", "all"):
        scale = scales({"y": expected}, {"y": kind}, 1.0)["y"]
        for off in (0.0, 0.25):
            errors = measure(expected - off, expected, scale, kind)
            assert (errors.worst, errors.rms) == pytest.approx([off if expected.numel() else 0.0] * 2)
            assert bool((beyond(expected - off, expected, scale, kind, 0.25 / 2) == (off > 0)).all())
            for limit in (0.0, 0.3):
                assert is_within(expected - off, expected, scale, kind, Errors(limit, limit)) == (errors.worst <= limit)


class Differences(TorchFunctionMode):
    """Notes the elements of each subtraction."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.sub:
            self.sizes.append(args[0].numel())
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["element", "row", "all"])
def test_within_is_known_from_slices_as_from_all(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    expected = torch.randn(5, tolerance.LOOK // 2, generator=generator, dtype=torch.float64)  # slices of two rows
    scale = scales({"y": expected}, {"y": kind}, 1.0)["y"]
    got = expected + 0.01 * torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    for first, last in [(0.0, 0.0), (0.0, 5.0), (5.0, 0.0), (0.0, NAN)]:
        one = got.clone()
        one[0, 0] += first
        one[-1, -1] += last
        errors = measure(one, expected, scale, kind)
        for limit in (errors, Errors(errors.worst, errors.rms / 2), Errors(errors.worst / 2, errors.rms), Errors(1, 1)):
            assert is_within(one, expected, scale, kind, limit) == errors.within(limit), (first, last, limit)


def test_what_is_wrong_at_its_beginning_is_not_looked_at_to_its_end() -> None:
    right = torch.ones(5, tolerance.LOOK // 2, dtype=torch.float64)
    with Differences() as seen:
        assert not is_within(torch.zeros_like(right), right, ONE, "element", Errors(0.1, 0.1))
    assert seen.sizes == [tolerance.LOOK]


def test_a_chunk_holds_no_more_elements_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded: at most CHUNK elements are looked at together, unless one row has more."""
    sizes = []
    original = tolerance.differences

    def spy(got: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(got.numel())
        return original(got, *rest)

    monkeypatch.setattr(tolerance, "differences", spy)
    monkeypatch.setattr(tolerance, "CHUNK", 20)
    one_output(torch.zeros(10, 6), torch.ones(10, 6, dtype=torch.float64), "row")
    assert sizes == [18, 18, 18, 6]
    sizes.clear()
    one_output(torch.zeros(3, 50), torch.ones(3, 50, dtype=torch.float64), "row")
    assert sizes == [50, 50, 50]


def test_the_limit_itself_is_not_beyond_it() -> None:
    assert beyond(f64([1.5, 1.75, 1.0]), f64([1.0, 1.0, 1.0]), ONE, "element", 0.5).tolist() == [False, True, False]


# Budgets --------------------------------------------------------------------------------------------------------------


def test_a_budget_is_k_yardsticks_and_the_floor() -> None:
    assert budget(6, Errors(1e-3, 2e-4), Errors(0.5, 0.25)) == Errors(6e-3 + 0.5, 1.2e-3 + 0.25)


@pytest.mark.parametrize("bad", [INF, NAN])
def test_a_yardstick_that_is_not_finite_leaves_only_the_floor(bad: float) -> None:
    assert budget(6, Errors(bad, 1e-3), Errors(0.5, 0.25)) == Errors(0.5, 6e-3 + 0.25)
    assert budget(6, Errors(1e-3, bad), Errors(0.5, 0.25)) == Errors(6e-3 + 0.5, 0.25)


def test_within_needs_both_the_worst_and_the_rms() -> None:
    assert Errors(1.0, 0.5).within(Errors(1.0, 0.5))
    assert not Errors(1.1, 0.5).within(Errors(1.0, 0.5))
    assert not Errors(1.0, 0.6).within(Errors(1.0, 0.5))
    assert not Errors(NAN, 0.1).within(Errors(1.0, 0.5))
    assert not Errors(0.1, NAN).within(Errors(1.0, 0.5))


def test_the_larger_of_two_errors_is_taken_apart_for_worst_and_rms() -> None:
    assert Errors.larger(Errors(1.0, 0.1), Errors(0.5, 0.2)) == Errors(1.0, 0.2)


# Laws -----------------------------------------------------------------------------------------------------------------

values = st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=24)
kinds = st.sampled_from(["element", "row", "all"])
powers = st.integers(-40, 40).map(lambda power: 2.0**power)  # exact: nothing is rounded by them


@given(values, st.data(), powers, kinds)
def test_errors_do_not_depend_on_the_unit_of_measurement(
    expected: list[float], data: st.DataObject, by: float, kind: str
) -> None:
    """An output, its oracle and the unit in another unit have the same relative errors."""
    right = f64([expected])
    got = right + f64([data.draw(st.lists(st.floats(-1, 1), min_size=len(expected), max_size=len(expected)))])
    if kind != "element" and float(right.abs().max()) < 1e-9:
        return  # TINY is an absolute number
    before, after = one_output(got, right, kind, unit=1.0), one_output(by * got, by * right, kind, unit=by)
    assert (after.worst, after.rms) == pytest.approx((before.worst, before.rms), rel=1e-12)


@given(values, kinds)
def test_only_a_different_output_has_an_error(expected: list[float], kind: str) -> None:
    right = f64([expected])
    assert one_output(right.clone(), right, kind) == Errors(0.0, 0.0)
    wrong = right.clone()
    wrong[0, -1] += 1.0
    errors = one_output(wrong, right, kind)
    assert errors.worst > 0
    assert errors.worst / math.sqrt(len(expected)) <= errors.rms * (1 + 1e-12)
    assert errors.rms <= errors.worst * (1 + 1e-12)


@given(values, kinds, st.integers(0, 2**32))
def test_the_order_of_rows_does_not_matter(expected: list[float], kind: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    right = torch.outer(f64(expected), f64([1.0, -0.5, 3.0]))
    got = right + torch.randn(right.shape, generator=generator, dtype=torch.float64)
    order = torch.randperm(len(expected), generator=generator)
    before, after = one_output(got, right, kind), one_output(got[order], right[order], kind)
    assert (after.worst, after.rms) == pytest.approx((before.worst, before.rms), rel=1e-12)
