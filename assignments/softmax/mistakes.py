"""Usual mistakes in row softmax: for each, the outputs of a kernel with that mistake."""

# ruff: noqa: B023 (each lambda is called before its loop goes on)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from grader.problem import Call
from grader.verdict.suspects import LARGEST_PART, LOW_PRECISION, ROUNDINGS, Suspect, fitted, part_from

TILE_ROWS = 64  # a mistake may involve all rows of a tile
VANISHES = -104  # exp(-104) is 0 in float32
NOT_SMALL_ENOUGH = -1e4  # a common substitute for -inf
ROW_BLOCKS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def suspects(call: Call, got: Mapping[str, Tensor], first: int) -> Iterator[Suspect]:
    """Row softmax with one mistake each, from the tile of the first wrong row on. In float32, because overflow is part
    of many mistakes.
    """
    whole = call.args["x"]
    if whole.ndim != 2:
        return
    part = part_from(whole, first - first % TILE_ROWS)
    for words, cause, form in _mistakes(whole, part, got["y"][part].double()):
        yield Suspect(words, cause, lambda: {"y": form().double()}, part=part)


class Exponential(NamedTuple):
    """A kernel's form of exp(t), right or wrong: e^(rate · t)."""

    form: str
    rate: float

    def __call__(self, t: Tensor) -> Tensor:
        return (t * self.rate).exp()

    def words(self, argument: str) -> str:
        return self.form.format(argument)


BASE_E = Exponential("exp({})", 1.0)
BASE_2 = Exponential("exp2({})", math.log(2))
SCALED = Exponential("exp(({}) log₂e)", 1 / math.log(2))  # the argument of exp2, given to exp
TWICE = Exponential("exp({})²", 2.0)
BASES_MIXED = (
    (BASE_2, BASE_E, "exp2(t) for exp(t) in the numerator alone"),
    (BASE_E, BASE_2, "exp2(t) for exp(t) in the sum alone"),
    (SCALED, BASE_E, "exp(t log₂e) for exp2(t log₂e) in the numerator alone"),
    (BASE_E, SCALED, "exp(t log₂e) for exp2(t log₂e) in the sum alone"),
)
RESCALED_MIXED = (  # the base of the terms, and the base of the factor
    (BASE_E, BASE_2, "exp2(t) for exp(t) in that factor alone"),
    (BASE_E, SCALED, "exp(t log₂e) for exp2(t log₂e) in that factor alone"),
    (BASE_2, BASE_E, "exp2(t) for exp(t) everywhere but in that factor"),
)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _mistakes(whole: Tensor, part: slice, got: Tensor) -> Iterator[tuple[str, str, Callable[[], Tensor]]]:
    """Words, cause and outputs of each mistake, for the rows `part` of all rows `whole`. `got` are the submission's, in
    float64.
    """
    x = whole[part].double()
    columns = x.shape[1]
    short = x.float()
    top = short.amax(-1, keepdim=True)
    powers = 2 ** math.ceil(math.log2(columns)) if columns > 1 else 1

    def over_sum(numerator: Tensor, more: Tensor | float = 0.0) -> Tensor:
        return numerator / (numerator.sum(-1, keepdim=True) + more)

    shifted, two = x - top.double(), math.log(2)
    total = shifted.exp().sum(-1, keepdim=True)
    log_sum = total.log()
    yield (
        "as its logarithm, x − m − ln Σ",
        "log-softmax in place of softmax: an exponential that is missing",
        lambda: shifted - log_sum,
    )
    yield (
        "as softmax(−x)",
        "a sign that is wrong in the exponent",
        lambda: _softmax(-x.nan_to_num(neginf=0.0)),  # with -inf all would be NaN, which says too little
    )
    yield (
        "as exp(m − x) / Σ",
        "a sign that is wrong in the numerator's exponent",
        lambda: (-shifted - log_sum).exp(),
    )
    yield (
        f"with the number of columns, {columns}, in place of the sum",
        "a mean: softmax divides by the sum of the exponentials",
        lambda: (short - top).exp() / columns,
    )
    yield (
        "as exp(x − m) / Σ exp(x)",
        "a maximum that is subtracted in the numerator alone",
        lambda: (short - top).exp() / short.exp().sum(-1, keepdim=True),
    )
    if bool((top > VANISHES).any()):
        yield (
            "as exp(x) / Σ exp(x − m)",
            "a maximum that is subtracted in the sum alone",
            lambda: short.exp() / (short - top).exp().sum(-1, keepdim=True),
        )
    elif bool((top < NOT_SMALL_ENOUGH).all()):
        yield (
            "with a number among the entries that is larger than all of them",
            f"padding with 0, or with one such as {NOT_SMALL_ENOUGH:g}: only −inf is below every entry",
            lambda: torch.zeros_like(short),
        )
    yield (
        "without the maximum subtracted",
        "exp of the entries as they are, which overflows above 88 and vanishes below −104",
        lambda: over_sum(short.exp()),
    )
    widths = {powers, *(math.ceil(columns / block) * block for block in ROW_BLOCKS)} - {columns}
    raised = top.clamp(min=0)
    for width in sorted(widths):
        yield (
            f"with {_zeros(width - columns)} after each row of {columns}",
            f"the padding up to column {width} loaded as 0: exp(0 − m) counts in the row sum, and 0 in the maximum",
            lambda: over_sum((short - raised).exp(), (width - columns) * (-raised).exp()),
        )
        yield (
            f"with {_zeros(width - columns)} after each row in the sum but not in the maximum",
            "padding that counts in the row sum",
            lambda: over_sum((short - top).exp(), (width - columns) * (-top).exp()),
        )
        yield (
            f"with the last entry of each row {width - columns} times more in the sum",
            f"offsets beyond the last column that are clamped to it: up to column {width} they need a mask",
            lambda: over_sum((short - top).exp(), (width - columns) * (short[:, -1:] - top).exp()),
        )
    yield (
        "with a 0 among the entries when the maximum is taken",
        "padding with 0 that takes part in the maximum, or a maximum that starts at 0 instead of −inf",
        lambda: over_sum((short - raised).exp()),
    )
    for more in (1.0, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        yield (
            f"with {more:g} added to the sum",
            "a sum that is kept from 0: with the maximum subtracted it is never less than 1",
            lambda: over_sum(shifted.exp(), more),
        )
    for words, factor in (
        ("divided by √columns", columns**-0.5),
        ("divided by the number of columns", 1 / columns),
        ("multiplied by √columns", columns**0.5),
    ):
        yield (
            f"when x is {words} first, for {columns} columns",
            "a scale that softmax does not have; attention's scores do",
            lambda: _softmax(x * factor),
        )
    yield ("without dividing by the sum", "a division that is missing", lambda: (short - top).exp())
    for words, power in (("the sum twice", 2.0), ("the root of the sum", 0.5)):
        yield (
            f"when exp(x − m) is divided by {words}",
            "another division than the one by Σ",
            lambda: (shifted - power * log_sum).exp(),
        )
    for words, cause, rate in (
        ("with exp2 in place of exp", "base 2 where base e is meant: exp(t) = exp2(t · log₂e)", two),
        ("with a factor log₂e too many in the exponent", "a conversion to base 2 without exp2", 1 / two),
    ):
        yield words, cause, lambda: _softmax(x * rate)
    for above, below, how in BASES_MIXED:
        yield (
            f"as {above.words('x − m')} / Σ {below.words('x − m')}",
            f"base 2 mixed with base e: {how}; exp(t) = exp2(t log₂e)",
            lambda: above(shifted) / below(shifted).sum(-1, keepdim=True),
        )
    for words, how, factor in (
        ("as exp(x − m − log₂ Σ)", "a base-2 logarithm in a base-e exponential", 1 / two),
        ("as exp2((x − m) log₂e − ln Σ)", "a natural logarithm in a base-2 exponential", two),
    ):
        yield words, f"base 2 mixed with base e: {how}", lambda: (shifted - log_sum * factor).exp()
    for low, rounded in ROUNDINGS:
        exponent = rounded(x - top)
        yield f"for x rounded to {low}", LOW_PRECISION, lambda: _softmax(rounded(x))
        yield f"with y rounded to {low}", LOW_PRECISION, lambda: rounded(_softmax(x))
        for words, numerator in (
            (f"with x − m rounded to {low} before exp", exponent.exp()),
            (f"with exp(x − m) rounded to {low}", rounded((x - top).exp())),
            (f"with exp in {low}: x − m and exp(x − m) rounded to it", rounded(exponent.exp())),
        ):
            yield words, LOW_PRECISION, lambda: over_sum(numerator)
            yield f"{words}, in the numerator alone", LOW_PRECISION, lambda: numerator / total
    scaled = torch.tensor(1 / two, dtype=torch.float32)
    yield (
        "as exp2(x log₂e − m log₂e), each product rounded",
        "the order that loses digits: subtract the maximum first, then multiply by log₂e",
        lambda: over_sum((short * scaled - top * scaled).exp2()),
    )
    for block in (block for block in reversed(ROW_BLOCKS) if block < columns):
        if bool(torch.isneginf(short[:, :block]).all(-1).any()):
            yield (
                f"when a block of at most {block} with nothing but −inf makes its row NaN",
                "−inf − (−inf) while all entries so far are −inf",
                lambda: _softmax(x).masked_fill(torch.isneginf(short[:, :block]).all(-1, keepdim=True), math.nan),
            )
        first = short[:, :block].amax(-1, keepdim=True)
        yield (
            f"with the maximum of each row's first {block} entries",
            "a maximum that is not updated by later blocks",
            lambda: over_sum((short - first).exp()),
        )
        yield (
            f"relative to the maximum of each block of {block} alone",
            "a running maximum that does not keep the larger one: exp(m_old − m_new) overflows where a block's is far below",
            lambda: _of_own_maximum(short, block),
        )
        yield (
            f"when the sum of blocks of {block} is not rescaled as the maximum moves",
            "a factor exp(m_old − m_new) that is missing before the sum",
            lambda: shifted.exp() / _sum_by_blocks(shifted, block, BASE_E, None),
        )
        yield (
            f"when the sum of blocks of {block} is rescaled twice as the maximum moves",
            "a factor exp(m_old − m_new) that is there twice before the sum",
            lambda: shifted.exp() / _sum_by_blocks(shifted, block, BASE_E, TWICE),
        )
        yield (
            f"when the first block of {block} is there again in place of each later one",
            "a second pass that does not move on from block to block",
            lambda: _softmax(x)[:, torch.arange(columns, device=x.device) % block],
        )
        yield (
            f"when each block of {block} is divided by the sum of the blocks so far",
            "a row that is written before all of it has been summed: a second pass over it is missing",
            lambda: _so_far(short, block),
        )
        for terms, factor, how in RESCALED_MIXED:
            yield (
                f"when the sum of {terms.words('x − m')} is multiplied by {factor.words('m_old − m_new')} "
                f"after each block of {block}",
                f"base 2 mixed with base e: {how}; exp(t) = exp2(t log₂e)",
                lambda: terms(shifted) / _sum_by_blocks(shifted, block, terms, factor),
            )
        if columns % block:
            kept = columns // block * block
            largest = short[:, :kept].amax(-1, keepdim=True)
            yield (
                f"with maximum and sum over the first {kept} of {columns} entries alone, full blocks of {block}",
                "a last, partial block that is left out",
                lambda: (short - largest).exp() / (short[:, :kept] - largest).exp().sum(-1, keepdim=True),
            )
        yield (
            f"with the sum over the first {block} entries alone",
            "a sum that covers one block of a longer row",
            lambda: shifted.exp() / shifted[:, :block].exp().sum(-1, keepdim=True),
        )
    for rows in (rows for rows in (2, 4, 8, 16, 32, 64, x.shape[0]) if 1 < rows <= x.shape[0] or rows == 2):
        common = _by_tiles(short, rows, "max")
        yield (
            f"with one maximum for every {rows} rows",
            "a maximum over the whole tile: its axis is missing",
            lambda: over_sum((short - common).exp()),
        )
        yield (
            f"with one sum for every {rows} rows",
            "a sum over the whole tile: its axis is missing",
            lambda: (short - top).exp() / _by_tiles((short - top).exp(), rows, "sum"),
        )
    if whole.numel() <= LARGEST_PART:
        yield (
            "as softmax over the other dimension",
            "rows and columns taken for each other: softmax runs along each row",
            lambda: torch.softmax(whole.double(), 0)[part],
        )
        yield (
            "when every row is the first one",
            "a row's offset that is missing",
            lambda: _softmax(whole[:1].double()).expand(whole.shape)[part],
        )
    for where, of in (
        ("", lambda rate: _softmax(rate * x)),
        (" in the numerator alone", lambda rate: (rate * shifted - log_sum).exp()),
    ):
        rate = fitted(got, of, 1.0)
        if math.isfinite(rate):
            yield (
                f"with x − m multiplied by {rate:.5g}{where}",
                f"a wrong constant in the exponent, such as {rate / two:.5g} in place of log₂e, which is {1 / two:.6g}",
                lambda: of(rate),
            )


def _zeros(count: int) -> str:
    return f"{count} zeros" if count > 1 else "one zero"


def _blocks(x: Tensor, block: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each block of a row: its entries, the maximum before it, and the maximum up to its end, 0 if all are −inf."""
    largest = torch.full_like(x[:, :1], -math.inf)
    for piece in x.split(block, -1):
        before, largest = largest, torch.maximum(largest, piece.amax(-1, keepdim=True))
        yield piece, before, largest.nan_to_num(neginf=0.0)


def _of_own_maximum(x: Tensor, block: int) -> Tensor:
    """The online softmax with each block's own maximum in place of the maximum so far, in float32, where exp
    overflows.
    """
    total, before = torch.zeros_like(x[:, :1]), torch.full_like(x[:, :1], -math.inf)
    for piece in x.split(block, -1):
        top = piece.amax(-1, keepdim=True)
        safe = top.nan_to_num(neginf=0.0)
        total, before = total * (before - safe).exp() + (piece - safe).exp().sum(-1, keepdim=True), top
    return (x - before).exp() / total


def _sum_by_blocks(shifted: Tensor, block: int, terms: Exponential, factor: Exponential | None) -> Tensor:
    """The row sum of an online softmax. Each block's terms are relative to the maximum so far.

    Args:
        shifted: x − m of the whole row.
        factor: rescales the sum when the maximum moves; None never rescales.
    """
    total = torch.zeros_like(shifted[:, :1])
    for piece, before, safe in _blocks(shifted, block):
        kept = total if factor is None else total * factor(before - safe)
        total = kept + terms(piece - safe).sum(-1, keepdim=True)
    return total


def _so_far(x: Tensor, block: int) -> Tensor:
    """An online softmax that writes each block with the maximum and the sum up to its end."""
    pieces, total = [], torch.zeros_like(x[:, :1])
    for piece, before, safe in _blocks(x, block):
        total = total * (before - safe).exp() + (piece - safe).exp().sum(-1, keepdim=True)
        pieces.append((piece - safe).exp() / total)
    return torch.cat(pieces, -1)


def _by_tiles(values: Tensor, rows: int, how: str) -> Tensor:
    """(n, 1): for each row, the maximum or sum of the whole tile of `rows` rows."""
    whole = len(values) // rows * rows
    found = []
    for part, height in ((values[:whole], rows), (values[whole:], len(values) - whole)):
        if len(part):
            tiles = part.reshape(len(part) // height, -1)
            reduced = tiles.amax(-1) if how == "max" else tiles.sum(-1)
            found.append(reduced.repeat_interleave(height))
    return torch.cat(found)[:, None]
