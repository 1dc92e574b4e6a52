"""The leaderboard of a class: each student's speed-up over the baseline, over all speed cases of a part.

A measurement counts only if the judge corroborated it without a flag, and only in a part that earned all of its points
for correctness. Each GPU model, and each choice of sizes, has a table of its own. Only students with an alias are listed.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grader.classroom.grades import Grades
from grader.classroom.sheet import written
from grader.report.json_file import REPORT, read_report
from grader.report.model import Interval, PartResult, Report, SpeedCaseResult
from grader.report.style import shown

SUBMISSION, EAGER, COMPILE = "submission", "eager", "compile"
NAMES = {EAGER: "PyTorch", COMPILE: "torch.compile", "reference": "the staff's kernel"}
LIMIT = "the machine's limit"


@dataclass(frozen=True)
class RankedEntry:
    """A row of a table. Only students have a rank and an interval."""

    name: str
    speedup: float
    interval: Interval | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Board:
    """The table of a part on one GPU model.

    sizes: of the speed cases.
    baseline: the contender whose speed is 1.
    """

    gpu: str
    title: str
    sizes: tuple[str, ...]
    baseline: str
    entries: tuple[RankedEntry, ...]


@dataclass
class _Gathered:
    title: str
    students: dict[tuple[str, str], Interval] = field(
        default_factory=dict
    )  # by alias and hand-in: partners are one row
    others: dict[str, list[float]] = field(default_factory=dict)


Place = tuple[str, str, str, tuple[str, ...], str]  # GPU, assignment, part, sizes of the speed cases, baseline


def leaderboard(grades: Grades) -> list[Board]:
    """A board for each part with measured speed on each GPU model. Raises ClassError, ReportError."""
    found: dict[Place, _Gathered] = {}
    for grade in grades:
        if grade.counting is None or grade.points is None:
            continue
        report = read_report(grade.counting.folder / REPORT)
        for place, title, part, cases in _measured(report):
            gathered = found.setdefault(place, _Gathered(title))
            for name, ratio in _others(cases, place[-1]).items():
                gathered.others.setdefault(name, []).append(ratio)
            if grade.student.alias and is_eligible(part, cases):
                paired = [_speedups(case)[place[-1]] for case in cases]
                gathered.students[grade.student.alias, grade.student.handin] = geometric(paired)
    return [
        Board(place[0], one.title, place[3], place[4], tuple(_in_order(one))) for place, one in sorted(found.items())
    ]


def _measured(report: Report) -> Iterable[tuple[Place, str, PartResult, list[SpeedCaseResult]]]:
    """The parts in which every speed case was measured, against the same baseline."""
    for one, part in report.parts:
        cases = [case for case in part.speed.cases if case.measured is not None]
        shared = [name for name in (EAGER, COMPILE) if all(name in _speedups(case) for case in cases)]
        if not cases or len(cases) < len(part.speed.cases) or not shared:
            continue
        sizes = tuple(f"{case.name}: {case.size}" for case in cases)
        place = (report.environment.gpu or "no GPU", one.name, part.name, sizes, shared[0])
        yield place, one.title_of(part), part, cases


def is_eligible(part: PartResult, cases: Sequence[SpeedCaseResult]) -> bool:
    """Whether a part has all points for correctness, and measurements that are corroborated and without a flag."""
    full = part.points.earned >= part.points.possible - 1e-9
    return full and all(
        one.outcome == "passed" and one.measured is not None and one.measured.corroborated and not one.measured.flags
        for one in cases
    )


def _speedups(case: SpeedCaseResult) -> dict[str, Interval]:
    """The submission's speed-up over each other contender."""
    assert case.measured is not None
    return {one.name: one.speedup for one in case.measured.contenders if one.speedup is not None}


def _others(cases: Sequence[SpeedCaseResult], baseline: str) -> dict[str, float]:
    """Speeds of the other contenders of a report, and the machine's limit, relative to the baseline."""
    found: dict[str, float] = {}
    roofs = {case.measured.roofline for case in cases if case.measured}
    for name in set.intersection(*(set(_speedups(case)) for case in cases)) - roofs:
        ratios = [_speedups(case)[baseline].median / _speedups(case)[name].median for case in cases]
        found[NAMES.get(name, name)] = statistics.geometric_mean(ratios)
    shares = [
        (_speedups(case)[baseline].median, one.roofline_share)
        for case in cases
        for one in (case.measured.contenders if case.measured else ())
        if one.name == SUBMISSION and one.roofline_share > 0
    ]
    if len(shares) == len(cases):
        found[LIMIT] = statistics.geometric_mean([ratio / share for ratio, share in shares])
    return found


def geometric(paired: Sequence[Interval]) -> Interval:
    """The geometric mean of several speed-ups. Its interval goes from the mean of the low ends to that of the high ends."""
    return Interval(
        median=statistics.geometric_mean([one.median for one in paired]),
        low=statistics.geometric_mean([one.low for one in paired]),
        high=statistics.geometric_mean([one.high for one in paired]),
    )


def _in_order(gathered: _Gathered) -> list[RankedEntry]:
    """All rows, the fastest first. Rows of other contenders have their median over all reports."""
    rows = [RankedEntry(name, statistics.median(ratios)) for name, ratios in gathered.others.items()]
    rows += ranked((name, speedup) for (name, _), speedup in gathered.students.items())
    return sorted(rows, key=lambda one: (-one.speedup, one.rank or 0, one.name))


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


# How it is written ----------------------------------------------------------------------------------------------------


def cells(entry: RankedEntry) -> tuple[str, str, str, str]:
    """A row as text: rank, name, speed-up, interval."""
    interval = f"{entry.interval.low:.3f} to {entry.interval.high:.3f}" if entry.interval else ""
    return str(entry.rank or ""), shown(entry.name), f"{entry.speedup:.3f}", interval


HEAD = ("rank", "name", "speed-up", "95 % interval")


def heading(board: Board) -> str:
    return f"{board.title}, on {board.gpu}; {NAMES[board.baseline]} is 1 ({'; '.join(board.sizes)})"


def markdown(boards: Sequence[Board]) -> str:
    """The boards as Markdown. Markup in a name is escaped."""
    blocks = []
    for board in boards:
        rows = [f"| {' | '.join(map(_escaped, cells(entry)))} |" for entry in board.entries]
        head = [f"| {' | '.join(HEAD)} |", "|---:|---|---:|---|"]
        blocks.append("\n".join([f"## {_escaped(heading(board))}", "", *head, *rows]))
    return "\n\n".join(blocks) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~!&])", r"\\\1", " ".join(text.split()))


def table(boards: Sequence[Board]) -> str:
    """The boards as one CSV file."""
    head = ("gpu", "part", "sizes", "baseline", "rank", "name", "speedup", "low", "high")
    rows = [
        (
            board.gpu,
            board.title,
            "; ".join(board.sizes),
            board.baseline,
            entry.rank,
            entry.name,
            round(entry.speedup, 4),
            round(entry.interval.low, 4) if entry.interval else None,
            round(entry.interval.high, 4) if entry.interval else None,
        )
        for board in boards
        for entry in board.entries
    ]
    return written(head, rows)
