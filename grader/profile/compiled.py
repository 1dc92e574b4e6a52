"""Reads what a compiler made of a Triton kernel.

The texts come from the student's process. Each is read once, line by line, up to a limit; a text of another form gives
nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grader.protocol import CompiledKernel, CompiledText

MAX_TEXT = 4 << 20
MAX_LINES, MAX_LINE = 100_000, 4000
MAX_STEPS = 64  # A location is followed through at most this many others.
MAX_ENTRIES, MAX_NAMES = 2000, 3  # lines with functions, and functions of a line

LOCATION = re.compile(r"#loc\d{0,8}")
FILE_LINE = re.compile(r'"([^"]{1,400})":(\d{1,8}):\d{1,8}')
SYMBOL = re.compile(r'symbol = "(?:__nv_)?(\w{1,60})"')
DOTS = {"tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"}
TENSOR_CORES = ("mma.sync.", "wgmma.mma_async.", "tcgen05.mma.")


@dataclass
class Compiled:
    """What the compiler's texts say of a kernel.

    Attributes:
        functions: by line of the student's file, the first MAX_NAMES functions of CUDA's library, as `tanhf`.
        instructions, doubles: of PTX, each counted once; `doubles` are those on float64.
        has_dot, has_tensor_cores: whether products of tiles are computed, and whether by tensor cores.
    """

    functions: dict[int, list[str]] = field(default_factory=dict)
    instructions: int = 0
    doubles: int = 0
    has_dot: bool = False
    has_tensor_cores: bool = False

    @property
    def lacks_tensor_cores(self) -> bool:
        return self.has_dot and not self.has_tensor_cores


def read(kernel: CompiledKernel, file: str) -> Compiled:
    """What a kernel's TTGIR and PTX say, by lines of the student's file with this name."""
    found = Compiled()
    for text in kernel.texts:
        if text.kind == "ttgir":
            _read_ttgir(list(_lines(text)), file, found)
        elif text.kind == "ptx":
            _read_ptx(_lines(text), found)
    return found


def unpack(text: CompiledText) -> str:
    """The text; "" if it is not packed as it should be. Cut at MAX_TEXT bytes."""
    try:
        packed = base64.b64decode(text.packed, validate=True)
        return zlib.decompressobj().decompress(packed, MAX_TEXT).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError, zlib.error):
        return ""


def _lines(text: CompiledText) -> Iterator[str]:
    return (line.strip()[:MAX_LINE] for line in unpack(text).split("\n", MAX_LINES)[:MAX_LINES])


def _read_ttgir(lines: list[str], file: str, found: Compiled) -> None:
    locations = {name: value for name, equals, value in (line.partition(" = ") for line in lines) if equals}
    known: dict[str, int] = {}
    for line in lines:
        operations = line.split(" ", 4)[:4]
        found.has_dot |= not DOTS.isdisjoint(operations)
        symbol = SYMBOL.search(line) if "tt.extern_elementwise" in operations else None
        if symbol and (own := _own_line(line.rpartition(" loc(")[2], locations, file, known)):
            names = found.functions.setdefault(own, []) if len(found.functions) < MAX_ENTRIES else []
            if symbol[1] not in names and len(names) < MAX_NAMES:
                names.append(symbol[1])


def _own_line(location: str, locations: Mapping[str, str], file: str, known: dict[str, int], depth: int = 0) -> int:
    """The innermost line of the file in a location of MLIR, as `#loc3)`, `"name"(#loc3)`, `"file":7:3` or `callsite(#loc3 at #loc4)`; 0
    if there is none.

    Args:
        known: the lines of the text's named locations, each looked up once.
    """
    if place := FILE_LINE.search(location):
        return int(place[2]) if place[1].rpartition("/")[2] == file else 0
    for name in LOCATION.findall(location)[:2]:
        if name not in known and depth < MAX_STEPS:
            known[name] = 0  # for a location that names itself
            known[name] = _own_line(locations.get(name, ""), locations, file, known, depth + 1)
        if known.get(name):
            return known[name]
    return 0


def _read_ptx(lines: Iterator[str], found: Compiled) -> None:
    for line in lines:
        instruction = line.partition(" ")[2].lstrip() if line.startswith("@") else line
        opcode = instruction.partition(" ")[0].partition("\t")[0].rstrip(";")
        kind, *types = opcode.split(".")
        found.instructions += instruction.endswith(";") and opcode[:1].isalpha()
        found.has_tensor_cores |= opcode.startswith(TENSOR_CORES)
        found.doubles += "f64" in types and kind not in ("ld", "st", "mov")
