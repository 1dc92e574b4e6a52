"""Builders of reports, for all who look at one."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from grader.report.model import (
    AssignmentResult,
    BandResult,
    CaseResult,
    EntrantTime,
    Environment,
    GroupResult,
    Interval,
    PartResult,
    Points,
    Report,
    Round,
    SpeedCaseResult,
    SpeedMeasurement,
    SpeedResult,
    SubmissionInfo,
    WorkerLog,
    worst,
)


def make_case(name: str = "n-1", outcome: Any = "passed", **fields: Any) -> CaseResult:
    """A case result; what does not pass gets a message unless one is given."""
    fields.setdefault("message", "" if outcome == "passed" else f"{name} went wrong")
    return CaseResult(name=name, outcome=outcome, **{"tries": f"tries {name}"} | fields)


def make_part(
    *cases: CaseResult, points: Points | None = None, speed: Points | None = None, **fields: Any
) -> PartResult:
    """A part with one group that holds the given cases."""
    points = points or Points(earned=4, graded=4, possible=4)
    group = GroupResult(
        name="sizes", title="Any size", points=points, cases=cases, provisional=fields.pop("provisional", False)
    )
    return PartResult(
        name=fields.pop("name", "forward"),
        title=fields.pop("title", "The forward pass"),
        outcome=worst(case.outcome for case in cases),
        points=points,
        speed=SpeedResult(points=speed or Points(earned=0, graded=0, possible=6)),
        groups=(group,),
    )


def make_report(*parts: PartResult, log: str = "", **fields: Any) -> Report:
    """A report of one assignment with the given parts, its points added up."""
    correctness, speed = Points.total(p.points for p in parts), Points.total(p.speed.points for p in parts)
    assignment = AssignmentResult(
        name="softmax",
        title=fields.pop("title", "Row softmax"),
        file="softmax.py",
        parts=parts,
        log=WorkerLog(text=log, total_bytes=len(log)),
    )
    given: dict[str, Any] = {
        "started": datetime(2026, 11, 20, 12, 30, tzinfo=UTC),
        "duration_s": 12.5,
        "seed": 4711,
        "environment": Environment(grader="0.1.0", python="3.11", torch="2.13", triton="3.7", device="cpu", cpu="Z80"),
        "submission": SubmissionInfo(path="sub", sha256="ab" * 32, files=("softmax.py",)),
        "score": Points.total([correctness, speed]),
        "correctness": correctness,
        "speed": speed,
        "assignments": (assignment,),
    }
    return Report(**given | fields)


# Speed cases ----------------------------------------------------------------------------------------------------------

BANDS = (
    BandResult(vs="eager", speedup=0.5, points=1, reached=True),
    BandResult(vs="compile", speedup=1.1, points=2.5, reached=True, undecided=True),
    BandResult(vs="eager", speedup=3, points=2.5, reached=False),
)


def interval(median: float, low: float | None = None, high: float | None = None) -> Interval:
    return Interval(median=median, low=median if low is None else low, high=median if high is None else high)


def took(name: str, ms: float, share: float = 0.5, speedup: Interval | None = None, **rates: float) -> EntrantTime:
    given = {"bytes_per_s": 2.345e12, "flops_per_s": 432.1e12} | rates
    return EntrantTime(name=name, time_s=interval(ms / 1e3), calls=16, roofline_share=share, speedup=speedup, **given)


COPYING = (
    took("copy", 0.1, 1.0, interval(0.25)),
    took("submission", 0.4, 0.253, bytes_per_s=1.5e12),
    took("eager", 0.81234, 0.123, interval(2.0309, 1.9, 2.15)),
)


def measured(*entrants: EntrantTime, roofline: str = "copy", flags: tuple[str, ...] = ()) -> SpeedMeasurement:
    times = entrants or COPYING
    medians_s = {one.name: one.time_s.median for one in times}
    one_round = Round(order=("copy", "submission"), times_s=medians_s, batch_s=16 * 4e-4, nothing_s=0.0)
    return SpeedMeasurement(
        roofline=roofline,
        entrants=times,
        claimed_s=interval(4e-4),
        judged_s=interval(4e-4),
        corroborated=True,
        flags=flags,
        rounds=(one_round,),
    )


def timed(outcome: Any = "passed", **fields: Any) -> SpeedCaseResult:
    """A speed case that was timed; what did not pass has no times."""
    good = {"bands": BANDS, "measured": measured(), "points": Points(earned=3.5, graded=6, possible=6)}
    bad = {"bands": (), "message": "it went wrong", "points": Points(earned=0, graded=6, possible=6)}
    size = {"name": "wide", "size": "shape 4096 × 16384"}
    return SpeedCaseResult(outcome=outcome, **size | (good if outcome == "passed" else bad) | fields)


# Other words and numbers in every field -------------------------------------------------------------------------------

Shown = TypeVar("Shown", bound=BaseModel)


def replaced(model: Shown, kind: type | Any, value: Callable[[str], Any]) -> tuple[Shown, set[str]]:
    """The model with `value` of a field's name in each place of a kind where that is allowed, and the names of the fields."""
    data, fields = json.loads(model.model_dump_json()), set()
    for *way, last in list(leaves(data, kind)):
        field = next(step for step in reversed([*way, last]) if isinstance(step, str))
        place = functools.reduce(operator.getitem, way, data)
        before, place[last] = place[last], value(field)
        try:
            type(model).model_validate_json(json.dumps(data))
            fields.add(field)
        except ValidationError:  # a field of few words or numbers
            place[last] = before
    return type(model).model_validate_json(json.dumps(data)), fields


def leaves(data: Any, kind: type | Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values of a kind in JSON."""
    if isinstance(data, kind) and not isinstance(data, bool):
        yield at
    elif isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, kind, (*at, key))


MARKUP = "[red]angry[/red] [/] [link=http://x]y[/link] :boom: \\[x]"  # of rich
# Colour, clearing, a window's title, a link, the clipboard, C1's introducer, direction, and what returns or steps back.
CONTROLS = (
    "\x1b[31m \x1b[2J \x1b]0;A+\x07 \x1b]8;;http://x\x1b\\ \x1b]52;c;eA==\x07 \x9b31m \x00 \x7f \u202e \b \v \f \r"
)


def fields_told(text: str) -> set[str]:
    """The fields that a terminal shows of a model whose texts are `hostile`. Fails where one of them steers the terminal."""
    assert {letter for letter in text if not letter.isprintable()} <= {"\n"}
    found = re.findall(r"(\w+)⟦([^⟧…]*)", text)
    assert [words for _, words in found if not MARKUP.startswith(words)] == []  # a cell may be cut
    return {field for field, _ in found}


def hostile(field: str) -> str:
    """Words that would steer a terminal, after the field's name; with a heading, as a log's lines have."""
    return f"[import] {field}⟦{MARKUP}⟧{CONTROLS}"
