"""The report as a file, `report.json`."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from grader.report.model import SCHEMA_VERSION, Report

REPORT, BENCHMARK, PAGE = "report.json", "benchmark.json", "report.html"
BESIDE = (BENCHMARK, PAGE)
MAX_REPORT_BYTES = 64 << 20


class ReportError(Exception):
    """A file cannot be read as a report; the message says why."""


def read_report(path: Path) -> Report:
    """Read `report.json`, of this version of the grader or of an earlier one. Raises ReportError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}); name a report.json of `grader run`") from None
    if len(text) > MAX_REPORT_BYTES:
        raise ReportError(f"{path}: is larger than {MAX_REPORT_BYTES >> 20} MiB, which no report is")
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["loc"] == ("schema_version",):
            words = f"its schema version is not {SCHEMA_VERSION}, the only one known here; use the grader that wrote it"
            raise ReportError(f"{path}: {words}") from None
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ReportError(f"{path}: is no report of this grader; {where}: {first['msg']}") from None


def check_writable(folder: Path, name: str = REPORT) -> None:
    """Raise OSError if a file of this name could not be written to `folder`. Makes nothing that stays."""
    if (folder / name).is_dir():
        raise IsADirectoryError(errno.EISDIR, f"there is a folder named {name}", str(folder / name))
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "there is a file in the way", str(nearest))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission", str(nearest))
    if nearest != folder:  # root has every permission, and yet no folder can be made in /proc
        try:
            Path(tempfile.mkdtemp(prefix=".report-", dir=nearest)).rmdir()
        except OSError as error:
            raise OSError(error.errno, f"no folder can be made in {nearest}", str(nearest)) from None


def write_report(
    report: Report, folder: Path, benchmark: str | None = None, tell: Callable[[str], None] = lambda _: None
) -> Path:
    """Write `folder/report.json`, whole or not at all, and pytest-benchmark's record beside it; return the report's path.

    An earlier report's page is removed: `page.write_page` makes the new one.

    An earlier report of the same submission is replaced, unless the earlier report is whole and the new one incomplete.
    Otherwise the file in the way (a whole report, another submission's, or no report at all) is renamed, and `tell`
    takes a sentence about the new name. Two runs must not write at the same time (see `alone_in`). Raises OSError.
    """
    check_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {REPORT: report.model_dump_json(indent=2) + "\n"} | ({} if benchmark is None else {BENCHMARK: benchmark})
    with replacing(texts, folder):
        if kept := _set_aside(folder, report):
            was = "whole" if _owner(kept) == report.submission.path else "of another submission"
            tell(f"{folder / REPORT} was {was}; it is kept as {kept}")
        for name in BESIDE:
            (folder / name).unlink(missing_ok=True)  # an earlier run's
    return folder / REPORT


@contextlib.contextmanager
def replacing(texts: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Write files to paths below a folder, each whole or not at all; an earlier one is replaced, after the body. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder) as drafts:
        for name, text in texts.items():
            draft = Path(drafts, name)
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
        yield
        for name in texts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Path(drafts, name).replace(folder / name)


def _set_aside(folder: Path, report: Report) -> Path | None:
    """Rename the report in `folder`, with its record and its page, unless `report` may replace it. Returns its new path."""
    if not os.path.lexists(folder / REPORT):
        return None
    owner = _owner(folder / REPORT)
    if owner == report.submission.path and (not report.incomplete or _contents(folder / REPORT).get("incomplete")):
        return None
    name = re.sub(r"[^\w.+-]", "_", PurePath(owner or "unknown").name)[:100] or "unknown"
    for number in itertools.count(1):
        ending = name if number == 1 else f"{name}-{number}"
        kept = folder / f"report-{ending}.json"
        if not os.path.lexists(kept) or (owner is not None and _owner(kept) == owner):
            break
    (folder / REPORT).replace(kept)
    for beside in map(folder.joinpath, BESIDE):
        aside = folder / f"{beside.stem}-{ending}{beside.suffix}"
        aside.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            beside.replace(aside)
    return kept


def _owner(path: Path) -> str | None:
    """The path of a report's submission; None if the file is no report."""
    try:
        return str(_contents(path)["submission"]["path"]) if path.is_file() else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _contents(path: Path) -> Any:
    return json.loads(path.read_bytes())
