"""Hints about a right kernel, from what compilers and the CPU's CUDA tell of it. They cost no points."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from grader.report.model import KernelResources

IN_DOUBLE = re.compile(r"^computed in double: ([\w./+ -]{1,100}):(\d{1,7})$", re.MULTILINE)
# A literal that C++ takes for a double; in code without comments and strings.
DOUBLE = re.compile(r"(?<![\w.])(?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")
MAX_NAMED = 3


def advice(
    file: str,
    kernels: Sequence[KernelResources],
    told: str,
    off_stream: Sequence[str],
    sources: Mapping[str, str],
    stream: str = "stream",
) -> tuple[str, ...]:
    """Sentences for the student, each with its place.

    Args:
        kernels: of the GPU that submissions are graded on.
        told: by the compiler, lines that it computes in double precision among others (see `grader/worker/doubles.py`).
        off_stream: work that did not run on the given stream, as `kernel.cu:12: the launch of scale`.
        sources: of the submission's files.
        stream: the name of the parameter.
    """
    hints = [
        f"{one} does not name `{stream}`, so it may run before its inputs are there: graded on the GPU"
        for one in off_stream
    ]
    if places := [(name, int(line)) for name, line in IN_DOUBLE.findall(told)]:
        hints.append(_in_double(places, sources))
    for one in {one.name: one for one in reversed(kernels)}.values():
        if spilled := one.spill_store_bytes + one.spill_load_bytes:
            mend = "take smaller tiles, or more warps" if one.case else "keep fewer values in a thread at a time"
            hints.append(
                f"{file}: {one.name} has too few registers for its values and spills {spilled} bytes to memory ({one.arch}): {mend}"
            )
        elif one.stack_bytes:
            hints.append(
                f"{file}: {one.name} keeps {one.stack_bytes} bytes of each thread in local memory, which is as slow as global memory "
                f"({one.arch}): consistent with an array whose index is known only when it runs, or with printf"
            )
    return tuple(hints)


def _in_double(places: Sequence[tuple[str, int]], sources: Mapping[str, str]) -> str:
    (file, line), *others = places
    lines = sources.get(file, "").splitlines()
    code = re.sub(r"//.*|\"[^\"]*\"", "", lines[line - 1]) if line <= len(lines) else ""
    literals = list(dict.fromkeys(DOUBLE.findall(code)))[:MAX_NAMED]
    mend = (
        f"write {', '.join(f'{one}f' for one in literals)}, for without the f it is a double"
        if literals
        else "is a value or a function here a double?"
    )
    also = ", ".join(f"{other}:{number}" for other, number in others[:MAX_NAMED])
    more = f" (also {also}{' ...' if len(others) > MAX_NAMED else ''})" if others else ""
    return f"{file}:{line}: computed in double precision, which is slower than float on every GPU: {mend}{more}"
