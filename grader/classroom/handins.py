"""What students handed in, kept as read-only copies under a hash of names and contents.

What belongs to a submission is decided by `grader.submission` alone. An archive that a student handed in is entered, once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from grader.classroom.archive import Entry, Unreadable, open_inner
from grader.submission import (
    AS_IT_IS,
    MAX_FILE_BYTES,
    MAX_NOTES,
    NAME,
    SubmissionError,
    is_litter,
    stage,
    survey,
    unfit,
)

MAX_ARCHIVE_BYTES = 64 << 20  # of an archive in a hand-in
MAX_HANDIN_BYTES = 64 << 20  # of all files of a hand-in that are read
MAX_HANDIN_FILES = 2000
CLOSED_ARCHIVES = {".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz"}


@dataclass(frozen=True)
class Person:
    """Somebody who handed in, as a platform names them.

    spellings: words, the surest first, that may be an id or the name.
    """

    name: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)
    spellings: tuple[str, ...] = ()


@dataclass(frozen=True)
class HandIn:
    """What a person, or a group, handed in.

    where: the name that the platform gave it.
    entries: its files, by their paths in it.
    order: of two hand-ins of one person, the later has the larger number.
    """

    where: str
    people: tuple[Person, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    late: bool = False
    order: float = 0.0


@dataclass(frozen=True)
class Kept:
    """The copy of a hand-in.

    handin: the copy's name; empty if nothing of it can be graded.
    notes: sentences about what was not copied.
    """

    handin: str
    notes: tuple[str, ...]


def keep(found: HandIn, handins: Path, wanted: Sequence[str], known: Collection[str]) -> Kept:
    """Copy a hand-in into the folder `handins`, where it appears whole or not at all. Raises OSError.

    Args:
        wanted: the file names of the assignments.
        known: the file names of the course's other assignments.
    """
    notes = list(found.notes)
    with tempfile.TemporaryDirectory(prefix=".", dir=handins) as draft:
        unpacked, copy = Path(draft, "unpacked"), Path(draft, "copy")
        unpacked.mkdir()
        refused = _unpack(_with_inner(found.entries, notes), unpacked, notes)
        notes += [f"{name}: ignored, {why}" for name, why in sorted(refused.items())[:MAX_NOTES]]
        if len(refused) > MAX_NOTES:
            notes.append(f"and {len(refused) - MAX_NOTES} more files were ignored")
        try:
            where = survey(unpacked, wanted, known)
        except SubmissionError:  # which a grading of the copy will say
            where = AS_IT_IS
        try:
            staged = stage(unpacked, copy, tuple(wanted), where, misnamed=True)
        except SubmissionError:
            return Kept("", tuple(notes) or ("nothing is in it",))
        notes += staged.info.notes
        if not staged.info.files:
            return Kept("", tuple(notes))
        kept = handins / staged.info.sha256[:16]
        if not kept.is_dir():
            _settle(copy)
            copy.rename(kept)
    return Kept(kept.name, tuple(notes))


def _settle(folder: Path) -> None:
    """Have the files of a folder on the disk."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _with_inner(entries: Sequence[Entry], notes: list[str]) -> Iterator[Entry]:
    """The files, with the files of each archive in its place."""
    for entry in entries:
        name = PurePosixPath(entry.path[-1])
        if entry.fault or name.suffix.casefold() not in CLOSED_ARCHIVES | {".zip"}:
            yield entry
        elif name.suffix.casefold() in CLOSED_ARCHIVES:
            yield replace(entry, fault="an archive of a kind that is not entered; .zip is")
        elif entry.size > MAX_ARCHIVE_BYTES:
            yield replace(entry, fault=f"an archive larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
        else:
            try:
                inner = open_inner(entry.read(MAX_ARCHIVE_BYTES), name.stem)
            except Unreadable as why:
                yield replace(entry, fault=str(why))
                continue
            notes += inner.notes
            alone = len(entries) == 1
            around = () if alone else (*entry.path[:-1], name.stem if NAME.fullmatch(name.stem) else "archive")
            for one in inner.entries:
                nested = PurePosixPath(one.path[-1]).suffix.casefold() in CLOSED_ARCHIVES | {".zip"}
                fault = one.fault or "an archive in an archive; only one is entered" * nested
                yield replace(one, path=(*around, *one.path), fault=fault)


def _unpack(entries: Iterable[Entry], folder: Path, notes: list[str]) -> dict[str, str]:
    """Write the files that may belong to a submission into a folder; why others were not written, by their paths."""
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
            if why := entry.fault or unfit(entry.path, entry.size):
                raise Unreadable(why)
            if files >= MAX_HANDIN_FILES or entry.size > room:
                raise Unreadable(f"more than {MAX_HANDIN_FILES} files, or {MAX_HANDIN_BYTES >> 20} MiB, in one hand-in")
            content = entry.read(MAX_FILE_BYTES + 1)
            if why := unfit(entry.path, len(content)):
                raise Unreadable(why)
            _write(folder.joinpath(*entry.path), content)
        except Unreadable as why:
            refused[entry.name] = str(why)
        else:
            files, room = files + 1, room - len(content)
    return refused


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except (FileExistsError, NotADirectoryError):
        raise Unreadable("another file or folder has its name") from None
