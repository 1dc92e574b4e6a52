"""Answers a submission's questions about the GPU, in a worker without one, as the grading GPU would.

| question | module | answer |
|---|---|---|
| tensors: `x.is_cuda`, `x.device`, `device="cuda"`, `.cuda()`, `.to("cuda")` | tensors.py | by a PyTorch mode |
| `torch.cuda.*` | torch_cuda.py | by a table of the module's names |
| `triton.runtime.driver.active.*` | triton_driver.py | by a driver with the interface of Triton's |
| for whom operators are registered: `custom_op(..., device_types="cuda")` | registered.py | for the CPU |
| `kernel.warmup(...)`, the value of `kernel[grid](...)` | kernels.py | the kernel compiled for the GPU; its launch is interpreted |

Tensors stay in the CPU's memory. A question without an answer raises `NeedsGpu` (gpu_only.py): the case is skipped, and
the report names the student's line.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from grader.protocol import Gpu

_gpu: Gpu | None = None


def provide(gpu: Gpu) -> None:
    """Answer as this GPU from now on, until another is provided. Tensors lie on the GPU only within `asking`."""
    global _gpu
    from grader.worker.absent_gpu import registered, tensors, torch_cuda

    first = _gpu is None
    _gpu = gpu
    torch_cuda.provide(gpu)
    if first:
        tensors.provide()
        registered.provide()
    with contextlib.suppress(ImportError):  # without Triton
        from triton import knobs

        from grader.worker.absent_gpu import kernels, triton_driver

        triton_driver.provide(gpu)
        if first and knobs.runtime.interpret:
            kernels.provide()


def asking() -> AbstractContextManager[object]:
    """A context for code of the submission: in this thread, tensors say that they lie on the GPU. Does nothing before
    `provide`.
    """
    if _gpu is None:
        return contextlib.nullcontext()
    from grader.worker.absent_gpu.tensors import OnTheGpu

    return OnTheGpu()
