"""Exports the grades of a class: into the CSV file of Canvas or Moodle, for Gradescope, and as a table of its own form.

In a platform's file only the cells of one column change, in the rows of the class's students. A row's student is found
by ids, logins and emails, and by a name only if the row has none of these. A doubtful row is refused with its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, get_args

from grader.assignment import load_course
from grader.classroom import gradescope
from grader.classroom.folder import ClassError, RunFolder, full_disk_told, write_whole
from grader.classroom.grades import Basis, Grade, Grades, number
from grader.classroom.model import Student
from grader.classroom.roster import folded, name_of, shown
from grader.classroom.sheet import BOM, Row, Sheet, read_sheet, written
from grader.report.style import counted, first_of

MAX_NAMED = 5
# Names that platforms and rosters have for an id, as `Student.ids` may have them without spaces and marks.
CANVAS_IDS = ("canvas", "canvasid", "canvasuserid", "id")
SIS_IDS = ("sid", "sis", "sisid", "sisuserid", "studentid", "idnumber", "matriculation")
LOGINS = ("login", "loginid", "sisloginid", "username", "user", "email", "emailaddress", "mail")
EMAILS = ("email", "emailaddress", "mail", "login", "sisloginid")
MOODLE_IDS = ("moodle", "moodleid", "identifier", "participant")
# An assignment's; "Final Score (2026)" is a total in a grading period called 2026, which Canvas does not import.
CANVAS_COLUMN = re.compile(
    r"(?!.*(?:Current|Final|Override) (?:Score|Points|Grade|Status) \(\d+\)\s*$)(?P<title>.+?) \((?P<id>\d+)\)\s*"
)
KEPT = ("ex", "n/a")  # of Canvas': the student is excused, or has not to hand in
NO_STUDENT = "points possible"  # a row below Canvas' header; that of "Manual Posting" has no name either
DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"\d+,\d+"), re.compile(r"\d+\.\d+")

# What a row says about its student: a word for messages, a value, and the kinds of ids that the value may be; none: it is a name.
Clue = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Filled:
    """A platform's file with grades, and sentences about it for a person."""

    content: bytes
    graded: int
    notes: tuple[str, ...]


def refuse_open(grades: Iterable[Grade], form: str, without_open: bool, also_missing: bool = False) -> list[Grade]:
    """The grades that a format can express. Grades with open points are refused, or left out.

    Args:
        also_missing: whether the format cannot leave out a student who handed something in.

    Raises:
        ClassError: a grade is open, and open grades are not to be left out.
    """
    every = list(grades)
    unsaid = [
        one
        for one in every
        if (one.is_open and one.earned is not None) or (also_missing and one.earned is None and one.student.handin)
    ]
    if unsaid and not without_open:
        examples = "; ".join(f"{shown(one.student)}: {one.why}" for one in unsaid[:MAX_NAMED])
        more = f"; and {len(unsaid) - MAX_NAMED} more" if len(unsaid) > MAX_NAMED else ""
        ways = "leave them out by --without-open, or decide on their points"
        if any(one.is_open for one in unsaid):
            ways += ", or take --points correctness where only speed is open"
        raise ClassError(
            f"{form} cannot say that points are not graded, and 0 would be wrong ({examples}{more}): {ways}"
        )
    return [one for one in every if one not in unsaid]


# Canvas and Moodle ----------------------------------------------------------------------------------------------------


def fill_canvas(sheet: Sheet, grades: Sequence[Grade], column: str = "") -> Filled:
    """Canvas' gradebook with these grades in the column of one assignment. Raises ClassError."""
    at = {name.strip(): place for place, name in reversed(list(enumerate(sheet.header)))}
    names = ("Student",) if "Student" in at else ("LastName", "FirstName")  # by an option of the gradebook's
    if not {*names, "ID"} <= at.keys():
        raise ClassError(f"{sheet.name}:1: a gradebook of Canvas has the columns Student and ID; export it there anew")
    assignments = [place for place, name in enumerate(sheet.header) if CANVAS_COLUMN.fullmatch(name.strip())]
    place = _canvas_column(sheet, assignments, column)
    ids = (("ID", CANVAS_IDS), ("SIS User ID", SIS_IDS), ("SIS Login ID", LOGINS), ("Integration ID", SIS_IDS))

    def clues(row: Row) -> list[Clue]:
        values = dict(enumerate(row.values))
        found = [(name, values.get(at[name], ""), kinds) for name, kinds in ids if name in at]
        return [*found, ("Student", ", ".join(filter(None, (values.get(at[one], "") for one in names))), ())]

    def is_students(row: Row) -> bool:
        *ids, (_, name, _) = clues(row)
        named = folded(name)
        return any(value.strip() for _, value, _ in ids) or (named != "" and not named.startswith(NO_STUDENT))

    rows = [row for row in sheet.rows if is_students(row)]
    most = [row.values[place] for row in sheet.rows if not is_students(row) and place < len(row.values)]
    return _filled(sheet, place, rows, clues, grades, most, KEPT)


def _canvas_column(sheet: Sheet, assignments: Sequence[int], column: str) -> int:
    names = {place: sheet.header[place].strip() for place in assignments}
    wanted = folded(column)
    if wanted:
        fits = [place for place, name in names.items() if folded(name) == wanted]
        fits = fits or [
            place
            for place, name in names.items()
            if (found := CANVAS_COLUMN.fullmatch(name)) and wanted in (folded(found["title"]), found["id"])
        ]
    else:
        fits = list(names)
    return _only(sheet, fits, [names[place] for place in fits or names], column)


def fill_moodle(sheet: Sheet, grades: Sequence[Grade], column: str = "") -> Filled:
    """Moodle's grading worksheet with these grades. Its header is in the language of the one who took it, so columns go by their place.

    Raises ClassError.
    """
    header, rows = sheet.header, sheet.rows
    if len(header) < 4:
        raise ClassError(f"{sheet.name}:1: a grading worksheet of Moodle has more columns than {len(header)}")
    if column:
        wanted = folded(column)
        fits = [place for place, name in enumerate(header) if folded(name) == wanted]
        if not fits and wanted.isdecimal() and 1 <= int(wanted) <= len(header):
            fits = [int(wanted) - 1]
    else:
        fits = [place for place in range(2, len(header) - 1) if _is_left_of_the_maximum(rows, place)]
    place = _only(sheet, fits, [header[one] for one in fits] or list(header), column)

    def clues(row: Row) -> list[Clue]:
        values = row.values
        found: list[Clue] = []
        if match := re.search(r"(?<!\d)(\d+)\s*$", values[0]):
            found.append((header[0], match[1], MOODLE_IDS))
        others = [(header[one], values[one]) for one in range(2, min(place, len(values))) if values[one].strip()]
        found += [(name, value, EMAILS if "@" in value else (*SIS_IDS, *LOGINS)) for name, value in others]
        return [*found, (header[1], values[1] if len(values) > 1 else "", ())]

    most = [row.values[place + 1] for row in rows[:1] if place + 1 < len(row.values)]
    return _filled(sheet, place, rows, clues, grades, most)


def _is_left_of_the_maximum(rows: Sequence[Row], place: int) -> bool:
    """Whether a column has grades or nothing, and the next column the same number above 0, the highest grade, in all
    rows.
    """
    left = {row.values[place].strip() for row in rows if place < len(row.values)}
    right = {row.values[place + 1].strip() for row in rows if place + 1 < len(row.values)}
    return all(not one or _is_number(one) for one in left) and len(right) == 1 and all(map(_is_number, right))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+([.,]\d+)?", text) is not None


def _only(sheet: Sheet, fits: Sequence[int], names: Sequence[str], column: str) -> int:
    if len(fits) == 1:
        return fits[0]
    there = ", ".join(map(repr, names[:20])) or "none"
    if column:
        found = f"{len(fits)} columns fit" if fits else "no column fits"
        raise ClassError(f"{sheet.name}:1: {found} --column {column!r}; there are: {there}")
    found = f"{len(fits)} columns may be the one" if fits else "no column can be told to be the one"
    raise ClassError(f"{sheet.name}:1: {found} for the grades; name it by --column, of: {there}")


# Who a row is ---------------------------------------------------------------------------------------------------------


class _Owners:
    """The students of a class by the ids and names of a row."""

    def __init__(self, students: Sequence[Student]) -> None:
        self._students = students
        self._by: dict[tuple[str, ...], dict[str, list[Student]]] = {}

    def of(self, value: str, kinds: tuple[str, ...]) -> list[Student]:
        """The students with an id of these kinds and this value; without kinds, of this name."""
        if kinds not in self._by:
            index = self._by.setdefault(kinds, {})
            for student in self._students:
                for own in _ids(student, kinds) if kinds else {name_of(student.name)}:
                    index.setdefault(own, []).append(student)
        said = folded(value) if kinds else name_of(value)
        return self._by[kinds].get(said, []) if said else []

    def whose(self, sheet: Sheet, row: Row, clues: Sequence[Clue]) -> Student | None:
        """The student of a row; None if the class has none. Raises ClassError where clues are about several students."""
        *ids, name = clues
        found: dict[str, tuple[Student, list[str]]] = {}
        for some in (ids, [name]):
            for word, value, kinds in some if not found else ():
                for student in self.of(value, kinds):
                    found.setdefault(student.key, (student, []))[1].append(f"{word} {value!r}")
        if len(found) > 1:
            words = " and ".join(f"{shown(one)} by {', '.join(why)}" for one, why in list(found.values())[:3])
            raise ClassError(f"{sheet.name}:{row.line}: this row may be {words}: mend the roster, or the row's ids")
        return next((one for one, _ in found.values()), None)


def _ids(student: Student, kinds: tuple[str, ...]) -> set[str]:
    """The student's ids of these kinds in the form for comparing; a key counts as a login."""
    own = {re.sub(r"[\W_]", "", folded(kind)): folded(value) for kind, value in student.ids.items()}
    found = {own[kind] for kind in kinds if kind in own}
    return found | {folded(student.key)} if "login" in kinds else found


def _filled(
    sheet: Sheet,
    column: int,
    rows: Sequence[Row],
    clues: Callable[[Row], list[Clue]],
    grades: Sequence[Grade],
    most: Sequence[str],
    kept: Collection[str] = (),
) -> Filled:
    """The sheet with the grades of its students; a cell is emptied where nothing was graded.

    Args:
        most: cells that have the column's highest points.
        kept: values that the platform's staff gave instead of points, and that stay.
    """
    owners = _Owners([one.student for one in grades])
    of_row = {row.line: one for row in rows if (one := owners.whose(sheet, row, clues(row)))}
    lines: dict[str, int] = {}
    for line, student in of_row.items():
        if student.key in lines:
            words = f"this row and line {lines[student.key]} are both {shown(student)}'s"
            raise ClassError(f"{sheet.name}:{line}: {words}: take one out, or mend the roster")
        lines[student.key] = line
    values = [row.values[column] for row in sheet.rows if column < len(row.values)]
    comma = any(map(DECIMAL_COMMA.fullmatch, [*most, *values])) and not any(
        map(DECIMAL_POINT.fullmatch, [*most, *values])
    )
    cells: dict[int, str] = {}
    stay = {row.line for row in rows if column < len(row.values) and folded(row.values[column]) in kept}
    for grade in grades:
        if (at := lines.get(grade.student.key)) is not None and at not in stay:
            text = "" if grade.earned is None else number(grade.earned)
            cells[at] = text.replace(".", ",") if comma else text
    name = sheet.header[column].strip()
    strangers = [f"{sheet.name}:{row.line}" for row in rows if row.line not in of_row]
    without = [shown(one.student) for one in grades if one.student.key not in lines and one.earned is not None]
    notes = _notes("row", "of nobody in the class, left alone", strangers)
    notes += _notes("student", "with a grade and without a row", without)
    excused = [shown(of_row[line]) for line in sorted(stay & of_row.keys())]
    notes += _notes("student", f"with {' or '.join(map(str.upper, kept))} instead of points, which stays", excused)
    notes += [f"{name!r}: {words}" for words in _other_scale(most, grades)]
    return Filled(sheet.filled(column, cells), sum(map(bool, cells.values())), tuple(notes))


def _other_scale(most: Sequence[str], grades: Sequence[Grade]) -> list[str]:
    """A sentence if the platform's highest points are not those of the class."""
    possible = {number(one.points.possible) for one in grades if one.points}
    platform = {number(float(one.strip().replace(",", "."))) for one in most if _is_number(one.strip())}
    if not possible or not platform or possible == platform:
        return []
    return [f"the platform has {', '.join(sorted(platform))} points at most, the class {', '.join(sorted(possible))}"]


def _notes(noun: str, words: str, named: Sequence[str]) -> list[str]:
    return [f"{counted(len(named), noun)} {words}: {first_of(named, MAX_NAMED)}"] if named else []


# Our own --------------------------------------------------------------------------------------------------------------

Column = Literal[
    "key", "name", "email", "points", "graded", "possible", "override", "late", "attempt", "handin", "note"
]
COLUMNS: tuple[Column, ...] = get_args(Column)


def table(grades: Iterable[Grade]) -> str:
    """A row for each student, as CSV; cells are empty where nothing was graded."""
    return written(COLUMNS, map(_row, grades))


def _row(grade: Grade) -> list[str | float | int | None]:
    student, points = grade.student, grade.points
    email = next((value for kind, value in student.ids.items() if folded(kind) in ("email", "mail")), "")
    reason = grade.override.reason if grade.override else ""
    return [
        student.key,
        student.name,
        email,
        None if grade.earned is None else _plain(grade.earned),
        None if points is None else _plain(points.graded),
        None if points is None else _plain(points.possible),
        reason,
        "late" if student.late else "",
        grade.counting.number if grade.counting else None,
        student.handin,
        grade.why,
    ]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 4)


# What is written where ------------------------------------------------------------------------------------------------


class Format(StrEnum):
    gradescope = "gradescope"
    canvas = "canvas"
    moodle = "moodle"
    csv = "csv"


@dataclass(frozen=True)
class Wanted:
    """The options of an export.

    Attributes:
        into: the file to write, a folder for gradescope; None for a place in the folder of the class.
        template: the CSV file from Canvas or Moodle.
        column: the template's column for the grades; empty for the only one that fits.
        without_open: whether to leave out grades that the format cannot express, instead of refusing.
        basis: whether all points are exported, or those of correctness.
    """

    form: Format
    into: Path | None = None
    template: Path | None = None
    column: str = ""
    without_open: bool = False
    basis: Basis = "all"


def export(folder: RunFolder, wanted: Wanted, course: Path) -> tuple[Path, list[str]]:
    """Write the grades. Returns the written file or folder, and sentences for the person who exports.

    Raises:
        ClassError: the format cannot express some grades, or the template cannot be used.
        OSError, InfraError: the file cannot be written.
    """
    every = list(Grades(folder, wanted.basis))
    ending = "" if wanted.form is Format.gradescope else ".csv"
    into = wanted.into or folder.path / "exports" / f"{wanted.form.value}{ending}"
    if (wanted.template is None) == (wanted.form in (Format.canvas, Format.moodle)):
        words = (
            "needs the CSV file that the platform gave, by --template"
            if wanted.template is None
            else "takes no --template"
        )
        raise ClassError(f"{wanted.form.value} {words}")
    if wanted.template is not None and into.resolve() == wanted.template.resolve():
        raise ClassError(f"{into}: is the template, which stays as the platform gave it; name another file by --into")
    with full_disk_told(into):
        into.parent.mkdir(parents=True, exist_ok=True)
    if wanted.form is Format.csv:
        write_whole(into, BOM + table(every))  # by which Excel knows UTF-8
        return into, [*_counted(every), *_overrides(every, wanted.basis), *_unlike(every)]
    is_gradescope = wanted.form is Format.gradescope
    said = refuse_open(every, wanted.form.value.capitalize(), wanted.without_open, also_missing=is_gradescope)
    left_out = len(every) - len(said)
    notes = [*_counted(said), *_overrides(said, wanted.basis), *_unlike(said)]
    notes += [f"{left_out} left out, whose points are not all graded"] * bool(left_out)
    if is_gradescope:
        gradescope.export(folder, said, wanted.basis, file_names(folder, course), into)
        return into, [*notes, gradescope.UNKNOWN_FILES]
    assert wanted.template is not None
    fill = fill_canvas if wanted.form is Format.canvas else fill_moodle
    shown = said + [Grade(one.student, missing=one.why) for one in every if one not in said]  # whose cells are emptied
    filled = fill(read_sheet(wanted.template), shown, wanted.column)
    write_whole(into, filled.content)
    return into, [f"{counted(filled.graded, 'grade')} written", *notes, *filled.notes]


def file_names(folder: RunFolder, course: Path) -> gradescope.Names:
    """The files of the class's assignments, and those of the course's other assignments. Raises ClassError,
    CourseError.
    """
    names = folder.run().assignments
    every = load_course(course)
    wanted = [one.spec.file for one in every if not names or one.name in names]
    return gradescope.Names(tuple(wanted), tuple(one.spec.file for one in every if one.spec.file not in wanted))


def _counted(grades: Iterable[Grade]) -> list[str]:
    every = list(grades)
    graded = sum(one.earned is not None for one in every)
    missing: dict[str, int] = {}
    for one in every:
        if one.earned is None:
            why = one.missing.partition(":")[0] or "nothing of it could be graded"
            missing[why] = missing.get(why, 0) + 1
    reasons = "; ".join(f"{count} without: {why}" for why, count in missing.items())
    return [f"{counted(graded, 'student')} with a grade{f'; {reasons}' if reasons else ''}"]


def _overrides(grades: Iterable[Grade], basis: Basis) -> list[str]:
    count = sum(one.override is not None for one in grades)
    asked = " also in an export of correctness alone" if basis == "correctness" else ""
    return [f"{count} by decision, which stands instead of the graded points{asked}"] * bool(count)


def _unlike(grades: Iterable[Grade]) -> list[str]:
    """Sentences about graded points that do not mean the same: out of other totals, or of another course or grader."""
    graded = [one for one in grades if one.counting and one.points and one.override is None]
    totals: dict[str, list[str]] = {}
    courses: dict[str, list[str]] = {}
    for one in graded:
        assert one.counting
        assert one.points
        totals.setdefault(f"{number(one.points.possible)} points", []).append(one.student.key)
        if one.counting.fingerprint:
            courses.setdefault(one.counting.fingerprint, []).append(one.student.key)
    again = "`grader class regrade` and `run` grade them alike"
    if len(totals) > 1:
        shares = "; ".join(f"{total}: {first_of(keys)}" for total, keys in totals.items())
        return [f"the grades are out of different totals ({shares}); {again}"]
    if len(courses) > 1:
        *_, most = sorted(courses.values(), key=len)
        others = [key for keys in courses.values() if keys is not most for key in keys]
        return [f"graded by another course or grader than the other students: {first_of(others)}; {again}"]
    return []
