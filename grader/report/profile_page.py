"""A profile as a page, `profile.html`, made as `grader/report/page.py` makes the report's: no script, every word escaped."""

from __future__ import annotations

from dataclasses import replace

from grader.report import profiling
from grader.report.model import ContenderTime, SpeedMeasurement
from grader.report.page import rendered
from grader.report.profile import CaseProfile, Profile
from grader.report.profiling import costliest, line_cost, line_notes, line_words, title
from grader.report.races import KEY, Timed, key, roofline, symbol
from grader.report.speed import name_of
from grader.report.style import shortened
from grader.report.svg import WIDTH, Mark, Plot, grid, label, levels, line, path, rectangle, spanning
from grader.verdict.units import bytes_words, ms_words

MAX_LINES = 40  # of a case in its plot
LEFT, RIGHT, ROW = 300, 180, 22
LINE_LETTERS = 38
SUBMISSION, COUNTED_BYTES = "submission", "your code, for each byte that was counted"


def page(profile: Profile) -> str:
    """The page of a profile as HTML."""
    return rendered(
        "profile.html",
        profile=profile,
        views=[
            (case, lines_plot(case, f"lines-{number}"), times_plot(case, f"times-{number}"))
            for number, case in enumerate(profile.cases, 1)
            if not case.is_empty
        ],
        roofline=roofline(timed(profile)),
        profiling=profiling,
        bytes_words=bytes_words,
        ms_words=ms_words,
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
        description="Bytes that the lanes of all blocks ask for, by line of the source; in the second colour what whole sectors of L2, "
        "or passes through the banks of shared memory, add to it. DRAM moves less where L2 keeps a sector until its other bytes are "
        "asked for.",
        width=WIDTH,
        height=round(y),
        marks=marks,
        head=("kernel", "line", "what", "bytes", "", "source"),
        rows=rows,
        key=(("asked for", rectangle(0, 1, 12, 10, "bar")), ("moved beside", rectangle(0, 1, 12, 10, "bar so-far"))),
    )


def timed(profile: Profile) -> list[Timed]:
    """Every size of every case that was timed. Where bytes were counted, the case's first size has your code again, with them."""
    found = []
    for case in profile.cases:
        measured = [(size.size, size.measured) for size in case.timed if size.measured is not None]
        for number, (size, one) in enumerate(measured):
            counted = () if number else _as_counted(case, one)
            found.append(
                Timed(f"{title(case)}, {size}", one.model_copy(update={"contenders": (*one.contenders, *counted)}))
            )
    return found


def _as_counted(case: CaseProfile, measured: SpeedMeasurement) -> tuple[ContenderTime, ...]:
    moved = sum((one.dram_read_bytes or 0.0) + (one.dram_written_bytes or 0.0) for one in case.counters)
    own = [one for one in measured.contenders if one.name == SUBMISSION]
    return tuple(
        one.model_copy(update={"name": COUNTED_BYTES, "bytes_per_s": moved / one.time_s.median}) for one in own if moved
    )


def times_plot(case: CaseProfile, name: str) -> Plot | None:
    """The time of a call of each contender against the bytes that the case must move; None for fewer than two sizes."""
    known = ((one.bytes_moved, one.size, one.measured) for one in case.timed if one.measured and one.bytes_moved > 0)
    sizes = sorted(known, key=lambda one: one[0])
    if len(sizes) < 2:
        return None
    series: dict[str, dict[float, float]] = {}  # milliseconds by bytes
    for size, _, measured in sizes:
        for one in measured.contenders:
            if one.name != "matmul":  # its work is the same at every size
                series.setdefault(one.name, {})[size] = one.time_s.median * 1e3
    x = spanning([size for size, *_ in sizes], 1.5, 70, WIDTH - 20)
    y = spanning([ms for points in series.values() for ms in points.values()], 1.5, 310, 20)
    marks = [*grid(replace(x, low=x.low / 1e6, high=x.high / 1e6), 20, 310), *levels(y, 70, WIDTH - 20)]
    marks.append(label((x.start + x.end) / 2, 342, "MB that must be moved", "tick", "middle"))
    marks.append(label(0, 8, "ms a call", "tick"))
    for contender, points in series.items():
        places = [(x.at(size), y.at(ms)) for size, ms in points.items()]
        marks.append(
            path("M" + "L".join(f"{left} {up}" for left, up in places), f"trace {KEY.get(contender, 'others')}")
        )
        marks += [
            symbol(contender, *place, f"{name_of(contender)}: {ms_words(ms)} ms")
            for place, ms in zip(places, points.values(), strict=True)
        ]
    return Plot(
        name=name,
        title="Time against size",
        description="The time of a call at each size of the case, both on logarithmic scales, measured in the same rounds. A line that is "
        "straight and rises as fast as the size moves bytes at one rate; one that flattens to the left waits for launches there.",
        width=WIDTH,
        height=352,
        marks=marks,
        head=("size", "MB", *map(name_of, series)),
        rows=[
            (
                words,
                f"{size / 1e6:.4g}",
                *(f"{points[size]:.4g} ms" if size in points else "" for points in series.values()),
            )
            for size, words, _ in sizes
        ],
        key=key(series),
    )
