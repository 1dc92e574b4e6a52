"""The grade of each student: which attempt counts, and why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from grader.classroom.folder import Student
from grader.classroom.grades import Grades, ask_again, decide_attempt, decide_points, told
from grader.report.model import Report
from tests.support.classes import MadeClass, ending, sample, softmax, summed

GPU = sample("gpu")
WORSE = ending(GPU, "softmax", "lengths", "1x1", "failed")
MUCH_WORSE = ending(WORSE, "softmax", "dtypes", "bfloat16", "failed")


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    return MadeClass(tmp_path / "RUN")


def graded(made: MadeClass, reports: Sequence[Report]) -> Student:
    student = made.student("ada", files=softmax(1))
    for report in reports:
        made.attempt(student, report)
    return student


def test_the_latest_whole_attempt_counts(made: MadeClass) -> None:
    student = graded(made, [GPU, WORSE])
    made.attempt(student, GPU.model_copy(update={"incomplete": True}))
    made.attempt(student, GPU.model_copy(update={"infra_errors": ("the GPU fell off the bus",)}), exit_code=3)
    made.attempt(student, None, fault="no GPU", exit_code=3)
    grade = Grades(made.folder).of(student)
    assert grade.counting is not None
    assert (grade.counting.number, grade.earned, grade.is_open, grade.why) == (2, 98, False, "")


@pytest.mark.parametrize(("wanted", "counting"), [("latest", 3), ("best", 1), (2, 2), (4, 4)])
def test_a_decision_says_which_attempt_counts(made: MadeClass, wanted: object, counting: int) -> None:
    student = graded(made, [GPU, MUCH_WORSE, WORSE])
    made.attempt(student, MUCH_WORSE.model_copy(update={"infra_errors": ("one case",)}), exit_code=3)
    made.decide(student, "counts", counts=1)
    made.decide(student, "counts", counts=wanted)
    found = Grades(made.folder).of(student).counting
    assert found is not None
    assert found.number == counting


def test_a_decision_about_an_earlier_hand_in_is_void(made: MadeClass) -> None:
    student = graded(made, [GPU, WORSE])
    made.decide(student.model_copy(update={"handin": "0" * 16}), "counts", counts=1)
    assert Grades(made.folder).of(student).earned == 98


def test_students_with_equal_hand_ins_have_decisions_of_their_own(made: MadeClass) -> None:
    student = graded(made, [GPU, WORSE])
    other = made.student("bob", handin=student.handin)
    made.decide(other, "counts", counts="best")
    made.decide(student, "points", points=12.5)
    assert [one.earned for one in Grades(made.folder)] == [12.5, 100]


def test_an_override_stands_until_it_is_taken_back(made: MadeClass) -> None:
    student = made.student("ada")
    made.decide(student, "points", points=40)
    made.decide(student, "points", points=0, reason="copied")
    grade = Grades(made.folder).of(student)
    assert (grade.earned, grade.why, grade.is_open) == (0, "", False)
    assert grade.override is not None
    assert grade.override.reason == "copied"
    made.decide(student, "points", points=None)
    assert Grades(made.folder).of(student).earned is None
    assert Grades(made.folder).of(student).override is None


def test_points_that_were_not_graded_are_open_and_no_zero(made: MadeClass) -> None:
    student = graded(made, [sample("cpu")])
    grade = Grades(made.folder).of(student)
    assert (grade.earned, grade.is_open, grade.why) == (50, True, "50 of 100 points are not graded")
    alone = Grades(made.folder, "correctness").of(student)
    assert (alone.earned, alone.is_open, alone.why) == (50, False, "")
    nothing = sample("cpu")
    for part in nothing.assignments[2].parts:
        for group in part.groups:
            nothing = ending(nothing, part.name, group.name, group.cases[0].name, "skipped")
    only = [one for one in nothing.assignments if one.name == "softmax"]
    made.attempt(student, summed(nothing, only))
    grade = Grades(made.folder).of(student)
    assert grade.points is not None
    assert (grade.points.graded, grade.earned, grade.is_open) == (0, None, True)


def test_why_there_is_no_grade(made: MadeClass) -> None:
    made.student("nothing")
    made.student("pdf", notes=("lab.pdf: ignored", "handed in nothing that can be graded"))
    made.student("soon", files=softmax(1))
    made.attempt(made.student("fault", files=softmax(2)), None, fault="no GPU here", exit_code=3)
    made.attempt(made.student("unusable", files=softmax(3)), None, fault="there is no softmax.py", exit_code=2)
    broken = made.student("broken", files=softmax(4))
    made.attempt(broken, GPU)
    report = made.folder.tasks(broken.handin) / "attempt.1" / "report.json"
    report.write_text("{}")
    grades = {one.student.key: one for one in Grades(made.folder)}
    assert {one.earned for one in grades.values()} == {None}
    assert grades["nothing"].why == "nothing was handed in"
    assert grades["pdf"].why == "handed in nothing that can be graded"
    assert grades["soon"].why == "not graded yet"
    assert grades["fault"].why == "machine fault: no GPU here"
    assert grades["unusable"].why == "unusable submission: there is no softmax.py"
    assert grades["broken"].why.startswith(f"machine fault: {report}: is no report of this grader")


# Decisions ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(made: MadeClass) -> MadeClass:
    """Ada and Bob have one hand-in, Eve has another one, and one student has none."""
    made.attempt(made.student("ada", files=softmax(1)), GPU)
    made.student("bob", handin=made.students[0].handin)
    made.student("eve", files=softmax(2))
    made.student("lazy")
    return made


def test_decisions_are_added_and_earlier_ones_stay_byte_for_byte(shared: MadeClass) -> None:
    ada = shared.students[0]
    decide_points(shared.folder, ada, 12.5, "  an\nagreement ", "ta")
    before = shared.folder.decisions_file.read_bytes()
    decide_points(shared.folder, ada, None, "a mistake")
    decide_attempt(shared.folder, ada, "1", "the first")
    assert shared.folder.decisions_file.read_bytes().startswith(before)
    first, second, third = shared.folder.decisions()
    assert (first.points, first.reason, first.by, first.handin) == (12.5, "an agreement", "ta", "")
    assert second.points is None
    assert second.by != ""
    assert (third.counts, third.handin) == (1, ada.handin)
    assert Grades(shared.folder).of(ada).earned == 100
    assert [told(one).partition(": ")[2] for one in (first, second, third)] == [
        "12.5 points instead of the graded ones: an agreement",
        "the override is taken back: a mistake",
        "attempt 1 counts: the first",
    ]


def test_a_shared_hand_in_is_graded_again_once(shared: MadeClass) -> None:
    asked = ask_again(shared.folder, shared.students, "the course changed")
    assert [(one.who, one.kind, one.handin) for one in asked] == [
        ("ada", "regrade", shared.students[0].handin),
        ("eve", "regrade", shared.students[2].handin),
    ]
    assert shared.folder.decisions() == asked
