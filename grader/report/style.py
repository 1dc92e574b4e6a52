"""The look of outcomes, points and untrusted text."""

from __future__ import annotations

from rich.text import Text

from grader.report.model import Outcome, Points

STYLE: dict[Outcome, tuple[str, str]] = {
    "passed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "not_implemented": ("○", "yellow"),
    "build_failed": ("✗", "bold red"),
    "crashed": ("✗", "bold red"),
    "timed_out": ("✗", "bold red"),
    "out_of_memory": ("✗", "bold red"),
    "forbidden": ("✗", "bold magenta"),
    "skipped": ("–", "bright_black"),
    "infra_error": ("!", "bold magenta"),
}


def shown(text: str) -> str:
    """Untrusted text without control characters and marks of direction, which could rewrite what stands around it."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def plain(text: str, style: str = "") -> Text:
    """Untrusted text for a terminal, without markup."""
    return Text(shown(text), style)


def points_text(points: Points) -> Text:
    """Points as 3/4; the possible points if none were graded."""
    if points.possible == 0:
        return Text("–", style="dim")
    if points.graded == 0:
        return Text(f"not graded ({points.possible:g})", style="bright_black")
    style = "green" if points.earned == points.graded else "yellow" if points.earned else "red"
    return Text(f"{points.earned:g}/{points.graded:g}", style=style)
