"""A map in a terminal: its size, its axes, and what is seen of it with colours, without, and in words."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from grader.report.maps import KINDS, LINES, MapView, in_words, map_plot
from grader.report.model import MARKS, ErrorMap
from tests.verdict.test_causes import a_map

AROUND = {"output": "dq", "leading": (2, 3), "at": (1, 2), "after": "o..", "matrices": "..1..."}
MAP = a_map(".19", "n.u", "...", rows=30, columns=9, cell_rows=10, cell_columns=3, **AROUND)


def drawn(found: ErrorMap, lines: int = LINES, width: int = 74, **console: Any) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, **{"color_system": None} | console).print(MapView(found, lines))
    return [line.rstrip() for line in out.getvalue().splitlines()]


MASK = a_map("......", "......", "....uu", "..n.uu", rows=7, cell_rows=2, columns=600, cell_columns=100)


@pytest.mark.parametrize("console", [{}, {"no_color": True, "force_terminal": True, "color_system": "256"}])
def test_without_colours_shapes_and_letters_say_what_is_wrong(console: dict[str, Any]) -> None:
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in drawn(MASK, width=100, **console)]
    assert lines == [
        "y, 7 rows × 600 columns; a cell is 2 × 100 elements",
        " 0│······",
        " 4│··▄·uu",
        "  └0  599",
        "u never written  · within budget  ▀▄ never written or NaN in the upper or the lower cell",
    ]


def test_with_colours_a_letter_has_the_colours_of_two_cells() -> None:
    out = io.StringIO()
    Console(file=out, width=74, force_terminal=True, color_system="256").print(MapView(a_map("u.", ".1", ".1")))
    blue, grey, yellow = 27, 242, 184
    assert f"\x1b[38;5;{blue};48;5;{grey}m▀" in out.getvalue()
    assert f"\x1b[38;5;{grey};48;5;{yellow}m▀" in out.getvalue()
    assert f"\x1b[38;5;{yellow}m▀" in out.getvalue(), "a last row has none below it"
    for kind in KINDS[1:]:
        assert (kind.words in out.getvalue()) == (
            kind.words in ("within budget", "up to 10 × the budget", "never written")
        )


@pytest.mark.parametrize("lines", range(5, LINES + 1))
@pytest.mark.parametrize("width", [30, 74, 114])
@pytest.mark.parametrize(
    "more", [{}, {"before": "o" * 160, "after": "o" * 160, "leading": (200,), "at": (3,), "matrices": ".u" * 50}]
)
@pytest.mark.parametrize("console", [{}, {"force_terminal": True, "color_system": "256"}])
def test_a_map_keeps_to_its_lines_and_its_width(lines: int, width: int, more: Any, console: Any) -> None:
    found = a_map(*["." * 159 + "9"] * 64, rows=4096, columns=20000, cell_rows=64, cell_columns=125, **more)
    if lines < 7 and more:
        return
    target = Console(file=io.StringIO(), width=width, **{"color_system": None} | console)
    rows = target.render_lines(MapView(found, lines))
    assert len(rows) <= lines + (5 if width == 30 else 0), "a narrow terminal breaks the words"
    assert all(sum(segment.cell_length for segment in row) <= width for row in rows)


def test_rows_and_elements_are_counted_from_the_outputs_beginning() -> None:
    tall = a_map(*[".u"] * 40, first=1000)
    assert [line.partition("│")[0].strip() for line in drawn(tall)[1:4]] == ["1000", "1008", "1016"]
    vector = a_map("." * 64, "u" + " " * 63, folded=True)
    assert drawn(vector)[:2] == ["y, rows of 64 elements; a cell is one element", "   0│▄" + "·" * 63]
    longer = a_map(*["." * 64] * 3, "u" + " " * 63, folded=True)
    assert [line.partition("│")[0].strip() for line in drawn(longer)[1:3]] == ["0", "128"]


def test_one_row_is_drawn_with_its_letters() -> None:
    assert drawn(a_map(".1nu"))[1].strip() == "0│·█nu"


def test_the_matrix_and_its_place_among_others_are_told() -> None:
    lines = drawn(a_map("uu", "u.", leading=(2, 3), at=(1, 0), matrices="...u.."))
    assert lines[0].startswith("y[1, 0], 2 rows × 2 columns")
    assert "y[0] to [1, 2] ···u··" in lines
    assert not any("[1, 2]" in line for line in drawn(a_map("uu", "u.", leading=(2, 3), at=(1, 0), matrices="uuuuuu")))


def test_what_was_written_outside_is_drawn_around() -> None:
    lines = drawn(a_map("..", "..", before=" o", after="o "))
    assert [line.strip().removeprefix("0") for line in lines[1:4]] == ["│ o", "│··", "│o"]


def test_a_dumb_terminal_gets_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert drawn(MASK, force_terminal=True) == [
        "y, 7 rows × 600 columns; a cell is 2 × 100 elements",
        "NaN: rows 6, columns 200–299",
        "never written: rows 4–6, columns 400–599",
    ]


def test_words_name_the_first_places_and_count_the_others() -> None:
    assert in_words(a_map(".1" * 6)) == ["up to 10 × the budget: rows 0, columns 1, 3, 5 and 3 more places"]
    assert in_words(a_map("..", after=" o")) == ["written outside: after the last row"]


def test_every_mark_has_a_look() -> None:
    assert "".join(kind.marks for kind in KINDS) == MARKS


# On a page ------------------------------------------------------------------------------------------------------------


def cells_drawn(found: ErrorMap) -> dict[str, set[tuple[int, int]]]:
    """The cells of a map as they are drawn, by their class; of one without strips beside it."""
    drawn = {}
    for mark in map_plot(found, "map").marks:
        if mark.tag == "path":
            thick = float(str(mark.attributes["stroke-width"]))
            runs = re.findall(r"M(\d+) ([\d.]+)h(\d+)", str(mark.attributes["d"]))
            drawn[str(mark.attributes["class"])] = {
                (round((float(y) - 6) / thick - 0.5), column)
                for x, y, length in runs
                for column in range((int(x) - 90) // 14, (int(x) + int(length) - 90) // 14)
            }
    return drawn


def test_a_map_is_drawn_cell_by_cell() -> None:
    bare = MAP.model_copy(update={"after": "", "matrices": ""})
    assert cells_drawn(bare) == {
        "cells fine": {(0, 0), (1, 1), (2, 0), (2, 1), (2, 2)},
        "cells mark-1": {(0, 1)},
        "cells mark-9": {(0, 2)},
        "cells mark-n": {(1, 0)},
        "cells mark-u": {(1, 2)},
    }


def test_a_maps_table_says_which_rows_and_columns_and_its_key_what_is_drawn() -> None:
    plot = map_plot(MAP, "map")
    assert list(plot.rows) == [
        ("up to 10 × the budget", "0–9", "3–5"),
        ("further off", "0–9", "6–8"),
        ("NaN", "10–19", "0–2"),
        ("never written", "10–19", "6–8"),
        ("written outside", "after the last", ""),
    ]
    assert plot.title == "Where dq is wrong: the matrix [1, 2] of 2 × 3"
    assert [(words, mark.attributes["class"]) for words, mark in plot.key] == [
        ("within budget", "cell fine"),
        ("up to 10 × the budget", "cell mark-1"),
        ("further off", "cell mark-9"),
        ("NaN", "cell mark-n"),
        ("never written", "cell mark-u"),
        ("written outside", "cell mark-o"),
    ]


def test_the_largest_map_is_small() -> None:
    marks = (".123456789nuo"[:12] * 20)[:160]
    cells = tuple(marks[at % 12 :] + marks[: at % 12] for at in range(64))
    largest = ErrorMap(output="y", rows=64, columns=160, cell_rows=1, cell_columns=1, cells=cells)
    plot = map_plot(largest, "map")
    assert sum(len(str(mark.attributes)) for mark in plot.marks) < 150_000
    assert plot.width <= 840
    assert plot.height < 450
