"""Shows the progress of a class: live during a run, or from the files alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grader.classroom.dispatch import Dispatch
from grader.classroom.folder import RunFolder
from grader.classroom.grading import DRAFTS
from grader.classroom.lock import NAME, Holder, holder
from grader.classroom.model import NOTHING, Attempt
from grader.classroom.task import MAX_FAULTS, State, Task, read_tasks, spoilt
from grader.report.style import plain

REDRAW_S = 0.5
# States with the words for people, as "12 graded".
STATES: dict[State, tuple[str, str]] = {
    "graded": ("graded", "green"),
    "unusable": ("cannot be graded", "yellow"),
    "failed": (f"failed: the machine spoilt {MAX_FAULTS} attempts", "bold magenta"),
    "left": ("left", ""),
}


class View:
    """A live table during a run; plain lines if the output is no terminal, or a dumb one. A context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts: Counter[State] = Counter()
        self._drawn = 0.0
        is_live = console.is_terminal and not console.is_dumb_terminal
        # Drawn by `draw` alone: another thread would look into the middle of a step.
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, words: str) -> None:
        self._console.print(plain(words, "yellow"), soft_wrap=True)

    def ended(self, task: Task, attempt: Attempt) -> None:
        seconds = (attempt.ended - attempt.started).total_seconds()
        if not attempt.fault:
            return self._console.print(
                plain(f"{task.words}: graded in {duration(seconds)} on {attempt.place}"), soft_wrap=True
            )
        again = "; it is tried again" if task.state == "left" else ""
        what = f"attempt {attempt.number} was spoilt on {attempt.place}" if spoilt(attempt) else "cannot be graded"
        return self._console.print(plain(f"{task.words}: {what}: {attempt.fault}{again}", "yellow"), soft_wrap=True)

    def draw(self, dispatch: Dispatch) -> None:
        counts = count(dispatch.tasks.values())
        now = time.monotonic()
        if self._live and now >= self._drawn + REDRAW_S:
            self._drawn = now
            self._live.update(table(dispatch), refresh=True)
        elif not self._live and counts != self._counts:
            self._console.print(tally(counts).append(f"; {time_to_go(dispatch)}"), soft_wrap=True)
        self._counts = counts


def table(dispatch: Dispatch) -> RenderableType:
    """The stations with their gradings, and the class in one line."""
    grid = Table.grid(padding=(0, 2))
    for station in dispatch.stations:
        doing, since = plain("idle", "dim"), ""
        if station.grading is not None:
            doing, since = plain(station.grading.task.words), duration(station.grading.seconds)
        elif station.out:
            doing = plain("taken out", "bold magenta")
        elif station.waits:
            doing = plain("waits for another run on this machine", "yellow")
        grid.add_row(plain(station.name), doing, since)
    return Group(grid, tally(count(dispatch.tasks.values())).append(f"; {time_to_go(dispatch)}"))


def time_to_go(dispatch: Dispatch) -> str:
    """An estimate from the gradings of this run, or else from earlier ones."""
    seconds = dispatch.seconds or [
        (one.ended - one.started).total_seconds()
        for task in dispatch.tasks.values()
        for one in task.graded
        if not one.fault
    ]
    if not dispatch.left:
        return "done"
    if not seconds or not dispatch.in_service:
        return "time to go is not known yet"
    wanted = sum(one.wanted - len(one.graded) for one in dispatch.left)
    spent = sum(min(one.grading.seconds, fmean(seconds)) for one in dispatch.stations if one.grading is not None)
    return f"about {duration((wanted * fmean(seconds) - spent) / len(dispatch.in_service))} to go"


def count(tasks: Iterable[Task]) -> Counter[State]:
    return Counter(one.state for one in tasks)


def tally(counts: Counter[State]) -> Text:
    """The class in one line: "60 hand-ins: 12 graded, 48 left"."""
    total = counts.total()
    said = [Text(f"{counts[state]} {words}", style) for state, (words, style) in STATES.items() if counts[state]]
    line = Text(f"{total} hand-in{'s' if total != 1 else ''}").append(": " if said else "")
    return line.append_text(Text(", ").join(said))


def duration(seconds: float) -> str:
    """As "35 s", "12 min" or "2 h 5 min"."""
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def print_status(folder: RunFolder, console: Console) -> None:
    """Print the state of a class from its files. Raises ClassError."""
    tasks, students = read_tasks(folder), folder.students().students
    console.print(tally(count(tasks)), soft_wrap=True)
    now = datetime.now(UTC)
    for task, by in running(folder, tasks):
        where = f"on {by.place} for {duration((now - by.since).total_seconds())}"
        console.print(plain(f"  running: {task.words} {where}"), soft_wrap=True)
    for task in tasks:
        if task.state == "unusable":
            console.print(plain(f"  cannot be graded: {task.words}: {task.graded[-1].fault}", "yellow"), soft_wrap=True)
    for task in tasks:
        for one in task.spoilt:
            words = f"  fault of the machine: {task.words}, attempt {one.number} on {one.place}: {one.fault}"
            console.print(plain(words, "bold magenta" if task.state == "failed" else "dim"), soft_wrap=True)
    for what in ("handed in nothing", NOTHING):
        keys = [one.key for one in students if not one.handin and (NOTHING in one.notes) == (what == NOTHING)]
        if keys:
            console.print(plain(f"  {what}: {', '.join(keys)}"), soft_wrap=True)


def running(folder: RunFolder, tasks: Sequence[Task]) -> list[tuple[Task, Holder]]:
    """The tasks in progress, on any machine, with the holders of their locks."""
    found = []
    for task in tasks:
        if task.state == "left" and any(folder.tasks(task.handin).glob(DRAFTS)):
            by = holder(folder.tasks(task.handin) / NAME)
            found += [(task, by)] if by is not None and by.place else []
    return found
