"""Finds a student by a key, a name, an email or another id, as a person types it."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

from grader.classroom.folder import ClassError
from grader.classroom.model import Student
from grader.classroom.roster import name_forms
from grader.report.style import counted

MAX_CANDIDATES = 8


def find(students: Sequence[Student], who: str) -> Student:
    """The student whom `who` names: a key, else a whole name or id, else a part of one name or key. Raises ClassError."""
    if found := [one for one in students if one.key == who]:
        return found[0]
    wanted = folded(who)
    ids = {one.key: {folded(one.key), *map(folded, one.ids.values())} for one in students}
    for fits in (
        [one for one in students if wanted in ids[one.key] or name_forms(who) & name_forms(one.name)],
        [one for one in students if wanted and (wanted in folded(one.name) or wanted in folded(one.key))],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise ClassError(f"{who!r} may be {_listed(fits)}: name one by its key")
    near = difflib.get_close_matches(wanted, [folded(name) for one in students for name in (one.key, one.name)], 3)
    alike = [one for one in students if {folded(one.key), folded(one.name)} & set(near)]
    hint = f"; there is {_listed(alike)}" if alike else f"; the class has {counted(len(students), 'student')}"
    raise ClassError(f"no student has the key, name, email or id {who!r}{hint}")


def find_all(students: Sequence[Student], who: Iterable[str]) -> list[Student]:
    """The students that these words name, each once. Raises ClassError."""
    return list({one.key: one for one in (find(students, each) for each in who)}.values())


def folded(text: str) -> str:
    """The text in one case, with characters of one width and single spaces, for comparing."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def name_of(text: str) -> str:
    """A person's name in the form in which names are compared: `ada lovelace` for `Lovelace, Ada`."""
    last, comma, first = folded(text).partition(",")
    return f"{first.strip()} {last.strip()}" if comma and "," not in first else folded(text)


def shown(student: Student) -> str:
    """A student in a sentence."""
    return f"{student.key} ({student.name})" if student.name and student.name != student.key else student.key


def _listed(students: Sequence[Student]) -> str:
    words = [shown(one) for one in students[:MAX_CANDIDATES]]
    if len(students) > MAX_CANDIDATES:
        words.append(f"{len(students) - MAX_CANDIDATES} more")
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
