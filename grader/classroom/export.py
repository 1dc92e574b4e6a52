"""Exports the grades of a class in a gradebook's format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from grader.assignment import load_course
from grader.classroom import gradebook, gradescope
from grader.classroom.folder import ClassError, RunFolder, full_disk_told, write_whole
from grader.classroom.grades import Basis, Grade, Grades, number
from grader.classroom.sheet import BOM, read_sheet
from grader.report.style import counted, first_of


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
        write_whole(into, BOM + gradebook.table(every))  # by which Excel knows UTF-8
        return into, [*_counted(every), *_overrides(every, wanted.basis), *_unlike(every)]
    is_gradescope = wanted.form is Format.gradescope
    said = gradebook.refuse_open(every, wanted.form.value.capitalize(), wanted.without_open, also_missing=is_gradescope)
    left_out = len(every) - len(said)
    notes = [*_counted(said), *_overrides(said, wanted.basis), *_unlike(said)]
    notes += [f"{left_out} left out, whose points are not all graded"] * bool(left_out)
    if is_gradescope:
        gradescope.export(folder, said, wanted.basis, file_names(folder, course), into)
        return into, [*notes, gradescope.UNKNOWN_FILES]
    assert wanted.template is not None
    fill = gradebook.fill_canvas if wanted.form is Format.canvas else gradebook.fill_moodle
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
