"""Reads the roster of a class from a CSV file, and finds the student whom a platform names.

Canvas' gradebook, its list of a group set's groups, Moodle's grading worksheet and the rosters of Gradescope and GitHub
Classroom are rosters too. Only columns that identify students are kept, and no marks of other labs.
"""

from __future__ import annotations

import csv
import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from grader.classroom.folder import ClassError
from grader.classroom.handins import Person
from grader.classroom.model import Student
from grader.report.style import first_of

MAX_ROSTER_BYTES = 16 << 20
TEST_STUDENT = "Canvas' Test Student is nobody, and is left out"
# By field, the names of its columns without spaces and signs.
COLUMNS = {
    "name": "name fullname student studentname",
    "first": "firstname givenname forename first",
    "last": "lastname surname familyname last",
    "email": "email emailaddress mail",
    "sid": "sid studentid studentnumber idnumber sisuserid sisid universityid matriculationnumber",
    "login": "login loginid sisloginid username netid userid user",
    "canvas": "canvasid canvasuserid",
    "moodle": "moodleid moodle identifier participant",
    "github": "github githubusername githubuser githublogin",
    "alias": "alias nickname pseudonym",
    "group": "group groupname",
    "role": "role roles",
}
FIELDS = {column: field for field, columns in COLUMNS.items() for column in columns.split()}
UNIQUE = ("email", "sid", "login", "canvas", "moodle", "github")  # each says who somebody is
PROOF = (*UNIQUE, "folder")
KEYS = (
    "login",
    "email",
    "github",
    "folder",
    "name",
    "sid",
    "canvas",
    "moodle",
)  # the first that a student has is the key


def read_roster(path: Path) -> tuple[list[Student], list[str]]:
    """The students of a roster in its order, and sentences about rows and columns that are not used. Raises ClassError."""
    every = list(_rows(path))
    if not every:
        raise ClassError(f"{path}: is empty; expected a first line with the columns, as name,email,sid")
    (_, header), *rows = every
    fields = _fields(path, header, [cells for _, cells in rows])
    unused = [column.strip() for column, field in zip(header, fields, strict=True) if not field and column.strip()]
    students: list[Student] = []
    lines: dict[tuple[str, str], int] = {}
    taken: set[str] = set()
    notes = [f"columns of {path.name} that are not used: {first_of(unused)}"] * bool(unused)
    staff: list[str] = []
    for line, cells in rows:
        if any(cell.strip() for cell in cells[len(fields) :]):
            raise ClassError(f"{path}:{line}: has {len(cells)} cells; the first line has {len(fields)}")
        said = {field: cell.strip() for field, cell in zip(fields, cells, strict=False) if field and cell.strip()}
        if not said or (set(said) <= {"name", "last"} and "Points Possible" in said.values()):  # a row of Canvas'
            continue
        if "canvas" in said and is_test_student(_name(said)):
            notes.append(f"{path.name}:{line}: {TEST_STUDENT}")
            continue
        if "student" not in said.get("role", "student").casefold():
            staff.append(f"{_name(said) or said.get('email', f'line {line}')} ({said['role']})")
            continue
        student = _student(said, taken)
        same = [(field, student.ids[field]) for field in UNIQUE if field in student.ids]
        same += [("alias", student.alias)] * bool(student.alias)
        same = same or [("name", " ".join(_words(student.name)))]
        for field, value in same:
            if first := lines.get((field, value.casefold())):
                raise ClassError(
                    f"{path}:{line}: {field} {value!r} is in line {first} too; expected a line for each student"
                )
        lines |= {(field, value.casefold()): line for field, value in same}
        students.append(student)
    if not students:
        raise ClassError(f"{path}: has no students; expected a line for each")
    return students, [
        *notes,
        *[f"no students by the role in {path.name}, and left out: {first_of(staff)}"] * bool(staff),
    ]


def is_test_student(name: str) -> bool:
    """Whether this is Canvas' name for a teacher who looks at the course as a student."""
    return bool(name_forms(name) & name_forms("Test Student"))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with its line number. Raises ClassError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ROSTER_BYTES + 1)
        if len(content) > MAX_ROSTER_BYTES:
            raise ClassError(f"{path}: is larger than {MAX_ROSTER_BYTES >> 20} MiB; expected a line for each student")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise ClassError(f"{path}: cannot be read ({error.strerror}); expected a roster as a CSV file") from None
    except UnicodeDecodeError:
        raise ClassError(f"{path}: is not in UTF-8; save it as `CSV UTF-8`") from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    found = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    end = 0
    try:
        for cells in found:
            line, end = end + 1, found.line_num
            if any(cell.strip() for cell in cells):
                yield line, cells
    except csv.Error as error:
        raise ClassError(f"{path}:{found.line_num}: is no CSV ({error})") from None


def _fields(path: Path, header: list[str], rows: Sequence[list[str]]) -> list[str]:
    """The field of each column; empty for a column that is not used, as one without any cell."""
    plain = [re.sub(r"[^a-z0-9]", "", column.casefold()) for column in header]
    columns = [[row[at].strip() for row in rows if row[at : at + 1] and row[at].strip()] for at in range(len(header))]
    fields = [FIELDS.get(name, "") if cells or not rows else "" for name, cells in zip(plain, columns, strict=True)]
    # Canvas' gradebook calls its own number ID; elsewhere that is the university's.
    of_canvas = {"student", "sisloginid", "sisuserid"} & set(plain)
    if "id" in plain:
        fields[plain.index("id")] = "canvas" if of_canvas else "sid"
    if {"canvasuserid", "userid"} <= set(plain):  # its list of groups calls the university's number so
        fields[plain.index("userid")] = "sid"
    if {"identifier", "githubusername"} <= set(plain):  # GitHub Classroom's roster; a teacher chose what identifies
        fields[plain.index("identifier")] = _kind_of(columns[plain.index("identifier")])
    elif _is_worksheet(columns):
        fields[0] = "moodle"
        with_emails = [at for at, cells in enumerate(columns) if cells and _kind_of(cells) == "email"]
        for at in with_emails[:1]:  # names are shown there too then
            fields[1], fields[at] = "name", "email"
    for at, cells in enumerate(columns):
        if fields[at] == "role" and not any("student" in cell.casefold() for cell in cells):
            fields[at] = ""  # these are roles in groups, or in another language
    for field in filter(None, fields):
        if fields.count(field) > 1:
            both = [column.strip() for column, other in zip(header, fields, strict=True) if other == field]
            raise ClassError(f"{path}: the columns {' and '.join(both[:2])} are both the {field}; keep one")
    if not {"name", "last", *UNIQUE} & set(fields):
        known = ", ".join(columns.split()[0] for columns in COLUMNS.values())
        raise ClassError(f"{path}: the first line has no column that says who a student is, as {known}")
    return fields


def _kind_of(cells: Sequence[str]) -> str:
    """The field of a column of ids, by its cells."""
    if all("@" in cell for cell in cells):
        return "email"
    if any(" " in cell for cell in cells):
        return "name"
    return "sid" if all(map(str.isdecimal, cells)) else "login"


def _is_worksheet(columns: Sequence[Sequence[str]]) -> bool:
    """Whether this is Moodle's grading worksheet, in any language: all rows begin with one word and a number, as
    `Participant 1234`, and have the same highest grade.
    """
    first = [re.fullmatch(r"(\D+)\d+", cell) for cell in columns[0]]
    words = {found[1] if found else "" for found in first}
    same = (cells[0] for cells in columns if len(cells) == len(first) and len(set(cells)) == 1)
    return len(words) == 1 and "" not in words and any(re.fullmatch(r"\d+([.,]\d+)?", cell) for cell in same)


def _name(said: Mapping[str, str]) -> str:
    return said.get("name") or " ".join(said[part] for part in ("first", "last") if part in said)


def _student(said: Mapping[str, str], taken: set[str]) -> Student:
    name = _name(said)
    ids = {field: said[field] for field in (*UNIQUE, "group") if field in said}
    if "moodle" in ids:
        ids["moodle"] = re.sub(r"^.*\D(?=\d+$)", "", ids["moodle"])  # from "Participant 1234"
    return Student(key=new_key(name, ids, taken), name=name, ids=ids, alias=said.get("alias", ""))


def new_key(name: str, ids: Mapping[str, str], taken: set[str]) -> str:
    """A new key for a student, which is added to the keys `taken`, in small letters."""
    said = {**ids, "name": name}
    stem = next((key for field in KEYS if (key := _as_key(said.get(field, "")))), "student")
    key, number = stem, 1
    while key.casefold() in taken:
        number += 1
        key = f"{stem}-{number}"
    taken.add(key.casefold())
    return key


def _as_key(word: str) -> str:
    letters = "".join(
        one if one.isalpha() or one.isdecimal() or is_mark(one) or one in "_.@+-" else "-" for one in word
    )
    return re.sub(r"-+", "-", letters).strip("-.")[:80].rstrip("-.")


# Which student is meant -----------------------------------------------------------------------------------------------


class Ambiguous(Exception):
    """A platform's name fits two students; the message says why."""


class ClassList:
    """The students of a class, found by the ids and names that a platform gives."""

    def __init__(self, students: Iterable[Student]) -> None:
        self._students = {student.key: student for student in students}
        self._taken = {key.casefold() for key in self._students}

    def __iter__(self) -> Iterator[Student]:
        return iter(tuple(self._students.values()))

    def put(self, student: Student) -> None:
        """Add a student, or replace the one with that key."""
        self._students[student.key] = student

    def add(self, person: Person) -> Student:
        """Add a student with the platform's ids and name."""
        key = new_key(person.name, person.ids, self._taken)
        student = Student(key=key, name=person.name, ids=dict(person.ids))
        self.put(student)
        return student

    def find(self, person: Person) -> Student | None:
        """The student whom a platform names; None if the class has no such student. Raises Ambiguous."""
        proven = [one for one in self if any(_same(one, person, field) for field in PROOF)]
        if proven:
            return _only(proven, person, "ids")
        free = [one for one in self if set(differing(one, person)) <= {"email"}]  # many have several
        mail = person.ids.get("email", "").partition("@")[0]
        for word in filter(None, (*person.spellings, mail)):
            if spelt := [one for one in free if word.casefold() in _spellings(one, person)]:
                return _only(spelt, person, f"{word!r}")
        for name in filter(None, (person.name, *person.spellings)):
            if named := [one for one in free if name_forms(name) & name_forms(one.name)]:
                return _only(named, person, f"the name {name!r}")
        return None

    def group(self, person: Person, found: Student | None) -> list[Student]:
        """The students of the group after which a platform names a hand-in; none if that is no group's name.

        Args:
            found: the student whom the platform names too, as Canvas does; the group is then that student's.
        """
        words = {
            _squashed(word) for word in (person.name, *(person.ids.get(one, "") for one in ("github", "folder")))
        } - {""}
        named = [one for one in self if "group" in one.ids and _squashed(one.ids["group"]) in words]
        groups = {one.ids["group"] for one in named}
        if found is not None:
            groups &= {found.ids.get("group", "")}
        return [one for one in named if one.ids["group"] in groups] if len(groups) == 1 else []

    def is_group(self, keys: Iterable[str]) -> bool:
        """Whether all these students are of one group."""
        groups = {self._students[key].ids.get("group", "") for key in keys}
        return len(groups) == 1 and groups != {""}

    def namesakes(self, person: Person) -> list[str]:
        """Keys of students with the person's name."""
        return [one.key for one in self if name_forms(person.name) & name_forms(one.name)]


def _squashed(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _only(found: list[Student], person: Person, by: str) -> Student:
    if len(found) > 1:
        who = person.name or next(iter(person.ids.values()), "somebody")
        raise Ambiguous(f"{who} may be {' or '.join(one.key for one in found[:3])}, by {by}")
    return found[0]


def _same(student: Student, person: Person, field: str) -> bool:
    mine, theirs = student.ids.get(field, ""), person.ids.get(field, "")
    return bool(mine) and mine.casefold() == theirs.casefold()


def differing(student: Student, person: Person) -> list[str]:
    """The kinds of ids in which a student and a person differ. The user of a cloned repository is a guess, and ignored."""
    both = (field for field in UNIQUE if field != "github" and field in student.ids and field in person.ids)
    return [field for field in both if not _same(student, person, field)]


def _spellings(student: Student, person: Person) -> set[str]:
    words = {student.key, *(student.ids[field] for field in PROOF if field in student.ids)}
    if "email" not in person.ids:
        words.add(student.ids.get("email", "").partition("@")[0])
    elif "email" in student.ids:
        words = set()
    return {word.casefold() for word in words if word}


def _words(name: str) -> list[str]:
    """The words of a name, in the order in which it is spoken, without signs."""
    family, comma, first = name.partition(",")
    plain = unicodedata.normalize("NFKC", f"{first} {family}" if comma else name).casefold()
    return ["".join(one for one in word if one.isalnum() or _is_vowel_sign(one)) for word in plain.split()]


def is_mark(one: str) -> bool:
    """Whether a character is a mark on the letter before it, as a vowel sign or an accent."""
    return unicodedata.category(one).startswith("M")


def _is_vowel_sign(one: str) -> bool:
    """Whether a mark is a letter of its own, as in कमला, and no accent of the letter before."""
    return is_mark(one) and unicodedata.combining(one) == 0


@functools.lru_cache(maxsize=10_000)
def name_forms(name: str) -> frozenset[str]:
    """A name's letters in each order of first and family names: Canvas writes lovelaceada."""
    words = [word for word in _words(name) if word]
    return frozenset("".join(words[number:] + words[:number]) for number in range(len(words)))
