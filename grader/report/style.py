"""The look of outcomes, points and untrusted text, and the pieces of every terminal view of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
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
MANY_MARKS = 30


def marks_of(outcomes: Iterable[Outcome]) -> list[tuple[str, Outcome]]:
    """The mark of each outcome; of more than MANY_MARKS, one for all that are alike, with their number."""
    every = list(outcomes)
    if len(every) <= MANY_MARKS:
        return [(STYLE[one][0], one) for one in every]
    return [(f"{STYLE[one][0]} ×{count}", one) for one, count in Counter(every).most_common()]


def shown(text: str) -> str:
    """Untrusted text without control characters and marks of direction, which could rewrite the text around them."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def plain(text: str, style: str = "") -> Text:
    """Untrusted text for a terminal, without markup."""
    return Text(shown(text), style)


def points_words(points: Points) -> str:
    """Points as 3/4; the possible points if none were graded."""
    if points.possible == 0:
        return "–"
    return f"{points.earned:g}/{points.graded:g}" if points.graded else f"not graded ({points.possible:g})"


def points_text(points: Points) -> Text:
    colour = "green" if points.earned == points.graded else "yellow" if points.earned else "red"
    return Text(points_words(points), colour if points.graded else "bright_black" if points.possible else "dim")


def headline(left: Text, right: Text) -> Table:
    """A line with words at both of its ends."""
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(ratio=1)
    line.add_column(justify="right")
    line.add_row(left, right)
    return line


def indented(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, 2))


class LiveView:
    """A view of events: drawn anew all the time on a terminal, plain lines elsewhere and on a dumb one. A context manager."""

    def __init__(self, console: Console, drawn: Callable[[], RenderableType]) -> None:
        self._console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, refresh_per_second=10, transient=True, get_renderable=drawn)

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_of(words: Sequence[str], most: int = 8) -> str:
    """A list in a sentence, and how many more there are."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def shortened(text: str, most: int) -> str:
    """The text in at most so many characters; an ellipsis stands for the rest."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
