"""Reads CSV files of learning platforms and people, and replaces single cells in them: every other byte stays."""

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
    def values(self) -> list[str]:
        found = [(cell, QUOTED.match(cell)) for cell in self.raw]
        return [one[1].replace('""', '"') + cell[one.end() :] if one else cell for cell, one in found]

    def value(self, column: int) -> str:
        """The text of a cell; "" where the row is too short."""
        return self.values[column].strip() if column < len(self.raw) else ""


@dataclass(frozen=True)
class Sheet:
    """A CSV file: all its rows; the texts of the first one that is not blank; and the others that are not."""

    name: str
    bom: str
    delimiter: str
    all_rows: tuple[Row, ...]
    header: list[str]
    rows: list[Row]

    def filled(self, column: int, cells: Mapping[int, str]) -> bytes:
        """The file with other cells in a column, by the rows' lines; everything else as it was. Raises ClassError."""
        text = self.bom
        for row in self.all_rows:
            raw = list(row.raw)
            if (cell := cells.get(row.line)) is not None:
                if column >= len(raw):
                    words = f"the row has {len(raw)} cells, and the grade belongs into cell {column + 1}"
                    raise ClassError(f"{self.name}:{row.line}: {words}")
                raw[column] = f'"{cell}"' if self.delimiter in cell else cell
            text += self.delimiter.join(raw) + row.end
        return text.encode("utf-8", "surrogateescape")


def read_sheet(path: Path) -> Sheet:
    """Read a CSV file. Raises ClassError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ClassError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise ClassError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; expected a CSV file of a class")
    return parsed(content, str(path))


def parsed(content: bytes, name: str) -> Sheet:
    """The sheet in these bytes. Raises ClassError."""
    if b"\0" in content:
        raise ClassError(f"{name}: is not in UTF-8; save it as `CSV UTF-8`")
    text = content.decode("utf-8", "surrogateescape")
    bom = BOM if text.startswith(BOM) else ""
    text = text.removeprefix(BOM)
    if not text.strip(f"\r\n {DELIMITERS}"):
        raise ClassError(f"{name}: is empty; expected a CSV file whose first line names the columns, as name,email,sid")
    start = text[len(text) - len(text.lstrip()) :]
    delimiter = max(DELIMITERS, key=lambda one: len(next(_rows(start, one, name)).raw))
    every = tuple(_rows(text, delimiter, name))
    header, *rows = [row for row in every if any(map(str.strip, row.raw))]
    return Sheet(name, bom, delimiter, every, header.values, rows)


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
            if not text.startswith(delimiter, at):
                break
            at += 1
        end = "\r\n" if text.startswith("\r\n", at) else text[at : at + 1]
        at += len(end)
        line += bool(end)
        yield Row(first, tuple(raw), end)


def written(header: Sequence[str], rows: Iterable[Sequence[str | float | int | None]]) -> str:
    """A new CSV file: a text that a spreadsheet takes for a formula gets a `'` before it, None is an empty cell."""

    def cell(value: str | float | int | None) -> str:
        text = "" if value is None else str(value)
        if isinstance(value, str) and text.startswith(FORMULA):
            text = f"'{text}"
        return '"' + text.replace('"', '""') + '"' if any(one in text for one in ',"\r\n') else text

    return "".join(",".join(map(cell, row)) + "\n" for row in (header, *rows))
