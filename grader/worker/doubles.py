"""The lines of a `.cu` file that a GPU computes in double precision, by nvcc's PTX. `cuda_cpu/promotions.py` finds them
without nvcc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from grader.protocol import code_of

MAX_PLACES = 8
# A literal of type double, in code without comments.
LITERAL = re.compile(r"(?<![\w.])(?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")
FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)\s+"([^"]+)"', re.MULTILINE)
LOCATION = re.compile(r"\s*\.loc\s+(\d+) (\d+) \d+(?:.*inlined_at (\d+) (\d+))?")
INSTRUCTION = re.compile(r"\s*(?:@!?%p\d+ )?(?P<name>[a-z][\w.]*)\s++(?P<to>[^,;]++),(?P<sources>[^;]*+);")
# To double, from a student's numbers: the slow path of sinf() and its like converts from s64.
CONVERTED = re.compile(r"cvt(\.rn)?\.f64\.(f16|bf16|f32|[su](8|16|32))")
COMPUTED = re.compile(r"(add|sub|mul|fma|mad|div|rcp|sqrt|rsqrt|min|max|abs|neg)\b.*\.f64")


def told(places: Iterable[tuple[str, int]], folder: Path) -> str:
    """Lines for `grader/verdict/advice.py`, as `computed in double: kernel.cu:12: 0.5 1.0` with the line's literals.

    places: files of `folder` and their lines.
    """
    lines = ""
    for file, line in sorted(set(places))[:MAX_PLACES]:
        code = code_of(source_of(folder / file)).split("\n")[line - 1]
        lines += f"computed in double: {file}:{line}: {' '.join(dict.fromkeys(LITERAL.findall(code)))}\n"
    return lines


def in_ptx(ptx: str, folder: Path) -> set[tuple[str, int]]:
    """The places in files of `folder` whose PTX computes in double precision from a number of another type."""
    files = {number: Path(name).resolve() for number, name in FILE.findall(ptx)}
    root = folder.resolve()
    own = {number: str(file.relative_to(root)) for number, file in files.items() if file.is_relative_to(root)}
    found, doubles, place = set[tuple[str, int]](), set[str](), ("", 0)
    for line in ptx.splitlines():
        if ".entry" in line or ".func" in line:
            doubles, place = set(), ("", 0)
        elif at := LOCATION.match(line):
            places = [(own[file], int(number)) for file, number in ((at[1], at[2]), (at[3], at[4])) if file in own]
            place = next(iter(places), place)
        elif step := INSTRUCTION.match(line):
            from_doubles = not doubles.isdisjoint(re.findall(r"%\w+", step["sources"]))
            if CONVERTED.match(step["name"]) or (from_doubles and ".f64" in step["name"]):
                doubles.add(step["to"].strip())
            if from_doubles and COMPUTED.match(step["name"]) and place[0]:
                found.add(place)
    return found


def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig", errors="replace")
