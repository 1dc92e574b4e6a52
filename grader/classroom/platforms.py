"""The forms of learning platforms' exports, a regular expression each, which says whose a file is.

What is not named by the expression is told, and left to a person. An owner is given as the platform spells it;
`grader.classroom.roster` finds the student.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from grader.classroom.archive import Entry, Source, Unreadable
from grader.classroom.folder import ClassError
from grader.classroom.roster import TEST_STUDENT, Person, is_test_student
from grader.report.style import counted

METADATA = "submission_metadata.yml"
MAX_METADATA_BYTES = 64 << 20


class Platform(NamedTuple):
    """The form of a platform's exports.

    Attributes:
        pattern: of a file's path, which begins with the name of the export or of the folder around the hand-ins. `owner`
            is the platform's id of a student, `name` a name, `number` grows with time.
        looks: what a person looks for.
        sign: what a class is recognised by, before an example.
        beside: what a file is that the pattern does not fit.
    """

    pattern: re.Pattern[str]
    looks: str
    sign: str
    beside: str


PLATFORMS = {
    "gradescope": Platform(
        re.compile(r"\A[^/]+/(?P<owner>[^/]+)/(?P<file>.*)", re.DOTALL),
        f"Gradescope's export, with {METADATA}",
        f"Gradescope's export: {METADATA} names",
        "lies beside the submissions",
    ),
    "moodle": Platform(
        re.compile(
            r"\A[^/]+/(?P<name>[^/]*)_(?P<owner>\d+)_assignsubmission_(?:file|onlinetext)_?/?(?P<file>.*)", re.DOTALL
        ),
        "folders named as `Ada Lovelace_1234_assignsubmission_file_`",
        "Moodle's submissions: folders are named as",
        "is not named as Moodle names files",
    ),
    "canvas": Platform(
        re.compile(
            r"\A[^/]+/(?:(?!(?:LATE_)?anon_)(?P<name>[^/]*?)_)?(?P<late>LATE_)?(?P<owner>\d+|anon_[A-Za-z0-9]+)_"
            r"(?:(?P<number>\d+)_(?P<file>[^/]+)|(?P<text>(?:text|link)\.html))",
            re.DOTALL,
        ),
        "files named as `lovelaceada_LATE_1234_5678_kernel.py`",
        "Canvas' submissions: files are named as",
        "is not named as Canvas names files",
    ),
    "github": Platform(
        re.compile(r"\A(?:(?P<lab>[^/]+)-submissions/(?P=lab)-|[^/]+/)(?P<owner>[^/]+)/(?P<file>.*)", re.DOTALL),
        "repositories cloned into `lab-submissions/lab-ada/`",
        "cloned repositories: folders are named as",
        "lies beside the folders",
    ),
    "folders": Platform(
        re.compile(
            r"\A[^/]+/(?:(?P<owner>[^/]+)/(?P<file>.*)|(?P<archive>[^/]+?)(?:\.tar)?\.(?i:7z|bz2|gz|rar|tar|tgz|xz|zip))",
            re.DOTALL,
        ),
        "a folder, or a zip, for each student",
        "a folder for each student, named as",
        "lies beside the folders",
    ),
}
NUMBERED = re.compile(
    r"\A(?P<stem>.{1,255}?)(?:-[1-9][0-9]?|-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})+(?P<suffixes>(?:\.\w+)+)"
)


@dataclass(frozen=True)
class HandIn:
    """The files that a person, or a group, handed in at one time.

    Attributes:
        where: the hand-in's name on the platform.
        entries: the files, with paths below the hand-in's root.
        order: of two hand-ins of one person, the later has the larger number.
        ids: of the hand-in itself, by platform.
    """

    where: str
    people: tuple[Person, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    late: bool = False
    order: float = 0.0
    ids: Mapping[str, str] = field(default_factory=dict)


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


def recognise(source: Source, names: Collection[str], platform: str = "") -> Export:
    """Recognise an export and list its hand-ins.

    Args:
        names: the file names of the course.
        platform: one of `PLATFORMS`; empty to recognise it.

    Raises:
        ClassError: the source has none of the forms, or not that one.
    """
    for form in [platform] if platform else PLATFORMS:
        for level in _levels(source):
            if found := _export(form, level, names):
                return replace(found, notes=(*level.notes, *found.notes))
    shown = sorted({entry.path[0] for entry in source.entries} | set(source.top_folders))[:3]
    there = f"it has {', '.join(shown)}" if shown else "it is empty"
    if platform:
        raise ClassError(f"{source.name}: {there}; expected {PLATFORMS[platform].looks}")
    forms = "; ".join(f"{form}: {one.looks}" for form, one in PLATFORMS.items())
    raise ClassError(f"{source.name}: {there}, which is none of these forms: {forms}")


def _levels(source: Source) -> Iterator[Source]:
    """The source; then, up to two levels down, the only top folder, as long as no file lies beside it."""
    yield source
    for _ in range(2):
        if len(source.top_folders) != 1 or any(len(entry.path) == 1 for entry in source.entries):
            return
        source = source.entered(source.top_folders[0])
        yield source


def _export(form: str, source: Source, names: Collection[str]) -> Export | None:
    """The export, if the source has this form. Raises ClassError."""
    metadata = next((entry for entry in source.entries if entry.path == (METADATA,)), None)
    if form == "gradescope" and metadata is None:
        return None
    owned: dict[str, list[tuple[dict[str, str | None], Entry]]] = defaultdict(list)
    others: list[Entry] = []
    tops = [Entry((folder, "")) for folder in source.top_folders]  # a folder may be empty
    for entry in (*tops, *source.entries):
        if match := PLATFORMS[form].pattern.fullmatch(f"{source.name}/{entry.name}"):
            owned[match["owner"] or entry.name].append((match.groupdict(), entry))
        elif entry.path[-1]:
            others.append(entry)
    if not _has_form(form, source, owned, others, names):
        return None
    beside = [f"{one.name}: {PLATFORMS[form].beside}, and is not used" for one in others if one is not metadata]
    files_of: dict[str, list[tuple[int, Entry]]] = {}  # each with its number
    for place, each in owned.items():
        files = files_of[place] = []
        for found, entry in each:
            if file := found["file"] or found.get("text") or (found.get("archive") and entry.name):
                number = int((found.get("number") or "0")[:18])
                files.append((number, replace(entry, path=tuple(file.split("/")))))
    if metadata is not None and form == "gradescope":
        of_folder = {place: tuple(entry for _, entry in files) for place, files in files_of.items()}
        handins, notes = _gradescope(source.name, metadata, of_folder)
        sentence = f"{PLATFORMS[form].sign} {counted(len(handins) + len(notes), 'submission')}"
        strangers = sorted(of_folder.keys() - {one.where for one in handins} - notes.keys())
        notes |= dict.fromkeys(strangers, f"{METADATA} does not name it, so nobody knows whose it is")
        return Export(sentence, tuple(handins), (*(f"{where}: {why}" for where, why in notes.items()), *beside))
    handins = []
    left_out = []
    for place, files in files_of.items():
        said = {group: text for each, _ in owned[place] for group, text in each.items() if text}
        owner, name = said.get("owner") or said["archive"], said.get("name", "")
        where = f"{name or 'somebody'} ({owner})" if form in ("moodle", "canvas") else place
        if form == "canvas" and is_test_student(name):
            left_out.append(f"{where}: {TEST_STUDENT}")
            continue
        entries = tuple(entry for _, entry in files)
        renamed: tuple[str, ...] = ()
        order = max((entry.changed for entry in entries), default=0.0)
        if form == "canvas":
            entries, renamed = _without_numbers(files, names)
            order = max(number for number, _ in files)
        elif form == "folders" and re.search(r"[\s,]", owner):
            name = owner
        person = Person(name, {"folder" if form == "folders" else form: owner})
        handins.append(HandIn(where, (person,), entries, renamed, "late" in said, order))
    example = next(iter(owned.values()))[0][1].path[0]
    return Export(f"{PLATFORMS[form].sign} {example}", tuple(handins), (*left_out, *beside))


def _has_form(
    form: str, source: Source, owned: Collection[str], others: Collection[Entry], names: Collection[str]
) -> bool:
    """Whether the files in `source` are named as those of a platform. Raises ClassError for a single submission."""
    folders = source.top_folders
    if form == "canvas":
        top_files = sum(len(entry.path) == 1 for entry in source.entries)
        return bool(owned) and len(folders) + len({one.path[0] for one in others}) <= top_files - len(others)
    if form == "github":
        cloned = sum((folder, ".git") in source.folders for folder in folders)
        lab = source.name.removesuffix("-submissions")
        ours = sum(folder.startswith(f"{lab}-") for folder in folders) if lab != source.name else 0
        return bool(folders) and 2 * max(cloned, ours) >= len(folders)
    if form == "folders":
        if own := sorted(entry.name for entry in source.entries if entry.name in names):
            raise ClassError(
                f"{source.name}: {own[0]} lies in it itself, so it is one submission: "
                "a class has a folder for each student; `grader run` grades one submission"
            )
        _, *inner = _levels(source)
        if any(len(one.top_folders) > 1 and all(len(entry.path) > 1 for entry in one.entries) for one in inner):
            return False  # a folder around the students' folders is none of a student
    return bool(owned)


def _without_numbers(
    files: list[tuple[int, Entry]], names: Collection[str]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """A student's files of Canvas, the latest of each under the name without the number that Canvas gives to one that is
    handed in again; and sentences about it. A numbered file of a name that is not the course's keeps that name too.
    """
    versions: dict[str, list[Entry]] = defaultdict(list)
    for _, entry in sorted(files, key=lambda pair: pair[0]):
        again = NUMBERED.fullmatch(entry.name)
        versions[again["stem"] + again["suffixes"] if again else entry.name].append(entry)
    kept: list[Entry] = []
    notes: list[str] = []
    for name, found in versions.items():
        last = found[-1]
        kept.append(replace(last, path=(name,)))
        if name not in names and PurePosixPath(name).suffix not in (".py", ".zip"):
            kept += [one for one in found if one.name != name]
        if len(found) > 1:
            times = "twice" if len(found) == 2 else f"{len(found)} times"
            what = f"{last.name} is the later one" if last.name != name else "the later one counts"
            notes.append(f"{name} was handed in {times}: {what}")
        elif last.name != name:
            notes.append(f"{last.name} is taken for {name}: Canvas numbers a file that is handed in again")
    return tuple(kept), tuple(notes)


def _gradescope(
    name: str, metadata: Entry, files: Mapping[str, tuple[Entry, ...]]
) -> tuple[list[HandIn], dict[str, str]]:
    """The hand-ins that the metadata names, and why others of them are nobody's. Raises ClassError."""
    try:
        text = metadata.read(MAX_METADATA_BYTES + 1)
        if metadata.fault or len(text) > MAX_METADATA_BYTES:
            raise Unreadable(metadata.fault or f"larger than {MAX_METADATA_BYTES >> 20} MiB")
        # Each value is a string: a number would lose its zeros. The first loader needs libyaml, and is quick.
        listed = _mapping(yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader)))  # noqa: S506  (makes no objects)
    except Unreadable as why:
        raise ClassError(f"{METADATA}: {why}") from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        where = " ".join(str(error).split())[:200]
        raise ClassError(f"{METADATA}: is not what Gradescope writes ({where}); export the submissions again") from None
    if not listed:
        raise ClassError(f"{name}: {METADATA} names no submissions; export the submissions again")
    handins: list[HandIn] = []
    nobodys: dict[str, str] = {}
    for where, about in listed.items():
        submitters = _mapping(about).get("submitters")
        people = []
        for one in map(_mapping, submitters if isinstance(submitters, list) else []):
            said = {key: value.strip() for key, value in one.items() if isinstance(value, str)}
            said = {key: value for key, value in said.items() if value not in ("", "~", "null")}
            ids: dict[str, str] = {kind: said[kind] for kind in ("email", "sid") if kind in said}
            people += [Person(said.get("name", ""), ids)] * bool(ids or "name" in said)
        if not people:
            nobodys[where] = f"{METADATA} names no submitter, so nobody knows whose it is"
            continue
        number = re.sub(r"\D", "", where)
        missing = () if where in files else ("the export has no folder of it",)
        order = float(number[:15] or 0)
        entries, own = files.get(where, ()), {"gradescope": number}
        handins.append(HandIn(where, tuple(people), entries, missing, order=order, ids=own))
    return handins, nobodys


def _mapping(found: object) -> dict[str, Any]:
    """A mapping without the colons of Ruby's symbols."""
    return {str(key).removeprefix(":"): one for key, one in found.items()} if isinstance(found, dict) else {}
