"""Finds functions and lines of the source for addresses in a library, with addr2line."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

TOOL_LIMIT_S = 20.0
MAX_ARGUMENTS = 1000  # At most this many arguments of a program are read.


class StackFrame(NamedTuple):
    """A function, as C++ writes it, and a place in it."""

    function: str
    file: Path
    line: int

    @property
    def plain(self) -> str:
        """The function's name without its type and parameters; of a lambda, the function that has it."""
        name = self.function.replace("(anonymous namespace)::", "")
        found = re.search(r"(?!operator)\b([\w:~]+?)(?:::\{lambda|[<(]|$)", name)
        return found[1] if found else "a function"


def frames(library: Path, offset: int) -> list[StackFrame]:
    """The functions and lines at an offset in the library, the innermost inlined function first; empty without
    binutils.
    """
    return frames_of_all(library, [offset]).get(offset, [])


def frames_of_all(library: Path, offsets: Sequence[int]) -> dict[int, list[StackFrame]]:
    """`frames` of each of these offsets."""
    found = dict[int, list[StackFrame]]()
    for start in range(0, len(offsets), MAX_ARGUMENTS):
        some = map(hex, offsets[start : start + MAX_ARGUMENTS])
        told = output_of("addr2line", "-a", "-f", "-C", "-i", "-e", str(library), *some)
        for offset, *lines in (
            one.splitlines() for one in re.split(r"^0x(?=[0-9a-f]+$)", told, flags=re.MULTILINE)[1:]
        ):
            places = [
                (name, re.match(r"(.*):(\d+)", place)) for name, place in zip(lines[::2], lines[1::2], strict=False)
            ]
            found[int(offset, 16)] = [
                StackFrame(name, Path(place[1]), int(place[2])) for name, place in places if place
            ]
    return found


def line_of(found: list[StackFrame], main: str, is_students: Callable[[Path], bool]) -> str:
    """The student's line among these frames, with the file if that is not `main`; `?` if no frame is the student's."""
    for _, file, line in found:
        if is_students(file):
            return str(line) if file.name == main else f"{line} of {file.name}"
    return "?"


def kernel_of(found: list[StackFrame]) -> str:
    """The kernel whose host stub, made by nvcc, is among these frames; `a kernel` if there is none."""
    for function, _, _ in found:
        if stub := re.search(r"__device_stub_(\w{1,2000}(?:<[^()]{0,2000}>)?)", function):
            name = output_of("c++filt", stub[1]) if stub[1].startswith("_Z") else stub[1]
            if plain := re.match(r"(?:\w+::)*(\w+(?:<[^()]*>)?)", name.replace("(anonymous namespace)::", "")):
                return plain[1]
    return "a kernel"


def output_of(*command: str) -> str:
    """The output of a tool of binutils; "" without the tool."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TOOL_LIMIT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
