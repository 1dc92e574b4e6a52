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
from grader.report.model import Interval, PartResult, SpeedCaseResult
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
    # the speeds of other entrants.
    titles: dict[tuple[str, str, str, tuple[str, ...], str], str] = {}
    students: dict[object, dict[tuple[str, str], Interval]] = defaultdict(dict)
    others: dict[object, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for grade in grades:
        if grade.counting is None or grade.points is None:
            continue
        report = read_report(grade.counting.folder / REPORT)
        for one, part in report.parts:
            cases = [case for case in part.speed.cases if case.measured is not None]
            shared = [name for name in (EAGER, COMPILE) if all(name in _speedups(case) for case in cases)]
            if not cases or len(cases) < len(part.speed.cases) or not shared:
                continue
            sizes = tuple(f"{case.name}: {case.size}" for case in cases)
            place = (report.environment.gpu or "no GPU", one.name, part.name, sizes, shared[0])
            titles.setdefault(place, one.title_of(part))
            for name, ratio in _others(cases, shared[0]).items():
                others[place][name].append(ratio)
            if grade.student.alias and is_eligible(part, cases):
                paired = geometric([_speedups(case)[shared[0]] for case in cases])
                students[place][grade.student.alias, grade.student.handin] = paired
    boards = []
    for place, title in sorted(titles.items()):
        rows = [RankedEntry(name, median(ratios)) for name, ratios in others[place].items()]
        rows += ranked((name, speedup) for (name, _), speedup in students[place].items())
        rows.sort(key=lambda one: (-one.speedup, one.rank or 0, one.name))
        boards.append(Board(place[0], title, place[3], place[4], tuple(rows)))
    return boards


def is_eligible(part: PartResult, cases: Sequence[SpeedCaseResult]) -> bool:
    """Whether a part has all points for correctness, and measurements that are corroborated and without a flag."""
    full = part.points.earned >= part.points.possible - 1e-9
    return full and all(
        one.outcome == "passed" and one.measured is not None and one.measured.corroborated and not one.measured.flags
        for one in cases
    )


def _speedups(case: SpeedCaseResult) -> dict[str, Interval]:
    """The submission's speed-up over each other entrant."""
    assert case.measured is not None
    return {one.name: one.speedup for one in case.measured.entrants if one.speedup is not None}


def _others(cases: Sequence[SpeedCaseResult], baseline: str) -> dict[str, float]:
    """Speeds of the other entrants of a report, and the machine's limit, relative to the baseline."""
    found: dict[str, float] = {}
    roofs = {case.measured.roofline for case in cases if case.measured}
    for name in set.intersection(*(set(_speedups(case)) for case in cases)) - roofs:
        ratios = [_speedups(case)[baseline].median / _speedups(case)[name].median for case in cases]
        found[NAMES.get(name, name)] = geometric_mean(ratios)
    limits = [
        _speedups(case)[baseline].median / one.roofline_share
        for case in cases
        for one in (case.measured.entrants if case.measured else ())
        if one.name == SUBMISSION and one.roofline_share > 0
    ]
    return {**found, LIMIT: geometric_mean(limits)} if len(limits) == len(cases) else found


def geometric(paired: Sequence[Interval]) -> Interval:
    """The geometric mean of several speed-ups. Its interval goes from the mean of the low ends to that of the high ends."""
    ends = {end: geometric_mean([getattr(one, end) for one in paired]) for end in ("median", "low", "high")}
    return Interval(**ends)


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
        for entry in board.entries:
            ends = (
                [round(end, 4) for end in (entry.interval.low, entry.interval.high)] if entry.interval else [None] * 2
            )
            place = [board.gpu, board.title, "; ".join(board.sizes), board.baseline]
            rows.append([*place, entry.rank, entry.name, round(entry.speedup, 4), *ends])
    return written(("gpu", "part", "sizes", "baseline", "rank", "name", "speedup", "low", "high"), rows)
