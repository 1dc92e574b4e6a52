"""Reports that were really made, of docs/sample: a wrong submission on the terminal, and the speed-ups of the staff's kernels."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment

from docs.pictures.drawing import picture
from grader.report.maps import HALVES
from grader.report.model import Report
from grader.report.speed import speedups, timed_cases
from grader.report.svg import Mark, Plot, rectangle
from grader.report.terminal import ReportConsole, print_report

SAMPLES = Path(__file__).parents[1] / "sample"
COLUMNS, WIDTH, HEIGHT = 120, 7, 16  # of the terminal; of a letter and of a line in pixels


def report_of(sample: str) -> Report:
    return Report.model_validate_json((SAMPLES / sample / "report.json").read_bytes())


def terminal() -> Plot:
    """What `grader run` shows of the wrong kernel."""
    report = report_of("wrong")
    console = ReportConsole(
        file=io.StringIO(), force_terminal=True, color_system="standard", width=COLUMNS, record=True
    )
    print_report(report, console)
    lines = list(Segment.split_lines(console._record_buffer))
    marks = [mark for number, line in enumerate(lines) for mark in line_of(line, number)]
    description = (
        f"What grader run shows of a wrong FlashAttention: {report.correctness.earned:g} of {report.correctness.graded:g} points, the "
        "cases that failed, the first wrong element, the mistake that it is consistent with, and a map of the wrong output."
    )
    return picture("report", "A report of grader run", description, len(lines) * HEIGHT, marks, COLUMNS * WIDTH)


def line_of(line: list[Segment], number: int) -> list[Mark]:
    """A line's pieces, each as wide as a terminal shows it whatever the font is."""
    marks: list[Mark] = []
    column, top = 0, number * HEIGHT
    for text, style, _ in Segment.simplify(line):
        start = column + len(text) - len(text.lstrip())
        column += cell_len(text)
        words = text.strip()
        looks = [one.name.replace("_", "-") for one in (style.color, style.bgcolor) if one] if style else []
        wide = cell_len(words) * WIDTH
        if words and not words.strip(HALVES):  # cells of a map, two above each other in a letter
            for half, look in enumerate(looks, start=words.startswith(HALVES[1])):
                marks.append(rectangle(start * WIDTH, top + half * HEIGHT / 2, wide, HEIGHT / 2, look))
        elif words:
            looks = looks[:1] + [name for name in ("bold", "dim") if style and getattr(style, name)]
            place = {"x": start * WIDTH, "y": top + 12, "textLength": wide, "class": " ".join(["code", *looks])}
            marks.append(Mark("text", place, words))
    return marks


def speed() -> Plot:
    """The speed-ups of the staff's kernels, as a report's page has them."""
    report = report_of("gpu")
    plot = speedups(timed_cases(report))
    if plot is None:
        raise ValueError(f"{SAMPLES / 'gpu'}: has no speed case that was timed")
    return dataclasses.replace(
        plot, name="speed", description=f"{plot.description} Measured on an {report.environment.gpu}."
    )
