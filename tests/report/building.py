"""Builders of reports, for all who look at one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from grader.report.model import (
    AssignmentResult,
    CaseResult,
    Environment,
    GroupResult,
    PartResult,
    Points,
    Report,
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
