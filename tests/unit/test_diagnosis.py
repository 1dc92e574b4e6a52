"""The diagnosis names where an output is wrong and recognises the usual patterns, and only those."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.protocol import GUARD_BYTE, POISON_BYTE
from grader.verdict import diagnosis
from grader.verdict.diagnosis import explain, poisoned, small_errors

INF, NAN = math.inf, math.nan
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
        ([NAN, NAN], "NaN", "inf − inf, 0/0, or exp of a large number"),
        ([INF, -INF], "infinite", "an overflow"),
        ([INF, NAN], "NaN or infinite", "inf − inf, 0/0, or exp of a large number"),
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
