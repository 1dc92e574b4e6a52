"""Makes the folder of a class from a learning platform's export, and adds later exports."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from grader.classroom.archive import open_source
from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.grades import override_of
from grader.classroom.handins import HandIn, Kept, Person, keep
from grader.classroom.model import NOTHING, ClassRun, Decision, Student, Students
from grader.classroom.platforms import Export, recognise
from grader.classroom.roster import Ambiguous, ClassList, differing, folded, read_roster, spellings
from grader.report.style import first_of
from grader.runfolder import abandoned, alone_in, remove

DRAFT = ".grader-new-"


@dataclass(frozen=True)
class Order:
    """An export, and the files to look for in it.

    Attributes:
        source: a learning platform's zip or folder; None for a roster alone.
        platform: the form of the export; empty to recognise it.
        wanted: the file names of the class's assignments.
        known: the file names of the course's other assignments.
    """

    source: Path | None
    platform: str
    wanted: tuple[str, ...]
    known: tuple[str, ...]


@dataclass
class Intake:
    """Takes an export into the students of a class.

    Attributes:
        handins: the folder of the copies.
        listed: keys of the students on the roster, or of the class before this export.
        counted: the hand-in of this export that counts, by a student's key.
        owners: the keys of the students of each hand-in with the same files, by the name of the copy.
        of_groups: the names of the groups that handed in.
        nameless: names of Canvas' that are neither the student's nor a group's, each with the student's key.
        fewer: students whose later hand-in lacks a file of the one before.
    """

    handins: Path
    order: Order
    students: ClassList
    listed: frozenset[str]
    counted: dict[str, HandIn] = field(default_factory=dict)
    owners: dict[str, list[set[str]]] = field(default_factory=lambda: defaultdict(list))
    of_groups: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    fewer: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, export: Export) -> None:
        self.notes += export.notes
        people = _told_apart([person for handin in export.handins for person in handin.people], self.students)
        for handin in export.handins:
            kept = keep(handin, self.handins, self.order.wanted, self.order.known)
            keys = set().union(*(self._assigned(handin, *people[id(person)], kept) for person in handin.people))
            if kept.handin:
                self.owners[kept.handin].append(keys)
        if self.of_groups:
            self.notes.append(f"handed in by groups, for each of their students: {first_of(self.of_groups)}")
        if self.nameless:
            hint = "if these are groups, a roster with the column `group` gives their other students the hand-in"
            self.notes.append(f"Canvas names hand-ins after nobody: {first_of(self.nameless)}; {hint}")
        if self.fewer:
            self.notes.append(f"handed in again without files that the hand-in before had: {first_of(self.fewer)}")
        for owners in self.owners.values():
            everybody = set().union(*owners)
            if any(one != everybody for one in owners) and not self.students.is_group(everybody):
                self.notes.append(f"the same files: {first_of(sorted(everybody))}")

    def _assigned(self, handin: HandIn, person: Person, doubt: str, kept: Kept) -> set[str]:
        """Assign a hand-in to a student, who is added if unknown, or to each student of a group. Returns their keys.

        Args:
            doubt: what another person of the export shares with this one: `name`, or `folder` but for capital letters.
        """
        notes = list(kept.notes)
        student = None
        try:
            if doubt != "name" or self.students.proven(person):
                student = self.students.find(person, exact=doubt == "folder")
        except Ambiguous as why:
            notes.append(f"{why}: nobody was chosen; {_line_for(person)}")
        else:
            same = [] if student else [one.key for one in self.students.namesakes(spellings(person.name))]
            namesakes = [key for key in same if key in self.listed or doubt != "name"]
            if doubt == "name" and namesakes:
                who = " or ".join(namesakes[:3])
                notes.append(
                    f"{person.name} may be {who}, and several hand-ins have this name: nobody was chosen; {_line_for(person)}"
                )
            else:
                notes += [f"has the name of {one}, and other ids" for one in namesakes]
        if doubt == "folder" and student is None:
            notes.append(f"{handin.where}: another folder has this name but for capital letters; {_line_for(person)}")
        group = self.students.group(person, student)
        if group:
            self.of_groups.append(group[0].ids["group"])
        elif "canvas" in person.ids and person.name and student and student.name:
            is_students = spellings(person.name) & spellings(student.name)
            self.nameless += [] if is_students else [f"{person.name} ({student.key})"]
        for member in group:
            if student is None or member.key != student.key:
                self.students.put(self._with(member, handin, kept, list(kept.notes)))
        if student is None and group:
            return {one.key for one in group}
        student = student or self.students.add(person)
        notes += [f"handed in with the {field} {person.ids[field]}" for field in differing(student, person)]
        ids = {**person.ids, **student.ids}
        student = student.model_copy(update={"ids": ids, "name": student.name or person.name})
        self.students.put(self._with(student, handin, kept, notes))
        return {student.key, *(one.key for one in group)}

    def _with(self, student: Student, handin: HandIn, kept: Kept, notes: list[str]) -> Student:
        """The student with the hand-in, or with the one before if that counts."""
        other = self.counted.get(student.key)
        if student.handin and not kept.handin:
            note = f"{handin.where}: {NOTHING}; the hand-in before counts"
            return student.model_copy(update={"notes": _once((*student.notes, *notes, note))})
        if student.handin and other and other.order > handin.order:
            notes = [f"handed in twice: {other.where} counts, {handin.where} is the earlier one"]
            notes += self._lacking(student.key, kept.handin, student.handin)
            return student.model_copy(update={"notes": _once((*student.notes, *notes))})
        self.counted[student.key] = handin
        student = student.model_copy(update={"ids": {**student.ids, **handin.ids}})
        if other:
            notes.append(f"handed in twice: {handin.where} counts, {other.where} is the earlier one")
        elif student.handin == kept.handin != "":
            return student
        elif student.handin:
            notes.append(f"handed in again; the hand-in before was {student.handin}")
        notes += self._lacking(student.key, student.handin, kept.handin)
        notes += [NOTHING] if not kept.handin else []
        return student.model_copy(update={"handin": kept.handin, "late": handin.late, "notes": _once(notes)})

    def _lacking(self, key: str, before: str, after: str) -> list[str]:
        """A sentence if a hand-in that counts lacks files of the assignments that the one before had."""
        had, has = (
            {one.name for one in (self.handins / each).rglob("*")} if each else set() for each in (before, after)
        )
        lost = [name for name in self.order.wanted if name in had - has]
        if not lost:
            return []
        self.fewer.append(f"{key} ({', '.join(lost)})")
        mend = f"ask for all files in one hand-in, or `grader class decide RUN {key} --points N`"
        return [
            f"has no {' and no '.join(lost)}, which the hand-in before ({before}) had, and gets no points for it: {mend}"
        ]


def _told_apart(people: Sequence[Person], students: ClassList) -> dict[int, tuple[Person, str]]:
    """The people of an export, by `id`, each with what makes it doubtful: another person has the same `name`, or a `folder`
    of the same name but for capital letters. A name that all have and no student has, as "Participant", is none.
    """
    names: dict[frozenset[str], set[str]] = defaultdict(set)
    folders: dict[str, set[str]] = defaultdict(set)
    for one in people:
        names[frozenset(spellings(one.name))].add(one.ids.get("moodle", ""))
        folders[folded(one.ids.get("folder", ""))].add(one.ids.get("folder", ""))
    found: dict[int, tuple[Person, str]] = {}
    for one in people:
        shares_name = one.name != "" and len(names[frozenset(spellings(one.name))]) > 1
        shares_folder = len(folders[folded(one.ids.get("folder", ""))]) > 1
        if shares_name and len(names) == 1 and not students.namesakes(spellings(one.name)):
            found[id(one)] = Person("", one.ids), ""
        else:
            found[id(one)] = one, "name" if shares_name else "folder" if shares_folder else ""
    return found


def _line_for(person: Person) -> str:
    """How a line of the roster says who a person is."""
    kind, value = next(iter(person.ids.items()), ("name", person.name))
    column = f"{kind} id" if kind in ("moodle", "canvas") else kind
    return f"a roster with {value} in the column `{column}` says whose it is"


def _once(notes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))


def new_class(folder: Path, run: ClassRun, order: Order, roster: Path | None = None) -> list[str]:
    """Make the folder of a class, whole or not at all. Returns sentences about the class.

    Raises:
        ClassError: the folder is in use, or the source or the roster cannot be used.
    """
    assert order.source is not None
    folder = folder.resolve()
    _refuse_used(folder)
    listed, notes = read_roster(roster) if roster else ([], [])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_source(order.source) as source:
        export = recognise(source, {*order.wanted, *order.known}, order.platform)
        drafts = f"{DRAFT}{folder.name}-"
        for left in abandoned(folder.parent, drafts):  # by a killed command
            remove(left)
        draft = Path(tempfile.mkdtemp(prefix=drafts, dir=folder.parent))
        try:
            made = RunFolder(draft)
            made.handins.mkdir()
            with alone_in(draft):
                intake = _intake(made, order, ClassList(listed))
                intake.take(export)
                students = _students(intake, (*notes, *_strangers(intake, "the roster" if roster else "")))
                made.write(run)
                made.write(students)
                os.sync()
                publish(draft, folder)
        except BaseException:
            remove(draft)
            raise
    return [f"recognised: {export.sentence}", *_told(students, len(export.handins))]


def add_to_class(folder: Path, order: Order, roster: Path | None = None) -> list[str]:
    """Take a later export, a later roster, or both into a class. Returns sentences about the changes. Raises ClassError."""
    if order.source is None and roster is None:
        raise ClassError("name a later export by --from, or a later roster by --roster")
    run = RunFolder(folder)
    run.students()  # which says that this is the folder of a class, before anything is written into it
    listed, notes = read_roster(roster) if roster else ([], [])
    with ExitStack() as stack:
        source = stack.enter_context(open_source(order.source)) if order.source else None
        stack.enter_context(alone_in(folder))
        before = run.students()
        students = ClassList(before.students)
        notes += _enrolled(students, listed, run.decisions())
        export = recognise(source, {*order.wanted, *order.known}, order.platform) if source else None
        run.handins.mkdir(exist_ok=True)
        intake = _intake(run, order, students)
        if export:
            intake.take(export)
        notes += _strangers(intake, "the class before")
        after = _students(intake, (*before.notes, *notes))
        os.sync()
        run.write(after)
    changes = _changes(before, after, len(export.handins) if export else None, run.decisions())
    return [*([f"recognised: {export.sentence}"] if export else []), *changes]


def _enrolled(students: ClassList, listed: Sequence[Student], decisions: Sequence[Decision]) -> list[str]:
    """Add the students of a later roster, and its names and ids of those in the class. Returns sentences about it.

    Two students of the class with ids of one line are one, if only one of them has handed in and no decision is about the other.
    """
    notes: list[str] = []
    before = {one.key for one in students}
    decided = {one.who for one in decisions}
    found: set[str] = set()
    for one in listed:
        person = Person(one.name, one.ids)
        both = students.proven(person)
        with_files = [each for each in both if each.handin]
        stays = next((each for each in both if each.key in decided), both[0] if both else None)
        if stays and len(both) > 1 and len(with_files) < 2 and len(decided & {each.key for each in both}) < 2:
            others = [each for each in both if each is not stays]
            for each in others:
                students.remove(each)
            of = with_files[0] if with_files else stays
            kept = {
                "handin": of.handin,
                "late": of.late,
                "notes": tuple(note for note in of.notes if "nobody was chosen" not in note),
            }
            ids = {kind: value for each in (stays, *others) for kind, value in each.ids.items()}
            students.put(stays.model_copy(update={**kept, "ids": ids}))
            notes.append(f"{first_of([each.key for each in others])}: is {stays.key} by the roster")
        try:
            known = students.find(person)
        except Ambiguous as why:
            notes.append(f"on the roster: {why}: nobody was chosen")
            continue
        if known is None or known.key in found:
            known = students.add(person)
        notes += [f"{known.key}: has another {field} on the roster now" for field in differing(known, person)]
        told = {"name": one.name or known.name, "ids": {**known.ids, **one.ids}, "alias": one.alias or known.alias}
        students.put(known.model_copy(update=told))
        found.add(known.key)
    before &= {one.key for one in students}
    new, gone = sorted(found - before), sorted(before - found) if listed else []
    notes += [f"new by the roster: {first_of(new)}"] * bool(new)
    return [*notes, *[f"in the class, and not on the roster: {first_of(gone)}"] * bool(gone)]


def _intake(run: RunFolder, order: Order, students: ClassList) -> Intake:
    return Intake(run.handins, order, students, frozenset(one.key for one in students))


def _refuse_used(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise ClassError(
            f"{folder}: exists and is not empty; name a new folder, or add a later export by `grader class add {folder} --from ...`"
        )
    if folder.exists() and not folder.is_dir():
        raise ClassError(f"{folder}: is a file; name a new folder for the class")


def publish(draft: Path, folder: Path) -> None:
    try:
        os.rename(draft, folder)  # noqa: PTH104  (an empty folder is replaced)
    except OSError:
        _refuse_used(folder)  # somebody else made it meanwhile
        raise


def _students(intake: Intake, notes: Sequence[str]) -> Students:
    """The students on the roster, in its order, then all others by their keys."""
    listed = [one for one in intake.students if one.key in intake.listed]
    others = sorted(
        (one for one in intake.students if one.key not in intake.listed), key=lambda one: one.key.casefold()
    )
    return Students(students=(*listed, *others), notes=_once((*notes, *intake.notes)))


def _strangers(intake: Intake, where: str) -> list[str]:
    strangers = sorted(one.key for one in intake.students if one.key not in intake.listed)
    return [f"handed in and not in {where}: {first_of(strangers)}"] if where and strangers else []


# What is said of it ---------------------------------------------------------------------------------------------------

MAX_TOLD = 20  # notes of students; all are in students.json


def _told(students: Students, handins: int) -> list[str]:
    everybody = students.students
    none = [one for one in everybody if not one.handin]
    unfit = [one.key for one in none if NOTHING in one.notes]
    absent = [one.key for one in none if NOTHING not in one.notes]
    copies = {one.handin for one in everybody if one.handin}
    late = [one.key for one in everybody if one.late]
    lines = [
        f"students: {len(everybody)}, of whom handed in: {len(everybody) - len(none)}",
        f"hand-ins in the export: {handins}, different ones: {len(copies)}",
    ]
    lines += [f"handed in nothing: {first_of(absent)}"] * bool(absent)
    lines += [f"{NOTHING}: {first_of(unfit)}"] * bool(unfit)
    lines += [f"late: {first_of(late)}"] * bool(late)
    return [*lines, *students.notes, *_notes_of(everybody)]


def _notes_of(students: Iterable[Student]) -> list[str]:
    """Notes about students, first about those without a hand-in."""
    ordered = sorted(students, key=lambda one: bool(one.handin))
    notes = [f"{one.key}: {note}" for one in ordered for note in one.notes if note != NOTHING]
    more = len(notes) - MAX_TOLD
    return [*notes[:MAX_TOLD], *([f"and {more} more notes, in students.json"] if more > 0 else [])]


def _changes(before: Students, after: Students, handins: int | None, decisions: Sequence[Decision]) -> list[str]:
    earlier = {one.key: one for one in before.students}
    new = [one for one in after.students if one.key not in earlier]
    again = [one for one in after.students if one.key in earlier and one.handin != earlier[one.key].handin]
    first = [one.key for one in again if not earlier[one.key].handin]
    replaced = [one.key for one in again if earlier[one.key].handin]
    decided = [one.key for one in again if override_of(decisions, one) is not None]
    noted = [one for one in after.students if one.key in earlier and one.notes != earlier[one.key].notes]
    export = "" if handins is None else f"hand-ins in the export: {handins}; "
    lines = [f"{export}students changed: {len(again) + len(new)} of {len(after.students)}"]
    lines += [f"handed in again, the new hand-in counts: {first_of(replaced)}"] * bool(replaced)
    lines += [f"handed in for the first time: {first_of(first)}"] * bool(first)
    late = [one.key for one in (*again, *new) if one.late]
    lines += [f"late: {first_of(late)}"] * bool(late)
    if decided:
        takes_back = "`grader class decide RUN WHO --withdraw` takes them back"
        lines.append(f"points by decision stand, whatever the new hand-in earns; {takes_back}: {first_of(decided)}")
    lines += [note for note in after.notes if note not in before.notes]
    return [*lines, *_notes_of((*new, *noted))]
