"""The diagnosis names where an output is wrong and recognises the usual patterns, and only those."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.assignment import load_assignment
from grader.problem import Call, Mistakes, load_problem
from grader.protocol import EARLY_VALUE, GUARD_BYTE, POISON_BYTE
from grader.verdict import diagnosis
from grader.verdict.diagnosis import differs, explain, explain_call, poisoned, small_errors
from grader.verdict.rounding import cut_to_bfloat16
from grader.verdict.suspects import Scene
from tests.conftest import ROOT as COURSE

INF, NAN = math.inf, math.nan
LN_2 = math.log(2)
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
# What each sentence about a cause is known by.
CAUSES = (
    "never written",
    "where the right answer is finite",
    "every element is",
    "transposed",
    "times expected throughout",
    "a factor of its own",
    "one place too",
    "in another order",
    "times float16's rounding",
    "times bfloat16's rounding",
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def story(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-4) -> list[str]:
    bad = ~((got.double() - expected).abs() <= tolerance * expected.abs().max())
    assert bool(bad.any()), "the example is not wrong at all"
    return explain("y", got, expected, bad)


def poison(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Memory as the judge leaves it before a call."""
    size = math.prod(shape) * dtype.itemsize
    return torch.frombuffer(bytearray([POISON_BYTE] * size), dtype=dtype).view(shape)


# The first line: where and how many -----------------------------------------------------------------------------------


def test_the_first_wrong_element_is_named_with_its_index_and_both_values() -> None:
    expected = normal(3, 4, 5)
    got = expected.float()
    got[1, 2, 3], got[2, 0, 0] = 7.5, 9.0
    expected[1, 2, 3] = -0.125
    first = story(got, expected)[0]
    assert (
        first == "y[1, 2, 3] is the first wrong element: expected -0.125, got 7.5; 2 of 60 elements (3.33%) are wrong"
    )


def test_an_output_that_is_wrong_everywhere_says_all() -> None:
    expected = normal(10)
    assert story(expected + 100 + normal(10, seed=1), expected)[0].endswith("; all 10 elements are wrong")


def test_a_single_element_is_told_in_the_singular() -> None:
    lines = explain("y", torch.tensor([2.5]), torch.tensor([1.0], dtype=torch.float64), torch.tensor([True]))
    assert lines == ["y[0] is the first wrong element: expected 1, got 2.5; it is wrong"]


def test_a_scalar_has_no_index() -> None:
    lines = explain("y", torch.tensor(2.5), torch.tensor(1.0, dtype=torch.float64), torch.tensor(True))
    assert lines[0].startswith("y is the first wrong element")


def test_a_first_element_that_was_never_written_is_not_shown_as_nan() -> None:
    got = poison((4,), torch.float32)
    assert "expected 1, got never written;" in story(got, torch.ones(4, dtype=torch.float64))[0]


# Never written --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_recognised_bit_by_bit(dtype: torch.dtype) -> None:
    values = torch.cat([poison((2,), dtype), torch.tensor([NAN, -NAN, 0.0, -0.0, INF, -INF, 1.0], dtype=dtype)])
    assert poisoned(values).tolist() == [True, True] + [False] * 7
    assert poisoned(values.view(3, 3).t()).tolist() == [[True, False, False], [True, False, False], [False] * 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_arithmetic_nan_is_taken_for_poison(dtype: torch.dtype) -> None:
    zero, inf = torch.zeros(1, dtype=dtype), torch.full((1,), INF, dtype=dtype)
    for nan in (zero / zero, inf - inf, zero * inf, -(zero / zero), torch.sqrt(zero - 1), torch.log(zero - 1)):
        assert bool(nan.isnan().all())
        assert not bool(poisoned(nan).any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_computed_from_poison_or_a_guard_band_is_not_called_never_written(dtype: torch.dtype) -> None:
    """A kernel that reads what it may not and writes what comes of it has written something."""
    guard = torch.full((dtype.itemsize,), GUARD_BYTE, dtype=torch.uint8).view(dtype)
    for value in (guard, poison((1,), dtype)):
        for computed in (
            2 * value,
            value + value,
            value / 3,
            -value,
            value * value,
            torch.exp(value),
            torch.softmax(value, 0),
        ):
            assert not bool(poisoned(computed).any())
    assert not bool(poisoned(guard).any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_finite_and_unlike_any_answer(dtype: torch.dtype) -> None:
    value = float(poison((1,), dtype))
    assert math.isfinite(value)
    assert abs(value) > 6e4


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_maximum_that_starts_in_unwritten_memory_is_not_right_by_luck(dtype: torch.dtype) -> None:
    """A large negative number would act as -inf."""
    row = torch.tensor([0.5, 2.0, -1.0], dtype=dtype)
    assert float(torch.maximum(poison((1,), dtype), row.max())) != 2.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_never_written_is_counted(dtype: torch.dtype) -> None:
    expected = normal(100)
    got = expected.to(dtype, copy=True)
    got[90:] = poison((10,), dtype)
    lines = story(got, expected, tolerance=0.05)
    assert lines[1] == (
        "10 of 100 elements (10%) were never written: consistent with a grid that is too small, or elements left over at the "
        "end that nobody handles"
    )
    assert lines[2] == "only elements 90–99 of 100 are wrong"


def test_nothing_written_at_all() -> None:
    lines = story(poison((8,), torch.float32), normal(8))
    assert lines[1].startswith(
        "all 8 elements were never written: consistent with no launch, results that went elsewhere"
    )


@pytest.mark.parametrize(
    ("unwritten", "cause"),
    [
        (slice(25, 100), "only the first quarter was written"),
        (slice(26, 100), "a grid that is too small"),
        (slice(0, 1), "no thread or program takes for its own"),
        (slice(0, 100, 3), "no thread or program takes for its own"),
    ],
)
def test_what_was_never_written_has_a_cause_by_its_place(unwritten: slice, cause: str) -> None:
    expected = normal(100)
    got = expected.to(torch.float32, copy=True)
    got[unwritten] = poison((1,), torch.float32)
    assert cause in story(got, expected)[1]


# Not finite -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "cause"),
    [
        (
            [NAN, NAN],
            "NaN",
            "inf − inf, 0/0, exp of a large number, or numbers from beyond an input's end, where the grader has put NaN",
        ),
        (
            [INF, -INF],
            "infinite",
            "an overflow, of what the formula makes or of exp of a number from beyond a tensor's end",
        ),
        (
            [INF, NAN],
            "NaN or infinite",
            "inf − inf, 0/0, exp of a large number, or numbers from beyond an input's end, where the grader has put NaN",
        ),
    ],
)
def test_nan_and_overflow_are_told_apart(values: list[float], kind: str, cause: str) -> None:
    expected = normal(4, 10)
    got = expected.float()
    got[2, 3], got[3, 1] = values
    lines = story(got, expected)
    assert lines[1] == (
        f"2 of 40 elements (5%) are {kind} where the right answer is finite, first at [2, 3]: consistent with {cause}"
    )


def test_an_infinity_that_is_right_is_no_overflow() -> None:
    expected = normal(40)
    expected[3] = INF
    got = expected.float()
    got[5] += 3
    bad = torch.zeros(40, dtype=torch.bool)
    bad[5] = True
    assert not any("finite" in line for line in explain("y", got, expected, bad))


# Patterns of the values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_a_constant_output_did_not_run(value: float) -> None:
    lines = story(torch.full((6, 7), value), normal(6, 7))
    cause = "a factor that is 0, as 1 / 2 is in integers, or a kernel" if value == 0 else "a kernel"
    assert lines[1] == f"every element is {value:g}: consistent with {cause} that stored nothing"


@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (2, 8, 8), (3, 4, 6)])
def test_a_transposed_output_is_recognised(shape: tuple[int, ...]) -> None:
    expected = normal(*shape)
    got = expected.transpose(-1, -2).contiguous().view(shape)
    assert "transposed" in story(got.float(), expected)[1]


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (math.log(2), "which is ln 2: consistent with mixing base-e and base-2"),
        (1 / math.log(2), "which is log2 e: consistent with mixing base-e and base-2"),
        (8.0, "which is √d for d = 64: consistent with a missing or doubled scale"),
        (1 / 8, "which is 1/√d for d = 64: consistent with a missing or doubled scale"),
        (64.0, "which is d for d = 64"),
        (1 / 64, "which is 1/d for d = 64"),
        (-1.0, "which is -1: the sign is wrong"),
        (2.0, "which is 2"),
        (0.5, "which is 1/2"),
        (3.3, "times expected throughout"),
        (-0.7, "times expected throughout"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_factor_is_named(factor: float, words: str, dtype: torch.dtype) -> None:
    expected = normal(3, 20, 64)
    lines = story((factor * expected).to(dtype), expected, tolerance=0.01)
    assert words in lines[1]
    assert float(re.search(r"(\S+) times expected", lines[1])[1]) == pytest.approx(factor, rel=1e-2)  # type: ignore[index]


@pytest.mark.parametrize("d", [16, 32, 128])
def test_the_root_of_another_head_dimension_is_named_too(d: int) -> None:
    expected = normal(20, d)
    assert f"√d for d = {d}" in story((math.sqrt(d) * expected).float(), expected)[1]


def test_a_factor_on_the_wrong_elements_alone_is_seen_through_right_ones() -> None:
    expected = normal(50, 64)
    got = expected.float()
    got[30:40] *= 8
    lines = story(got, expected)
    assert "√d" in lines[1]
    assert lines[2] == "only rows 30–39 of 50 are wrong"


def test_rows_that_are_each_off_by_their_own_factor_have_a_wrong_sum() -> None:
    expected = torch.softmax(normal(10, 50), -1)
    factors = torch.linspace(0.5, 0.9, 10, dtype=torch.float64)
    lines = story((expected * factors[:, None]).float(), expected)
    assert (
        "every row is right but for a factor of its own, from 0.5 to 0.9: consistent with a wrong row sum" in lines[1]
    )


def test_what_vanishes_beside_the_rest_of_a_row_does_not_hide_its_factor() -> None:
    """Most entries of a peaked row are far below its largest, and come out as 0."""
    expected = torch.softmax(8 * normal(10, 50), -1)
    factors = torch.linspace(0.5, 0.9, 10, dtype=torch.float64)
    got = (expected * factors[:, None]).masked_fill(expected < 1e-3 * expected.amax(-1, keepdim=True), 0.0)
    assert "a factor of its own, from 0.5 to 0.9" in story(got.float(), expected)[1]


def test_a_row_of_zeros_has_no_factor_that_could_be_told() -> None:
    expected = normal(10, 20)
    expected[4] = 0
    got = expected * torch.linspace(0.5, 0.9, 10, dtype=torch.float64)[:, None]
    assert not any("nan" in line for line in story(got.float(), expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_right_rows_do_not_hide_those_with_a_wrong_sum(dtype: torch.dtype) -> None:
    expected = torch.softmax(normal(10, 50), -1)
    got = expected.clone()
    got[5:] *= 0.8
    got[6] *= 0.5
    assert "a factor of its own, from 0.4 to 1" in story(got.to(dtype), expected)[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_does_not_hide_rows_with_a_wrong_sum(dtype: torch.dtype) -> None:
    expected = torch.softmax(normal(10, 50), -1)
    got = expected.clone()
    got[5:] *= 0.8
    got[6] *= 0.5
    assert "a factor of its own" in story(got.to(dtype), expected, tolerance=0.01)[1]


@pytest.mark.parametrize(("shift", "word"), [(1, "late"), (-1, "early")])
@pytest.mark.parametrize("shape", [(100,), (7, 33)])
def test_values_one_place_off_are_recognised(shape: tuple[int, ...], shift: int, word: str) -> None:
    expected = normal(*shape)
    assert f"one place too {word}" in story(expected.roll(shift, -1).float(), expected)[1]


def test_what_runs_into_the_edge_does_not_hide_a_shift() -> None:
    expected = normal(100)
    got = expected.roll(1).float()
    got[0] = 55.0
    assert "one place too late" in story(got, expected)[1]


# Which positions ------------------------------------------------------------------------------------------------------


def spoiled(expected: torch.Tensor, where: object) -> torch.Tensor:
    """Noise where the output is to be wrong, which is no pattern of values."""
    got = expected.clone()
    noise = 3 + normal(*expected.shape, seed=9).abs() * normal(*expected.shape, seed=8).sign()
    got[where] += noise[where]
    return got.float()


@pytest.mark.parametrize(
    ("size", "low", "block"),
    [
        (1025, 1024, 1024),
        (1023, 512, 512),
        (100, 96, 32),
        (100, 64, 64),
        (200, 192, 64),
        (10007, 8192, 8192),
        (255, 240, 16),
    ],
)
def test_a_partial_last_block_is_recognised_by_where_it_starts(size: int, low: int, block: int) -> None:
    last = story(spoiled(normal(size), slice(low, None)), normal(size))[-1]
    span = f"element {low} of {size} is" if low == size - 1 else f"elements {low}–{size - 1} of {size} are"
    assert last == (
        f"only {span} wrong, what is left after full blocks of {block}: "
        "consistent with a last, partial block that is not handled or masked"
    )


def test_rows_of_a_partial_block_are_found_in_any_batch_entry() -> None:
    expected = normal(2, 100, 16)
    assert (
        "only rows 96–99 of 100 are wrong, what is left after full blocks of 32"
        in story(spoiled(expected, (slice(None), slice(96, None))), expected)[-1]
    )


@pytest.mark.parametrize(
    ("size", "where"), [(100, slice(95, None)), (128, slice(64, None)), (100, slice(64, 99)), (128, slice(127, None))]
)
def test_other_ends_are_no_partial_block(size: int, where: slice) -> None:
    assert "block" not in story(spoiled(normal(size), where), normal(size))[-1]


@pytest.mark.parametrize(
    ("shape", "where", "words"),
    [
        ((20,), (slice(7, 8),), "only element 7 of 20 is wrong"),
        ((20, 30), (7,), "only row 7 of 20 is wrong"),
        ((20, 30), (slice(None), 7), "only column 7 of 30 is wrong"),
        ((20, 30), (slice(4, 9),), "only rows 4–8 of 20 are wrong"),
        ((20, 30), (slice(None), slice(0, 3)), "only columns 0–2 of 30 are wrong"),
        ((5, 20, 30), (2,), "only batch entry 2 of 5 is wrong"),
        ((5, 20, 30), (slice(2, 4),), "only batch entries 2–3 of 5 are wrong"),
        ((5, 20, 30), (slice(None), 4), "only row 4 of 20 is wrong"),
        ((2, 3, 20, 30), (slice(None), slice(1, 3)), "only indices of dimension 1 1–2 of 3 are wrong"),
        ((24,), (slice(1, None, 4),), "only every 4th element is wrong, from 1 to 21 of 24"),
        ((24, 5), (slice(2, None, 7),), "only every 7th row is wrong, from 2 to 23 of 24"),
        ((24,), (slice(1, None, 2),), "only every 2nd element is wrong, from 1 to 23 of 24"),
        ((24,), (slice(1, None, 3),), "only every 3rd element is wrong, from 1 to 22 of 24"),
        ((90,), (slice(0, None, 11),), "only every 11th element is wrong, from 0 to 88 of 90"),
        ((90,), (slice(0, None, 21),), "only every 21st element is wrong, from 0 to 84 of 90"),
        ((20,), ([3, 9],), "the wrong elements lie scattered between 3 and 9 of 20"),
        ((20, 30), ([3, 9],), "2 of 20 rows have wrong elements, the first is 3, the last 9"),
        ((20, 30), ([0, 3, 4, 11],), "4 of 20 rows have wrong elements, the first is 0, the last 11"),
    ],
)
def test_the_wrong_part_is_named(shape: tuple[int, ...], where: object, words: str) -> None:
    assert story(spoiled(normal(*shape), where), normal(*shape))[-1] == words


def test_where_everything_is_wrong_no_part_is_named() -> None:
    expected = normal(20, 30)
    assert len(story(spoiled(expected, slice(None)), expected)) == 1


def test_a_dimension_that_is_wrong_throughout_is_passed_over() -> None:
    """Every batch entry and every row has its last column wrong: only the column is worth a word."""
    expected = normal(4, 10, 16)
    assert story(spoiled(expected, (..., 15)), expected)[-1] == "only column 15 of 16 is wrong"


# No pattern where there is none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", [(64,), (1000,), (8, 8), (20, 33), (2, 16, 16), (3, 50, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_random_errors_are_no_pattern(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    expected = normal(*shape, seed=seed)
    got = (expected + normal(*shape, seed=seed + 1000)).to(dtype)
    assert not [line for line in story(got, expected, tolerance=0.02) for cause in CAUSES if cause in line]


@pytest.mark.parametrize("seed", range(20))
def test_a_few_random_errors_are_no_pattern(seed: int) -> None:
    expected = torch.softmax(normal(30, 40, seed=seed), -1)
    got = expected.clone()
    for place in torch.randint(1200, (5,), generator=torch.Generator().manual_seed(seed)).tolist():
        got.view(-1)[place] += 0.1 + 0.01 * place / 1200
    assert not [line for line in story(got.float(), expected) for cause in CAUSES if cause in line]


def test_unrelated_values_are_not_called_transposed_or_shifted() -> None:
    expected, other = normal(16, 16), normal(16, 16, seed=5)
    assert not [line for line in story(other.float(), expected) if "transposed" in line or "place too" in line]


def test_a_symmetric_output_is_not_called_transposed() -> None:
    base = normal(8, 8)
    expected = base + base.t()
    got = expected.clone()
    got[0, 0] += 0.015 * float(expected.abs().max())  # wrong, but no more transposed than it was
    assert not any("transposed" in line for line in story(got.float(), expected))


def test_three_elements_are_too_few_for_a_factor() -> None:
    expected = normal(30).abs() + 0.5
    got = expected.clone()
    got[[3, 9, 20]] *= 2
    assert not any("times expected" in line for line in story(got.float(), expected))


def test_zeros_in_a_part_of_the_output_are_no_factor_of_zero() -> None:
    expected = normal(30, 20)
    got = expected.clone()
    got[10:20] = 0
    lines = story(got.float(), expected)
    assert lines[1:] == ["only rows 10–19 of 30 are wrong"]


def test_zeros_in_a_part_of_a_vector_are_no_factor_of_zero() -> None:
    expected = normal(30)
    got = expected.clone()
    got[10:20] = 0
    assert story(got.float(), expected)[1:] == ["only elements 10–19 of 30 are wrong"]


def test_rows_that_are_off_by_rounding_have_no_factor() -> None:
    expected = normal(10, 20)
    got = expected * torch.linspace(1 - 5e-5, 1 + 5e-5, 10, dtype=torch.float64)[:, None]
    assert not any("a factor of its own" in line for line in story(got, expected, tolerance=1e-6))


def test_equal_neighbours_are_not_called_shifted() -> None:
    """Rows that are constant agree with themselves one place on: that says nothing."""
    expected = normal(6, 1).expand(6, 20).contiguous()
    got = expected.clone()
    got[3, 7] += 0.015 * float(expected.abs().max())
    assert not any("place too" in line for line in story(got.float(), expected))


def test_rounding_is_not_taken_for_a_factor_of_each_row() -> None:
    """Masked entries come out as 0.5 instead of 0; everything else is right, in float16."""
    logits = normal(20, 50)
    masked = torch.rand(20, 50, generator=torch.Generator().manual_seed(3)) < 0.3
    expected = torch.softmax(logits.masked_fill(masked, -INF), -1)
    got = expected.half().masked_fill(masked, 0.5)
    assert not any("a factor of its own" in line for line in story(got, expected, tolerance=0.01))


def test_a_row_of_noise_is_not_explained_by_another_rows_factor() -> None:
    expected = torch.softmax(normal(30, 40), -1)
    got = expected.clone()
    got[3] *= 20
    got[7] += 0.5 * expected[7].max() * normal(40, seed=4).clamp(-2, 2)
    assert not any("a factor of its own" in line for line in story(got.float(), expected))


def test_a_factor_throughout_is_only_claimed_where_most_elements_have_it() -> None:
    """60 of 1000 elements are 5% too large, the rest is right."""
    expected = normal(1000).abs() + 0.5
    got = expected.float()
    got[::17] *= 1.05
    assert not any("throughout" in line for line in story(got, expected))


# Huge outputs: patterns are looked for in a part ------------------------------------------------------------------------


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "SAMPLE", 200)


@pytest.mark.usefixtures("small_sample")
def test_a_pattern_in_a_part_of_a_huge_output_says_which_part() -> None:
    expected = normal(100, 10).abs() + 0.5
    got = expected.float()
    got[30:] *= math.log(2)
    lines = story(got, expected)
    assert lines[0].startswith("y[30, 0] is the first wrong element")
    assert lines[0].endswith("700 of 1000 elements (70%) are wrong")
    assert lines[1].startswith("in the next 200 elements: got is 0.6931 times expected throughout, which is ln 2")
    assert lines[2] == "only rows 30–99 of 100 are wrong"


@pytest.mark.usefixtures("small_sample")
def test_a_part_ends_where_the_output_ends() -> None:
    expected = normal(100, 10)
    got = expected.float()
    got[95:] = poison((5, 10), torch.float32)
    lines = story(got, expected)
    assert lines[1].startswith("in the next 50 elements: all 50 elements were never written")


@pytest.mark.usefixtures("small_sample")
def test_an_output_that_is_small_enough_is_looked_at_whole() -> None:
    expected = normal(20, 10)
    lines = story((2 * expected).float(), expected)
    assert lines[1].startswith("got is 2 times expected throughout")


@pytest.mark.usefixtures("small_sample")
def test_one_huge_row_is_looked_at_too() -> None:
    expected = normal(1, 1000)
    assert "√d for d = 1000" in story((math.sqrt(1000) * expected).float(), expected)[1]


@pytest.mark.usefixtures("small_sample")
def test_the_first_nan_of_a_huge_output_has_its_own_index() -> None:
    expected = normal(100, 10)
    got = expected.float()
    got[30, 0] += 1
    got[33, 4] = NAN
    assert "first at [33, 4]" in story(got, expected)[1]


# Robustness -----------------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple)
specials = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 6e4, INF, -INF, NAN, 0.5, 2.0])


@given(shapes, st.data(), st.sampled_from(DTYPES))
def test_explain_never_raises_and_always_says_where(
    shape: tuple[int, ...], data: st.DataObject, dtype: torch.dtype
) -> None:
    count = math.prod(shape)

    def draw(elements: st.SearchStrategy[float]) -> torch.Tensor:
        values = data.draw(st.lists(elements, min_size=min(count, 12), max_size=min(count, 12)))
        return torch.tensor((values * count)[:count], dtype=torch.float64).view(shape)

    numbers = specials | st.floats(-100, 100, width=16)
    got, expected = draw(numbers).to(dtype), draw(numbers)
    mask = data.draw(st.lists(st.booleans(), min_size=1, max_size=12))
    bad = torch.tensor((mask * count)[:count]).view(shape)
    bad.view(-1)[data.draw(st.integers(0, count - 1))] = True
    if data.draw(st.booleans()):
        got.view(-1)[data.draw(st.integers(0, count - 1))] = poison((1,), dtype)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis, "SAMPLE", data.draw(st.sampled_from([1, 7, 2**22])))
        lines = explain("dq", got, expected, bad)
    assert 1 <= len(lines) <= 3
    assert re.match(r"dq(\[[\d, ]+\])? is the first wrong element: expected ", lines[0])
    assert all(lines)
    first = int(bad.reshape(-1).to(torch.int).argmax())
    if shape:
        index = [int(part) for part in re.findall(r"\d+", lines[0].split(" is ")[0])]
        assert sum(i * math.prod(shape[axis + 1 :]) for axis, i in enumerate(index)) == first


@given(st.permutations(range(12)), st.integers(1, 12))
def test_an_output_and_its_mask_may_have_any_strides(order: list[int], wrong: int) -> None:
    """What is said of a tensor does not depend on how it lies in memory."""
    expected = normal(12, 6)
    bad = torch.zeros(12, 6, dtype=torch.bool)
    for row in order[:wrong]:
        bad[row, row % 6] = True
    got = torch.where(bad, expected + 3, expected).float()
    turned: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor.t().contiguous().t()  # noqa: E731
    assert explain("y", turned(got), turned(expected), turned(bad)) == explain("y", got, expected, bad)


def test_small_errors_name_the_output() -> None:
    (sentence,) = small_errors("dv")
    assert sentence.startswith("no single element of dv is far off")


# Patterns that need no inputs, again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_right_values_in_another_order_are_recognised(dtype: torch.dtype) -> None:
    expected = normal(3, 40, 16)
    got = expected.reshape(3, 16, 40).transpose(1, 2).reshape(3, 40, 16)[:, torch.randperm(40)]
    assert any("in another order" in line for line in story(got.to(dtype), expected, tolerance=0.01))


def test_equal_values_have_no_order() -> None:
    expected = torch.ones(4, 20, dtype=torch.float64)
    got = expected.clone()
    got[2] = 1.01
    assert not any("another order" in line for line in story(got.float(), expected))


def test_values_that_are_a_little_off_in_their_own_places_are_in_no_other_order() -> None:
    """Sorted, they are as near to the right ones as they are where they stand."""
    expected = normal(2, 1, 64)
    got = expected.clone()
    got[1, 0, ::9] *= 1.01
    assert not any("another order" in line for line in story(got.float(), expected))


@pytest.mark.parametrize("shape", [(2, 40, 16), (2, 128, 64), (1, 1024, 128)])
def test_other_values_of_the_same_spread_are_not_the_right_ones_in_another_order(shape: tuple[int, ...]) -> None:
    expected = normal(*shape)
    got = expected.clone()
    rows = slice(0, shape[1] // 2)
    got[:, rows] = normal(*shape, seed=1)[:, rows]
    assert not any("another order" in line for line in story(got.float(), expected))
    assert not any("another order" in line for line in story(normal(*shape, seed=2).float(), expected))


def test_errors_of_a_few_roundings_in_16_bits_are_called_low_precision() -> None:
    expected = normal(40, 50)
    got = expected * (1 + 0.01 * normal(40, 50, seed=3).clamp(-2, 2))
    lines = story(got.half(), expected, tolerance=0.005)
    assert any(
        "times float16's rounding: consistent with intermediate results in too low a precision" in line
        for line in lines
    )
    assert not any("rounding" in line for line in story(got.float(), expected, tolerance=0.005))


def test_two_runs_that_differ_are_counted() -> None:
    first = normal(10, 10).float()
    second = first.clone()
    second[3, :4] += 1
    first[0, 0] = second[0, 0] = NAN
    (line,) = differs("dq", first, second)
    assert line.startswith("4 of 100 elements (4%) of dq differ between two runs on the same inputs: consistent with")
    assert differs("dq", first, first.clone()) == []


# A call with its inputs: the usual mistakes -------------------------------------------------------------------------------


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float = 0.0) -> torch.Tensor:
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -INF)
    return torch.softmax(scores, -1) @ v


def _divided_by_blocks(s: torch.Tensor, v: torch.Tensor, b: int, once_more: bool) -> torch.Tensor:
    """s: the scores, -inf behind the diagonal. Block by block, of each row as far as the diagonal's block."""
    rows = []
    for i in range(s.shape[1]):
        top, total, o = (
            torch.full((len(s), 1), -INF).double(),
            torch.zeros(len(s), 1).double(),
            torch.zeros_like(v[:, 0]),
        )
        for start in range(0, s.shape[2] if s.isfinite().all() else i // b * b + b, b):
            piece = s[:, i, start : start + b]
            new = torch.maximum(top, piece.amax(-1, True))
            p, factor = (piece - new).exp(), (top - new).exp()
            total = total * factor + p.sum(-1, True)
            o, top = (o * factor + (p[:, None] @ v[:, start : start + b])[:, 0]) / total, new
        rows.append(o / total if once_more else o)
    return torch.stack(rows, 1)


def _rescaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, of_o: float, of_sum: float) -> torch.Tensor:
    """The online softmax in blocks of 16 keys, with powers of exp(m_old − m_new)."""
    s = q @ k.mT / 4
    top, total, o = torch.full_like(s[..., :1], -INF), torch.zeros_like(s[..., :1]), torch.zeros_like(q)
    for start in range(0, s.shape[-1], 16):
        piece = s[..., start : start + 16]
        new = torch.maximum(top, piece.amax(-1, True))
        p = (piece - new).exp()
        total = total * (of_sum * (top - new)).exp() + p.sum(-1, True)
        o, top = o * (of_o * (top - new)).exp() + p @ v[:, start : start + 16], new
    return o / total


def _by_columns(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, b: int) -> torch.Tensor:
    """In one tile of b × b, with queries and keys of 0 beyond the end; the sums run over the queries."""
    n, pad = q.shape[1], b - q.shape[1]
    q, k, v = (torch.nn.functional.pad(one, (0, 0, 0, pad)) for one in (q, k, v))
    s = (q @ k.mT / 4).masked_fill(torch.arange(b) >= n, -INF)
    p = (s - s.amax(-1, True)).exp()
    return (p @ v / p.sum(-2)[..., None])[:, :n]


def attention_oracle(call: Call) -> dict[str, torch.Tensor]:
    causal = bool(call.options["is_causal"])
    leaves = [tensor.double().detach().requires_grad_() for tensor in call.args.values()]
    o = attention(*leaves, causal)  # type: ignore[arg-type]
    if call.upstream is None:
        return {"o": o.detach()}
    return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(o, leaves, call.upstream.double()), strict=True))


def attention_call(*, n: int = 40, keys: int = 40, d: int = 16, causal: bool = False, backward: bool = False) -> Call:
    args = {
        "q": normal(2, n, d).float(),
        "k": normal(2, keys, d, seed=1).float(),
        "v": normal(2, keys, d, seed=2).float(),
    }
    upstream = normal(2, n, d, seed=3).float() if backward else None
    return Call(args, {"is_causal": causal}, upstream)


def mistakes_of(oracle: Callable[[Call], dict[str, torch.Tensor]]) -> Mistakes | None:
    """Those of the assignment whose oracle it is."""
    folders = {attention_oracle: "flash_attention", softmax_oracle: "softmax", gelu_oracle: "cuda_gelu"}
    return load_mistakes(folders[oracle]) if oracle in folders else None


@functools.cache
def load_mistakes(name: str) -> Mistakes | None:
    problem, _ = load_problem(load_assignment(COURSE / "assignments" / name))
    return problem.mistakes


def told(
    call: Call,
    oracle: Callable[[Call], dict[str, torch.Tensor]],
    wrong: dict[str, torch.Tensor],
    earlier: tuple[Call, ...] = (),
    is_queued: bool = False,
) -> list[str]:
    """What is said of a call some of whose outputs are `wrong`, the others right."""
    expected = oracle(call)
    dtype = next(iter(call.args.values())).dtype
    got = {name: wrong.get(name, right).to(dtype) for name, right in expected.items()}
    bad = {
        name: ~((got[name].double() - right).abs() <= 1e-4 * right.abs().nan_to_num(0).max())
        for name, right in expected.items()
        if name in wrong
    }
    scene = Scene(call, oracle, earlier, mistakes=mistakes_of(oracle), is_queued=is_queued)
    return explain_call(got, expected, bad, scene)


SCORES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "without the scale": lambda q, k, v: attention(q, k, v, False, 1.0),
    "with the scale 1/d in place": lambda q, k, v: attention(q, k, v, False, 1 / 16),
    "with the scale of head_dim 64": lambda q, k, v: attention(q, k, v, False, 1 / 8),
    "with exp2 in place of exp": lambda q, k, v: attention(q, k, v, False, math.log(2) / 4),
    "with k and v swapped": lambda q, k, v: attention(q, v, k, False),
    "with a causal mask": lambda q, k, v: attention(q, k, v, True),
    "without the last 8 of 40 keys, what is left after full blocks of 32": lambda q, k, v: attention(
        q, k[:, :32], v[:, :32], False
    ),
    "without the last of 40 keys": lambda q, k, v: attention(q, k[:, :39], v[:, :39], False),
    "for q, k and v rounded to bfloat16": lambda q, k, v: attention(
        *(one.bfloat16().double() for one in (q, k, v)), False
    ),
    "with the scores rounded to bfloat16, as Triton's interpreter does, towards 0": lambda q, k, v: (
        torch.softmax(cut_to_bfloat16(q @ k.mT / 4), -1) @ v
    ),
    "with the weights rounded to bfloat16": lambda q, k, v: (
        (p := (s := q @ k.mT / 4).sub(s.amax(-1, True)).exp()).bfloat16().double() @ v / p.sum(-1, True)
    ),
    "with o rounded to bfloat16": lambda q, k, v: attention(q, k, v, False).bfloat16().double(),
    "with −S in place of S": lambda q, k, v: attention(-q, k, v, False),
    "with the scores rounded to bfloat16": lambda q, k, v: torch.softmax((q @ k.mT / 4).bfloat16().double(), -1) @ v,
    "when each block of 32 keys has a softmax of its own": lambda q, k, v: (
        attention(q, k[:, :32], v[:, :32], False) + attention(q, k[:, 32:], v[:, 32:], False)
    ),
    "when the output is divided by the sum so far after each block of 32 keys": lambda q, k, v: _divided_by_blocks(
        q @ k.mT / 4, v, 32, False
    ),
    "with 8 more keys of zeros": lambda q, k, v: attention(
        q, *(torch.nn.functional.pad(one, (0, 0, 0, 8)) for one in (k, v)), False
    ),
    "when all weights are equal": lambda q, k, v: attention(0 * q, k, v, False),
    **{
        f"when the {words} as the maximum moves from one block of 16 keys": partial(_rescaled, of_o=of_o, of_sum=of_sum)
        for words, of_o, of_sum in (
            ("output is rescaled twice", 2.0, 1.0),
            ("sum is rescaled twice", 1.0, 2.0),
            ("output and the sum are rescaled twice", 2.0, 2.0),
            ("output and the sum are rescaled by exp2 in place of exp", LN_2, LN_2),
            ("sum is rescaled by exp2 in place of exp", 1.0, LN_2),
        )
    },
    "with 8 more keys whose score is -1, padded to blocks of 16": lambda q, k, v: (
        (p := (q @ k.mT / 4).exp()) @ v / (p.sum(-1, True) + 8 * math.exp(-1))
    ),
    "when it is divided by the sum twice": lambda q, k, v: (
        (p := (s := q @ k.mT / 4).sub(s.amax(-1, True)).exp()) @ v / p.sum(-1, True) ** 2
    ),
    "with 0.001 added to the sum": lambda q, k, v: (
        (p := (s := q @ k.mT / 4).sub(s.amax(-1, True)).exp()) @ v / (p.sum(-1, True) + 1e-3)
    ),
    "such as 1.44 in place of log₂e": lambda q, k, v: attention(q, k, v, False, 1.44 * LN_2 / 4),
    "with the sums of the columns, and not of the rows, of each tile of 64 × 64": lambda q, k, v: _by_columns(
        q, k, v, 64
    ),
}


@pytest.mark.parametrize("words", SCORES)
def test_a_usual_mistake_of_attention_is_named_in_the_second_line(words: str) -> None:
    call = attention_call()
    q, k, v = (tensor.double() for tensor in call.args.values())
    lines = told(call, attention_oracle, {"o": SCORES[words](q, k, v)})
    assert lines[0].startswith("o[0, ")
    assert "is the first wrong element" in lines[0]
    assert lines[1].startswith("o is what comes out")
    assert words in lines[1]
    assert ": consistent with " in lines[1]


def test_a_scale_from_the_length_is_not_called_that_of_a_head_dimension() -> None:
    call = attention_call(keys=32)
    q, k, v = (tensor.double() for tensor in call.args.values())
    lines = told(call, attention_oracle, {"o": attention(q, k, v, False, 1 / math.sqrt(32))})
    assert "with the scale 1/√32, as many as there are keys: consistent with a scale from the length" in lines[1]


def test_a_maximum_that_starts_at_0_is_named() -> None:
    call = attention_call()
    k, v = call.args["k"], call.args["v"]
    k = k.abs() + 20
    q = torch.where(torch.arange(40)[:, None] % 2 == 0, -k, k)
    call = Call({"q": q, "k": k, "v": v}, call.options)
    s = q.double() @ k.double().transpose(-1, -2) / math.sqrt(q.shape[-1])
    weights = (s - s.amax(-1, keepdim=True).clamp(min=0)).float().exp().double()
    wrong = weights @ v.double() / weights.sum(-1, keepdim=True)
    assert "with a maximum that starts at 0" in told(call, attention_oracle, {"o": wrong})[1]


def test_masked_scores_of_0_are_named() -> None:
    call = attention_call(causal=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    s = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).tril()
    lines = told(call, attention_oracle, {"o": torch.softmax(s, -1) @ v})
    assert "with 0 as the score of the keys that the causal mask hides" in lines[1]


@pytest.mark.parametrize("score", [-1.0, -10.0])
@pytest.mark.parametrize("also_the_end", [False, True])
def test_masked_scores_that_are_a_number_are_named(score: float, also_the_end: bool) -> None:
    """A causal mask that comes last undoes the one for the end; the keys there are 0."""
    call = attention_call(causal=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    if also_the_end:
        k, v = (torch.nn.functional.pad(one, (0, 0, 0, 24)) for one in (k, v))
    later = torch.arange(k.shape[1]) > torch.arange(40)[:, None]
    wrong = torch.softmax((q @ k.mT / 4).masked_fill(later, score), -1) @ v
    words = f"with {score:g} as the score of the keys that the causal mask hides"
    assert (
        words + (", and of those beyond the end" if also_the_end else ":")
        in told(call, attention_oracle, {"o": wrong})[1]
    )


def test_masked_scores_that_are_a_number_are_named_in_the_backward() -> None:
    call = attention_call(causal=True, backward=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert call.upstream is not None
    later = torch.ones(40, 40, dtype=torch.bool).triu(1)
    s = q @ k.mT / 4
    lse = torch.logsumexp(s.masked_fill(later, -INF), -1, True)
    delta = (call.upstream.double() * attention(q, k, v, True)).sum(-1, True)
    ds = (s.masked_fill(later, -1.0) - lse).exp() * (call.upstream.double() @ v.mT - delta)
    lines = told(call, attention_oracle, {"dq": ds @ k / 4})
    assert "dq is what comes out with -1 as the score of the keys that the causal mask hides" in lines[1]


def test_a_maximum_of_the_whole_tile_is_named_where_rows_vanish() -> None:
    call = attention_call()
    q, k, v = call.args.values()
    q = q * torch.where(torch.arange(40)[:, None] % 2 == 0, 300.0, 1.0)
    call = Call({"q": q, "k": k, "v": v}, call.options)
    s = q.double() @ k.double().mT / 4
    p = (s - s.amax((-2, -1), True)).float().exp().double()
    lines = told(call, attention_oracle, {"o": p @ v.double() / p.sum(-1, True)})
    assert "with one maximum for all queries of a tile" in lines[1]


def test_a_causal_mask_that_is_off_by_one_is_named() -> None:
    call = attention_call(causal=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    scores = (q @ k.mT / 4).masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(2), -INF)
    assert "when a query sees one key too many" in told(call, attention_oracle, {"o": torch.softmax(scores, -1) @ v})[1]


def test_a_mistake_in_the_second_batch_entry_alone_is_found_there() -> None:
    call = attention_call()
    q, k, v = (tensor.double() for tensor in call.args.values())
    lines = told(call, attention_oracle, {"o": attention(q, k[:1].expand(2, -1, -1), v[:1].expand(2, -1, -1), False)})
    assert lines[0].startswith("o[1, 0, 0]")
    assert "with k and v of batch entry 0: consistent with a batch offset that is missing" in lines[1]


def test_gradients_with_the_same_mistake_share_a_line() -> None:
    call = attention_call(backward=True)
    right = attention_oracle(call)
    lines = told(call, attention_oracle, {"dq": 4 * right["dq"], "dk": 4 * right["dk"]})
    assert lines[1].startswith("dq and dk are what comes out without the factor scale")
    assert sum("comes out" in line for line in lines) == 1


def test_swapped_gradients_are_named_and_a_copy_of_a_right_one_is_no_swap() -> None:
    call = attention_call(backward=True)
    right = attention_oracle(call)
    swapped = told(call, attention_oracle, {"dk": right["dv"], "dv": right["dk"]})
    assert swapped[1].startswith("dk and dv are what comes out when the two are swapped")
    copied = told(call, attention_oracle, {"dk": right["dv"]})
    assert not any("swapped" in line for line in copied)
    assert any(line.startswith("of the same call dq and dv are right") for line in copied)


def test_a_factor_of_two_is_told_beside_the_length_that_it_may_come_from() -> None:
    call = attention_call(n=40, keys=40)
    q, k, v = (tensor.double() for tensor in call.args.values())
    lines = told(call, attention_oracle, {"o": attention(q, k, v, False, 1 / 8)})
    assert "with the scale of head_dim 64: consistent with a scale that is fixed" in lines[1]
    assert "or a factor 1/2 too many" in lines[1]


@pytest.mark.parametrize(
    ("words", "delta"),
    [
        ("when delta is the sum of dO ∘ O over all rows", lambda each: each.sum((-2, -1), True).expand_as(each)),
        ("when delta is the sum of dO ∘ O over all batch entries", lambda each: each.sum().expand_as(each)),
        ("over each row of all batch entries", lambda each: each.sum(0, True).expand_as(each)),
        ("with delta at the place of the key, not of the query:", lambda each: each.mT),
        (
            "with delta at the place of the key, not of the query, in tiles of 16 × 16",
            lambda each: each[:, (torch.arange(40) // 16 * 16 + torch.arange(40)[:, None] % 16).clamp(max=39), 0],
        ),
    ],
)
def test_other_deltas_are_named(words: str, delta: Callable[[torch.Tensor], torch.Tensor]) -> None:
    call = attention_call(backward=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert call.upstream is not None
    do, p = call.upstream.double(), torch.softmax(q @ k.mT / 4, -1)
    wrong = delta((do * (p @ v)).sum(-1, True))
    if "16 × 16" in words:
        wrong = wrong * ((torch.arange(40) // 16 * 16 + torch.arange(40)[:, None] % 16) < 40)
    ds = p * (do @ v.mT - wrong)
    lines = told(call, attention_oracle, {"dq": ds @ k / 4, "dk": ds.mT @ q / 4})
    assert lines[1].startswith("dq and dk are what comes out ")
    assert words in lines[1]


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("when dP is dO Kᵀ", "dq"),
        ("from V in place of K, in dQ", "dq"),
        ("from dO in place of Q, in dK", "dk"),
        ("from Q in place of dO", "dv"),
    ],
)
def test_the_wrong_operand_of_a_product_is_named(words: str, output: str) -> None:
    call = attention_call(backward=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert call.upstream is not None
    do, p = call.upstream.double(), torch.softmax(q @ k.mT / 4, -1)
    delta = (do * (p @ v)).sum(-1, True)
    ds = p * (do @ v.mT - delta)
    wrong = {
        "when dP is dO Kᵀ": p * (do @ k.mT - delta) @ k / 4,
        "from V in place of K, in dQ": ds @ v / 4,
        "from dO in place of Q, in dK": ds.mT @ do / 4,
        "from Q in place of dO": p.mT @ q,
    }[words]
    assert f"{output} is what comes out {words}" in told(call, attention_oracle, {output: wrong})[1]


def test_delta_from_the_wrong_operand_is_named() -> None:
    call = attention_call(backward=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert call.upstream is not None
    do = call.upstream.double()
    p = torch.softmax(q @ k.mT / 4, -1)
    o = p @ v
    ds = p * (do @ v.mT - (o * o).sum(-1, keepdim=True))
    lines = told(call, attention_oracle, {"dq": ds @ k / 4, "dk": ds.mT @ q / 4})
    assert "when delta is the row sum of o ∘ o: consistent with delta from the wrong operand" in lines[1]


def gradients(
    call: Call, weights: torch.Tensor | float = 1.0, delta: torch.Tensor | float = 1.0
) -> dict[str, torch.Tensor]:
    """Of causal attention, with P times `weights` and delta times `delta`."""
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert call.upstream is not None
    do, scale = call.upstream.double(), q.shape[-1] ** -0.5
    later = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1)
    p = torch.softmax((scale * q @ k.mT).masked_fill(later, -INF), -1)
    right = (do * (p @ v)).sum(-1, keepdim=True)
    p = p * weights
    ds = p * (do @ v.mT - delta * right)
    return {"dq": scale * ds @ k, "dk": scale * ds.mT @ q, "dv": p.mT @ do}


LOGSUMEXPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # of scores, those behind the diagonal -inf
    "with the maximum of the unscaled scores": lambda s: 3 * s.amax(-1, keepdim=True) + torch.logsumexp(s, -1, True),
    "with m / √d + log Σ": lambda s: -0.75 * s.amax(-1, keepdim=True) + torch.logsumexp(s, -1, True),
    "with 24 more keys of zeros in the logsumexp": lambda s: torch.logaddexp(
        torch.logsumexp(s, -1, True), torch.tensor(24.0).double().log()
    ),
    "with a logsumexp whose sum is not rescaled as the maximum moves from one block of 16 keys": lambda s: (
        s.amax(-1, True)
        + sum((s[..., i : i + 16] - s[..., : i + 16].amax(-1, True)).exp().sum(-1, True) for i in (0, 16, 32)).log()
    ),
    "with Σ as the logsumexp": lambda s: (s - s.amax(-1, True)).exp().sum(-1, True),
    "with the logsumexp's negative": lambda s: -torch.logsumexp(s, -1, True),
    "with the logsumexp of the first 32 keys alone": lambda s: torch.logsumexp(s[..., :32], -1, True),
}


@pytest.mark.parametrize("words", LOGSUMEXPS)
def test_a_usual_mistake_of_the_logsumexp_is_named(words: str) -> None:
    call = attention_call(causal=True, backward=True)
    q, k, _ = (tensor.double() for tensor in call.args.values())
    s = (q @ k.mT / 4).masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -INF)
    wrong = gradients(call, (torch.logsumexp(s, -1, True) - LOGSUMEXPS[words](s)).exp())
    lines = told(call, attention_oracle, wrong)
    assert lines[1].startswith(f"dq, dk and dv are what comes out {words}")


def test_a_logsumexp_without_the_causal_mask_is_named() -> None:
    call = attention_call(causal=True, backward=True)
    q, k, _ = (tensor.double() for tensor in call.args.values())
    s = q @ k.mT / 4
    masked = s.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -INF)
    wrong = gradients(call, (torch.logsumexp(masked, -1, True) - torch.logsumexp(s, -1, True)).exp())
    assert "with the logsumexp of all keys, the hidden ones too" in told(call, attention_oracle, wrong)[1]


def test_what_is_small_is_told_by_which_numbers_it_is() -> None:
    """0 is near to a thousandth of what is right, but something that gives just these numbers is the better story."""
    call = attention_call(n=1, keys=1, backward=True)
    q, k, _ = (tensor.double() for tensor in call.args.values())
    call = Call(
        {**call.args, "q": call.args["q"] * (3 / (q * k / 4).sum(-1, keepdim=True)).float()},
        call.options,
        call.upstream,
    )
    wrong = gradients(call, math.exp(-9))  # the scores are 3, unscaled 12
    assert call.args["q"].shape == (2, 1, 16)
    assert "the maximum of the unscaled scores" in told(call, attention_oracle, {"dv": wrong["dv"]})[1]


@pytest.mark.parametrize("n", [100, 128, 192])
def test_a_block_of_queries_left_out_for_every_second_block_of_keys_is_named(n: int) -> None:
    """Neither another order nor a last block that is not masked."""
    call = attention_call(n=n, keys=n, causal=True, backward=True)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    wrong = gradients(call, ((i // 64 > j // 64) | (j // 64 % 2 == 0)).double())
    lines = told(call, attention_oracle, {name: wrong[name] for name in ("dk", "dv")})
    assert lines[1].startswith("dk and dv are what comes out when each block of 64 keys begins with the next multiple")
    assert not any("another order" in line or "partial block" in line for line in lines)


@pytest.mark.parametrize("n", [100, 128, 192])
def test_a_few_large_rows_do_not_hide_that_small_ones_are_missing(n: int) -> None:
    """In gradients of causal attention the first keys, which all queries see, have the largest."""
    call = attention_call(n=n, keys=n, d=64, causal=True, backward=True)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    wrong, right = gradients(call, ((i // 64 > j // 64) | (j // 64 % 2 == 0)).double()), attention_oracle(call)
    for name in ("dk", "dv"):
        assert not any("another order" in line for line in story(wrong[name].float(), right[name]))


def test_a_mean_in_place_of_delta_is_named() -> None:
    call = attention_call(causal=True, backward=True)
    wrong = gradients(call, delta=1 / 16)
    lines = told(call, attention_oracle, {name: wrong[name] for name in ("dq", "dk")})
    assert "the row mean of dO ∘ O: consistent with a mean in place of a sum in delta" in lines[1]


def test_a_delta_that_is_0_may_come_from_an_o_that_is_0() -> None:
    call = attention_call(n=1, keys=1, causal=True, backward=True)
    wrong = gradients(call, delta=0.0)
    lines = told(call, attention_oracle, {name: wrong[name] for name in ("dq", "dk")})
    assert "consistent with delta missing in dS, or made from an o that is 0: it is rowsum(dO ∘ O)" in lines[1]


@pytest.mark.parametrize("n", [1, 2])
def test_zeros_are_not_what_a_mistake_gives_that_makes_everything_small(n: int) -> None:
    """With 127 keys of zeros beside the only one, o is a 128th of what it should be, which is nearly 0."""
    call = attention_call(n=n, keys=n)
    lines = told(call, attention_oracle, {"o": torch.zeros(2, n, 16)})
    assert not any("padded" in line for line in lines)
    assert lines[1].startswith("every element is 0")


def test_a_mistake_that_gives_0_accounts_for_a_few_roundings_and_for_0() -> None:
    """Of a single key dS is 0, in a kernel almost, with TF32 on a GPU a few thousandths."""
    call = attention_call(n=1, keys=1, backward=True)
    for wrong in (1e-6 * normal(2, 1, 16), 4e-3 * normal(2, 1, 16), torch.zeros(2, 1, 16)):
        assert "from dS in place of P" in told(call, attention_oracle, {"dv": wrong})[1]


def test_a_scale_within_ds_is_named() -> None:
    call = attention_call(causal=True, backward=True)
    wrong = gradients(call, delta=1 / 4)
    lines = told(call, attention_oracle, {name: wrong[name] for name in ("dq", "dk")})
    assert "when delta is scale · rowsum(dO ∘ O)" in lines[1]
    right = gradients(call, delta=4.0)  # P (dP − 4 delta), a quarter of it
    lines = told(call, attention_oracle, {name: right[name] / 4 for name in ("dq", "dk")})
    assert "when dS is P ∘ (scale · dP − delta)" in lines[1]


@pytest.mark.parametrize("factor", [1 / 64, 1 / 8, 0.6])
def test_of_a_single_key_nothing_is_met_by_chance(factor: float) -> None:
    """Every output is a number times a vector there: some mistake gives nearly that number."""
    stories = 0
    for seed in range(60):
        call = attention_call(n=1, keys=1)
        call = Call(
            {**call.args, "q": normal(2, 1, 16, seed=seed).float(), "k": normal(2, 1, 16, seed=seed + 99).float()},
            call.options,
        )
        lines = told(call, attention_oracle, {"o": factor * attention_oracle(call)["o"]})
        stories += any("what comes out" in line for line in lines)
    assert stories <= 2


def test_one_number_has_more_than_one_story() -> None:
    x = normal(1).abs()
    told_of_one = told(Call({"x": x}), gelu_oracle, {"y": 2 * gelu_tanh(x)})
    assert "without the factor 1/2" in told_of_one[1]
    assert told_of_one[1].endswith("or with whatever else gives this one number")
    x = normal(2).abs()
    assert "whatever else" not in told(Call({"x": x}), gelu_oracle, {"y": 2 * gelu_tanh(x)})[1]


def test_a_story_holds_where_the_output_is_right_too() -> None:
    """Of positive numbers tanh|u| is tanh(u); what else is wrong for negative ones alone is another matter."""
    x = torch.cat([normal(500).abs(), -normal(500, seed=1).abs()])
    wrong = torch.where(x < 0, 0.5 * x * (1 + torch.tanh(_argument(x).abs())), gelu_tanh(x))
    lines = told(Call({"x": x}), gelu_oracle, {"y": wrong})
    assert "tanh|u|" in lines[1]
    negative = torch.where(x < 0, x, gelu_tanh(x))
    assert not any("what comes out" in line for line in told(Call({"x": x}), gelu_oracle, {"y": negative * 0.9}))


def test_a_mistake_that_would_be_wrong_elsewhere_too_is_none() -> None:
    """Where the numbers are negative this is what comes out with the x taken out of the second term alone; where not, it is right."""
    x = torch.cat([normal(500).abs(), -normal(500, seed=1).abs()])
    mistake = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * x * (x + 0.044715 * x**2)))
    told_of_all = told(Call({"x": x}), gelu_oracle, {"y": mistake})
    assert "an x that is taken out of the second term alone" in told_of_all[1]
    told_of_some = told(Call({"x": x}), gelu_oracle, {"y": torch.where(x < 0, mistake, gelu_tanh(x))})
    assert not any("taken out of the second term" in line for line in told_of_some)


def test_a_story_that_one_element_contradicts_is_none() -> None:
    x = normal(400, 100)
    call, wrong = Call({"x": x}), torch.softmax(x * math.log(2), -1)
    right = torch.softmax(x, -1)
    assert "with exp2 in place of exp" in told(call, softmax_oracle, {"y": wrong})[1]
    at = int((wrong - right).abs().argmax())
    wrong.view(-1)[at] = right.view(-1)[at] + 0.5 * (wrong - right).view(-1)[at]
    assert not any("what comes out" in line for line in told(call, softmax_oracle, {"y": wrong}))


def test_bfloat16_is_cut_towards_0() -> None:
    kept = torch.tensor([1.0, -1.5, 1 + 2**-7, 3e38, -1e-30, 0.0]).bfloat16().double()
    assert torch.equal(cut_to_bfloat16(kept), kept)
    assert cut_to_bfloat16(torch.tensor([1 + 2**-8, -1 - 3 * 2**-9, 2 - 2**-8])).tolist() == [1.0, -1.0, 2 - 2**-7]


def test_blocks_in_causal_attention_are_those_up_to_the_diagonal() -> None:
    call = attention_call(n=100, keys=100, causal=True)
    q, k, v = (tensor.double() for tensor in call.args.values())
    s = (q @ k.mT / 4).masked_fill(torch.ones(100, 100, dtype=torch.bool).triu(1), -INF)
    each = sum(
        torch.softmax(piece, -1).nan_to_num(nan=0.0) @ v[:, 32 * i : 32 * i + 32]
        for i, piece in enumerate(s.split(32, -1))
    )
    assert "when each block of 32 keys has a softmax of its own" in told(call, attention_oracle, {"o": each})[1]
    for once_more, words in (
        (False, "after each block of 32 keys:"),
        (True, "after each block of 32 keys, and at the end"),
    ):
        assert words in told(call, attention_oracle, {"o": _divided_by_blocks(s, v, 32, once_more)})[1]


def test_two_lengths_are_pointed_out_where_nothing_else_explains_the_error() -> None:
    def wrong(call: Call) -> dict[str, torch.Tensor]:
        right = attention_oracle(call)
        return {name: torch.cat([right[name][:1], normal(*right[name][1:].shape)]) for name in ("dk", "dv")}

    words = "in this call there are 40 queries and 70 keys: where the cases with as many of both pass, it is consistent with"
    call = attention_call(keys=70, backward=True)
    assert told(call, attention_oracle, wrong(call))[-1].startswith(words)
    call = attention_call(backward=True)
    assert not any("queries and" in line for line in told(call, attention_oracle, wrong(call)))
    call = attention_call(keys=70)
    q, k, v = (tensor.double() for tensor in call.args.values())
    assert not any(
        "queries and" in line for line in told(call, attention_oracle, {"o": attention(q, k, v, False, 1.0)})
    )


def test_two_lengths_are_pointed_out_where_something_explains_one_output_alone() -> None:
    call = attention_call(keys=70, backward=True)
    assert call.upstream is not None
    q, k, _ = (tensor.double() for tensor in call.args.values())
    wrong = {"dk": normal(2, 70, 16, seed=5), "dv": (q @ k.mT / 4).exp().mT @ call.upstream.double()}
    lines = told(call, attention_oracle, wrong)
    assert any("without the logsumexp" in line for line in lines)
    assert lines[-1].startswith("in this call there are 40 queries and 70 keys")


def softmax_oracle(call: Call) -> dict[str, torch.Tensor]:
    return {"y": torch.softmax(call.args["x"].double(), -1)}


def gelu_oracle(call: Call) -> dict[str, torch.Tensor]:
    x = call.args["x"].double()
    return {"y": 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


ROOT = 2 * math.sqrt(2 / math.pi)  # twice, for σ: tanh(u) = 2σ(2u) − 1


def _argument(x: torch.Tensor) -> torch.Tensor:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("with erf", lambda x: torch.nn.functional.gelu(x)),
        ("as x σ(1.702 x)", lambda x: x * torch.sigmoid(1.702 * x)),
        (
            "with 0.044175 in place of 0.044715",
            lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044175 * x**3)),
        ),
        ("with √(2/π) x (x + 0.044715 x²)", lambda x: x * torch.sigmoid(ROOT * x * (x + 0.044715 * x**2))),
        ("with √(2/π) (1 + 0.044715 x²)", lambda x: x * torch.sigmoid(ROOT * (1 + 0.044715 * x**2))),
        ("with √(2/π) x (1 + 0.044715 x³)", lambda x: x * torch.sigmoid(ROOT * x * (1 + 0.044715 * x**3))),
        ("without the factor x", lambda x: torch.sigmoid(ROOT * (x + 0.044715 * x**3))),
        ("as ½ x (1 − tanh(u))", lambda x: x * torch.sigmoid(-ROOT * (x + 0.044715 * x**3))),
        ("as ½ x (1 + tanh(x))", lambda x: x * torch.sigmoid(2 * x)),
        ("with |x|³ in place of x³", lambda x: x * torch.sigmoid(ROOT * (x + 0.044715 * x**2 * x.abs()))),
        (
            "with 0.798087 in place of √(2/π)",
            lambda x: x * torch.sigmoid(2 * (2 / 3.14) ** 0.5 * (x + 0.044715 * x**3)),
        ),
        ("as x / (1 + 2⁻²ᵘ)", lambda x: x / (1 + torch.exp2(-2 * _argument(x)))),
        ("x⁴ in place of x³; or", lambda x: 0.5 * x * (1 + torch.tanh(ROOT / 2 * (x + 0.044715 * x**4)))),
        ("with x⁵ in place of x³", lambda x: 0.5 * x * (1 + torch.tanh(ROOT / 2 * (x + 0.044715 * x**5)))),
        ("with u kept within ±2", lambda x: 0.5 * x * (1 + torch.tanh(_argument(x).clamp(-2, 2)))),
        ("for x kept within ±3", lambda x: gelu_tanh(x.clamp(-3, 3))),
        ("as GeLU's derivative", lambda x: torch.func.vmap(torch.func.grad(gelu_tanh))(x)),
        ("when GeLU is applied twice", lambda x: gelu_tanh(gelu_tanh(x))),
        ("for x rounded to float16", lambda x: gelu_tanh(x.half().double())),
        ("for x rounded to bfloat16, as Triton's interpreter does", lambda x: gelu_tanh(cut_to_bfloat16(x))),
        ("with y rounded to float16", lambda x: gelu_tanh(x).half().double()),
        ("as ½ x (1 + tanh|u|)", lambda x: 0.5 * x * (1 + torch.tanh(_argument(x).abs()))),
        ("with about 1.5958 in place of √(2/π)", lambda x: x * torch.sigmoid(2 * ROOT * (x + 0.044715 * x**3))),
        ("with x − 0.044715 x³ in place of x + 0.044715 x³", lambda x: x * torch.sigmoid(ROOT * (x - 0.044715 * x**3))),
        ("with tanh(u) as u − u³/3:", lambda x: 0.5 * x * (1 + (u := _argument(x)) - u**3 / 3)),
        (
            "with tanh(u) as u (27 + u²) / (27 + 9u²), kept within ±1",
            lambda x: 0.5 * x * (1 + ((u := _argument(x)) * (27 + u**2) / (27 + 9 * u**2)).clamp(-1, 1)),
        ),
        (
            "with about 0.81235 in place of √(2/π), which is 0.797885",
            lambda x: x * torch.sigmoid(2 * 0.81235 * (x + 0.044715 * x**3)),
        ),
        ("with about 0.04321 in place of 0.044715", lambda x: x * torch.sigmoid(ROOT * (x + 0.04321 * x**3))),
        ("without the factor 1/2", lambda x: 2 * torch.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_a_usual_mistake_of_gelu_is_named(words: str, form: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = normal(500)
    assert words in told(Call({"x": x}), gelu_oracle, {"y": form(x)})[1]


def test_no_constant_is_fitted_to_a_few_elements() -> None:
    x = normal(40)
    lines = told(Call({"x": x}), gelu_oracle, {"y": x * torch.sigmoid(2 * 0.81235 * (x + 0.044715 * x**3))})
    assert not any("in place of" in line for line in lines)


def test_a_constant_is_not_fitted_to_what_another_mistake_gives() -> None:
    x = normal(500)
    for wrong in (gelu_tanh(x) + 0.01, torch.where(torch.arange(500) % 3 == 0, 0.9, 1.0) * gelu_tanh(x)):
        assert not any("with about" in line for line in told(Call({"x": x}), gelu_oracle, {"y": wrong}))


@pytest.mark.parametrize("elements", [1, 31, 1023])
def test_a_kernel_that_runs_before_its_stream_is_told_so(elements: int) -> None:
    call = Call({"x": normal(elements)})
    y = gelu_oracle(Call({"x": torch.full((elements,), EARLY_VALUE)}))["y"].float()
    assert "another stream than the given one" in told(call, gelu_oracle, {"y": y}, is_queued=True)[1]
    assert not any("another stream" in line for line in told(call, gelu_oracle, {"y": y}))


@pytest.mark.parametrize("rows", [5, 3000])
def test_a_launch_before_the_streams_work_needs_no_mistakes_of_the_course(rows: int) -> None:
    """Of many rows only some are looked at, as many of each input."""

    def oracle(call: Call) -> dict[str, torch.Tensor]:
        return {"y": (call.args["x"].double() * call.args["w"].double()).sum(-1)}

    call = Call({"x": normal(rows, 200) + 3, "w": normal(rows, 200, seed=1) + 3})
    wrong = torch.full((rows,), 200 * EARLY_VALUE**2, dtype=torch.float64)
    words = "for what stood in x and w before the work that is queued on the given stream wrote it"
    assert words in told(call, oracle, {"y": wrong}, is_queued=True)[1]
    assert not any("queued" in line for line in told(call, oracle, {"y": 1.2 * wrong}, is_queued=True))


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ("with exp2 in place of exp", lambda x: torch.softmax(x * math.log(2), -1)),
        (
            "with 14 zeros after each row of 50",
            lambda x: torch.softmax(torch.nn.functional.pad(x, (0, 14)), -1)[:, :50],
        ),
        ("without dividing by the sum", lambda x: (x - x.amax(-1, keepdim=True)).exp()),
        ("over the other dimension", lambda x: torch.softmax(x, 0)),
        ("when every row is the first one", lambda x: torch.softmax(x[:1], -1).expand(20, -1)),
        ("as exp2(x − m) / Σ exp(x − m)", lambda x: mixed(x, LN_2, 1.0)),
        ("as exp(x − m) / Σ exp2(x − m)", lambda x: mixed(x, 1.0, LN_2)),
        ("as exp((x − m) log₂e) / Σ exp(x − m)", lambda x: mixed(x, 1 / LN_2, 1.0)),
        ("as exp(x − m) / Σ exp((x − m) log₂e)", lambda x: mixed(x, 1.0, 1 / LN_2)),
        ("as its logarithm", lambda x: torch.log_softmax(x, -1)),
        ("as softmax(−x)", lambda x: torch.softmax(-x, -1)),
        (
            "as exp(m − x) / Σ",
            lambda x: (-torch.log_softmax(x, -1) - 2 * torch.logsumexp(x - x.amax(-1, True), -1, True)).exp(),
        ),
        ("with the number of columns, 50, in place of the sum", lambda x: (x - x.amax(-1, keepdim=True)).exp() / 50),
        ("as exp(x − m) / Σ exp(x)", lambda x: torch.softmax(x, -1) * (-x.amax(-1, keepdim=True)).exp()),
        ("as exp(x) / Σ exp(x − m)", lambda x: torch.softmax(x, -1) * x.amax(-1, keepdim=True).exp()),
        ("for x rounded to float16", lambda x: torch.softmax(x.half().double(), -1)),
        (
            "with x − m rounded to bfloat16 before exp, in the numerator alone",
            lambda x: (t := x - x.amax(-1, True)).bfloat16().double().exp() / t.exp().sum(-1, True),
        ),
        (
            "with exp(x − m) rounded to bfloat16:",
            lambda x: (e := (x - x.amax(-1, True)).exp().bfloat16().double()) / e.sum(-1, True),
        ),
        (
            "with exp in float16: x − m and exp(x − m) rounded to it",
            lambda x: (e := (x - x.amax(-1, True)).half().double().exp().half().double()) / e.sum(-1, True),
        ),
        (
            "with exp(x − m) rounded to bfloat16, as Triton's interpreter does, towards 0, in the numerator alone",
            lambda x: cut_to_bfloat16(e := (x - x.amax(-1, True)).exp()) / e.sum(-1, True),
        ),
        ("with y rounded to bfloat16", lambda x: torch.softmax(x, -1).bfloat16().double()),
        ("with 0.001 added to the sum", lambda x: (e := (x - x.amax(-1, True)).exp()) / (e.sum(-1, True) + 1e-3)),
        ("with one sum for every 4 rows", lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / _of_four(e)),
    ],
)
def test_a_usual_mistake_of_softmax_is_named(words: str, form: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = normal(20, 50).float().double()
    assert words in told(Call({"x": x}), softmax_oracle, {"y": form(x)})[1]


def test_a_block_that_is_divided_by_the_sum_so_far_is_named() -> None:
    x = normal(4, 200)
    e = (x - x[:, :128].amax(-1, keepdim=True)).exp()[:, :128]
    wrong = torch.cat([e / e.sum(-1, keepdim=True), torch.softmax(x, -1)[:, 128:]], -1)
    assert (
        "when each block of 128 is divided by the sum of the blocks so far"
        in told(Call({"x": x}), softmax_oracle, {"y": wrong})[1]
    )


@pytest.mark.parametrize("columns", [1, 1000])
def test_what_is_small_is_not_explained_by_another_mistake_that_makes_it_small(columns: int) -> None:
    """0, or a fourteenth of what is right, is no padding with thousands of zeros."""
    x = normal(3, columns)
    wrong = torch.zeros_like(x) if columns == 1 else torch.softmax(x, -1) / 14
    lines = told(Call({"x": x}), softmax_oracle, {"y": wrong})
    assert not any("zeros after each row" in line or "one sum for every" in line for line in lines)


def mixed(x: torch.Tensor, above: float, below: float) -> torch.Tensor:
    """A softmax with e^(above · t) in the numerator and e^(below · t) in the sum."""
    shifted = x - x.amax(-1, keepdim=True)
    return (above * shifted).exp() / (below * shifted).exp().sum(-1, keepdim=True)


@pytest.mark.parametrize(("above", "below"), [(LN_2, 1.0), (1.0, LN_2), (1 / LN_2, 1.0), (1.0, 1 / LN_2)])
@pytest.mark.parametrize("shape", [(1, 7), (3, 1000)])
def test_mixed_bases_are_no_overflow_and_no_padding(shape: tuple[int, int], above: float, below: float) -> None:
    x = normal(*shape).float()
    text = "\n".join(told(Call({"x": x}), softmax_oracle, {"y": mixed(x.double(), above, below)}))
    assert "consistent with base 2 mixed with base e: exp" in text
    assert not re.search("overflow|padding", text)


@pytest.mark.parametrize(
    ("words", "terms", "factor"),
    [
        ("of exp(x − m) is multiplied by exp2(m_old − m_new) after each block of 64", 1.0, LN_2),
        ("of exp(x − m) is multiplied by exp((m_old − m_new) log₂e) after each block of 64", 1.0, 1 / LN_2),
        ("of exp2(x − m) is multiplied by exp(m_old − m_new) after each block of 64", LN_2, 1.0),
    ],
)
def test_a_sum_rescaled_in_another_base_is_named(words: str, terms: float, factor: float) -> None:
    x = normal(20, 200).sort(-1).values
    x[0, :70] = -INF
    total, m = torch.zeros(20, 1, dtype=x.dtype), torch.full((20, 1), -INF, dtype=x.dtype)
    for piece in x.split(64, -1):
        above = torch.maximum(m, piece.amax(-1, keepdim=True))
        safe = above.clamp(min=-1e30)
        total = total * (factor * (m - safe)).exp() + (terms * (piece - safe)).exp().sum(-1, keepdim=True)
        m = above
    lines = told(Call({"x": x}), softmax_oracle, {"y": (terms * (x - m)).exp() / total})
    assert words in lines[1]
    assert "consistent with base 2 mixed with base e" in lines[1]


def _of_four(e: torch.Tensor) -> torch.Tensor:
    return e.view(5, -1).sum(-1).repeat_interleave(4)[:, None]


@pytest.mark.parametrize("constant", [1.44, 1.4, LN_2])
@pytest.mark.parametrize("where", ["", " in the numerator alone"])
def test_another_constant_in_the_exponent_is_told_by_its_value(constant: float, where: str) -> None:
    x = normal(1, 7)
    e = (shifted := x - x.amax(-1, True)).exp()
    other = (shifted * constant * LN_2).exp()
    wrong = other / (e if where else other).sum(-1, True)
    line = told(Call({"x": x}), softmax_oracle, {"y": wrong})[1]
    assert f"multiplied by {constant * LN_2:.5g}{where}: consistent with a wrong constant in the exponent" in line
    assert f"such as {constant:.5g} in place of log₂e" in line


@pytest.mark.parametrize("power", [2.0, 0.5])
def test_another_division_than_by_the_sum_is_named(power: float) -> None:
    x = normal(3, 100)
    e = (x - x.amax(-1, True)).exp()
    line = told(Call({"x": x}), softmax_oracle, {"y": e / e.sum(-1, True) ** power})[1]
    assert f"divided by {'the sum twice' if power == 2 else 'the root of the sum'}: consistent with" in line


def test_a_second_pass_that_stays_in_the_first_block_is_named() -> None:
    x = normal(4, 300)
    wrong = torch.softmax(x, -1)[:, torch.arange(300) % 128]
    assert "when the first block of 128 is there again" in told(Call({"x": x}), softmax_oracle, {"y": wrong})[1]


def test_a_sum_that_is_rescaled_twice_is_named() -> None:
    x = normal(8, 300)
    first, second = x.split([256, 44], -1)
    tops = first.amax(-1, True), x.amax(-1, True)
    total = (first - tops[0]).exp().sum(-1, True) * (2 * (tops[0] - tops[1])).exp() + (second - tops[1]).exp().sum(
        -1, True
    )
    line = told(Call({"x": x}), softmax_oracle, {"y": (x - tops[1]).exp() / total})[1]
    assert "when the sum of blocks of 256 is rescaled twice" in line


def test_strides_that_are_ignored_are_named() -> None:
    x = normal(50, 20).t()
    wrong = torch.softmax(x.as_strided((20, 50), (50, 1)), -1)
    lines = told(Call({"x": x}), softmax_oracle, {"y": wrong})
    assert "when x is read as if it were contiguous: consistent with strides that are ignored" in lines[1]


def test_strides_that_would_leave_the_memory_are_not_tried() -> None:
    x = normal(1).expand(20, 50)
    lines = told(Call({"x": x}), softmax_oracle, {"y": normal(20, 50)})
    assert lines[1].startswith("in this case x is not contiguous, its strides are (0, 0): where the cases")


def test_an_earlier_answer_is_recognised() -> None:
    before, now = Call({"x": normal(20, 50)}), Call({"x": normal(20, 50, seed=1)})
    lines = told(now, softmax_oracle, {"y": softmax_oracle(before)["y"]}, (before,))
    assert "for the data of an earlier call, call 1 of this case" in lines[1]
    assert lines[-1] == "the case's first call was right; this is call 2, with other data"


def test_where_x_is_too_large_is_said() -> None:
    x = torch.linspace(-20, 20, 401, dtype=torch.float64)
    wrong = gelu_oracle(Call({"x": x}))["y"].masked_fill(x > 9.05, NAN)
    assert any("wrong just where x is above 9" in line for line in told(Call({"x": x}), gelu_oracle, {"y": wrong}))


def test_a_formula_that_is_wrong_for_negative_numbers_does_not_overflow() -> None:
    x = torch.linspace(-4, 5, 500, dtype=torch.float64)
    lines = told(Call({"x": x}), gelu_oracle, {"y": gelu_oracle(Call({"x": x}))["y"].masked_fill(x < 0, NAN)})
    assert any("a formula that does not hold for negative numbers, such as |x|, a logarithm" in line for line in lines)
    assert not any("overflows or loses" in line for line in lines)


def test_elements_of_a_vector_in_another_order_are_recognised() -> None:
    x = normal(512)
    lines = told(Call({"x": x}), gelu_oracle, {"y": gelu_oracle(Call({"x": x}))["y"].view(2, 256).flip(1).flatten()})
    assert "the right values, but in another order: consistent with indices that are mixed up" in lines


def test_a_formula_that_is_wrong_nearly_everywhere_does_not_overflow() -> None:
    """It still gives x where x is large."""
    x = normal(31).sort().values
    x[-1] = 6.0
    wrong = torch.where(x < 6, 0.3 * x.cos() + x, x)
    assert not any("wrong just where" in line for line in told(Call({"x": x}), gelu_oracle, {"y": wrong}))


def test_of_a_row_no_element_is_wrong_because_of_its_own_size() -> None:
    """An entry of a softmax depends on all of its row: neither overflow nor -inf explains why small ones are wrong."""
    x = normal(4, 60)
    x[:, :20] = -INF
    right = softmax_oracle(Call({"x": x}))["y"]
    for wrong in (right.masked_fill(x < 0.5, 0.125), torch.where(x > -INF, right * (1.1 + 0.1 * normal(4, 60)), right)):
        lines = told(Call({"x": x}), softmax_oracle, {"y": wrong})
        assert not any("wrong just where x is" in line for line in lines)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_accused_of_an_error_that_it_does_not_make(seed: int, backward: bool) -> None:
    """Noise, a mistake with noise that is not small beside it, and half of a mistake."""
    call = attention_call(causal=seed % 2 == 1, backward=backward, n=1 + 9 * seed, keys=1 + 9 * seed)
    right = attention_oracle(call)
    doubled = attention_oracle(Call({name: 2 * one for name, one in call.args.items()}, call.options, call.upstream))
    for name, value in right.items():
        noise = normal(*value.shape, seed=seed + 50)  # no input's
        for wrong in (
            noise,
            value + 0.1 * noise,
            value + 0.3 * noise + (doubled[name] - value),
            1.7 * value + 0.1 * noise,
        ):
            assert not any("comes out" in line for line in told(call, attention_oracle, {name: wrong}))


@pytest.mark.parametrize("seed", range(10))
def test_noise_in_a_few_numbers_meets_no_formula(seed: int) -> None:
    for oracle, shape in ((gelu_oracle, (1 + seed,)), (softmax_oracle, (1 + seed % 3, 2 + seed))):
        call = Call({"x": normal(*shape, seed=seed)})
        wrong = oracle(call)["y"] * (1 + 0.1 * normal(*shape, seed=seed + 50))
        assert not any("comes out" in line for line in told(call, oracle, {"y": wrong}))


def test_nan_alone_is_not_explained_by_a_mistake_that_gives_nan_elsewhere() -> None:
    call = Call({"x": 1e4 * normal(20, 50)})
    wrong = softmax_oracle(call)["y"].clone()
    wrong[3, 7] = NAN
    assert not any("comes out" in line for line in told(call, softmax_oracle, {"y": wrong}))


def test_a_function_that_is_none_of_the_course_has_no_suspects() -> None:
    call = Call({"x": normal(30, 20)})
    lines = told(call, lambda call: {"y": 2 * call.args["x"].double()}, {"y": call.args["x"].exp()})
    assert not any("comes out" in line for line in lines)


def test_small_errors_come_after_those_that_can_be_shown() -> None:
    call = attention_call(backward=True)
    right = attention_oracle(call)
    got = {name: value.clone() for name, value in right.items()}
    got["dv"][0, 3] += 1
    bad = {name: (got[name] - right[name]).abs() > 0.1 for name in ("dq", "dv")}
    lines = explain_call(got, right, bad, Scene(call, attention_oracle, mistakes=mistakes_of(attention_oracle)))
    assert lines[0].startswith("dv[0, 3, 0] is the first wrong element")
    assert lines[-1].startswith("no single element of dq is far off")


def test_an_output_wrong_by_small_errors_has_its_mistake_named_too() -> None:
    x = normal(500)
    call = Call({"x": x})
    erf = torch.nn.functional.gelu(x)
    none = torch.zeros(500, dtype=torch.bool)
    lines = explain_call(
        {"y": erf}, gelu_oracle(call), {"y": none}, Scene(call, gelu_oracle, mistakes=mistakes_of(gelu_oracle))
    )
    assert "with erf" in lines[1]


def test_swapped_gradients_are_named_where_one_of_them_is_0() -> None:
    """With a single key dS is 0 but for rounding, and so is whatever is made of it."""
    args = {name: torch.full((1, 1, 16), value) for name, value in (("q", 1.0), ("k", 2.0), ("v", 3.0))}
    call = Call(args, {"is_causal": False}, torch.ones(1, 1, 16))

    def oracle(call: Call) -> dict[str, torch.Tensor]:
        right = attention_oracle(call)
        return right | {"dk": right["dk"] + 1e-18}

    swapped = {"dk": oracle(call)["dv"], "dv": torch.zeros(1, 1, 16)}
    assert told(call, oracle, swapped)[1].startswith("dk and dv are what comes out when the two are swapped")


def test_where_nothing_is_finite_it_is_said_plainly() -> None:
    lines = story(torch.full((4, 8), NAN), normal(4, 8))
    assert "no element is finite: all 32 are NaN where the right answer is finite: consistent with" in lines[1]
    x = normal(2, 50) + 200
    lines = told(Call({"x": x}), softmax_oracle, {"y": torch.full((2, 50), NAN)})
    assert lines[1].startswith("y is nowhere finite, as it would be ")
    assert "without the maximum subtracted" in lines[1]
    assert lines[1].endswith("or with any other mistake that leaves no number")


def test_a_few_elements_that_nobody_wrote_may_be_left_over() -> None:
    assert "a last, partial block" in story(poison((1,), torch.float32), normal(1))[1]
    assert "a last, partial block" not in story(poison((64,), torch.float32), normal(64))[1]


def test_a_few_huge_elements_do_not_make_a_factor_of_all() -> None:
    expected = torch.cat([normal(100) + 20, torch.linspace(1e37, 3e37, 6, dtype=torch.float64)])
    bad = torch.ones(106, dtype=torch.bool)
    lines = explain("y", torch.where(expected > 1e30, expected / 4, torch.tensor(10.0)), expected, bad)
    assert not any("times expected" in line for line in lines)


def test_a_suspect_must_fit_the_small_elements_too() -> None:
    """One number of 3e38 hides that the others are not what the suspect gives."""
    x = torch.tensor([3e38, 0.5, -1.0, 12.0, 15.0, 40.0], dtype=torch.float64)
    call = Call({"x": x})
    right = gelu_oracle(call)["y"]
    lines = told(call, gelu_oracle, {"y": torch.where(x > 10, 10.0, right).float()})
    assert not any("without the factor x" in line for line in lines)
    lines = told(call, gelu_oracle, {"y": (right / x).float()})
    assert any("without the factor x" in line for line in lines)


def test_what_is_only_not_finite_alike_is_not_called_the_same() -> None:
    x = normal(4, 64) - 200.0
    x[0] += 200.0
    x[1] = 1e3
    call = Call({"x": x})
    right = softmax_oracle(call)["y"]
    got = torch.where(x.abs() > 100, torch.nan, right)
    (line,) = [line for line in told(call, softmax_oracle, {"y": got.float()}) if "not finite where" in line]
    assert "what comes out" not in line
    assert line.endswith("or with another mistake that leads there")


def test_a_part_of_an_output_is_told_by_its_place_in_the_whole() -> None:
    expected = torch.linspace(1.0, 2.0, 40, dtype=torch.float64)
    got = expected.float()
    got[7:] = 0.0
    before = 2**31 - 20
    lines = explain("y", got, expected, got != expected.float(), before=before)
    assert lines[0].startswith(f"y[{before + 7}] is the first wrong element: expected 1.17949, got 0")
    assert lines[0].endswith(f"of y[{before}:{before + 40}] 33 of 40 elements (82.5%) are wrong")
    assert lines[1] == "everything before that is right: consistent with an index or a length kept in 32 bits"
    assert not any("33–39" in line or "7–39" in line for line in lines)
    assert explain("y", got, expected, got != expected.float(), before=100)[1] == "everything before that is right"
    assert not any("before that" in line for line in explain("y", got, expected, got != expected.float(), before=0))


def test_an_output_of_few_elements_is_shown_whole() -> None:
    def told(expected: torch.Tensor, got: torch.Tensor) -> str:
        scene = Scene(Call({"x": expected.float()}), lambda _: {"y": expected}, [], None)
        return explain_call({"y": got}, {"y": expected}, {"y": (got - expected).abs() > 1e-5}, scene)[-1]

    seven = torch.tensor([[0.1, 0.2, 0.3, 0.05, 0.05, 0.1, 0.2]], dtype=torch.float64)
    got = seven.float()
    got[0, -1] = 0.7
    assert told(seven, got) == (
        "y: expected  0.1  0.2  0.3  0.05  0.05  0.1  0.2\n   got       0.1  0.2  0.3  0.05  0.05  0.1  0.7"
    )
    one = torch.tensor([0.5], dtype=torch.float64)
    assert told(one, one.float() * (1 + 2e-6)) == "y: expected  0.5\n   got       0.500001"
    assert "got  " not in told(seven.expand(2, 7), got.expand(2, 7).contiguous())
    unwritten = torch.full((2, 2), POISON_BYTE, dtype=torch.uint8).repeat(1, 4).view(torch.float32).clone()
    unwritten[0] = torch.tensor([1.0, 2.0001])
    assert told(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64), unwritten) == (
        "y: expected  1  2       | 3              4\n   got       1  2.0001  | never written  never written"
    ).replace("  |", " |")
