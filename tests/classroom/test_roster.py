"""Rosters as platforms write them, and the student that a platform means."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.classroom.folder import ClassError, Student
from grader.classroom.roster import ClassList, Person, find, new_key, read_roster


def read(text: str | bytes, tmp_path: Path) -> tuple[list[Student], list[str]]:
    path = tmp_path / "roster.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_roster(path)


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "student", "notes"),
    [
        (
            "name,email,sid\nAda Lovelace,ada@uni.edu,0012\n",
            Student(key="ada@uni.edu", name="Ada Lovelace", ids={"email": "ada@uni.edu", "sid": "0012"}),
            [],
        ),
        (  # Gradescope's roster
            "First Name,Last Name,SID,Email,Sections\nAda,Lovelace,0012,ada@uni.edu,A\n",
            Student(key="ada@uni.edu", name="Ada Lovelace", ids={"email": "ada@uni.edu", "sid": "0012"}),
            ["columns of roster.csv that are not used: Sections"],
        ),
        (  # Gradescope's roster with its staff
            "First Name,Last Name,SID,Email,Role\nTom,Ta,,tom@uni.edu,TA\nAda,Lovelace,0012,ada@uni.edu,Student\n"
            ",,,tina@uni.edu,Instructor\n",
            Student(key="ada@uni.edu", name="Ada Lovelace", ids={"email": "ada@uni.edu", "sid": "0012"}),
            ["no students by the role in roster.csv, and left out: Tom Ta (TA), tina@uni.edu (Instructor)"],
        ),
        (  # roles in a group
            "name,group,role\nAda,A,leader\n",
            Student(key="Ada", name="Ada", ids={"group": "A"}),
            ["columns of roster.csv that are not used: role"],
        ),
        (  # Canvas' gradebook
            "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Lab 1 (7),Final Score\r\n"
            "    Points Possible,,,,,10,(read only)\r\n"
            '"Lovelace, Ada",4711,0012,al12,A,9,90\r\n',
            Student(key="al12", name="Lovelace, Ada", ids={"sid": "0012", "login": "al12", "canvas": "4711"}),
            ["columns of roster.csv that are not used: Section, Lab 1 (7), Final Score"],
        ),
        (  # Canvas' gradebook with a column for each name
            "LastName,FirstName,ID,SIS Login ID,Lab 1 (7)\n    Points Possible,,,,10\nLovelace,Ada,4711,al12,9\n",
            Student(key="al12", name="Ada Lovelace", ids={"login": "al12", "canvas": "4711"}),
            ["columns of roster.csv that are not used: Lab 1 (7)"],
        ),
        (  # Canvas' gradebook after a look at the course as a student
            'Student,ID,SIS User ID,SIS Login ID\n"Student, Test",4799,,5f0c\n"Lovelace, Ada",4711,0012,al12\n',
            Student(key="al12", name="Lovelace, Ada", ids={"sid": "0012", "login": "al12", "canvas": "4711"}),
            ["roster.csv:2: Canvas' Test Student is nobody, and is left out"],
        ),
        (  # a TA's own
            "name,email\nTest Student,ta@uni.edu\n",
            Student(key="ta@uni.edu", name="Test Student", ids={"email": "ta@uni.edu"}),
            [],
        ),
        (  # Moodle's grading worksheet
            "Identifier,Full name,Email address,Status,Grade\nParticipant 657001,Ada Lovelace,ada@uni.edu,Submitted,\n",
            Student(key="ada@uni.edu", name="Ada Lovelace", ids={"email": "ada@uni.edu", "moodle": "657001"}),
            ["columns of roster.csv that are not used: Status, Grade"],
        ),
        (  # GitHub Classroom's roster
            '"identifier","github_username","github_id","name"\n"ada@uni.edu","ada-gh","123",""\n',
            Student(key="ada@uni.edu", ids={"login": "ada@uni.edu", "github": "ada-gh"}),
            ["columns of roster.csv that are not used: github_id, name"],
        ),
        (
            "\n  \nStudent-ID;Full_Name ;GitHub Username;Alias\n0012;Ada;ada-gh;Countess\n\n",
            Student(key="ada-gh", name="Ada", ids={"sid": "0012", "github": "ada-gh"}, alias="Countess"),
            [],
        ),
        ("name\tid\n Ada  \t 12 \n", Student(key="Ada", name="Ada", ids={"sid": "12"}), []),
        ("name\n\"Ada\nLovelace\"\n", Student(key="Ada-Lovelace", name="Ada\nLovelace"), []),
    ],
)  # fmt: skip
def test_rosters_as_they_come(text: str, student: Student, notes: list[str], tmp_path: Path) -> None:
    assert read(text, tmp_path) == ([student], notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "roster.csv: is empty; expected a CSV file whose first line names the columns, as name,email,sid"),
        ("name,email\n", "roster.csv: has no students; expected a line for each"),
        ("group,mark\nA,1\n", "the first line has no column that says who a student is, as name, firstname, lastname, email"),
        ("name,email,mail\nA,a@b,a@b\n", "roster.csv: the columns email and mail are both the email; keep one"),
        ("name,sid\nAda,1\nBen,2\nEve,1\n", "roster.csv:4: sid '1' is in line 2 too; expected a line for each student"),
        ("name,email\nAda,A@b.c\n\nBen,a@B.c\n", "roster.csv:4: email 'a@B.c' is in line 2 too"),
        ("name\n\"Lovelace, Ada\"\nAda Lovelace\n", "roster.csv:3: name 'ada lovelace' is in line 2 too"),
        ("name,sid,alias\nAda,1,x\nBen,2,X\n", "roster.csv:3: alias 'X' is in line 2 too"),
        ("name,sid\nAda,1,2\n", "roster.csv:2: has 3 cells; the first line has 2"),
        ('name,sid\nAda,1\n"Ben,2\n', "roster.csv:3: a quoted cell has no end"),
        ("name,sid\nJürgen,1\n".encode("cp1252"), "roster.csv: is not in UTF-8; save it as `CSV UTF-8`"),
        ("name,sid\n".encode("utf-16"), "roster.csv: is not in UTF-8"),
    ],
)  # fmt: skip
def test_a_roster_that_cannot_be_used_is_refused_with_its_line(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ClassError) as refused:
        read(text, tmp_path)
    assert words in str(refused.value)


def test_a_roster_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClassError, match=r"gone\.csv: cannot be read \(No such file or directory\)"):
        read_roster(tmp_path / "gone.csv")


def test_one_name_may_be_in_two_lines_with_ids(tmp_path: Path) -> None:
    students, _ = read("name,sid\nAda,1\nAda,2\n", tmp_path)
    assert [one.key for one in students] == ["Ada", "Ada-2"]


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_no_file_is_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "some-roster.csv"
    path.write_bytes(b"name,email\n" * (len(content) % 2) + content)
    with contextlib.suppress(ClassError):
        students, _ = read_roster(path)
        assert len({one.key.casefold() for one in students}) == len(students)


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ids", "key"),
    [
        ("Ada Lovelace", {"login": "al12", "email": "ada@uni.edu"}, "al12"),
        ("Ada Lovelace", {"email": "ada@uni.edu", "sid": "12"}, "ada@uni.edu"),
        ("Ada Lovelace", {"sid": "12", "canvas": "4711"}, "Ada-Lovelace"),
        ("", {"folder": "../../etc"}, "etc"),
        ("--help", {}, "help"),
        ("²", {}, "student"),
        ("Łukasz Żak", {}, "Łukasz-Żak"),
        ("शर्मा, कमला", {}, "शर्मा-कमला"),
    ],
)
def test_a_key_is_what_a_ta_would_type(name: str, ids: dict[str, str], key: str) -> None:
    assert new_key(name, ids, set()) == key


# Who is meant ---------------------------------------------------------------------------------------------------------

ROSTER = (
    Student(key="al12", name="Lovelace, Ada", ids={"sid": "0012", "login": "al12", "email": "ada.l@uni.edu"}),
    Student(key="at", name="Alan Mathison Turing", ids={"sid": "0013", "github": "turing-a"}),
    Student(key="jm", name="Jürgen Müller", ids={"canvas": "77"}),
    Student(key="jm2", name="Jürgen Müller", ids={"canvas": "78"}),
    Student(key="bea", name="Bea Groß", ids={}),
    Student(key="ram", name="राम", ids={}),
    Student(key="ipek", name="Yılmaz, İpek", ids={}),
)


def class_list(*students: Student) -> ClassList:
    return ClassList({one.key: one for one in students})


@pytest.mark.parametrize(
    ("person", "key"),
    [
        (Person(ids={"email": "ADA.L@uni.edu"}), "al12"),
        (Person("Somebody", {"sid": "0012", "email": "else@x.y"}), "al12"),
        (Person("Ada Lovelace", {"email": "private@mail.org"}), "al12"),
        (Person("Ada Lovelace", {"sid": "9999"}), None),
        (Person("lovelaceada", {"canvas": "1"}), "al12"),
        (Person("turingalanmathison", {"canvas": "1"}), "at"),
        (Person("mathisonturingalan", {"canvas": "1"}), None),
        (Person("Muller Jurgen", {"canvas": "77"}), "jm"),
        (Person("müllerjürgen", {"canvas": "79"}), None),
        (Person("", {"folder": "AL12"}), "al12"),
        (Person("", {"folder": "0013"}), "at"),
        (Person("", {"folder": "ada.l"}), None),
        (Person("Lovelace, Ada", {"folder": "Lovelace, Ada"}), "al12"),
        (Person("", {"github": "turing-a"}), "at"),
        (Person("", {"github": "1-turing-a"}), None),
        (Person("Group-A-Bea Groß", {"moodle": "5"}), None),
        (Person("Bea Gross", {}), "bea"),
        (Person("राम", {"canvas": "6"}), "ram"),
        (Person("रमा", {"canvas": "6"}), None),
        (Person("yılmazi\u0307pek", {"canvas": "6"}), "ipek"),
        (Person("İpek Yılmaz", {"moodle": "6"}), "ipek"),
        (Person("", {"email": "at@private.org"}), None),
        (Person("", {"email": "al12@private.org"}), None),
        (Person("Emmy Noether", {"email": "emmy@uni.edu"}), None),
        (Person("", {"moodle": "5"}), None),
    ],
)
def test_the_student_who_is_meant(person: Person, key: str | None) -> None:
    found, why = class_list(*ROSTER).find(person)
    assert (found.key if found else None, why) == (key, "")


def test_of_groups_with_names_alike_the_students_own_is_meant() -> None:
    ada, ben, eve = (
        Student(key=key, ids={"canvas": key, "group": group})
        for key, group in (("ada", "Team 1"), ("ben", "Team 1"), ("eve", "team-1"))
    )
    students = class_list(*ROSTER, ada, ben, eve)
    assert students.group(Person("team1"), eve) == [eve]
    assert students.group(Person("team1"), ben) == [ada, ben]
    assert students.group(Person("team1"), ROSTER[0]) == []
    assert students.group(Person("team1"), None) == [], "nobody knows which"


def test_a_group_without_a_letter_in_its_name_is_nobodys_name() -> None:
    smile = Student(key="ada", ids={"group": "🙂"})
    assert class_list(smile).group(Person("Ben"), None) == []


@pytest.mark.parametrize(
    ("person", "words"),
    [
        (Person("Jürgen Müller"), "Jürgen Müller may be jm or jm2, by the name 'Jürgen Müller': nobody was chosen"),
        (Person("Ada", {"sid": "0013", "email": "ada.l@uni.edu"}), "Ada may be al12 or at, by ids: nobody was chosen"),
    ],
)
def test_of_two_students_nobody_is_chosen(person: Person, words: str) -> None:
    assert class_list(*ROSTER).find(person) == (None, words)


@pytest.mark.parametrize(
    ("who", "key"),
    [("al12", "al12"), ("AL12", "al12"), (" ada   lovelace", "al12"), ("Lovelace, Ada", "al12"), ("0013", "at"), ("turing-a", "at")],
)  # fmt: skip
def test_who_is_a_key_a_name_or_an_id(who: str, key: str) -> None:
    assert find(ROSTER, who).key == key


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("Jürgen Müller", "'Jürgen Müller' may be jm (Jürgen Müller) or jm2 (Jürgen Müller): name one by its key"),
        ("love", "no student has the key, name, email or id 'love'; there is al12 (Lovelace, Ada)"),
        ("zz", "no student has the key, name, email or id 'zz'; the class has 7 students"),
        ("", "no student has the key, name, email or id ''; the class has 7 students"),
    ],
)
def test_who_is_nobody_or_two_is_told(who: str, words: str) -> None:
    with pytest.raises(ClassError) as refused:
        find(ROSTER, who)
    assert str(refused.value) == words
