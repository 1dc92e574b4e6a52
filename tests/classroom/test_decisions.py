"""What people decide is checked, and only ever added."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom.decisions import ask_again, decide_attempt, decide_points, told
from grader.classroom.folder import ClassError
from grader.classroom.grades import Grades
from tests.support.classes import MadeClass, sample, softmax


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    made = MadeClass(tmp_path / "RUN")
    made.attempt(made.student("ada", files=softmax(1)), sample("gpu"))
    made.student("bob", handin=made.students[0].handin)
    made.student("eve", files=softmax(2))
    made.student("lazy")
    return made


def test_decisions_are_added_and_earlier_ones_stay_byte_for_byte(made: MadeClass) -> None:
    ada = made.students[0]
    decide_points(made.folder, ada, 12.5, "  an\nagreement ", "ta")
    before = made.folder.decisions_file.read_bytes()
    decide_points(made.folder, ada, None, "a mistake")
    decide_attempt(made.folder, ada, 1, "the first")
    assert made.folder.decisions_file.read_bytes().startswith(before)
    first, second, third = made.folder.decisions()
    assert (first.points, first.reason, first.by, first.handin) == (12.5, "an agreement", "ta", "")
    assert second.points is None
    assert second.by != ""
    assert (third.counts, third.handin) == (1, ada.handin)
    assert Grades(made.folder).of(ada).earned == 100
    assert [told(one).partition(": ")[2] for one in (first, second, third)] == [
        "12.5 points instead of the graded ones: an agreement",
        "the override is taken back: a mistake",
        "attempt 1 counts: the first",
    ]


def test_what_cannot_be_decided_is_refused_and_leaves_nothing(made: MadeClass) -> None:
    ada, _, eve, lazy = made.students
    for points in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ClassError, match="a number from 0 on is wanted"):
            decide_points(made.folder, ada, points, "so")
    with pytest.raises(ClassError, match="ada: there is no override to take back"):
        decide_points(made.folder, ada, None, "so")
    with pytest.raises(ClassError, match="a reason is wanted"):
        decide_points(made.folder, ada, 1, " \n ")
    with pytest.raises(ClassError, match="attempt 2 has no report; attempts with one: 1"):
        decide_attempt(made.folder, ada, 2, "so")
    with pytest.raises(ClassError, match="attempt 1 has no report; no attempt has one"):
        decide_attempt(made.folder, eve, 1, "so")
    with pytest.raises(ClassError, match="nothing was handed in, so no attempt can count"):
        decide_attempt(made.folder, lazy, "best", "so")
    with pytest.raises(ClassError, match="nothing was handed in by them"):
        ask_again(made.folder, [lazy], "so")
    assert made.folder.decisions() == []


def test_a_shared_hand_in_is_graded_again_once(made: MadeClass) -> None:
    asked = ask_again(made.folder, made.students, "the course changed")
    assert [(one.who, one.kind, one.handin) for one in asked] == [
        ("ada", "regrade", made.students[0].handin),
        ("eve", "regrade", made.students[2].handin),
    ]
    assert made.folder.decisions() == asked
