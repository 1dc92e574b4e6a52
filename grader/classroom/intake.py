"""Makes the folder of a class from a learning platform's export, and adds later exports and rosters."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from grader.classroom.archive import open_source
from grader.classroom.folder import NOTHING, ClassError, ClassRun, Decision, RunFolder, Student, Students, file_names
from grader.classroom.grades import override_of
from grader.classroom.handins import keep
from grader.classroom.lookup import folded
from grader.classroom.platforms import Export, HandIn, recognise
from grader.classroom.roster import NOBODY, ClassList, Person, Shared, differing, read_roster, spellings
from grader.report.style import first_of
from grader.runfolder import abandoned, alone_in, remove

DRAFT = ".grader-new-"
MAX_TOLD = 20  # notes of students; all are in students.json


class Intake:
    """Takes an export into the students of a class.

    Args:
        folder: of the class; the copies go into its `handins`.
        run: the rules of the class, which name the files to look for.
        students: those on the roster, or of the class before this export.

    Attributes:
        listed: the keys of these students.
        counted: the hand-in of this export that counts, by a student's key.
        about: groups and students, by the sentence about all of them.
    """

    def __init__(self, folder: RunFolder, run: ClassRun, students: ClassList) -> None:
        self.handins = folder.handins
        self.wanted, self.known = file_names(run)
        self.students = students
        self.listed = list(students)
        self.counted: dict[str, HandIn] = {}
        self.about: dict[str, list[str]] = defaultdict(list)
        self.notes: list[str] = []

    def take(self, export: Export) -> None:
        """Copy the hand-ins, and assign each to its students. Raises OSError."""
        self.handins.mkdir(exist_ok=True)
        self.notes += export.notes
        ids: dict[frozenset[str], set[str]] = defaultdict(set)  # all ids of a person, by name
        folders: dict[str, set[str]] = defaultdict(set)
        everybody = [person for handin in export.handins for person in handin.people]
        for one in everybody:
            ids[spellings(one.name)].add(str(one.ids))
            folders[folded(one.ids.get("folder", ""))].add(one.ids.get("folder", ""))
        # A name that all have and no student has is none: "Participant", where Moodle's marking is blind
        is_blind = len(ids) == 1 and not any(self.students.namesakes(one.name) for one in everybody)
        owners: dict[str, list[set[str]]] = defaultdict(list)  # the students of each hand-in with the same files
        for handin in export.handins:
            kept, notes = keep(handin, self.handins, self.wanted, self.known)
            keys: set[str] = set()
            for one in handin.people:
                is_shared = len(folders[folded(one.ids.get("folder", ""))]) > 1
                shared: Shared = "folder" if is_shared else ""
                if one.name and len(ids[spellings(one.name)]) > 1:
                    one, shared = (Person("", one.ids), "") if is_blind else (one, "name")
                keys |= self._assigned(handin, one, shared, kept, notes)
            owners[kept].append(keys)
        self.notes += [f"{words}: {first_of(who)}" for words, who in self.about.items()]
        for kept, those in owners.items():
            who = set().union(*those)
            groups = {self.students[key].ids.get("group", "") for key in who}
            if kept and any(one != who for one in those) and (len(groups) > 1 or groups == {""}):
                self.notes.append(f"the same files: {first_of(sorted(who))}")

    def _assigned(self, handin: HandIn, person: Person, shared: Shared, kept: str, of_files: Sequence[str]) -> set[str]:
        """Assign a hand-in to a student, who is added if unknown, or to each student of a group. Returns their keys.

        Args:
            kept: the name of the copy.
            of_files: sentences about the hand-in's files.
        """
        notes = list(of_files)
        kind, value = next(iter(person.ids.items()), ("name", person.name))
        column = f"{kind} id" if kind in ("moodle", "canvas") else kind
        line = f"a roster with {value} in the column `{column}` says whose it is"
        student, why = self.students.find(person, shared, self.listed)
        if why:
            notes.append(f"{why}; {line}")
        elif student is None and shared != "name":
            namesakes = self.students.namesakes(person.name)
            notes += [f"has the name of {one.key}, and other ids; {line}" for one in namesakes]
        if student is None and shared == "folder":
            notes.append(f"{handin.where}: another folder has this name but for capital letters; {line}")
        group = self.students.group(person, student)
        if group:
            self.about["handed in by groups, for each of their students"].append(group[0].ids["group"])
        is_anothers = bool(person.name and student and not spellings(person.name) & spellings(student.name))
        if not group and is_anothers and student and student.name and "canvas" in person.ids:
            hint = "a roster with the column `group` gives a group's other students the hand-in"
            self.about[f"Canvas names hand-ins after nobody; {hint}"].append(f"{person.name} ({student.key})")
        for member in group:
            if member is not student:
                self._give(member, handin, kept, of_files)
        if student is None and not group:
            student = self.students.add(person)
        if student is not None:
            notes += [f"handed in with the {kind} {person.ids[kind]}" for kind in differing(student, person)]
            told = {"ids": {**person.ids, **student.ids}, "name": student.name or person.name}
            self._give(student.model_copy(update=told), handin, kept, notes)
        return {one.key for one in (*group, *([student] if student else []))}

    def _give(self, student: Student, handin: HandIn, kept: str, about: Sequence[str]) -> None:
        """Put the student into the class with the hand-in, or with the one before if that counts."""
        other = self.counted.get(student.key)
        told = [*student.notes]
        update: dict[str, object] = {}
        if student.handin and not kept:
            told += [*about, f"{handin.where}: {NOTHING}; the hand-in before counts"]
        elif student.handin and other and other.order > handin.order:
            told += [f"handed in twice: {other.where} counts, {handin.where} is the earlier one"]
            told += self._lacking(student.key, kept, student.handin)
        else:
            self.counted[student.key] = handin
            update = {"ids": {**student.ids, **handin.ids}}
            if other or not kept or kept != student.handin:
                told = [*about]
                if other:
                    told.append(f"handed in twice: {handin.where} counts, {other.where} is the earlier one")
                elif student.handin:
                    told.append(f"handed in again; the hand-in before was {student.handin}")
                told += [*self._lacking(student.key, student.handin, kept), *[NOTHING] * (not kept)]
                update |= {"handin": kept, "late": handin.late}
        notes = tuple(dict.fromkeys(told))
        self.students[student.key] = student.model_copy(update={**update, "notes": notes})

    def _lacking(self, key: str, before: str, after: str) -> list[str]:
        """A sentence if a hand-in that counts lacks files of the assignments that the one before had."""
        had, has = (
            {path.name for path in (self.handins / each).rglob("*")} if each else set() for each in (before, after)
        )
        lost = [name for name in self.wanted if name in had - has]
        if not lost:
            return []
        self.about["handed in again without files that the hand-in before had"].append(f"{key} ({', '.join(lost)})")
        mend = f"ask for all files in one hand-in, or `grader class decide RUN {key} --points N`"
        return [
            f"has no {' and no '.join(lost)}, which the hand-in before ({before}) had, and gets no points for it: {mend}"
        ]

    def result(self, notes: Iterable[str], listed_in: str) -> Students:
        """The students on the roster, in its order, then all others by their keys; and sentences about the intake.

        Args:
            listed_in: where the others are not, as `the roster`; empty if there is none.
        """
        others = sorted(self.students.keys() - self.listed, key=lambda key: (key.casefold(), key))
        told = [f"handed in and not in {listed_in}: {first_of(sorted(others))}"] if listed_in and others else []
        students = tuple(self.students[key] for key in (*self.listed, *others))
        return Students(students=students, notes=tuple(dict.fromkeys((*notes, *told, *self.notes))))


def new_class(folder: Path, run: ClassRun, source: Path, platform: str = "", roster: Path | None = None) -> list[str]:
    """Make the folder of a class, whole or not at all. Returns sentences about the class.

    Args:
        source: a learning platform's zip or folder.
        platform: the form of the export; empty to recognise it.

    Raises:
        ClassError: the folder is in use, or the source or the roster cannot be used.
        OSError: the folder cannot be written.
    """
    folder = folder.resolve()
    _refuse_used(folder)
    listed, notes = read_roster(roster) if roster else ([], [])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open_source(source) as opened:
        export = recognise(opened, {name for names in file_names(run) for name in names}, platform)
        drafts = f"{DRAFT}{folder.name}-"
        for left in abandoned(folder.parent, drafts):  # by a killed command
            remove(left)
        draft = Path(tempfile.mkdtemp(prefix=drafts, dir=folder.parent))
        try:
            made = RunFolder(draft)
            with alone_in(draft):
                intake = Intake(made, run, ClassList({one.key: one for one in listed}))
                intake.take(export)
                students = intake.result(notes, "the roster" if roster else "")
                made.write(run)
                made.write(students)
                os.sync()
                try:
                    os.rename(draft, folder)  # noqa: PTH104  (an empty folder is replaced)
                except OSError:
                    _refuse_used(folder)  # somebody else made it meanwhile
                    raise
        except BaseException:
            remove(draft)
            raise
    everybody = students.students
    none = [one for one in everybody if not one.handin]
    kinds = {
        "handed in nothing": [one.key for one in none if NOTHING not in one.notes],
        NOTHING: [one.key for one in none if NOTHING in one.notes],
        "late": [one.key for one in everybody if one.late],
    }
    return [
        f"recognised: {export.sentence}",
        f"students: {len(everybody)}, of whom handed in: {len(everybody) - len(none)}",
        f"hand-ins in the export: {len(export.handins)}, different ones: {len({one.handin for one in everybody} - {''})}",
        *(f"{what}: {first_of(keys)}" for what, keys in kinds.items() if keys),
        *students.notes,
        *_notes_of(everybody),
    ]


def _refuse_used(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise ClassError(
            f"{folder}: exists and is not empty; name a new folder, or add a later export by `grader class add {folder} --from ...`"
        )
    if folder.exists() and not folder.is_dir():
        raise ClassError(f"{folder}: is a file; name a new folder for the class")


def add_to_class(folder: Path, source: Path | None, platform: str = "", roster: Path | None = None) -> list[str]:
    """Take a later export, a later roster, or both into a class. Returns sentences about the changes.

    Raises ClassError, CourseError, OSError. For the arguments see `new_class`.
    """
    if source is None and roster is None:
        raise ClassError("name a later export by --from, or a later roster by --roster")
    run = RunFolder(folder)
    names = {
        name for both in file_names(run.run()) for name in both
    }  # fails before anything is written into the folder
    listed, notes = read_roster(roster) if roster else ([], [])
    with ExitStack() as stack:
        opened = stack.enter_context(open_source(source)) if source else None
        stack.enter_context(alone_in(folder))
        before, decisions = run.students(), run.decisions()
        earlier = {one.key: one for one in before.students}
        students = ClassList(earlier)
        notes += _enrolled(students, listed, decisions)
        export = recognise(opened, names, platform) if opened else None
        intake = Intake(run, run.run(), students)
        if export:
            intake.take(export)
        after = intake.result((*before.notes, *notes), "the class before")
        os.sync()
        run.write(after)
    new = [one for one in after.students if one.key not in earlier]
    again = [one for one in after.students if one.key in earlier and one.handin != earlier[one.key].handin]
    takes_back = "`grader class decide RUN WHO --withdraw` takes them back"
    kinds = {
        "handed in again, the new hand-in counts": [one.key for one in again if earlier[one.key].handin],
        "handed in for the first time": [one.key for one in again if not earlier[one.key].handin],
        "late": [one.key for one in (*again, *new) if one.late],
        f"points by decision stand, whatever the new hand-in earns; {takes_back}": [
            one.key for one in again if override_of(decisions, one) is not None
        ],
    }
    changed = f"students changed: {len(again) + len(new)} of {len(after.students)}"
    return [
        *([f"recognised: {export.sentence}"] if export else []),
        f"hand-ins in the export: {len(export.handins)}; {changed}" if export else changed,
        *(f"{what}: {first_of(keys)}" for what, keys in kinds.items() if keys),
        *(note for note in after.notes if note not in before.notes),
        *_notes_of([one for one in after.students if one.key not in earlier or one.notes != earlier[one.key].notes]),
    ]


def _enrolled(students: ClassList, listed: Sequence[Student], decisions: Sequence[Decision]) -> list[str]:
    """Add the students of a later roster, and its names and ids of those in the class. Returns sentences about it.

    Two students of the class with ids of one line are one, if only one of them has handed in and no decision is about the other.
    """
    notes: list[str] = []
    before = set(students)
    decided = {one.who for one in decisions}
    found: set[str] = set()
    for one in listed:
        person = Person(one.name, one.ids)
        both = students.proven(person)
        with_files = [each for each in both if each.handin]
        if len(both) > 1 and len(with_files) < 2 and len(decided & {each.key for each in both}) < 2:
            stays = next((each for each in both if each.key in decided), both[0])
            others = [each for each in both if each is not stays]
            for each in others:
                del students[each.key]
            of = with_files[0] if with_files else stays
            kept = {
                "handin": of.handin,
                "late": of.late,
                "notes": tuple(note for note in of.notes if NOBODY not in note),
                "ids": {kind: value for each in (stays, *others) for kind, value in each.ids.items()},
            }
            students[stays.key] = stays.model_copy(update=kept)
            notes.append(f"{first_of([each.key for each in others])}: is {stays.key} by the roster")
        known, why = students.find(person)
        if why:
            notes.append(f"on the roster: {why}")
            continue
        if known is None or known.key in found:
            known = students.add(person)
        notes += [f"{known.key}: has another {kind} on the roster now" for kind in differing(known, person)]
        told = {"name": one.name or known.name, "ids": {**known.ids, **one.ids}, "alias": one.alias or known.alias}
        students[known.key] = known.model_copy(update=told)
        found.add(known.key)
    if new := sorted(found - before):
        notes.append(f"new by the roster: {first_of(new)}")
    if listed and (gone := sorted((before & students.keys()) - found)):
        notes.append(f"in the class, and not on the roster: {first_of(gone)}")
    return notes


def _notes_of(students: Iterable[Student]) -> list[str]:
    """Notes about students, first about those without a hand-in."""
    ordered = sorted(students, key=lambda one: bool(one.handin))
    notes = [f"{one.key}: {note}" for one in ordered for note in one.notes if note != NOTHING]
    more = len(notes) - MAX_TOLD
    return [*notes[:MAX_TOLD], *[f"and {more} more notes, in students.json"] * (more > 0)]
