"""Times variants of the reference kernels against each other, in interleaved rounds, for somebody who looks for a faster one.

    python benchmarks/try_variants.py gelu|softmax|forward|dq|dk_dv|fused [--best 12] [--rounds 20]
    python benchmarks/try_variants.py forward|dq|dk_dv|fused [--dtype float32] [--head-dim 32] [--not-causal]

This is no grading: kernels run in this process, and are trusted. Each variant is compared with PyTorch once, and left out where it is
wrong or cannot be compiled, which is told. Times are medians of CUDA events behind a wiped cache.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.variants import attention, elementwise
from reference import flash_attention as reference

WIPE_BYTES = 256 << 20
# One millisecond is as long as the slowest launch takes, of autograd's functions; on a slow or busy machine it takes longer.
LAUNCH_CYCLES = (2_000_000, 8_000_000, 32_000_000)
PROCESSES = 14  # that compile at once
ATTENTION = [(48, 4096, 64), (16, 16384, 64), (64, 4096, 128)]  # batch, tokens, head_dim
FEW = (2, 16)  # batches of 1024 tokens: far too little for a large GPU, and nearly enough
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
SOFTMAX = [
    (16384, 16384, torch.float32),
    (65536, 4096, torch.bfloat16),
    (32768, 781, torch.float32),
    (4096, 131072, torch.bfloat16),
    (4096, 1024, torch.float32),
    (1 << 20, 64, torch.bfloat16),
    (4096, 131071, torch.bfloat16),
    (4096, 65536, torch.float32),
]
Problem = tuple[
    str, tuple[Any, ...], Callable[..., Any], list[tuple[str, Callable[..., Any]]], dict[str, Callable[..., Any]], float
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Times variants of the reference kernels.")
    parser.add_argument("what", choices=["gelu", "softmax", "forward", "dq", "dk_dv", "fused"])
    parser.add_argument("--best", type=int, default=12)
    parser.add_argument("--only", default="", help="variants with this word in their name")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--case", type=int, help="only this one, from 0")
    parser.add_argument("--dtype", choices=list(DTYPES), help="of attention; bfloat16 unless given")
    parser.add_argument(
        "--head-dim", type=int, choices=[16, 32, 64, 128], help="of attention: one problem of 48 × 4096"
    )
    parser.add_argument("--not-causal", action="store_true", help="attention without the mask")
    parser.add_argument("--few", action="store_true", help="small tiles, where there is little to do (with --head-dim)")
    parser.add_argument("--compile", type=int, help=argparse.SUPPRESS)  # one of PROCESSES that fill Triton's cache
    arguments = parser.parse_args()
    of_attention = arguments.dtype or arguments.head_dim or arguments.not_causal or arguments.few
    if arguments.what in ("gelu", "softmax") and of_attention:
        parser.error("--dtype, --head-dim, --not-causal and --few are for attention")
    if arguments.few and arguments.what == "fused":
        parser.error("--few is not for fused")
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA GPU")
    sizes = [(48, 4096, arguments.head_dim)] if arguments.head_dim else ATTENTION
    if arguments.few:
        sizes = [(batch, 1024, arguments.head_dim or 64) for batch in FEW]
    dtype = DTYPES[arguments.dtype or "bfloat16"]
    torch.backends.cuda.matmul.allow_tf32 = True  # as the products of the kernels in float32 are
    problems = {"gelu": gelu, "softmax": softmax}.get(
        arguments.what,
        lambda: attention_problems(arguments.what, sizes, dtype, not arguments.not_causal, arguments.few),
    )
    for number, problem in enumerate(problems()):
        if arguments.case not in (None, number):
            continue
        problem[3][:] = [one for one in problem[3] if arguments.only in one[0]]
        if arguments.compile is not None:
            for _, function in problem[3][arguments.compile :: PROCESSES]:
                with suppress(Exception):
                    function(*problem[1])
            continue
        command = [sys.executable, __file__, *sys.argv[1:], "--case", str(number), "--compile"]
        others = [subprocess.Popen([*command, str(index)], stderr=subprocess.DEVNULL) for index in range(PROCESSES)]
        for process in others:
            process.wait()
        compare(*problem, best=arguments.best, rounds=arguments.rounds)


def gelu() -> Iterator[Problem]:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = torch.randn(16384, 16384, device="cuda", dtype=dtype)
        others = {"copy": torch.clone, "eager": _eager_gelu}
        yield f"gelu {dtype} 2^28", (x,), _eager_gelu, list(elementwise.gelu_variants()), others, 2.0 * x.nbytes


def _eager_gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def softmax() -> Iterator[Problem]:
    for rows, columns, dtype in SOFTMAX:
        x = torch.randn(rows, columns, device="cuda", dtype=dtype)
        others = {"copy": torch.clone, "eager": _eager_softmax}
        name = f"softmax {dtype} {rows} x {columns}"
        yield name, (x,), _eager_softmax, list(elementwise.softmax_variants(columns)), others, 2.0 * x.nbytes


def _eager_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def attention_problems(
    what: str, sizes: list[tuple[int, int, int]], dtype: torch.dtype, causal: bool, few: bool = False
) -> Iterator[Problem]:
    bytes_each = dtype.itemsize
    for batch, n, d in sizes:
        q, k, v, do = (torch.randn(batch, n, d, device="cuda", dtype=dtype) for _ in range(4))
        flops = 4.0 * batch * n * n * d / (2 if causal else 1)
        name = f"{what} {batch, n, d} {'causal' if causal else 'not causal'}"
        name += "" if dtype == torch.bfloat16 else f" {dtype}"
        if what == "forward":
            forms = attention.few_variants(what, d, bytes_each) if few else attention.forward_variants(d, bytes_each)
            yield name, (q, k, v, causal), right, list(forms), vendors(dtype) | ({"naive": naive} if few else {}), flops
            continue
        o, lse = attention._forward(reference.FORWARD_TILES[bytes_each, d])(q, k, v, causal)
        variants = {"dq": attention.dq_variants, "dk_dv": attention.dk_dv_variants, "fused": attention.fused_variants}
        expected = reference_gradients(q, k, v, do, causal)
        chosen = {"dq": expected[:1], "dk_dv": expected[1:], "fused": expected}[what]
        yield (
            name,
            (q, k, v, o, lse, do, causal),
            lambda *_, chosen=chosen: chosen,
            list(attention.few_variants(what, d, bytes_each) if few else variants[what](d, bytes_each)),
            {},
            2.5 * flops,
        )


def right(q: Any, k: Any, v: Any, causal: bool) -> Any:
    # As heads of one batch element: for three dimensions PyTorch would keep all scores in memory.
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)


def naive(q: Any, k: Any, v: Any, causal: bool) -> Any:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v


def vendors(dtype: torch.dtype) -> dict[str, Callable[..., Any]]:
    """Float32 is taken by one of PyTorch's fused kernels only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def by(backend: SDPBackend) -> Callable[..., Any]:
        def run(q: Any, k: Any, v: Any, causal: bool) -> Any:
            with sdpa_kernel(backend):
                return right(q, k, v, causal)

        return run

    if dtype == torch.float32:
        return {"memory-efficient": by(SDPBackend.EFFICIENT_ATTENTION)}
    return {"cuDNN": by(SDPBackend.CUDNN_ATTENTION), "flash": by(SDPBackend.FLASH_ATTENTION)}


def reference_gradients(q: Any, k: Any, v: Any, do: Any, causal: bool) -> tuple[torch.Tensor, ...]:
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    o = torch.nn.functional.scaled_dot_product_attention(*(leaf[None] for leaf in leaves), is_causal=causal)
    return torch.autograd.grad(o, leaves, do[None])


def compare(
    name: str,
    arguments: tuple[Any, ...],
    right: Callable[..., Any],
    variants: list[tuple[str, Callable[..., Any]]],
    others: dict[str, Callable[..., Any]],
    work: float,
    best: int,
    rounds: int,
) -> None:
    """Print the fastest variants of one problem; `work` is bytes or FLOPs."""
    expected = right(*arguments)
    verdicts = [verdict(function, arguments, expected) for _, function in variants]
    wrong = {label: why for (label, _), why in zip(variants, verdicts, strict=True) if why}
    runners = others | {label: function for label, function in variants if label not in wrong}
    wipe = torch.empty(WIPE_BYTES, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {label: [] for label in runners}
    for number in range(rounds):
        # The slow ones are out after the first rounds.
        fastest = min((statistics.median(seen) for seen in times.values() if seen), default=math.inf)
        for label, function in runners.items():
            if number > 3 and label not in others and statistics.median(times[label]) > 1.25 * fastest:
                continue
            times[label].append(timed(function, arguments, wipe))
    order = sorted(times, key=lambda label: statistics.median(times[label]))
    print(f"== {name}: {len(variants)} variants, {len(wrong)} left out")
    for label in [*others, *[label for label in order if label not in others][:best]]:
        seconds = statistics.median(times[label])
        print(f"   {seconds * 1e3:8.4f} ms  {work / seconds / 1e12:7.2f} T/s  {label}")
    for label, why in wrong.items():
        print(f"   left out: {label}: {why}"[:160])
    sys.stdout.flush()


def timed(function: Callable[..., Any], arguments: Sequence[Any], wipe: torch.Tensor) -> float:
    """Seconds of a call on the GPU, between two events, behind an L2 cache full of `wipe`.

    The GPU sleeps until the processor has launched what is timed, or else it would wait for launches meanwhile. RuntimeError if
    that takes longer than the longest sleep.
    """
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for cycles in LAUNCH_CYCLES:
        wipe.zero_()
        torch.cuda._sleep(cycles)
        start.record()
        function(*arguments)
        end.record()
        is_late = start.query()
        torch.cuda.synchronize()
        if not is_late:
            return start.elapsed_time(end) / 1e3
    raise RuntimeError("the processor needs longer to launch it than the GPU sleeps")


def verdict(function: Callable[..., Any], arguments: tuple[Any, ...], expected: Any) -> str:
    """Why a variant is left out, or nothing."""
    try:
        got = function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1] if str(error).strip() else ''}"
    got, expected = (one if isinstance(one, tuple) else (one,) for one in (got, expected))
    for mine, theirs in zip(got, expected, strict=False):
        error = float((mine.float() - theirs.float().view(mine.shape)).norm() / theirs.float().norm())
        if not error < 0.02:
            return f"wrong by {error:.2g}"
    return ""


if __name__ == "__main__":
    main()
