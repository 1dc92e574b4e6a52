"""Exports the grades of a class: into the CSV file of Canvas or Moodle, for Gradescope, and as a table of its own form.

In a platform's file only the cells of one column change, in the rows of the class's students. A row's student is found
by ids, logins and emails, and by a name only if the row has none of these. A doubtful row is refused with its line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.classroom import gradescope
from grader.classroom.folder import ClassError, RunFolder, write_whole
from grader.classroom.grades import Basis, Grade, Grades, number
from grader.classroom.lookup import folded
from grader.classroom.roster import name_of, shown
from grader.classroom.sheet import BOM, Row, Sheet, read_sheet, written
from grader.report.style import counted, first_of

Format = Literal["gradescope", "canvas", "moodle", "csv"]
MAX_NAMED = 5
LOGIN = ("login", "email")  # a student's key counts as a login
# By column, the kinds of ids that its values may be.
CANVAS_IDS = {"ID": ("canvas",), "SIS User ID": ("sid",), "SIS Login ID": LOGIN, "Integration ID": ("sid",)}
# An assignment's; "Final Score (2026)" is a total in a grading period called 2026, which Canvas does not import.
CANVAS_COLUMN = re.compile(
    r"(?!.*(?:Current|Final|Override) (?:Score|Points|Grade|Status) \(\d+\)\s*$)(?P<title>.+?) \((?P<id>\d+)\)\s*"
)
KEPT = ("ex", "n/a")  # of Canvas': the student is excused, or has not to hand in
NO_STUDENT = "points possible"  # a row below Canvas' header; that of "Manual Posting" has no name either
NUMBER = re.compile(r"\d+([.,]\d+)?")
COLUMNS = ("key", "name", "email", "points", "graded", "possible", "override", "late", "attempt", "handin", "note")

# What a row says about its student: a word for messages, a value, and the kinds of ids that the value may be; none: it is a name.
Clue = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Filled:
    """A platform's file with grades, and sentences about it for a person."""

    content: bytes
    graded: int
    notes: tuple[str, ...]


def export(
    folder: RunFolder,
    form: Format,
    into: Path | None = None,
    template: Path | None = None,
    column: str = "",
    basis: Basis = "all",
    without_open: bool = False,
) -> tuple[Path, list[str]]:
    """Write the grades. Returns the written file or folder, and sentences for the person who exports.

    Args:
        into: the file to write, a folder for gradescope; None for a place in the folder of the class.
        template: the CSV file from Canvas or Moodle.
        column: the template's column for the grades; empty for the only one that fits.
        basis: whether all points are exported, or those of correctness.
        without_open: whether to leave out grades that the format cannot express, instead of refusing.

    Raises:
        ClassError: the format cannot express some grades, or the template cannot be used.
        OSError, InfraError: the file cannot be written.
    """
    every = list(Grades(folder, basis))
    into = into or folder.path / "exports" / f"{form}{'' if form == 'gradescope' else '.csv'}"
    if (template is None) == (form in ("canvas", "moodle")):
        needs = (
            "needs the CSV file that the platform gave, by --template" if template is None else "takes no --template"
        )
        raise ClassError(f"{form} {needs}")
    if template is not None and into.resolve() == template.resolve():
        raise ClassError(f"{into}: is the template, which stays as the platform gave it; name another file by --into")
    if form == "csv":
        write_whole(into, BOM + table(every))  # by which Excel knows UTF-8
        return into, _told(every, basis)
    said = refuse_open(every, form.capitalize(), without_open, also_missing=form == "gradescope")
    left_out = len(every) - len(said)
    notes = [*_told(said, basis), *[f"{left_out} left out, whose points are not all graded"] * bool(left_out)]
    if form == "gradescope":
        gradescope.export(folder, said, basis, into)
        return into, [*notes, gradescope.UNKNOWN_FILES]
    assert template is not None
    fill = fill_canvas if form == "canvas" else fill_moodle
    # The cells of those who are left out are emptied.
    shown = said + [Grade(one.student, missing=one.why) for one in every if one not in said]
    filled = fill(read_sheet(template), shown, column)
    write_whole(into, filled.content)
    return into, [f"{counted(filled.graded, 'grade')} written", *notes, *filled.notes]


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


def table(grades: Iterable[Grade]) -> str:
    """A row for each student, as CSV; cells are empty where nothing was graded."""
    rows: list[list[str | int | None]] = []
    for one in grades:
        student, points = one.student, one.points
        who = [student.key, student.name, student.ids.get("email", "")]
        earned = "" if one.earned is None else number(one.earned)
        graded, possible = (number(points.graded), number(points.possible)) if points else ("", "")
        reason = one.override.reason if one.override else ""
        attempt = one.counting.number if one.counting else None
        late = "late" if student.late else ""
        rows.append([*who, earned, graded, possible, reason, late, attempt, student.handin, one.why])
    return written(COLUMNS, rows)


def _told(grades: Sequence[Grade], basis: Basis) -> list[str]:
    """Sentences: how many have a grade, why others have none, and grades that do not mean the same as the others."""
    missing: dict[str, int] = defaultdict(int)
    totals: dict[str, list[str]] = defaultdict(list)
    courses: dict[str, list[str]] = defaultdict(list)
    for one in grades:
        if one.earned is None:
            missing[one.missing.partition(":")[0] or "nothing of it could be graded"] += 1
        if one.counting and one.points and one.override is None:
            totals[f"{number(one.points.possible)} points"].append(one.student.key)
            if one.counting.fingerprint:
                courses[one.counting.fingerprint].append(one.student.key)
    graded = counted(len(grades) - sum(missing.values()), "student")
    notes = ["; ".join([f"{graded} with a grade", *(f"{count} without: {why}" for why, count in missing.items())])]
    if decided := sum(one.override is not None for one in grades):
        asked = " also in an export of correctness alone" if basis == "correctness" else ""
        notes.append(f"{decided} by decision, which stands instead of the graded points{asked}")
    again = "`grader class regrade` and `run` grade them alike"
    if len(totals) > 1:
        shares = "; ".join(f"{total}: {first_of(keys)}" for total, keys in totals.items())
        notes.append(f"the grades are out of different totals ({shares}); {again}")
    elif len(courses) > 1:
        *_, most = sorted(courses.values(), key=len)
        others = [key for keys in courses.values() if keys is not most for key in keys]
        notes.append(f"graded by another course or grader than the other students: {first_of(others)}; {again}")
    return notes


# Canvas and Moodle ----------------------------------------------------------------------------------------------------


def fill_canvas(sheet: Sheet, grades: Sequence[Grade], column: str = "") -> Filled:
    """Canvas' gradebook with these grades in the column of one assignment. Raises ClassError."""
    header = [name.strip() for name in sheet.header]
    names = ("Student",) if "Student" in header else ("LastName", "FirstName")  # by an option of the gradebook's
    if not {*names, "ID"} <= {*header}:
        raise ClassError(f"{sheet.name}:1: a gradebook of Canvas has the columns Student and ID; export it there anew")
    assignments = {place: one for place, name in enumerate(header) if (one := CANVAS_COLUMN.fullmatch(name))}
    wanted = folded(column)
    fits = [place for place in assignments if not wanted or folded(header[place]) == wanted]
    fits = fits or [place for place, one in assignments.items() if wanted in (folded(one["title"]), one["id"])]
    place = _only(sheet, fits, [header[one] for one in fits or assignments], column)

    clues: dict[Row, list[Clue]] = {}
    for row in sheet.rows:
        ids = [(one, row.value(header.index(one)), kinds) for one, kinds in CANVAS_IDS.items() if one in header]
        name = ", ".join(filter(None, (row.value(header.index(one)) for one in names)))
        if any(value for _, value, _ in ids) or (name and not folded(name).startswith(NO_STUDENT)):
            clues[row] = [*ids, ("Student", name, ())]
    most = [row.value(place) for row in sheet.rows if row not in clues]
    return _filled(sheet, place, clues, grades, most, KEPT)


def fill_moodle(sheet: Sheet, grades: Sequence[Grade], column: str = "") -> Filled:
    """Moodle's grading worksheet with these grades. Its header is in the language of the one who took it, so columns go by their place.

    Raises ClassError.
    """
    header, rows = sheet.header, sheet.rows
    if len(header) < 4:
        raise ClassError(f"{sheet.name}:1: a grading worksheet of Moodle has more columns than {len(header)}")
    if wanted := folded(column):
        fits = [place for place, name in enumerate(header) if folded(name) == wanted]
        if not fits and wanted.isdecimal() and 1 <= int(wanted) <= len(header):
            fits = [int(wanted) - 1]
    else:  # a column of grades or nothing, left of one that has the same number, the highest grade, in all rows
        cells = [{row.value(place) for row in rows} for place in range(len(header))]
        is_grade = [all(NUMBER.fullmatch(one or "0") for one in each) for each in cells]
        is_highest = [len(each) == 1 and all(map(NUMBER.fullmatch, each)) for each in cells]
        fits = [place for place in range(2, len(header) - 1) if is_grade[place] and is_highest[place + 1]]
    place = _only(sheet, fits, [header[one] for one in fits] or header, column)

    clues: dict[Row, list[Clue]] = {}
    for row in rows:
        number = re.search(r"(?<!\d)(\d+)$", row.value(0))
        clues[row] = [(header[0], number[1], ("moodle",))] if number else []
        for name, value in ((header[one], row.value(one)) for one in range(2, place) if row.value(one)):
            clues[row].append((name, value, LOGIN if "@" in value else ("sid", *LOGIN)))
        clues[row].append((header[1], row.value(1), ()))
    return _filled(sheet, place, clues, grades, [row.value(place + 1) for row in rows[:1]])


def _only(sheet: Sheet, fits: Sequence[int], names: Sequence[str], column: str) -> int:
    if len(fits) == 1:
        return fits[0]
    there = ", ".join(map(repr, names[:20])) or "none"
    if column:
        found = f"{len(fits)} columns fit" if fits else "no column fits"
        raise ClassError(f"{sheet.name}:1: {found} --column {column!r}; there are: {there}")
    found = f"{len(fits)} columns may be the one" if fits else "no column can be told to be the one"
    raise ClassError(f"{sheet.name}:1: {found} for the grades; name it by --column, of: {there}")


def _filled(
    sheet: Sheet,
    column: int,
    clues: Mapping[Row, list[Clue]],
    grades: Sequence[Grade],
    most: Sequence[str],
    kept: Sequence[str] = (),
) -> Filled:
    """The sheet with the grades of its students; a cell is emptied where nothing was graded.

    Args:
        clues: what each row of a student says about its student, the name at the end.
        most: cells that have the column's highest points.
        kept: values that the platform's staff gave instead of points, and that stay.
    """
    by: dict[tuple[str, str], dict[str, Grade]] = defaultdict(dict)  # by kind of id, and id
    for grade in grades:
        student = grade.student
        ids = [(kind, folded(value)) for kind, value in (*student.ids.items(), ("login", student.key))]
        for said in (*ids, ("name", name_of(student.name))):
            by[said][student.key] = grade
    own: dict[str, Row] = {}  # by a student's key
    strangers: list[str] = []
    for row, of_row in clues.items():
        found: dict[str, list[str]] = defaultdict(list)  # what says that it is this student's row, by key
        fits: dict[str, Grade] = {}
        for word, value, kinds in of_row:
            if value and (kinds or not found):
                keys = [(kind, folded(value)) for kind in kinds] or [("name", name_of(value))]
                for key, grade in {key: one for each in keys for key, one in by.get(each, {}).items()}.items():
                    fits[key] = grade
                    found[key].append(f"{word} {value!r}")
        if len(found) > 1:
            words = " and ".join(f"{shown(fits[key].student)} by {', '.join(found[key])}" for key in [*found][:3])
            raise ClassError(f"{sheet.name}:{row.line}: this row may be {words}: mend the roster, or the row's ids")
        for key in found:
            if own.setdefault(key, row) is not row:
                words = f"this row and line {own[key].line} are both {shown(fits[key].student)}'s"
                raise ClassError(f"{sheet.name}:{row.line}: {words}: take one out, or mend the roster")
        strangers += [f"{sheet.name}:{row.line}"] * (not found)
    values = [one for one in (*most, *(row.value(column) for row in sheet.rows)) if NUMBER.fullmatch(one)]
    comma = any("," in one for one in values) and not any("." in one for one in values)
    cells: dict[int, str] = {}
    excused: list[str] = []
    absent: list[str] = []
    for grade in grades:
        text = "" if grade.earned is None else number(grade.earned)
        if (its := own.get(grade.student.key)) is None:
            absent += [shown(grade.student)] * bool(text)
        elif folded(its.value(column)) in kept:
            excused.append(shown(grade.student))
        else:
            cells[its.line] = text.replace(".", ",") if comma else text
    told = (
        (strangers, "row", "of nobody in the class, left alone"),
        (absent, "student", "with a grade and without a row"),
        (excused, "student", f"with {' or '.join(map(str.upper, kept))} instead of points, which stays"),
    )
    notes = [f"{counted(len(who), noun)} {words}: {first_of(who, MAX_NAMED)}" for who, noun, words in told if who]
    ours = {number(one.points.possible) for one in grades if one.points}
    platforms = {number(float(one.replace(",", "."))) for one in most if NUMBER.fullmatch(one)}
    if ours and platforms and ours != platforms:
        words = f"the platform has {', '.join(sorted(platforms))} points at most, the class {', '.join(sorted(ours))}"
        notes.append(f"{sheet.header[column].strip()!r}: {words}")
    return Filled(sheet.filled(column, cells), sum(map(bool, cells.values())), tuple(notes))
