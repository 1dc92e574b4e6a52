"""Compares wrong outputs with the outputs of usual mistakes: those of any kernel, and those of an assignment's `mistakes.py`.

A mistake is named to the student only if its outputs agree with the submission's almost to the last digit: the
remaining error must be a small part of the error.
"""

# ruff: noqa: B023 (each lambda is called before its loop goes on)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from grader.problem import Call, Mistakes
from grader.protocol import EARLY_VALUE, LaunchedKernel
from grader.verdict.causes import COMES_OUT, CONSISTENT, ONE_NUMBER, OR
from grader.verdict.fill import holds_fill

LARGEST_PART = 2**19  # Suspects are computed for at most this many elements of an input.
UNEXPLAINED = 0.05  # A suspect may leave this share of the error, as a root mean square,
UNEXPLAINED_WORST = 0.2  # and this share in the worst element.
# As a root mean square, if fewer than FEW elements are wrong: chance explains a single number too easily.
UNEXPLAINED_FEW = 5e-3
FEW = 16
NOTHING = 1e-6  # A suspect explains an output of zeros where its own outputs are below this share of the error.
NEARLY_NOTHING = 0.01  # The same for small outputs: TF32 leaves as much of a difference of equal numbers.
EXACT = 1e-3  # The search ends with a suspect that leaves no more than this share of the error.
# The share counted for a suspect that only explains that outputs are small; a more precise suspect may replace it.
SMALL = 4 * EXACT
WEAK = 0.04  # The share counted for a suspect that only explains where NaN and infinity stand.
MOST_WEAK = 3  # More weak suspects of one output, or more that one number fits, explain nothing.
# For an elementwise function a suspect must explain each error above EACH and above EACH_SHARE of the element, but for
# a share of EACH_UNEXPLAINED.
EACH = 1e-4
EACH_SHARE = 0.02
EACH_UNEXPLAINED = 0.5
FITTING_STEPS = 6
SMALL_STEP = 1e-5  # A slope is taken over this relative step.
FARTHEST = 4  # A constant that is off by a larger factor means another formula.

LOW_PRECISION = "a conversion to too low a precision: float32 is needed"
# Types of 16 bits that a kernel may round intermediate results to, and the rounding of float64 tensors.
ROUNDINGS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("float16", lambda x: x.half().double()),
    ("bfloat16", lambda x: x.bfloat16().double()),
)

Outputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Suspect:
    """A mistake, and the outputs that it leads to.

    words: completes "y is what comes out ...".
    cause: completes "consistent with ...".
    outputs: makes the outputs that the mistake affects, by name: the entries `part` of dimension 0, float64.
    together: the mistake explains all of its outputs or none.
    each: the function is elementwise.
    """

    words: str
    cause: str
    outputs: Callable[[], Outputs]
    together: bool = False
    each: bool = False
    part: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class Scene:
    """The call that wrong outputs answer, and its surroundings.

    call: the inputs.
    oracle: makes the right outputs of a call, float64.
    earlier: earlier calls of the same case.
    before: the number of right entries of dimension 0 before the compared ones; None if all entries were compared at once.
    mistakes: the assignment's own, if it has a `mistakes.py`.
    launched: the first launches of the call, where they are known.
    is_queued: the inputs held EARLY_VALUE until work on the given stream wrote them.
    """

    call: Call
    oracle: Callable[[Call], Mapping[str, Tensor]]
    earlier: Sequence[Call] = ()
    before: int | None = None
    mistakes: Mistakes | None = None
    is_queued: bool = False
    launched: Sequence[LaunchedKernel] = ()


class Explanation(NamedTuple):
    """A sentence about a mistake that accounts for the wrong `outputs`."""

    outputs: tuple[str, ...]
    sentence: str


def explanations(
    scene: Scene, got: Mapping[str, Tensor], expected: Mapping[str, Tensor], wrong: Sequence[str], first: int
) -> list[Explanation]:
    """The best suspect of each wrong output that has one; outputs with the same suspect share an explanation.

    Args:
        got, expected: all outputs by name.
        wrong: names of the wrong outputs.
        first: the entry of dimension 0 with the first wrong element.
    """
    best: dict[str, tuple[float, list[Suspect]]] = {}
    part, compared = slice(None), dict[str, _Wrong]()  # the part of the outputs that is compared, and each output's
    for suspect in _all_suspects(scene, got, expected, first):
        open_ones = [name for name in wrong if name not in best or best[name][0] > EXACT or got[name].numel() == 1]
        if not open_ones:
            break
        try:
            outputs = suspect.outputs()
        except RuntimeError:  # shapes that do not fit: this call cannot have the mistake
            continue
        if suspect.part != part:
            part, compared = suspect.part, {}
        shares = dict[str, float]()
        for name in outputs if suspect.together else open_ones:
            if name in outputs and name in wrong:
                if name not in compared:
                    compared[name] = _Wrong(got[name][part], expected[name][part])
                shares[name] = compared[name].unexplained(outputs[name], suspect.each)
        if suspect.together:
            if len(shares) != len(outputs) or max(shares.values()) > UNEXPLAINED:
                continue
            # The outputs confirm each other: one that is 0 for any of many reasons is explained by its companions.
            shares = dict.fromkeys(shares, min(shares.values()))
        for name, left in shares.items():
            known, others = best.get(name, (math.inf, []))
            fit_alike = suspect.each and got[name].numel() == 1 and max(left, known) <= UNEXPLAINED_FEW
            if fit_alike or (left == known == WEAK and suspect.cause not in (other.cause for other in others)):
                others.append(suspect)
            elif left <= UNEXPLAINED and left < 0.5 * known:
                best[name] = left, [suspect]
    # The compared part may be one batch entry, or some rows: whether nothing is finite is asked of all of the output.
    grouped: dict[tuple[str, str], list[str]] = {}
    for name in (name for name in wrong if name in best and len(best[name][1]) <= MOST_WEAK):
        left, found = best[name]
        words = OR.join(one.words for one in found)
        cause = OR.join(dict.fromkeys(one.cause for one in found))
        if got[name].numel() == 1 and any(one.each for one in found):
            cause += ONE_NUMBER
        where = ""
        if left != WEAK:
            where = ", where anything was written," if bool(holds_fill(got[name]).any()) else ""
            rest = f"{COMES_OUT}{words}: {CONSISTENT}{cause}"
        elif bool(torch.isfinite(got[name]).any()):
            rest = (
                f" not finite where that is so {words}: {CONSISTENT}{cause}; or with another mistake that leads there"
            )
        else:
            rest = f" nowhere finite, as it would be {words}: {CONSISTENT}{cause}; or with any other mistake that leaves no number"
        grouped.setdefault((where, rest), []).append(name)
    return [
        Explanation(tuple(names), f"{_listed(names)}{where} {'are' if len(names) > 1 else 'is'}{rest}")
        for (where, rest), names in grouped.items()
    ]


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


class _Wrong:
    """A wrong output, or a part of it, beside its right values: all that is the same for every suspect. Elements that
    were never written say nothing of a suspect.
    """

    def __init__(self, got: Tensor, expected: Tensor) -> None:
        self._unwritten = holds_fill(got)
        self._got, self._expected, zero = self._written(got.double()), expected, got.new_zeros((), dtype=torch.float64)
        expected = self._written(expected)
        self._finite = torch.isfinite(self._got)
        self._is_finite = bool(self._finite.all())
        right = torch.isfinite(expected)
        self._before = torch.where(self._finite & right, self._got - expected, zero)
        self._error, self._scale = _rms(self._before), _rms(torch.where(right, expected, zero))
        self._worst = float(self._before.abs().max())
        # Only NaN and infinities are wrong.
        self._is_weak = not self._is_finite and self._error <= 1e-3 * self._scale
        self._is_late = not bool((self._finite | ~right).all())  # NaN or infinite where the right answer is not
        # A single number is soon met by chance, and an entry with one row may leave one open: with a single key, o is v times a number.
        few = int((self._before != 0).sum()) < FEW
        self._few = few or (got.ndim > 1 and got.numel() == got.shape[-1])

    def unexplained(self, candidate: Tensor, each: bool) -> float:
        """The share of the error that is left if `candidate` is taken for the right answer; infinite if the candidate does not fit.

        each: the function is elementwise, so the candidate must fit every element: the largest elements would hide the others in a mean.
        """
        if self._got.shape != candidate.shape or not (self._is_weak or self._error):
            return math.inf
        candidate = self._written(candidate)
        after = self._got - candidate
        if not self._is_finite:
            if not torch.equal(self._finite, torch.isfinite(candidate)):
                return math.inf
            after = torch.where(self._finite, after, 0.0)
        least, most = after.aminmax()
        # First, because this ends nearly every suspect; as does a candidate that is not finite where the output is.
        if not self._is_weak and not max(float(most), -float(least)) <= UNEXPLAINED_WORST * self._worst:
            return math.inf
        if each and not self._fits_each(after.abs()):
            return math.inf
        rest = _rms(after)
        if self._is_weak:
            return WEAK if self._is_late and rest <= 1e-2 * self._scale else math.inf
        own_scale = _rms(torch.where(self._finite, candidate, 0.0))
        if rest > (UNEXPLAINED_FEW if self._few else UNEXPLAINED) * own_scale:
            is_nothing = own_scale <= NOTHING * self._error
            nearly = NEARLY_NOTHING if bool(self._got.any()) else NOTHING
            return SMALL if is_nothing and rest <= nearly * self._error else math.inf
        if self._few and rest > UNEXPLAINED_FEW * self._error:
            return math.inf
        return rest / self._error

    def _written(self, output: Tensor) -> Tensor:
        return output.masked_fill(self._unwritten, 0.0)

    def _fits_each(self, after: Tensor) -> bool:
        """Whether a suspect that leaves errors of this size explains every element; right elements count too."""
        before, least = self._before.abs(), self._expected.abs().nan_to_num(posinf=0.0, neginf=0.0).mul(EACH_SHARE)
        counts = torch.maximum(before, after) > least.clamp(min=EACH)
        return not bool((after > EACH_UNEXPLAINED * before)[counts].any())


def _rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt())


def fitted(got: Tensor, of: Callable[[float], Tensor], right: float) -> float:
    """Fit c in of(c) ≈ got by least squares, starting at `right`; NaN where it drifts from there by a factor of FARTHEST."""
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


def part_from(tensor: Tensor, first: int) -> slice:
    """All entries of dimension 0 if they have at most LARGEST_PART elements, else so many elements from entry `first` on."""
    if tensor.numel() <= LARGEST_PART:
        return slice(None)
    return slice(first, first + max(1, LARGEST_PART * len(tensor) // tensor.numel()))


def _all_suspects(scene: Scene, got: Outputs, expected: Outputs, first: int) -> Iterator[Suspect]:
    for number, other in enumerate(scene.earlier, 1):
        yield Suspect(
            f"for the data of an earlier call, call {number} of this case",
            "a result, or memory for one, that is kept from call to call",
            lambda: scene.oracle(other),
        )
    for name, other_name in combinations(expected, 2):
        if expected[name].shape == expected[other_name].shape:
            swapped = {name: expected[other_name], other_name: expected[name]}
            yield Suspect(
                "when the two are swapped",
                "names or results that are mixed up, where they are computed or where they are returned",
                lambda: swapped,
                together=True,
            )
    if scene.is_queued:
        yield _before_its_stream(scene, first)
    if scene.mistakes is not None:
        written = {name: one.masked_fill(holds_fill(one), math.nan) for name, one in got.items()}
        yield from scene.mistakes.suspects(scene.call, written, first)
    if sum(tensor.numel() for tensor in scene.call.args.values()) <= LARGEST_PART:
        yield from _other_strides(scene)


def _before_its_stream(scene: Scene, first: int) -> Suspect:
    """The answer to inputs of EARLY_VALUE. Of large inputs with equal numbers of entries, some entries are enough."""
    args = scene.call.args
    largest = max(args.values(), key=Tensor.numel)
    alike = len({tensor.shape[:1] for tensor in args.values()}) == 1
    part = part_from(largest, first) if alike and largest.ndim else slice(None)
    early = {name: torch.full_like(tensor[part], EARLY_VALUE) for name, tensor in args.items()}
    return Suspect(
        f"for what stood in {' and '.join(args)} before the work that is queued on the given stream wrote it",
        "a launch on another stream than the given one",
        lambda: scene.oracle(Call(early, scene.call.options)),
        each=True,
        part=part,
    )


def _other_strides(scene: Scene) -> Iterator[Suspect]:
    """Suspects that read inputs with other strides than their own."""
    call = scene.call
    tensors = call.args | ({} if call.upstream is None else {"the upstream gradient": call.upstream})
    usual = {name: torch.empty(tensor.shape, device="meta").stride() for name, tensor in tensors.items()}
    own = {name: tensor.stride() for name, tensor in tensors.items()}
    odd = [name for name in tensors if own[name] != usual[name]]
    choices: list[tuple[str, str, dict[str, tuple[int, ...]]]] = []
    if len(odd) > 1:
        choices.append(("all inputs are", "as if they were contiguous", {name: usual[name] for name in odd}))
    choices += [(f"{name} is", "as if it were contiguous", {name: usual[name]}) for name in odd]
    for name in odd:
        if tensors[name].ndim == 2:
            rows, column = own[name][0], usual[name][1]
            choices.append((f"{name} is", "with a column stride of 1", {name: (rows, column)}))
    arguments = list(call.args)
    for model in arguments[:1]:
        others = [name for name in arguments if own[name] != own[model] and tensors[name].ndim == tensors[model].ndim]
        if others:
            words = f"{' and '.join(others)} {'are' if len(others) > 1 else 'is'}"
            choices.append((words, f"with the strides of {model}", dict.fromkeys(others, own[model])))
    for words, how, strides in choices:
        if changed := _restrided(tensors, strides):
            yield Suspect(
                f"when {words} read {how}",
                "strides that are ignored or mixed up: each input has its own",
                lambda: scene.oracle(
                    Call(
                        {name: changed[name] for name in call.args}, call.options, changed.get("the upstream gradient")
                    )
                ),
            )


def _restrided(tensors: Mapping[str, Tensor], strides: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors with other strides; empty if the strides lead out of a tensor's memory."""
    changed = dict(tensors)
    for name, stride in strides.items():
        tensor = tensors[name]
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in zip(tensor.shape, stride, strict=True))
        if last >= tensor.untyped_storage().nbytes() // tensor.element_size():
            return {}
        changed[name] = tensor.as_strided(tensor.shape, stride)
    return changed
