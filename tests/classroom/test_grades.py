"""The grade of each student: which attempt counts, and why there is none."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.classroom.grades import Ended, Grades, changes_of_counting, counts, number
from grader.classroom.model import Attempt, Decision, Student
from grader.report.model import Points, Report
from tests.support.classes import START, MadeClass, class_of, ending, sample, softmax, summed

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


def test_the_samples_differ_as_these_tests_need() -> None:
    assert [one.score.earned for one in (GPU, WORSE, MUCH_WORSE)] == [100, 98, 96]


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


def test_a_class_is_read_in_the_order_of_its_roster(tmp_path: Path) -> None:
    made = class_of(tmp_path / "RUN", [WORSE, None, GPU])
    assert [one.earned for one in Grades(made.folder)] == [98, None, 100]


def ended(at: int, earned: float, fault: str = "") -> Ended:
    moment = START + timedelta(hours=at)
    attempt = Attempt(number=at, started=moment, ended=moment, exit_code=0, place="node")
    return Ended(attempt, Path(), Points(earned=earned, graded=10, possible=10), fault)


STUDENT = Student(key="ada", handin="0" * 16)
CHOICES = st.one_of(st.sampled_from(["latest", "best"]), st.integers(1, 5))


@given(
    st.lists(st.tuples(st.integers(0, 10), st.booleans()), max_size=5),
    st.lists(st.tuples(CHOICES, st.integers(0, 11)), max_size=4),
)
def test_what_counted_last_is_what_counts(tries: list[tuple[int, bool]], decided: list[tuple[object, int]]) -> None:
    attempts = [ended(at, earned, "" if whole else "fault") for at, (earned, whole) in enumerate(tries, 1)]
    decisions = [
        Decision.model_validate(
            {
                "at": START + timedelta(minutes=30 * half),
                "by": "ta",
                "who": "ada",
                "kind": "counts",
                "reason": "so",
                "counts": wanted,
                "handin": STUDENT.handin,
            }
        )
        for wanted, half in sorted(decided, key=lambda one: one[1])
    ]
    history = changes_of_counting(attempts, decisions, STUDENT)
    assert history[-1] == counts(attempts, decisions, STUDENT)
    assert all(one != other for one, other in itertools.pairwise(history))
    assert set(history) <= {None, *attempts}


@given(st.floats(0, 1e6))
def test_a_number_is_decimal_and_near(value: float) -> None:
    assert set(number(value)) <= set("0123456789.")
    assert abs(float(number(value)) - value) <= 5.1e-5
    assert not number(value).endswith((".", ".0"))
