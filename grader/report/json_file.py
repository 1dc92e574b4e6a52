"""The report as a file: `report.json`, described by `schema.json`."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from grader.report.model import Report


def prepare(folder: Path) -> None:
    """Make the folder, and see that a report can be written there. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "report.json").is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(folder / "report.json"))
    with tempfile.TemporaryFile(dir=folder):
        pass


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
