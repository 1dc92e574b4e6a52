"""The forms of learning platforms' exports: finds the owner of each file, and the later one of two versions.

A form is recognised by its contents. An owner is given as the platform spells it; `grader.classroom.roster` finds the
student.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from grader.classroom.archive import Entry, Source, Unreadable
from grader.classroom.folder import ClassError
from grader.classroom.handins import HandIn, Person
from grader.classroom.roster import TEST_STUDENT, is_mark, is_test_student
from grader.report.style import counted
from grader.submission import MAX_FILE_BYTES, is_archive

METADATA = "submission_metadata.yml"
MAX_METADATA_BYTES = 64 << 20
CANVAS = re.compile(  # a name may have marks, such as vowel signs, which are no \w
    r"(?:(?=(?:LATE_)?anon_)|(?P<name>[\w\x80-\U0010ffff]*?)_)(?P<late>LATE_)?(?P<user>\d+|anon_[A-Za-z0-9]+)_(?:(?P<file>\d+)_(?P<rest>.+)|(?P<typed>(?:text|link)\.html))",
    re.DOTALL,
)
AGAIN = re.compile(r"(?P<stem>.+?)-(?:[1-9][0-9]?|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?P<suffixes>(?:\.\w+)+)")
MOODLE = re.compile(r"(?P<name>.*)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<rest>.*))?", re.DOTALL)
CLONES = re.compile(r"(?P<assignment>.+)-submissions")


@dataclass(frozen=True)
class Export:
    """A recognised export.

    Attributes:
        sentence: names the form, and the sign by which it was recognised.
        notes: sentences about files without an owner.
    """

    sentence: str
    handins: tuple[HandIn, ...]
    notes: tuple[str, ...] = ()


def recognise(source: Source, names: Collection[str], platform: str = "", groups: Collection[str] = ()) -> Export:
    """Recognise an export and list its hand-ins.

    Args:
        names: the file names of the course.
        platform: one of `PLATFORMS`; empty to recognise it.
        groups: the names of the class's groups.

    Raises:
        ClassError: the source has none of the forms, or not that one.
    """
    for form in [platform] if platform else PLATFORMS:
        for level in _levels(_named_by_groups(source, groups) if form == "canvas" else source):
            if found := PLATFORMS[form][1](level, names):
                return replace(found, notes=(*level.notes, *found.notes))
    shown = sorted({entry.path[0] for entry in source.entries} | set(source.top_folders))[:3]
    there = f"it has {', '.join(shown)}" if shown else "it is empty"
    if platform:
        raise ClassError(f"{source.name}: {there}; expected {PLATFORMS[platform][0]}")
    forms = "; ".join(f"{form}: {words}" for form, (words, _) in PLATFORMS.items())
    raise ClassError(f"{source.name}: {there}, which is none of these forms: {forms}")


def _levels(source: Source) -> Iterator[Source]:
    """The source; then, up to two levels down, the only top folder, as long as no file lies beside it."""
    yield source
    for _ in range(2):
        if len(source.top_folders) != 1 or any(len(entry.path) == 1 for entry in source.entries):
            return
        source = source.entered(source.top_folders[0])
        yield source


def _by_folder(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The files in each folder that is not in another one, as they are named from it."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if len(entry.path) > 1:
            found[entry.path[0]].append(entry.below(1))
    return found


def _newest(entries: Iterable[Entry]) -> float:
    return max((entry.changed for entry in entries), default=0.0)


def _unused(entries: Iterable[Entry], why: str) -> tuple[str, ...]:
    return tuple(f"{entry.name}: {why}" for entry in entries)


# Gradescope -----------------------------------------------------------------------------------------------------------


def _gradescope(source: Source, _names: Collection[str]) -> Export | None:
    metadata = next((entry for entry in source.entries if entry.path == (METADATA,)), None)
    if metadata is None:
        return None
    listed = _mapping(_parsed(metadata))
    if not listed:
        raise ClassError(f"{source.name}: {METADATA} names no submissions; export the submissions again")
    files = _by_folder(source.entries)
    handins, notes = [], []
    for where, about in listed.items():
        people = [person for one in _sequence(_mapping(about).get("submitters")) if (person := _submitter(one))]
        if not people:
            notes.append(f"{where}: {METADATA} names no submitter, so nobody knows whose it is")
            continue
        missing = () if where in source.top_folders or where in files else ("the export has no folder of it",)
        number = re.sub(r"\D", "", where)
        entries, order = tuple(files.get(where, ())), float(number[:15] or 0)
        handins.append(HandIn(where, tuple(people), entries, missing, order=order, ids={"gradescope": number}))
    strangers = [name for name in source.top_folders if name not in listed]
    notes += [f"{name}: {METADATA} does not name it, so nobody knows whose it is" for name in strangers]
    beside = [entry for entry in source.entries if len(entry.path) == 1 and entry is not metadata]
    notes += _unused(beside, "lies beside the submissions, and is not used")
    return Export(
        f"Gradescope's export: {METADATA} names {counted(len(listed), 'submission')}", tuple(handins), tuple(notes)
    )


def _parsed(metadata: Entry) -> object:
    """The parsed file, with each value as a string. Raises ClassError."""
    try:
        text = metadata.read(MAX_METADATA_BYTES + 1)
    except Unreadable as why:
        raise ClassError(f"{METADATA}: {why}") from None
    if metadata.fault or len(text) > MAX_METADATA_BYTES:
        raise ClassError(f"{METADATA}: {metadata.fault or f'larger than {MAX_METADATA_BYTES >> 20} MiB'}")
    try:
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)  # the first needs libyaml, and is quick
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        where = " ".join(str(error).split())[:200]
        raise ClassError(f"{METADATA}: is not what Gradescope writes ({where}); export the submissions again") from None


def _mapping(found: object) -> dict[str, Any]:
    """A mapping without the colons of Ruby's symbols."""
    if not isinstance(found, dict):
        return {}
    return {_text(key).removeprefix(":"): value for key, value in found.items() if isinstance(key, str)}


def _text(said: str) -> str:
    """Text that can be written: an escape in YAML may be half a character."""
    return said.encode(errors="replace").decode()


def _sequence(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _submitter(found: object) -> Person | None:
    said = {key: _text(value).strip() for key, value in _mapping(found).items() if isinstance(value, str)}
    said = {key: value for key, value in said.items() if value not in ("", "~", "null")}
    ids: dict[str, str] = {field: said[field] for field in ("email", "sid") if field in said}
    if not ids and "name" not in said:
        return None
    return Person(said.get("name", ""), ids)


# Canvas ---------------------------------------------------------------------------------------------------------------


def _canvas(source: Source, names: Collection[str]) -> Export | None:
    files: dict[str, list[tuple[int, Entry]]] = defaultdict(list)
    people: dict[str, Person] = {}
    late: set[str] = set()
    others: list[Entry] = []
    for entry in source.entries:
        named = CANVAS.fullmatch(entry.path[0]) if len(entry.path) == 1 else None
        if named is None:
            others.append(entry)
            continue
        user = named["user"]
        people.setdefault(user, Person(named["name"] or "", {"canvas": user}))
        files[user].append((int((named["file"] or "0")[:18]), replace(entry, path=(named["rest"] or named["typed"],))))
        if named["late"]:
            late.add(user)
    if len(source.top_folders) + len({entry.path[0] for entry in others}) > sum(map(len, files.values())):
        return None
    if not files:
        return None
    handins = []
    nobody: list[str] = []
    for user, numbered in files.items():
        entries, notes = _without_versions(numbered, names)
        latest = max(number for number, _ in numbered)
        where = f"{people[user].name or 'somebody'} ({user})"
        if is_test_student(people[user].name):
            nobody.append(f"{where}: {TEST_STUDENT}")
            continue
        handins.append(HandIn(where, (people[user],), entries, notes, user in late, float(latest)))
    example = next(entry.path[0] for entry in source.entries if CANVAS.fullmatch(entry.path[0]))
    strangers = _unused(others, "is not named as Canvas names files, and is not used")
    return Export(f"Canvas' submissions: files are named as {example}", tuple(handins), (*nobody, *strangers))


def _named_by_groups(source: Source, groups: Collection[str]) -> Source:
    """The files of a group Team_7 with names that begin with team7: in Canvas' team_7_1234_ the 7 would be somebody's id."""
    named = ("".join(filter(_is_kept, re.sub(r"_(\d+)_", r"\1", one).lower())) for one in groups)
    ours = tuple(f"{one}_" for one in sorted(named, key=len, reverse=True) if "_" in one)

    def renamed(entry: Entry) -> Entry:
        begin = next((one for one in ours if entry.path[-1].startswith(one)), "")
        name = begin.replace("_", "") + "_" * bool(begin) + entry.path[-1][len(begin) :]
        return replace(entry, path=(*entry.path[:-1], name))

    return replace(source, entries=tuple(map(renamed, source.entries))) if ours else source


def _is_kept(one: str) -> bool:
    """Whether Canvas keeps a character of a name in a file's name: letters, marks such as vowel signs, numbers and _."""
    return one.isalnum() or one == "_" or is_mark(one)


def _without_versions(
    numbered: list[tuple[int, Entry]], names: Collection[str]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """A student's files under the names that the student gave them, the latest of each, and sentences about it.

    Canvas numbers a file that is handed in again, and what a file is numbered after it once was is only guessed: a name that another file
    of the student has in its text stays.
    """
    versions: dict[str, list[tuple[int, Entry]]] = defaultdict(list)
    for number, entry in numbered:
        versions[_first_name(entry, [one for _, one in numbered], names)].append((number, entry))
    kept, notes = [], []
    for name, found in versions.items():
        found.sort(key=lambda pair: pair[0])
        last = found[-1][1]
        kept.append(replace(last, path=(name,)))
        if len(found) > 1:
            times = "twice" if len(found) == 2 else f"{len(found)} times"
            what = f"{last.name} is the later one" if last.name != name else "the later one counts"
            notes.append(f"{name} was handed in {times}: {what}")
        elif last.name != name:
            notes.append(f"{last.name} is taken for {name}: Canvas numbers a file that is handed in again")
    return tuple(kept), tuple(notes)


def _first_name(entry: Entry, others: Iterable[Entry], names: Collection[str]) -> str:
    again = AGAIN.fullmatch(entry.name)
    if again is None:
        return entry.name
    name = again["stem"] + again["suffixes"]
    first = name
    while more := AGAIN.fullmatch(first):  # of a numbered file that was downloaded and handed in again
        first = more["stem"] + more["suffixes"]
    if first in names or PurePosixPath(first).suffix in (".py", ".zip"):  # a number's hyphen is in no module's name
        return first
    for other in others:
        if other is not entry and not other.fault and other.size <= MAX_FILE_BYTES:
            try:
                if entry.name.encode() in other.read(MAX_FILE_BYTES):
                    return entry.name
            except Unreadable:
                pass
    return name


# Moodle ---------------------------------------------------------------------------------------------------------------


def _moodle(source: Source, _names: Collection[str]) -> Export | None:
    files: dict[str, list[Entry]] = defaultdict(list)
    full_names: dict[str, str] = {}
    others: list[Entry] = []
    tops: list[tuple[str, Entry | None]] = [(entry.path[0], entry) for entry in source.entries]
    tops += [(name, None) for name in source.top_folders]
    for top, entry in tops:
        named = MOODLE.fullmatch(top)
        if named is None:
            others += [entry] if entry else []
            continue
        full_names[named["id"]] = named["name"]
        if entry is None:
            files[named["id"]] += []
        elif len(entry.path) > 1:
            files[named["id"]].append(entry.below(1))
        elif named["rest"]:
            files[named["id"]].append(replace(entry, path=(named["rest"],)))
    if not files:
        return None
    blind = len(full_names) > 1 and len(set(full_names.values())) == 1  # all are called "Participant"
    handins = []
    for number, entries in files.items():
        name = "" if blind else full_names[number]
        person = Person(name, {"moodle": number}, tuple(_endings(name)))
        handins.append(HandIn(f"{full_names[number]} ({number})", (person,), tuple(entries), order=_newest(entries)))
    example = next(top for top, _ in tops if MOODLE.fullmatch(top))
    strangers = _unused(others, "is not named as Moodle names files, and is not used")
    return Export(f"Moodle's submissions: folders are named as {example}", tuple(handins), strangers)


def _endings(name: str) -> list[str]:
    """What is left of a name without one or more words that end with a hyphen, as a group's name before a student's."""
    words = name.split("-")
    return ["-".join(words[number:]) for number in range(1, len(words))]


def _beginnings(name: str) -> list[str]:
    """What such words are, the longest first."""
    return [name[: -len(ending)] for ending in reversed(_endings(name)) if ending]


# Cloned repositories, and folders -------------------------------------------------------------------------------------


def _github(source: Source, _names: Collection[str]) -> Export | None:
    folders = source.top_folders
    cloned = [name for name in folders if (name, ".git") in source.folders]
    around = CLONES.fullmatch(source.name)
    if not folders:
        return None
    shared = (one for one in _beginnings(folders[0]) if all(name.startswith(one) and name != one for name in folders))
    prefix = f"{around['assignment']}-" if around else next(shared, "")
    ours = [name for name in folders if name.startswith(prefix) and name != prefix]
    if 2 * len(ours if around else cloned) < len(folders):
        return None
    files = _by_folder(source.entries)
    handins = []
    for name in folders:
        user = name.removeprefix(prefix) if name in ours else name
        person = Person("", {"github": user}, tuple(_endings(name)))
        entries = tuple(files.get(name, ()))
        handins.append(HandIn(name, (person,), entries, order=_newest(entries)))
    strangers = _unused((one for one in source.entries if len(one.path) == 1), "lies beside the repositories")
    return Export(f"cloned repositories: folders are named as {folders[0]}", tuple(handins), strangers)


def _folders(source: Source, names: Collection[str]) -> Export | None:
    files = _by_folder(source.entries)
    beside = [entry for entry in source.entries if len(entry.path) == 1]
    archives = [one for one in beside if is_archive(one.name)]
    if own := sorted(entry.name for entry in beside if entry.name in names):
        raise ClassError(
            f"{source.name}: {own[0]} lies in it itself, so it is one submission: "
            "a class has a folder for each student; `grader run` grades one submission"
        )
    _, *inner = _levels(source)
    if any(len(one.top_folders) > 1 and all(len(entry.path) > 1 for entry in one.entries) for one in inner):
        return None  # there is a folder around the students' folders
    if not source.top_folders and not archives:
        return None
    found = [(name, name, tuple(files.get(name, ()))) for name in source.top_folders]
    found += [(one.name, PurePosixPath(one.name).stem.removesuffix(".tar"), (one,)) for one in archives]
    handins = []
    for where, word, entries in found:
        person = Person(word if re.search(r"[\s,]", word) else "", {"folder": word}, (word,))
        handins.append(HandIn(where, (person,), entries, order=_newest(entries)))
    strangers = _unused(
        (one for one in beside if one not in archives), "lies beside the students' folders, and is not used"
    )
    return Export(f"a folder for each student, named as {found[0][0]}", tuple(handins), strangers)


Form = Callable[[Source, Collection[str]], Export | None]
PLATFORMS: dict[str, tuple[str, Form]] = {
    "gradescope": (f"Gradescope's export, with {METADATA}", _gradescope),
    "moodle": ("folders named as `Ada Lovelace_1234_assignsubmission_file_`", _moodle),
    "canvas": ("files named as `lovelaceada_LATE_1234_5678_kernel.py`", _canvas),
    "github": ("repositories cloned into `lab-submissions/lab-ada/`", _github),
    "folders": ("a folder, or a zip, for each student", _folders),
}
