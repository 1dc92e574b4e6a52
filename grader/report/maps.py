"""The views of an error map: two rows of cells in a line of text on a terminal, with axes and a legend; and a plot on a page.

On a terminal with colour, a letter's foreground is the upper cell and its background the lower cell. Without colour, the shape shows
which of the two is wrong, and letters mark cells that hold no wrong number. A dumb terminal, as screen readers use, gets words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grader.report.model import FINE, IS_NAN, LEVELS, NO_ELEMENT, OUTSIDE, UNWRITTEN, ErrorMap
from grader.report.style import counted, plain
from grader.report.svg import WIDTH, Axis, Mark, Plot, label, rectangle
from grader.verdict.cells import factor, shrunk, worst_of

LINES = 12  # of text, with heading, axis and legend
RANGES = 3  # that words name


@dataclass(frozen=True)
class Kind:
    """Marks that look the same: their colour, their letter without colours, and their words in the legend."""

    marks: str
    colour: str
    letter: str
    words: str


KINDS = (
    Kind(NO_ELEMENT, "default", " ", ""),
    Kind(FINE, "grey42", "·", "within budget"),
    Kind(LEVELS[:1], "yellow3", "█", "up to 10 × the budget"),
    Kind(LEVELS[1:3], "dark_orange", "█", "up to 1000 ×"),
    Kind(LEVELS[3:], "red3", "█", "further off"),
    Kind(IS_NAN, "magenta3", "n", "NaN"),
    Kind(UNWRITTEN, "dodger_blue2", "u", "never written"),
    Kind(OUTSIDE, "cyan3", "o", "written outside"),
)
WRONG = KINDS[2:]
OF_MARK = {mark: kind for kind in KINDS for mark in kind.marks}
HALVES = "▀▄"


def heading(found: ErrorMap) -> str:
    """The map's output and matrix, and the elements of a cell."""
    name = found.output + (f"[{', '.join(map(str, found.at))}]" if found.at else "")
    size = f"{counted(found.rows, 'row')} × {counted(found.columns, 'column')}"
    if found.folded:
        size = f"{'rows of ' if found.rows > 1 else ''}{counted(found.columns, 'element')}"
    one = found.cell_rows * found.cell_columns == 1
    return f"{name}, {size}; a cell is {'one element' if one else f'{found.cell_rows} × {found.cell_columns} elements'}"


def extents(found: ErrorMap) -> Iterator[tuple[Kind, str, str]]:
    """Each kind of wrong marks with its rows and its columns, as exact as the cells; of writes around the output, where they are."""
    for kind in WRONG:
        rows = [number for number, row in enumerate(found.cells) if set(row) & set(kind.marks)]
        columns = [
            number for number, column in enumerate(zip(*found.cells, strict=True)) if set(column) & set(kind.marks)
        ]
        if rows:
            first = 0 if found.folded else found.first
            yield (
                kind,
                _ranges(rows, found.cell_rows, found.rows, first),
                _ranges(columns, found.cell_columns, found.columns),
            )
    for words, strip in (("before the first", found.before), ("after the last", found.after)):
        if strip:
            yield WRONG[-1], words, ""


def in_words(found: ErrorMap) -> list[str]:
    """For each kind of wrong marks a line with its rows and columns."""
    return [
        f"{kind.words}: rows {rows}, columns {columns}" if columns else f"{kind.words}: {rows} row"
        for kind, rows, columns in extents(found)
    ]


def _ranges(numbers: Sequence[int], step: int, size: int, first: int = 0) -> str:
    """Cells as ranges of rows or columns from `first` on, the first few."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(first + run[0] * step, first + min(run[-1] * step + step, size) - 1) for run in runs]
    told = ", ".join(f"{low}–{high}" if high > low else str(low) for low, high in ends[:RANGES])
    return f"{told} and {len(ends) - RANGES} more places" if len(ends) > RANGES else told


def rows_in(lines: int) -> int:
    """Rows of cells in so many lines: heading, axis and legend take three, and a line holds two."""
    return 2 * max(1, lines - 3)


class MapView:
    """A map in at most so many lines, in the width that there is."""

    def __init__(self, found: ErrorMap, lines: int = LINES) -> None:
        self._found = found
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_dumb_terminal:
            drawn = [plain(line) for line in (heading(self._found), *in_words(self._found)[: self._lines - 1])]
        else:
            drawn = self._drawn(options.max_width, console.color_system is not None and not console.no_color)
        yield from drawn

    def _drawn(self, width: int, has_colour: bool) -> list[Text]:
        found = self._found
        matrices = found.matrices if len({OF_MARK[mark].letter for mark in found.matrices}) > 1 else ""
        extras = [found.before, found.after, matrices]
        label = len(str(found.first + found.rows * (found.columns if found.folded else 1))) + 1
        shown = shrunk(found, rows_in(self._lines - sum(map(bool, extras))), width - label - 1)
        lines = [plain(heading(shown), "dim")]
        step = shown.cell_rows * (found.columns if found.folded else 1)
        inside = [(str(found.first + at * step), shown.cells[at : at + 2]) for at in range(0, len(shown.cells), 2)]
        for number, rows in [("", [shown.before]), *inside, ("", [shown.after])]:
            if rows[0]:
                lines.append(Text.assemble((f"{number:>{label}}│", "dim"), _pairs(rows, has_colour)))
        last = str(found.columns - 1)
        lines.append(
            plain(f"{'':{label}}└0{last:>{len(shown.cells[0]) - 1}}" if found.columns > 1 else f"{'':{label}}└0", "dim")
        )
        if matrices:
            row = "".join(worst_of([matrices], 1, factor(len(matrices), width - 20)))
            words = f"{found.output}[0] to [{', '.join(str(size - 1) for size in found.leading)}] "
            lines.append(Text.assemble((words, "dim"), _pairs([row], has_colour)))
        drawn = "".join(line.plain for line in lines[1:])
        lines.append(_legend("".join([*shown.cells, *extras]), drawn, has_colour))
        return lines


def _pairs(rows: Sequence[str], has_colour: bool) -> Text:
    """A line of text for one row of cells or two."""
    line, nothing = Text(), KINDS[0]
    for marks in zip(*rows, strict=True):
        above, below = (OF_MARK[mark] for mark in (*marks, NO_ELEMENT)[:2])
        if has_colour and above is nothing:
            line.append("▄" if below is not nothing else " ", below.colour)
        elif has_colour:
            line.append("▀", above.colour if below is nothing else f"{above.colour} on {below.colour}")
        elif above.letter == below.letter or below is nothing:
            line.append(above.letter)
        elif above in WRONG:
            line.append("█" if below in WRONG else "▀")
        else:
            line.append("▄" if below in WRONG else below.letter)
    return line


def _legend(marks: str, drawn: str, has_colour: bool) -> Text:
    """The kinds of marks, the worst first, with the letters that were drawn; cut to the line."""
    kinds = [kind for kind in reversed(KINDS[1:]) if set(kind.marks) & set(marks)]
    if has_colour:
        told = [Text.assemble(("■ ", kind.colour), (kind.words, "dim")) for kind in kinds]
        return Text("  ", no_wrap=True, overflow="crop").join(told)
    words = {kind.letter: "wrong" if kind.letter == "█" else kind.words for kind in kinds}
    wrong = [told for letter, told in words.items() if letter != KINDS[1].letter]
    words[HALVES] = f"{' or '.join(wrong) if len(wrong) < 3 else 'wrong'} in the upper or the lower cell"
    drawn_words = "  ".join(f"{letters} {told}" for letters, told in words.items() if set(letters) & set(drawn))
    return Text(drawn_words, "dim", no_wrap=True, overflow="crop")


# On a page ------------------------------------------------------------------------------------------------------------

MAP_WIDTH, MAP_HEIGHT = 640, 384  # in pixels, of the cells at most
LARGEST_CELL = 14
LEFT = 90
ROOM = 16  # between numbers on an axis


def map_plot(found: ErrorMap, name: str) -> Plot:
    """The map of a wrong output, cell by cell, with the memory around the output."""
    across, down = len(found.cells[0]), len(found.cells)
    cell = max(1, min(LARGEST_CELL, MAP_WIDTH // max(across, 1)))
    height = max(1, min(LARGEST_CELL, MAP_HEIGHT // down))
    marks: list[Mark] = []
    top = 6

    def strip(title: str, cells: str, wide: int) -> int:
        """Draw a row of cells with its title. Returns its height."""
        if not cells:
            return 0
        marks.append(label(LEFT - 8, top + LARGEST_CELL / 2, title, "tick", "end"))
        marks.extend(_strokes([cells], top, wide, LARGEST_CELL))
        return LARGEST_CELL + 8

    top += strip("each matrix", found.matrices, max(1, min(LARGEST_CELL, MAP_WIDTH // max(len(found.matrices), 1))))
    top += strip("memory before", found.before, cell)
    marks += _strokes(found.cells, top, cell, height)
    last = found.first + found.rows * (found.columns if found.folded else 1)
    rows = Axis(found.first, last, top, top + down * height)
    columns = Axis(0, found.columns, LEFT, LEFT + across * cell)
    marks += [label(LEFT - 8, max(rows.at(tick), top + 4), f"{tick:.0f}", "tick", "end") for tick in _whole(rows)]
    top += down * height + (8 if found.after else 0)
    top += strip("memory after", found.after, cell)
    marks += [label(columns.at(tick), top + 13, f"{tick:.0f}", "tick", "middle") for tick in _whole(columns)]
    drawn = "".join([*found.cells, found.before, found.after])
    which = (
        f": the matrix [{', '.join(map(str, found.at))}] of {' × '.join(map(str, found.leading))}" if found.at else ""
    )
    return Plot(
        name,
        f"Where {found.output} is wrong{which}",
        f"{heading(found)}. A budget is the error that is allowed.",
        WIDTH,
        int(top + 24),
        marks,
        ("what", "rows", "columns"),
        [(kind.words, *where) for kind, *where in extents(found)],
        [
            (
                kind.words.removesuffix("×") + "× the budget" * kind.words.endswith("×"),
                rectangle(1, 1, 10, 10, f"cell {_look(max(here))}"),
            )
            for kind in KINDS[1:]
            if (here := set(kind.marks) & set(drawn))
        ],
    )


def _whole(axis: Axis) -> list[float]:
    """The axis' ticks that are whole numbers and have room beside each other."""
    found: list[float] = []
    for tick in axis.ticks():
        if tick == int(tick) and (not found or abs(axis.at(tick) - axis.at(found[-1])) >= ROOM):
            found.append(tick)
    return found


def _look(mark: str) -> str:
    return "fine" if mark == FINE else f"mark-{mark}"


def _strokes(rows: Sequence[str], top: int, wide: int, high: int) -> Iterator[Mark]:
    """Rows of cells as one path for each kind of mark: strokes as thick as a row is high, from the first cell of a run to its last."""
    for mark in dict.fromkeys(mark for row in rows for mark in row if mark != NO_ELEMENT):
        steps = [
            f"M{LEFT + run.start() * wide} {top + number * high + high / 2:g}h{len(run[0]) * wide}"
            for number, row in enumerate(rows)
            for run in re.finditer(f"{re.escape(mark)}+", row)
        ]
        yield Mark("path", {"d": "".join(steps), "stroke-width": high, "class": f"cells {_look(mark)}"})
