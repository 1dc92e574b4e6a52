"""The online softmax: a row goes by in blocks, and what has been summed is moved to each new maximum."""

from __future__ import annotations

import math

from docs.pictures.drawing import arrow, boxed, heading, picture
from grader.report.svg import Axis, Mark, Plot, label, line, rectangle

ROW = (1.0, 0.2, 1.4, 0.7, 2.0, 0.9, 2.6, 1.7, 0.5, 2.2, 1.2)
BLOCK = 4
PANEL, GAP, BAR = 248, 28, 16
STRIP, TOP, BOTTOM = 62, 168, 300  # of the row, of the bars


def steps() -> list[tuple[float, float, float, float]]:
    """After each block: the maximum m, the sum l, the factor that moved the old sum, and the block's own share of l."""
    m, total, found = -math.inf, 0.0, []
    for start in range(0, len(ROW), BLOCK):
        block = ROW[start : start + BLOCK]
        new = max(m, *block)
        factor, share = math.exp(m - new), sum(math.exp(x - new) for x in block)
        m, total = new, total * factor + share
        found.append((m, total, factor, share))
    return found


def online() -> Plot:
    found = steps()
    whole = sum(math.exp(x - max(ROW)) for x in ROW)
    if not math.isclose(found[-1][1], whole, rel_tol=1e-12):
        raise ValueError(f"the online sum is {found[-1][1]} and that of the whole row {whole}")
    marks = heading(
        "Online softmax: when the maximum rises, the old sum shrinks to the new reference",
        f"a row of {len(ROW)} numbers in blocks of {BLOCK}; bars are exp(x − m), and l is their sum",
    )
    for number, step in enumerate(found):
        left = number * (PANEL + GAP)
        marks += row_of(left, number)
        marks += arrow(left + PANEL / 2, STRIP + 34, left + PANEL / 2, STRIP + 54)
        marks += bars(left, number, step[0])
        marks += words(left, number, found)
    m, total = found[-1][:2]
    last = f"After the last block: m = {m:g} and l = {total:.4f}, as if the whole row had been there at once"
    marks.append(label(0, 424, last, "strong"))
    marks.append(label(0, 444, "A second pass over the row writes y = exp(x − m) / l.", ""))
    told = "; ".join(f"m = {m:g}, l = {total:.4f}" for m, total, _, _ in found)
    description = (
        f"A row of {len(ROW)} numbers goes by in blocks of {BLOCK}. After each block, the largest number so far and the sum of "
        f"exp(x − m): {told}. Where the maximum rises, what was summed before is multiplied by exp(m − m'). The lanes beyond the row hold "
        "minus infinity and add nothing."
    )
    return picture("softmax", "The online softmax over the blocks of a row", description, 454, marks)


def row_of(left: float, number: int) -> list[Mark]:
    """The numbers of a block; a lane beyond the row holds −∞."""
    width, marks = PANEL / BLOCK, [label(left, STRIP - 10, f"block {number}", "strong")]
    for lane in range(BLOCK):
        column = number * BLOCK + lane
        inside = column < len(ROW)
        look = "tint-own" if inside else "tint-odd dashed"
        marks += boxed(
            left + lane * width, STRIP, width, 28, look, f"{ROW[column]:g}" if inside else "−∞", "" if inside else "odd"
        )
    if (number + 1) * BLOCK > len(ROW):
        marks.append(label(left + PANEL, STRIP - 10, "beyond the row: exp(−∞ − m) = 0", "small odd", "end"))
    return marks


def bars(left: float, number: int, m: float) -> list[Mark]:
    """exp(x − m) of all that has been seen; earlier blocks' bars within what they were before this block."""
    scale = Axis(0, 1, BOTTOM, TOP)
    before = max(ROW[: number * BLOCK], default=m)
    marks = [
        line(left, scale.at(1), left + PANEL, scale.at(1), "limit"),
        line(left, BOTTOM, left + PANEL, BOTTOM, "frame"),
    ]
    marks.append(label(left + PANEL, scale.at(1) - 10, f"exp(m − m) = 1 for x = m = {m:g}", "tick", "end"))
    pitch = PANEL / (math.ceil(len(ROW) / BLOCK) * BLOCK)
    for column, x in enumerate(ROW):
        place = left + column * pitch + (pitch - BAR) / 2
        if column >= (number + 1) * BLOCK:
            marks.append(rectangle(round(place, 1), BOTTOM - 2, BAR, 2, "idle"))
            continue
        is_old = column < number * BLOCK
        if is_old and before < m:
            height = BOTTOM - scale.at(math.exp(x - before))
            marks.append(rectangle(round(place, 1), round(BOTTOM - height, 1), BAR, round(height, 1), "ghost"))
        top = scale.at(math.exp(x - m))
        marks.append(
            rectangle(round(place, 1), top, BAR, round(BOTTOM - top, 1), "filled-other" if is_old else "filled-own")
        )
    return marks


def words(left: float, number: int, found: list[tuple[float, float, float, float]]) -> list[Mark]:
    """What becomes of m and l in a block, in numbers."""
    m, total, factor, share = found[number]
    old_m, old_total = found[number - 1][:2] if number else (-math.inf, 0.0)
    told = f"max({old_m:g}, …) = {m:g}".replace("-inf", "−∞")
    marks = [label(left, BOTTOM + 24, f"m = {told}", "code")]
    if not number:
        return [*marks, label(left, BOTTOM + 44, f"l = {share:.4f}", "code own")]
    note = (
        f"m rose: the old bars × exp({old_m:g} − {m:g}) = {factor:.4f}" if factor < 1 else "m stays: the old bars stay"
    )
    return [
        *marks,
        label(left, BOTTOM + 44, f"l = {old_total:.4f} · {factor:.4f}", "code other"),
        label(left, BOTTOM + 62, f"  + {share:.4f}", "code own"),
        label(left, BOTTOM + 80, f"  = {total:.4f}", "code"),
        label(left, BOTTOM + 98, note, "small other"),
    ]
