"""Copies hand-ins into the folder of a class, each under a hash of its files' names and contents.

`grader.submission` alone decides which files belong to a submission. An archive in a hand-in is unpacked; an archive
inside that archive is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from grader.classroom.archive import Entry, Source, Unreadable, open_inner
from grader.report.style import first_of
from grader.runfolder import remove
from grader.submission import (
    AS_IT_IS,
    HAS_ODD_NAME,
    MAX_FILE_BYTES,
    NAME,
    SubmissionError,
    ignored,
    is_archive,
    is_litter,
    left_out,
    pack,
    stage,
    survey,
    unfit,
)

MAX_ARCHIVE_BYTES = 64 << 20  # of an archive in a hand-in
MAX_HANDIN_BYTES = 64 << 20  # of all files of a hand-in that are read
MAX_HANDIN_FILES = 2000
NESTED = "an archive in an archive; only one is entered"
UNOPENED = (
    "may hold the files, and nobody has looked into it: ask for the files themselves; nothing else here is one of them"
)


@dataclass(frozen=True)
class Person:
    """The owner of a hand-in, as a platform names them.

    Attributes:
        ids: by kind, as `Student.ids`.
    """

    name: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)


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
class Kept:
    """The copy of a hand-in.

    Attributes:
        handin: the copy's name; empty if none of the files can be graded, or nobody knows whether one can.
        notes: sentences about files that were not copied, and about names.
    """

    handin: str
    notes: tuple[str, ...]


def keep(found: HandIn, handins: Path, wanted: Sequence[str], known: Collection[str]) -> Kept:
    """Copy a hand-in into the folder `handins`, where the copy appears whole or not at all. Syncs nothing to the disk.

    Raises OSError.

    Args:
        wanted: the file names of the assignments.
        known: the file names of the course's other assignments.
    """
    notes = list(found.notes)
    with tempfile.TemporaryDirectory(prefix=".", dir=handins) as draft:
        unpacked, copy = Path(draft, "unpacked"), Path(draft, "copy")
        unpacked.mkdir()
        refused = _unpack(_with_inner(found.entries, notes), unpacked, notes)
        notes += ignored(refused, wanted)
        try:
            where = survey(unpacked, wanted, known)
            notes += where.misnamed.values()
        except SubmissionError as error:  # the grading will give the same reason
            where = AS_IT_IS
            notes.append(str(error).removeprefix(str(unpacked)).lstrip("/").removeprefix(": "))
        try:
            staged = stage(unpacked, copy, tuple(wanted), where, misnamed=True)
        except SubmissionError:
            left = [entry.name for entry in found.entries]
            return Kept("", tuple(notes) or (left_out(left) if left else "nothing is in it",))
        notes += staged.info.notes
        notes += _other_versions(copy, staged.info.files, wanted)
        if not staged.info.files:
            return Kept("", tuple(notes))
        seen = {PurePosixPath(name).name for name in (*staged.info.files, *staged.refused, *refused)}
        if seen.isdisjoint(wanted) and (packed := sorted(filter(is_archive, refused))):
            return Kept("", (*notes, f"{first_of(packed)}: {UNOPENED}"))
        if where is not AS_IT_IS and seen.isdisjoint(wanted):
            notes.append(f"there is no {' and no '.join(wanted)}, which counts as not implemented")
        kept = handins / staged.info.sha256[:16]
        if kept.is_dir() and pack(kept) != pack(copy):  # the machine stopped before it was on the disk
            remove(kept)
        if not kept.is_dir():
            copy.rename(kept)
    return Kept(kept.name, tuple(notes))


def _other_versions(copy: Path, files: Collection[str], wanted: Collection[str]) -> list[str]:
    """A sentence for each wanted file of which a folder, as of a zip, has another version."""
    notes = []
    for name in sorted({*wanted} & {*files}):
        same = [path for path in files if "/" in path and PurePosixPath(path).name == name]
        others = [path for path in same if (copy / path).read_bytes() != (copy / name).read_bytes()]
        notes += [f"{name} is what counts, and not {first_of(others)}"] * bool(others)
    return notes


def _with_inner(entries: Sequence[Entry], notes: list[str]) -> list[Entry]:
    """All files, with each archive replaced by its files: in the archive's place, or, if two files would have the same
    path, in a folder with the archive's name.
    """
    loose: list[Entry] = []
    archives: list[tuple[Entry, tuple[Entry, ...]]] = []
    for entry in entries:
        if entry.fault or not is_archive(entry.name):
            loose.append(entry)
            continue
        try:
            entered = _inner(entry)
        except Unreadable as why:
            loose.append(replace(entry, fault=str(why)))
            continue
        notes += entered.notes
        archives.append(
            (entry, tuple(replace(one, fault=one.fault or NESTED * is_archive(one.name)) for one in entered.entries))
        )
    paths = [
        {one.path for one in loose},
        *({(*archive.path[:-1], *one.path) for one in inner} for archive, inner in archives),
    ]
    apart = len(set().union(*paths)) == sum(map(len, paths))
    for archive, inner in archives:
        around = archive.path[:-1] if apart else _folder_of(archive)
        loose += [replace(one, path=(*around, *one.path)) for one in inner]
    return loose


def _inner(entry: Entry) -> Source:
    """The files of an archive. Raises Unreadable."""
    name = PurePosixPath(entry.path[-1])
    if name.suffix.casefold() != ".zip":
        raise Unreadable("an archive of a kind that is not entered; .zip is")
    if entry.size > MAX_ARCHIVE_BYTES:
        raise Unreadable(f"an archive larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
    return open_inner(entry.read(MAX_ARCHIVE_BYTES), name.stem)


def _folder_of(archive: Entry) -> tuple[str, ...]:
    stem = PurePosixPath(archive.path[-1]).stem
    return (*archive.path[:-1], stem if NAME.fullmatch(stem) else "archive")


def _unpack(entries: Iterable[Entry], folder: Path, notes: list[str]) -> dict[str, str]:
    """Write the files that may belong to a submission into a folder. Returns why others were refused, by path."""
    latest: dict[str, Entry] = {}
    cases: dict[str, str] = {}
    for entry in entries:
        if is_litter(entry.path) and not entry.fault:
            continue
        if entry.name in latest:
            notes.append(f"{entry.name}: comes twice in the archive, the last one counts")
        elif (other := cases.setdefault(entry.name.casefold(), entry.name)) != entry.name:
            notes.append(f"{other} and {entry.name}: names that differ in case alone, both are kept")
        latest[entry.name] = entry
    refused: dict[str, str] = {}
    files, room = 0, MAX_HANDIN_BYTES
    for entry in latest.values():
        try:
            if why := entry.fault or _unwritable(entry.path) or unfit(entry.path[-1], entry.size):
                raise Unreadable(why)
            if files >= MAX_HANDIN_FILES or entry.size > room:
                raise Unreadable(f"more than {MAX_HANDIN_FILES} files, or {MAX_HANDIN_BYTES >> 20} MiB, in one hand-in")
            content = entry.read(MAX_FILE_BYTES + 1)  # of which `stage` takes none if it is larger than declared
            write_file(folder.joinpath(*entry.path), content)
        except Unreadable as why:
            refused[entry.name] = str(why)
        else:
            files, room = files + 1, room - len(content)
    return refused


def _unwritable(path: Sequence[str]) -> str:
    return "" if all(part.isprintable() and len(part.encode()) <= 255 for part in path) else HAS_ODD_NAME


def write_file(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except (FileExistsError, NotADirectoryError):
        raise Unreadable("another file or folder has its name") from None
