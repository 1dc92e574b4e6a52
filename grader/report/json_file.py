"""The report as a file: `report.json`, described by `schema.json`."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from grader.report.model import Report


def check_writable(folder: Path) -> None:
    """See that a report could be written to `folder`, making nothing yet. Raises OSError."""
    report = folder / "report.json"
    if report.is_dir():
        raise IsADirectoryError(errno.EISDIR, "there is a folder named report.json", str(report))
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "there is a file in the way", str(nearest))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no permission", str(nearest))


def write_report(report: Report, folder: Path) -> Path:
    """Write `folder/report.json`, whole or not at all; return its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    draft = folder / f".report-{os.getpid()}.json"
    try:
        draft.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
