"""Grades in the CSV files of Canvas and Moodle, as those platforms make them, and in our own."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path

import pytest

from grader.classroom.folder import Attempt, ClassError, Decision, Student
from grader.classroom.gradebook import COLUMNS, fill_canvas, fill_moodle, table
from grader.classroom.grades import Ended, Grade
from grader.classroom.sheet import parsed
from grader.report.model import Points
from tests.support.classes import START

CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Lab 3: GPU kernels (8123),Lab 4 (8124),Lab Score\r\n"
    '"    Points Possible",,,,,100.0,10.0,(read only)\r\n'
    '"Lovelace, Ada",101,u17,ada,"CS 1, CS 2",,"9",90.0\r\n'
    '"Turing, ""Al"" Alan",102,u18,alan,CS 1,55,8,80\r\n'
    '"O\'Brien, Eve",103,,eve,CS 1,,,\r\n'
    '"Hopper, Grace",104,u20,grace,CS 1, 12 ,,\r\n'
    '"Student, Test",999,,0f2a,CS 1,1,,\r\n'
)
MOODLE = (
    '\ufeffIdentifier,"Full name","Email address",Status,Grade,"Maximum Grade",'
    '"Grade can be changed","Last modified (grade)","Feedback comments"\n'
    '"Participant 7001","Ada Lovelace",ada@x.edu,"Submitted for grading",,100.00,Yes,-,\n'
    '"Participant 7002","Alan Turing",alan@x.edu,"No submission",50.00,100.00,Yes,"Friday, 6 November 2026, 1:00 PM","see, ""below"""\n'
    '"Participant 7003","Eve O\'Brien",eve@x.edu,"Submitted for grading",,100.00,Yes,-,\n'
)
MOODLE_IN_GERMAN = (
    MOODLE.replace("100.00", '"100,00"').replace("50.00", '"50,00"').replace("Participant ", "Teilnehmer/in")
)
MOODLE_IN_GERMAN = MOODLE_IN_GERMAN.replace('Identifier,"Full name"', 'ID,"Vollständiger Name"').replace(
    'Grade,"Maximum Grade"', 'Bewertung,"Höchste Bewertung"'
)


def grade(
    key: str,
    earned: float | None = None,
    graded: float = 100,
    override: float | None = None,
    missing: str = "not graded yet",
    **fields: object,
) -> Grade:
    student = Student.model_validate({"key": key, "handin": "0" * 16, **fields})
    counting = None
    if earned is not None:
        attempt = Attempt(number=2, started=START, ended=START + timedelta(minutes=1), exit_code=0, place="node")
        counting = Ended(attempt, Path(), Points(earned=earned, graded=graded, possible=100))
    decided = None
    if override is not None:
        decided = Decision(at=START, by="ta", who=key, kind="points", reason="=2+2, an agreement", points=override)
    return Grade(student, counting, decided, "" if counting else missing)


GRADES = [
    grade("ada", 87.5, name="Ada Lovelace", ids={"canvas": "101", "moodle": "7001"}),
    grade("alan", None, name="Alan Turing", ids={"sid": "U18", "email": "alan@x.edu"}),
    grade("e1", 0, name="Eve O'Brien"),
    grade("grace", 3, override=60.25, name="Someone else"),
]


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


def test_canvas_gets_its_file_back_with_the_grades_alone() -> None:
    filled = fill_canvas(parsed(CANVAS.encode(), "canvas.csv"), GRADES, "Lab 3: GPU kernels")
    expected = (
        CANVAS.replace('"CS 1, CS 2",,"9"', '"CS 1, CS 2",87.5,"9"')
        .replace("alan,CS 1,55,8", "alan,CS 1,,8")
        .replace("eve,CS 1,,,", "eve,CS 1,0,,")
        .replace("grace,CS 1, 12 ,", "grace,CS 1,60.25,")
    )
    assert filled.content == expected.encode()
    assert filled.graded == 3
    assert filled.notes == ("1 row of nobody in the class, left alone: canvas.csv:7",)


def test_who_is_excused_in_canvas_stays_so() -> None:
    """Excused by the staff, an empty cell or a grade would take that back."""
    excused = CANVAS.replace("alan,CS 1,55", "alan,CS 1,EX").replace("grace,CS 1, 12 ", "grace,CS 1,N/A")
    filled = fill_canvas(parsed(excused.encode(), "canvas.csv"), GRADES, "8123")
    assert [row[5] for row in rows(filled.content)][2:6] == ["87.5", "EX", "0", "N/A"]
    words = "2 students with EX or N/A instead of points, which stays: alan (Alan Turing), grace (Someone else)"
    assert (filled.graded, filled.notes[1]) == (2, words)


def test_the_row_of_canvas_that_says_manual_posting_is_nobodys() -> None:
    text = CANVAS.replace('"    Points', ',,,,,Manual Posting,,\r\n"    Points')
    filled = fill_canvas(parsed(text.encode(), "canvas.csv"), GRADES, "8123")
    assert filled.notes == ("1 row of nobody in the class, left alone: canvas.csv:8",)
    assert rows(filled.content)[1][5] == "Manual Posting"


def test_canvas_may_have_a_column_for_each_name() -> None:
    text = (
        "LastName,FirstName,ID,SIS Login ID,Section,Lab 3 (8123)\r\n"
        "    Points Possible,,,,,100.0\r\nLovelace,Ada,7,,A,\r\nTuring,Alan,102,alan,A,3\r\n"
    )
    some = [grade("a1", 5, name="Ada Lovelace"), grade("b1", 6, ids={"login": "alan"})]
    filled = fill_canvas(parsed(text.encode(), "c"), some)
    assert filled.content == text.replace(",A,\r", ",A,5\r").replace("A,3", "A,6").encode()


@pytest.mark.parametrize("column", ["Lab 4", "lab 4 (8124)", "8124"])
def test_canvas_column_is_named_by_title_or_id(column: str) -> None:
    filled = fill_canvas(parsed(CANVAS.encode(), "canvas.csv"), GRADES, column)
    assert [row[6] for row in rows(filled.content)] == ["Lab 4 (8124)", "10.0", "87.5", "", "0", "60.25", ""]
    assert "'Lab 4 (8124)': the platform has 10 points at most, the class 100" in filled.notes


def test_the_only_column_of_canvas_needs_no_name() -> None:
    one = CANVAS.replace(",Lab 4 (8124)", ",Final Score (2026)")  # a total of a grading period
    assert [row[5] for row in rows(fill_canvas(parsed(one.encode(), "c"), GRADES).content)][2] == "87.5"


@pytest.mark.parametrize(
    ("change", "column", "words"),
    [
        (("", ""), "", "canvas.csv:1: 2 columns may be the one for the grades; name it by --column, of: 'Lab 3"),
        (("", ""), "Lab 5", "canvas.csv:1: no column fits --column 'Lab 5'; there are: 'Lab 3: GPU kernels (8123)'"),
        (("Lab 4", "Lab 3: GPU kernels"), "Lab 3: GPU kernels", "canvas.csv:1: 2 columns fit --column"),
        (("(8123)", ""), "Lab 3: GPU kernels", "canvas.csv:1: no column fits"),
        (("Student,ID", "Name,Number"), "8123", "canvas.csv:1: a gradebook of Canvas has the columns Student and ID"),
        (
            ("102,u18,alan", "101,u18,alan"),
            "8123",
            "canvas.csv:4: this row may be ada (Ada Lovelace) by ID '101' and alan",
        ),
        (("104,u20,grace", "104,u20,ADA"), "8123", "canvas.csv:6: this row and line 3 are both ada (Ada Lovelace)'s"),
    ],
)
def test_a_doubt_about_canvas_is_refused_with_its_line(change: tuple[str, str], column: str, words: str) -> None:
    with pytest.raises(ClassError) as refused:
        fill_canvas(parsed(CANVAS.replace(*change, 1).encode(), "canvas.csv"), GRADES, column)
    assert str(refused.value).startswith(words)


def test_two_students_of_one_name_are_told_apart_by_ids_alone() -> None:
    twins = [grade("w1", 10, name="Ada Lovelace"), grade("w2", 20, name="Ada Lovelace")]
    with pytest.raises(ClassError, match=r"canvas.csv:3: this row may be w1 .* by Student 'Lovelace, Ada' and w2"):
        fill_canvas(parsed(CANVAS.encode(), "canvas.csv"), twins, "8123")
    known = [twins[0], grade("w2", 20, name="Ada Lovelace", ids={"login": "ADA"})]
    filled = fill_canvas(parsed(CANVAS.encode(), "canvas.csv"), known, "8123")
    assert rows(filled.content)[2][5] == "20"
    assert "1 student with a grade and without a row: w1 (Ada Lovelace)" in filled.notes


def test_a_key_is_a_login_and_no_other_id_and_nothing_is_nobodys_name() -> None:
    some = [grade("102", 7), grade("ada", 8), grade("ghost", 9, ids={"sid": " "})]
    text = CANVAS.replace('"O\'Brien, Eve"', "")
    assert [row[5] for row in rows(fill_canvas(parsed(text.encode(), "c"), some, "8123").content)][2:5] == [
        "8",
        "55",
        "",
    ]


@pytest.mark.parametrize(("text", "comma"), [(MOODLE, False), (MOODLE_IN_GERMAN, True)], ids=["english", "german"])
def test_moodle_gets_its_file_back_in_any_language(text: str, comma: bool) -> None:
    filled = fill_moodle(parsed(text.encode(), "moodle.csv"), GRADES)
    number, old = ('"87,5"', '"50,00",') if comma else ("87.5", "50.00,")
    expected = (
        text.replace('ada@x.edu,"Submitted for grading",,', f'ada@x.edu,"Submitted for grading",{number},')
        .replace(f'"No submission",{old}', '"No submission",,')
        .replace('eve@x.edu,"Submitted for grading",,', 'eve@x.edu,"Submitted for grading",0,')
    )
    assert filled.content == expected.encode()
    assert filled.notes == ("1 student with a grade and without a row: grace (Someone else)",)


@pytest.mark.parametrize("column", ["Grade", "5"])
def test_moodles_column_is_named_by_header_or_place(column: str) -> None:
    assert fill_moodle(parsed(MOODLE.encode(), "m"), GRADES, column).content.count(b"87.5,100.00") == 1


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        (MOODLE.replace("100.00", "best"), "", "m:1: no column can be told to be the one for the grades; name it by"),
        (MOODLE.replace("Yes", "1"), "", "m:1: 2 columns may be the one for the grades"),
        (MOODLE, "Marks", "m:1: no column fits --column 'Marks'; there are: 'Identifier', 'Full name'"),
        ("a,b\n1,2\n", "", "m:1: a grading worksheet of Moodle has more columns than 2"),
        (MOODLE.replace("7002", "7001"), "", "m:3: this row may be ada (Ada Lovelace) by Identifier '7001' and alan"),
    ],
)
def test_a_doubt_about_moodle_is_refused_with_its_line(text: str, column: str, words: str) -> None:
    with pytest.raises(ClassError) as refused:
        fill_moodle(parsed(text.encode(), "m"), GRADES, column)
    assert str(refused.value).startswith(words)


def test_our_own_table_says_all() -> None:
    some = [*GRADES, grade("open", 50, 50, name="=cmd|'/c calc'!A0", late=True, ids={"email": "@x"})]
    head, *found = csv.reader(io.StringIO(table(some), newline=""))
    assert tuple(head) == COLUMNS
    by_key = {row[0]: dict(zip(head, row, strict=True)) for row in found}
    assert by_key["ada"]["points"] == "87.5"
    assert (by_key["alan"]["points"], by_key["alan"]["graded"]) == ("", "")
    assert by_key["alan"]["note"] == "not graded yet"
    assert by_key["e1"]["points"] == "0"
    assert (by_key["grace"]["points"], by_key["grace"]["override"]) == ("60.25", "'=2+2, an agreement")
    assert by_key["open"]["note"] == "50 of 100 points are not graded"
    assert (by_key["open"]["name"], by_key["open"]["email"]) == ("'=cmd|'/c calc'!A0", "'@x")
    assert (by_key["open"]["late"], by_key["open"]["attempt"]) == ("late", "2")
