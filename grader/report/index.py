"""The index of many reports, `index.html`: points, the most common failures, faults of machines, and a row for each
submission.

Points that a run could not grade are open: they are counted apart, never as zero.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from grader.report.model import CUT_SHORT, UNDECIDED, Outcome, Points, Report
from grader.report.page import MAX_NAME, rendered
from grader.report.style import first_of, shortened
from grader.report.svg import round_step
from grader.verdict.causes import CONSISTENT, PLACE, causes

MAX_CAUSES = 12
MAX_TABLE = 200
MAX_NAMES, MAX_WORDS = 10, 400  # A fault or a cause names at most so many submissions, in so many characters.
MAX_STUDENTS_WORDS = 160  # A cause that quotes a student's words is cut to this many characters.
BARS = 10  # The table of points has about this many rows.
MAX_LABEL = 69  # A label is cut to this many characters.
LOOKS = (("graded in full", "bar"), ("so far, more is open", "bar so-far"))
WRONG, RIGHT, NOTHING, OPEN = "fail", "right", "pass no case at all", "open"

# By the name of a value in `made_with`: what is told of a report whose own value is not that of most.
DIFFERS = {
    "grader": "graded by grader {own}, most by {most}",
    "the course": "graded with another course, or with other code of the grader, than most",
    "GPU": "graded on {own}, most on {most}: their speed cannot be compared",
    "effort": "a {own} run, most are {most}",
}
NO_POINTS = Points(earned=0, graded=0, possible=0)

Place = tuple[str, ...]  # names of an assignment and, of several, its part; then a group's title


@dataclass(frozen=True)
class CauseSeen:
    """A cause in a submission's assignment: the outcome, a sentence, and whether all words of the sentence are the grader's own."""

    assignment: str
    outcome: Outcome
    words: str
    by_grader: bool


@dataclass(frozen=True)
class Override:
    """Points that a person decided on, and the decision in a sentence."""

    points: float
    words: str


@dataclass(frozen=True)
class IndexedReport:
    """A report in the index.

    name: the folder of the report.
    link: to its page; empty if there is none.
    note: why the report does not count; empty if the report counts.
    parts: points for correctness and speed together.
    groups: WRONG or RIGHT; OPEN if no case was graded; NOTHING if no case of the part passes, so the group tells
        nothing.
    causes: by assignment and key.
    faults: of the machine, the grader, or the report's file.
    made_with: names and values in which all reports of a class should agree.
    failing: titles of the cases that failed, by group, where `groups` says WRONG.
    override: the decision from which `score` comes; None if `score` is the report's.
    key: the submission: its path and its hash; None if no report was read.
    is_whole: whether the run was not interrupted.
    """

    name: str
    link: str = ""
    note: str = ""
    started: datetime | None = None
    score: Points = NO_POINTS
    parts: dict[Place, Points] = field(default_factory=dict)
    groups: dict[Place, str] = field(default_factory=dict)
    causes: dict[tuple[str, tuple[str, str]], CauseSeen] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    made_with: dict[str, str] = field(default_factory=dict)
    failing: dict[Place, tuple[str, ...]] = field(default_factory=dict)
    override: Override | None = None
    key: tuple[str, str] | None = None
    is_whole: bool = True

    @property
    def counts(self) -> bool:
        return not self.note


def summary(report: Report, name: str, link: str) -> IndexedReport:
    """A report's entry in the index."""
    parts: dict[Place, Points] = {}
    groups: dict[Place, str] = {}
    failing: dict[Place, tuple[str, ...]] = {}
    seen: dict[tuple[str, tuple[str, str]], CauseSeen] = {}
    for one, part in report.parts:
        place = (one.name, part.name) if len(one.parts) > 1 else (one.name,)
        parts[place] = Points.total([part.points, part.speed.points])
        usable = any(case.outcome == "passed" for case in part.cases)
        for group in part.groups:
            decided = {case.outcome for case in group.cases} - UNDECIDED
            if not decided:
                state = OPEN
            elif not usable:
                state = NOTHING
            elif decided == {"passed"}:
                state = RIGHT
            else:
                state = WRONG
                wrong = (case.title for case in group.cases if case.outcome in decided - {"passed"})
                failing[*place, group.title] = tuple(wrong)
            groups[*place, group.title] = state
        for cause in causes(case for case in part.cases if case.outcome != "infra_error"):
            example = cause.example
            words = cause.sentence[cause.sentence.find(CONSISTENT) :] or example.message
            if PLACE in words:  # a wrong element without a known cause: its place is the case's own
                words = f"{words.partition(PLACE)[0].partition('[')[0]} is wrong, in a way that has no name"
            by_grader = cause.sentence in example.diagnosis
            words = shortened(" ".join(words.split()), MAX_WORDS if by_grader else MAX_STUDENTS_WORDS)
            seen.setdefault((place[0], cause.key), CauseSeen(place[0], example.outcome, words, by_grader))
    incomplete = [CUT_SHORT] if report.incomplete else []
    at = report.environment
    return IndexedReport(
        name,
        link,
        "",
        report.started if report.started.tzinfo else report.started.replace(tzinfo=UTC),
        report.score,
        parts,
        groups,
        seen,
        tuple(words[:MAX_WORDS] for words in (*report.infra_errors, *incomplete)),
        {"grader": at.grader, "the course": report.fingerprint, "GPU": at.gpu or "no GPU", "effort": report.effort},
        failing,
        key=(report.submission.path, report.submission.sha256),
        is_whole=not report.incomplete,
    )


def overridden(submission: IndexedReport, override: Override) -> IndexedReport:
    """The submission with the points that a person decided on: none of them are open."""
    possible = max(submission.score.possible, override.points)
    score = Points(earned=override.points, graded=possible, possible=possible)
    return replace(submission, score=score, override=override)


def index(submissions: Sequence[IndexedReport], redact: bool = False) -> str:
    """The page of many reports, as HTML; redacted, without anything that belongs to one submission or to the machine."""
    graded = [one for one in submissions if one.counts]
    days = [f"{one:%d %B %Y}".lstrip("0") for one in sorted(one.started for one in graded if one.started)]
    return rendered(
        "index.html",
        submissions=[] if redact else submissions,
        graded=graded,
        left_out=len(submissions) - len(graded),
        open=sum(one.score.is_open for one in graded),
        days=" to ".join(dict.fromkeys(days[:1] + days[-1:])),
        made_with=_most(graded),
        tables=[table for table in (points_table(graded), groups_table(graded)) if table],
        causes=common_causes(graded, by_grader=redact),
        faults=[] if redact else faults(submissions),
        columns=list(dict.fromkeys(place for one in graded for place in one.parts)),
        redact=redact,
    )


# Points and groups ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bars:
    """A table with a bar in front of each row.

    name: its own on the page.
    rows: a row's pieces of bar, each the share of the whole length and a class of `page.css`; and its cells, as many as `head`.
    key: what the looks mean.
    """

    name: str
    title: str
    description: str
    head: Sequence[str]
    rows: Sequence[tuple[Sequence[tuple[float, str]], Sequence[str]]]
    key: Sequence[tuple[str, str]] = ()


def points_table(graded: Sequence[IndexedReport]) -> Bars | None:
    """The number of submissions by points. Submissions with open points have a colour and a column of their own."""
    decided = [one.score for one in graded if one.score.graded > 0]
    if not decided:
        return None
    top = max(score.graded for score in decided)
    step = round_step(top / BARS)
    bins = max(1, math.ceil(top / step - 1e-9))
    counts = Counter((min(int(one.earned / step + 1e-9), bins - 1), one.is_open) for one in decided)
    longest = max(counts[at, False] + counts[at, True] for at in range(bins))
    rows: list[tuple[list[tuple[float, str]], tuple[str, ...]]] = []
    for at in reversed(range(bins)):
        numbers = counts[at, False], counts[at, True]
        name = f"{at * step:g} to {'under ' if at < bins - 1 else ''}{(at + 1) * step:g}"
        pieces = [(number / longest, look) for number, (_, look) in zip(numbers, LOOKS, strict=True)]
        rows.append((pieces, (name, *(str(number) if number else "" for number in numbers))))
    if undecided := len(graded) - len(decided):
        rows.append(([], ("nothing graded", "", str(undecided))))
    told = [f"Of {top:g} points at most."]
    if whole := [one.earned for one in decided if not one.is_open]:
        median = f"The median of the {len(whole)} graded in full is {statistics.median(whole):g}."
        told.append(median if len(whole) > 1 else f"The one graded in full has {whole[0]:g}.")
    if some := len(decided) - len(whole):
        told.append(f"{some} have open points, which nobody lost: they have at least what is shown.")
    if undecided:
        told.append(f"Of {undecided} nothing could be graded.")
    key = LOOKS if some else ()
    return Bars("points", "Points", " ".join(told), ("points", *(name for name, _ in LOOKS)), rows, key)


def groups_table(graded: Sequence[IndexedReport]) -> Bars | None:
    """For each group of cases, the share of submissions that fail; the largest first."""
    counts: dict[Place, Counter[str]] = {}
    for one in graded:
        for place, state in one.groups.items():
            counts.setdefault(place, Counter())[state] += 1
    if not counts:
        return None
    rows = []
    for place, found in counts.items():
        tried = found[WRONG] + found[RIGHT]
        failing = Counter(case for one in graded for case in one.failing.get(place, ())).most_common(1)
        most = f"{shortened(failing[0][0], MAX_LABEL)} ({failing[0][1]})" if failing else ""
        failed = f"{found[WRONG]} of {tried} fail", str(found[NOTHING]), str(found[OPEN]), most
        rows.append((found[WRONG] / max(1, tried), found[WRONG], (" ".join(place[:-1]), place[-1], *failed)))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    told = "A bar is the share that fails, of the submissions that pass some case of the part."
    head = ("assignment", "group", "of those that pass some case", NOTHING, OPEN, "fails most")
    bars = [([(share, "bar wrong")], cells) for share, _, cells in rows[:MAX_TABLE]]
    return Bars("groups", "Groups of cases that fail", told, head, bars)


# Causes and faults ----------------------------------------------------------------------------------------------------


def common_causes(
    graded: Sequence[IndexedReport], by_grader: bool = False
) -> list[tuple[CauseSeen, list[IndexedReport]]]:
    """The most frequent causes, as the first submission has them, with the submissions; missing answers come last. With `by_grader`, only
    causes in the grader's own words.
    """
    found: dict[tuple[str, tuple[str, str]], tuple[CauseSeen, list[IndexedReport]]] = {}
    for one in graded:
        for key, seen in one.causes.items():
            if seen.by_grader or not by_grader:
                found.setdefault(key, (seen, []))[1].append(one)
    return sorted(found.values(), key=lambda pair: (pair[0].outcome == "not_implemented", -len(pair[1])))[:MAX_CAUSES]


def faults(submissions: Sequence[IndexedReport]) -> list[tuple[str, str]]:
    """Faults of machines and the grader, and differences from most reports; each with the names of the submissions."""
    most = _most(submissions)
    found: dict[str, list[str]] = {}
    for one in submissions:
        for fault in one.faults:
            found.setdefault(fault, []).append(one.name)
        for what, value in one.made_with.items():
            if value and value != most[what]:
                words = DIFFERS[what].format(own=value, most=most[what])
                found.setdefault(words, []).append(one.name)
    return [
        (fault, first_of([shortened(name, MAX_NAME) for name in names], MAX_NAMES))
        for fault, names in sorted(found.items(), key=lambda pair: -len(pair[1]))
    ]


def _most(submissions: Iterable[IndexedReport]) -> dict[str, str]:
    """The most frequent value of each name in `made_with`."""
    counts: dict[str, Counter[str]] = {}
    for one in submissions:
        for what, value in one.made_with.items():
            counts.setdefault(what, Counter())[value] += bool(value)
    return {what: found.most_common(1)[0][0] for what, found in counts.items()}
