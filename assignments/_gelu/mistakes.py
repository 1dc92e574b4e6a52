"""Usual mistakes in GeLU: for each, the outputs of a kernel with that mistake."""

# ruff: noqa: B023 (each lambda is called before its loop goes on)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from grader.problem import Call
from grader.verdict.suspects import LOW_PRECISION, ROUNDINGS, Suspect, fitted, part_from

ENOUGH_TO_FIT = 64  # a single element can be explained by some constant in any formula
FACTOR, CUBIC = math.sqrt(2 / math.pi), 0.044715
NOT_THE_HANDOUTS = "a constant that is not the handout's"

Form = Callable[[Tensor], Tensor]


def _argument(x: Tensor, factor: float = FACTOR, cubic: float = CUBIC, power: int = 3) -> Tensor:
    """u, the argument of tanh in GeLU."""
    return factor * (x + cubic * x**power)


def _with_tanh(x: Tensor, tanh: Tensor) -> Tensor:
    return 0.5 * x * (1 + tanh)


def _of_argument(u: Form) -> Form:
    return lambda x: _with_tanh(x, u(x).tanh())


def _tanh_form(**changed: float) -> Form:
    return _of_argument(lambda x: _argument(x, **changed))  # type: ignore[arg-type]


gelu = _tanh_form()

TANHS: tuple[tuple[str, Form], ...] = (
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


def _derivative(x: Tensor) -> Tensor:
    tanh = _argument(x).tanh()
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * FACTOR * (1 + 3 * CUBIC * x**2)


# Words, cause, and the function that is computed in place of GeLU.
FORMS: list[tuple[str, str, Form]] = [
    (
        "by the exact form, with erf",
        "the erf form in place of the tanh form",
        lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    ),
    (
        "as ½ x (1 + erf(x))",
        "the erf form in place of the tanh form, and without the division of x by √2",
        lambda x: 0.5 * x * (1 + torch.erf(x)),
    ),
    ("as x σ(1.702 x)", "another approximation than the tanh form", lambda x: x * torch.sigmoid(1.702 * x)),
    ("as x σ(x)", "SiLU in place of GeLU", lambda x: x * torch.sigmoid(x)),
    (
        "as x σ(u) where it is x σ(2u)",
        "a 2 that is missing: tanh(u) = 2σ(2u) − 1",
        lambda x: x * torch.sigmoid(_argument(x)),
    ),
    (
        "as ½ x (1 + 2σ(2u))",
        "a 1 that is missing: tanh(u) = 2σ(2u) − 1",
        lambda x: _with_tanh(x, 2 * torch.sigmoid(2 * _argument(x))),
    ),
    ("with x² in place of x³", "a power that is too low", _tanh_form(power=2)),
    ("without the cubic term", "x³ left out or multiplied by 0", _tanh_form(cubic=0.0)),
    ("without the 1 + before tanh", "a term that is missing", lambda x: 0.5 * x * _argument(x).tanh()),
    ("without the factor 1/2", "a factor that is missing", lambda x: 2 * gelu(x)),
    ("with the factor 1/2 twice", "a factor too many", lambda x: 0.5 * gelu(x)),
    ("without the factor √(2/π)", "a factor that is missing", _tanh_form(factor=1.0)),
    ("with √2/π in place of √(2/π)", "a root over too little", _tanh_form(factor=math.sqrt(2) / math.pi)),
    ("with 2/π in place of √(2/π)", "a root that is missing", _tanh_form(factor=2 / math.pi)),
    ("with √(π/2) in place of √(2/π)", "a quotient upside down", _tanh_form(factor=math.sqrt(math.pi / 2))),
    ("with √(2/π) x + 0.044715 x³", "brackets that are missing", _of_argument(lambda x: FACTOR * x + CUBIC * x**3)),
    (
        "with √(2/π) x (x + 0.044715 x²)",
        "an x that is taken out of the second term alone: x + 0.044715 x³ = x (1 + 0.044715 x²)",
        _of_argument(lambda x: x * _argument(x, power=2)),
    ),
    (
        "with √(2/π) (1 + 0.044715 x²)",
        "an x that is taken out and lost: x + 0.044715 x³ = x (1 + 0.044715 x²)",
        _of_argument(lambda x: FACTOR * (1 + CUBIC * x**2)),
    ),
    (
        "with √(2/π) x (1 + 0.044715 x³)",
        "x⁴ in place of x³; or an x that is taken out of the first term alone: x + 0.044715 x³ = x (1 + 0.044715 x²)",
        _tanh_form(power=4),
    ),
    (
        "without the factor x",
        "a factor that is missing: x · ½ (1 + tanh(u))",
        lambda x: 0.5 * (1 + _argument(x).tanh()),
    ),
    (
        "as ½ x (1 − tanh(u)), which is x σ(−2u)",
        "a sign that is wrong: tanh(u) = (1 − e⁻²ᵘ) / (1 + e⁻²ᵘ), σ(t) = 1 / (1 + e⁻ᵗ)",
        lambda x: _with_tanh(x, -_argument(x).tanh()),
    ),
    (
        "as x / (1 + 2⁻²ᵘ)",
        "base 2 where base e is meant: exp(t) = exp2(t · log₂e)",
        lambda x: x * torch.sigmoid(2 * _argument(x) * math.log(2)),
    ),
    ("with x − 0.044715 x³ in place of x + 0.044715 x³", "a sign that is wrong", _tanh_form(cubic=-CUBIC)),
    ("with x⁵ in place of x³", "a power that is too high", _tanh_form(power=5)),
    ("as GeLU's derivative", "a gradient in place of the function", _derivative),
    ("as ½ x (1 + tanh(x))", "the argument of tanh: u, not x", _of_argument(lambda x: x)),
    (
        "with |x|³ in place of x³",
        "a power that loses the sign",
        _of_argument(lambda x: FACTOR * (x + CUBIC * x.abs() ** 3)),
    ),
    (
        "when GeLU is applied twice",
        "an output that is read and worked on again, or a formula that is there twice",
        lambda x: gelu(gelu(x)),
    ),
    ("as ½ x (1 + tanh|u|)", "a sign that is lost: tanh(−u) = −tanh(u)", _of_argument(lambda x: _argument(x).abs())),
    ("as relu(x)", "ReLU in place of GeLU, or tanh cut off too early", lambda x: x.clamp(min=0)),
    *(
        (f"with {wrong} in place of 0.044715", NOT_THE_HANDOUTS, _tanh_form(cubic=wrong))
        for wrong in (0.044175, 0.047715, 0.04715, 0.0447, 0.044, 0.45, 0.44715, 0.0044715)
    ),
    *(
        (f"with {wrong:.6g} in place of √(2/π)", NOT_THE_HANDOUTS, _tanh_form(factor=wrong))
        for wrong in (
            *(0.8, 0.79, 0.797, 0.7975, 0.798, 0.7978, 0.7979, 0.79788),
            *(math.sqrt(2 / 3.14), math.sqrt(2 / 3.1416)),
        )
    ),
    *(
        (words, LOW_PRECISION, form)
        for low, rounded in ROUNDINGS
        for words, form in (
            (f"for x rounded to {low}", lambda x, rounded=rounded: gelu(rounded(x))),
            (f"with y rounded to {low}", lambda x, rounded=rounded: rounded(gelu(x))),
        )
    ),
    *(
        (
            f"with tanh(u) as {formula}{end}",
            "an approximation of tanh that is not good enough",
            lambda x, tanh=tanh, limit=limit: _with_tanh(x, tanh(_argument(x)).clamp(-limit, limit)),
        )
        for formula, tanh in TANHS
        for end, limit in (("", math.inf), (", kept within ±1", 1.0))
    ),
    *(
        (
            f"with u kept within ±{bound:g}",
            "an argument of tanh that is cut off too early",
            _of_argument(lambda x, bound=bound: _argument(x).clamp(-bound, bound)),
        )
        for bound in (1.0, 2.0, 3.0, 4.0)
    ),
    *(
        (
            f"for x kept within ±{bound:g}",
            "an x that is cut off: the argument of tanh may be, where tanh is ±1",
            lambda x, bound=bound: gelu(x.clamp(-bound, bound)),
        )
        for bound in (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 50.0, 88.0, 100.0)
    ),
]
TUNABLE: tuple[tuple[str, float, Callable[[float], Form]], ...] = (
    (f"√(2/π), which is {FACTOR:.6g}", FACTOR, lambda value: _tanh_form(factor=value)),
    ("0.044715", CUBIC, lambda value: _tanh_form(cubic=value)),
)


def suspects(call: Call, got: Mapping[str, Tensor], first: int) -> Iterator[Suspect]:
    """GeLU with one mistake each, on the elements from the first wrong one on."""
    if call.args["x"].ndim == 0:
        return
    part = part_from(call.args["x"], first)
    x, given = call.args["x"][part].double(), got["y"][part].double()
    for words, cause, form in FORMS:
        yield Suspect(words, cause, lambda: {"y": form(x)}, each=True, part=part)
    for what, right, of in TUNABLE if x.numel() >= ENOUGH_TO_FIT else ():
        value = fitted(given, lambda tried: of(tried)(x), right)
        if math.isfinite(value):
            words = f"with about {value:.5g} in place of {what}"
            yield Suspect(words, NOT_THE_HANDOUTS, lambda: {"y": of(value)(x)}, each=True, part=part)
