"""The terminal view of an error map: two rows of cells in a line of text, with axes and a legend.

With colour, a letter's foreground is the upper cell and its background the lower cell. Without colour, the shape shows
which of the two is wrong, and letters mark cells that hold no wrong number. A dumb terminal, as screen readers use,
gets words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grader.report.model import FINE, IS_NAN, LEVELS, NO_ELEMENT, OUTSIDE, UNWRITTEN, ErrorMap
from grader.report.style import counted, plain
from grader.verdict.cells import factor, shrunk, worst_of

LINES = 12  # A map takes at most this many lines, with heading, axis and legend.
RANGES = 3  # A map in words names at most this many ranges.


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
IN_ASCII = str.maketrans("·█▀▄│└×–", '.#"_|+x-')


def heading(found: ErrorMap) -> str:
    """The map's output and matrix, and the elements of a cell."""
    name = found.output + (f"[{', '.join(map(str, found.at))}]" if found.at else "")
    size = f"{counted(found.rows, 'row')} × {counted(found.columns, 'column')}"
    if found.folded:
        size = f"{'rows of ' if found.rows > 1 else ''}{counted(found.columns, 'element')}"
    one = found.cell_rows * found.cell_columns == 1
    return f"{name}, {size}; a cell is {'one element' if one else f'{found.cell_rows} × {found.cell_columns} elements'}"


def in_words(found: ErrorMap) -> list[str]:
    """For each kind of wrong marks a line with its rows and columns, as exact as the cells."""
    lines = []
    for kind in WRONG:
        rows = [number for number, row in enumerate(found.cells) if set(row) & set(kind.marks)]
        columns = [
            number for number, column in enumerate(zip(*found.cells, strict=True)) if set(column) & set(kind.marks)
        ]
        if rows:
            where = _ranges(rows, found.cell_rows, found.rows), _ranges(columns, found.cell_columns, found.columns)
            lines.append(f"{kind.words}: rows {where[0]}, columns {where[1]}")
    sides = {"before": "before the first row", "after": "after the last row"}
    return lines + [f"{WRONG[-1].words}: {words}" for side, words in sides.items() if getattr(found, side)]


def _ranges(numbers: Sequence[int], step: int, size: int) -> str:
    """Cells as ranges of rows or columns, the first few."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    ends = [(run[0] * step, min(run[-1] * step + step, size) - 1) for run in runs]
    told = ", ".join(f"{first}–{last}" if last > first else str(first) for first, last in ends[:RANGES])
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
        for line in drawn:
            if options.ascii_only:
                line.plain = line.plain.translate(IN_ASCII)
                line.overflow = "crop"  # an ellipsis is no ASCII
            yield line

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
    line = Text()
    for above, *below in zip(*rows, strict=True):
        line.append(
            *(_coloured if has_colour else _lettered)(OF_MARK[above], OF_MARK[below[0] if below else NO_ELEMENT])
        )
    return line


def _coloured(above: Kind, below: Kind) -> tuple[str, str]:
    nothing = KINDS[0]
    if above is nothing:
        return (" ", "") if below is nothing else ("▄", below.colour)
    return "▀", above.colour if below is nothing else f"{above.colour} on {below.colour}"


def _lettered(above: Kind, below: Kind) -> tuple[str, str]:
    nothing = KINDS[0]
    if above.letter == below.letter or below is nothing:
        return above.letter, ""
    if above not in WRONG:
        return ("▄" if below in WRONG else below.letter), ""
    return ("█" if below in WRONG else "▀"), ""


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
