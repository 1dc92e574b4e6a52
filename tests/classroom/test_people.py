"""Who is meant by a key, a name, an email or another id."""

from __future__ import annotations

import pytest

from grader.classroom.folder import ClassError
from grader.classroom.model import Student
from grader.classroom.people import find, find_all

CLASS = (
    Student(key="ada", name="Ada Lovelace", ids={"email": "Ada@x.edu", "sid": "17"}),
    Student(key="alan", name="Alan Turing", ids={"email": "alan@x.edu", "sid": "18"}),
    Student(key="17", name="Grace Hopper"),
    Student(key="wei1", name="Wei Wang"),
    Student(key="wei2", name="Wei  WANG"),
    Student(key="ada2", name="Ada Yonath"),
)


@pytest.mark.parametrize(
    ("who", "key"),
    [
        ("ada", "ada"),
        ("ada@X.edu", "ada"),
        ("lovelace, ada", "ada"),
        ("18", "alan"),
        ("17", "17"),  # a key before an id
        ("turing", "alan"),
        ("WEI1", "wei1"),
        ("ｔｕｒｉｎｇ", "alan"),
    ],
)
def test_a_student_is_found(who: str, key: str) -> None:
    assert find(CLASS, who).key == key


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("wei wang", "'wei wang' may be wei1 (Wei Wang) or wei2 (Wei  WANG): name one by its key"),
        ("Ad", "'Ad' may be ada (Ada Lovelace) or ada2 (Ada Yonath): name one by its key"),
        ("Adda Lovelace", "'Adda Lovelace'; there is ada (Ada Lovelace)"),
        ("", "no student has the key, name, email or id ''; the class has 6 students"),
        ("zzz", "'zzz'; the class has 6 students"),
    ],
)
def test_a_doubt_is_refused_with_the_candidates(who: str, words: str) -> None:
    with pytest.raises(ClassError) as refused:
        find(CLASS, who)
    assert words in str(refused.value)


def test_a_student_is_found_by_a_name_as_it_is_spoken_where_canvas_has_put_it_together() -> None:
    """Without a roster a class from Canvas has no other names."""
    canvas = [Student(key=key, name=key) for key in ("lovelaceada", "turingalanmathison")]
    assert find(canvas, "Ada Lovelace").key == "lovelaceada"
    assert find(canvas, "Alan Mathison Turing").key == "turingalanmathison"


def test_a_student_who_is_named_twice_is_found_once() -> None:
    assert [one.key for one in find_all(CLASS, ["alan", "ada", "Alan Turing"])] == ["alan", "ada"]
