"""Turns a log of NVIDIA's compute-sanitizer into sentences for a student.

memcheck reports accesses outside every allocation, racecheck threads of a block that share memory without a barrier, initcheck reads of
unwritten memory. Each report names a kernel, a line and a thread; a mistake that is reported a thousand times is told once. The log
comes from the worker's process and is not trusted: a report may cost points, and an empty log earns no more than any other answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

MAX_LINE = 1000  # compute-sanitizer writes no longer lines.
MAX_LINES = 12  # A report says all that is told of it in fewer lines.
MAX_NAME = 100  # A kernel's name in a sentence is cut to this many characters.
# `scale_kernel(float *, int)+0x70 in scale.cu:12` since CUDA 12.4, `0x70 in /tmp/scale.cu:12:scale_kernel(float*,int)` before.
_PLACE = (
    r"(?:(?P<kernel>[^+\n]{1,1000})\+0x[0-9a-f]+ in (?P<file>[^:\n]{1,1000}):(?P<line>\d{1,7})"
    r"|0x[0-9a-f]+ in (?P<oldfile>[^:\n]{1,1000}):(?P<oldline>\d{1,7}):(?P<oldkernel>[^\[\n]{1,1000}))"
)
_COUNT = r"\d[\d,]{0,14}"
_ACCESS = re.compile(
    rf"(?:Invalid|Uninitialized) __(?P<space>\w+)__ (?P<memory>memory )?(?P<way>read|write|atomic|reduction)\w* of size (?P<size>{_COUNT})"
)
_AT = re.compile(rf"^at {_PLACE}$", re.MULTILINE)
_BY = re.compile(
    r"^by thread (?P<thread>\(\d+,\s*\d+,\s*\d+\)) in block (?P<block>\(\d+,\s*\d+,\s*\d+\))", re.MULTILINE
)
_NEAREST = re.compile(
    rf"and is (?P<bytes>{_COUNT}) bytes? (?P<side>before|after) the nearest allocation at \S+ of size (?P<length>{_COUNT})"
)
_RACE = re.compile(rf"Race reported between (?P<way>Read|Write) access at {_PLACE}$", re.MULTILINE)
_RACE_WITH = re.compile(rf"^and (?P<way>Read|Write) access at {_PLACE}(?: ?\[{_COUNT} hazards?\])?$", re.MULTILINE)


class SanitizerFinding(NamedTuple):
    """One mistake, made by any number of threads: the file, the space ("global", "shared" or "local" memory), and a sentence."""

    file: str
    space: str
    sentence: str


def findings(log: str, files: Collection[str]) -> list[SanitizerFinding]:
    """The mistakes in the student's `files` that a log reports, in its order."""
    found: dict[tuple[str, ...], SanitizerFinding] = {}
    lines = [line[:MAX_LINE].lstrip("= ").rstrip() for line in log.splitlines() if line.startswith("=")]
    starts = [at for at, line in enumerate(lines) if _ACCESS.search(line) or _RACE.search(line)]
    for start, end in pairwise([*starts, len(lines)]):
        report = "\n".join(lines[start : min(end, start + MAX_LINES)]).partition("\nSaved host backtrace")[0]
        key, one = _of_access(report) or _of_race(report) or ((), None)
        if one is not None and one.file in files:
            found.setdefault(key, one)
    return list(found.values())


def _of_access(report: str) -> tuple[tuple[str, ...], SanitizerFinding] | None:
    """A report of one thread's access, and what it shares with reports of the same mistake; None if the log breaks off before its place."""
    access, at = _ACCESS.search(report), _AT.search(report)
    if access is None or at is None:
        return None
    kernel, file, line = _place(at)
    by, nearest = _BY.search(report), _NEAREST.search(report)
    way, space, size = "read" if access["way"] == "read" else "write", access["space"], access["size"].replace(",", "")
    if access["memory"]:
        kind, what = "uninitialised", f"reads {size} bytes of {space} memory that nothing has written"
    elif "misaligned" in report:
        kind, what = "misaligned", f"a {way} of {size} bytes at an address that is no multiple of that"
    else:
        kind, what = "out of bounds", f"a {way} of {size} bytes beyond every tensor"
        if nearest:
            what += f": {nearest['bytes']} bytes {nearest['side']} one of {nearest['length']} bytes"
    thread, block = (re.sub(r"\s", "", one) for one in by.groups()) if by else ("", "")
    who = f", first by thread {thread} of block {block}" if by else ""
    return (kind, way, space, file, line), SanitizerFinding(file, space, f"{file}:{line}, in {kernel}: {what}{who}")


def _of_race(report: str) -> tuple[tuple[str, ...], SanitizerFinding] | None:
    """As `_of_access`, of two threads' accesses to shared memory."""
    first, second = _RACE.search(report), _RACE_WITH.search(report)
    if first is None or second is None:
        return None
    (kernel, file, line), (_, _, other) = _place(first), _place(second)
    way = first["way"].lower()
    where = "in the same line" if other == line else f"in line {other}"
    sentence = (
        f"{file}:{line}, in {kernel}: threads of a block {way} shared memory here and {second['way'].lower()} it {where}, "
        "with no barrier in between: which comes first is chance"
    )
    return ("race", way, file, line), SanitizerFinding(file, "shared", sentence)


def _place(match: re.Match[str]) -> tuple[str, str, str]:
    """The kernel without its parameters, the file without its folder, and the line."""
    kernel = (match["kernel"] or match["oldkernel"]).partition("(")[0].strip()[:MAX_NAME]
    return kernel, PurePath(match["file"] or match["oldfile"]).name, match["line"] or match["oldline"]
