"""Shares out a call's GPU time between the submission's kernels and libraries' kernels, by the names that a profiler gives."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from grader.protocol import OTHER_KERNELS, RanKernel
from grader.report.model import GpuTime, KernelTime

# Own kernels that take less than the first of the GPU's time, while a library's take more than the second, ran for show.
DECOY_SHARE, LIBRARY_SHARE = 0.1, 0.9
# Namespaces of kernels of PyTorch and NVIDIA's libraries. A student's kernel may have their types as parameters.
LIBRARYS_NAMESPACE = re.compile(r"^(at|c10|cub|thrust|at_cuda_detail)::")
# Whole names of kernels of PyTorch, NVIDIA's libraries and torch.compile.
LIBRARY = re.compile(
    r"cublas|cudnn|cutlass|cute::|pytorch_flash|flash_(fwd|bwd)|fmha|nvjet|xmma|\(anonymous namespace\)::\w{1,20}_warp_(for|back)ward|"
    r"^triton_(poi|red|per|tem|for|mm)_|^(volta|turing|ampere|hopper|sm\d+)_"
)
# Kernels that only fill or copy are plumbing, as PyTorch's operators of that kind are (`grader/verdict/policy.py`).
PLUMBING = re.compile(r"FillFunctor|copy_kernel|CatArray|Memcpy|Memset")
COPIED = re.compile(r"copy_kernel|Memcpy DtoD")  # Kernels of this name copy from one place on the GPU to another.
FROM_HOST = "Memcpy HtoD"
MAX_SHOWN = 8


def gpu_time(ran: Sequence[RanKernel], own: Collection[str]) -> GpuTime | None:
    """The shares of kernels, longest first; None if the profiler saw no time.

    Args:
        ran: kernels, in any order.
        own: names of the submission's kernels, without namespace, template arguments and parameters.
    """
    ran = sorted(ran, key=lambda one: -one.time_s)
    total_s = sum(one.time_s for one in ran)
    if not total_s > 0:
        return None
    kernels = [
        KernelTime(name=short_name(one.name), own=is_own(one.name, own), calls=one.calls, share=one.time_s / total_s)
        for one in ran
    ]
    library = [_is_librarys(one.name) and not PLUMBING.search(one.name) for one in ran]
    shares = [(one.share, one.own, bool(foreign)) for one, foreign in zip(kernels, library, strict=True)]
    return GpuTime(
        own_share=min(sum(share for share, mine, _ in shares if mine), 1.0),
        library_share=min(sum(share for share, mine, foreign in shares if foreign and not mine), 1.0),
        kernels=tuple(kernels[:MAX_SHOWN]),
    )


def decoy(found: GpuTime) -> str:
    """Words about a submission whose own kernels run for show; empty if they do the work, or if the times do not tell."""
    if found.own_share >= DECOY_SHARE or found.library_share < LIBRARY_SHARE:
        return ""
    first = next(
        (one for one in found.kernels if not one.own), None
    )  # none, if the few that are shown are all one's own
    rest = (
        f"{percent(found.library_share)} into libraries'"
        if first is None
        else f"{percent(first.share)} into {first.name}"
    )
    return f"{percent(found.own_share)} of the GPU's time went into kernels of your own, {rest}"


def without_own(ran: Sequence[RanKernel], own: Collection[str]) -> str:
    """Words about a call that ran only PyTorch's kernels; empty if a kernel may be the student's, or none ran."""
    if not ran or any(
        is_own(one.name, own) or not (_is_librarys(one.name) or PLUMBING.search(one.name)) for one in ran
    ):
        return ""
    longest = max(ran, key=lambda one: one.time_s)
    from_gpu = COPIED.search(longest.name) and not any(FROM_HOST in one.name for one in ran)
    cause = ": none was launched, or a result was kept from an earlier call" if from_gpu else ""
    return f"no kernel of your own ran on the GPU, only PyTorch's, such as {short_name(longest.name)}{cause}"


def percent(share: float) -> str:
    """A share as `97 %`. Only the whole is `100 %`, and only nothing is `0 %`."""
    whole = round(100 * share)
    if whole == 100 and share < 1 - 1e-9:
        return "over 99 %"
    if whole == 0 and share > 0:
        return "under 1 %"
    return f"{whole} %"


def short_name(name: str) -> str:
    """A kernel's name without return type, template arguments and parameters: `void at::native::fill<int>(long)` is `at::native::fill`."""
    text = name.replace("(anonymous namespace)::", "")
    if text.startswith(("Memcpy", "Memset")):
        return text.split("(")[0].strip()[:200]
    words = re.split(r"[<(]", text, maxsplit=1)[0].split()
    return (words[-1] if words else name)[:200]


def is_own(name: str, own: Collection[str]) -> bool:
    """Whether a kernel is one of the submission's own (`own`: as for `gpu_time`)."""
    short = short_name(name)
    return short.rsplit("::", 1)[-1] in own and not LIBRARYS_NAMESPACE.match(short)


def _is_librarys(name: str) -> bool:
    """Whether a kernel is a library's. Those that a full record does not tell one by one count as such."""
    return name == OTHER_KERNELS or bool(LIBRARYS_NAMESPACE.match(short_name(name)) or LIBRARY.search(name))
