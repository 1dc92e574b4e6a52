"""Reads what tracing.h has counted in a traced call, and gives it the names and lines of the student's file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from grader import protocol
from grader.worker.cuda_cpu.build import Library
from grader.worker.cuda_cpu.declarations import dynamic_shared, parameters

MAX_ACCESSES, MAX_TENSORS, MAX_OPERATORS = 64, 32, 64  # as in `protocol.Trace`
MAX_NAME, MAX_OPERATOR = 200, 100  # characters
DYNAMIC_SHARED, NO_TENSOR = -2, -1  # as in tracing.h
# What tracing.h counts of an access, by the names of `protocol.TracedAccess`.
COUNTS = ("requests", "lanes", "lanes_of_all", "sectors", "least_sectors", "passes", "least_passes")
# Types of which a GPU loads several members at once; see tracing.h.
VECTOR = re.compile(
    r"(?:char|uchar|short|ushort|u?int|u?long|u?longlong|float|double)[1-4]|(?:__)?half2|__nv_bfloat162"
)
FUNCTION = re.compile(r"(?:void )?(?:\(anonymous namespace\)::|\w+::)*(\w+)")
ALIGNED = ("alignas", "__align__")


class DeclaredTensor(NamedTuple):
    """A tensor in global memory, by the line of tracing.h."""

    name: str
    bytes: int
    is_of_call: bool


class Site(NamedTuple):
    """What belongs to one `protocol.TracedAccess`."""

    file: str
    line: int
    verb: Literal["reads", "writes"]
    space: Literal["global", "shared"]
    tensor: str
    width_bytes: int
    atomic: bool


def has_vectors(sources: Sequence[str]) -> bool:
    """Whether these sources have vector types, or types with an alignment of their own."""
    words = (word for source in sources for word in re.findall(r"\w+", protocol.code_of(source)))
    return any(word in ALIGNED or VECTOR.fullmatch(word) for word in words)


class TraceReader:
    """Makes a `protocol.Trace` of the text of tracing.h.

    Args:
        library: the traced library.
        sources: texts of the student's files.
        output: name of the tensor that the call returns.
    """

    def __init__(self, library: Library, sources: Sequence[str], output: str) -> None:
        told = library.functions.cuda_cpu_trace().decode(errors="replace")
        self._records = [line.split(" ") for line in told.splitlines()]
        self._output = output
        self._parameters = dict[str, list[str]]()
        self._dynamic = set[str]()
        for source in sources:
            self._parameters |= parameters(source)
            self._dynamic |= set(dynamic_shared(source))
        self._lines = library.lines(sorted(self._places()))
        self._memory = dict[int, DeclaredTensor]()
        self._shared = {DYNAMIC_SHARED: "".join(self._dynamic) if len(self._dynamic) == 1 else ""}

    def _places(self) -> set[int]:
        """The addresses of code in the records."""
        places = {int(one[1]) for one in self._records if one[0] in ("launch", "access")}
        places |= {at for one in self._records if one[0] in ("tensor", "operator") for at in _numbers(one[4])}
        return places - {0}

    def trace(self) -> protocol.Trace:
        operators = defaultdict[tuple[str, str], list[int]](lambda: [0, 0, 0])
        of_launches = list[list[list[str]]]()
        for record in self._records:
            kind, numbers = record[0], record[1:]
            if kind == "launch":
                of_launches.append([record])
            elif kind in ("argument", "access", "once"):
                of_launches[-1].append(record)
            elif kind == "shared":
                self._shared[int(numbers[0])] = " ".join(numbers[1:])
            elif kind == "tensor":
                self._memory[int(numbers[0])] = self._tensor(numbers)
            elif kind == "returned" and int(numbers[0]) != NO_TENSOR:
                number = int(numbers[0])
                self._memory[number] = self._memory[number]._replace(name=self._output)
            elif kind == "operator":
                *counts, places, name = numbers
                sums = operators[name[:MAX_OPERATOR], self._place(_numbers(places))[:MAX_NAME]]
                sums[:] = [one + int(more) for one, more in zip(sums, counts, strict=True)]
        launches = tuple(self._launch(one) for one in of_launches)
        folded = (protocol.TracedOperator(*key, *counts) for key, counts in operators.items())
        return protocol.Trace(launches, tuple(folded)[:MAX_OPERATORS])

    def _tensor(self, fields: list[str]) -> DeclaredTensor:
        _, size, is_of_call, places, *name = fields
        where = self._place(_numbers(places)) if not int(is_of_call) else ""
        return DeclaredTensor(" ".join(name) + (f" ({where})" if where else ""), int(size), bool(int(is_of_call)))

    def _place(self, places: list[int]) -> str:
        """The student's innermost line among these addresses, as `kernel.cu:12`; "" if there is none."""
        found = (self._lines[place] for place in places if place in self._lines)
        return next((f"{one.file.name}:{one.line}" for one in found), "")

    def _launch(self, records: list[list[str]]) -> protocol.TracedLaunch:
        place, x, y, z, threads, ran, dynamic, static, cut, launches = map(int, records[0][1:11])
        kernel = " ".join(records[0][11:])
        plain = re.split(r"[<(]", kernel, maxsplit=1)[0].rsplit("::", 1)[-1].strip()
        if plain not in self._parameters:  # a pointer to the kernel, a macro's parameter, or cudaLaunchKernel
            places = [int(one[1]) for one in records if one[0] == "access"]
            functions = [FUNCTION.match(self._lines[place].function) for place in places if place in self._lines]
            known = [match[1] for match in functions if match and match[1] in self._parameters]
            kernel = plain = known[0] if known else kernel
        names = self._names(plain, [[int(one[1]), int(one[2])] for one in records if one[0] == "argument"])
        accesses = self._accesses([one for one in records if one[0] == "access"], names)
        tensors = [
            protocol.TracedTensor(
                names[tensor][:MAX_NAME], self._memory[tensor].bytes, self._memory[tensor].is_of_call, read, written
            )
            for tensor, read, written in (map(int, one[1:4]) for one in records if one[0] == "once")
        ]
        tensors.sort(key=lambda one: -one.read_once_bytes - one.written_once_bytes)
        return protocol.TracedLaunch(
            kernel=kernel[:MAX_NAME],
            line=self._lines[place].line if place in self._lines else 0,
            grid=(x, y, z),
            threads=threads,
            ran=ran,
            accesses=accesses,
            tensors=tuple(tensors[:MAX_TENSORS]),
            shared_bytes=dynamic,
            static_shared_bytes=static,
            cut=bool(cut),
            launches=launches,
        )

    def _names(self, kernel: str, arguments: list[list[int]]) -> dict[int, str]:
        """The names of all memory in a launch: a tensor has the name of the kernel's first parameter that points to it."""
        names = {number: one.name for number, one in self._memory.items()} | self._shared | {NO_TENSOR: ""}
        own = self._parameters.get(kernel, [])
        for position, tensor in reversed(arguments):
            if position < len(own) and own[position]:
                names[tensor] = own[position]
        return names

    def _accesses(self, records: list[list[str]], names: dict[int, str]) -> tuple[protocol.TracedAccess, ...]:
        sums = defaultdict[Site, list[int]](lambda: [0] * len(COUNTS))
        for record in records:
            place, memory, width, write, atomic, *counts = map(int, record[1:13])
            frame = self._lines.get(place)
            site = Site(
                frame.file.name[:MAX_NAME] if frame else "",
                frame.line if frame else 0,
                "writes" if write else "reads",
                "shared" if memory <= DYNAMIC_SHARED else "global",
                names[memory][:MAX_NAME],
                width,
                bool(atomic),
            )
            sums[site] = [one + other for one, other in zip(sums[site], counts, strict=True)]
        largest = sorted(sums.items(), key=lambda one: -one[1][3] - one[1][5])[:MAX_ACCESSES]
        return tuple(
            protocol.TracedAccess(**(site._asdict() | dict(zip(COUNTS, counts, strict=True))))
            for site, counts in sorted(largest)
        )


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",") if one]


def sources_of(path: Path) -> list[str]:
    """The texts of the student's file and of the headers beside it."""
    files = [path, *sorted(one for one in path.parent.glob("*.*h*") if one.suffix in (".h", ".cuh", ".hpp"))]
    return [one.read_text(encoding="utf-8-sig", errors="replace") for one in files]
