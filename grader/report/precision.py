"""The plots of correctness: errors against their budgets, and the map of a wrong output."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from grader.report.model import (
    FINE,
    IS_NAN,
    LEVELS,
    NO_ELEMENT,
    OUTSIDE,
    UNWRITTEN,
    ErrorMap,
    OutputError,
    Report,
)
from grader.report.style import counted, shortened
from grader.report.svg import WIDTH, Axis, Mark, Plot, dot, grid, label, line, rectangle

# Errors against budgets -----------------------------------------------------------------------------------------------

NONE, ENDLESS = 1e-9, 1e9  # places of an error of 0 and of an infinite error


def of_budget(errors: Sequence[OutputError]) -> float | None:
    """The largest error of a case as a share of its budget, of the worst element or the root mean square; None if none was measured."""
    pairs = [pair for one in errors for pair in ((one.worst, one.worst_budget), (one.rms, one.rms_budget))]
    return max((_of(error, budget) for error, budget in pairs), default=None)


def _of(error: float, budget: float) -> float:
    if error == 0:
        return 0.0
    return math.inf if math.isnan(error) or budget <= 0 else error / budget


def precision(report: Report) -> Plot | None:
    """All cases by group, on an axis from no error to beyond every budget; None if no case compares numbers."""
    lanes = [(one.title_of(part), group) for one, part in report.parts for group in part.groups]
    lanes = [(head, group) for head, group in lanes if any(case.errors for case in group.cases)]
    shares = [share for _, group in lanes for case in group.cases if (share := of_budget(case.errors))]
    if not lanes:
        return None
    least = min((share for share in shares if share > NONE), default=0.1)
    most = max((share for share in shares if share < ENDLESS), default=1.0)
    axis = Axis(min(least, 0.1) / 3, max(most, 10.0) * 3, 250, WIDTH - 20, log=True)
    marks: list[Mark] = []
    y, seen = 8.0, ""
    for head, group in lanes:
        if head != seen:
            y, seen = y + 16, head
            marks.append(label(0, y, head, "strong"))
            y += 20
        marks.append(label(0, y, shortened(group.title, 34)))
        marks.append(line(axis.start, y, axis.end, y, "grid"))
        for case in group.cases:
            if (share := of_budget(case.errors)) is not None:
                look = "bad" if share > 1 or case.outcome == "failed" else "good"
                marks.append(dot(axis.at(share), y, f"{look} seen-through", f"{case.title}: {share_words(share)}"))
        y += 20
    bottom = y - 4
    limit = axis.at(1.0)
    marks[:0] = [*grid(axis, 8, bottom), line(limit, 4, limit, bottom, "limit")]
    marks.append(label(limit, bottom + 28, "the budget", "tick", "middle"))
    rows = [
        (
            f"{head}: {case.title}",
            error.output,
            *(f"{value:.2g}" for value in (error.worst, error.worst_budget, error.rms, error.rms_budget)),
            share_words(of_budget([error]) or 0.0),
        )
        for head, group in lanes
        for case in group.cases
        for error in case.errors
    ]
    wrong = sum(share > 1 for share in shares)
    return Plot(
        "precision",
        "Errors against their budgets",
        f"A dot is a case: its largest error over the allowed one, on a logarithmic scale. {wrong} of "
        f"{sum(bool(case.errors) for _, group in lanes for case in group.cases)} cases lie beyond their budget, right of the line.",
        WIDTH,
        int(bottom + 36),
        marks,
        ("case", "output", "worst error", "budget", "root mean square", "budget", "of the budget"),
        rows,
    )


def share_words(share: float) -> str:
    """An error as a share of its budget, in words."""
    if share == math.inf:
        return "∞ or NaN"
    if share > 1:
        return f"{share:.3g} ×"
    return f"{share:.1%}" if share >= 1e-3 else "< 0.1%" if share > 0 else "0"


# The map of a wrong output --------------------------------------------------------------------------------------------

MAP_WIDTH, MAP_HEIGHT = 640, 384  # in pixels, of the cells at most
LARGEST_CELL = 14
LEFT = 90
ROOM = 16  # Numbers on an axis stand at least so many pixels apart.
SAID = {
    **{level: f"10{'⁰¹²³⁴⁵⁶⁷⁸'[at]} to 10{'¹²³⁴⁵⁶⁷⁸'[at]} budgets" for at, level in enumerate(LEVELS[:-1])},
    LEVELS[0]: "up to 10 budgets",
    LEVELS[1]: "10 to 100 budgets",
    LEVELS[-1]: "beyond 10⁸ budgets, or infinite",
    IS_NAN: "NaN",
    UNWRITTEN: "never written",
    OUTSIDE: "written outside of the tensor",
}


def error_map(found: ErrorMap, name: str) -> Plot:
    """The map of a wrong output, cell by cell, with the memory around the output."""
    across, down = len(found.cells[0]), len(found.cells)
    cell = max(1, min(LARGEST_CELL, MAP_WIDTH // max(across, 1)))
    height = max(1, min(LARGEST_CELL, MAP_HEIGHT // down))
    marks: list[Mark] = []
    top = 6
    strips = [("each matrix", found.matrices), ("memory before", found.before)]
    for title, strip in strips:
        if strip:
            side = max(1, min(LARGEST_CELL, MAP_WIDTH // len(strip)))
            marks += [label(LEFT - 8, top + LARGEST_CELL / 2, title, "tick", "end")]
            marks += _cells([strip], LEFT, top, side if strip is found.matrices else cell, LARGEST_CELL)
            top += LARGEST_CELL + 8
    marks += _cells(found.cells, LEFT, top, cell, height)
    bottom = top + down * height
    last = found.first + found.rows * (found.columns if found.folded else 1)
    rows, columns = Axis(found.first, last, top, bottom), Axis(0, found.columns, LEFT, LEFT + across * cell)
    marks += [label(LEFT - 8, max(rows.at(tick), top + 4), f"{tick:.0f}", "tick", "end") for tick in _whole(rows)]
    if found.after:
        marks += [label(LEFT - 8, bottom + 8 + LARGEST_CELL / 2, "memory after", "tick", "end")]
        marks += _cells([found.after], LEFT, bottom + 8, cell, LARGEST_CELL)
        bottom += LARGEST_CELL + 8
    marks += [label(columns.at(tick), bottom + 13, f"{tick:.0f}", "tick", "middle") for tick in _whole(columns)]
    counts = {mark: sum(row.count(mark) for row in (*found.cells, found.before, found.after)) for mark in SAID}
    one = found.cell_rows * found.cell_columns
    which = f": the matrix [{', '.join(map(str, found.at))}] of {' × '.join(map(str, found.leading))}"
    return Plot(
        name,
        f"Where {found.output} is wrong{which if found.at else ''}",
        f"{counted(found.rows, 'folded row' if found.folded else 'row')} from top to bottom, "
        f"{counted(found.columns, 'column')} from left to right; "
        f"{'a cell is one element' if one == 1 else f'a cell shows the worst of {found.cell_rows} × {found.cell_columns} elements'}. "
        "A budget is the error that is allowed.",
        WIDTH,
        int(bottom + 24),
        marks,
        ("mark", "cells", "rows", "columns"),
        [(SAID[mark], str(count), *_extent(found, mark)) for mark, count in counts.items() if count],
        _key(found, [mark for mark, count in counts.items() if count]),
    )


def _key(found: ErrorMap, marks: Sequence[str]) -> tuple[tuple[str, Mark], ...]:
    right = [("within budget", "fine")] if any(FINE in row for row in found.cells) else []
    looks = [*right, *((SAID[mark], f"mark-{mark}") for mark in marks)]
    return tuple((words, rectangle(1, 1, 10, 10, f"cell {look}")) for words, look in looks)


def _whole(axis: Axis) -> list[float]:
    """The axis' ticks that are whole numbers and have room beside each other."""
    found: list[float] = []
    for tick in axis.ticks():
        if tick == int(tick) and (not found or abs(axis.at(tick) - axis.at(found[-1])) >= ROOM):
            found.append(tick)
    return found


def _cells(rows: Sequence[str], left: int, top: int, width: int, height: int) -> list[Mark]:
    """Rows of marks as one path for each kind of mark: strokes as thick as a row is high, from the first cell of a run to its last."""
    kinds = dict.fromkeys(mark for row in rows for mark in row if mark != NO_ELEMENT)
    found = []
    for kind in kinds:
        steps = []
        for number, row in enumerate(rows):
            for run in re.finditer(f"{re.escape(kind)}+", row):
                steps.append(
                    f"M{left + run.start() * width} {top + number * height + height / 2:g}h{len(run[0]) * width}"
                )
        look = "fine" if kind == FINE else f"mark-{kind}"
        found.append(Mark("path", {"d": "".join(steps), "stroke-width": height, "class": f"cells {look}"}))
    return found


def _extent(found: ErrorMap, mark: str) -> tuple[str, str]:
    """The first and last row and column of cells with a mark, in elements; "" for a mark outside the tensor."""
    rows = [number for number, row in enumerate(found.cells) if mark in row]
    columns = [column for row in found.cells for column, one in enumerate(row) if one == mark]
    if not rows:
        return "", ""
    first = 0 if found.folded else found.first
    high = min((rows[-1] + 1) * found.cell_rows, found.rows) - 1
    wide = min((max(columns) + 1) * found.cell_columns, found.columns) - 1
    return (
        f"{first + rows[0] * found.cell_rows} to {first + high}",
        f"{min(columns) * found.cell_columns} to {wide}",
    )
