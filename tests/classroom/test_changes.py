"""Whose points changed, and by which case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.classroom.changes import differences
from grader.classroom.grades import Grades
from grader.report.model import Report
from tests.support.classes import MadeClass, class_of, ending, faster, named, sample, softmax, summed, with_part

GPU = sample("gpu")
WORSE = ending(GPU, "softmax", "lengths", "1x1", "failed")


def lines(made: MadeClass, **numbers: int) -> list[str]:
    return differences(Grades(made.folder), **numbers)[0]


def test_a_change_names_its_student_its_case_and_both_outcomes(tmp_path: Path) -> None:
    made = class_of(tmp_path / "RUN", [WORSE, GPU, GPU, None])
    made.attempt(made.students[0], GPU)
    made.attempt(made.students[1], GPU)
    made.student("lazy")
    assert lines(made) == [
        "s0 (First0 Last0): 98 of 100 → 100 of 100 points (attempt 1 → 2)",
        "  Row softmax in Triton: Any number of rows and columns: 0 of 2 → 2 of 2",
        "    1x1: failed → passed",
        "1 changed, 1 the same; students with one attempt are not compared",  # nobody is compared who was graded once
    ]


def test_a_spoilt_attempt_changes_nothing_and_a_decision_does(tmp_path: Path) -> None:
    made = class_of(tmp_path / "RUN", [GPU])
    student = made.students[0]
    made.attempt(student, WORSE.model_copy(update={"infra_errors": ("a fault",)}), exit_code=3)
    assert lines(made) == ["0 changed, 0 the same; students with one attempt are not compared"]
    made.attempt(student, WORSE)
    assert lines(made)[0].startswith("s0 (First0 Last0): 100 of 100 → 98 of 100 points (attempt 1 → 3)")
    made.decide(student, "counts", counts="best")
    assert lines(made)[0].startswith("s0 (First0 Last0): 98 of 100 → 100 of 100 points (attempt 3 → 1)")
    made.decide(student, "points", points=5)
    assert "(attempt 3 → 1; the override holds)" in lines(made)[0]


def test_attempts_of_numbers_are_compared(tmp_path: Path) -> None:
    made = class_of(tmp_path / "RUN", [WORSE, GPU])
    for report in (GPU, WORSE):
        made.attempt(made.students[0], report)
    found, notes = differences(Grades(made.folder), start=1, to=2)
    assert ("attempt 1 → 2" in found[0], found[-1].partition(";")[0]) == (True, "1 changed, 0 the same")
    assert notes == ["there is no report of attempt 2: s1"]
    assert "attempt 2 → 3" in lines(made, start=2)[0]
    assert lines(made, start=1) == ["0 changed, 2 the same; students with one attempt are not compared"]


def change(run: Path, before: Report, after: Report) -> list[str]:
    """The lines below a student's of whom these are the two attempts."""
    made = class_of(run, [before])
    made.attempt(made.students[0], after)
    return [line.strip() for line in lines(made)[1:-1]]


def test_another_course_has_cases_groups_and_points_that_were_not_there(tmp_path: Path) -> None:
    title = "Row softmax in Triton: Any number of rows and columns"

    def without_case(part: dict[str, Any]) -> None:
        group = named(part["groups"], "lengths")
        group["cases"] = [one for one in group["cases"] if one["name"] != "1x1"]
        group["points"] = {"earned": 1, "graded": 1, "possible": 1}

    less = with_part(GPU, "softmax", without_case)
    assert change(tmp_path / "a", less, GPU) == [f"{title}: 1 of 1 → 2 of 2", "1x1: not there → passed"]
    assert change(tmp_path / "b", GPU, less) == [f"{title}: 2 of 2 → 1 of 1", "1x1: passed → not there"]
    alone = summed(GPU, [one for one in GPU.assignments if one.name != "softmax"])
    gone = change(tmp_path / "c", GPU, alone)
    assert f"{title}: 2 of 2 → not there" in gone
    assert all(line.endswith("→ not there") for line in gone)


def test_points_without_another_outcome_are_of_the_course(tmp_path: Path) -> None:
    points = {"earned": 4, "graded": 4, "possible": 4}
    after = with_part(GPU, "softmax", lambda part: named(part["groups"], "lengths").update(points=points))
    assert change(tmp_path / "RUN", GPU, after) == [
        "Row softmax in Triton: Any number of rows and columns: 2 of 2 → 4 of 4",
        "each case ended as before: the course gives other points",
    ]


@pytest.mark.parametrize(
    ("factor", "case", "told"),
    [
        (1, {"outcome": "crashed", "measured": None, "message": "x"}, "causal: passed → crashed"),
        (0.25, {}, "causal: passed, 7.29× compile → passed, 1.82× compile"),
    ],
    ids=["two outcomes tell it alone", "one outcome and two speeds"],
)
def test_a_speed_case_tells_its_speed_ups(tmp_path: Path, factor: float, case: dict[str, object], told: str) -> None:
    points = {"earned": 4, "graded": 12, "possible": 12}
    slow = faster(GPU, "backward", factor)
    after = with_part(slow, "backward", lambda part: part["speed"]["cases"][0].update(points=points, **case))
    assert change(tmp_path / "RUN", GPU, after)[1:] == [told]


def test_two_students_of_one_hand_in_are_both_told(tmp_path: Path) -> None:
    made = MadeClass(tmp_path / "RUN")
    ada = made.student("ada", files=softmax(1))
    made.attempt(ada, WORSE)
    made.attempt(ada, GPU)
    made.student("bob", handin=ada.handin)
    assert [line.split(":")[0] for line in lines(made) if not line.startswith(" ")][:2] == ["ada", "bob"]
    assert lines(made)[-2:] == [
        "2 students: Row softmax in Triton: Any number of rows and columns: 1x1",
        "2 changed, 0 the same; students with one attempt are not compared",
    ]
