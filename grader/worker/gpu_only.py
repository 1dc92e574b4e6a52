"""Code that fails on a CPU only because there is no GPU, and that `absent_gpu/` has no answer for: the student's line."""

from __future__ import annotations

import re
import tokenize


class NeedsGpu(RuntimeError):
    """Only a GPU can answer this; `what` was asked."""

    def __init__(self, what: str) -> None:
        super().__init__(f"needs a GPU: {what}")


# How PyTorch and Triton refuse what only a GPU has; the first is `NeedsGpu`.
REFUSALS = re.compile(
    r"(?:^|: )needs a GPU: |Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"
    r"|CUDA driver initialization failed|Cannot access accelerator device|device type cuda .*not available"
    r"|not linked with support for cuda|arguments from the 'CUDA' backend"
    r"|requires (?:a )?CUDA|NVTX functions not installed"
    r"|\d+ active drivers|'InterpretedFunction' object has no attribute|not supported in interpreter mode"
    r"|module 'torch\._C' has no attribute '_cuda|cannot import name '_cuda",
    re.MULTILINE,
)


def line_that_needs_one(said: str, file: str, line: int) -> str:
    """The line that needs a GPU, as the student wrote it; nothing where the error has another reason.

    Args:
        said: the messages of the error and of its causes.
        file, line: the innermost frame of the error that is the submission's.
    """
    if not REFUSALS.search(said):
        return ""
    try:
        with tokenize.open(file) as opened:  # in the encoding and with the lines that Python has read it by
            return opened.readlines()[line - 1].strip()[:200]
    except (OSError, ValueError, SyntaxError, IndexError):
        return ""
