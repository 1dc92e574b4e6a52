"""Reads and rewrites CSV files of learning platforms: replaces single cells, and keeps every other byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.folder import ClassError

MAX_BYTES = 64 << 20
BOM = "\ufeff"
DELIMITERS = ",;\t"
QUOTED = re.compile(r'"((?:[^"]|"")*)"(?!")')
# What a spreadsheet takes for a formula, also in the wide letters that some read as the narrow ones.
FORMULA = tuple("=+-@\t\r\n＝＋－＠")


@dataclass(frozen=True)
class Row:
    """A row as it stands in the file.

    line: the number of its first line.
    raw: its cells with their quotes.
    end: its line end.
    """

    line: int
    raw: tuple[str, ...]
    end: str

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(map(unquoted, self.raw))


@dataclass(frozen=True)
class Sheet:
    """A CSV file: its header, and the rows below it that are not blank."""

    name: str
    bom: str
    delimiter: str
    all_rows: tuple[Row, ...]

    @property
    def header(self) -> tuple[str, ...]:
        return self.all_rows[0].values

    @property
    def rows(self) -> list[Row]:
        return [row for row in self.all_rows[1:] if any(row.raw)]

    def filled(self, column: int, cells: Mapping[int, str]) -> bytes:
        """The file with other cells in a column, by the rows' lines; everything else as it was. Raises ClassError."""
        pieces = [self.bom]
        for row in self.all_rows:
            raw = list(row.raw)
            if row.line in cells:
                if column >= len(raw):
                    words = f"the row has {len(raw)} cells, and the grade belongs into cell {column + 1}"
                    raise ClassError(f"{self.name}:{row.line}: {words}")
                raw[column] = quoted(cells[row.line], self.delimiter)
            pieces += [self.delimiter.join(raw), row.end]
        return "".join(pieces).encode("utf-8", "surrogateescape")


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file. Raises ClassError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ClassError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise ClassError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, which no gradebook is")
    return parsed(content, str(path))


def parsed(content: bytes, name: str) -> Sheet:
    """The sheet in these bytes. Raises ClassError."""
    if b"\0" in content:
        raise ClassError(f"{name}: is no CSV file in UTF-8; export it as CSV, not for Excel")
    text = content.decode("utf-8", "surrogateescape")
    bom = BOM if text.startswith(BOM) else ""
    text = text.removeprefix(BOM)
    if not text.strip():
        raise ClassError(f"{name}: is empty; the CSV file that the platform gave is wanted")
    delimiter = max(DELIMITERS, key=lambda one: len(next(_rows(text, one, name)).raw))
    return Sheet(name, bom, delimiter, tuple(_rows(text, delimiter, name)))


def unquoted(raw: str) -> str:
    """The value of a cell."""
    found = QUOTED.match(raw)
    return found[1].replace('""', '"') + raw[found.end() :] if found else raw


def quoted(value: str, delimiter: str) -> str:
    """A value as a cell."""
    return '"' + value.replace('"', '""') + '"' if any(one in value for one in (delimiter, '"', "\n", "\r")) else value


def _rows(text: str, delimiter: str, name: str) -> Iterator[Row]:
    cell = re.compile(rf'{QUOTED.pattern}[^{delimiter}\r\n]*|(?!")[^{delimiter}\r\n]*')
    at, line = 0, 1
    while at < len(text):
        raw: list[str] = []
        first = line
        while True:
            found = cell.match(text, at)
            if found is None:
                raise ClassError(f"{name}:{line}: a quoted cell has no end")
            raw.append(found[0])
            at = found.end()
            line += len(re.findall(r"\r\n|\r|\n", found[0]))
            if at < len(text) and text[at] == delimiter:
                at += 1
                continue
            break
        end = "\r\n" if text.startswith("\r\n", at) else text[at : at + 1]
        at += len(end)
        line += bool(end)
        yield Row(first, tuple(raw), end)


def defused(cell: str) -> str:
    """The text as a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def written(header: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> str:
    """A new CSV file: texts are defused, numbers stay numbers, None is an empty cell."""
    lines = [header, *([_cell(cell) for cell in row] for row in rows)]
    return "".join(",".join(quoted(cell, ",") for cell in line) + "\n" for line in lines)


def _cell(cell: str | float | int | None) -> str:
    return defused(cell) if isinstance(cell, str) else "" if cell is None else str(cell)
