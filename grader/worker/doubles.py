"""Lines of a `.cu` file that a GPU computes in double precision, as its compiler tells: what nvcc made of them, or what g++ warns of.

nvcc computes in float what comes out the same, as `y = 0.5 * x`, so what it made decides where it is there.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from grader.worker.cuda_cpu.rewrite import Token, device_code, tokenize

WARNING = "-Wdouble-promotion"
# g++'s, for an operator with a float on one side and a double on the other; below it the line and a caret under the operator.
MIXED = re.compile(
    r"^(?P<file>[^\n:]+):(?P<line>\d+):\d+: warning: [^\n]*to match other operand[^\n]*\n(?P<shown>[^\n]*)\n(?P<caret>[^\n^]*)\^",
    re.MULTILINE,
)
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)
LOCATION = re.compile(r"\.loc\s+(\d+) (\d+) \d+(?:.*inlined_at (\d+) (\d+))?")
INSTRUCTION = re.compile(r"\s*(?:@!?%p\d+ )?(?P<name>[a-z][\w.]*)\s+(?P<to>[^,;]+),(?P<sources>[^;]*);")
# To double from what a student has; the slow path of CUDA's sinf() and its like converts from s64.
CONVERTED = re.compile(r"cvt(\.rn)?\.f64\.(f16|bf16|f32|[su](8|16|32))")
COMPUTED = re.compile(r"(add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|min|max|abs|neg)\b.*\.f64")
DOUBLE = re.compile(r"(\d[\d']*\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+")
FUNCTIONS = {
    "tanh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "pow",
    "sqrt",
    "rsqrt",
    "erf",
    "sin",
    "cos",
    "fma",
}  # of double
MAX_PLACES = 8


def told(places: Iterable[str]) -> str:
    """As lines that go with those of ptxas (see `grader/verdict/advice.py`); a place is `kernel.cu:12`."""
    return "".join(f"computed in double: {place}\n" for place in list(dict.fromkeys(places))[:MAX_PLACES])


def in_ptx(ptx: str, folder: Path) -> list[str]:
    """Places in files of `folder` whose code in PTX computes in double precision from a number that was none."""
    files = {number: Path(name) for number, name in FILE.findall(ptx)}
    own = {number: path.name for number, path in files.items() if path.parent.resolve() == folder.resolve()}
    found, doubles, place = list[tuple[str, int]](), set[str](), ("", 0)
    for line in ptx.splitlines():
        if ".entry" in line or ".func" in line:
            doubles, place = set(), ("", 0)
        elif at := LOCATION.search(line):
            for file, number in ((at[1], at[2]), (at[3], at[4])):
                if file in own:
                    place = own[file], int(number)
                    break
        elif step := INSTRUCTION.match(line):
            of_doubles = not doubles.isdisjoint(re.findall(r"%\w+", step["sources"]))
            if CONVERTED.match(step["name"]) or (of_doubles and ".f64" in step["name"]):
                doubles.add(step["to"].strip())
            if of_doubles and COMPUTED.match(step["name"]) and place[1]:
                found.append(place)
    return [f"{file}:{line}" for file, line in sorted(set(found))]


def in_warnings(said: str, sources: dict[str, str]) -> list[str]:
    """Places in device code that g++ warned of, or that declare a double. `sources`: the student's files, by the names that g++ has."""
    found = set[tuple[str, int]]()
    for file, source in sources.items():
        lines: dict[int, list[Token]] = {}
        for token in device_code(tokenize(source)):
            if not token.blank:
                lines.setdefault(token.line, []).append(token)
        warned: dict[int, list[str]] = {}
        for one in MIXED.finditer(said):
            if one["file"] == file:
                operator = one["shown"][len(one["caret"]) : len(one["caret"]) + 1]
                warned.setdefault(int(one["line"]), []).append(operator)
        for line, code in lines.items():
            operators = warned.get(line, [])
            declared = any(one.text == "double" and two.kind == "name" for one, two in itertools.pairwise(code))
            if declared or (
                not {"+", "-", "*", "/"}.isdisjoint(operators) and not _is_the_same_in_float(code, operators)
            ):
                found.add((file, line))
    return [f"{file}:{line}" for file, line in sorted(found)]


def _is_the_same_in_float(code: list[Token], operators: list[str]) -> bool:
    """Whether nvcc may compute a line in float: one operation, with a constant that a float holds, whose result a float takes."""
    numbers = [float(one.text.replace("'", "")) for one in code if one.kind == "number" and DOUBLE.fullmatch(one.text)]
    exact = bool(numbers) and all(
        struct.unpack("f", struct.pack("f", one))[0] == one for one in numbers if abs(one) < 1e38
    )
    return len(operators) == 1 and exact and not any(one.text in FUNCTIONS for one in code)
