"""Pages of all reports below a folder, and their index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from grader.report.index import IndexedReport, Override, index, overridden, summary
from grader.report.json_file import PAGE, REPORT, ReportError, read_report
from grader.report.page import page, write_page

INDEX = "index.html"
LONG_AGO = datetime.min.replace(tzinfo=UTC)


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

    A report with several names has a row for each; its cases count once.

    Returns:
        The index, and the number of reports that count in it.

    Raises:
        OSError: the index cannot be written.
    """
    output.mkdir(parents=True, exist_ok=True)
    by_path: dict[Path, IndexedReport] = {}
    found = []
    for one in named:
        if one.path is None:
            row = _unread(one.name, one.fault, "no report" if one.override else one.note)
        elif (first := by_path.get(one.path)) is not None:
            row = replace(first, name=one.name, groups={}, causes={}, faults=(), failing={})
        else:
            row = by_path[one.path] = _read(one.path, one.name, folder, output, redact, tell)
        found.append(overridden(row, one.override) if one.override else row)
    return write_page(index(found, redact), output / INDEX), sum(one.counts for one in found)


def show_folder(folder: Path, output: Path, redact: bool, tell: Callable[[str], None]) -> tuple[Path, int]:
    """Write a page for each report.json below `folder` to the same place below `output`, and an index of them.

    An unreadable report does not stop the others: `tell` takes a sentence about the report, and the index names its
    folder.

    Returns:
        The index, and the number of reports that count in it.

    Raises:
        ReportError: there is no report.
        OSError: the index cannot be written.
    """
    unread: list[OSError] = []
    paths = list(_reports(folder, unread.append))
    if not paths and not unread:
        words = "there is no report.json in it, at any depth; name a folder with reports of `grader run --output`"
        raise ReportError(f"{folder}: {words}")
    output.mkdir(parents=True, exist_ok=True)
    readings = [_read(path, _name(path.parent, folder), folder, output, redact, tell) for path in paths]
    for error in unread:
        where = Path(error.filename)
        tell(f"{where}: cannot be read ({error.strerror})")
        readings.append(_unread(_name(where, folder), f"the folder cannot be read ({error.strerror})"))
    submissions = _one_of_each(readings, folder, tell)
    text = index(submissions, redact)
    return write_page(text, output / INDEX), sum(one.counts for one in submissions)


def _reports(folder: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Every report.json, in the order of their folders."""
    for at, folders, files in os.walk(folder, onerror=on_error):
        folders.sort()
        if REPORT in files:
            yield Path(at, REPORT)


def _read(
    path: Path, name: str, folder: Path, output: Path, redact: bool, tell: Callable[[str], None]
) -> IndexedReport:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise ReportError(f"{path}: is no file")
        report = read_report(path)
    except ReportError as error:
        tell(str(error))
        return _unread(name, str(error).removeprefix(f"{path}: "))
    target = output / path.relative_to(folder).with_name(PAGE)
    link = PurePosixPath("/", target.relative_to(output)).as_uri().removeprefix("file:///")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_page(page(report, redact), target)
    except OSError as error:
        tell(f"{target}: the page cannot be written ({error.strerror})")
        link = ""
    return summary(report, name, link)


def _name(place: Path, folder: Path) -> str:
    """The name of a report's folder in the index: its path below `folder`."""
    return (folder.resolve().name if place == folder else place.relative_to(folder).as_posix()) or "/"


def _unread(name: str, fault: str, note: str = "open: not read") -> IndexedReport:
    return IndexedReport(name, note=note, faults=(fault,))


def _one_of_each(every: Sequence[IndexedReport], folder: Path, tell: Callable[[str], None]) -> list[IndexedReport]:
    """All submissions; of one with several reports only one counts: whole ones go before others, then those with most points graded (a GPU
    grades more than a CPU), then the latest.
    """
    best: dict[tuple[str, str] | None, IndexedReport] = {}
    for one in sorted(every, key=lambda one: (one.is_whole, one.score.graded, one.started or LONG_AGO), reverse=True):
        best.setdefault(one.key, one)
    found = []
    for one in every:
        if one.key is None or best[one.key] is one:
            found.append(one)
            continue
        words = f"a report of the same submission as {best[one.key].name}, which is whole, has more graded, or is later, and counts"
        tell(f"{folder / one.name / REPORT}: {words}")
        found.append(IndexedReport(one.name, one.link, note="counted once", faults=(words,)))
    return found
