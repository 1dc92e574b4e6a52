"""The terminal view of findings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.doctor.finding import NAMES, Finding, State
from grader.report.style import plain

MARKS: dict[State, tuple[str, str]] = {
    "fine": ("✓", "green"),
    "unneeded": ("–", "bright_black"),
    "caution": ("!", "yellow"),
    "fault": ("✗", "bold red"),
}


def show(finding: Finding, console: Console) -> None:
    """Print mark, name and words of a finding in columns; below them the mend in one piece, to be copied."""
    mark, style = MARKS[finding.state]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=1)
    row.add_column(width=max(map(len, NAMES)))
    row.add_column()
    quiet = style if finding.state == "unneeded" else ""
    row.add_row(Text(mark, style), plain(finding.name, quiet or "bold"), plain(finding.words, quiet))
    console.print(row)
    if finding.mend:
        console.print(plain(f"    → {finding.mend}", "dim"), soft_wrap=True)
