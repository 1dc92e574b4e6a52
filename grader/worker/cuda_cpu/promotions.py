"""The lines of a `.cu` file that a GPU computes in double precision, by the warnings of g++.

nvcc computes in float whatever gives the same float, as `y = 0.5 * x`, so its PTX (`doubles.py`) knows more.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from grader.worker.cuda_cpu.declarations import device_code
from grader.worker.doubles import LITERAL, source_of

WARNING = "-Wdouble-promotion"
# The warning about an operator between a float and a double: the caret stands below the operator.
MIXED = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: warning: (?>[^\n]*?to match other operand)[^\n]*+\n(?P<before>[^\n]*+)\n(?P<caret>[^\n^]*+)\^",
    re.MULTILINE,
)
ARITHMETIC = "+-*/"
DECLARED = re.compile(r"\bdouble\s+\w")
# A line that declares a constant of numbers: the compiler computes it.
CONSTANT = re.compile(r"\s*(?:static\s+)?(?:constexpr\b[^;]*|const\s+\w+\s+\w+\s*=(?:[\s\d.*/+()f-]|M_\w++)*+);\s*$")


def in_warnings(said: str, folder: Path, names: Iterable[str]) -> set[tuple[str, int]]:
    """The places in device code that g++ warned about, or that declare a double. `names`: the files of `folder`, as g++ names them."""
    found = set[tuple[str, int]]()
    for name in names:
        operators = Counter(
            int(one["line"])
            for one in MIXED.finditer(said)
            if one["file"] == name and one["before"][len(one["caret"]) :][:1] in ARITHMETIC
        )
        for line, code in device_code(source_of(folder / name)).items():
            if CONSTANT.match(code):
                continue
            literals = LITERAL.findall(code)
            # nvcc may compute one operation with a float's constant in float.
            same = operators[line] == len(literals) == 1 and ctypes.c_float(float(literals[0])).value == float(
                literals[0]
            )
            if DECLARED.search(code) or (operators[line] and not same):
                found.add((name, line))
    return found
