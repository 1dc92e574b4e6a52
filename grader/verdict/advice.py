"""Hints about a right kernel, from the words of compilers and of the CPU's CUDA. They cost no points."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grader.report.model import KernelResources

# A line of `grader/worker/doubles.py`.
IN_DOUBLE = re.compile(r"^computed in double: ([\w./+ -]{1,100}:\d{1,7}):((?: [\w.+-]{1,40}){0,6})", re.MULTILINE)
MAX_NAMED = 3


def advice(
    file: str,
    stream: str,
    kernels: Sequence[KernelResources],
    told: str,
    off_stream: Sequence[str],
    same_value: Sequence[str] = (),
) -> tuple[str, ...]:
    """Sentences for the student, each with its place.

    Args:
        stream: the name of the stream among the function's parameters.
        kernels: the resources on the GPU that submissions are graded on.
        told: the compiler's words, among them the lines of `grader/worker/doubles.py`.
        off_stream: work on another stream than the given one, as `kernel.cu:12: the launch of scale`.
        same_value: writes of what another thread had written, which nothing orders, as `kernel.cu:12: y[4]`.
    """
    hints = [
        f"{one} neither names `{stream}` nor waits for it, so on a GPU it may run before its inputs are there; this is graded on the GPU"
        for one in off_stream
    ]
    written = dict(reversed([one.split(": ", 1) for one in same_value if ": " in one]))  # the first of each place
    hints += [
        f"{place}: two threads write {what}, and both write the same value: the result is right; different values would be a race"
        for place, what in list(reversed(written.items()))[:MAX_NAMED]
    ]
    if places := IN_DOUBLE.findall(told):
        hints.append(_in_double(places))
    # The registers may hold one case's blocks and not another's: of each kernel the launch that keeps the most in local memory.
    for name in dict.fromkeys(one.name for one in kernels):
        launches = [one for one in kernels if one.name == name]
        one = max(launches, key=lambda one: (one.spill_store_bytes + one.spill_load_bytes, one.stack_bytes))
        if spilled := one.spill_store_bytes + one.spill_load_bytes:
            where = f"{one.arch}, in {one.case}" if one.case else one.arch
            mend = "take smaller tiles, or more warps" if one.case else "keep fewer values in a thread at a time"
            hints.append(
                f"{file}: {one.name} has too few registers for its values and spills {spilled} bytes to memory ({where}): {mend}"
            )
        elif one.stack_bytes:
            hints.append(
                f"{file}: {one.name} keeps {one.stack_bytes} bytes of each thread in local memory, which is as slow as global memory "
                f"({one.arch}): consistent with an array whose index is known only when it runs, or with printf"
            )
    return tuple(hints)


def _in_double(places: Sequence[tuple[str, str]]) -> str:
    (place, literals), *others = places
    written = ", ".join(f"{one}f" for one in literals.split())
    mend = (
        f"write {written}, for without the f each is a double" if written else "is a value or a function here a double?"
    )
    also = ", ".join(other for other, _ in others[:MAX_NAMED])
    more = f" (also {also}{' ...' if len(others) > MAX_NAMED else ''})" if others else ""
    return f"{place}: computed in double precision, which is slower than float on every GPU: {mend}{more}"
