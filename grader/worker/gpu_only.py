"""Tells errors that only a missing GPU causes from the student's mistakes, and finds the student's line.

`absent_gpu/` answers most questions about the GPU. A question without an answer raises `NeedsGpu`, or an error of
PyTorch's or Triton's that `REFUSALS` lists.
"""

from __future__ import annotations

import re
import tokenize


class NeedsGpu(RuntimeError):
    """Only a GPU can answer the question `what`, such as the value of a name in torch.cuda."""

    def __init__(self, what: str) -> None:
        super().__init__(f"needs a GPU: {what}")


# Messages of PyTorch and Triton without a GPU; the first pattern is the message of `NeedsGpu`.
REFUSALS = re.compile(
    r"(?:^|: )needs a GPU: |Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"
    r"|CUDA driver initialization failed|Cannot access accelerator device|device type cuda .{0,200}not available"
    r"|not linked with support for cuda|arguments from the 'CUDA' backend"
    r"|requires (?:a )?CUDA|NVTX functions not installed"
    r"|\d active drivers|'(?:InterpretedFunction|InterpreterBuilder|InterpreterOptions|AbsentGpu)' object has no attribute"
    r"|not supported in interpreter mode"
    r"|module 'torch\._C' has no attribute '_(?:cuda|nccl)|Tried to instantiate dummy base class|cannot import name '_cuda",
    re.MULTILINE,
)


def line_that_needs_one(said: str, file: str, line: int) -> str:
    """The text of the student's line that needs a GPU; "" if the error has another reason.

    Args:
        said: the messages of the error and of its causes.
        file, line: of the error's innermost frame in the submission.
    """
    if not REFUSALS.search(said):
        return ""
    try:
        with tokenize.open(file) as opened:  # decodes and splits a file as Python's import does
            return opened.readlines()[line - 1].strip()[:200]
    except (OSError, ValueError, SyntaxError, IndexError):
        return ""
