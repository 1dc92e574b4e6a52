"""Reads what a compiler made of a Triton kernel, by lines of the student's file.

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
from typing import TypeAlias

from grader.protocol import CompiledKernel, CompiledText

MAX_TEXT = 4 << 20
MAX_LINES, MAX_LINE = 100_000, 4000
MAX_CHAIN = 16  # Inlined calls are followed through at most this many levels.
MAX_ENTRIES = 2000

Places: TypeAlias = list[tuple[str, int]]  # file and line of an instruction, and of the calls that it is inlined from

LOCATION = re.compile(r"#loc\d{0,8}")
FILE_LINE = re.compile(r'"([^"]{1,400})":(\d{1,8}):\d{1,8}')
NUMBER = re.compile(r"[0-9]{1,8}")
SYMBOL = re.compile(r'symbol = "(\w{1,60})"')
DOTS = ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")
TENSOR_CORES = ("mma.sync.", "wgmma.mma_async.", "tcgen05.mma.")


@dataclass
class Compiled:
    """What the compiler's texts say of a kernel, by line of the student's file.

    Attributes:
        functions: by line, names of functions of CUDA's library, as `tanhf`, and of calls.
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
    """What a kernel's texts say of the lines of the student's file with this name."""
    found = Compiled()
    for text in kernel.texts:
        if text.kind in READ:
            READ[text.kind](unpack(text), file, found)
    return found


def unpack(text: CompiledText) -> str:
    """The text; "" if it is not packed as it should be. Cut at MAX_TEXT bytes."""
    try:
        packed = base64.b64decode(text.packed, validate=True)
        return zlib.decompressobj().decompress(packed, MAX_TEXT).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError, zlib.error):
        return ""


def _lines(text: str) -> Iterator[str]:
    return (line.strip()[:MAX_LINE] for line in text.split("\n", MAX_LINES)[:MAX_LINES])


def _own(places: Places, file: str) -> int:
    """The innermost line in a file with this name; 0 if there is none."""
    return next((line for name, line in places if name.rpartition("/")[2] == file), 0)


# TTGIR ----------------------------------------------------------------------------------------------------------------


def _read_ttgir(text: str, file: str, found: Compiled) -> None:
    lines = list(_lines(text))
    locations = {name: value for name, equals, value in (line.partition(" = ") for line in lines) if equals}
    known: dict[str, Places] = {}
    for line in lines:
        words = line.split(" ", 4)
        operation = next((word for word in words[:4] if word.startswith(("tt.", "ttg.", "ttng."))), "")
        if not operation:
            continue
        if operation in DOTS:
            found.has_dot = True
        _, _, end = line.rpartition(" loc(")
        own = _own(_places(end, locations, known), file)
        if operation == "tt.extern_elementwise" and (symbol := SYMBOL.search(line)):
            _add(found.functions, own, symbol[1].removeprefix("__nv_"))


def _add(functions: dict[int, list[str]], line: int, name: str) -> None:
    known = functions.setdefault(line, []) if len(functions) < MAX_ENTRIES else functions.get(line)
    if known is not None and len(known) < MAX_ENTRIES and name not in known:
        known.append(name)


def _places(location: str, locations: Mapping[str, str], known: dict[str, Places], depth: int = 0) -> Places:
    """The places that a location of MLIR names: `#loc3)`, `"name"(#loc3)`, `"file":7:3`, `callsite(#loc3 at #loc4)`."""
    if match := FILE_LINE.search(location):
        return [(match[1], int(match[2]))]
    found: Places = []
    for name in LOCATION.findall(location)[:2]:
        if name not in known and depth < MAX_CHAIN:
            known[name] = []  # for a location that names itself
            known[name] = _places(locations.get(name, ""), locations, known, depth + 1)
        found += known.get(name, [])
    return found[:MAX_CHAIN]


# PTX -----------------------------------------------------------------------------------------------------------------


def _read_ptx(text: str, file: str, found: Compiled) -> None:
    lines = list(_lines(text))
    files = {
        words[1]: words[2].strip('"')
        for line in lines
        if line.startswith(".file") and len(words := line.split(None, 2)) == 3
    }
    own, calls = 0, False
    for line in lines:
        if line.startswith(".loc"):
            own = _own(_ptx_places(line, files), file)
            continue
        if line.startswith("@"):
            line = line.partition(" ")[2].lstrip()
        if calls:  # the name may stand in the line after `call`
            calls = _read_call(line, own, found)
        opcode = line.partition(" ")[0].partition("\t")[0].rstrip(";")
        found.instructions += line.endswith(";") and opcode[:1].isalpha()
        parts = opcode.split(".")
        if opcode.startswith(TENSOR_CORES):
            found.has_tensor_cores = True
        elif parts[0] == "call":
            calls = _read_call(line, own, found)
        elif "f64" in parts and parts[0] not in ("ld", "st", "mov"):
            found.doubles += 1


def _ptx_places(line: str, files: Mapping[str, str]) -> Places:
    """The places of `.loc 2 43 17 // standard.py:43:17 @[ kernel.py:7:28 ]`."""
    code, _, comment = line.partition("//")
    places = [one.strip(" ]").rsplit(":", 2) for one in comment.split("@[", MAX_CHAIN)]
    if found := [(one[0], int(one[1])) for one in places if len(one) == 3 and NUMBER.fullmatch(one[1])]:
        return found
    words = code.split()
    return [(files.get(words[1], ""), int(words[2]))] if len(words) > 2 and NUMBER.fullmatch(words[2]) else []


def _read_call(line: str, own: int, found: Compiled) -> bool:
    """Note the name of a called function. Returns whether it may stand in the next line."""
    names = [part.strip() for part in line.rpartition("call")[2].split(",")]
    name = next(
        (one for one in names if re.fullmatch(r"[A-Za-z_$][\w$]{0,59}", one) and not one.startswith("retval")), ""
    )
    if name:
        _add(found.functions, own, name.removeprefix("__nv_"))
    return not name and not line.endswith(";")


READ = {"ttgir": _read_ttgir, "ptx": _read_ptx}  # by the kind of a text; SASS is for people
