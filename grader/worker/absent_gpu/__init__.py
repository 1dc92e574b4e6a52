"""A GPU that isn't there: in a worker without one, a file that asks about the GPU is answered as the grading GPU would answer.

| asked | answered in | how |
|---|---|---|
| tensors: `x.is_cuda`, `x.device`, `device="cuda"`, `.cuda()`, `.to("cuda")` | tensors.py | by a mode of PyTorch's |
| `torch.cuda.*` | torch_cuda.py | by a table of the module's names |
| `triton.runtime.driver.active.*` | triton_driver.py | by a driver of Triton's own kind |
| `kernel.warmup(...)`, what `kernel[grid](...)` returns, launches of both | kernels.py | compiled for the GPU, and interpreted |

Tensors stay in the CPU's memory. What has no answer raises `NeedsGpu` (gpu_only.py), and is then skipped with its line.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from grader.protocol import Gpu

_gpu: Gpu | None = None


def provide(gpu: Gpu) -> None:
    """Have this GPU answer from here on, until another is provided; tensors say that they lie on it while `asking` is on."""
    global _gpu
    from grader.worker.absent_gpu import tensors, torch_cuda

    first = _gpu is None
    _gpu = gpu
    torch_cuda.provide(gpu)
    if first:
        tensors.provide()
    with contextlib.suppress(ImportError):  # without Triton
        from triton import knobs

        from grader.worker.absent_gpu import kernels, triton_driver

        triton_driver.provide(gpu)
        if first and knobs.runtime.interpret:
            kernels.provide()


def asking() -> AbstractContextManager[object]:
    """While the submission's code runs, in this thread: its tensors say that they lie on the GPU. Nothing where there is a GPU."""
    if _gpu is None:
        return contextlib.nullcontext()
    from grader.worker.absent_gpu.tensors import OnTheGpu

    return OnTheGpu()
