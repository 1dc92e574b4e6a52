"""Code that fails on a CPU only because there is no GPU: the student's line that asks for one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

# How PyTorch and Triton refuse what only a GPU has.
REFUSALS = re.compile(
    r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"
    r"|CUDA driver initialization failed|Cannot access accelerator device|device type cuda .*not available"
    r"|\d+ active drivers|'InterpretedFunction' object has no attribute|not supported in interpreter mode"
    r"|'NoneType' object has no attribute '(?:n_regs|n_spills|metadata|asm|_init_handles)'"  # a launch returns no kernel here
    r"|numpy data itemsize \(\d+ bits\) exceeds dtype primitive_bitwidth"  # a plain bool as an argument of a kernel
)
# What a line says that asks for a GPU itself, as `assert x.is_cuda`.
ASKS = re.compile(r"is_cuda|[\"']cuda[\"':]|torch\.cuda\b|\.cuda\(|\bdriver\.active\b")
OWN_SLIPS = (NameError, AttributeError, SyntaxError, ImportError)


def line_that_needs_one(error: BaseException, said: str, file: str, line: int) -> str:
    """The line that needs a GPU, as the student wrote it; nothing where the error has another reason.

    Args:
        said: the messages of the error and of its causes.
        file, line: the innermost frame of the error that is the submission's.
    """
    try:
        source = Path(file).read_text(encoding="utf-8")
        lines = source.splitlines()
        words = lines[line - 1].strip()
        asked = "\n".join([words, *_conditions(ast.parse(source), line)])
    except (OSError, ValueError, SyntaxError, IndexError):
        return ""
    if REFUSALS.search(said) or (ASKS.search(asked) and not isinstance(error, OWN_SLIPS)):
        return words[:200]
    return ""


def _conditions(module: ast.Module, line: int) -> list[str]:
    """The conditions of the innermost `if` around a `raise` or an `assert` in this line: nothing where it is neither."""
    raising = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Raise | ast.Assert) and node.lineno <= line <= (node.end_lineno or line)
    ]
    around = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.If) and raising and node.lineno <= line <= (node.end_lineno or line)
    ]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    tests = [ast.unparse(innermost.test)] if innermost is not None else []
    return [*tests, *(ast.unparse(one) for one in raising)]
