"""Code that fails on a CPU only because there is no GPU: the student's line that asks for one."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

# How PyTorch and Triton refuse what only a GPU has.
REFUSALS = re.compile(
    r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device"
    r"|CUDA driver initialization failed|Cannot access accelerator device|device type cuda .*not available"
    r"|requires (?:a )?CUDA|NVTX functions not installed"
    r"|\d+ active drivers|'InterpretedFunction' object has no attribute|not supported in interpreter mode"
    r"|'NoneType' object has no attribute '(?:n_regs|n_spills|metadata|asm|_init_handles)'"  # a launch returns no kernel here
)
# What a line says that asks for a GPU itself, as `assert x.is_cuda`; and a condition under which it gives up.
ASKS = re.compile(r"is_cuda|[\"']cuda[\"':]|torch\.cuda\b|\.cuda\(|\bdriver\.active\b")
ASKS_BEFORE_GIVING_UP = re.compile(rf"{ASKS.pattern}|\.device\b|\.get_device\(")
OWN_SLIPS = (NameError, AttributeError, SyntaxError, ImportError)


def line_that_needs_one(error: BaseException, said: str, file: str, line: int) -> str:
    """The line that needs a GPU, as the student wrote it; nothing where the error has another reason.

    Args:
        said: the messages of the error and of its causes.
        file, line: the innermost frame of the error that is the submission's.
    """
    try:
        with tokenize.open(file) as opened:  # in the encoding and with the lines that Python has read it by
            words = opened.readlines()[line - 1].strip()
        module = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError, IndexError):
        return ""
    if isinstance(error, OWN_SLIPS) and not REFUSALS.search(said):
        return ""
    gives_up = "\n".join(_conditions(module, error, line))
    return words[:200] if REFUSALS.search(said) or ASKS.search(words) or ASKS_BEFORE_GIVING_UP.search(gives_up) else ""


def _conditions(module: ast.Module, error: BaseException, line: int) -> Iterator[str]:
    """Why the code gives up in this line, by `raise`, `assert` or an exit: what it says, the innermost `if` around it, and what the names
    in both were given; nothing where it does not give up.
    """
    here = [one for one in ast.walk(module) if isinstance(one, ast.stmt) and _contains(one, line)]
    raising = [one for one in here if isinstance(one, ast.Raise | ast.Assert)]
    if not raising and not isinstance(error, SystemExit):
        return
    innermost = max((one for one in here if isinstance(one, ast.If)), key=lambda one: one.lineno, default=None)
    conditions: list[ast.AST] = [*raising, *([innermost.test] if innermost is not None else [])]
    yield from map(ast.unparse, conditions)
    names = {one.id for condition in conditions for one in ast.walk(condition) if isinstance(one, ast.Name)}
    for one in ast.walk(module):
        if isinstance(one, ast.Assign) and names & {getattr(target, "id", "") for target in one.targets}:
            yield ast.unparse(one.value)


def _contains(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or line)
