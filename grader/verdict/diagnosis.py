"""Explains wrong outputs to a student: pure functions from tensors to sentences.

A sentence states an observation; a cause is only ever "consistent with" it. The first sentence gives the place of the error,
the second a cause, the others further observations. Causes are looked for first among usual mistakes (`suspects.py`), which
need the inputs, and then in the pattern of the wrong values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from grader.protocol import LaunchedKernel
from grader.verdict.causes import OF_INFINITY, OF_NAN
from grader.verdict.fill import holds_fill
from grader.verdict.suspects import Scene, explanations

BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SAMPLE = 2**22  # Patterns are looked for in this many elements; wrong elements are counted in all.
ALSO_TRIALS = " (in Triton also by the trial launches of autotune, without reset_to_zero)"
CLOSE = 0.02
FEW = 8  # Outputs of up to 8 elements are printed in full.
SAME_VALUES = 2e-3  # Sorted outputs that differ by less hold the right values in another order.
SMALLEST_ROW_FACTOR = 1e-4  # A row's factor closer to 1 is rounding, not a wrong sum.
LEFT_OVER = 32  # Of an output with fewer elements all may be left over at the end.
# As a share of the largest |x|, at most of 1: a formula that is wrong on one side of 0 is right no further away from 0.
NEAR_0 = 0.1


def explain_call(
    got: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    bad: Mapping[str, torch.Tensor],
    scene: Scene,
) -> list[str]:
    """Sentences about the outputs of one call, some of which are wrong.

    Args:
        got: the submission's outputs by name.
        expected: the oracle's answers, float64, of the same shapes.
        bad: a mask of the wrong elements of each wrong output; all False if only the root mean square is too large.
        scene: the call that the outputs answer, with its surroundings.
    """
    wrong = sorted(bad, key=lambda name: not bool(bad[name].any()))  # outputs with a wrong element come first
    shown = bad[wrong[0]]
    found = explanations(scene, got, expected, wrong, (_first_index(shown) or (0,))[0])
    mistakes = {name: one for one in found for name in one.outputs}
    lines: list[str] = []
    for name in wrong:
        mine, is_first = mistakes.get(name), name == wrong[0]
        odd = _odd_grids(scene.launched) if is_first and bool(bad[name].any()) else []
        if bool(bad[name].any()):
            head, *more = explain(name, got[name], expected[name], bad[name], mine is not None, scene.before, bool(odd))
        elif mine is None:
            head, more = (
                f"no single element of {name} is far off, but the errors together are larger than rounding explains: "
                "consistent with a wrong constant or an intermediate result kept in too low a precision",
                [],
            )
        else:
            head, more = f"{name} is off by small errors everywhere", []
        more = odd + more
        if mine is None:
            more[1:1] = _by_input(scene, name, expected[name], bad[name])
        elif mine.outputs[0] == name:
            more.insert(0, mine.sentence)
        lines += [head, *more]
        if is_first and scene.earlier:
            lines.append(f"the case's first call was right; this is call {len(scene.earlier) + 1}, with other data")
        # An output that is all 0 is often right by luck.
        right = [other for other in expected if other not in wrong and bool(expected[other].any())]
        if is_first and mine is None and right:
            lines.append(
                f"of the same call {' and '.join(right)} {'are' if len(right) > 1 else 'is'} right: "
                f"what only {' and '.join(wrong)} needs is worth a look"
            )
    few = [
        name  # a single wrong element is in its first sentence already
        for name in wrong
        if scene.before is None and got[name].numel() <= FEW and (got[name].numel() > 1 or not bool(bad[name].any()))
    ]
    return lines + [_whole(name, got[name], expected[name], bad[name]) for name in few]


def differs(name: str, first: torch.Tensor, second: torch.Tensor) -> list[str]:
    """A sentence about an output that differs between two calls on the same inputs; none if the calls agree."""
    other = ~((first == second) | (first.isnan() & second.isnan()))
    count = int(other.sum())
    if not count:
        return []
    return [
        f"{_share(count, other.numel()).replace(' are', '').replace(' is', '')} of {name} differ between two runs on the same "
        "inputs: consistent with programs or threads that write to the same place, or read what was never written"
    ]


def explain(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bad: torch.Tensor,
    is_explained: bool = False,
    before: int | None = None,
    has_odd_grid: bool = False,
) -> list[str]:
    """Sentences about an output that is wrong at the elements `bad`.

    Args:
        name: of the output, as in the handout.
        got: the submission's output, in its dtype.
        expected: the oracle's answer, float64, same shape.
        bad: bool, same shape; at least one True.
        is_explained: a known mistake accounts for the wrong values; their pattern is not described then.
        before: if `got` is a part of the output, the number of entries of dimension 0 before that part, all of them
            right.
        has_odd_grid: why elements were never written is told already.
    """
    count, total = int(bad.sum()), bad.numel()
    first = _first_index(bad)
    value = got[first]
    pair = float(expected[first]), float(value)
    digits = _digits([pair], (6, 9, 17))
    found = "never written" if bool(holds_fill(value.reshape(1))[0]) else f"{pair[1]:.{digits}g}"
    index = (first[0] + before, *first[1:]) if before else first
    part = "" if before is None else f"of {name}[{before}:{before + len(bad)}] "
    lines = [
        f"{name}{_brackets(index)} is the first wrong element: expected {pair[0]:.{digits}g}, got {found}; "
        f"{part}{_share(count, total)} wrong"
    ]
    if before:
        cause = ": consistent with an index or a length kept in 32 bits" if before + len(bad) > 2**31 else ""
        lines.append(f"everything before that is right{cause}")
    # All of the output, or a part that starts at the first wrong element's entry of dimension 0.
    is_huge = total > SAMPLE and bool(first)
    at = slice(first[0], first[0] + max(1, SAMPLE * len(bad) // total)) if is_huge else ...
    seen = Seen(got[at], expected[at], bad[at], (first[0] if is_huge else 0) + (before or 0))
    next_ones = "" if seen.bad.numel() == total else f"in the next {seen.bad.numel()} elements: "
    if sentence := _never_written(seen, has_odd_grid):
        lines.append(f"{next_ones}{sentence}")
        seen = _written(seen)
        next_ones += "of what was written: "
    sentences = (pattern(seen) for pattern in (NO_VALUES if is_explained else PATTERNS))
    if bool(seen.bad.any()) and (sentence := next(filter(None, sentences), "")):
        lines.append(f"{next_ones}{sentence}")
    if count < total and before is None and (sentence := _where(bad, not is_explained)):
        lines.append(sentence)
    return lines


def _whole(name: str, got: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:
    """Every element of a small output below the expected one, with the digits that tell wrong ones apart; " | " between rows."""
    columns = got.shape[-1] if got.ndim else 1
    pairs = list(zip(expected.flatten().tolist(), got.flatten().tolist(), strict=True))
    wrong = [pair for pair, one in zip(pairs, bad.flatten().tolist(), strict=True) if one]
    digits = _digits(wrong or [pair for pair in pairs if pair[0] != pair[1]], (4, 6, 9, 17))
    cells = [
        (f"{wanted:.{digits}g}", "never written" if unwritten else f"{found:.{digits}g}")
        for (wanted, found), unwritten in zip(pairs, holds_fill(got).flatten().tolist(), strict=True)
    ]
    widths = [max(map(len, pair)) for pair in cells]

    def line(which: int) -> str:
        words = [pair[which].ljust(width) for pair, width in zip(cells, widths, strict=True)]
        return " | ".join("  ".join(words[start : start + columns]) for start in range(0, len(words), columns)).rstrip()

    return f"{name}: expected  {line(0)}\n{' ' * len(name)}  got       {line(1)}"


@dataclass(frozen=True)
class Seen:
    """The tensors of one shape that pattern functions read: an output, or its part from entry `origin` of dimension 0
    on.
    """

    got: torch.Tensor  # in the output's dtype
    expected: torch.Tensor  # float64
    bad: torch.Tensor  # bool
    origin: int

    @cached_property
    def got64(self) -> torch.Tensor:
        return self.got.double()


def _share(count: int, total: int) -> str:
    if count == total:
        return f"all {total} elements are" if total > 1 else "it is"
    percent = min(100 * count / total, 99.9)
    return f"{count} of {total} elements ({percent:.3g}%) are" if count > 1 else f"1 of {total} elements is"


def _digits(pairs: Iterable[tuple[float, float]], choices: Sequence[int]) -> int:
    """The fewest of some numbers of digits with which the two numbers of every pair differ; the most if none is enough."""
    enough = (some for some in choices if all(f"{a:.{some}g}" != f"{b:.{some}g}" for a, b in pairs))
    return next(enough, choices[-1])


def _first_index(bad: torch.Tensor) -> tuple[int, ...]:
    # torch.unravel_index would import torch.fx for this, which takes most of a second
    return tuple(map(int, np.unravel_index(int(bad.reshape(-1).to(torch.uint8).argmax()), bad.shape)))


def _brackets(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def _odd_grids(launched: Sequence[LaunchedKernel]) -> list[str]:
    """Sentences about launches with no program, or with programs along an axis that the kernel never asks for."""
    told = []
    for one in launched:
        words = f"{one.name} was launched with a grid of {one.grid}"
        unasked = [axis for axis, programs in enumerate(one.grid) if programs > 1 and axis not in one.asked]
        if 0 in one.grid:
            told.append(
                f"{words}, so no program ran: consistent with a size that // rounds down to 0, where triton.cdiv rounds up"
            )
        elif unasked:
            asks = " and ".join(f"tl.program_id({axis})" for axis in sorted(one.asked)) or "no tl.program_id at all"
            told.append(
                f"{words} and asks for {asks}: the {one.grid[unasked[0]]} programs along axis {unasked[0]} all do the same, consistent "
                "with a grid whose axes are not those of the kernel"
            )
    return list(dict.fromkeys(told))


def _written(seen: Seen) -> Seen:
    """The output with right values where nothing was written."""
    unwritten = holds_fill(seen.got)
    got = torch.where(unwritten, seen.expected.to(seen.got.dtype), seen.got)
    return replace(seen, got=got, bad=seen.bad & ~unwritten)


def _never_written(seen: Seen, is_told: bool) -> str:
    """Args: is_told: the cause is known, and is left out."""
    unwritten = holds_fill(seen.got)
    count = int(unwritten.sum())
    if not count:
        return ""
    total, columns = seen.got.numel(), seen.got.shape[-1] if seen.got.ndim else 1
    width = count * columns // total  # of the part of a row, if each row has one
    whose = _share(count, total).replace(" are", " were").replace(" is", " was")
    flat = unwritten.reshape(-1)
    if count == total:
        cause = "no launch, results that went elsewhere, or an output that was computed from its own unwritten contents"
        if total < LEFT_OVER:
            cause += "; or with a bound or a last, partial block that leaves so few out"
    elif bool(flat[total - count :].all()):
        swapped = " or has its axes swapped" if seen.got.ndim > 2 else ""
        cause = f"a grid that is too small{swapped}, or elements left over at the end that nobody handles"
    elif width * total == count * columns and bool(unwritten[..., columns - width :].all()):
        cause = (
            "a block that is shorter than a row, and no loop over the rest: the last columns of every row are left out"
        )
    else:
        cause = "elements that no thread or program takes for its own"
    return f"{whose} never written" + ("" if is_told else f": consistent with {cause}")


def _not_finite(seen: Seen) -> str:
    strange = ~torch.isfinite(seen.got64) & torch.isfinite(seen.expected)
    count = int(strange.sum())
    if not count:
        return ""
    nans = int((seen.got64.isnan() & torch.isfinite(seen.expected)).sum())
    kind = "NaN" if nans == count else "infinite" if nans == 0 else "NaN or infinite"
    cause = OF_NAN if nans else OF_INFINITY
    if count == seen.got.numel():
        what = f"no element is finite: all {count} are" if count > 1 else "it is"
        return f"{what} {kind} where the right answer is finite: consistent with {cause}"
    index = _first_index(strange)
    start = _brackets((index[0] + seen.origin, *index[1:]) if index else index)
    return f"{_share(count, seen.got.numel())} {kind} where the right answer is finite, first at {start}: consistent with {cause}"


def _constant_output(seen: Seen) -> str:
    flat = seen.got64.reshape(-1)
    if flat.numel() < 2 or bool((flat != flat[0]).any()):
        return ""
    cause = "a factor that is 0, as 1 / 2 is in integers, or " if float(flat[0]) == 0 else ""
    return f"every element is {float(flat[0]):.6g}: consistent with {cause}a kernel that stored nothing"


def _transposed(seen: Seen) -> str:
    if seen.expected.ndim < 2 or seen.expected.shape[-1] == 1:
        return ""
    other = seen.expected.transpose(-1, -2)
    other = other if seen.expected.shape[-1] == seen.expected.shape[-2] else other.reshape(seen.expected.shape)
    if _agrees(seen.got64, other) and not _agrees(seen.expected, other):
        return "the values are right but transposed: consistent with rows and columns (or their strides) swapped"
    return ""


def _factor(seen: Seen) -> str:
    wrong, right = seen.got64[seen.bad], seen.expected[seen.bad]
    usable = right.abs() > 1e-2 * right.abs().max()
    if int(usable.sum()) < 4:
        return ""
    ratio = wrong[usable] / right[usable]
    middle = float(ratio.median())
    # Among numbers of all sizes few are usable: most must agree nevertheless.
    agree = (wrong - middle * right).abs() <= CLOSE * (middle * right).abs()
    if (
        not math.isfinite(middle)
        or float((ratio - middle).abs().max()) > CLOSE * abs(middle)
        or 2 * int(agree.sum()) < len(agree)
        or abs(middle - 1) < CLOSE
        or middle == 0
    ):
        return ""
    which = ""
    if middle > 1 and abs(middle - round(middle)) < CLOSE:
        which = f": consistent with a factor that is left out, or a sum that is made {middle:.0f} times{ALSO_TRIALS}"
    if 2 * int(seen.bad.sum()) > seen.bad.numel():
        return f"got is {middle:.4g} times expected throughout{which}"
    return f"the wrong elements are {middle:.4g} times expected{which}"


def _row_factor(seen: Seen) -> str:
    """Each row is right up to a factor of that row, as with a wrong normaliser."""
    if seen.expected.ndim < 2 or seen.expected.shape[-1] < 4:
        return ""
    largest = seen.expected.abs().amax(-1, keepdim=True)
    counts = (seen.expected.abs() > 1e-2 * largest) & (largest > 0)
    middle = torch.where(counts, seen.got64 / seen.expected, math.nan).nanmedian(-1, keepdim=True).values
    if not bool(torch.isfinite(middle).all()):
        return ""
    off = (middle - 1).abs()
    rounding = torch.finfo(seen.got.dtype).eps
    unexplained = (seen.got64 - middle * seen.expected).abs() > (
        0.1 * torch.minimum(off.clamp(min=SMALLEST_ROW_FACTOR), middle.abs()) + rounding
    ) * largest
    if float(off.max()) < SMALLEST_ROW_FACTOR + 2 * rounding or bool((middle == 0).any()) or bool(unexplained.any()):
        return ""
    low, high = float(middle.min()), float(middle.max())
    return (
        f"every row is right but for a factor of its own, from {low:.6g} to {high:.6g}: consistent with a wrong row sum, "
        "such as padding that is counted in it or a maximum that is not subtracted everywhere alike"
    )


def _permuted(seen: Seen) -> str:
    """The right values in another order, within each entry of dimension 0 or over all of the output.

    Sorted, got and expected must agree almost to the last digit: values of equal spread come close in any case, and a few large
    values hide missing small ones.
    """
    if seen.expected.ndim < 1 or not bool(torch.isfinite(seen.got64).all()):
        return ""
    rounding = torch.finfo(seen.got.dtype).eps
    error = float((seen.got64 - seen.expected).square().mean().sqrt())
    for rows in (len(seen.expected), 1):
        got, expected = (one.reshape(rows, -1).sort(-1).values for one in (seen.got64, seen.expected))
        if got.shape[1] < 16 or not bool((expected[:, 1:] > expected[:, :-1]).any()):
            continue
        rest = (got - expected).abs()
        if float(rest.square().mean().sqrt()) <= max(SAME_VALUES, rounding) * error and bool(
            (rest <= 10 * SAME_VALUES * error + rounding * expected.abs()).all()
        ):
            cause = (
                "strides that are ignored, of an input or of the output"
                if seen.expected.ndim > 1
                else "indices that are mixed up"
            )
            return f"the right values, but in another order: consistent with {cause}"
    return ""


def _agrees(first: torch.Tensor, second: torch.Tensor) -> bool:
    scale = float(second.abs().nan_to_num(0, 0, 0).max()) if second.numel() else 0.0
    return scale > 0 and bool(((first - second).abs() <= CLOSE * scale).all())


def _of_each_element(scene: Scene, output: str, right: torch.Tensor, bad: torch.Tensor) -> bool:
    """Whether the oracle's answers at every second place of `bad` depend on no other element of the input: they stay the same when all
    others are 0, and when all others are the largest input. Answers of a function of whole rows change, also where `bad` is whole rows.
    """
    kept = bad.clone(memory_format=torch.contiguous_format)
    kept.view(-1)[bad.reshape(-1).nonzero()[1::2]] = False

    def stay(how: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        alone = {name: torch.where(kept, x, how(x)) for name, x in scene.call.args.items()}
        other = scene.oracle(replace(scene.call, args=alone))[output]
        return torch.allclose(other[kept], right[kept], rtol=1e-6, atol=0, equal_nan=True)

    return stay(torch.zeros_like) and stay(lambda x: x.max().expand(x.shape))


def _by_input(scene: Scene, output: str, right: torch.Tensor, bad: torch.Tensor) -> list[str]:
    """A sentence about an elementwise function that is wrong exactly where x, or |x|, lies in one interval.

    None if most elements are wrong: a formula that is wrong everywhere is still right for extreme x, as the answers
    there are 0 or x.
    """
    if len(scene.call.args) != 1 or bad.numel() > SAMPLE:
        return []
    ((name, x),) = scene.call.args.items()
    if x.shape != bad.shape or not 3 <= int(bad.sum()) <= bad.numel() // 2:
        return []
    for words, values in ((name, x.double()), (f"|{name}|", x.double().abs())):
        wrong, passed = values[bad], values[~bad]
        low, high = float(wrong.min()), float(wrong.max())
        below, above = passed[passed < low], passed[passed > high]
        if len(below) + len(above) < len(passed) or not _of_each_element(scene, output, right, bad):
            continue
        if len(below) and len(above):
            return [f"wrong {words} {_within(low, high, float(below.max()), float(above.min()))}"]
        bound = float(below.max() if len(below) else above.min())
        if words != name or abs(bound) > NEAR_0 * min(float(values.abs().max()), 1.0):
            cause = "a formula that overflows, loses its digits or is cut off there"
        elif len(below):
            cause = "a formula that does not hold for positive numbers"
        else:
            cause = (
                "a formula that does not hold for negative numbers, such as |x|, a logarithm or a power by way of one"
            )
        return [
            f"wrong just where {words} is {'above' if len(below) else 'below'} {bound:.6g}: consistent with {cause}"
        ]
    return []


def _within(low: float, high: float, below: float, above: float) -> str:
    """The interval from `low` to `high`, with the fewest digits that keep out `below` and `above`, where the output is right."""
    if low == high:
        return f"are all {low:.17g}"
    for digits in (3, 4, 6, 9, 17):
        words = f"lie between {low:.{digits}g} and {high:.{digits}g}"
        if below < float(f"{low:.{digits}g}") < float(f"{high:.{digits}g}") < above:
            break
    return words


def _where(bad: torch.Tensor, why: bool) -> str:
    """The wrong positions along the first dimension of which only some are wrong; with `why`, their likely cause too."""
    between = [f"index of dimension {axis}" for axis in range(1, bad.ndim - 2)]
    nouns = [["element"], ["row", "column"], ["batch entry", *between, "row", "column"]][min(bad.ndim, 3) - 1]
    for axis, noun in enumerate(nouns):
        size = bad.shape[axis]
        hit = bad.movedim(axis, 0).reshape(size, -1).any(-1)
        if size > 1 and not bool(hit.all()) and (sentence := _along(hit, size, noun, why)):
            return sentence
    return ""


def _along(hit: torch.Tensor, size: int, noun: str, why: bool) -> str:
    wrong = torch.nonzero(hit).flatten()
    low, high, count = int(wrong[0]), int(wrong[-1]), int(wrong.numel())
    plural = {"batch entry": "batch entries"}.get(noun, noun.replace("index", "indices") if " " in noun else f"{noun}s")
    if count == high - low + 1:
        span = f"{noun} {low} of {size} is" if count == 1 else f"{plural} {low}–{high} of {size} are"
        block = next((block for block in reversed(BLOCKS) if size % block and low == size - size % block), None)
        if high == size - 1 and block is not None:
            where = f"only {span} wrong, what is left after full blocks of {block}"
            return where + (": consistent with a last, partial block that is not handled or masked" if why else "")
        return f"only {span} wrong"
    if count > 2:
        gaps = wrong.diff()
        step = int(gaps[0])
        if bool((gaps == step).all()):
            return f"only every {_ordinal(step)} {noun} is wrong, from {low} to {high} of {size}"
    if noun == "element":
        return f"the wrong elements lie scattered between {low} and {high} of {size}"
    return f"{count} of {size} {plural} have wrong elements, the first is {low}, the last {high}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


NO_VALUES: tuple[Callable[[Seen], str], ...] = (_not_finite,)
PATTERNS: tuple[Callable[[Seen], str], ...] = (
    *NO_VALUES,
    _constant_output,
    _transposed,
    _factor,
    _row_factor,
    _permuted,
)
