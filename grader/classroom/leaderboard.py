"""The leaderboard of a class: each student's speed-up over the baseline, over all speed cases of a part.

A measurement counts only if the judge corroborated it without a flag, and only in a part that earned all of its points
for correctness. Each GPU model, and each choice of sizes, has a table of its own. Only students with an alias are listed.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from grader.classroom.grades import Grades
from grader.classroom.sheet import written
from grader.report.json_file import REPORT, read_report
from grader.report.model import Interval
from grader.report.style import shown

SUBMISSION, EAGER, COMPILE = "submission", "eager", "compile"
NAMES = {EAGER: "PyTorch", COMPILE: "torch.compile", "reference": "the staff's kernel"}
LIMIT = "the machine's limit"
HEAD = ("rank", "name", "speed-up", "95 % interval")


@dataclass(frozen=True)
class RankedEntry:
    """A row of a table. Only students have a rank and an interval."""

    name: str
    speedup: float
    interval: Interval | None = None
    rank: int | None = None

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The row as text: rank, name, speed-up, interval."""
        interval = f"{self.interval.low:.3f} to {self.interval.high:.3f}" if self.interval else ""
        return str(self.rank or ""), shown(self.name), f"{self.speedup:.3f}", interval


@dataclass(frozen=True)
class Board:
    """The table of a part on one GPU model.

    sizes: of the speed cases.
    baseline: the entrant whose speed is 1.
    """

    gpu: str
    title: str
    sizes: tuple[str, ...]
    baseline: str
    entries: tuple[RankedEntry, ...]

    @property
    def heading(self) -> str:
        return f"{self.title}, on {self.gpu}; {NAMES[self.baseline]} is 1 ({'; '.join(self.sizes)})"


def leaderboard(grades: Grades) -> list[Board]:
    """A board for each part with measured speed on each GPU model. Raises ClassError, ReportError."""
    # By GPU, assignment, part, sizes and baseline: the title; students by alias and hand-in, since partners are one row;
    # the speeds of other entrants and of the machine's limit, relative to the baseline.
    titles: dict[tuple[str, str, str, tuple[str, ...], str], str] = {}
    students: dict[object, dict[tuple[str, str], Interval]] = defaultdict(dict)
    others: dict[object, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for grade in grades:
        if grade.counting is None or grade.points is None:
            continue
        report = read_report(grade.counting.folder / REPORT)
        for one, part in report.parts:
            cases = part.speed.cases
            measured = [case.measured for case in cases if case.measured is not None]
            if not measured or len(measured) < len(cases):
                continue
            speedups = [{each.name: each.speedup for each in case.entrants if each.speedup} for case in measured]
            shared = set.intersection(*map(set, speedups))
            baseline = next((name for name in (EAGER, COMPILE) if name in shared), "")
            if not baseline:
                continue
            sizes = tuple(f"{case.name}: {case.size}" for case in cases)
            place = (report.environment.gpu or "no GPU", one.name, part.name, sizes, baseline)
            titles.setdefault(place, one.title_of(part))
            for name in shared - {case.roofline for case in measured}:
                ratios = [case[baseline].median / case[name].median for case in speedups]
                others[place][NAMES.get(name, name)].append(geometric_mean(ratios))
            shares = [each.roofline_share for case in measured for each in case.entrants if each.name == SUBMISSION]
            if len(shares) == len(cases) and min(shares) > 0:
                limits = [case[baseline].median / share for case, share in zip(speedups, shares, strict=True)]
                others[place][LIMIT].append(geometric_mean(limits))
            is_right = part.points.earned >= part.points.possible - 1e-9 and all(c.outcome == "passed" for c in cases)
            is_sure = all(case.corroborated and not case.flags for case in measured)
            if grade.student.alias and is_right and is_sure:
                ends = {
                    end: geometric_mean([getattr(case[baseline], end) for case in speedups])
                    for end in ("median", "low", "high")
                }
                students[place][grade.student.alias, grade.student.handin] = Interval(**ends)
    boards = []
    for place, title in sorted(titles.items()):
        rows = [RankedEntry(name, median(ratios)) for name, ratios in others[place].items()]
        rows += ranked((name, speedup) for (name, _), speedup in students[place].items())
        rows.sort(key=lambda one: (-one.speedup, one.rank or 0, one.name))
        boards.append(Board(place[0], title, place[3], place[4], tuple(rows)))
    return boards


def ranked(measured: Iterable[tuple[str, Interval]]) -> list[RankedEntry]:
    """The rows of students, the fastest first. Rows whose intervals overlap, directly or through others, share a rank."""
    entries: list[RankedEntry] = []
    rank, lowest = 0, math.inf
    for name, interval in sorted(measured, key=lambda pair: (-pair[1].high, -pair[1].median, pair[0])):
        if interval.high < lowest:
            rank = len(entries) + 1
            lowest = interval.low
        lowest = min(lowest, interval.low)
        entries.append(RankedEntry(name, interval.median, interval, rank))
    return sorted(entries, key=lambda one: (one.rank or 0, -one.speedup, one.name))


def markdown(boards: Sequence[Board]) -> str:
    """The boards as Markdown. Markup in a name is escaped."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\`*_{}\[\]<>#|~!&])", r"\\\1", " ".join(text.split()))

    blocks = []
    for board in boards:
        rows = [f"| {' | '.join(map(escaped, entry.cells))} |" for entry in board.entries]
        head = [f"| {' | '.join(HEAD)} |", "|---:|---|---:|---|"]
        blocks.append("\n".join([f"## {escaped(board.heading)}", "", *head, *rows]))
    return "\n\n".join(blocks) + "\n"


def table(boards: Sequence[Board]) -> str:
    """The boards as one CSV file."""
    rows: list[list[str | float | int | None]] = []
    for board in boards:
        place = [board.gpu, board.title, "; ".join(board.sizes), board.baseline]
        for one in board.entries:
            ends = [round(one.interval.low, 4), round(one.interval.high, 4)] if one.interval else [None, None]
            rows.append([*place, one.rank, one.name, round(one.speedup, 4), *ends])
    return written(("gpu", "part", "sizes", "baseline", "rank", "name", "speedup", "low", "high"), rows)
