"""Pages of all reports below a folder, and their index."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from grader.report.index import IndexedReport, Override, index, overridden, summary
from grader.report.json_file import PAGE, REPORT, ReportError, read_report
from grader.report.page import page, write_page

INDEX = "index.html"
LONG_AGO = datetime.min.replace(tzinfo=UTC)
COUNTED_ONCE = "a report of the same submission as {}, which is whole, has more graded, or is later, and counts"


@dataclass(frozen=True)
class Named:
    """A name in the index with the path of its report; without a report, `fault` says why.

    override: a person's decision on the points.
    note: of a row without a report and without an override.
    """

    name: str
    path: Path | None
    fault: str = ""
    override: Override | None = None
    note: str = "open: no report"


def show_named(
    named: Sequence[Named], folder: Path, output: Path, redact: bool, tell: Callable[[str], None]
) -> tuple[Path, int]:
    """Write a page for each of these reports, which lie below `folder`, to the same place below `output`, and an index by their names.

    A report with several names has a row for each; its cases count once. An unreadable report does not stop the others: `tell` takes
    a sentence about it.

    Returns:
        The index, and the number of reports that count in it.

    Raises:
        OSError: the index cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    return _index(_rows(named, folder, output, redact, tell), output, redact)


def show_folder(folder: Path, output: Path, redact: bool, tell: Callable[[str], None]) -> tuple[Path, int]:
    """As `show_named`, for each report.json below `folder`, by the names of their folders. A submission counts once.

    Of several reports of one submission whole ones go before others, then those with most points graded (a GPU grades more than a
    CPU), then the latest.

    Raises:
        ReportError: there is no report.
        OSError: the index cannot be written.
    """

    def name(place: Path) -> str:
        return (folder.resolve().name if place == folder else place.relative_to(folder).as_posix()) or "/"

    unread: list[OSError] = []
    found = sorted(Path(at) for at, _, files in os.walk(folder, onerror=unread.append) if REPORT in files)
    if not found and not unread:
        words = "there is no report.json in it, at any depth; name a folder with reports of `grader run --output`"
        raise ReportError(f"{folder}: {words}")
    output.mkdir(parents=True, exist_ok=True)
    rows = _rows([Named(name(place), place / REPORT) for place in found], folder, output, redact, tell)
    best: dict[tuple[str, str] | None, IndexedReport] = {}
    for one in sorted(rows, key=lambda one: (one.is_whole, one.score.graded, one.started or LONG_AGO), reverse=True):
        best.setdefault(one.key, one)
    for at, one in enumerate(rows):
        if one.key is not None and (counts := best[one.key]) is not one:
            words = COUNTED_ONCE.format(counts.name)
            tell(f"{folder / one.name / REPORT}: {words}")
            rows[at] = IndexedReport(one.name, one.link, note="counted once", faults=(words,))
    for error in unread:
        tell(f"{error.filename}: cannot be read ({error.strerror})")
        words = f"the folder cannot be read ({error.strerror})"
        rows.append(IndexedReport(name(Path(error.filename)), note="open: not read", faults=(words,)))
    return _index(rows, output, redact)


def _rows(
    named: Sequence[Named], folder: Path, output: Path, redact: bool, tell: Callable[[str], None]
) -> list[IndexedReport]:
    """Write the pages. Returns a row of the index for each name."""
    read: dict[Path, IndexedReport] = {}
    rows = []
    for one in named:
        if one.path is None:
            row = IndexedReport(one.name, note="no report" if one.override else one.note, faults=(one.fault,))
        elif (first := read.get(one.path)) is not None:
            row = replace(first, name=one.name, groups={}, causes={}, faults=(), failing={})
        else:
            row = read[one.path] = _read(one.path, one.name, folder, output, redact, tell)
        rows.append(overridden(row, one.override) if one.override else row)
    return rows


def _read(
    path: Path, name: str, folder: Path, output: Path, redact: bool, tell: Callable[[str], None]
) -> IndexedReport:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise ReportError(f"{path}: is no file")
        report = read_report(path)
    except ReportError as error:
        tell(str(error))
        return IndexedReport(name, note="open: not read", faults=(str(error).removeprefix(f"{path}: "),))
    target = output / path.relative_to(folder).with_name(PAGE)
    link = PurePosixPath("/", target.relative_to(output)).as_uri().removeprefix("file:///")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_page(page(report, redact), target)
    except OSError as error:
        tell(f"{target}: the page cannot be written ({error.strerror})")
        link = ""
    return summary(report, name, link)


def _index(rows: Sequence[IndexedReport], output: Path, redact: bool) -> tuple[Path, int]:
    return write_page(index(rows, redact), output / INDEX), sum(one.counts for one in rows)
