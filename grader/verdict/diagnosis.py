"""Where an output is wrong, and what that pattern usually means: pure functions from tensors to sentences.

Each sentence says what was seen; a cause is only ever "consistent with". The first line says where, the others why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from grader.protocol import POISON_BYTE

BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SAMPLE = 2**22  # patterns are looked for in this many elements; counting is exact
CONSTANTS = {
    math.log(2): "ln 2: consistent with mixing base-e and base-2 exponentials or logarithms",
    1 / math.log(2): "log2 e: consistent with mixing base-e and base-2 exponentials or logarithms",
    2.0: "2",
    0.5: "1/2",
    -1.0: "-1: the sign is wrong",
}
CLOSE = 0.02
SMALLEST_ROW_FACTOR = 1e-4  # closer to 1 it is rounding, not a wrong sum


def poisoned(tensor: torch.Tensor) -> torch.Tensor:
    """Which elements still hold what the grader put into their memory before the call: nobody has written them."""
    size = tensor.element_size()
    bits = tensor.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
    return bits == int.from_bytes(bytes([POISON_BYTE]) * size, "little", signed=True)


def explain(name: str, got: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> list[str]:
    """Sentences about an output that is wrong at the elements `bad`.

    Args:
        name: of the output, as the handout calls it.
        got: what the submission wrote, in its dtype.
        expected: the oracle's answer, float64, same shape.
        bad: bool, same shape; at least one True.
    """
    count, total = int(bad.sum()), bad.numel()
    first = _first_index(bad)
    value = got[first]
    never = bool(poisoned(value.reshape(1))[0])
    found = "never written" if never else f"{float(value):.6g}"
    lines = [f"{name}{_brackets(first)} is the first wrong element: expected {float(expected[first]):.6g}, got {found}; "
             f"{_share(count, total)} wrong"]  # fmt: skip
    where = _where(bad) if count < total else ""
    whole = bad.numel()
    got, expected, bad = _sample(got, expected, bad, first)
    got64 = got.double()
    for pattern in (_never_written, _not_finite, _constant_output, _transposed, _factor, _row_factor, _offset):
        if sentence := pattern(got, got64, expected, bad):
            lines.append(sentence if bad.numel() == whole else f"in the next {bad.numel()} elements: {sentence}")
            break
    return [*lines, where] if where else lines


def _sample(
    got: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor, first: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A slice along dimension 0 from the first wrong element on, small enough to look for patterns in."""
    if bad.numel() <= SAMPLE or not first:
        return got, expected, bad
    part = slice(first[0], first[0] + max(1, SAMPLE * bad.shape[0] // bad.numel()))
    return got[part], expected[part], bad[part]


def small_errors(name: str) -> list[str]:
    """For an output whose single elements pass while the errors together do not."""
    return [
        f"no single element of {name} is far off, but the errors together are larger than rounding explains: "
        "consistent with a wrong constant or an intermediate result kept in too low a precision"
    ]


def _share(count: int, total: int) -> str:
    if count == total:
        return f"all {total} elements are" if total > 1 else "it is"
    return f"{count} of {total} elements ({100 * count / total:.3g}%) are"


def _first_index(bad: torch.Tensor) -> tuple[int, ...]:
    position = int(bad.reshape(-1).to(torch.uint8).argmax())
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(position), bad.shape))


def _brackets(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def _never_written(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    unwritten = poisoned(got)
    count = int(unwritten.sum())
    if not count:
        return ""
    whose = _share(count, got.numel()).replace(" are", " were").replace("it is", "it was")
    return f"{whose} never written: consistent with a grid that is too small"


def _not_finite(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    strange = ~torch.isfinite(got64) & torch.isfinite(expected)
    count = int(strange.sum())
    if not count:
        return ""
    nans = int((got64.isnan() & torch.isfinite(expected)).sum())
    kind = "NaN" if nans == count else "infinite" if nans == 0 else "NaN or infinite"
    cause = "inf − inf, 0/0, or exp of a large number" if nans else "an overflow"
    start = _brackets(_first_index(strange))
    return f"{_share(count, got.numel())} {kind} where the right answer is finite, first at {start}: consistent with {cause}"


def _constant_output(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    flat = got64.reshape(-1)
    if flat.numel() > 1 and bool((flat == flat[0]).all()):
        return f"every element is {float(flat[0]):.6g}: consistent with a kernel that did not run or stored nothing"
    return ""


def _transposed(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    if expected.ndim < 2 or expected.shape[-1] == 1 or expected.numel() > SAMPLE:
        return ""
    other = expected.transpose(-1, -2)
    other = other if expected.shape[-1] == expected.shape[-2] else other.reshape(expected.shape)
    if _agrees(got64, other) and not _agrees(expected, other):
        return "the values are right but transposed: consistent with rows and columns (or their strides) swapped"
    return ""


def _factor(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    wrong, right = got64[bad][:SAMPLE], expected[bad][:SAMPLE]
    usable = right.abs() > 1e-2 * right.abs().max()
    if int(usable.sum()) < 4:
        return ""
    ratio = wrong[usable] / right[usable]
    middle = float(ratio.median())
    if (
        not math.isfinite(middle)
        or float((ratio - middle).abs().max()) > CLOSE * abs(middle)
        or abs(middle - 1) < CLOSE
        or middle == 0
    ):
        return ""
    known = next((words for constant, words in CONSTANTS.items() if abs(middle / constant - 1) < CLOSE), "")
    known = known or _root_of_dimension(middle, expected.shape)
    most = 2 * int(bad.sum()) > bad.numel()
    what = (
        f"got is {middle:.4g} times expected throughout"
        if most
        else f"the wrong elements are {middle:.4g} times expected"
    )
    return what + (f", which is {known}" if known else "")


def _row_factor(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    """Each row right but for a factor of its own, as when a normaliser is wrong."""
    if expected.ndim < 2 or expected.shape[-1] < 4 or expected.numel() > SAMPLE:
        return ""
    largest = expected.abs().amax(-1, keepdim=True)
    counts = (expected.abs() > 1e-2 * largest) & (largest > 0)
    middle = torch.where(counts, got64 / expected, math.nan).nanmedian(-1, keepdim=True).values
    off = float((middle - 1).abs().max()) if bool(torch.isfinite(middle).all()) else 0.0
    unexplained = (got64 - middle * expected).abs() > 0.1 * off * largest
    if off < SMALLEST_ROW_FACTOR or bool(unexplained.any()):
        return ""
    low, high = float(middle.min()), float(middle.max())
    return (
        f"every row is right but for a factor of its own, from {low:.6g} to {high:.6g}: consistent with a wrong row sum, "
        "such as padding that is counted in it or a maximum that is not subtracted everywhere alike"
    )


def _root_of_dimension(factor: float, shape: Sequence[int]) -> str:
    root = math.sqrt(shape[-1]) if shape else 1.0
    for value, words in ((root, "√d"), (1 / root, "1/√d"), (root * root, "d"), (1 / (root * root), "1/d")):
        if root > 1 and abs(factor / value - 1) < CLOSE:
            return f"{words} for d = {shape[-1]}: consistent with a missing or doubled scale"
    return ""


def _offset(got: torch.Tensor, got64: torch.Tensor, expected: torch.Tensor, bad: torch.Tensor) -> str:  # noqa: ARG001
    """The right values at the wrong places: shifted along the last dimension."""
    if expected.ndim == 0 or expected.shape[-1] < 8 or expected.numel() > SAMPLE:
        return ""
    for shift in (1, -1):
        moved = expected.roll(shift, -1)
        inner = slice(1, -1)
        if _agrees(got64[..., inner], moved[..., inner]) and not _agrees(expected[..., inner], moved[..., inner]):
            way = "late" if shift == 1 else "early"
            return f"the values are right but one place too {way} along the last dimension: consistent with an index off by one"
    return ""


def _agrees(first: torch.Tensor, second: torch.Tensor) -> bool:
    scale = float(second.abs().nan_to_num(0, 0, 0).max()) if second.numel() else 0.0
    return scale > 0 and bool(((first - second).abs() <= CLOSE * scale).all())


def _where(bad: torch.Tensor) -> str:
    """Which positions along a dimension are wrong, when it is only some of them."""
    describe: Sequence[tuple[int, Callable[[int], str]]]
    if bad.ndim == 1:
        describe = [(0, lambda _: "element")]
    elif bad.ndim == 2:
        describe = [(0, lambda _: "row"), (1, lambda _: "column")]
    else:
        names = {0: "batch entry", bad.ndim - 2: "row", bad.ndim - 1: "column"}
        describe = [(axis, lambda axis: names.get(axis, f"index of dimension {axis}")) for axis in range(bad.ndim)]
    for axis, noun in describe:
        size = bad.shape[axis]
        others = [other for other in range(bad.ndim) if other != axis]
        hit = bad.any(dim=others) if others else bad
        if size > 1 and not bool(hit.all()) and (sentence := _along(hit, size, noun(axis))):
            return sentence
    return ""


def _along(hit: torch.Tensor, size: int, noun: str) -> str:
    wrong = torch.nonzero(hit).flatten()
    low, high, count = int(wrong[0]), int(wrong[-1]), int(wrong.numel())
    plural = (
        noun.replace("entry", "entries").replace("index", "indices")
        if noun.startswith(("batch", "index"))
        else f"{noun}s"
    )
    if count == high - low + 1:
        if high == size - 1:
            block = next((block for block in reversed(BLOCKS) if size % block and low == size - size % block), None)
            if block is not None:
                return (
                    f"only {plural} {low}–{high} of {size} are wrong, what is left after full blocks of {block}: "
                    "consistent with a last, partial block that is not handled or masked"
                )
        span = f"{noun} {low}" if count == 1 else f"{plural} {low}–{high}"
        return f"only {span} of {size} {'is' if count == 1 else 'are'} wrong"
    if count > 2:
        gaps = wrong.diff()
        step = int(gaps[0])
        if bool((gaps == step).all()):
            return f"only every {_ordinal(step)} {noun} is wrong, from {low} to {high} of {size}"
    return f"{count} of {size} {plural} have wrong elements, the first is {low}, the last {high}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
