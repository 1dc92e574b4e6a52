"""The terminal views of a grading: its progress, and the report."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from grader.messages import CaseDone, CaseNote, CaseStarted, Event, Planned, SpeedDone
from grader.report.failures import EVERYTHING, Detail, Failure, failures, failures_view, is_cut
from grader.report.kernels import kernels_view
from grader.report.model import (
    CUT_SHORT,
    NEEDS_GPU,
    AssignmentResult,
    GpuTime,
    Outcome,
    PartResult,
    Points,
    Report,
    worst,
)
from grader.report.speed import speed_case
from grader.report.style import STYLE, LiveView, headline, indented, marks_of, plain, points_text, shortened
from grader.verdict.gpu_time import percent
from grader.verdict.prints import first_lines, heading


class ReportConsole(Console):
    """A console that ignores a closed pipe (`grader run ... | head`), so that the report is still written."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


SCREEN = 45  # A failed assignment and its score fit on this many lines of 80 columns.
OTHER_LINES = 3  # A run has this many lines of its own on that screen: command, progress, the report's path.
USUAL = Detail()
VERBOSE = Detail(log_lines=EVERYTHING, others=True)
_LEAST = Detail(causes=1, sentences=0, traceback_lines=3, log_lines=1, names=3, letters=240, is_brief=True)
# Details of an assignment with failures: the first of these that fits is shown.
DETAILS = (
    Detail(causes=4, letters=2000),
    Detail(causes=3, sentences=2, log_lines=6, names=12, letters=1000),
    Detail(causes=2, sentences=1, traceback_lines=12, log_lines=4, names=9, is_brief=True, letters=800),
    Detail(causes=2, sentences=0, map_lines=10, traceback_lines=8, log_lines=3, names=8, is_brief=True, letters=500),
    Detail(causes=1, sentences=0, map_lines=9, traceback_lines=6, log_lines=2, names=6, is_brief=True, letters=400),
    Detail(causes=1, sentences=0, map_lines=7, traceback_lines=4, log_lines=1, names=4, is_brief=True, letters=400),
    replace(_LEAST, map_lines=9, names=4),
    *(replace(_LEAST, map_lines=lines) for lines in (7, 5, 4)),
)
MAX_OTHERS = 3  # At most this many kernels of libraries, and lines printed by libraries, are shown for a call.


class Progress(LiveView):
    """A table of the parts during a grading."""

    def __init__(self, console: Console) -> None:
        self._parts: dict[tuple[str, str], tuple[str, int]] = {}
        self._counts: dict[tuple[str, str], Counter[Outcome]] = {}
        self._now: tuple[str, str, str] | None = None
        self._doing = ""
        self._spinner = Spinner("dots")
        super().__init__(console, self._table)

    def __call__(self, event: Event) -> None:
        match event:
            case Planned():
                self._parts = {(part.assignment, part.part): (part.title, part.cases) for part in event.parts}
                self._counts = {key: Counter() for key in self._parts}
                if event.isolation.note:
                    self._console.print(plain(f"warning: {event.isolation.note}", "bold yellow"), soft_wrap=True)
            case CaseStarted():
                self._now = (event.assignment, event.part, event.case)
                self._doing = ""
            case CaseNote():
                self._doing = event.text
            case CaseDone() | SpeedDone():
                key = (event.assignment, event.part)
                counts = self._counts.setdefault(key, Counter())
                counts[event.result.outcome] += 1
                if not self._is_live and key in self._parts and counts.total() == self._parts[key][1]:
                    self._console.print(plain(f"{self._parts[key][0]}: ").append_text(_tally(counts)), soft_wrap=True)
            case _:
                pass

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        if not self._parts:
            table.add_row(self._spinner, "starting the judge ...")
        for key, (title, total) in self._parts.items():
            counts = self._counts[key]
            running = self._now is not None and self._now[:2] == key and counts.total() < total
            done = counts.total() == total
            mark: RenderableType = Text(*STYLE[worst(counts)]) if done else self._spinner if running else Text(" ")
            table.add_row(
                mark,
                plain(title),
                f"{counts.total()}/{total}",
                _tally(counts),
                plain(f"{self._now[2]} {self._doing}", "dim") if running and self._now else "",
            )
        return table


def _tally(counts: Counter[Outcome]) -> Text:
    pieces = [
        Text(f"{count} {outcome.replace('_', ' ')}", style=STYLE[outcome][1]) for outcome, count in counts.most_common()
    ]
    return Text(", ").join(pieces)


def print_report(report: Report, console: Console, verbose: bool = False) -> None:
    """Print a section for each assignment, then the score. An assignment with failures has room on a screen, unless `verbose`."""
    summary = _summary(report)
    room = SCREEN - OTHER_LINES - _height(summary, console)
    for assignment in report.assignments:
        found = failures(assignment)
        wrong = any(one.example.outcome != "skipped" for _, ones in found for one in ones)
        *larger, smallest = (
            _assignment(assignment, found, detail)
            for detail in ((VERBOSE,) if verbose else DETAILS if wrong else (USUAL,))
        )
        console.print(next((panel for panel in larger if _height(panel, console) <= room), smallest))
    console.print(summary)


def _height(content: RenderableType, console: Console) -> int:
    return len(console.render_lines(content, pad=False))


def _assignment(
    result: AssignmentResult, found: Sequence[tuple[PartResult, Sequence[Failure]]], detail: Detail
) -> RenderableType:
    blocks: list[RenderableType] = []
    for part, ones in found:
        blocks += _part(part, ones, detail)
    blocks += hints(result)
    blocks += printed(result, "your code", "; more in report.json", detail)
    if result.kernels and not detail.is_brief:
        blocks.append(kernels_view(result.kernels, {case.message for part in result.parts for case in part.cases}))
    wrong = [one for _, ones in found for one in ones if one.example.outcome != "skipped"]
    cut = any(one.others or is_cut(one.example, detail) for one in wrong)
    if wrong and not detail.others and (detail != DETAILS[0] or cut):
        blocks.append(plain("all cases, sentences and prints: report.html, or --verbose", "dim"))
    title = Text.assemble(plain(result.title, "bold"), "  ", plain(result.file, "dim"))
    return Panel(Group(*blocks), title=title, title_align="left", border_style="blue")


def hints(result: AssignmentResult) -> list[RenderableType]:
    """The possible improvements of a right kernel."""
    return [plain(f"hint: {one}", "cyan") for one in result.hints]


def printed(result: AssignmentResult, who: str, elsewhere: str = "", detail: Detail = USUAL) -> list[RenderableType]:
    """The student's first printed lines, of wrong cases if these have any; and on one line the prints of libraries."""
    blocks: list[RenderableType] = []
    log, lines = result.log, result.log.text.strip().splitlines()
    ended = [
        (heading(case.title, part.name, len(result.parts)), case.outcome not in ("passed", "skipped"))
        for part in result.parts
        for case in part.cases
    ]
    shown, stand_for = first_lines(
        lines, [name for name, _ in ended], [name for name, is_wrong in ended if is_wrong], detail.log_lines
    )
    if shown:
        less = f" ({stand_for} of {len(lines)} lines{elsewhere})" if len(lines) > stand_for else ""
        blocks.append(plain(f"{who} printed{less}:", "dim"))
        blocks.append(indented(plain("\n".join(shown), "dim")))
        if not any(is_wrong for _, is_wrong in ended):
            blocks.append(plain("prints cost no points but much time: take them out before you hand in", "dim"))
    if log.others:
        most, width = (MAX_OTHERS, 200) if not detail.is_brief else (1, 50)
        more = f" · and {len(log.others) - most} more" if len(log.others) > most else ""
        told = " · ".join(shortened(line, width) for line in log.others[:most])
        blocks.append(plain(f"beside it: {told}{more}", "dim"))
    return blocks


def _part(part: PartResult, ones: Sequence[Failure], detail: Detail) -> list[RenderableType]:
    points = Text.assemble("correctness ", points_text(part.points), "   speed ", points_text(part.speed.points))
    blocks: list[RenderableType] = [headline(plain(part.title, "bold"), points)]
    if any(one.is_every for one in ones):
        return blocks + failures_view(ones, detail)
    blocks.append(_groups(part, detail))
    if part.pattern:
        blocks.append(indented(plain(part.pattern, "bold")))
    blocks += failures_view(ones, detail)
    skipped = [case.message for case in part.cases if case.outcome == "skipped"]
    reasons = sorted(set(skipped))
    if detail.is_brief and reasons[1:]:
        needs_gpu = sum("needs a GPU" in reason for reason in skipped)
        who = "all" if needs_gpu == len(skipped) else needs_gpu
        reasons = [f"{len(skipped)} cases, {who} for want of a GPU"]
    blocks += [indented(plain(f"– skipped: {reason}", "bright_black")) for reason in reasons]
    notes = (case for case in part.cases if case.outcome == "passed" and case.message)
    blocks += [indented(plain(f"✓ {case.title}: {case.message}", "dim")) for case in notes]
    blocks += [indented(_gpu_time(case.name, case.gpu_time)) for case in part.cases if case.gpu_time is not None]
    blocks += [indented(speed_case(one)) for one in part.speed.cases if one.outcome != "skipped"]
    unmeasured = {one.message for one in part.speed.cases if one.outcome == "skipped"} - {NEEDS_GPU}
    blocks += [indented(plain(f"– speed: {reason}", "bright_black")) for reason in sorted(unmeasured)]
    return blocks


def _groups(part: PartResult, detail: Detail) -> RenderableType:
    """The groups of a part, each with the marks of its cases and its points."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=1)
    table.add_column(ratio=1)
    table.add_column(justify="right")
    right = [group for group in part.groups if detail.is_brief and group.points.earned == group.points.possible]
    if right[1:]:
        table.add_row("", f"{len(right)} groups are right", points_text(Points.total(group.points for group in right)))
    for group in part.groups:
        if right[1:] and group in right:
            continue
        marks = Text(" ").join(
            Text(mark, style=STYLE[outcome][1]) for mark, outcome in marks_of(case.outcome for case in group.cases)
        )
        note = plain(f"  {group.note}" if group.note else "", "dim")
        table.add_row("", Text.assemble(plain(f"{group.title}  "), marks, note), points_text(group.points))
    return table


def _gpu_time(name: str, spent: GpuTime) -> RenderableType:
    """A case's GPU time in kernels of the submission, and in the longest library kernels."""
    own = ", ".join(one.name for one in spent.kernels if one.own)
    line = f"{name}: {percent(spent.own_share)} of the GPU's time in kernels of your own{f' ({own})' if own else ''}"
    others = [f"{percent(one.share)} in {one.name}" for one in spent.kernels if not one.own]
    more = f" and {len(others) - MAX_OTHERS} more" if len(others) > MAX_OTHERS else ""
    return plain("; ".join([line, *others[:MAX_OTHERS]]) + more, "dim")


def _summary(report: Report) -> RenderableType:
    score, environment = report.score, report.environment
    lines: list[RenderableType] = [
        Text.assemble(
            ("Score  ", "bold"),
            (f"{score.earned:g} of {score.graded:g} points graded in this run", "bold"),
            f"  (of {score.possible:g} in all)",
        ),
    ]
    lines += [plain(f"       {words}") for words in report.left_out]
    if report.incomplete:
        lines.append(Text(f"       incomplete: {CUT_SHORT}", style="bold yellow"))
    notes = [*report.submission.notes, *filter(None, [report.isolation.note])]
    lines += [plain(f"note: {note}", "yellow") for note in notes]
    lines += [plain(f"not graded: {fault}", "bold magenta") for fault in report.infra_errors]
    where = environment.gpu or f"CPU, no GPU ({environment.cpu})"
    lines.append(
        plain(
            f"{where} · torch {environment.torch} · triton {environment.triton or 'none'} · {report.isolation.words} · "
            f"seed {report.seed} · {report.duration_s:.1f} s",
            "dim",
        )
    )
    return Panel(Group(*lines), border_style="magenta" if report.infra_errors else "blue")
