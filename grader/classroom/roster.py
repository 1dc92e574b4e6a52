"""Reads the roster of a class from a CSV file, and finds the student whom a platform or a person names.

Canvas' gradebook, its list of a group set's groups, Moodle's grading worksheet and the rosters of Gradescope and GitHub
Classroom are rosters too. Only columns that identify students are kept, and no marks of other labs.

A student is found by an id as it is written, but for capital letters, or by the whole name. There are no other guesses:
who is not found is told, and a line of the roster says who that is.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from grader.classroom.folder import ClassError, Student
from grader.classroom.lookup import folded
from grader.classroom.sheet import read_sheet
from grader.report.style import counted, first_of

MAX_CANDIDATES = 8
NOBODY = "nobody was chosen"
TEST_STUDENT = "Canvas' Test Student is nobody, and is left out"
# By field, the names of its columns without spaces and signs.
COLUMNS = {
    "name": "name fullname student studentname",
    "first": "firstname givenname forename first",
    "last": "lastname surname familyname last",
    "email": "email emailaddress mail",
    "sid": "sid studentid studentnumber idnumber sisuserid sisid universityid matriculationnumber id",
    "login": "login loginid sisloginid username netid userid user",
    "canvas": "canvasid canvasuserid",
    "moodle": "moodleid moodle identifier participant",
    "github": "github githubusername githubuser githublogin",
    "folder": "folder",
    "alias": "alias nickname pseudonym",
    "group": "group groupname",
    "role": "role roles",
}
FIELDS = {column: field for field, columns in COLUMNS.items() for column in columns.split()}
# Columns that mean something else beside another one: its own number in Canvas' gradebook, the university's in its list of
# groups, what a teacher chose in GitHub Classroom's roster.
BESIDE = {
    ("id", "student"): "canvas",
    ("id", "sisloginid"): "canvas",
    ("id", "sisuserid"): "canvas",
    ("userid", "canvasuserid"): "sid",
    ("identifier", "githubusername"): "login",
}
UNIQUE = ("email", "sid", "login", "canvas", "moodle", "github", "folder")  # each says who somebody is
TYPED = ("email", "sid", "login", "github", "folder")  # the ids that a person may have given to a folder
KEYS = ("login", "email", "github", "folder", "name", "sid", "canvas", "moodle")  # a student's first one is the key


# What two persons of an export may have in common: the name, or the folder's name but for capital letters.
Shared = Literal["", "name", "folder"]


@dataclass(frozen=True)
class Person:
    """Somebody as a platform or a line of a roster names them.

    Attributes:
        ids: by kind, as `Student.ids`.
    """

    name: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)


def read_roster(path: Path) -> tuple[list[Student], list[str]]:
    """The students of a roster in its order, and sentences about rows and columns that are not used. Raises ClassError."""
    sheet = read_sheet(path)
    try:
        cells_of = {row.line: [cell.encode().decode().strip() for cell in row.values] for row in sheet.rows}
    except UnicodeEncodeError:
        raise ClassError(f"{path}: is not in UTF-8; save it as `CSV UTF-8`") from None
    header = [column.strip() for column in sheet.header]
    fields = _fields(path, header, list(cells_of.values()))
    unused = [column for column, field in zip(header, fields, strict=True) if column and not field]
    notes = [f"columns of {path.name} that are not used: {first_of(unused)}"] * bool(unused)
    students: list[Student] = []
    lines: dict[tuple[str, str], int] = {}
    taken: set[str] = set()
    staff: list[str] = []
    for line, cells in cells_of.items():
        if any(cells[len(fields) :]):
            raise ClassError(f"{path}:{line}: has {len(cells)} cells; the first line has {len(fields)}")
        said = {field: cell for field, cell in zip(fields, cells, strict=False) if field and cell}
        name = said.get("name") or " ".join(said[part] for part in ("first", "last") if part in said)
        if not said or (set(said) <= {"name", "last"} and name == "Points Possible"):  # a row of Canvas'
            continue
        if "canvas" in said and is_test_student(name):
            notes.append(f"{path.name}:{line}: {TEST_STUDENT}")
            continue
        if "student" not in said.get("role", "student").casefold():
            staff.append(f"{name or said.get('email', f'line {line}')} ({said['role']})")
            continue
        ids = {field: said[field] for field in (*UNIQUE, "group") if field in said}
        if "moodle" in ids:
            ids["moodle"] = re.sub(r"^.*\D(?=\d+$)", "", ids["moodle"])  # from "Participant 1234"
        unique = [(field, value) for field, value in ids.items() if field != "group"]
        if "alias" in said:
            unique.append(("alias", said["alias"]))
        for kind, value in unique or [("name", name_of(name))]:
            if (first := lines.setdefault((kind, folded(value)), line)) != line:
                words = f"{kind} {value!r} is in line {first} too; expected a line for each student"
                raise ClassError(f"{path}:{line}: {words}")
        key = new_key(name, ids, taken)
        taken.add(key.casefold())
        students.append(Student(key=key, name=name, ids=ids, alias=said.get("alias", "")))
    if not students:
        raise ClassError(f"{path}: has no students; expected a line for each")
    notes += [f"no students by the role in {path.name}, and left out: {first_of(staff)}"] * bool(staff)
    return students, notes


def _fields(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The field of each column; empty for a column that is not used, as one without any cell. Raises ClassError."""
    plain = [re.sub(r"[^a-z0-9]", "", column.casefold()) for column in header]
    fields: list[str] = []
    for at, column in enumerate(plain):
        cells = [row[at] for row in rows if "".join(row[at : at + 1])]
        named = [one for (own, other), one in BESIDE.items() if own == column and other in plain]
        field = named[0] if named else FIELDS.get(column, "")
        is_groups_role = field == "role" and not any("student" in cell.casefold() for cell in cells)
        if is_groups_role or (rows and not cells):
            field = ""
        if field and field in fields:
            both = f"{header[fields.index(field)]} and {header[at]}"
            raise ClassError(f"{path}: the columns {both} are both the {field}; keep one")
        fields.append(field)
    if not {"name", "last", *UNIQUE} & set(fields):
        known = ", ".join(columns.split()[0] for columns in COLUMNS.values())
        raise ClassError(f"{path}: the first line has no column that says who a student is, as {known}")
    return fields


def is_test_student(name: str) -> bool:
    """Whether this is Canvas' name for a teacher who looks at the course as a student."""
    return bool(spellings(name) & spellings("Test Student"))


def new_key(name: str, ids: Mapping[str, str], taken: Collection[str]) -> str:
    """A new key for a student; `taken` are the others in small letters."""
    said = {**ids, "name": name}
    stem = "student"
    for word in (said.get(kind, "") for kind in KEYS):
        letters = "".join(one if _is_letter(one) or one in "_.@+-" else "-" for one in word)
        if key := re.sub(r"-+", "-", letters).strip("-.")[:80].rstrip("-."):
            stem = key
            break
    key, number = stem, 1
    while key.casefold() in taken:
        number += 1
        key = f"{stem}-{number}"
    return key


# Names ----------------------------------------------------------------------------------------------------------------


def name_of(text: str) -> str:
    """A person's name as it is spoken, for comparing: `ada lovelace` for `Lovelace, Ada`."""
    last, comma, first = folded(text).partition(",")
    return f"{first.strip()} {last.strip()}" if comma and "," not in first else folded(text)


@functools.cache
def spellings(name: str) -> frozenset[str]:
    """The letters of a name as it is spoken, and as Canvas writes it in the name of a file: `lovelaceada`."""
    *first, last = name_of(name).split() or [""]
    family, comma, given = folded(name).partition(",")
    canvas = f"{family}{given}" if comma else "".join([last, *first])
    return frozenset(map(_squashed, (name_of(name), canvas))) - {""}


def _squashed(text: str) -> str:
    return "".join(filter(_is_letter, unicodedata.normalize("NFKC", text).casefold()))


def _is_letter(one: str) -> bool:
    """Whether a character is a letter or a digit, or a mark on the letter before it, as a vowel sign."""
    return one.isalpha() or one.isdecimal() or unicodedata.category(one).startswith("M")


def shown(student: Student) -> str:
    """A student in a sentence."""
    return f"{student.key} ({student.name})" if student.name and student.name != student.key else student.key


# Which student is meant -----------------------------------------------------------------------------------------------


class ClassList(dict[str, Student]):
    """The students of a class by their keys, found by the ids and names that a platform gives."""

    def add(self, person: Person) -> Student:
        """Add a student with the platform's ids and name."""
        key = new_key(person.name, person.ids, {key.casefold() for key in self})
        self[key] = Student(key=key, name=person.name, ids=dict(person.ids))
        return self[key]

    def find(self, person: Person, shared: Shared = "", listed: Collection[str] = ()) -> tuple[Student | None, str]:
        """The student whom a platform names, or None; and why nobody was chosen, if two may be meant.

        Args:
            shared: what another person of the export has too.
            listed: the keys of the students who may be meant by a name that several persons have.
        """
        word = person.ids.get("folder") or person.ids.get("github") or ""
        typed = {key: [key, *(one.ids[kind] for kind in TYPED if kind in one.ids)] for key, one in self.items()}
        fits = [one for one in self.values() if word and word in typed[one.key]]
        by = f"by {word!r}" if fits else "by ids"
        if not fits and shared != "folder":
            fits = self.proven(person)
            fits = fits or [one for one in self.values() if word and folded(word) in map(folded, typed[one.key])]
        most = 1
        if not fits and shared == "name":
            fits = [one for one in self.namesakes(person.name) if one.key in listed]
            by, most = "and several hand-ins have this name", 0
        elif not fits:
            fits = [one for one in self.namesakes(person.name) if set(differing(one, person)) <= {"email"}]
            by = f"by the name {person.name!r}"
        if len(fits) > most:
            who = person.name or next(iter(person.ids.values()), "somebody")
            return None, f"{who} may be {' or '.join(one.key for one in fits[:3])}, {by}: {NOBODY}"
        return (fits[0] if fits else None), ""

    def proven(self, person: Person) -> list[Student]:
        """The students with an id of the person's."""
        ids = {(kind, folded(person.ids[kind])) for kind in UNIQUE if person.ids.get(kind)}
        return [one for one in self.values() if any((kind, folded(value)) in ids for kind, value in one.ids.items())]

    def namesakes(self, name: str) -> list[Student]:
        """The students with this name."""
        return [one for one in self.values() if spellings(name) & spellings(one.name)]

    def group(self, person: Person, found: Student | None) -> list[Student]:
        """The students of the group after which a platform names a hand-in; none if that is no group's name.

        Args:
            found: the student whom the platform names too, as Canvas does; the group is then that student's.
        """
        said = (person.name, person.ids.get("github", ""), person.ids.get("folder", ""))
        words = {_squashed(word) for word in said} - {""}
        named = [one for one in self.values() if _squashed(one.ids.get("group", "")) in words]
        groups = {one.ids["group"] for one in named}
        if found is not None:
            groups &= {found.ids.get("group", "")}
        return [one for one in named if one.ids["group"] in groups] if len(groups) == 1 else []


def differing(student: Student, person: Person) -> list[str]:
    """The kinds of ids in which a student and a person differ. One student may have several folders."""
    both = [one for one in UNIQUE if one not in ("github", "folder") and one in student.ids and one in person.ids]
    return [one for one in both if folded(student.ids[one]) != folded(person.ids[one])]


def find(students: Sequence[Student], who: str) -> Student:
    """The student whom `who` names, as a person types it: a key, else a whole name or an id. Raises ClassError."""
    wanted, name = folded(who), spellings(who)
    fits = [one for one in students if one.key == who] or [
        one for one in students if wanted in map(folded, (one.key, *one.ids.values())) or name & spellings(one.name)
    ]
    if len(fits) == 1:
        return fits[0]
    alike = fits or [one for one in students if wanted and (wanted in folded(one.name) or wanted in folded(one.key))]
    words = [shown(one) for one in alike[:MAX_CANDIDATES]]
    if len(alike) > MAX_CANDIDATES:
        words.append(f"{len(alike) - MAX_CANDIDATES} more")
    listed = " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
    if fits:
        raise ClassError(f"{who!r} may be {listed}: name one by its key")
    hint = f"there is {listed}" if alike else f"the class has {counted(len(students), 'student')}"
    raise ClassError(f"no student has the key, name, email or id {who!r}; {hint}")
