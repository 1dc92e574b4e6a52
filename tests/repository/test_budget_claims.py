"""What the course promises of its error budgets, on the real assignments: which mistakes they stop and which rounding they forgive.

Kernels are written in PyTorch here and judged on the CPU by the judge's own comparison, with the numbers of the real problem.toml.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from grader.assignment import load_course
from grader.judge.cases import BoundCase, bind_cases
from grader.judge.comparison import Comparison
from grader.judge.evidence import Evidence
from grader.pool.fault import Fault
from grader.problem import Call

pytestmark = pytest.mark.grading

CASES = {case.id: case for case in bind_cases(load_course(Path(__file__).parents[2]), "cpu")}
ON_CPU = [name for name, case in CASES.items() if "cpu" in case.case.devices]
BY_ONE = [name for name in ON_CPU if not CASES[name].case.is_combination]  # by a factor alone, or written by hand
CPU = torch.device("cpu")
LOG2_E = torch.tensor(math.log2(math.e))  # float32, as in a kernel
SEEDS = [1, 2, 3]
EVERYTHING = pytest.mark.everything


def one_by_one(names: Sequence[str]) -> list[Any]:
    """Those by a factor alone; combinations of factors are tried by `make everything`, and graded for the reference anyway."""
    return [name if name in BY_ONE else pytest.param(name, marks=EVERYTHING) for name in names]


Kernel = Callable[[Call], dict[str, torch.Tensor]]


def comparison(reference: Kernel, seed: int = 1) -> Comparison:
    run: Any = SimpleNamespace(device_name="cpu", seed=seed)
    answers: Any = SimpleNamespace(answer=lambda _, call: reference(call))
    return Comparison(run, answers)


def judge(name: str, kernel: Kernel, seed: int = 1, reference: Kernel | None = None) -> Evidence:
    """Grade a kernel on a case. Without `reference` PyTorch's error alone must decide, or the reference is as good as PyTorch."""
    case = CASES[name]
    call = case.inputs(seed, 0, CPU)
    answer = reference or case.problem.baseline
    evidence = Evidence()
    comparison(answer, seed).compare(case, call, kernel(call), evidence)
    return evidence


def elementwise(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    return lambda call: {"y": function(call.args["x"])}


def alternating(x: torch.Tensor, size: float) -> torch.Tensor:
    """1 ± size: a relative error as large as it may be, without a bias."""
    return 1 + size * (1 - 2 * (torch.arange(x.numel(), dtype=x.dtype) % 2)).view(x.shape)


# Every case of the course ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_by_one(ON_CPU))
def test_every_case_accepts_pytorchs_own_answer_and_no_trivial_one(name: str) -> None:
    """`compare` refuses a case that zeros, ones, NaN or a copied input would pass and that does not say so."""
    assert judge(name, CASES[name].problem.baseline).errors


# PyTorch's own scores of -100000 and below are off by a hundredth, and its o by a tenth.
EXACT = [name for name in BY_ONE if CASES[name].case.degenerate != "no elements" and "far-below" not in name]


@pytest.mark.parametrize("name", EXACT)
def test_a_single_wrong_element_fails_every_case(name: str) -> None:
    """Off by half of what it is measured by: invisible in the mean of a million, and found all the same."""
    case = CASES[name]

    def kernel(call: Call) -> dict[str, torch.Tensor]:
        answers = {name: tensor.clone().contiguous() for name, tensor in case.problem.baseline(call).items()}
        last = list(answers)[-1]
        kind = case.assignment.spec.tolerance.scale[last]
        flat = answers[last].view(-1)
        size = {
            "element": lambda: max(1.0, float(flat[-1].abs())),
            "row": lambda: float(answers[last].view(-1, answers[last].shape[-1])[-1].abs().max()),
            "all": lambda: 2 * float(flat.double().square().mean().sqrt()),
        }[kind]()
        flat[-1] += 0.5 * size
        return answers

    with pytest.raises(Fault) as failed:
        judge(name, kernel)
    assert "1 of " in failed.value.message or "it is wrong" in failed.value.message


# With a single key, as in some pairs, PyTorch is exact, and twenty times its error is none.
HALF = [
    name
    for name in BY_ONE
    if CASES[name].case.dtype != "float32"
    and "extremes" not in name
    and CASES[name].case.levels.get("keys") != "one-key"
]


def times_pytorchs_error(case: BoundCase, factor: float) -> Kernel:
    def kernel(call: Call) -> dict[str, torch.Tensor]:
        right, pytorch = case.problem.oracle(call), case.problem.baseline(call)
        return {name: (right[name] + factor * (pytorch[name] - right[name])).to(case.dtype) for name in right}

    return kernel


@pytest.mark.parametrize("name", HALF)
def test_half_precision_kernels_may_err_four_times_as_much_as_pytorch_but_not_twenty(name: str) -> None:
    """Right kernels of real students, with a logsumexp kept in bfloat16, erred up to 3.7 times as much."""
    judge(name, times_pytorchs_error(CASES[name], 4))
    with pytest.raises(Fault):
        judge(name, times_pytorchs_error(CASES[name], 20))


SMALL = [
    name
    for name in ON_CPU
    if name.endswith(("n-1", "n-31", "1x7", "n-16", "d-16"))
    or ("gelu" in name and 0 < CASES[name].inputs(1, 0, CPU).args["x"].numel() < 40)
]


@pytest.mark.parametrize("name", SMALL)
def test_no_seed_makes_a_small_case_trivial(name: str) -> None:
    """Where zeros or a copy of x would pass for one seed in fifty, one run in fifty would end as infra_error."""
    for seed in range(100):
        judge(name, CASES[name].problem.baseline, seed)


# GeLU -----------------------------------------------------------------------------------------------------------------


def gelu(
    x: torch.Tensor, constant: float = 0.044715, tanh: Callable[[torch.Tensor], torch.Tensor] = torch.tanh
) -> torch.Tensor:
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + constant * x**3)))


def gelu_with_fast_exp(x: torch.Tensor) -> torch.Tensor:
    """x · sigmoid(2u) by an exp with the relative error of `__expf` at the arguments that matter."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    exp = torch.exp(-2 * u) * alternating(x, 6e-6)
    return x / (1 + exp)


GELU_CASES = ["cuda_gelu-gelu-n-1024", "cuda_gelu-gelu-n-1025", "cuda_gelu-gelu-extremes", "triton_gelu-gelu-4-d"]


WRONG_GELUS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh.approx": lambda x: gelu(x, tanh=lambda u: torch.tanh(u) * alternating(u, 1e-4)),
    "the erf form": lambda x: torch.nn.functional.gelu(x, approximate="none"),
    "0.044 for 0.044715": lambda x: gelu(x, constant=0.044),
    "the quick form x · sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "computed in float16": lambda x: gelu(x.half()).float(),
    "computed in bfloat16": lambda x: gelu(x.bfloat16()).float(),
}


def test_an_overflow_of_the_exponential_fails_among_the_extremes() -> None:
    def naive_tanh(u: torch.Tensor) -> torch.Tensor:
        return (torch.exp(2 * u) - 1) / (torch.exp(2 * u) + 1)  # inf/inf for large u

    with pytest.raises(Fault) as failed:
        judge("cuda_gelu-gelu-extremes", elementwise(lambda x: gelu(x, tanh=naive_tanh)))
    assert "NaN where the right answer is finite" in failed.value.details[0]


# Softmax --------------------------------------------------------------------------------------------------------------


def softmax(x: torch.Tensor) -> torch.Tensor:
    """As the reference computes it: exp2((x − max) · log₂e) in float32."""
    z = x.float()
    e = torch.exp2((z - z.amax(-1, keepdim=True)) * LOG2_E)
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def softmax_scaled_first(x: torch.Tensor) -> torch.Tensor:
    """exp2(x · log₂e − max · log₂e): two large rounded numbers are subtracted."""
    z = x.float()
    e = torch.exp2(z * LOG2_E - z.amax(-1, keepdim=True) * LOG2_E)
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def softmax_summed_in_half(x: torch.Tensor) -> torch.Tensor:
    """Exponentials in float32, but a running sum in the inputs' dtype."""
    z = x.float()
    e = torch.exp(z - z.amax(-1, keepdim=True))
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in e.unbind(-1):
        total = (total + column).to(x.dtype)
    return (e / total.float()[:, None]).to(x.dtype)


SOFTMAX_CASES = [name for name in ON_CPU if name.startswith("softmax")]


def softmax_with_padding(x: torch.Tensor) -> torch.Tensor:
    """Loading 0 beyond the row's end adds exp(0 − max) to its sum."""
    return torch.softmax(torch.nn.functional.pad(x, (0, 1024 - x.shape[1])), -1)[:, : x.shape[1]]


def test_softmax_that_counts_padding_fails_and_says_so() -> None:
    with pytest.raises(Fault) as failed:
        judge("softmax-softmax-3x1000", elementwise(softmax_with_padding))
    assert "what comes out with 24 zeros after each row of 1000" in failed.value.details[0]


# Flash attention ------------------------------------------------------------------------------------------------------


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    p_dtype: torch.dtype | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    scores = q @ k.transpose(1, 2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    p = torch.softmax(scores, -1)
    return (p if p_dtype is None else p.to(p_dtype).to(p.dtype)) @ v


def forward(**changes: object) -> Kernel:
    return lambda call: {"o": attention(*call.args.values(), bool(call.options["is_causal"]), **changes)}  # type: ignore[arg-type]


def backward(**changes: object) -> Kernel:
    def kernel(call: Call) -> dict[str, torch.Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in call.args.values()]
        o = attention(*leaves, bool(call.options["is_causal"]), **changes)  # type: ignore[arg-type]
        gradients = torch.autograd.grad(o, leaves, call.upstream)
        return {f"d{name}": gradient for name, gradient in zip(call.args, gradients, strict=True)} | {"o": o.detach()}

    return kernel


@pytest.mark.parametrize(
    ("dq", "says"),
    [
        (1.0, ("^o\\[0, 0, 0\\] is the first wrong element", 1, "a backward that writes into the o it has saved")),
        (2.0, ("^o\\[0, 0, 0\\] is the first wrong element", 2, "dq of the same call is wrong too")),
    ],
)
def test_what_the_forward_returns_counts_where_gradients_are_asked_for(dq: float, says: tuple[str, int, str]) -> None:
    """A forward that leaves o to itself there has less to do, and no model is trained with it."""

    def kernel(call: Call) -> dict[str, torch.Tensor]:
        got = backward()(call)
        return got | {"dq": dq * got["dq"], "o": torch.zeros_like(got["o"])}

    first, number, other = says
    with pytest.raises(Fault) as failed:
        judge("flash_attention-backward-n-100", kernel)
    lines = [failed.value.message, *failed.value.details]
    assert re.search(first, lines[0]), lines
    assert other in lines[number], lines
    assert failed.value.map is not None
    assert failed.value.map.output == "o"


def tf32(x: torch.Tensor, truncate: bool) -> torch.Tensor:
    """x with TF32's 11 bits, rounded to the nearest as PyTorch does or cut off as Triton does."""
    bits = x.view(torch.int32) + (0 if truncate else 1 << 12)
    return (bits & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("scaled", ["q", "k"])
@pytest.mark.parametrize("factor", ["1", "scale", "log2(e)", "scale * log2(e)"])
@pytest.mark.parametrize("name", ["causal-late-keys", "large-logits"])
def test_tf32_loses_no_more_of_far_scores_whichever_factor_is_scaled(
    name: str, factor: str, scaled: str, truncate: bool
) -> None:
    """Forward and backward may scale differently: Triton's tutorial scales k in the backward alone. P is off by exp of the difference."""
    call = CASES[f"flash_attention-backward-{name}"].inputs(1, 0, CPU)
    q, k = (call.args[name][..., :1] for name in ("q", "k"))  # the offset
    scale = call.args["q"].shape[-1] ** -0.5
    number = eval(factor, {"scale": scale, "log2": math.log2, "e": math.e})
    first, second = (tf32(x * (number if what == scaled else 1), truncate) for what, x in (("q", q), ("k", k)))
    found = first.double() @ second.double().mT * (scale / number)
    right = q.double() @ k.double().mT * scale
    assert right.abs().max() > 500
    assert (found - right).abs().max() < 1e-3


def backward_without_the_scale_of_dk(call: Call) -> dict[str, torch.Tensor]:
    """S = q kᵀ without 1/√d in the chain rule of dk alone."""
    gradients = backward()(call)
    return gradients | {"dk": gradients["dk"] * math.sqrt(call.args["q"].shape[-1])}


def test_rounding_in_gradients_that_are_exactly_zero_is_forgiven() -> None:
    """With a single key dq and dk are 0 and PyTorch is exact: a right kernel's rounding must pass, a wrong gradient must not."""

    def rounded(call: Call, size: float) -> dict[str, torch.Tensor]:
        gradients = backward()(call)
        assert float(gradients["dq"].abs().max()) < 1e-6
        return gradients | {"dq": torch.full_like(gradients["dq"], size), "dk": torch.full_like(gradients["dk"], -size)}

    judge("flash_attention-backward-n-1", lambda call: rounded(call, 5e-7))
    with pytest.raises(Fault, match=r"^dq"):
        judge("flash_attention-backward-n-1", lambda call: rounded(call, 1e-3))


def backward_with_a_sum_moved(call: Call) -> dict[str, torch.Tensor]:
    """As FlashAttention-2 computes it; 1e-6 is added to the sum that o is divided by, and not to the logsumexp."""
    q, k, v = (call.args[name] for name in ("q", "k", "v"))
    assert call.upstream is not None
    scale = q.shape[-1] ** -0.5
    scores = q @ k.transpose(1, 2) * scale
    if call.options["is_causal"]:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    maximum = scores.amax(-1, keepdim=True)
    e = torch.exp(scores - maximum)
    total = e.sum(-1, keepdim=True)
    o = e @ v / (total + 1e-6)
    p = torch.exp(scores - maximum - torch.log(total))
    ds = p * (call.upstream @ v.transpose(1, 2) - (o * call.upstream).sum(-1, keepdim=True)) * scale
    return {"dq": ds @ k, "dk": ds.transpose(1, 2) @ q, "dv": p.transpose(1, 2) @ call.upstream, "o": o}


# What passes and what fails -------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """Of a kernel on cases whose names begin with `prefix`. says: the beginning of a failure's message."""

    kernel: Kernel
    prefix: str
    names: Sequence[str] = ("",)
    seeds: Sequence[int] = SEEDS
    reference: Kernel | None = None
    says: str = ""


FORWARD, BACKWARD = "flash_attention-forward-", "flash_attention-backward-"
FLOAT32 = ["n-100", "n-128", "causal-100", "causal-255", "peaked", "d-16", "more-keys", "large-logits"]
RIGHT = {
    "GeLU in float32": Claim(elementwise(gelu), "", GELU_CASES),
    "GeLU by a fast exp": Claim(elementwise(gelu_with_fast_exp), "", GELU_CASES),
    "GeLU with errors of a fast exp": Claim(elementwise(lambda x: gelu(x) * alternating(x, 6e-6)), "", GELU_CASES),
    "softmax like the reference's": Claim(elementwise(softmax), "", SOFTMAX_CASES, [1]),
    "naive attention": Claim(forward(), FORWARD, FLOAT32, [1]),
    "naive attention in 16 bits": Claim(forward(), FORWARD, ["float16", "bfloat16", "bfloat16-causal-128"]),
    "gradients of a sum that 1e-6 is added to": Claim(
        backward_with_a_sum_moved, BACKWARD, ["n-1", "d-32", "causal-100", "again"], range(1, 9)
    ),
    "naive gradients in 16 bits": Claim(backward(), BACKWARD, ["float16", "bfloat16", "bfloat16-causal-128"]),
    # `tl.dot` wants P in V's dtype: that rounding is right.
    "P in float16": Claim(forward(p_dtype=torch.float16), FORWARD, ["float16"], [1]),
    "P in bfloat16": Claim(forward(p_dtype=torch.bfloat16), FORWARD, ["bfloat16"], [1]),
}
LIKE_SOFTMAX = elementwise(softmax)
WRONG = {
    **{
        f"GeLU: {mistake}": Claim(elementwise(form), "", GELU_CASES, says=r".* is the first wrong element")
        for mistake, form in WRONG_GELUS.items()
    },
    "softmax that scales before it subtracts": Claim(
        elementwise(softmax_scaled_first), "softmax-softmax-large-logits", reference=LIKE_SOFTMAX
    ),
    "softmax summed in 16 bits": Claim(
        elementwise(softmax_summed_in_half),
        "softmax-softmax-",
        ["bfloat16", "float16"],
        reference=LIKE_SOFTMAX,
    ),
    "softmax without the maximum": Claim(
        elementwise(lambda x: x.exp() / x.exp().sum(-1, keepdim=True)), "softmax-softmax-large-logits", seeds=[1]
    ),
    "softmax that counts padding": Claim(elementwise(softmax_with_padding), "softmax-softmax-all-negative", seeds=[1]),
    **{
        f"float32 attention with P in {p_dtype}": Claim(
            forward(p_dtype=p_dtype), FORWARD, ["n-100", "n-128", "causal-100", "peaked"]
        )
        for p_dtype in (torch.bfloat16, torch.float16)
    },
    "attention without its scale": Claim(
        forward(scale=1.0), FORWARD, ["float16", "bfloat16", "n-16", "d-16", "large-logits"], [1]
    ),
    "gradients without the scale of dk": Claim(
        backward_without_the_scale_of_dk,
        BACKWARD,
        ["float16", "bfloat16", "n-48", "d-16", "expanded"],
        [1],
        says="dk",
    ),
}


def each_of(claims: dict[str, Claim]) -> list[Any]:
    """All of them; those of combinations, and of a claim's further seeds, by `make everything`."""
    found = []
    for what, one in claims.items():
        for case in (one.prefix + name for name in one.names):
            for seed in one.seeds:
                first = seed == one.seeds[0] and case in BY_ONE
                found.append(pytest.param(what, case, seed, marks=() if first else EVERYTHING))
    return found


@pytest.mark.parametrize(("what", "name", "seed"), each_of(RIGHT))
def test_a_right_kernel_passes(what: str, name: str, seed: int) -> None:
    judge(name, RIGHT[what].kernel, seed)


@pytest.mark.parametrize(("what", "name", "seed"), each_of(WRONG))
def test_a_wrong_kernel_fails(what: str, name: str, seed: int) -> None:
    with pytest.raises(Fault, match=f"^{WRONG[what].says}"):
        judge(name, WRONG[what].kernel, seed, WRONG[what].reference)


# The reference kernel -------------------------------------------------------------------------------------------------


def noisy(size: float) -> Kernel:
    return elementwise(lambda x: gelu(x) * alternating(x, size))


def test_a_reference_less_exact_than_pytorch_widens_the_budget() -> None:
    """A submission may be k times as inexact as the staff's own kernel."""
    name = "cuda_gelu-gelu-n-1024"
    with pytest.raises(Fault):
        judge(name, noisy(5e-5))
    evidence = judge(name, noisy(5e-5), reference=noisy(2e-5))
    assert evidence.errors[0].reference_worst == pytest.approx(2e-5, rel=0.1)
    assert evidence.errors[0].worst_budget > 6 * 1.8e-5


def test_a_wrong_reference_is_the_courses_fault_and_passes_nobody() -> None:
    with pytest.raises(Fault, match="reference kernel is wrong"):
        judge("cuda_gelu-gelu-n-1024", noisy(5e-5), reference=noisy(1e-2))
    with pytest.raises(Fault):
        judge("cuda_gelu-gelu-n-1024", noisy(1e-2), reference=noisy(1e-2))


def test_the_reference_is_not_asked_where_it_could_change_nothing() -> None:
    """Within the budget of PyTorch's error, or beyond that of the worst reference that is not refused."""

    def never(_: Call) -> dict[str, torch.Tensor]:
        raise AssertionError("asked")

    assert judge("cuda_gelu-gelu-n-1024", elementwise(gelu), reference=never).errors[0].reference_worst is None
    with pytest.raises(Fault):
        judge("cuda_gelu-gelu-n-1024", noisy(1e-2), reference=never)


@pytest.mark.parametrize(
    ("name", "degenerate", "fault"),
    [
        ("softmax-softmax-1x1", None, "ones would pass"),
        ("softmax-softmax-1x7", "so they say", "no trivial answer passes"),
    ],
    ids=["silent", "proud"],
)
def test_a_case_that_hides_that_it_is_degenerate_or_boasts_of_it_is_refused(
    name: str, degenerate: str | None, fault: str
) -> None:
    case = CASES[name]
    assert (case.case.degenerate is None) != (degenerate is None)
    spec = case.case.model_copy(update={"degenerate": degenerate})
    other = BoundCase(case.assignment, case.problem, case.part, spec, case.params)
    call = other.inputs(1, 0, CPU)
    with pytest.raises(Fault, match=fault):
        comparison(case.problem.baseline).compare(other, call, case.problem.baseline(call), Evidence())
