"""FlashAttention under a causal mask: which tiles of S exist, what a program carries along, what the backward computes again."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from docs.pictures.drawing import WIDTH, arrow, box, boxed, heading, picture
from grader.assignment import load_assignment
from grader.report.svg import Mark, Plot, label, line, path

TILE = 64  # queries and keys of a tile
CASE = "again"  # of the course: five tiles, the last one partial
ROW, COLUMN, QUERY = 3, 1, 200  # a program that keeps queries, one that keeps keys, and a query of the former
LEFT, TOP, PIXELS = 44, 94, 1.0  # of the map; pixels to a query or key
Kind = Literal["computed", "masked", "skipped"]
LOOKS: dict[Kind, str] = {"computed": "tint-own", "masked": "tint-own", "skipped": "idle dashed"}


def length(folder: Path) -> int:
    """The number of tokens of the course's case."""
    part = load_assignment(folder).spec.parts[0]
    return int(next(case.params["n"] for case in part.cases if case.name == CASE))


def tiles(n: int) -> Iterator[tuple[int, int, Kind]]:
    """Tile row, tile column and what becomes of each tile of S, by its first and last query and key."""
    for row in range(math.ceil(n / TILE)):
        for column in range(math.ceil(n / TILE)):
            last_query, last_key = min((row + 1) * TILE, n) - 1, min((column + 1) * TILE, n) - 1
            kind: Kind = (
                "computed" if last_key <= row * TILE else "masked" if column * TILE <= last_query else "skipped"
            )
            yield row, column, kind


def tile_map(n: int, names: bool = True) -> list[Mark]:
    """The tiles to scale. In masked ones the scores above the diagonal are −∞."""
    marks = [
        label(LEFT + n * PIXELS / 2, TOP - 28, "keys", "strong", "middle"),
        label(0, TOP - 28, "queries", "strong"),
    ]
    for row, column, kind in tiles(n):
        x, y = LEFT + column * TILE * PIXELS, TOP + row * TILE * PIXELS
        width, height = (PIXELS * min(TILE, n - one * TILE) for one in (column, row))
        if kind == "masked":
            marks.append(path(f"M{x} {y} H{x + width} V{y + height} Z", "hidden"))
        marks.append(box(x, y, width, height, LOOKS[kind], 0))
        if names and width == TILE * PIXELS:
            look = "small quiet" if kind == "skipped" else "small"
            marks.append(label(x + width / 2, y + height / 2, kind, look, "middle"))
        if row == 0:
            marks.append(label(x, TOP - 8, str(column * TILE), "tick"))
        if column == 0:
            marks.append(label(LEFT - 6, y + 8, str(row * TILE), "tick", "end"))
    marks.append(label(LEFT + n * PIXELS, TOP - 8, str(n), "tick", "middle"))
    return [*marks, label(LEFT - 6, TOP + n * PIXELS, str(n), "tick", "end")]


def scores(n: int) -> list[float]:
    """Scores of one query: scale · q · k with numbers drawn as a course's case draws them, from a standard normal distribution."""
    draw, d = random.Random(9), 64  # with this seed the maximum moves twice
    q = [draw.gauss(0, 1) for _ in range(d)]
    return [sum(a * draw.gauss(0, 1) for a in q) / math.sqrt(d) for _ in range(n)]


def online(n: int) -> Iterator[tuple[int, int, float, float, float]]:
    """For the query: first and last key that it sees in a tile, then m, l and the factor exp(m − m') after it."""
    seen, m, total = scores(n)[: QUERY + 1], -math.inf, 0.0
    for start in range(0, len(seen), TILE):
        tile = seen[start : start + TILE]
        new = max(m, *tile)
        factor = math.exp(m - new)
        m, total = new, factor * total + sum(math.exp(s - new) for s in tile)
        yield start, start + len(tile) - 1, m, total, factor


def counted(n: int) -> Counter[Kind]:
    return Counter(kind for _, _, kind in tiles(n))


def forward(folder: Path) -> Plot:
    n = length(folder)
    large = int(load_assignment(folder).spec.parts[0].speed[0].params["n"])
    marks = heading(
        "Causal tiles: half of S is never computed, and none of it is kept",
        f"S for n = {n} tokens in tiles of {TILE} × {TILE}; query i sees keys 0 … i",
    )
    marks += tile_map(n)
    y, reach, side = TOP + ROW * TILE * PIXELS, (ROW + 1) * TILE * PIXELS, TILE * PIXELS
    marks.append(box(LEFT, y, reach, side, "edge-other thick", 2))
    marks += arrow(LEFT + 8, y + side - 10, LEFT + reach - 8, y + side - 10, "arrow-other")
    marks += carried(n, LEFT + n * PIXELS + 48)
    few, many = counted(n), counted(large)
    words = (
        f"At n = {large}, the speed case: {many['computed']} tiles computed, {many['masked']} masked, {many['skipped']} skipped: "
        f"{(many['computed'] + many['masked']) / many.total():.0%} of {many.total()} are visited."
    )
    marks.append(label(0, TOP + n * PIXELS + 34, words, "strong"))
    description = (
        f"A map of the scores for {n} queries and keys in tiles of {TILE} by {TILE}: {few['computed']} tiles below the diagonal are "
        f"computed, {few['masked']} on it are computed and masked, {few['skipped']} above it are skipped. One program goes along its row "
        f"of tiles with the running maximum m and sum l; a table has their values for query {QUERY} after each tile."
    )
    height = int(TOP + n * PIXELS + 46)
    return picture("flash_attention", "Causal tiles of the FlashAttention forward pass", description, height, marks)


def carried(n: int, left: float) -> list[Mark]:
    """What one program carries along its row of tiles, with the numbers of one query."""
    steps = list(online(n))
    m, total = steps[-1][2:4]
    if not math.isclose(m + math.log(total), math.log(sum(map(math.exp, scores(n)[: QUERY + 1]))), rel_tol=1e-12):
        raise ValueError("the tiles' m + log(l) is not the log-sum-exp of the row")
    marks = [
        label(left, TOP, f"One program: queries {ROW * TILE} … {(ROW + 1) * TILE - 1}", "strong other"),
        label(left, TOP + 20, f"goes along {ROW} computed tiles and a masked one, then stops."),
        label(left, TOP + 38, f"It carries m, l and A of each query. For query {QUERY}, after"),
        line(left, TOP + 77, left + 330, TOP + 77, "grid"),
    ]
    table = [("the keys", "m", "exp(m − m')", "l")]
    table += [(f"{a} … {b}", f"{m:.3f}", f"{f:.4f}" if a else "0", f"{total:.3f}") for a, b, m, total, f in steps]
    for number, cells in enumerate(table):
        for column, words in zip((0, 110, 180, 285), cells, strict=True):
            marks.append(label(left + column, TOP + 66 + number * 20, words, "code" if number else "quiet"))
    told = [
        ("m' = max(m, rowmax(S)),  P' = exp(S − m')", "code"),
        ("l' = exp(m − m') · l + rowsum(P')", "code"),
        ("A' = exp(m − m') · A + P' V", "code"),
        ("At the end O = A / l, and for the backward only", ""),
        (f"L = m + log(l) is kept: {m + math.log(total):.3f} for query {QUERY}", ""),
    ]
    below = TOP + 74 + len(table) * 20
    return marks + [label(left, below + 19 * number, words, look) for number, (words, look) in enumerate(told)]


# Backward: the boxes of one tile, by column and line. Saved by the forward, computed once, computed anew in every tile, or a gradient.
KEPT, ONCE, ANEW, RESULT = "tint-good", "tint-other", "tint-odd dashed", "tint-own"


def backward(folder: Path) -> Plot:
    n = length(folder)
    (memory,) = (case for case in load_assignment(folder).spec.parts[1].cases if case.name == "memory")
    large = int(memory.params["n"])
    marks = heading(
        "Backward: P was not kept, so every tile of it is computed again, from L",
        f"the same tiles, n = {n}; two kernels, so that no sum needs atomic additions",
    )
    marks += tile_map(n, names=False)
    count = math.ceil(n / TILE)
    x, y, side = LEFT + COLUMN * TILE * PIXELS, TOP + ROW * TILE * PIXELS, TILE * PIXELS
    bottom = TOP + n * PIXELS
    marks.append(box(x, TOP + COLUMN * side, side, bottom - TOP - COLUMN * side, "edge-own thick", 2))
    marks += arrow(x + side / 2, TOP + COLUMN * side + 8, x + side / 2, bottom - 8, "arrow-own")
    marks.append(box(LEFT, y, (ROW + 1) * side, side, "edge-other thick", 2))
    marks += arrow(LEFT + 8, y + side / 2 + 12, LEFT + (ROW + 1) * side - 8, y + side / 2 + 12, "arrow-other")
    below = [
        (
            f"dK, dV: keys {COLUMN * TILE} … {(COLUMN + 1) * TILE - 1} stay, {count - COLUMN} tiles of queries go by",
            "own",
        ),
        (f"dQ: queries {ROW * TILE} … {(ROW + 1) * TILE - 1} stay, {ROW + 1} tiles of keys go by", "other"),
    ]
    marks += [label(0, bottom + 24 + 18 * number, words, look) for number, (words, look) in enumerate(below)]
    marks += in_one_tile(LEFT + n * PIXELS + 50)
    kept = f"P would take {large**2 * 4 / 2**30:g} GiB; L takes {large * 4 / 2**10:g} KiB."
    marks.append(label(0, bottom + 70, f"At n = {large}, one batch entry in float32: {kept}", "strong"))
    description = (
        f"On the map of causal tiles a program that keeps keys {COLUMN * TILE} to {(COLUMN + 1) * TILE - 1} goes down the queries for dK "
        f"and dV, and one that keeps queries {ROW * TILE} to {(ROW + 1) * TILE - 1} goes along the keys for dQ. In a tile, S and "
        "P = exp(S − L) are computed again from Q, K and the saved L; dP comes from dO and V; dS = P ∘ (dP − delta); P gives dV, and dS "
        "gives dQ and dK."
    )
    title = "What the FlashAttention backward pass recomputes"
    return picture("flash_attention-backward", title, description, int(bottom + 82), marks)


def in_one_tile(left: float) -> list[Mark]:
    """How the gradients come about in one tile."""
    width, height, row = 160, 30, 58
    right, top = WIDTH - width, TOP - 6
    middle = (left + width + right) / 2
    boxes = [
        (left, 0, KEPT, "Q, K"),
        (right, 0, KEPT, "dO, V"),
        (left, 1, ANEW, "S = scale · Q Kᵀ"),
        (right, 1, ANEW, "dP = dO Vᵀ"),
        (left, 2, ANEW, "P = exp(S − L)"),
        (right, 2, ANEW, "dS = P ∘ (dP − delta)"),
        (left, 3, RESULT, "dV += Pᵀ dO"),
        (right, 3, RESULT, "dK += scale · dSᵀ Q"),
    ]
    marks = [label(left, TOP - 22, "In one tile", "strong")]
    for x, place, look, words in boxes:
        marks += boxed(x, top + place * row, width, height, look, words)
        if place:
            marks += arrow(x + width / 2, top + (place - 1) * row + height, x + width / 2, top + place * row)
    second, third = top + row, top + 2 * row
    marks += boxed(middle - 38, second, 26, height, KEPT, "L")
    marks += boxed(middle - 8, second, 46, height, ONCE, "delta")
    marks += arrow(middle - 25, second + height, left + width - 16, third)
    marks += arrow(middle + 15, second + height, right + 16, third)
    marks += arrow(left + width, third + height / 2, right, third + height / 2)
    marks += boxed(right, top + 3 * row + height, width, height, RESULT, "dQ += scale · dS K")
    looks = [
        (KEPT, "saved by the forward; dO comes in"),
        (ONCE, "delta = rowsum(dO ∘ O), once for each query"),
        (ANEW, "computed again in every tile, then forgotten"),
        (RESULT, "gradients, summed over tiles"),
    ]
    for number, (look, words) in enumerate(looks):
        y = top + 4.4 * row + 19 * number
        marks += [box(left, round(y, 1), 14, 14, look, 2), label(left + 22, y + 7, words, "quiet")]
    return marks
