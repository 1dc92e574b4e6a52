"""Copies hand-ins into the folder of a class, each under a hash of its files' names and contents.

`grader.submission` alone decides which files belong to a submission. An archive in a hand-in is unpacked; an archive
inside that archive is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from grader.classroom.archive import Entry, Unreadable, open_inner
from grader.classroom.platforms import HandIn
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


def keep(found: HandIn, handins: Path, wanted: Sequence[str], known: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Copy a hand-in into the folder `handins`, where the copy appears whole or not at all. Syncs nothing to the disk.

    Args:
        wanted: the file names of the assignments.
        known: the file names of the course's other assignments.

    Returns:
        The copy's name, empty if none of the files can be graded, or nobody knows whether one can; and sentences about
        files that were not copied, and about names.

    Raises:
        OSError: the copy cannot be written.
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
            return "", tuple(notes) or (left_out(left) if left else "nothing is in it",)
        files = staged.info.files
        notes += staged.info.notes
        for name in sorted({*wanted} & {*files}):  # a folder, as of a zip, may have another version
            same = [path for path in files if "/" in path and PurePosixPath(path).name == name]
            others = [path for path in same if (copy / path).read_bytes() != (copy / name).read_bytes()]
            notes += [f"{name} is what counts, and not {first_of(others)}"] * bool(others)
        if not files:
            return "", tuple(notes)
        seen = {PurePosixPath(name).name for name in (*files, *staged.refused, *refused)}
        if seen.isdisjoint(wanted) and (packed := sorted(filter(is_archive, refused))):
            return "", (*notes, f"{first_of(packed)}: {UNOPENED}")
        if where is not AS_IT_IS and seen.isdisjoint(wanted):
            notes.append(f"there is no {' and no '.join(wanted)}, which counts as not implemented")
        kept = handins / staged.info.sha256[:16]
        if kept.is_dir() and pack(kept) != pack(copy):  # the machine stopped before it was on the disk
            remove(kept)
        if not kept.is_dir():
            copy.rename(kept)
    return kept.name, tuple(notes)


def _with_inner(entries: Sequence[Entry], notes: list[str]) -> list[Entry]:
    """All files, with each archive replaced by its files: in the archive's place, or, if two files would have the same
    path, in a folder with the archive's name.
    """
    loose: list[Entry] = []
    archives: list[tuple[Entry, list[Entry]]] = []
    for entry in entries:
        if entry.fault or not is_archive(entry.name):
            loose.append(entry)
            continue
        try:
            if PurePosixPath(entry.name).suffix.casefold() != ".zip":
                raise Unreadable("an archive of a kind that is not entered; .zip is")
            if entry.size > MAX_ARCHIVE_BYTES:
                raise Unreadable(f"an archive larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
            source = open_inner(entry.read(MAX_ARCHIVE_BYTES), entry.name)
        except Unreadable as why:
            loose.append(replace(entry, fault=str(why)))
        else:
            notes += source.notes
            nested = [replace(one, fault=one.fault or NESTED * is_archive(one.name)) for one in source.entries]
            archives.append((entry, nested))
    inside = [{(*archive.path[:-1], *one.path) for one in inner} for archive, inner in archives]
    paths = [{one.path for one in loose}, *inside]
    apart = len(set().union(*paths)) == sum(map(len, paths))
    for archive, inner in archives:
        stem = PurePosixPath(archive.path[-1]).stem
        around = archive.path[:-1] if apart else (*archive.path[:-1], stem if NAME.fullmatch(stem) else "archive")
        loose += [replace(one, path=(*around, *one.path)) for one in inner]
    return loose


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
        is_fit = all(part.isprintable() and len(part.encode()) <= 255 for part in entry.path)
        why = entry.fault or ("" if is_fit else HAS_ODD_NAME) or unfit(entry.path[-1], entry.size)
        if not why and (files >= MAX_HANDIN_FILES or entry.size > room):
            why = f"more than {MAX_HANDIN_FILES} files, or {MAX_HANDIN_BYTES >> 20} MiB, in one hand-in"
        try:
            if why:
                raise Unreadable(why)
            content = entry.read(MAX_FILE_BYTES + 1)  # of which `stage` takes none if it is larger than declared
            path = folder.joinpath(*entry.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        except (FileExistsError, NotADirectoryError):
            refused[entry.name] = "another file or folder has its name"
        except Unreadable as error:
            refused[entry.name] = str(error)
        else:
            files, room = files + 1, room - len(content)
    return refused
