"""Answers a submission's questions about the GPU, in a worker without one, as the grading GPU would.

| question | module | answer |
|---|---|---|
| tensors: `x.is_cuda`, `x.device`, `device="cuda"`, `.cuda()`, `.to("cuda")` | tensors.py | by a PyTorch mode |
| `torch.cuda.*` | torch_cuda.py | by a table of the module's names |
| `triton.runtime.driver.active.*` | triton_driver.py | by a driver with the interface of Triton's |
| for whom operators are registered: `custom_op(..., device_types="cuda")` | registered.py | for the CPU |
| `kernel.warmup(...)`, the value of `kernel[grid](...)` | kernels.py | the kernel compiled for the GPU; its launch is interpreted |

Tensors stay in the CPU's memory. A question without an answer raises `NeedsGpu` (errors.py): the case is skipped, and
the report names the student's line. compiling.py compiles all launches of a submission for such a GPU, and runs none.
"""

from __future__ import annotations

import contextlib

from grader.protocol import Gpu
from grader.worker.operators import CONTEXTS

_is_provided = False


def provide(gpu: Gpu) -> None:
    """Answer as this GPU from now on, until another is provided. Tensors lie on it in the submission's code (`CONTEXTS`)."""
    global _is_provided
    from grader.worker.absent_gpu import registered, tensors, torch_cuda

    first, _is_provided = not _is_provided, True
    torch_cuda.provide(gpu)
    if first:
        CONTEXTS.append(tensors.OnTheGpu)
        tensors.provide()
        registered.provide()
    with contextlib.suppress(ImportError):  # without Triton
        from triton import knobs

        from grader.worker.absent_gpu import kernels, triton_driver

        triton_driver.provide(gpu)
        if first and knobs.runtime.interpret:
            kernels.provide()
