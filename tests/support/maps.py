"""Compares the map of a wrong output with the words of its diagnosis: both must name the same place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from grader.report.model import FINE, IS_NAN, NO_ELEMENT, UNWRITTEN, CaseResult, ErrorMap

FIRST = re.compile(
    r"(?P<output>\w+)\[(?P<index>[\d, ]+)\] is the first wrong element: expected \S+, got (?P<got>never written|\S+); (?P<share>.*)"
)
SHARE = re.compile(r"(?:all )?(?P<count>\d+)(?: of \d+)? elements?\b")
SPANS = (
    re.compile(r"only (?P<noun>[\w ]+?)s? (?P<first>\d+)(?:–(?P<last>\d+))? of \d+ (?:is|are) wrong"),
    re.compile(r"only every \w+ (?P<noun>[\w ]+) is wrong, from (?P<first>\d+) to (?P<last>\d+)"),
    re.compile(
        r"\d+ of \d+ (?P<noun>[\w ]+?)s have wrong elements, the first is (?P<first>\d+), the last (?P<last>\d+)"
    ),
    re.compile(r"the wrong (?P<noun>element)s lie scattered between (?P<first>\d+) and (?P<last>\d+)"),
)


def contradictions(case: CaseResult) -> list[str]:
    """Contradictions between a case's map and its message or diagnosis; empty for a case without a map."""
    found, told = case.map, FIRST.search(case.message)
    if found is None or told is None:
        return [] if told is None else ["there is no map of a wrong output"]
    return [*_of_the_message(found, told), *_of_the_place(found, case.diagnosis)]


def spans(diagnosis: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """The wrong ranges of the first output in a diagnosis: their unit (as "row"), first and last number."""
    for sentence in diagnosis:
        if FIRST.search(sentence):
            return  # another output's sentences begin
        for pattern in SPANS:
            if place := pattern.match(sentence):
                yield place["noun"], int(place["first"]), int(place["last"] or place["first"])


def marked(found: ErrorMap) -> list[tuple[int, int]]:
    """Row and column of every cell with a wrong element."""
    return [
        (row, column)
        for row, cells in enumerate(found.cells)
        for column, mark in enumerate(cells)
        if mark not in (FINE, NO_ELEMENT)
    ]


def _of_the_message(found: ErrorMap, told: re.Match[str]) -> Iterator[str]:
    if found.output != told["output"]:
        yield f"the map is of {found.output}"
        return
    wrong = marked(found)
    *leading, row, column = [0, *map(int, told["index"].split(", "))]
    row, column = divmod(column - found.first, found.columns) if found.folded else (row - found.first, column)
    leading = leading[1:] if len(leading) > len(found.at) else leading
    if tuple(leading) == found.at:
        place = row // found.cell_rows, column // found.cell_columns
        mark = "".join(
            line[place[1] : place[1] + 1] for line in found.cells[place[0] : place[0] + 1]
        )  # "" beyond the map
        if place not in wrong or wrong[0][0] < place[0] or (found.cell_rows == 1 and wrong[0] != place):
            yield f"the first marked cell is {wrong[0] if wrong else None}, not {place}"
        if (told["got"] == "never written" and mark != UNWRITTEN) or (
            told["got"] == "nan" and mark not in (IS_NAN, UNWRITTEN)
        ):
            yield f"the cell of the first wrong element is {mark!r}, and it got {told['got']}"
    count = int(share["count"]) if (share := SHARE.search(told["share"])) else 1
    if len(wrong) > count:
        yield f"{len(wrong)} cells are marked, {count} elements are wrong"
    if not found.leading and count > len(wrong) * found.cell_rows * found.cell_columns:
        yield f"{count} wrong elements do not fit into {len(wrong)} marked cells"


def _of_the_place(found: ErrorMap, diagnosis: Sequence[str]) -> Iterator[str]:
    """Contradictions between the map and the diagnosis's place. The place covers all matrices, so one matrix's map may
    lie within it.
    """
    wrong = marked(found)
    for noun, first, last in spans(diagnosis):
        match noun:
            case "row" | "column":
                step = found.cell_rows if noun == "row" else found.cell_columns
                own = [cell[noun == "column"] for cell in wrong]
            case "element":
                step, own = found.cell_rows * found.columns, [row for row, _ in wrong]
            case "batch entry" | "batch entrie" if len(found.leading) == 1:
                step = found.cell_matrices
                own = [number for number, mark in enumerate(found.matrices) if mark != FINE]
            case _:
                continue
        before = 0 if noun == "column" else found.first
        seen, said = (min(own), max(own)), ((first - before) // step, (last - before) // step)
        within = bool(found.leading) and noun in ("row", "column")
        if not (said[0] <= seen[0] <= seen[1] <= said[1] if within else seen == said):
            yield f"the {noun}s of cells {seen[0]}–{seen[1]} are marked, the diagnosis says {first}–{last}"
