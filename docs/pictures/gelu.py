"""Both GeLUs: how blocks and programs share the elements out, and what the last one must not do. n is that of a case of the course."""

from __future__ import annotations

import math
from pathlib import Path

from docs.pictures.drawing import WIDTH, box, boxed, heading, picture
from grader.assignment import load_assignment
from grader.report.svg import Mark, Plot, label, line

CASE = "n-1048579"
THREADS, WARP, VECTOR = 256, 32, 4  # of a block, of a warp; floats of a float4
BLOCK_SIZE = 1024
SHOWN = 3  # blocks at the start, before those that are left out


def size(folder: Path) -> int:
    """The number of elements of the course's case."""
    (case,) = (one for part in load_assignment(folder).spec.parts for one in part.cases if one.name == CASE)
    return math.prod(case.params["shape"])


def blocks(n: int, size: int, name: str) -> list[Mark]:
    """The strip of memory, cut into the shares of blocks: the first, a gap, and the last two. The last is drawn as far as it is filled."""
    last = math.ceil(n / size) - 1
    width, top, height = 120, 70, 30
    marks = [label((SHOWN + 0.25) * width, top + height / 2, "…", "heading", "middle")]
    places = [*((number, number * width) for number in range(SHOWN)), (last - 1, (SHOWN + 0.5) * width)]
    for number, x in [*places, (last, (SHOWN + 1.5) * width)]:
        left = min(size, n - number * size)
        marks.append(label(x + width / 2, top - 14, f"{name} {number}", "", "middle"))
        marks.append(box(x, top, width, height, "idle dashed" if left < size else "idle", 0))
        filled = round(max(left / size * width, 2), 1)
        marks.append(box(x, top, filled, height, "tint-own" if left == size else "filled-own", 0))
        words = f"{number * size} … {number * size + size - 1}" if left == size else f"{left} of {size}"
        marks.append(label(x + width / 2, top + height / 2, words, "small", "middle"))
    return [*marks, label((SHOWN + 2.5) * width + 8, top + height / 2, "← the last one", "quiet")]


def zoom(left: float, right: float, bottom: float) -> list[Mark]:
    """Lines from the last block of the strip down to what it looks like from near."""
    return [
        line((SHOWN + 1.5) * 120, 100, left, bottom, "zoom"),
        line((SHOWN + 2.5) * 120, 100, right, bottom, "zoom"),
    ]


def cuda(folder: Path) -> Plot:
    n = size(folder)
    count = math.ceil(n / THREADS)
    last, live = count - 1, n - (count - 1) * THREADS
    cell, left, top = 14, 56, 140
    marks = heading(
        "One thread for each element, and a last block that is not full",
        f"n = {n} elements in blocks of {THREADS} threads: ⌈n / {THREADS}⌉ = {count} blocks, {count * THREADS} threads",
    )
    marks += [*blocks(n, THREADS, "block"), *zoom(left, left + WARP * cell, top - 4)]
    for thread in range(THREADS):
        warp, lane = divmod(thread, WARP)
        look = "filled-own" if thread < live else "idle"
        marks.append(box(left + lane * cell, top + warp * cell, cell, cell, look, 0))
        if lane == 0:
            marks.append(label(left - 6, top + warp * cell + cell / 2, f"warp {warp}", "tick", "end"))
    right = left + WARP * cell + 24
    told = [
        ("i = blockIdx.x · blockDim.x", "code"),
        ("    + threadIdx.x", "code"),
        (f"thread {live - 1}: i = {last * THREADS + live - 1} < n", "strong own"),
        ("reads x[i], writes y[i]", ""),
        (f"thread {live}: i = {last * THREADS + live} = n", "strong"),
        ("has no element: no read, no write;", ""),
        (f"as all {THREADS - live} from here on", ""),
    ]
    marks += [label(right, top + 8 + 17 * number, words, look) for number, (words, look) in enumerate(told)]
    marks += vectors(n, top + THREADS // WARP * cell + 44)
    description = (
        f"{n} elements are shared out to {count} blocks of {THREADS} threads. In the last block only the first {live} threads have an "
        f"element; the other {THREADS - live} must not read or write. Below: with float4, {n // VECTOR} threads take {VECTOR} neighbouring "
        f"elements each, and {n % VECTOR} elements are left over."
    )
    return picture("cuda_gelu", "Blocks and threads of the CUDA GeLU", description, 372, marks)


def vectors(n: int, top: float) -> list[Mark]:
    """The same elements four by four."""
    full, rest = divmod(n, VECTOR)
    told = f"{full} threads with a float4 of 16 bytes, and n mod {VECTOR} = {rest} elements one by one"
    marks = [label(0, top, "Four neighbours a thread", "strong"), label(0, top + 18, told, "quiet")]
    x, y, cell = 0.0, top + 40, 18
    for group in (0, 1, 2, None, full - 2, full - 1):
        if group is None:
            marks.append(label(x + 14, y + cell / 2, "…", "heading", "middle"))
            x += 36
            continue
        marks += [box(x + one * cell, y, cell, cell, "tint-own", 0) for one in range(VECTOR)]
        marks.append(box(x, y, VECTOR * cell, cell, "edge-own", 2))
        if group != full - 2:  # its label would run into the next one
            words = f"{group * VECTOR} … {group * VECTOR + VECTOR - 1}"
            marks.append(label(x + VECTOR * cell / 2, y + cell + 12, words, "tick", "middle"))
        x += VECTOR * cell + 32
    x += 30
    for number in range(rest):
        marks.append(box(x, y, cell, cell, "filled-own", 2))
        marks.append(label(x + cell / 2, y + cell + 12, str(n - rest + number), "tick", "middle"))
        x += cell + 44
    return marks


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def triton(folder: Path) -> Plot:
    n = size(folder)
    count = math.ceil(n / BLOCK_SIZE)
    start, live = (count - 1) * BLOCK_SIZE, n - (count - 1) * BLOCK_SIZE
    marks = heading(
        "Each program takes a tile of block_size elements; a mask keeps the last one inside",
        f"n = {n} elements, block_size = {BLOCK_SIZE}: ⌈n / {BLOCK_SIZE}⌉ = {count} programs",
    )
    left, width, top, row = 268, 76, 150, 30
    marks += [*blocks(n, BLOCK_SIZE, "program"), *zoom(left, WIDTH, top - 20)]
    steps = (
        "offsets = pid·block_size + tl.arange",
        "mask = offsets < n",
        "x = tl.load(…, mask, other=0)",
        "y = gelu(x)",
        "tl.store(…, y, mask)",
    )
    marks += [label(0, top + number * row + row / 2, words, "code") for number, words in enumerate(steps)]
    lanes: list[int | None] = [*range(live + 2), None, BLOCK_SIZE - 1]
    for column, lane in enumerate(lanes):
        x = left + column * width
        marks.append(label(x + width / 2, top - 8, "…" if lane is None else f"lane {lane}", "tick", "middle"))
        offset = start + (lane or 0)
        value = math.cos(offset)  # any numbers
        inside = offset < n
        cells = (
            ("1", f"{value:.4f}", f"{gelu(value):.4f}", "written")
            if inside
            else ("0", "0, not read", "0", "not written")
        )
        for number, words in enumerate((str(offset), *cells) if lane is not None else "…" * len(steps)):
            look = "tint-own" if inside and lane is not None else "idle"
            marks += boxed(x, top + number * row, width, row, look, words, "small" if inside else "small quiet")
    marks.append(label(left, top + len(steps) * row + 22, f"{live} lanes with an element", "strong own"))
    idle = f"{BLOCK_SIZE - live} lanes that neither read nor write"
    marks.append(label(WIDTH, top + len(steps) * row + 22, idle, "strong", "end"))
    description = (
        f"{n} elements are shared out to {count} programs of {BLOCK_SIZE} lanes. In the last program the mask offsets < n is 1 for {live} "
        f"lanes, which load, compute and store, and 0 for the other {BLOCK_SIZE - live}, which neither read x nor write y."
    )
    return picture("triton_gelu", "Programs, tiles and the mask of the Triton GeLU", description, 336, marks)
