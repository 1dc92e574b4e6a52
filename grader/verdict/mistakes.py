"""GeLU and softmax with one mistake each: what comes out when that mistake is made."""

# ruff: noqa: B023 (what a suspect leads to is worked out before the loop that made it goes on)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from grader.protocol import EARLY_VALUE
from grader.verdict.rounding import ROUNDINGS

Outputs = Mapping[str, Tensor]
VANISHES = -104  # exp of it is 0 in float32
NOT_SMALL_ENOUGH = -1e4  # what is often taken for padding
LOW_PRECISION = "a conversion to too low a precision: float32 is needed"
FITTING_STEPS = 6
ENOUGH_TO_FIT = 64  # one element is met by some constant of any formula
SMALL_STEP = 1e-5  # relative
FARTHEST = 4  # times the right constant: another formula, and no constant that is off
ROW_BLOCKS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Suspect:
    """A mistake, and the outputs that it leads to.

    words: completes "y is what comes out ...".
    cause: completes "consistent with ...".
    outputs: those it tells something of, by name: the entries `part` of dimension 0, float64.
    together: it only explains all of them, not one alone.
    each: no element of an output has to do with another one.
    """

    words: str
    cause: str
    outputs: Callable[[], Outputs]
    together: bool = False
    each: bool = False


# GeLU -----------------------------------------------------------------------------------------------------------------


def _tanh_form(x: Tensor, factor: float = math.sqrt(2 / math.pi), cubic: float = 0.044715, power: int = 3) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(factor * (x + cubic * x**power)))


def gelu(x: Tensor) -> Tensor:
    return _tanh_form(x)


TANHS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("u (27 + u²) / (27 + 9u²)", lambda u: u * (27 + u**2) / (27 + 9 * u**2)),
    ("u (15 + u²) / (15 + 6u²)", lambda u: u * (15 + u**2) / (15 + 6 * u**2)),
    (
        "u (945 + 105u² + u⁴) / (945 + 420u² + 15u⁴)",
        lambda u: u * (945 + 105 * u**2 + u**4) / (945 + 420 * u**2 + 15 * u**4),
    ),
    ("u − u³/3", lambda u: u - u**3 / 3),
    ("u − u³/3 + 2u⁵/15", lambda u: u - u**3 / 3 + 2 * u**5 / 15),
    ("u / (1 + |u|)", lambda u: u / (1 + u.abs())),
    ("u", lambda u: u),
)


def gelu_suspects(name: str, x: Tensor, got: Tensor) -> Iterator[Suspect]:
    """x, got: a part of the input, and what was given for it, float64."""
    root = math.sqrt(2 / math.pi)
    constants = "a constant that is not the handout's"
    argument = root * (x + 0.044715 * x**3)
    forms: list[tuple[str, str, Callable[[], Tensor]]] = [
        ("by the exact form, with erf", "the erf form in place of the tanh form", lambda: _erf_form(x)),
        ("as x σ(1.702 x)", "another approximation than the tanh form", lambda: x * torch.sigmoid(1.702 * x)),
        ("as x σ(x)", "SiLU in place of GeLU", lambda: x * torch.sigmoid(x)),
        (
            "as x σ(u) where it is x σ(2u)",
            "a 2 that is missing: tanh(u) = 2σ(2u) − 1",
            lambda: x * torch.sigmoid(argument),
        ),
        (
            "as ½ x (1 + 2σ(2u))",
            "a 1 that is missing: tanh(u) = 2σ(2u) − 1",
            lambda: 0.5 * x * (1 + 2 * torch.sigmoid(2 * argument)),
        ),
        ("with x² in place of x³", "a power that is too low", lambda: _tanh_form(x, power=2)),
        ("without the cubic term", "x³ left out or multiplied by 0", lambda: _tanh_form(x, cubic=0.0)),
        ("without the 1 + before tanh", "a term that is missing", lambda: 0.5 * x * torch.tanh(argument)),
        ("without the factor 1/2", "a factor that is missing", lambda: 2 * _tanh_form(x)),
        ("with the factor 1/2 twice", "a factor too many", lambda: 0.5 * _tanh_form(x)),
        ("without the factor √(2/π)", "a factor that is missing", lambda: _tanh_form(x, factor=1.0)),
        (
            "with √2/π in place of √(2/π)",
            "a root over too little",
            lambda: _tanh_form(x, factor=math.sqrt(2) / math.pi),
        ),
        ("with 2/π in place of √(2/π)", "a root that is missing", lambda: _tanh_form(x, factor=2 / math.pi)),
        (
            "with √(π/2) in place of √(2/π)",
            "a quotient upside down",
            lambda: _tanh_form(x, factor=math.sqrt(math.pi / 2)),
        ),
        (
            "with √(2/π) x + 0.044715 x³",
            "brackets that are missing",
            lambda: 0.5 * x * (1 + torch.tanh(root * x + 0.044715 * x**3)),
        ),
        (
            "with √(2/π) x (x + 0.044715 x²)",
            "an x that is taken out of the second term alone: x + 0.044715 x³ = x (1 + 0.044715 x²)",
            lambda: 0.5 * x * (1 + torch.tanh(root * x * (x + 0.044715 * x**2))),
        ),
        (
            "with √(2/π) (1 + 0.044715 x²)",
            "an x that is taken out and lost: x + 0.044715 x³ = x (1 + 0.044715 x²)",
            lambda: 0.5 * x * (1 + torch.tanh(root * (1 + 0.044715 * x**2))),
        ),
        (
            "with √(2/π) x (1 + 0.044715 x³)",
            "x⁴ in place of x³; or an x that is taken out of the first term alone: x + 0.044715 x³ = x (1 + 0.044715 x²)",
            lambda: 0.5 * x * (1 + torch.tanh(root * x * (1 + 0.044715 * x**3))),
        ),
        (
            "without the factor x",
            "a factor that is missing: x · ½ (1 + tanh(u))",
            lambda: 0.5 * (1 + torch.tanh(argument)),
        ),
        (
            "as ½ x (1 − tanh(u)), which is x σ(−2u)",
            "a sign that is wrong: tanh(u) = (1 − e⁻²ᵘ) / (1 + e⁻²ᵘ), σ(t) = 1 / (1 + e⁻ᵗ)",
            lambda: 0.5 * x * (1 - torch.tanh(argument)),
        ),
        (
            "as x / (1 + 2⁻²ᵘ)",
            "base 2 where base e is meant: exp(t) = exp2(t · log₂e)",
            lambda: x * torch.sigmoid(2 * argument * math.log(2)),
        ),
        (
            "with x − 0.044715 x³ in place of x + 0.044715 x³",
            "a sign that is wrong",
            lambda: _tanh_form(x, cubic=-0.044715),
        ),
        ("with x⁵ in place of x³", "a power that is too high", lambda: _tanh_form(x, power=5)),
        (
            "as GeLU's derivative",
            "a gradient in place of the function",
            lambda: (
                0.5 * (1 + torch.tanh(argument))
                + 0.5 * x * (1 - torch.tanh(argument) ** 2) * root * (1 + 3 * 0.044715 * x**2)
            ),
        ),
        ("as ½ x (1 + tanh(x))", "the argument of tanh: u, not x", lambda: 0.5 * x * (1 + torch.tanh(x))),
        (
            "with |x|³ in place of x³",
            "a power that loses the sign",
            lambda: 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * x.abs() ** 3))),
        ),
        (
            "when GeLU is applied twice",
            "an output that is read and worked on again, or a formula that is there twice",
            lambda: gelu(gelu(x)),
        ),
        (
            "as ½ x (1 + tanh|u|)",
            "a sign that is lost: tanh(−u) = −tanh(u)",
            lambda: 0.5 * x * (1 + torch.tanh(argument.abs())),
        ),
        ("as relu(x)", "tanh cut off too early", lambda: x.clamp(min=0)),
        (
            "for what stood in x before the work that is queued on the given stream wrote it",
            "a launch on another stream than the given one",
            lambda: gelu(torch.full_like(x, EARLY_VALUE)),
        ),
    ]
    for wrong in (0.044175, 0.047715, 0.04715, 0.0447, 0.044, 0.45, 0.44715, 0.0044715):
        forms.append((f"with {wrong} in place of 0.044715", constants, partial(_tanh_form, x, cubic=wrong)))
    for wrong in (0.8, 0.79, 0.797, 0.7975, 0.798, 0.7978, 0.7979, 0.79788, math.sqrt(2 / 3.14), math.sqrt(2 / 3.1416)):
        forms.append((f"with {wrong:.6g} in place of √(2/π)", constants, partial(_tanh_form, x, factor=wrong)))
    for low, rounded in ROUNDINGS:
        forms.append((f"for x rounded to {low}", LOW_PRECISION, partial(_after, rounded, gelu, x)))
        forms.append((f"with y rounded to {low}", LOW_PRECISION, partial(_after, gelu, rounded, x)))
    for formula, tanh in TANHS:
        for end, limit in (("", math.inf), (", kept within ±1", 1.0)):
            forms.append(
                (
                    f"with tanh(u) as {formula}{end}",
                    "an approximation of tanh that is not good enough",
                    partial(_with_tanh, x, argument, tanh, limit),
                )
            )
    for bound in (1.0, 2.0, 3.0, 4.0):
        cut = argument.clamp(-bound, bound)
        forms.append(
            (
                f"with u kept within ±{bound:g}",
                "an argument of tanh that is cut off too early",
                partial(_with_tanh, x, cut, torch.tanh, math.inf),
            )
        )
    for bound in (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 50.0, 88.0, 100.0):
        forms.append(
            (
                f"for x kept within ±{bound:g}",
                "an x that is cut off: the argument of tanh may be, where tanh is ±1",
                partial(gelu, x.clamp(-bound, bound)),
            )
        )
    for words, cause, form in forms:
        yield Suspect(words, cause, lambda: {name: form()}, each=True)
    tunable: list[tuple[str, float, Callable[[float], Tensor]]] = [
        (f"√(2/π), which is {root:.6g}", root, lambda value: _tanh_form(x, factor=value)),
        ("0.044715", 0.044715, lambda value: _tanh_form(x, cubic=value)),
    ]
    for what, right, of in tunable if x.numel() >= ENOUGH_TO_FIT else ():
        value = fitted(got, of, right)
        if math.isfinite(value):
            words = f"with about {value:.5g} in place of {what}"
            yield Suspect(words, constants, lambda: {name: of(value)}, each=True)


def _after(first: Callable[[Tensor], Tensor], then: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return then(first(x))


def _with_tanh(x: Tensor, argument: Tensor, tanh: Callable[[Tensor], Tensor], limit: float) -> Tensor:
    return 0.5 * x * (1 + tanh(argument).clamp(-limit, limit))


def fitted(got: Tensor, of: Callable[[float], Tensor], right: float) -> float:
    """The constant with which a formula comes nearest to what was given, by least squares; from `right` on."""
    value = right
    for _ in range(FITTING_STEPS):
        form = of(value)
        slope = (of(value * (1 + SMALL_STEP)) - form) / (value * SMALL_STEP)
        counts = got.isfinite() & form.isfinite() & slope.isfinite()
        steepness = float(slope[counts].square().sum())
        if steepness == 0:
            break
        value += float(((got - form) * slope)[counts].sum()) / steepness
        if not abs(value) < FARTHEST * right:
            return math.nan
    return value


def _erf_form(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


# Softmax --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponential:
    """How a kernel may write exp(t), or something that only looks like it: e^(rate · t)."""

    form: str
    rate: float

    def __call__(self, t: Tensor) -> Tensor:
        return (t * self.rate).exp()

    def words(self, argument: str) -> str:
        return self.form.format(argument)


BASE_E = Exponential("exp({})", 1.0)
BASE_2 = Exponential("exp2({})", math.log(2))
SCALED = Exponential("exp(({}) log₂e)", 1 / math.log(2))  # the argument of exp2 given to exp
TWICE = Exponential("exp({})²", 2.0)
BASES_MIXED = (
    (BASE_2, BASE_E, "exp2(t) for exp(t) in the numerator alone"),
    (BASE_E, BASE_2, "exp2(t) for exp(t) in the sum alone"),
    (SCALED, BASE_E, "exp(t log₂e) for exp2(t log₂e) in the numerator alone"),
    (BASE_E, SCALED, "exp(t log₂e) for exp2(t log₂e) in the sum alone"),
)
RESCALED_MIXED = (  # the base of everything else, and that of the factor
    (BASE_E, BASE_2, "exp2(t) for exp(t) in that factor alone"),
    (BASE_E, SCALED, "exp(t log₂e) for exp2(t log₂e) in that factor alone"),
    (BASE_2, BASE_E, "exp2(t) for exp(t) everywhere but in that factor"),
)


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _over_both(words: str, numerator: Tensor, total: Tensor) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    yield words, lambda: numerator / numerator.sum(-1, keepdim=True)
    yield f"{words}, in the numerator alone", lambda: numerator / total


def softmax_suspects(name: str, x: Tensor, whole: Tensor | None, part: slice, got: Tensor) -> Iterator[Suspect]:
    """x: the rows `part` in float64, got: what was given for them; whole: all rows, where they are not too many.

    Overflow is part of many mistakes, so those are worked out in float32.
    """
    columns = x.shape[1]
    short = x.float()
    top = short.amax(-1, keepdim=True)
    powers = 2 ** math.ceil(math.log2(columns)) if columns > 1 else 1

    def suspect(words: str, cause: str, form: Callable[[], Tensor]) -> Suspect:
        return Suspect(words, cause, lambda: {name: form().double()})

    def over_sum(numerator: Tensor, more: Tensor | float = 0.0) -> Tensor:
        return numerator / (numerator.sum(-1, keepdim=True) + more)

    log_sum = (x - top.double()).exp().sum(-1, keepdim=True).log()
    yield suspect(
        "as its logarithm, x − m − ln Σ",
        "log-softmax in place of softmax: an exponential that is missing",
        lambda: x - top.double() - log_sum,
    )
    yield suspect(
        "as softmax(−x)",
        "a sign that is wrong in the exponent",
        lambda: torch.softmax(-x.nan_to_num(neginf=0.0), -1),  # where there is -inf, NaN alone would say too little
    )
    yield suspect(
        "as exp(m − x) / Σ",
        "a sign that is wrong in the numerator's exponent",
        lambda: (top.double() - x - log_sum).exp(),
    )
    yield suspect(
        f"with the number of columns, {columns}, in place of the sum",
        "a mean: softmax divides by the sum of the exponentials",
        lambda: (short - top).exp() / columns,
    )
    yield suspect(
        "as exp(x − m) / Σ exp(x)",
        "a maximum that is subtracted in the numerator alone",
        lambda: (short - top).exp() / short.exp().sum(-1, keepdim=True),
    )
    if bool((top > VANISHES).any()):
        yield suspect(
            "as exp(x) / Σ exp(x − m)",
            "a maximum that is subtracted in the sum alone",
            lambda: short.exp() / (short - top).exp().sum(-1, keepdim=True),
        )
    elif bool((top < NOT_SMALL_ENOUGH).all()):
        yield suspect(
            "with a number among the entries that is larger than all of them",
            f"padding with 0, or with one such as {NOT_SMALL_ENOUGH:g}: only −inf is below every entry",
            lambda: torch.zeros_like(short),
        )
    yield suspect(
        "without the maximum subtracted",
        "exp of the entries as they are, which overflows above 88 and vanishes below −104",
        lambda: over_sum(short.exp()),
    )
    widths = {powers, *(math.ceil(columns / block) * block for block in ROW_BLOCKS)} - {columns}
    raised = top.clamp(min=0)
    for width in sorted(widths):
        yield suspect(
            f"with {_zeros(width - columns)} after each row of {columns}",
            f"the padding of a block of {min(width, *(b for b in (*ROW_BLOCKS, width) if width % b == 0 and b >= width - columns))} "
            "loaded as 0: exp(0 − m) counts in the row sum, and 0 in the maximum",
            lambda: over_sum((short - raised).exp(), (width - columns) * (-raised).exp()),
        )
        yield suspect(
            f"with {_zeros(width - columns)} after each row in the sum but not in the maximum",
            "padding that counts in the row sum",
            lambda: over_sum((short - top).exp(), (width - columns) * (-top).exp()),
        )
    yield suspect(
        "with a 0 among the entries when the maximum is taken",
        "padding with 0 that takes part in the maximum, or a maximum that starts at 0 instead of −inf",
        lambda: over_sum((short - raised).exp()),
    )
    for more in (1.0, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        yield suspect(
            f"with {more:g} added to the sum",
            "a sum that is kept from 0: with the maximum subtracted it is never less than 1",
            lambda: over_sum((x - top.double()).exp(), more),
        )
    for words, factor in (
        ("divided by √columns", columns**-0.5),
        ("divided by the number of columns", 1 / columns),
        ("multiplied by √columns", columns**0.5),
    ):
        yield suspect(
            f"when x is {words} first, for {columns} columns",
            "a scale that softmax does not have; attention's scores do",
            lambda: torch.softmax(x * factor, -1),
        )
    yield suspect("without dividing by the sum", "a division that is missing", lambda: (short - top).exp())
    for words, power in (("the sum twice", 2.0), ("the root of the sum", 0.5)):
        yield suspect(
            f"when exp(x − m) is divided by {words}",
            "another division than the one by Σ",
            lambda: (x - top.double() - power * log_sum).exp(),
        )
    two = math.log(2)
    yield suspect(
        "with exp2 in place of exp",
        "base 2 where base e is meant: exp(t) = exp2(t · log₂e)",
        lambda: torch.softmax(x * two, -1),
    )
    yield suspect(
        "with a factor log₂e too many in the exponent",
        "a conversion to base 2 without exp2",
        lambda: torch.softmax(x / two, -1),
    )
    shifted = x - top.double()
    for above, below, how in BASES_MIXED:
        yield suspect(
            f"as {above.words('x − m')} / Σ {below.words('x − m')}",
            f"base 2 mixed with base e: {how}; exp(t) = exp2(t log₂e)",
            lambda: above(shifted) / below(shifted).sum(-1, keepdim=True),
        )
    yield suspect(
        "as exp(x − m − log₂ Σ)",
        "base 2 mixed with base e: a base-2 logarithm in a base-e exponential",
        lambda: (shifted - log_sum / two).exp(),
    )
    yield suspect(
        "as exp2((x − m) log₂e − ln Σ)",
        "base 2 mixed with base e: a natural logarithm in a base-2 exponential",
        lambda: (shifted - log_sum * two).exp(),
    )
    total = log_sum.exp()
    for low, rounded in ROUNDINGS:
        exponent = rounded(x - top)
        low_forms: list[tuple[str, Callable[[], Tensor]]] = [
            (f"for x rounded to {low}", partial(_after, rounded, _softmax, x)),
            (f"with y rounded to {low}", partial(_after, _softmax, rounded, x)),
            *_over_both(f"with x − m rounded to {low} before exp", exponent.exp(), total),
            *_over_both(f"with exp(x − m) rounded to {low}", rounded((x - top).exp()), total),
            *_over_both(f"with exp in {low}: x − m and exp(x − m) rounded to it", rounded(exponent.exp()), total),
        ]
        for words, form in low_forms:
            yield suspect(words, LOW_PRECISION, form)
    scaled = torch.tensor(1 / two, dtype=torch.float32)
    yield suspect(
        "as exp2(x log₂e − m log₂e), each product rounded",
        "the order that loses digits: subtract the maximum first, then multiply by log₂e",
        lambda: over_sum((short * scaled - top * scaled).exp2()),
    )
    for block in (block for block in reversed(ROW_BLOCKS) if block < columns):
        if bool(torch.isneginf(short[:, :block]).all(-1).any()):
            yield suspect(
                f"when a block of {block} with nothing but −inf makes its row NaN",
                "−inf − (−inf) while all entries so far are −inf",
                lambda: torch.softmax(x, -1).masked_fill(
                    torch.isneginf(short[:, :block]).all(-1, keepdim=True), math.nan
                ),
            )
        first = short[:, :block].amax(-1, keepdim=True)
        yield suspect(
            f"with the maximum of each row's first {block} entries",
            "a maximum that is not updated by later blocks",
            lambda: over_sum((short - first).exp()),
        )
        yield suspect(
            f"relative to the maximum of each block of {block} alone",
            "a running maximum that does not keep the larger one: exp(m_old − m_new) overflows where a block's is far below",
            lambda: _of_own_maximum(short, block),
        )
        yield suspect(
            f"when the sum of blocks of {block} is not rescaled as the maximum moves",
            "a factor exp(m_old − m_new) that is missing before the sum",
            lambda: shifted.exp() / _sum_by_blocks(shifted, block, BASE_E, None),
        )
        yield suspect(
            f"when the sum of blocks of {block} is rescaled twice as the maximum moves",
            "a factor exp(m_old − m_new) that is there twice before the sum",
            lambda: shifted.exp() / _sum_by_blocks(shifted, block, BASE_E, TWICE),
        )
        yield suspect(
            f"when the first block of {block} is there again in place of each later one",
            "a second pass that does not move on from block to block",
            lambda: _softmax(x)[:, torch.arange(columns, device=x.device) % block],
        )
        yield suspect(
            f"when each block of {block} is divided by the sum of the blocks so far",
            "a row that is written before all of it has been summed: a second pass over it is missing",
            lambda: _so_far(short, block),
        )
        for terms, factor, how in RESCALED_MIXED:
            yield suspect(
                f"when the sum of {terms.words('x − m')} is multiplied by {factor.words('m_old − m_new')} "
                f"after each block of {block}",
                f"base 2 mixed with base e: {how}; exp(t) = exp2(t log₂e)",
                lambda: terms(shifted) / _sum_by_blocks(shifted, block, terms, factor),
            )
        if columns % block:
            kept = columns // block * block
            yield suspect(
                f"with maximum and sum over the first {kept} of {columns} entries alone, full blocks of {block}",
                "a last, partial block that is left out",
                lambda: (
                    (short - short[:, :kept].amax(-1, keepdim=True)).exp()
                    / (short[:, :kept] - short[:, :kept].amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
                ),
            )
        yield suspect(
            f"with the sum over the first {block} entries alone",
            "a sum that covers one block of a longer row",
            lambda: shifted.exp() / shifted[:, :block].exp().sum(-1, keepdim=True),
        )
    for rows in (rows for rows in (2, 4, 8, 16, 32, 64, x.shape[0]) if 1 < rows <= x.shape[0] or rows == 2):
        common = _by_tiles(short, rows, "max")
        yield suspect(
            f"with one maximum for every {rows} rows",
            "a maximum over the whole tile: its axis is missing",
            lambda: over_sum((short - common).exp()),
        )
        yield suspect(
            f"with one sum for every {rows} rows",
            "a sum over the whole tile: its axis is missing",
            lambda: (short - top).exp() / _by_tiles((short - top).exp(), rows, "sum"),
        )
    if whole is not None:
        wide = whole
        yield suspect(
            "as softmax over the other dimension",
            "rows and columns taken for each other: softmax runs along each row",
            lambda: torch.softmax(wide.double(), 0)[part],
        )
        yield suspect(
            "when every row is the first one",
            "a row's offset that is missing",
            lambda: torch.softmax(wide[:1].double(), -1).expand(wide.shape)[part],
        )
    for where, of in (
        ("", lambda rate: _softmax(rate * x)),
        (" in the numerator alone", lambda rate: (rate * shifted - log_sum).exp()),
    ):
        rate = fitted(got, of, 1.0)
        if math.isfinite(rate):
            yield suspect(
                f"with x − m multiplied by {rate:.5g}{where}",
                f"a wrong constant in the exponent, such as {rate / two:.5g} in place of log₂e, which is {1 / two:.6g}",
                lambda: of(rate),
            )


def _zeros(count: int) -> str:
    return f"{count} zeros" if count > 1 else "one zero"


def _of_own_maximum(x: Tensor, block: int) -> Tensor:
    """The online softmax with each block's own maximum in place of the largest so far; in float32, where exp overflows."""
    top = torch.full_like(x[:, :1], -math.inf)
    total = torch.zeros_like(top)
    for start in range(0, x.shape[1], block):
        piece = x[:, start : start + block]
        before, top = top, piece.amax(-1, keepdim=True)
        safe = top.nan_to_num(neginf=0.0)
        total = total * (before - safe).exp() + (piece - safe).exp().sum(-1, keepdim=True)
    return (x - top).exp() / total


def _sum_by_blocks(shifted: Tensor, block: int, terms: Exponential, factor: Exponential | None) -> Tensor:
    """The row sum of an online softmax: of each block relative to the maximum so far, rescaled by `factor` as that moves, or never.

    shifted: x − m of the whole row.
    """
    total = torch.zeros_like(shifted[:, :1])
    so_far = torch.full_like(total, -math.inf)
    for start in range(0, shifted.shape[1], block):
        piece = shifted[:, start : start + block]
        before, so_far = so_far, torch.maximum(so_far, piece.amax(-1, keepdim=True))
        safe = so_far.nan_to_num(neginf=0.0)
        kept = total if factor is None else total * factor(before - safe)
        total = kept + terms(piece - safe).sum(-1, keepdim=True)
    return total


def _so_far(x: Tensor, block: int) -> Tensor:
    """An online softmax that writes each block with the maximum and the sum up to its end."""
    pieces, so_far, total = [], torch.full_like(x[:, :1], -math.inf), torch.zeros_like(x[:, :1])
    for piece in x.split(block, -1):
        before, so_far = so_far, torch.maximum(so_far, piece.amax(-1, keepdim=True))
        safe = so_far.nan_to_num(neginf=0.0)
        total = total * (before - safe).exp() + (piece - safe).exp().sum(-1, keepdim=True)
        pieces.append((piece - safe).exp() / total)
    return torch.cat(pieces, -1)


def _by_tiles(values: Tensor, rows: int, how: str) -> Tensor:
    """(n, 1): for each row what its tile of `rows` rows has together."""
    pieces = values.split(rows)
    reduced = [piece.amax() if how == "max" else piece.sum() for piece in pieces]
    return torch.cat([one.expand(len(piece), 1) for one, piece in zip(reduced, pieces, strict=True)])
