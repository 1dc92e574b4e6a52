"""Rosters as platforms write them, and the student that a platform means."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.classroom.folder import ClassError
from grader.classroom.handins import Person
from grader.classroom.model import Student
from grader.classroom.roster import Ambiguous, ClassList, name_forms, new_key, read_roster
from grader.report.style import first_of


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
        (  # Moodle's grading worksheet in German
            "\ufeffID,Vollständiger Name,E-Mail-Adresse,Status,Bewertung,Bestwertung\n"
            'Teilnehmer/in657001,Ada Lovelace,ada@uni.edu,Abgegeben,,"15,00"\n',
            Student(key="ada@uni.edu", name="Ada Lovelace", ids={"email": "ada@uni.edu", "moodle": "657001"}),
            ["columns of roster.csv that are not used: Status, Bewertung, Bestwertung"],
        ),
        (  # Moodle's grading worksheet in French, of an assignment without names
            "Identifiant;Statut;Note;Note maximale\nParticipant 657001;Remis;;15\n",
            Student(key="657001", ids={"moodle": "657001"}),
            ["columns of roster.csv that are not used: Statut, Note, Note maximale"],
        ),
        (  # GitHub Classroom's roster
            '"identifier","github_username","github_id","name"\n"ada@uni.edu","ada-gh","123",""\n',
            Student(key="ada@uni.edu", ids={"email": "ada@uni.edu", "github": "ada-gh"}),
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
        ("", "roster.csv: is empty; expected a first line with the columns, as name,email,sid"),
        ("name,email\n", "roster.csv: has no students; expected a line for each"),
        ("group,mark\nA,1\n", "the first line has no column that says who a student is, as name, firstname, lastname, email"),
        ("name,email,mail\nA,a@b,a@b\n", "roster.csv: the columns email and mail are both the email; keep one"),
        ("name,sid\nAda,1\nBen,2\nEve,1\n", "roster.csv:4: sid '1' is in line 2 too; expected a line for each student"),
        ("name,email\nAda,A@b.c\n\nBen,a@B.c\n", "roster.csv:4: email 'a@B.c' is in line 2 too"),
        ("name\n\"Lovelace, Ada\"\nAda Lovelace\n", "roster.csv:3: name 'ada lovelace' is in line 2 too"),
        ("name,sid,alias\nAda,1,x\nBen,2,X\n", "roster.csv:3: alias 'X' is in line 2 too"),
        ("name,sid\nAda,1,2\n", "roster.csv:2: has 3 cells; the first line has 2"),
        ('name,sid\nAda,1\n"Ben,2\n', "roster.csv:3: is no CSV (unexpected end of data)"),
        ("name,sid\nJürgen,1\n".encode("cp1252"), "roster.csv: is not in UTF-8; save it as `CSV UTF-8`"),
        ("name,sid\n".encode("utf-16"), "roster.csv: is not in UTF-8"),
    ],
)  # fmt: skip
def test_a_roster_that_cannot_be_used_is_refused_with_its_line(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ClassError) as refused:
        read(text, tmp_path)
    assert words in str(refused.value)


def test_a_roster_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClassError, match=r"gone\.csv: cannot be read \(No such file or directory\); expected a roster"):
        read_roster(tmp_path / "gone.csv")


@pytest.mark.parametrize(
    ("identifiers", "field"),
    [
        (["doe01", "roe01", ""], "login"),
        (["0012", "0013", ""], "sid"),
        (["Doe 1", "Roe 1", ""], "name"),
        (["doe@uni.edu", "roe@uni.edu", ""], "email"),
    ],
)
def test_what_identifies_in_github_classroom_is_told_by_its_form(
    identifiers: list[str], field: str, tmp_path: Path
) -> None:
    lines = "".join(f"{one},gh-{number},{number},\n" for number, one in enumerate(identifiers))
    students, _ = read(f"identifier,github_username,github_id,name\n{lines}", tmp_path)
    assert [one.name if field == "name" else one.ids.get(field, "") for one in students] == identifiers


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("ID,Name,E-Mail,Tutorial\ns101,Ada,ada@uni.edu,A\ns102,Ben,ben@uni.edu,B\n", {"sid": "s101", "email": "ada@uni.edu"}),
        ("ID,Name,Tutorial\ns101,Ada,1\nt102,Ben,1\n", {"sid": "s101"}),
        ("ID,Name,Tutorial\ns101,Ada,1\n102,Ben,1\n", {"sid": "s101"}),
    ],
)  # fmt: skip
def test_a_roster_of_a_tas_own_is_no_worksheet(text: str, ids: dict[str, str], tmp_path: Path) -> None:
    students, _ = read(text, tmp_path)
    assert (students[0].name, students[0].ids) == ("Ada", ids)


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

WORDS = st.text(max_size=120)


@given(
    st.lists(st.tuples(WORDS, st.dictionaries(st.sampled_from(["login", "email", "sid", "folder"]), WORDS)), max_size=5)
)
def test_every_key_is_one_and_no_two_are_equal(people: list[tuple[str, dict[str, str]]]) -> None:
    taken: set[str] = set()
    keys = [Student(key=new_key(name, ids, taken)).key for name, ids in people]
    assert len({key.casefold() for key in keys}) == len(keys)
    assert not [key for key in keys if key.startswith(("-", "."))]


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


@pytest.mark.parametrize(
    ("person", "key"),
    [
        (Person(ids={"email": "ADA.L@uni.edu"}), "al12"),
        (Person("Somebody", {"sid": "0012", "email": "else@x.y"}), "al12"),
        (Person("Ada Lovelace", {"email": "private@mail.org"}), "al12"),
        (Person("Ada Lovelace", {"sid": "9999"}), None),
        (Person("lovelaceada", {"canvas": "1"}), "al12"),
        (Person("turingalanmathison", {"canvas": "1"}), "at"),
        (Person("mathisonturingalan", {"canvas": "1"}), "at"),
        (Person("Muller Jurgen", {"canvas": "77"}), "jm"),
        (Person("müllerjürgen", {"canvas": "79"}), None),
        (Person("", {"folder": "AL12"}, ("AL12",)), "al12"),
        (Person("", {"folder": "0013"}, ("0013",)), "at"),
        (Person("", {"folder": "ada.l"}, ("ada.l",)), "al12"),
        (Person("Lovelace, Ada", {"folder": "Lovelace, Ada"}, ("Lovelace, Ada",)), "al12"),
        (Person("", {"github": "turing-a"}), "at"),
        (Person("", {"github": "1-turing-a"}, ("turing-a", "a")), "at"),
        (Person("", {}, ("lab-turing-a", "turing-a", "a")), "at"),
        (Person("Group-A-Bea Groß", {"moodle": "5"}, ("A-Bea Groß", "Bea Groß")), "bea"),
        (Person("Bea Gross", {}), "bea"),
        (Person("राम", {"canvas": "6"}), "ram"),
        (Person("रमा", {"canvas": "6"}), None),
        (Person("yılmazi\u0307pek", {"canvas": "6"}), "ipek"),
        (Person("İpek Yılmaz", {"moodle": "6"}), "ipek"),
        (Person("", {"email": "at@private.org"}), "at"),
        (Person("", {"email": "al12@private.org"}), None),
        (Person("Emmy Noether", {"email": "emmy@uni.edu"}), None),
        (Person("", {"moodle": "5"}), None),
    ],
)
def test_the_student_who_is_meant(person: Person, key: str | None) -> None:
    found = ClassList(ROSTER).find(person)
    assert (found.key if found else None) == key


def test_of_groups_with_names_alike_the_students_own_is_meant() -> None:
    ada, ben, eve = (
        Student(key=key, ids={"canvas": key, "group": group})
        for key, group in (("ada", "Team 1"), ("ben", "Team 1"), ("eve", "team-1"))
    )
    students = ClassList([*ROSTER, ada, ben, eve])
    assert students.group(Person("team1"), eve) == [eve]
    assert students.group(Person("team1"), ben) == [ada, ben]
    assert students.group(Person("team1"), ROSTER[0]) == []
    assert students.group(Person("team1"), None) == [], "nobody knows which"


def test_a_group_without_a_letter_in_its_name_is_nobodys_name() -> None:
    smile = Student(key="ada", ids={"group": "🙂"})
    assert ClassList([smile]).group(Person("Ben"), None) == []


@pytest.mark.parametrize(
    ("person", "words"),
    [
        (Person("Jürgen Müller"), "Jürgen Müller may be jm or jm2, by the name 'Jürgen Müller'"),
        (Person("Ada", {"sid": "0013", "email": "ada.l@uni.edu"}), "Ada may be al12 or at, by ids"),
    ],
)
def test_of_two_students_nobody_is_chosen(person: Person, words: str) -> None:
    with pytest.raises(Ambiguous) as why:
        ClassList(ROSTER).find(person)
    assert str(why.value) == words


def test_a_student_who_was_added_is_found_again() -> None:
    students = ClassList(ROSTER)
    added = students.add(Person("Ada Lovelace", {"sid": "99", "email": "x@y.z"}))
    assert added.key == "x@y.z"
    assert students.find(Person("", {"sid": "99"})) == added
    assert students.namesakes(Person("Ada Lovelace")) == ["al12", "x@y.z"]
    assert [one.key for one in students] == [*(one.key for one in ROSTER), "x@y.z"]


@given(st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=8), min_size=1, max_size=4))
def test_a_name_is_one_in_each_order_of_its_parts(words: list[str]) -> None:
    spoken = " ".join(words)
    for number in range(1, len(words)):
        first, family = " ".join(words[:number]), " ".join(words[number:])
        assert name_forms(f"{family}, {first}") == name_forms(spoken)
        assert name_forms("".join((family + first).split())) <= name_forms(spoken)


def test_many_names_are_cut() -> None:
    assert first_of(list("abc"), 3) == "a, b, c"
    assert first_of(list("abcde"), 3) == "a, b, c and 2 more"
