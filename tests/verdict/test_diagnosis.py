"""The diagnosis names where an output is wrong and recognises the usual patterns, and only those."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from grader.assignment import load_assignment
from grader.problem import Call, Mistakes, load_problem
from grader.protocol import EARLY_VALUE, FILL_BYTE, GUARD_BYTE, LaunchedKernel
from grader.verdict import diagnosis
from grader.verdict.causes import OF_INFINITY, OF_NAN
from grader.verdict.diagnosis import differs, explain, explain_call
from grader.verdict.fill import holds_fill
from grader.verdict.suspects import Scene
from tests.conftest import ROOT as COURSE

INF, NAN = math.inf, math.nan
LN_2 = math.log(2)
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
HALF = [torch.float16, torch.bfloat16]
# What each sentence about a cause is known by.
CAUSES = (
    "never written",
    "where the right answer is finite",
    "every element is",
    "transposed",
    "times expected throughout",
    "a factor of its own",
    "in another order",
)


class Example(NamedTuple):
    """An output, what is wrong in it, and words for it; or, where there is no pattern, words that it must not have."""

    expected: Tensor
    got: Tensor
    words: str


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def changed(expected: Tensor, where: object, values: Tensor | float = 0.0, *, factor: float = 0.0) -> Tensor:
    """`values` and `factor` times what was there, at some places; the rest as it was."""
    got = expected.clone()
    got[where] = factor * got[where] + values
    return got


def story(got: Tensor, expected: Tensor, tolerance: float = 1e-4) -> list[str]:
    bad = ~((got.double() - expected).abs() <= tolerance * expected.abs().max())
    assert bool(bad.any()), "the example is not wrong at all"
    return explain("y", got, expected, bad)


def poison(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Memory as the judge leaves it before a call."""
    size = math.prod(shape) * dtype.itemsize
    return torch.frombuffer(bytearray([FILL_BYTE] * size), dtype=dtype).view(shape)


# The first line: where and how many -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "expected", "line"),
    [
        (f64([[0, 7.5, 9]]), f64([[0, -0.125, 1]]), "y[0, 1] {}-0.125, got 7.5; 2 of 3 elements (66.7%) are wrong"),
        (f64([2.5]), f64([1.0]), "y[0] {}1, got 2.5; it is wrong"),
        (f64(2.5), f64(1.0), "y {}1, got 2.5; it is wrong"),
        (f64([7.0, 8.0]), f64([1.0, 1.0]), "y[0] {}1, got 7; all 2 elements are wrong"),
        (f64([0.0, 1.0000001]), f64([0.0, 1.0]), "y[1] {}1, got 1.0000001; 1 of 2 elements is wrong"),
        (poison((2,), torch.float32), f64([1.0, 1.0]), "y[0] {}1, got never written; all 2 elements are wrong"),
    ],
)
def test_the_first_wrong_element_is_named_with_its_index_both_values_and_the_count(
    got: Tensor, expected: Tensor, line: str
) -> None:
    assert story(got, expected, tolerance=0)[0] == line.format("is the first wrong element: expected ")


# Never written --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_recognised_bit_by_bit(dtype: torch.dtype) -> None:
    values = torch.cat([poison((2,), dtype), torch.tensor([NAN, -NAN, 0.0, -0.0, INF, -INF, 1.0], dtype=dtype)])
    assert holds_fill(values).tolist() == [True, True] + [False] * 7
    assert holds_fill(values.view(3, 3).t()).tolist() == [[True, False, False], [True, False, False], [False] * 3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_that_a_kernel_computes_is_called_never_written(dtype: torch.dtype) -> None:
    """Neither NaN nor what comes of the fill pattern or of a guard band: a kernel that writes that has written something."""
    zero, inf = torch.zeros(1, dtype=dtype), torch.full((1,), INF, dtype=dtype)
    guard = torch.full((dtype.itemsize,), GUARD_BYTE, dtype=torch.uint8).view(dtype)
    computed = [zero / zero, inf - inf, zero * inf, -(zero / zero), torch.sqrt(zero - 1), torch.log(zero - 1), guard]
    for value in (guard, poison((1,), dtype)):
        computed += [2 * value, value + value, value / 3, -value, value * value, value.exp(), torch.softmax(value, 0)]
    assert not bool(holds_fill(torch.cat(computed)).any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_finite_and_unlike_any_answer(dtype: torch.dtype) -> None:
    """A large negative number would act as -inf in a maximum that starts in unwritten memory."""
    value = float(poison((1,), dtype))
    assert math.isfinite(value)
    assert value > 6e4


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_never_written_is_counted(dtype: torch.dtype) -> None:
    expected = normal(100)
    lines = story(changed(expected.to(dtype), slice(90, None), poison((1,), dtype)), expected, tolerance=0.05)
    assert lines[1] == (
        "10 of 100 elements (10%) were never written: consistent with a grid that is too small, or elements left over at the "
        "end that nobody handles"
    )
    assert lines[2] == "only elements 90–99 of 100 are wrong"


@pytest.mark.parametrize(
    ("shape", "unwritten", "cause"),
    [
        ((100,), slice(26, 100), "a grid that is too small, or elements"),
        ((100,), slice(0, 1), "elements that no thread or program takes for its own"),
        ((100,), slice(0, 100, 3), "elements that no thread or program takes for its own"),
        (
            (8,),
            slice(None),
            "no launch, results that went elsewhere, .*; or with a bound or a last, partial block that leaves so few out$",
        ),
        ((1,), slice(None), "no launch, .* a last, partial block"),
        ((64,), slice(None), "no launch, .* an output that was computed from its own unwritten contents$"),
        ((4, 8), (..., slice(3, None)), "a block that is shorter than a row, and no loop over the rest"),
        ((4, 8), (..., slice(0, 5)), "elements that no thread or program takes for its own"),
        ((4, 8), (..., slice(0, None, 2)), "elements that no thread or program takes for its own"),
        ((4, 8), (1, 3), "elements that no thread or program takes for its own"),
        ((4, 8), (0, slice(3, None)), "elements that no thread or program takes for its own"),
        ((4, 8), slice(2, None), "a grid that is too small, or elements"),
        ((2, 4, 8), 1, "a grid that is too small or has its axes swapped, or elements"),
    ],
)
def test_what_was_never_written_has_a_cause_by_its_place(shape: tuple[int, ...], unwritten: object, cause: str) -> None:
    expected = normal(*shape)
    line = story(changed(expected.float(), unwritten, poison((1,), torch.float32)), expected)[1]
    assert re.search(f"never written: consistent with {cause}", line)


# Not finite -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([NAN, NAN], f"are NaN where the right answer is finite, first at [2, 3]: consistent with {OF_NAN}"),
        ([INF, -INF], f"are infinite where the right answer is finite, first at [2, 3]: consistent with {OF_INFINITY}"),
        (
            [INF, NAN],
            f"are NaN or infinite where the right answer is finite, first at [2, 3]: consistent with {OF_NAN}",
        ),
    ],
)
def test_nan_and_overflow_are_told_apart(values: list[float], told: str) -> None:
    expected = normal(4, 10)
    lines = story(changed(expected, ([2, 3], [3, 1]), f64(values)).float(), expected)
    assert lines[1] == f"2 of 40 elements (5%) {told}"


def test_an_infinity_that_is_right_is_no_overflow() -> None:
    expected = changed(normal(40), 3, INF)
    got = changed(expected, 5, 3.0)
    assert not any("finite" in line for line in explain("y", got, expected, got != expected))


# Patterns of the values -----------------------------------------------------------------------------------------------


ROWS, PEAKED = (torch.softmax(scale * normal(10, 50), -1) for scale in (1, 8))
FACTORS = torch.linspace(0.5, 0.9, 10, dtype=torch.float64)[:, None]
WRONG_SUMS = changed(changed(ROWS, slice(5, None), factor=0.8), 6, factor=0.4)
VECTOR, MATRIX, CUBE = normal(100), normal(50, 64), normal(3, 40, 16)
PATTERNS = {
    "nothing but zeros": Example(
        MATRIX,
        torch.zeros(50, 64),
        "every element is 0: consistent with a factor that is 0, as 1 / 2 is in integers, or a kernel that stored nothing",
    ),
    "no number": Example(
        MATRIX,
        torch.full((50, 64), NAN),
        f"no element is finite: all 3200 are NaN where the right answer is finite: consistent with {OF_NAN}",
    ),
    "a constant": Example(
        MATRIX, torch.full((50, 64), -3.5), "every element is -3.5: consistent with a kernel that stored"
    ),
    **{
        f"transposed {shape}": Example(normal(*shape), normal(*shape).transpose(-1, -2).reshape(shape), "transposed")
        for shape in [(5, 5), (4, 6), (2, 8, 8), (3, 4, 6)]
    },
    "a factor on some rows": Example(
        MATRIX, changed(MATRIX, slice(30, 40), factor=8), "the wrong elements are 8 times expected"
    ),
    "wrong row sums": Example(
        ROWS, ROWS * FACTORS, "a factor of its own, from 0.5 to 0.9: consistent with a wrong row sum"
    ),
    "some wrong row sums": Example(ROWS, WRONG_SUMS, "a factor of its own, from 0.32 to 1"),
    "wrong sums of peaked rows, most of whose entries vanish": Example(
        PEAKED,
        (PEAKED * FACTORS).masked_fill(1e-3 * PEAKED.amax(-1, True) > PEAKED, 0.0),
        "a factor of its own, from 0.5 to 0.9",
    ),
    "in another order": Example(
        CUBE,
        CUBE.reshape(3, 16, 40).transpose(1, 2).reshape(3, 40, 16)[:, torch.randperm(40)],
        "in another order: consistent with strides that are ignored",
    ),
    "one place too late": Example(
        VECTOR, VECTOR.roll(1), "in another order: consistent with indices that are mixed up"
    ),
    "a vector in another order": Example(
        VECTOR, VECTOR.view(2, 50).flip(1).flatten(), "consistent with indices that are mixed up"
    ),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_of_the_values_is_recognised(name: str) -> None:
    expected, got, words = PATTERNS[name]
    assert words in story(got.float(), expected)[1]


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (64.0, "a sum that is made 64 times"),
        (2.0, "a sum that is made 2 times"),
        (0.5, "got is 0.5 times expected throughout"),
        (3.3, "got is 3.3 times expected throughout"),
        (-1.0, "got is -1 times expected throughout"),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_constant_factor_is_named(factor: float, words: str, dtype: torch.dtype) -> None:
    lines = story((factor * MATRIX).to(dtype), MATRIX, tolerance=0.01)
    assert words in lines[1]
    assert float(re.search(r"(\S+) times expected", lines[1])[1]) == pytest.approx(factor, rel=1e-2)  # type: ignore[index]


@pytest.mark.parametrize("dtype", HALF)
def test_rounding_to_16_bits_hides_no_pattern(dtype: torch.dtype) -> None:
    for name, words in (("some wrong row sums", "a factor of its own"), ("in another order", "in another order")):
        expected, got, _ = PATTERNS[name]
        assert words in story(got.to(dtype), expected, tolerance=0.01)[1]


# Which positions ------------------------------------------------------------------------------------------------------


def spoiled(expected: Tensor, where: object) -> Tensor:
    """Noise where the output is to be wrong, which is no pattern of values."""
    noise = 3 + normal(*expected.shape, seed=9).abs() * normal(*expected.shape, seed=8).sign()
    return changed(expected, where, noise[where], factor=1.0).float()  # type: ignore[index]


PARTIAL = "what is left after full blocks of {}: consistent with a last, partial block that is not handled or masked"


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
    assert last == f"only {span} wrong, {PARTIAL.format(block)}"


@pytest.mark.parametrize(
    ("shape", "where", "words"),
    [
        ((100,), (slice(95, None),), "only elements 95–99 of 100 are wrong"),
        ((128,), (slice(64, None),), "only elements 64–127 of 128 are wrong"),
        ((100,), (slice(64, 99),), "only elements 64–98 of 100 are wrong"),
        ((128,), (slice(127, None),), "only element 127 of 128 is wrong"),
        ((2, 100, 16), (slice(None), slice(96, None)), f"only rows 96–99 of 100 are wrong, {PARTIAL.format(32)}"),
        ((20,), (slice(7, 8),), "only element 7 of 20 is wrong"),
        ((20, 30), (7,), "only row 7 of 20 is wrong"),
        ((20, 30), (slice(None), 7), "only column 7 of 30 is wrong"),
        ((20, 30), (slice(4, 9),), "only rows 4–8 of 20 are wrong"),
        ((20, 30), (slice(None), slice(0, 3)), "only columns 0–2 of 30 are wrong"),
        ((5, 20, 30), (2,), "only batch entry 2 of 5 is wrong"),
        ((5, 20, 30), (slice(2, 4),), "only batch entries 2–3 of 5 are wrong"),
        ((5, 20, 30), (slice(None), 4), "only row 4 of 20 is wrong"),
        ((4, 10, 16), (..., 15), "only column 15 of 16 is wrong"),
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
    assert len(story(spoiled(MATRIX, slice(None)), MATRIX)) == 1


# No pattern where there is none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("shape", [(64,), (1000,), (8, 8), (20, 33), (2, 16, 16), (3, 50, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_random_errors_are_no_pattern(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> None:
    expected = normal(*shape, seed=seed)
    got = (expected + normal(*shape, seed=seed + 1000)).to(dtype)
    assert not [line for line in story(got, expected, tolerance=0.02) for cause in CAUSES if cause in line]


@pytest.mark.parametrize("seed", range(20))
def test_a_few_random_errors_are_no_pattern(seed: int) -> None:
    expected = torch.softmax(normal(30, 40, seed=seed), -1)
    places = torch.randint(1200, (5,), generator=torch.Generator().manual_seed(seed))
    got = changed(expected.view(-1), places, 0.1 + 0.01 * places / 1200, factor=1.0).view(30, 40)
    assert not [line for line in story(got.float(), expected) for cause in CAUSES if cause in line]


SYMMETRIC = normal(8, 8) + normal(8, 8).t()
ZERO_ROW = changed(normal(10, 20), 4)
POSITIVE = normal(1000).abs() + 0.5
MASKED = torch.rand(20, 50, generator=torch.Generator().manual_seed(3)) < 0.3
MASKED_ROWS = torch.softmax(normal(20, 50).masked_fill(MASKED, -INF), -1)
NOISY_ROW = changed(changed(ROWS, 3, factor=20), 7, 0.5 * ROWS[7].max() * normal(50, seed=4).clamp(-2, 2), factor=1)
HUGE = torch.cat([VECTOR + 20, torch.linspace(1e37, 3e37, 6, dtype=torch.float64)])
OTHER_SPREADS = [(normal(*shape), normal(*shape, seed=1)) for shape in [(2, 40, 16), (2, 128, 64), (1, 1024, 128)]]
NO_PATTERNS = {
    "other values": Example(normal(16, 16), normal(16, 16, seed=5).float(), "transposed|another order"),
    # Wrong, but no more transposed than it was.
    "one element of a symmetric output": Example(SYMMETRIC, changed(SYMMETRIC, (0, 0), 0.08, factor=1), "transposed"),
    "three elements": Example(POSITIVE, changed(POSITIVE, [3, 9, 20], factor=2), "times expected"),
    "zeros in some rows": Example(MATRIX, changed(MATRIX, slice(10, 20)), "times expected|factor"),
    "zeros in a part of a vector": Example(VECTOR, changed(VECTOR, slice(10, 20)), "times expected|factor"),
    "rows off by rounding": Example(
        MATRIX, MATRIX * torch.linspace(1 - 5e-5, 1 + 5e-5, 50)[:, None].double(), "a factor of its own"
    ),
    "a row of zeros": Example(ZERO_ROW, ZERO_ROW * FACTORS, "nan"),
    # Masked entries come out as 0.5 instead of 0; everything else is right.
    "rounding in float16": Example(MASKED_ROWS, MASKED_ROWS.half().masked_fill(MASKED, 0.5), "a factor of its own"),
    "errors of a few roundings in float16": Example(
        MATRIX, (MATRIX * (1 + 0.01 * normal(50, 64, seed=3).clamp(-2, 2))).half(), "|".join(CAUSES)
    ),
    "a row of noise beside another row's factor": Example(ROWS, NOISY_ROW, "a factor of its own"),
    "a few elements that are 5% too large": Example(
        POSITIVE, changed(POSITIVE, slice(0, None, 17), factor=1.05), "throughout"
    ),
    "a few huge elements": Example(HUGE, torch.where(HUGE > 1e30, HUGE / 4, 10.0), "times expected"),
    "equal values": Example(torch.ones(4, 20).double(), changed(torch.ones(4, 20).double(), 2, 1.01), "another order"),
    # Sorted, they are as near to the right ones as they are where they stand.
    "a little off in their own places": Example(
        CUBE, changed(CUBE, (1, 0, slice(0, None, 9)), factor=1.01), "another order"
    ),
    **{
        f"{which} of the same spread in {tuple(expected.shape)}": Example(expected, got, "another order")
        for expected, other in OTHER_SPREADS
        for which, got in (
            ("other values", other),
            ("half", torch.cat([other[:, : other.shape[1] // 2], expected[:, other.shape[1] // 2 :]], 1)),
        )
    },
}


@pytest.mark.parametrize("name", NO_PATTERNS)
def test_what_only_resembles_a_pattern_is_not_called_one(name: str) -> None:
    expected, got, words = NO_PATTERNS[name]
    got = got if got.element_size() == 2 else got.float()
    lines = explain("y", got, expected, (got.double() - expected).abs() > 1e-6 * expected.abs().clamp(min=1e-2))
    assert not [line for line in lines[1:] if re.search(words, line)]


# Huge outputs: patterns are looked for in a part ------------------------------------------------------------------------


def test_a_pattern_in_a_part_of_a_huge_output_says_which_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "SAMPLE", 200)
    expected = normal(100, 10).abs() + 0.5
    lines = story(changed(expected, slice(30, None), factor=LN_2).float(), expected)
    assert lines[0].startswith("y[30, 0] is the first wrong element")
    assert lines[0].endswith("700 of 1000 elements (70%) are wrong")
    assert lines[1].startswith("in the next 200 elements: got is 0.6931 times expected throughout")
    assert lines[2] == "only rows 30–99 of 100 are wrong"
    lines = story(changed(expected.float(), slice(95, None), poison((5, 10), torch.float32)), expected)
    assert lines[1].startswith("in the next 50 elements: all 50 elements were never written")
    got = changed(changed(expected, (30, 0), 9.0), (33, 4), NAN).float()
    assert "first at [33, 4]" in story(got, expected)[1]
    # One that is small enough is looked at whole.
    assert story((2 * expected[:20]).float(), expected[:20])[1].startswith("got is 2 times expected throughout")


def test_a_part_of_an_output_is_told_by_its_place_in_the_whole() -> None:
    expected = torch.linspace(1.0, 2.0, 40, dtype=torch.float64)
    got = changed(expected, slice(7, None)).float()
    bad, before = got != expected.float(), 2**31 - 20
    lines = explain("y", got, expected, bad, before=before)
    assert lines[0].startswith(f"y[{before + 7}] is the first wrong element: expected 1.17949, got 0")
    assert lines[0].endswith(f"of y[{before}:{before + 40}] 33 of 40 elements (82.5%) are wrong")
    assert lines[1] == "everything before that is right: consistent with an index or a length kept in 32 bits"
    assert not any("7–39" in line for line in lines)
    assert explain("y", got, expected, bad, before=100)[1] == "everything before that is right"
    assert not any("before that" in line for line in explain("y", got, expected, bad, before=0))


# Robustness -----------------------------------------------------------------------------------------------------------

shapes = st.lists(st.integers(1, 9), min_size=0, max_size=4).map(tuple)
specials = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, 6e4, INF, -INF, NAN, 0.5, 2.0])


@given(shapes, st.data(), st.sampled_from(DTYPES))
def test_explain_never_raises_and_always_says_where(
    shape: tuple[int, ...], data: st.DataObject, dtype: torch.dtype
) -> None:
    count = math.prod(shape)

    def draw(elements: st.SearchStrategy[float]) -> Tensor:
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
    turned: Callable[[Tensor], Tensor] = lambda tensor: tensor.t().contiguous().t()  # noqa: E731
    assert explain("y", turned(got), turned(expected), turned(bad)) == explain("y", got, expected, bad)


def test_two_runs_that_differ_are_counted() -> None:
    first = normal(10, 10).float()
    second = changed(first, (3, slice(4)), 9.0)
    first[0, 0] = second[0, 0] = NAN
    (line,) = differs("dq", first, second)
    assert line.startswith("4 of 100 elements (4%) of dq differ between two runs on the same inputs: consistent with")
    assert differs("dq", first, first.clone()) == []


# A call with its inputs: the usual mistakes -------------------------------------------------------------------------------

Outputs = dict[str, Tensor]
Oracle = Callable[[Call], Outputs]


def exps(x: Tensor) -> Tensor:
    """exp(x − m) of each row."""
    return (x - x.amax(-1, True)).exp()


def total(x: Tensor) -> Tensor:
    return x.sum(-1, True)


def masked(scores: Tensor, score: float = -INF, first: int = 1) -> Tensor:
    """With `score` for the keys from the `first` behind each query on."""
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(first), score)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float = 0.0) -> Tensor:
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    return torch.softmax(masked(scores) if causal else scores, -1) @ v


def attention_oracle(call: Call) -> Outputs:
    leaves = [tensor.double().detach().requires_grad_() for tensor in call.args.values()]
    o = attention(*leaves, bool(call.options["is_causal"]))  # type: ignore[arg-type]
    if call.upstream is None:
        return {"o": o.detach()}
    return dict(zip(("dq", "dk", "dv"), torch.autograd.grad(o, leaves, call.upstream.double()), strict=True))


def softmax_oracle(call: Call) -> Outputs:
    return {"y": torch.softmax(call.args["x"].double(), -1)}


ROOT = math.sqrt(2 / math.pi)


def argument(x: Tensor) -> Tensor:
    """u, of which GeLU takes tanh."""
    return ROOT * (x + 0.044715 * x**3)


def with_tanh_of(x: Tensor, u: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(u))


def gelu(x: Tensor) -> Tensor:
    return with_tanh_of(x, argument(x))


def gelu_oracle(call: Call) -> Outputs:
    return {"y": gelu(call.args["x"].double())}


@functools.cache
def mistakes_of(oracle: Oracle) -> Mistakes | None:
    """Those of the assignment whose oracle it is."""
    folders = {attention_oracle: "flash_attention", softmax_oracle: "softmax", gelu_oracle: "cuda_gelu"}
    if oracle not in folders:
        return None
    return load_problem(load_assignment(COURSE / "assignments" / folders[oracle]))[0].mistakes


def told(
    call: Call | Tensor,
    oracle: Oracle,
    wrong: Outputs | Tensor,
    earlier: tuple[Call, ...] = (),
    is_queued: bool = False,
) -> list[str]:
    """What is said of a call, with the argument x, some of whose outputs are `wrong`, or its only one; the others are right."""
    call = call if isinstance(call, Call) else Call({"x": call})
    expected = oracle(call)
    wrong = wrong if isinstance(wrong, dict) else dict.fromkeys(expected, wrong)
    dtype = next(iter(call.args.values())).dtype
    got = {name: wrong.get(name, right).to(dtype) for name, right in expected.items()}
    bad = {
        name: ~((got[name].double() - right).abs() <= 1e-4 * right.abs().nan_to_num(0).max())
        for name, right in expected.items()
        if name in wrong
    }
    scene = Scene(call, oracle, earlier, mistakes=mistakes_of(oracle), is_queued=is_queued)
    return explain_call(got, expected, bad, scene)


def attention_call(n: int = 40, keys: int = 0, d: int = 16, causal: bool = False, backward: bool = False) -> Call:
    """With as many keys as queries unless `keys` says otherwise."""
    sizes = {"q": n, "k": keys or n, "v": keys or n}
    args = {name: normal(2, size, d, seed=seed).float() for seed, (name, size) in enumerate(sizes.items())}
    return Call(args, {"is_causal": causal}, normal(2, n, d, seed=3).float() if backward else None)


def online(q: Tensor, k: Tensor, v: Tensor, of_o: float, of_sum: float) -> Tensor:
    """The online softmax in blocks of 16 keys, with powers of exp(m_old − m_new)."""
    s = q @ k.mT / 4
    top, below, o = torch.full_like(s[..., :1], -INF), torch.zeros_like(s[..., :1]), torch.zeros_like(q)
    for start in range(0, s.shape[-1], 16):
        piece = s[..., start : start + 16]
        new = torch.maximum(top, piece.amax(-1, True))
        p = (piece - new).exp()
        below = below * (of_sum * (top - new)).exp() + total(p)
        o, top = o * (of_o * (top - new)).exp() + p @ v[:, start : start + 16], new
    return o / below


def divided_by_blocks(s: Tensor, v: Tensor, once_more: bool) -> Tensor:
    """s: the scores, -inf behind the diagonal. By the sum so far after each block of 32 keys, of each row as far as the diagonal's."""
    rows = []
    for i in range(s.shape[1]):
        top, below, o = (
            torch.full((len(s), 1), -INF).double(),
            torch.zeros(len(s), 1).double(),
            torch.zeros_like(v[:, 0]),
        )
        for start in range(0, s.shape[2] if s.isfinite().all() else i // 32 * 32 + 32, 32):
            piece = s[:, i, start : start + 32]
            new = torch.maximum(top, piece.amax(-1, True))
            p, factor = (piece - new).exp(), (top - new).exp()
            below = below * factor + total(p)
            o, top = (o * factor + (p[:, None] @ v[:, start : start + 32])[:, 0]) / below, new
        rows.append(o / below if once_more else o)
    return torch.stack(rows, 1)


def by_columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """In one tile of 64 × 64, with queries and keys of 0 beyond the end; the sums run over the queries."""
    n = q.shape[1]
    q, k, v = (torch.nn.functional.pad(one, (0, 0, 0, 64 - n)) for one in (q, k, v))
    p = exps((q @ k.mT / 4).masked_fill(torch.arange(64) >= n, -INF))
    return (p @ v / p.sum(-2)[..., None])[:, :n]


def more_keys(count: int, *tensors: Tensor) -> list[Tensor]:
    """With keys of 0 at the end."""
    return [torch.nn.functional.pad(one, (0, 0, 0, count)) for one in tensors]


Form = Callable[..., Tensor]  # of the inputs


class Mistake(NamedTuple):
    """form: what comes out, of the inputs or of `Backward`."""

    words: str
    call: Any
    form: Callable[..., Any]


FORWARD: dict[str, Form] = {
    "without the scale": partial(attention, scale=1.0),
    "with the scale 1/d in place": partial(attention, scale=1 / 16),
    "with the scale of head_dim 64: consistent with a scale that is fixed": partial(attention, scale=1 / 8),
    "or a factor 1/2 too many": partial(attention, scale=1 / 8),
    "with exp2 in place of exp": partial(attention, scale=LN_2 / 4),
    "such as 1.44 in place of log₂e": partial(attention, scale=1.44 * LN_2 / 4),
    "with k and v swapped": lambda q, k, v: attention(q, v, k),
    "with a causal mask": partial(attention, causal=True),
    "without the last 8 of 40 keys, what is left after full blocks of 32": lambda q, k, v: attention(
        q, k[:, :32], v[:, :32]
    ),
    "without the last of 40 keys": lambda q, k, v: attention(q, k[:, :39], v[:, :39]),
    "with k and v of batch entry 0: consistent with a batch offset that is missing": lambda q, k, v: attention(
        q, k[:1].expand(2, -1, -1), v[:1].expand(2, -1, -1)
    ),
    "for q, k and v rounded to bfloat16": lambda *args: attention(*(one.bfloat16().double() for one in args)),
    "with the scores rounded to bfloat16": lambda q, k, v: torch.softmax((q @ k.mT / 4).bfloat16().double(), -1) @ v,
    "with the weights rounded to bfloat16": lambda q, k, v: (
        (p := exps(q @ k.mT / 4)).bfloat16().double() @ v / total(p)
    ),
    "with o rounded to bfloat16": lambda q, k, v: attention(q, k, v).bfloat16().double(),
    "with −S in place of S": lambda q, k, v: attention(-q, k, v),
    "when each block of 32 keys has a softmax of its own": lambda q, k, v: (
        attention(q, k[:, :32], v[:, :32]) + attention(q, k[:, 32:], v[:, 32:])
    ),
    "when the output is divided by the sum so far after each block of 32 keys": lambda q, k, v: divided_by_blocks(
        q @ k.mT / 4, v, False
    ),
    "with 8 more keys of zeros": lambda q, k, v: attention(q, *more_keys(8, k, v)),
    "with 8 more keys whose score is -1, padded to blocks of 16": lambda q, k, v: (
        (p := (q @ k.mT / 4).exp()) @ v / (total(p) + 8 * math.exp(-1))
    ),
    "when all weights are equal": lambda q, k, v: attention(0 * q, k, v),
    **{
        f"when the {words} as the maximum moves from one block of 16 keys": partial(online, of_o=of_o, of_sum=of_sum)
        for words, of_o, of_sum in (
            ("output is rescaled twice", 2.0, 1.0),
            ("sum is rescaled twice", 1.0, 2.0),
            ("output and the sum are rescaled twice", 2.0, 2.0),
            ("output and the sum are rescaled by exp2 in place of exp", LN_2, LN_2),
            ("sum is rescaled by exp2 in place of exp", 1.0, LN_2),
        )
    },
    "when it is divided by the sum twice": lambda q, k, v: (p := exps(q @ k.mT / 4)) @ v / total(p) ** 2,
    "with 0.001 added to the sum": lambda q, k, v: (p := exps(q @ k.mT / 4)) @ v / (total(p) + 1e-3),
    "with the sums of the columns, and not of the rows, of each tile of 64 × 64": by_columns,
}


def relative_to(maximum: Form, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With another maximum of the scores than each row's, in float32, where rows vanish."""
    s = q @ k.mT / 4
    p = (s - maximum(s)).float().exp().double()
    return p @ v / total(p)


EVEN = torch.arange(40)[:, None] % 2 == 0
LARGE = attention_call().args["k"].abs() + 20
APART = attention_call().args["q"] * torch.where(EVEN, 300.0, 1.0)
# Of other calls than the default one.
FORWARD_OF = [
    Mistake(
        "with a maximum that starts at 0",
        replace(attention_call(), args=attention_call().args | {"q": torch.where(EVEN, -LARGE, LARGE), "k": LARGE}),
        partial(relative_to, lambda s: s.amax(-1, True).clamp(min=0)),
    ),
    Mistake(
        "with one maximum for all queries of a tile",
        replace(attention_call(), args=attention_call().args | {"q": APART}),
        partial(relative_to, lambda s: s.amax((-2, -1), True)),
    ),
    Mistake(
        "with the scale 1/√32, as many as there are keys: consistent with a scale from the length",
        attention_call(keys=32),
        partial(attention, scale=1 / math.sqrt(32)),
    ),
    Mistake(
        "when a query sees one key too many",
        attention_call(causal=True),
        lambda q, k, v: torch.softmax(masked(q @ k.mT / 4, first=2), -1) @ v,
    ),
    *(
        Mistake(
            f"with {score:g} as the score of the keys that the causal mask hides{end}",
            attention_call(causal=True),
            lambda q, k, v, score=score, more=more: (
                torch.softmax(masked(q @ (wide := more_keys(more, k, v))[0].mT / 4, score), -1) @ wide[1]
            ),
        )
        for score in (0.0, -1.0, -10.0)
        for end, more in ((":", 0), (", and of those beyond the end", 24))
        if score or not more
    ),
    Mistake(
        "when each block of 32 keys has a softmax of its own",
        attention_call(n=100, causal=True),
        lambda q, k, v: sum(
            torch.softmax(piece, -1).nan_to_num(nan=0.0) @ v[:, 32 * i : 32 * i + 32]
            for i, piece in enumerate(masked(q @ k.mT / 4).split(32, -1))
        ),
    ),
    *(
        Mistake(
            f"after each block of 32 keys{end}",
            attention_call(n=100, causal=True),
            lambda q, k, v, once_more=once_more: divided_by_blocks(masked(q @ k.mT / 4), v, once_more),
        )
        for end, once_more in ((":", False), (", and at the end", True))
    ),
]


class Backward:
    """The parts of attention's backward pass, in float64."""

    def __init__(self, call: Call) -> None:
        assert call.upstream is not None
        self.q, self.k, self.v, self.do = (one.double() for one in (*call.args.values(), call.upstream))
        self.unmasked = self.q @ self.k.mT * self.q.shape[-1] ** -0.5
        self.s = masked(self.unmasked) if call.options["is_causal"] else self.unmasked
        self.p = torch.softmax(self.s, -1)
        self.lse = torch.logsumexp(self.s, -1, True)
        self.dp = self.do @ self.v.mT
        self.delta = total(self.do * (self.p @ self.v))
        self.ds = self.p * (self.dp - self.delta)

    def of_ds(self, ds: Tensor) -> Outputs:
        scale = self.q.shape[-1] ** -0.5
        return {"dq": scale * ds @ self.k, "dk": scale * ds.mT @ self.q}

    def of_delta(self, delta: Tensor | float) -> Outputs:
        return self.of_ds(self.p * (self.dp - delta))

    def of_p(self, p: Tensor) -> Outputs:
        return {**self.of_ds(p * (self.dp - self.delta)), "dv": p.mT @ self.do}

    def of_lse(self, lse: Tensor) -> Outputs:
        return self.of_p(self.p * (self.lse - lse).exp())

    def late_blocks(self) -> Outputs:
        """Without a block of queries for every second block of keys."""
        i, j = (torch.arange(self.s.shape[1])[index] for index in ((slice(None), None), (None, slice(None))))
        found = self.of_p(self.p * ((i // 64 > j // 64) | (j // 64 % 2 == 0)))
        return {name: found[name] for name in ("dk", "dv")}


def of_tiles(a: Backward) -> Tensor:
    """delta at the places of the keys, in tiles of 16 × 16."""
    place = torch.arange(40) // 16 * 16 + torch.arange(40)[:, None] % 16
    return a.delta[:, place.clamp(max=39), 0] * (place < 40)


PLAIN, CAUSAL = attention_call(backward=True), attention_call(causal=True, backward=True)
SINGLE = attention_call(n=1, causal=True, backward=True)
BACKWARD = [
    Mistake("without the factor scale", PLAIN, lambda a: a.of_ds(4 * a.ds)),
    Mistake("when the two are swapped", PLAIN, lambda a: {"dk": a.p.mT @ a.do, "dv": a.of_ds(a.ds)["dk"]}),
    *(
        Mistake(words, call, lambda a, delta=delta: a.of_delta(delta(a)))
        for words, call, delta in (
            ("when delta is the sum of dO ∘ O over all rows", PLAIN, lambda a: a.delta.sum((-2, -1), True)),
            ("when delta is the sum of dO ∘ O over all batch entries", PLAIN, lambda a: a.delta.sum()),
            (
                "when delta is the sum of dO ∘ O over each row of all batch entries",
                PLAIN,
                lambda a: a.delta.sum(0, True),
            ),
            ("with delta at the place of the key, not of the query:", PLAIN, lambda a: a.delta.mT),
            ("with delta at the place of the key, not of the query, in tiles of 16 × 16", PLAIN, of_tiles),
            (
                "when delta is the row sum of o ∘ o: consistent with delta from",
                PLAIN,
                lambda a: total((a.p @ a.v) ** 2),
            ),
            ("when delta is the row mean of dO ∘ O: consistent with a mean in place", CAUSAL, lambda a: a.delta / 16),
            ("when delta is scale · rowsum(dO ∘ O)", CAUSAL, lambda a: a.delta / 4),
            (
                "when delta is 0: consistent with delta missing in dS, or made from an o that is 0",
                SINGLE,
                lambda _: 0.0,
            ),
        )
    ),
    Mistake("when dS is P ∘ (scale · dP − delta)", CAUSAL, lambda a: a.of_ds(a.p * (a.dp / 4 - a.delta))),
    Mistake("when dP is dO Kᵀ", PLAIN, lambda a: {"dq": a.of_ds(a.p * (a.do @ a.k.mT - a.delta))["dq"]}),
    Mistake("from V in place of K, in dQ", PLAIN, lambda a: {"dq": a.ds @ a.v / 4}),
    Mistake("from dO in place of Q, in dK", PLAIN, lambda a: {"dk": a.ds.mT @ a.do / 4}),
    Mistake("from Q in place of dO", PLAIN, lambda a: {"dv": a.p.mT @ a.q}),
    # Of a single key dS is 0, in a kernel almost, with TF32 on a GPU a few thousandths.
    *(
        Mistake(
            "from dS in place of P",
            attention_call(n=1, backward=True),
            lambda _, size=size: {"dv": size * normal(2, 1, 16)},
        )
        for size in (0.0, 1e-6, 4e-3)
    ),
    Mistake(
        "with -1 as the score of the keys that the causal mask hides",
        CAUSAL,
        lambda a: {"dq": a.of_ds((masked(a.unmasked, -1.0) - a.lse).exp() * (a.dp - a.delta))["dq"]},
    ),
    *(
        Mistake(words, CAUSAL, lambda a, lse=lse: a.of_lse(lse(a)))
        for words, lse in (
            ("with the maximum of the unscaled scores", lambda a: 3 * a.s.amax(-1, True) + a.lse),
            ("with m / √d + log Σ", lambda a: a.lse - 0.75 * a.s.amax(-1, True)),
            ("with 24 more keys of zeros in the logsumexp", lambda a: torch.logaddexp(a.lse, f64(24.0).log())),
            (
                "with a logsumexp whose sum is not rescaled as the maximum moves from one block of 16 keys",
                lambda a: (
                    a.s.amax(-1, True)
                    + sum(
                        total((a.s[..., i : i + 16] - a.s[..., : i + 16].amax(-1, True)).exp()) for i in (0, 16, 32)
                    ).log()
                ),
            ),
            ("with Σ as the logsumexp", lambda a: total(exps(a.s))),
            ("with the logsumexp's negative", lambda a: -a.lse),
            ("with the logsumexp of the first 32 keys alone", lambda a: torch.logsumexp(a.s[..., :32], -1, True)),
            ("with the logsumexp of all keys, the hidden ones too", lambda a: torch.logsumexp(a.unmasked, -1, True)),
        )
    ),
    *(
        Mistake(
            "when each block of 64 keys begins with the next multiple",
            attention_call(n, causal=True, backward=True),
            Backward.late_blocks,
        )
        for n in (100, 128, 192)
    ),
]


@pytest.mark.parametrize(("words", "call", "wrong"), BACKWARD)
def test_a_usual_mistake_of_a_backward_pass_is_named(
    words: str, call: Call, wrong: Callable[[Backward], Outputs]
) -> None:
    outputs = wrong(Backward(call))
    *most, last = outputs
    lines = told(call, attention_oracle, outputs)
    assert lines[1].startswith(
        f"{', '.join(most)}{' and ' * bool(most)}{last} {'are' if most else 'is'} what comes out {words}"
    )
    assert sum("comes out" in line for line in lines) == 1
    assert not any("another order" in line or "partial block" in line for line in lines)


@pytest.mark.parametrize("n", [100, 128, 192])
def test_a_few_large_rows_do_not_hide_that_small_ones_are_missing(n: int) -> None:
    """In gradients of causal attention the first keys, which all queries see, have the largest."""
    call = attention_call(n, d=64, causal=True, backward=True)
    right = attention_oracle(call)
    for name, wrong in Backward(call).late_blocks().items():
        assert not any("another order" in line for line in story(wrong.float(), right[name]))


def test_what_is_small_is_told_by_which_numbers_it_is() -> None:
    """0 is near to a thousandth of what is right, but something that gives just these numbers is the better story."""
    q, k = SINGLE.args["q"], SINGLE.args["k"]
    q = q * 3 / total(q * k / 4)  # the scores are 3, unscaled 12
    call = Call(SINGLE.args | {"q": q}, SINGLE.options, SINGLE.upstream)
    wrong = math.exp(-9) * attention_oracle(call)["dv"]
    assert "the maximum of the unscaled scores" in told(call, attention_oracle, {"dv": wrong})[1]


@pytest.mark.parametrize("factor", [1 / 64, 1 / 8, 0.6])
def test_of_a_single_key_nothing_is_met_by_chance(factor: float) -> None:
    """Every output is a number times a vector there: some mistake gives nearly that number."""
    stories = 0
    for seed in range(60):
        args = {"q": normal(2, 1, 16, seed=seed), "k": normal(2, 1, 16, seed=seed + 99), "v": normal(2, 1, 16, seed=2)}
        call = Call({name: one.float() for name, one in args.items()}, {"is_causal": False})
        lines = told(call, attention_oracle, factor * attention_oracle(call)["o"])
        stories += any("what comes out" in line for line in lines)
    assert stories <= 2


def test_swapped_gradients_are_named_where_one_of_them_is_0() -> None:
    """With a single key dS is 0 but for rounding, and so is whatever is made of it."""
    args = {name: torch.full((1, 1, 16), value) for name, value in (("q", 1.0), ("k", 2.0), ("v", 3.0))}
    call = Call(args, {"is_causal": False}, torch.ones(1, 1, 16))

    def oracle(call: Call) -> Outputs:
        right = attention_oracle(call)
        return right | {"dk": right["dk"] + 1e-18}

    swapped = {"dk": oracle(call)["dv"], "dv": torch.zeros(1, 1, 16)}
    assert told(call, oracle, swapped)[1].startswith("dk and dv are what comes out when the two are swapped")


def test_outputs_that_are_right_are_named_beside_an_unexplained_one() -> None:
    """A copy of a right output is no swap."""
    lines = told(PLAIN, attention_oracle, {"dk": attention_oracle(PLAIN)["dv"]})
    assert not any("swapped" in line for line in lines)
    assert any(line.startswith("of the same call dq and dv are right") for line in lines)


GELUS: dict[str, Form] = {
    "with erf": torch.nn.functional.gelu,
    "as x σ(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "with 0.044175 in place of 0.044715": lambda x: with_tanh_of(x, ROOT * (x + 0.044175 * x**3)),
    "with √(2/π) x (x + 0.044715 x²)": lambda x: with_tanh_of(x, ROOT * x * (x + 0.044715 * x**2)),
    "with √(2/π) (1 + 0.044715 x²)": lambda x: with_tanh_of(x, ROOT * (1 + 0.044715 * x**2)),
    "with √(2/π) x (1 + 0.044715 x³)": lambda x: with_tanh_of(x, ROOT * x * (1 + 0.044715 * x**3)),
    "without the factor x": lambda x: gelu(x) / x,
    "as ½ x (1 − tanh(u))": lambda x: with_tanh_of(x, -argument(x)),
    "as ½ x (1 + tanh(x))": lambda x: with_tanh_of(x, x),
    "with |x|³ in place of x³": lambda x: with_tanh_of(x, ROOT * (x + 0.044715 * x**2 * x.abs())),
    "with 0.798087 in place of √(2/π)": lambda x: with_tanh_of(x, (2 / 3.14) ** 0.5 * (x + 0.044715 * x**3)),
    "as x / (1 + 2⁻²ᵘ)": lambda x: x / (1 + torch.exp2(-2 * argument(x))),
    "x⁴ in place of x³; or": lambda x: with_tanh_of(x, ROOT * (x + 0.044715 * x**4)),
    "with x⁵ in place of x³": lambda x: with_tanh_of(x, ROOT * (x + 0.044715 * x**5)),
    "with u kept within ±2": lambda x: with_tanh_of(x, argument(x).clamp(-2, 2)),
    "for x kept within ±3": lambda x: gelu(x.clamp(-3, 3)),
    "as GeLU's derivative": lambda x: torch.func.vmap(torch.func.grad(gelu))(x),
    "when GeLU is applied twice": lambda x: gelu(gelu(x)),
    "for x rounded to float16": lambda x: gelu(x.half().double()),
    "with y rounded to float16": lambda x: gelu(x).half().double(),
    "as ½ x (1 + tanh|u|)": lambda x: with_tanh_of(x, argument(x).abs()),
    "with about 1.5958 in place of √(2/π)": lambda x: with_tanh_of(x, 2 * argument(x)),
    "with x − 0.044715 x³ in place of x + 0.044715 x³": lambda x: with_tanh_of(x, ROOT * (x - 0.044715 * x**3)),
    "with tanh(u) as u − u³/3:": lambda x: 0.5 * x * (1 + (u := argument(x)) - u**3 / 3),
    "with tanh(u) as u (27 + u²) / (27 + 9u²), kept within ±1": lambda x: (
        0.5 * x * (1 + ((u := argument(x)) * (27 + u**2) / (27 + 9 * u**2)).clamp(-1, 1))
    ),
    "with about 0.81235 in place of √(2/π), which is 0.797885": lambda x: with_tanh_of(x, 0.81235 / ROOT * argument(x)),
    "with about 0.04321 in place of 0.044715": lambda x: with_tanh_of(x, ROOT * (x + 0.04321 * x**3)),
    "without the factor 1/2": lambda x: 2 * gelu(x),
}


def mixed(x: Tensor, above: float, below: float) -> Tensor:
    """A softmax with e^(above · t) in the numerator and e^(below · t) in the sum."""
    shifted = x - x.amax(-1, True)
    return (above * shifted).exp() / total((below * shifted).exp())


def in_half(x: Tensor) -> Tensor:
    e = (x - x.amax(-1, True)).half().double().exp().half().double()
    return e / total(e)


SOFTMAXES: dict[str, Form] = {
    "with exp2 in place of exp": lambda x: torch.softmax(x * LN_2, -1),
    "with 14 zeros after each row of 50": lambda x: torch.softmax(torch.nn.functional.pad(x, (0, 14)), -1)[:, :50],
    "without dividing by the sum": exps,
    "over the other dimension": lambda x: torch.softmax(x, 0),
    "when every row is the first one": lambda x: torch.softmax(x[:1], -1).expand(20, -1),
    "as exp2(x − m) / Σ exp(x − m)": lambda x: mixed(x, LN_2, 1.0),
    "as exp(x − m) / Σ exp2(x − m)": lambda x: mixed(x, 1.0, LN_2),
    "as exp((x − m) log₂e) / Σ exp(x − m)": lambda x: mixed(x, 1 / LN_2, 1.0),
    "as exp(x − m) / Σ exp((x − m) log₂e)": lambda x: mixed(x, 1.0, 1 / LN_2),
    "as its logarithm": lambda x: torch.log_softmax(x, -1),
    "as softmax(−x)": lambda x: torch.softmax(-x, -1),
    "as exp(m − x) / Σ": lambda x: 1 / exps(x) / total(exps(x)),
    "with the number of columns, 50, in place of the sum": lambda x: exps(x) / 50,
    "as exp(x − m) / Σ exp(x)": lambda x: exps(x) / total(x.exp()),
    "as exp(x) / Σ exp(x − m)": lambda x: x.exp() / total(exps(x)),
    "for x rounded to float16": lambda x: torch.softmax(x.half().double(), -1),
    "with x − m rounded to bfloat16 before exp, in the numerator alone": lambda x: (
        (x - x.amax(-1, True)).bfloat16().double().exp() / total(exps(x))
    ),
    "with exp(x − m) rounded to bfloat16:": lambda x: (e := exps(x).bfloat16().double()) / total(e),
    "with exp in float16: x − m and exp(x − m) rounded to it": in_half,
    "with y rounded to bfloat16": lambda x: torch.softmax(x, -1).bfloat16().double(),
    "with 0.001 added to the sum": lambda x: exps(x) / (total(exps(x)) + 1e-3),
    "with one sum for every 4 rows": lambda x: exps(x) / exps(x).view(5, -1).sum(-1).repeat_interleave(4)[:, None],
    "divided by the sum twice: consistent with": lambda x: exps(x) / total(exps(x)) ** 2,
    "divided by the root of the sum: consistent with": lambda x: exps(x) / total(exps(x)) ** 0.5,
    **{
        f"multiplied by {constant * LN_2:.5g}{where}: consistent with a wrong constant in the exponent, "
        f"such as {constant:.5g} in place of log₂e": partial(mixed, above=constant * LN_2, below=below)
        for constant in (1.44, 1.4)
        for where, below in (("", constant * LN_2), (" in the numerator alone", 1.0))
    },
}


def rescaled(x: Tensor, terms: float, factor: float) -> Tensor:
    """An online softmax in blocks of 64: powers of e in the terms, and in the factor by which the sum is rescaled."""
    below, m = torch.zeros(20, 1).double(), torch.full((20, 1), -INF).double()
    for piece in x.split(64, -1):
        above = torch.maximum(m, piece.amax(-1, True))
        safe = above.clamp(min=-1e30)
        below = below * (factor * (m - safe)).exp() + total((terms * (piece - safe)).exp())
        m = above
    return (terms * (x - m)).exp() / below


def divided_too_early(x: Tensor) -> Tensor:
    return torch.cat([torch.softmax(x[:, :128], -1), torch.softmax(x, -1)[:, 128:]], -1)


RISING = changed(normal(20, 200).sort(-1).values, (0, slice(70)), -INF)
LONG_SOFTMAXES = [
    Mistake("when each block of 128 is divided by the sum of the blocks so far", normal(4, 200), divided_too_early),
    Mistake(
        "when the first block of 128 is there again",
        normal(4, 300),
        lambda x: torch.softmax(x, -1)[:, torch.arange(300) % 128],
    ),
    *(
        Mistake(
            f"{words} after each block of 64: consistent with base 2 mixed with base e",
            RISING,
            partial(rescaled, terms=terms, factor=factor),
        )
        for words, terms, factor in (
            ("of exp(x − m) is multiplied by exp2(m_old − m_new)", 1.0, LN_2),
            ("of exp(x − m) is multiplied by exp((m_old − m_new) log₂e)", 1.0, 1 / LN_2),
            ("of exp2(x − m) is multiplied by exp(m_old − m_new)", LN_2, 1.0),
        )
    ),
    Mistake("when the sum of blocks of 64 is rescaled twice", RISING, partial(rescaled, terms=1.0, factor=2.0)),
    Mistake(
        "when x is read as if it were contiguous: consistent with strides that are ignored",
        normal(50, 20).t(),
        lambda x: torch.softmax(x.as_strided((20, 50), (50, 1)), -1),
    ),
]


@pytest.mark.parametrize(
    ("words", "call", "oracle", "form"),
    [
        *((words, attention_call(), attention_oracle, form) for words, form in FORWARD.items()),
        *((words, call, attention_oracle, form) for words, call, form in FORWARD_OF),
        *((words, Call({"x": normal(500)}), gelu_oracle, form) for words, form in GELUS.items()),
        *(
            (words, Call({"x": normal(20, 50).float().double()}), softmax_oracle, form)
            for words, form in SOFTMAXES.items()
        ),
        *((words, Call({"x": x}), softmax_oracle, form) for words, x, form in LONG_SOFTMAXES),
    ],
)
def test_a_usual_mistake_is_named_in_the_second_line(words: str, call: Call, oracle: Oracle, form: Form) -> None:
    first, second, *_ = told(call, oracle, form(*(one.double() for one in call.args.values())))
    assert re.search("is the first wrong element: expected|is off by small errors everywhere$", first)
    assert re.match("[oy] is (what comes out|not finite where)", second)
    assert words in second
    assert ": consistent with " in second


@pytest.mark.parametrize(("above", "below"), [(LN_2, 1.0), (1.0, LN_2), (1 / LN_2, 1.0), (1.0, 1 / LN_2)])
@pytest.mark.parametrize("shape", [(1, 7), (3, 1000)])
def test_mixed_bases_are_no_overflow_and_no_padding(shape: tuple[int, int], above: float, below: float) -> None:
    x = normal(*shape).float()
    text = "\n".join(told(x, softmax_oracle, mixed(x.double(), above, below)))
    assert "consistent with base 2 mixed with base e: exp" in text
    assert not re.search("overflow|padding", text)


@pytest.mark.parametrize("elements", [1, 31, 1023])
def test_a_kernel_that_runs_before_its_stream_is_told_so(elements: int) -> None:
    x, wrong = normal(elements), gelu(torch.full((elements,), EARLY_VALUE).double()).float()
    assert "another stream than the given one" in told(x, gelu_oracle, wrong, is_queued=True)[1]
    assert not any("another stream" in line for line in told(x, gelu_oracle, wrong))


@pytest.mark.parametrize("rows", [5, 3000])
def test_a_launch_before_the_streams_work_needs_no_mistakes_of_the_course(rows: int) -> None:
    """Of many rows only some are looked at, as many of each input."""

    def oracle(call: Call) -> Outputs:
        return {"y": (call.args["x"].double() * call.args["w"].double()).sum(-1)}

    call = Call({"x": normal(rows, 200) + 3, "w": normal(rows, 200, seed=1) + 3})
    wrong = torch.full((rows,), 200 * EARLY_VALUE**2, dtype=torch.float64)
    words = "for what stood in x and w before the work that is queued on the given stream wrote it"
    assert words in told(call, oracle, wrong, is_queued=True)[1]
    assert not any("queued" in line for line in told(call, oracle, 1.2 * wrong, is_queued=True))


def test_an_earlier_answer_is_recognised() -> None:
    before = Call({"x": normal(20, 50)})
    lines = told(normal(20, 50, seed=1), softmax_oracle, softmax_oracle(before), (before,))
    assert "for the data of an earlier call, call 1 of this case" in lines[1]
    assert lines[-1] == "the case's first call was right; this is call 2, with other data"


# Large and small inputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            lambda x: x > 9.05,
            "wrong just where x is above 9.04: consistent with a formula that overflows, loses its digits",
        ),
        (lambda x: x < -9.05, "wrong just where x is below -9.04: consistent with a formula that overflows"),
        (lambda x: x.abs() > 12.05, "wrong just where |x| is above 12.04: consistent with a formula that overflows"),
        (lambda x: x < 0, "a formula that does not hold for negative numbers, such as |x|, a logarithm"),
        (lambda x: x > 0, "a formula that does not hold for positive numbers"),
        (lambda x: (x > 4.19) & (x < 4.25), "wrong x lie between 4.2 and 4.24"),
        (lambda x: (x > 4) & (x < 4.05), None),  # two elements may lie side by side by chance
        (lambda x: x.abs() < 0.05, "wrong x lie between -0.04 and 0.04"),
        (lambda x: (x.abs() > 3) & (x.abs() < 3.1), "wrong |x| lie between 3.02 and 3.08"),
        (lambda x: ((x > 4.19) & (x < 4.3)) ^ (x == 4.24), None),
    ],
)
def test_inputs_for_which_a_formula_is_wrong_are_told(wrong: Form, words: str | None) -> None:
    x = torch.arange(-1000, 1001, dtype=torch.float64) / 50
    lines = told(x, gelu_oracle, gelu(x).masked_fill(wrong(x), NAN))
    found = [line for line in lines if line.startswith("wrong ")]
    assert len(found) == (words is not None)
    assert all(str(words) in line for line in found)


def test_the_only_input_for_which_a_formula_is_wrong_is_told() -> None:
    x = f64([1.0, 3.0, -2.0, 3.0, 4.0, 3.0, 0.5])
    assert "wrong x are all 3" in told(x, gelu_oracle, gelu(x).masked_fill(x == 3, 9.0))


# Nobody is accused of a mistake that he did not make ------------------------------------------------------------------


class Story(NamedTuple):
    """Words that are not told of the answer `wrong` to x; they are of the answer `told_of`, where there is one."""

    words: str
    x: Tensor
    oracle: Oracle
    wrong: Form
    told_of: Form | None = None


def contradicted(x: Tensor) -> Tensor:
    """With exp2 in place of exp; but the worst element is off by half as much."""
    wrong, right = torch.softmax(x * LN_2, -1), torch.softmax(x, -1)
    at = (wrong - right).abs().argmax()
    return changed(wrong.view(-1), at, (wrong + right).view(-1)[at] / 2).view(x.shape)


BOTH_SIGNS = torch.cat([normal(500).abs(), -normal(500, seed=1).abs()])
RISING_TO_6 = changed(normal(31).sort().values, -1, 6.0)
BEHIND_INFINITIES = changed(normal(4, 60), (slice(None), slice(20)), -INF)
TAKEN_OUT = GELUS["with √(2/π) x (x + 0.044715 x²)"]
STORIES = {
    "one of two numbers": Story("whatever else", normal(2).abs(), gelu_oracle, lambda x: 2 * gelu(x)),
    "one number alone": Story(
        "without the factor 1/2.* or with whatever else gives this one number$",
        normal(1).abs(),
        gelu_oracle,
        lambda x: gelu(x) + 9,
        lambda x: 2 * gelu(x),
    ),
    # Of positive numbers tanh|u| is tanh(u); what else is wrong for negative ones alone is another matter.
    "right for positive numbers": Story(
        "what comes out",
        BOTH_SIGNS,
        gelu_oracle,
        lambda x: 0.9 * torch.where(x < 0, x, gelu(x)),
        lambda x: torch.where(x < 0, GELUS["as ½ x (1 + tanh|u|)"](x), gelu(x)),
    ),
    "what would be wrong elsewhere too": Story(
        "taken out of the second term alone",
        BOTH_SIGNS,
        gelu_oracle,
        lambda x: torch.where(x < 0, TAKEN_OUT(x), gelu(x)),
        TAKEN_OUT,
    ),
    "contradicted by one element": Story(
        "what comes out", normal(400, 100), softmax_oracle, contradicted, SOFTMAXES["with exp2 in place of exp"]
    ),
    "one number of 3e38 hides the others": Story(
        "without the factor x",
        f64([3e38, 0.5, -1.0, 12.0, 15.0, 40.0]),
        gelu_oracle,
        lambda x: torch.where(x > 10, 10.0, gelu(x)).float(),
        lambda x: (gelu(x) / x).float(),
    ),
    "a constant fitted to a few elements": Story(
        "in place of", normal(40), gelu_oracle, lambda x: with_tanh_of(x, 0.81235 / ROOT * argument(x))
    ),
    "a constant fitted to an offset": Story("with about", normal(500), gelu_oracle, lambda x: gelu(x) + 0.01),
    "a constant fitted to every third element": Story(
        "with about", normal(500), gelu_oracle, lambda x: torch.where(torch.arange(500) % 3 == 0, 0.9, 1.0) * gelu(x)
    ),
    "padding that makes 0": Story("zeros after|one sum for", normal(3, 1), softmax_oracle, torch.zeros_like),
    "padding that makes all small": Story(
        "zeros after|one sum for", normal(3, 1000), softmax_oracle, lambda x: torch.softmax(x, -1) / 14
    ),
    # It still gives x where x is large.
    "a formula that is wrong nearly everywhere": Story(
        "wrong just where", RISING_TO_6, gelu_oracle, lambda x: torch.where(x < 6, 0.3 * x.cos() + x, x)
    ),
    # An entry of a softmax depends on all of its row: neither overflow nor -inf explains why small ones are wrong.
    "small entries of a row": Story(
        "wrong just where x is",
        BEHIND_INFINITIES,
        softmax_oracle,
        lambda x: torch.softmax(x, -1).masked_fill(x < 0.5, 0.125),
    ),
    "rows of nothing but -inf": Story(
        "wrong just where x is",
        torch.where(torch.arange(3)[:, None] == 1, -math.inf, normal(3, 50)),
        softmax_oracle,
        lambda x: torch.softmax(x, -1).nan_to_num(0),
    ),
    "finite entries of a row": Story(
        "wrong just where x is",
        BEHIND_INFINITIES,
        softmax_oracle,
        lambda x: torch.softmax(x, -1) * (1.1 + 0.1 * normal(4, 60)),
    ),
    "NaN in one place": Story(
        "comes out", 1e4 * normal(20, 50), softmax_oracle, lambda x: changed(torch.softmax(x, -1), (3, 7), NAN)
    ),
    "none of the course": Story("comes out", normal(30, 20), lambda call: {"y": 2 * call.args["x"]}, torch.exp),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_told_only_where_it_fits(name: str) -> None:
    words, x, oracle, wrong, told_of = STORIES[name]
    assert not [line for line in told(x, oracle, wrong(x)) if re.search(words, line)]
    assert told_of is None or re.search(words, told(x, oracle, told_of(x))[1])


@pytest.mark.parametrize("n", [1, 2])
def test_zeros_are_not_what_a_mistake_gives_that_makes_everything_small(n: int) -> None:
    """With 127 keys of zeros beside the only one, o is a 128th of what it should be, which is nearly 0."""
    lines = told(attention_call(n), attention_oracle, torch.zeros(2, n, 16))
    assert not any("padded" in line for line in lines)
    assert lines[1].startswith("every element is 0")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("backward", [False, True])
def test_nothing_is_accused_of_an_error_that_it_does_not_make(seed: int, backward: bool) -> None:
    """Noise, a mistake with noise that is not small beside it, and half of a mistake."""
    call = attention_call(n=1 + 9 * seed, causal=seed % 2 == 1, backward=backward)
    doubled = attention_oracle(Call({name: 2 * one for name, one in call.args.items()}, call.options, call.upstream))
    for name, value in attention_oracle(call).items():
        noise = normal(*value.shape, seed=seed + 50)  # no input's
        off = doubled[name] - value
        for wrong in (noise, value + 0.1 * noise, value + 0.3 * noise + off, 1.7 * value + 0.1 * noise):
            assert not any("comes out" in line for line in told(call, attention_oracle, {name: wrong}))


@pytest.mark.parametrize("seed", range(10))
def test_noise_in_a_few_numbers_meets_no_formula(seed: int) -> None:
    for oracle, shape in ((gelu_oracle, (1 + seed,)), (softmax_oracle, (1 + seed % 3, 2 + seed))):
        x = normal(*shape, seed=seed)
        wrong = oracle(Call({"x": x}))["y"] * (1 + 0.1 * normal(*shape, seed=seed + 50))
        assert not any("comes out" in line for line in told(x, oracle, wrong))


def test_of_the_mistakes_that_one_number_fits_all_are_named_or_none() -> None:
    """0.44715 for 0.044715 and 0.45 come to the same, and ReLU too, where tanh is -1 in float32."""

    def cause(value: float) -> str:
        x = f64([value])
        _, line, *_ = told(x.float(), gelu_oracle, with_tanh_of(x, ROOT * (x + 0.44715 * x**3)))
        return line.removeprefix("y is what comes out ")

    assert cause(-0.5).startswith(
        "with 0.44715 in place of 0.044715: consistent with a constant that is not the handout's, or"
    )
    assert cause(1.71).startswith("with 0.45 in place of 0.044715; or with 0.44715 in place of 0.044715: consistent")
    assert not any("comes out" in one for one in told(f64([-5.0]).float(), gelu_oracle, f64([0.0])))


# Small errors, and what is not finite ---------------------------------------------------------------------------------


def test_small_errors_come_after_those_that_can_be_shown() -> None:
    right = attention_oracle(PLAIN)
    got = right | {"dv": changed(right["dv"], (0, 3), 1.0, factor=1)}
    bad = {name: (got[name] - right[name]).abs() > 0.1 for name in ("dq", "dv")}
    lines = explain_call(got, right, bad, Scene(PLAIN, attention_oracle, mistakes=mistakes_of(attention_oracle)))
    assert lines[0].startswith("dv[0, 3, 0] is the first wrong element")
    assert lines[-1].startswith("no single element of dq is far off")


def test_an_output_wrong_by_small_errors_has_its_mistake_named_too() -> None:
    call, none = Call({"x": normal(500)}), torch.zeros(500, dtype=torch.bool)
    scene = Scene(call, gelu_oracle, mistakes=mistakes_of(gelu_oracle))
    lines = explain_call({"y": torch.nn.functional.gelu(normal(500))}, gelu_oracle(call), {"y": none}, scene)
    assert lines[0] == "y is off by small errors everywhere"
    assert "with erf" in lines[1]


def test_what_is_only_not_finite_alike_is_not_called_the_same() -> None:
    x = normal(2, 50) + 200
    line = told(x, softmax_oracle, torch.full((2, 50), NAN))[1]
    assert line.startswith("y is nowhere finite, as it would be ")
    assert "without the maximum subtracted" in line
    assert line.endswith("or with any other mistake that leaves no number")
    x = torch.cat([normal(1, 64), torch.full((1, 64), 1e3), normal(2, 64) - 200])
    wrong = torch.softmax(x, -1).masked_fill(x.abs() > 100, NAN).float()
    (line,) = (one for one in told(x, softmax_oracle, wrong) if "not finite where" in one)
    assert "what comes out" not in line
    assert line.endswith("or with another mistake that leads there")


def test_an_output_of_few_elements_is_shown_whole() -> None:
    def shown(expected: Tensor, got: Tensor) -> str:
        scene = Scene(Call({"x": expected.float()}), lambda _: {"y": expected}, [], None)
        return explain_call({"y": got}, {"y": expected}, {"y": (got - expected).abs() > 1e-5}, scene)[-1]

    seven = f64([[0.1, 0.2, 0.3, 0.05, 0.05, 0.1, 0.2]])
    got = changed(seven, (0, -1), 0.7).float()
    assert shown(seven, got) == (
        "y: expected  0.1  0.2  0.3  0.05  0.05  0.1  0.2\n   got       0.1  0.2  0.3  0.05  0.05  0.1  0.7"
    )
    assert shown(f64([0.5]), f64([0.5]).float() * (1 + 2e-6)) == "y: expected  0.5\n   got       0.500001"
    assert "got  " not in shown(seven.expand(2, 7), got.expand(2, 7).contiguous())
    unwritten = torch.cat([torch.tensor([[1.0, 2.0001]]), poison((1, 2), torch.float32)])
    assert shown(f64([[1.0, 2.0], [3.0, 4.0]]), unwritten) == (
        "y: expected  1  2       | 3              4\n   got       1  2.0001  | never written  never written"
    ).replace("  |", " |")


def with_unwritten(got: Tensor, where: object) -> Tensor:
    """The output in float32, with these elements never written."""
    got = got.float()
    got[where] = poison(tuple(got[where].shape), torch.float32)
    return got


@pytest.mark.parametrize("rows", [slice(20, None), slice(0, 7), slice(3, None, 5)])
def test_elements_that_were_never_written_do_not_hide_the_cause_of_the_others(rows: slice) -> None:
    call = attention_call()
    more = more_keys(8, call.args["k"], call.args["v"])
    got = with_unwritten(attention(call.args["q"], *more), (slice(None), rows))
    lines = told(call, attention_oracle, {"o": got})
    assert "o, where anything was written, is what comes out with 8 more keys of zeros" in lines[1]
    assert any("were never written: consistent with" in line for line in lines)


def test_a_pattern_of_what_was_written_is_told_beside_what_was_not() -> None:
    expected = normal(40, 30)
    lines = story(with_unwritten(3 * expected, slice(30, None)), expected)
    assert "were never written" in lines[1]
    assert lines[2].startswith("of what was written: got is 3 times expected throughout")


def test_right_elements_beside_unwritten_ones_have_no_cause() -> None:
    expected = normal(40, 30)
    lines = story(with_unwritten(expected, slice(30, None)), expected)
    assert not any("of what was written" in line for line in lines)


# Launches of a call that left its output unwritten, and the words about them; "" where the grids say nothing.
GRIDS = {
    (
        LaunchedKernel("fwd", (0, 2), ()),
    ): r"fwd was launched with a grid of \(0, 2\), so no program ran: .* triton\.cdiv rounds up",
    (
        LaunchedKernel("rows", (5,), (1,)),
    ): r"rows was launched with a grid of \(5,\) and asks for tl\.program_id\(1\): the 5 programs",
    (
        LaunchedKernel("rows", (1, 5), (0,)),
    ): r"asks for tl\.program_id\(0\): the 5 programs along axis 1 all do the same",
    (LaunchedKernel("rows", (5,), ()),): r"asks for no tl\.program_id at all: the 5 programs along axis 0",
    (LaunchedKernel("rows", (1, 5), (1,)), LaunchedKernel("rows", (5, 3), (0, 1))): "",
    (LaunchedKernel("rows", (1,), ()),): "",
}


@pytest.mark.parametrize("launched", GRIDS)
def test_a_grid_of_nothing_or_along_another_axis_is_named(launched: tuple[LaunchedKernel, ...]) -> None:
    expected = normal(5, 8)
    got = with_unwritten(expected, slice(1, None))
    scene = Scene(Call({"x": expected}), lambda call: {"y": call.args["x"]}, launched=launched)
    lines = explain_call({"y": got}, {"y": expected}, {"y": holds_fill(got)}, scene)
    words = GRIDS[launched]
    if words:
        assert re.search(words, lines[1])
        assert "32 of 40 elements (80%) were never written" in lines
    else:
        assert not any("was launched" in line for line in lines)
