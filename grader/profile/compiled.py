"""Reads what a compiler made of a Triton kernel, by lines of the student's file.

The texts come from the student's process. Each is read once, line by line, up to a limit; a text of another form gives
nothing.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from grader.protocol import CompiledKernel, CompiledText, TracedAccess

MAX_TEXT = 4 << 20
MAX_LINES, MAX_LINE = 100_000, 4000
MAX_CHAIN = 16  # Inlined calls are followed through at most this many levels.
MAX_ENTRIES = 2000
MAX_AXES = 5
MAX_LENGTH = 1 << 20  # Triton allows no block with more elements.
SECTOR_BYTES = 32
WARP = 32
WIDEST_BYTES = 16  # A thread loads or stores at most this many bytes by one instruction.

Verb: TypeAlias = Literal["reads", "writes"]
Places: TypeAlias = list[tuple[str, int]]  # file and line of an instruction, and of the calls that it is inlined from

BLOCKED = re.compile(r"#ttg\.blocked<\{([^{}]{1,400})\}>")
NUMBERS = re.compile(r"(sizePerThread|threadsPerWarp|warpsPerCTA|order) = \[([0-9, ]{1,60})\]")
SLICE = re.compile(r"#ttg\.slice<\{dim = ([0-4]), parent = ")
ALIAS = re.compile(r"#[A-Za-z_]\w{0,30}")
LOCATION = re.compile(r"#loc\d{0,8}")
FILE_LINE = re.compile(r'"([^"]{1,400})":(\d{1,8}):\d{1,8}')
NUMBER = re.compile(r"[0-9]{1,8}")
SYMBOL = re.compile(r'symbol = "(\w{1,60})"')
TYPE = re.compile(r"[bsuf](8|16|32|64|128)")
READERS = ("tt.load", "ttg.async_copy_global_to_local")
WRITERS = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas")
DOTS = ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")
TENSOR_CORES = ("mma.sync.", "wgmma.mma_async.", "tcgen05.mma.")


@dataclass(frozen=True)
class Layout:
    """A blocked layout: which elements of a block each thread holds. Numbers are by axis.

    Attributes:
        order: the axes, the one along which threads are numbered first.
        sliced: axes that the block lacks. The threads along them hold the same elements.
    """

    size_per_thread: tuple[int, ...]
    threads_per_warp: tuple[int, ...]
    warps: tuple[int, ...]
    order: tuple[int, ...]
    sliced: tuple[int, ...] = ()


@dataclass
class Compiled:
    """What the compiler's texts say of a kernel, by line of the student's file.

    Attributes:
        widths: by verb and line, bytes of a thread's widest access to global memory.
        layouts: by verb and line, the layouts of the blocks of pointers.
        functions: by line, names of functions of CUDA's library, as `tanhf`, and of calls.
        instructions, doubles: of PTX, each counted once; `doubles` are those on float64.
        has_dot, has_tensor_cores: whether products of tiles are computed, and whether by tensor cores.
    """

    widths: dict[tuple[Verb, int], int] = field(default_factory=dict)
    layouts: dict[tuple[Verb, int], list[Layout]] = field(default_factory=lambda: defaultdict(list))
    functions: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
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


def coalescing(access: TracedAccess, layout: Layout, instruction_bytes: int = 0) -> float | None:
    """Sectors of 32 bytes that a warp's request moves, by the fewest that could hold its bytes, on average over the
    requests of a block. The block is taken to start at a sector, and no lane to be masked.

    Args:
        instruction_bytes: width of a thread's access; by default, as wide as layout and steps allow.

    Returns: None if steps or layout are not known, or do not fit each other.
    """
    steps, block, width = list(access.steps), list(access.block), access.width_bytes
    for axis in sorted(layout.sliced):
        steps.insert(axis, 0)
        block.insert(axis, 1)
    axes = range(len(block))
    if not block or not 0 < width <= WIDEST_BYTES or not _fits(layout, block, steps):
        return None
    first = layout.order[0]
    vector = 1
    if steps[first] == width:
        allowed = max(width, min(WIDEST_BYTES, instruction_bytes or WIDEST_BYTES)) // width
        vector = min(layout.size_per_thread[first], block[first], 1 << (allowed.bit_length() - 1))
    # The bits of an element's index along an axis, from the last: place in a thread's run, thread, warp, repetition.
    runs, threads = layout.size_per_thread, layout.threads_per_warp
    lanes = _offsets([[thread * runs[axis] for thread in range(threads[axis])] for axis in axes], block, steps)
    chunks = [range(0, runs[axis], vector if axis == first else 1) for axis in axes]
    of_warps = [range(0, block[axis], runs[axis] * threads[axis]) for axis in axes]
    starts = [
        sorted({(one + start) % block[axis] for one in chunks[axis] for start in of_warps[axis]}) for axis in axes
    ]
    moved = least = 0
    known: dict[int, int] = {}
    size = vector * width
    fewest = _fewest(lanes, size)
    for origin in _offsets(starts, block, steps, distinct=False):
        remainder = origin % SECTOR_BYTES
        if remainder not in known:
            ends = ((remainder + lane, remainder + lane + size - 1) for lane in lanes)
            known[remainder] = len(
                {sector for start, end in ends for sector in range(start // SECTOR_BYTES, end // SECTOR_BYTES + 1)}
            )
        moved += known[remainder]
        least += fewest
    return moved / least


def _fewest(lanes: list[int], size: int) -> int:
    """The fewest sectors that hold the different bytes of lanes, each with `size` bytes from its offset on."""
    count, end = 0, -(1 << 63)
    for lane in sorted(lanes):
        count += lane + size - max(lane, end)
        end = lane + size
    return -(-count // SECTOR_BYTES)


def _fits(layout: Layout, block: list[int], steps: list[int]) -> bool:
    parts = (layout.size_per_thread, layout.threads_per_warp, layout.warps)
    return (
        len(block) == len(steps) == len(layout.order) <= MAX_AXES
        and all(len(part) == len(block) for part in parts)
        and sorted(layout.order) == list(range(len(block)))
        and math.prod(layout.threads_per_warp) == WARP
        and all(0 < one <= MAX_LENGTH and one & (one - 1) == 0 for part in (*parts, block) for one in part)
        and math.prod(block) <= MAX_LENGTH
    )


def _offsets(indices: list[list[int]], block: list[int], steps: list[int], distinct: bool = True) -> list[int]:
    """Distances in bytes of all elements with these indices, which wrap around at the block's end."""
    along = [
        [index % length * step for index in ones] for ones, length, step in zip(indices, block, steps, strict=True)
    ]
    sums = (sum(one) for one in itertools.product(*along))
    return sorted(set(sums)) if distinct else list(sums)


def _lines(text: str) -> Iterator[str]:
    return (line.strip()[:MAX_LINE] for line in text.split("\n", MAX_LINES)[:MAX_LINES])


def _own(places: Places, file: str) -> int:
    """The innermost line in a file with this name; 0 if there is none."""
    return next((line for name, line in places if name.rpartition("/")[2] == file), 0)


# TTGIR ----------------------------------------------------------------------------------------------------------------


def _read_ttgir(text: str, file: str, found: Compiled) -> None:
    lines = list(_lines(text))
    aliases: dict[str, str] = {}
    locations: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition(" = ")
        if equals and name.startswith("#"):
            if LOCATION.fullmatch(name):
                locations[name] = value
            elif ALIAS.fullmatch(name):
                aliases[name] = value
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
        elif operation in READERS + WRITERS and (layout := _layout(_of_pointers(line), aliases)) is not None:
            _add(found.layouts, ("reads" if operation in READERS else "writes", own), layout)


def _add(table: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if (key in table or len(table) < MAX_ENTRIES) and len(table[key]) < MAX_ENTRIES and value not in table[key]:
        table[key].append(value)


def _of_pointers(line: str) -> str:
    """The layout of the first block of pointers in an operation: `#blocked` of `tensor<64x!tt.ptr<f32>, #blocked>`."""
    _, _, rest = line.partition("x!tt.ptr<")
    _, _, rest = rest.partition(">, ")
    depth = 0
    for at, letter in enumerate(rest[:600]):
        depth += (letter == "<") - (letter == ">")
        if depth < 0:
            return rest[:at]
    return ""


def _layout(text: str, aliases: Mapping[str, str]) -> Layout | None:
    sliced: list[int] = []
    for _ in range(2 * MAX_AXES):
        if match := SLICE.match(text):
            sliced.append(int(match[1]))
            text = text[match.end() :].removesuffix("}>")
        elif match := BLOCKED.fullmatch(text):
            numbers = {name: tuple(map(int, found.split(", "))) for name, found in NUMBERS.findall(match[1])}
            if len(numbers) < 4 or len(sliced) > 1:
                return None
            return Layout(
                numbers["sizePerThread"],
                numbers["threadsPerWarp"],
                numbers["warpsPerCTA"],
                numbers["order"],
                tuple(sliced),
            )
        elif text not in aliases:
            return None
        else:
            text = aliases[text]
    return None


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
        if parts[0] in ("ld", "st") and "global" in parts:
            if width := _width(parts):
                _widen(found, "reads" if parts[0] == "ld" else "writes", own, width)
        elif opcode.startswith("cp.async."):
            _read_copy(parts, line, own, found)
        elif opcode.startswith(TENSOR_CORES):
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


def _width(parts: list[str]) -> int:
    """Bytes of a thread's access by an instruction as `ld.global.v4.b32`."""
    size = TYPE.fullmatch(parts[-1])
    many = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
    return many * int(size[1]) // 8 if size else 0


def _read_copy(parts: list[str], line: str, own: int, found: Compiled) -> None:
    """`cp.async.ca.shared.global [to], [from], 16;`. A copy by the copy engine tells no width."""
    if "bulk" in parts:
        return
    operands = line.replace(";", "").split("], ")
    size = operands[2].split(",")[0].strip() if len(operands) > 2 else ""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,2}|\d{1,2}", size):
        _widen(found, "reads", own, int(size, 0))


def _read_call(line: str, own: int, found: Compiled) -> bool:
    """Note the name of a called function. Returns whether it may stand in the next line."""
    names = [part.strip() for part in line.rpartition("call")[2].split(",")]
    name = next(
        (one for one in names if re.fullmatch(r"[A-Za-z_$][\w$]{0,59}", one) and not one.startswith("retval")), ""
    )
    if name:
        _add(found.functions, own, name.removeprefix("__nv_"))
    return not name and not line.endswith(";")


def _widen(found: Compiled, verb: Verb, line: int, width: int) -> None:
    place = verb, line
    if place in found.widths or len(found.widths) < MAX_ENTRIES:
        found.widths[place] = max(width, found.widths.get(place, 0))


READ = {"ttgir": _read_ttgir, "ptx": _read_ptx}  # by the kind of a text; SASS is for people
