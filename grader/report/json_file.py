"""The report as a file: `report.json`, described by `schema.json`."""

from __future__ import annotations

import os
from pathlib import Path

from grader.report.model import Report


def write_report(report: Report, folder: Path) -> Path:
    """Write `folder/report.json`, whole or not at all; return its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "report.json"
    draft = folder / f".report-{os.getpid()}.json"
    draft.write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
    return path
