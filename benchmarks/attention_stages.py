"""What bounds attention: the reference's kernels as they are, and with stages left out.

    python -m benchmarks.attention_stages [--rounds 15] [--only "backward, causal (16, 16384, 64)"]

Needs a CUDA GPU. A form is the reference's own source with some lines replaced, so it computes other numbers, in the time that
the lines that are left take. All forms and cuDNN are timed in interleaved rounds, by `try_variants.timed`; the medians are
printed, between what times nine in ten of them lay, and how many times as fast as cuDNN a form is.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from benchmarks.peers_record import baselines_of
from benchmarks.records import ROOT
from benchmarks.softmax_stages import print_times
from benchmarks.try_variants import ATTENTION, WIPE_BYTES, timed
from grader.problem import load_beside

REFERENCE = ROOT / "reference" / "flash_attention.py"
Lines = dict[str, str]  # of the reference, and what takes their place
Function = Callable[..., Any]

ONLINE: Lines = {
    "row_max = tl.full((block_m,), LOWEST, dtype=tl.float32)": "row_max = tl.full((block_m,), 0.0, dtype=tl.float32)",
    "new_max = tl.maximum(row_max, tl.max(scores, axis=1) * scale_log2)": "new_max = row_max",
    "rescale = tl.exp2(row_max - new_max)": "rescale = 1.0",
    "row_sum = row_sum * rescale + tl.sum(p, axis=1)": "row_sum = row_sum + tl.sum(p, axis=1)",
    "acc = acc * rescale[:, None]": "acc = acc",
}
MASK: Lines = {'scores = tl.where(visible, scores, float("-inf"))': "scores = scores"}
FORWARD: dict[str, Lines] = {
    "no masks": MASK,
    "no exponentials of scores": {
        "p = tl.exp2(scores * scale_log2 - new_max[:, None])": "p = scores * scale_log2 - new_max[:, None]",
    },
    "no maximum, no rescaling": ONLINE,
    "both products alone": ONLINE
    | MASK
    | {
        "p = tl.exp2(scores * scale_log2 - new_max[:, None])": "p = scores",
        "row_sum = row_sum * rescale + tl.sum(p, axis=1)": "row_sum = row_sum",
    },
    "no product with V, which is not loaded": {"acc = tl.dot(p.to(v.dtype), v, acc)": "acc = acc"},
    "one tile of K and V again and again": {
        "k = load_tile(k_mem, batch, start, n_k, block_n, head_dim)\n            scores = tl.dot(q, k.T)":
        "k = load_tile(k_mem, batch, 0, n_k, block_n, head_dim)\n            scores = tl.dot(q, k.T)",
        "v = load_tile(v_mem, batch, start, n_k, block_n, head_dim)\n            acc = tl.dot(p.to(v.dtype), v, acc)":
        "v = load_tile(v_mem, batch, 0, n_k, block_n, head_dim)\n            acc = tl.dot(p.to(v.dtype), v, acc)",
    },
}  # fmt: skip
DQ_MASK = "p = tl.where(is_visible(queries, start + tl.arange(0, block_n), n_k, is_causal), p, 0.0)"
DK_DV_MASK = "p_t = tl.where(keys[:, None] <= queries[None, :], p_t, 0.0)"
BACKWARD: dict[str, Lines] = {
    "no masks": {DQ_MASK: "p = p", DK_DV_MASK: "p_t = p_t"},
    "no exponentials": {
        "p = tl.exp2(s * scale_log2 - lse_log2[:, None])": "p = s * scale_log2 - lse_log2[:, None]",
        "p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])": "p_t = s_t * scale_log2 - lse_log2[None, :]",
    },
    "all seven products alone": {
        "p = tl.exp2(s * scale_log2 - lse_log2[:, None])": "p = s",
        DQ_MASK: "p = p",
        "ds = p * (dp - delta[:, None])": "ds = p + dp",
        "p_t = tl.exp2(s_t * scale_log2 - lse_log2[None, :])": "p_t = s_t",
        DK_DV_MASK: "p_t = p_t",
        "ds_t = p_t * (dp_t - delta[None, :])": "ds_t = dp_t",
    },
    "five products: dQ of a dS that costs nothing": {
        "s = tl.dot(q, k.T)\n        dp = tl.dot(do, v.T)": "dp = tl.zeros((block_m, block_n), dtype=tl.float32) + start",
        "p = tl.exp2(s * scale_log2 - lse_log2[:, None])": "p = dp",
        DQ_MASK: "p = p",
    },
}


def source_of(changes: Lines) -> str:
    """The reference's source with these lines replaced. Raises ValueError if one is not there exactly once."""
    source = REFERENCE.read_text(encoding="utf-8")
    for line, other in changes.items():
        if source.count(f" {line}\n") != 1:
            raise ValueError(f"not once in {REFERENCE.name}: {line}")
        source = source.replace(f" {line}\n", f" {other}\n")
    return source


def module_of(changes: Lines, folder: Path) -> ModuleType:
    """The changed reference. Its source lies in a file of `folder`: Triton reads kernels from there."""
    path = folder / f"form_{len(list(folder.iterdir()))}.py"
    path.write_text(source_of(changes), encoding="utf-8")
    return load_beside(str(path), path.name)


def forward(module: ModuleType, causal: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return module.flash_attention(q, k, v, causal)  # type: ignore[no-any-return]


def backward(module: ModuleType, causal: bool, kept: tuple[torch.Tensor, ...], do: torch.Tensor) -> Any:
    """All three gradients. kept: q, k, v, o and the logsumexps."""
    return module.FlashAttention.backward(SimpleNamespace(saved_tensors=kept, is_causal=causal), do)


def without_launches(module: ModuleType, kernel: str) -> ModuleType:
    """The module, whose launches of this kernel do nothing."""
    setattr(module, kernel, defaultdict(lambda: no_launch))  # by grid
    return module


def no_launch(*arguments: object, **options: object) -> None:
    """Takes the place of a launch."""


def kept_of(module: ModuleType, causal: bool, *qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What the forward pass keeps for the backward pass."""
    context = SimpleNamespace(save_for_backward=lambda *tensors: kept.extend(tensors))
    kept: list[torch.Tensor] = []
    module.FlashAttention.forward(context, *qkv, causal)
    return tuple(kept)


def forms_of(kind: str, size: tuple[int, int, int], causal: bool, folder: Path, device: str) -> dict[str, Function]:
    """The reference, its forms, and on a GPU cuDNN, as functions without arguments, by name."""
    q, k, v, do = (torch.randn(size, device=device, dtype=torch.bfloat16) for _ in range(4))
    reference = module_of({}, folder)
    cudnn = partial(baselines_of("flash_attention").sdpa_cudnn, is_causal=causal)
    if kind == "forward":
        run = partial(forward, causal=causal, q=q, k=k, v=v)
        found: dict[str, Function] = {"cuDNN": partial(cudnn, q, k, v)} if device == "cuda" else {}
        forms = FORWARD
    else:
        run = partial(backward, causal=causal, kept=kept_of(reference, causal, q, k, v), do=do)
        found, forms = {}, BACKWARD
        if device == "cuda":
            leaves = [one.detach().requires_grad_() for one in (q, k, v)]
            o = cudnn(*leaves)
            found["cuDNN"] = partial(torch.autograd.grad, o, leaves, do, retain_graph=True)
    found["reference"] = partial(run, reference)
    if kind == "backward":
        for name, other in (("dQ", "dk_dv"), ("dK and dV", "dq")):
            left = without_launches(module_of({}, folder), f"flash_backward_{other}_kernel")
            found[f"the kernel of {name} alone"] = partial(run, left)
    for name, changes in forms.items():
        if causal or name != "no masks":
            found[name] = partial(run, module_of(changes, folder))
    return found


def sizes() -> list[tuple[str, tuple[int, int, int], bool]]:
    forward = [("forward", size, causal) for size in (ATTENTION[0], ATTENTION[2]) for causal in (True, False)]
    return [*forward, *(("backward", size, True) for size in ATTENTION)]


def title_of(kind: str, size: tuple[int, int, int], causal: bool) -> str:
    return f"{kind}, {'causal' if causal else 'not causal'} {size}"


def time_forms(title: str, forms: dict[str, Function], rounds: int) -> None:
    """Print the time of each form."""
    wipe = torch.empty(WIPE_BYTES, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in forms}
    for function in forms.values():
        function()  # compiles
    for _ in range(rounds):
        for name, function in forms.items():
            times[name].append(timed(function, (), wipe))
    print(f"== {title}")
    print_times(times, "cuDNN", "cuDNN")


def main() -> None:
    parser = argparse.ArgumentParser(description="What bounds attention, by leaving stages out.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="sizes with this in their title")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds: at least 2")
    chosen = [one for one in sizes() if arguments.only in title_of(*one)]
    if not chosen:
        parser.error(f"--only: no title has {arguments.only!r} in it: {'; '.join(title_of(*one) for one in sizes())}")
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA GPU")
    print(torch.cuda.get_device_name())
    with tempfile.TemporaryDirectory() as folder:
        for one in chosen:
            time_forms(title_of(*one), forms_of(*one, Path(folder), "cuda"), arguments.rounds)


if __name__ == "__main__":
    main()
