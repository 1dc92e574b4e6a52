"""A profile as a page, `profile.html`, made as `grader/report/page.py` makes the report's: no script, every word escaped."""

from __future__ import annotations

from grader.report.page import rendered
from grader.report.profile import CaseProfile, Profile
from grader.report.profiling import (
    bytes_words,
    costliest,
    kernel_words,
    launch_words,
    line_cost,
    line_notes,
    line_words,
    moved_words,
    ms_words,
    place_words,
    ran_words,
    time_words,
    timed_words,
    title,
)
from grader.report.style import shortened
from grader.report.svg import WIDTH, Mark, Plot, label, line, rectangle

MAX_LINES = 40  # of a case in its plot
LEFT, RIGHT, ROW = 300, 180, 22
LINE_LETTERS = 38


def page(profile: Profile) -> str:
    """The page of a profile as HTML."""
    return rendered(
        "profile.html",
        profile=profile,
        views=[(case, lines_plot(case, f"lines-{number}")) for number, case in enumerate(profile.cases, 1)],
        title=title,
        moved_words=moved_words,
        time_words=time_words,
        timed_words=timed_words,
        bytes_words=bytes_words,
        ms_words=ms_words,
        place_words=place_words,
        kernel_words=kernel_words,
        launch_words=launch_words,
        ran_words=ran_words,
    )


def lines_plot(case: CaseProfile, name: str) -> Plot | None:
    """A bar for the bytes of each line: what its lanes ask for, and what whole sectors move beside it."""
    found = [one for one in costliest(case) if one[1].bytes > 0][:MAX_LINES]
    if not found:
        return None
    most = max(line_cost(one) for _, one in found)
    marks: list[Mark] = []
    rows = []
    y = 16.0
    for launch, one in found:
        words = f"{one.line or '?'}  {line_words(one)}"
        width = (WIDTH - LEFT - RIGHT) * one.bytes / most
        whole = (WIDTH - LEFT - RIGHT) * line_cost(one) / most
        tip = f"{launch.kernel}: {one.source}"
        marks.append(label(LEFT - 8, y, shortened(words, LINE_LETTERS), anchor="end"))
        if whole > width:
            marks.append(rectangle(LEFT, y - 7, round(whole, 1), 14, "bar so-far", tip))
        marks.append(rectangle(LEFT, y - 7, round(max(width, 1.0), 1), 14, "bar", tip))
        told = ", ".join(filter(None, (bytes_words(one.bytes), line_notes(one))))
        marks.append(label(LEFT + round(max(whole, 1.0), 1) + 6, y, told, "tick"))
        rows.append(
            (
                launch.kernel,
                f"{one.file}:{one.line}",
                line_words(one),
                bytes_words(one.bytes),
                line_notes(one),
                one.source,
            )
        )
        y += ROW
    marks.append(line(LEFT, 4, LEFT, y - ROW / 2 + 2, "limit"))
    return Plot(
        name=name,
        title="What each line moves",
        description="Bytes that the lanes of all blocks ask for, by line of the source; in the second colour what whole sectors, or "
        "passes through the banks of shared memory, add to it.",
        width=WIDTH,
        height=round(y),
        marks=marks,
        head=("kernel", "line", "what", "bytes", "", "source"),
        rows=rows,
        key=(("asked for", rectangle(0, 1, 12, 10, "bar")), ("moved beside", rectangle(0, 1, 12, 10, "bar so-far"))),
    )
