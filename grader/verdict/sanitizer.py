"""Turns a log of NVIDIA's compute-sanitizer into sentences for a student.

memcheck reports accesses outside every allocation, racecheck threads of a block that share memory without a barrier, initcheck reads of
unwritten memory. Each report names a kernel, a line and a thread; a mistake that is reported a thousand times is told once. The log
comes from the worker's process and is not trusted: a report may cost points, and an empty log earns no more than any other answer.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

Kind = Literal["out of bounds", "misaligned", "race", "uninitialised"]

# `scale_kernel(float *, int)+0x70 in scale.cu:12` since CUDA 12.4, `0x70 in /tmp/scale.cu:12:scale_kernel(float*,int)` before.
_PLACE = (
    r"(?:(?P<kernel>[^+]{1,1000})\+0x[0-9a-f]+ in (?P<file>[^:]{1,1000}):(?P<line>\d{1,7})"
    r"|0x[0-9a-f]+ in (?P<oldfile>[^:]{1,1000}):(?P<oldline>\d{1,7}):(?P<oldkernel>[^\[]{1,1000}))"
)
_COUNT = r"\d[\d,]{0,14}"
MAX_LINE = 1000  # compute-sanitizer writes no longer lines.
MAX_NAME = 100  # A kernel's name in a sentence is cut to this many characters.
_ACCESS = re.compile(
    r"(?:Invalid|Uninitialized) __(?P<space>\w+)__ (?P<memory>memory )?(?P<way>read|write|atomic|reduction)\w* of size (?P<size>"
    + _COUNT
    + r")"
)
_AT = re.compile(r"^\s*at " + _PLACE + r"$")
_BY = re.compile(r"^\s*by thread (?P<thread>\(\d+,\s*\d+,\s*\d+\)) in block (?P<block>\(\d+,\s*\d+,\s*\d+\))")
_NEAREST = re.compile(
    r"and is (?P<bytes>"
    + _COUNT
    + r") bytes? (?P<side>before|after) the nearest allocation at \S+ of size (?P<length>"
    + _COUNT
    + r")"
)
_RACE = re.compile(r"Race reported between (?P<first>Read|Write) access at " + _PLACE + r"$")
_RACE_WITH = re.compile(
    r"^\s*and (?P<second>Read|Write) access at " + _PLACE + r"(?: ?\[(?P<hazards>" + _COUNT + r") hazards?\])?\s*$"
)


@dataclass(frozen=True)
class SanitizerFinding:
    """One mistake, made by any number of threads.

    way: "read" or "write"; of a race, the access in `line`.
    space: "global", "shared" or "local" memory.
    thread, block: the first thread that made the mistake, as "(3,0,0)"; "" for a race.
    detail: the distance to the nearest allocation, or the other access of a race.
    times: number of reports.
    """

    kind: Kind
    way: str
    space: str
    kernel: str
    file: str
    line: int
    size_bytes: int = 0
    thread: str = ""
    block: str = ""
    detail: str = ""
    times: int = 1

    @property
    def sentence(self) -> str:
        place = f"{self.file}:{self.line}, in {self.kernel}"
        who = f", first by thread {self.thread} of block {self.block}" if self.thread else ""
        match self.kind:
            case "out of bounds":
                aside = f": {self.detail}" if self.detail else ""
                return f"{place}: a {self.way} of {self.size_bytes} bytes beyond every tensor{aside}{who}"
            case "misaligned":
                return (
                    f"{place}: a {self.way} of {self.size_bytes} bytes at an address that is no multiple of that{who}"
                )
            case "uninitialised":
                return f"{place}: reads {self.size_bytes} bytes of {self.space} memory that nothing has written{who}"
            case "race":
                return (
                    f"{place}: threads of a block {self.way} shared memory here and {self.detail}, "
                    "with no barrier in between: which comes first is chance"
                )


def findings(log: str, files: Collection[str]) -> list[SanitizerFinding]:
    """The mistakes in the student's `files` that a log reports, in its order."""
    found: dict[tuple[object, ...], SanitizerFinding] = {}
    lines = (line[:MAX_LINE].lstrip("= ").rstrip() for line in log.splitlines() if line.startswith("="))
    for one in _parse(lines):
        if one.file not in files:
            continue
        key = (one.kind, one.way, one.space, one.file, one.line)
        earlier = found.get(key)
        found[key] = one if earlier is None else replace(earlier, times=earlier.times + one.times)
    return list(found.values())


def _parse(lines: Iterable[str]) -> Iterable[SanitizerFinding]:
    access: re.Match[str] | None = None
    race: re.Match[str] | None = None
    told: dict[str, str] = {}

    def complete() -> Iterable[SanitizerFinding]:
        if access is not None and "file" in told:
            yield _access(access, told)

    for line in lines:
        if match := _ACCESS.search(line):
            yield from complete()
            access, told = match, {}
        elif match := _RACE.search(line):
            yield from complete()
            access, race, told = None, match, {}
        elif race is not None and (match := _RACE_WITH.search(line)):
            yield _race(race, match)
            race = None
        elif access is not None and (match := _AT.search(line)) and "file" not in told:
            told |= _place(match)
        elif access is not None and (match := _BY.search(line)):
            told |= match.groupdict()
        elif access is not None and (match := _NEAREST.search(line)):
            told["detail"] = f"{match['bytes']} bytes {match['side']} one of {match['length']} bytes"
        elif access is not None and "misaligned" in line:
            told["misaligned"] = "yes"
        elif line.startswith(("ERROR SUMMARY", "RACECHECK SUMMARY", "Saved host backtrace")):
            yield from complete()
            access = None
    yield from complete()


def _access(access: re.Match[str], told: dict[str, str]) -> SanitizerFinding:
    kind: Kind = "uninitialised" if access["memory"] else "misaligned" if "misaligned" in told else "out of bounds"
    return SanitizerFinding(
        kind=kind,
        way="read" if access["way"] == "read" else "write",
        space=access["space"],
        kernel=told["kernel"],
        file=told["file"],
        line=int(told["line"]),
        size_bytes=int(access["size"].replace(",", "")),
        thread=told.get("thread", "").replace(" ", ""),
        block=told.get("block", "").replace(" ", ""),
        detail=told.get("detail", ""),
    )


def _race(first: re.Match[str], second: re.Match[str]) -> SanitizerFinding:
    here, there = _place(first), _place(second)
    way = {"Read": "read", "Write": "write"}
    other = f"{way[second['second']]} it " + (
        "in the same line" if there["line"] == here["line"] else f"in line {there['line']}"
    )
    return SanitizerFinding(
        kind="race",
        way=way[first["first"]],
        space="shared",
        kernel=here["kernel"],
        file=here["file"],
        line=int(here["line"]),
        detail=other,
        times=int((second["hazards"] or "1").replace(",", "")),
    )


def _place(match: re.Match[str]) -> dict[str, str]:
    """The kernel without its parameters, the file without its folder, and the line."""
    kernel = match["kernel"] or match["oldkernel"]
    return {
        "kernel": kernel.partition("(")[0].strip()[:MAX_NAME],
        "file": PurePath(match["file"] or match["oldfile"]).name,
        "line": match["line"] or match["oldline"],
    }
