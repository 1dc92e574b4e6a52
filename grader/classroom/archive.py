"""Lists the files of a learning platform's export, a zip or an unpacked folder. Unpacks nothing.

An archive is not believed. A path that leaves its folder, a link or an encrypted file is listed with its fault, and
never read. A listed size is the archive's claim, so each reader of a file gives a limit.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO

from grader.classroom.folder import ClassError
from grader.submission import IGNORED_FOLDERS, IS_A_LINK, IS_NO_FILE, LITTER

MAX_ENTRIES = 500_000  # of an export
MAX_INNER_ENTRIES = 20_000  # of an archive that a student handed in
READ_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}  # unpacking these takes little memory
MAX_PARTS = 20  # of a path
TOO_DEEP = "too deep a folder"
EXPECTED = "expected a learning platform's zip, or the folder that it was unpacked into"
HEADER = b"PK\x01\x02"  # of each file in a zip's directory
IN_UTF8 = 0x800  # of ZipInfo.flag_bits
ENCRYPTED = 0x1
# What zipfile raises for archives that are broken or that zipfile cannot read.
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError, OSError)


class Unreadable(Exception):
    """A file or an archive cannot be read; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A listed file.

    Attributes:
        path: in parts, which are safe to use as names if the entry has no fault.
        size: in bytes, as declared.
        changed: time of the last change, in seconds since the epoch; 0 if unknown.
        opened: opens the file.
        fault: why the file must not be read; empty if it may be.
    """

    path: tuple[str, ...]
    size: int = 0
    changed: float = 0.0
    opened: Callable[[], IO[bytes]] = io.BytesIO
    fault: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.path)

    def read(self, most: int) -> bytes:
        """The first bytes, at most as many as given. Raises Unreadable."""
        try:
            with self.opened() as file:
                return file.read(most)
        except BROKEN as error:
            what = "read" if isinstance(error, OSError) else "unpacked"
            raise Unreadable(f"cannot be {what} ({_words(error)})") from None


@dataclass(frozen=True)
class Source:
    """A list of files.

    Attributes:
        name: of the export or archive.
        folders: paths of all folders, also of empty ones, and of `.git`, whose files are not listed.
        notes: sentences about files that are not listed.
    """

    name: str
    entries: tuple[Entry, ...]
    folders: frozenset[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def top_folders(self) -> list[str]:
        """The folders at the top, without litter."""
        return sorted(path[0] for path in self.folders if len(path) == 1 and not _is_noise(path))

    def entered(self, folder: str) -> Source:
        """The files in one of the top folders, with a note about each file outside that folder."""
        beside = [f"{one.name}: lies beside {folder}, and is not used" for one in self.entries if one.path[0] != folder]
        inside = [one for one in self.entries if one.path[0] == folder and len(one.path) > 1]
        return Source(
            folder,
            tuple(replace(entry, path=entry.path[1:]) for entry in inside),
            frozenset(path[1:] for path in self.folders if path[0] == folder and len(path) > 1),
            (*self.notes, *beside),
        )


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """A context with the files of an export, which can be read inside the context. Raises ClassError."""
    with contextlib.ExitStack() as opened:
        try:
            if path.is_dir():
                source = _listed(path.resolve().name, _in_folder(path), MAX_ENTRIES)
            else:
                zipped = opened.enter_context(zipfile.ZipFile(path))
                source = _listed(path.stem, _in_zip(zipped), MAX_ENTRIES)
        except Unreadable as why:
            raise ClassError(f"{path}: {why}") from None
        except OSError as error:
            raise ClassError(f"{path}: cannot be read ({error.strerror}); {EXPECTED}") from None
        except BROKEN as error:
            raise ClassError(f"{path}: is no zip that can be read ({_words(error)}); {EXPECTED}") from None
        yield source


def open_inner(content: bytes, name: str) -> Source:
    """List a zip that a student handed in. Raises Unreadable."""
    if content.count(HEADER) > MAX_INNER_ENTRIES:  # of which ZipFile would make an object each
        raise Unreadable(f"more than {MAX_INNER_ENTRIES} files in it")
    try:
        return _listed(name, _in_zip(zipfile.ZipFile(io.BytesIO(content))), MAX_INNER_ENTRIES)
    except BROKEN as error:
        raise Unreadable(f"no zip that can be read ({_words(error)})") from None


def _words(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _is_noise(path: tuple[str, ...]) -> bool:
    """Whether a path has a hidden or litter part. `intake.py` leaves out more, once the root of a hand-in is known."""
    return any(part.startswith(".") or part in LITTER for part in path)


def _listed(name: str, found: Iterable[tuple[Entry, bool]], most: int) -> Source:
    """The source with these files and folders, of which the second value says that it is a folder. Raises Unreadable."""
    entries: list[Entry] = []
    folders: set[tuple[str, ...]] = set()
    notes: list[str] = []
    for entry, is_folder in found:
        path = entry.path
        if path[:1] == ("..",):
            notes += [f"{entry.name}: ignored, {entry.fault}"] * bool(entry.name.strip("/."))
            continue
        around = path if is_folder else path[:-1]
        for depth, part in enumerate(around[:1] if entry.fault else around, 1):
            folders.add(around[:depth])
            if part.startswith("."):
                break
        if path and not is_folder and (".." in path or not _is_noise(path)):
            if len(entries) >= most:
                raise Unreadable(f"more than {most} files in it")
            entries.append(entry)
    return Source(name, tuple(entries), frozenset(folders), tuple(notes))


def _in_zip(opened: zipfile.ZipFile) -> Iterator[tuple[Entry, bool]]:
    for info in opened.infolist():
        name = info.orig_filename
        if not info.flag_bits & IN_UTF8:  # many programs write UTF-8 without its flag
            with contextlib.suppress(UnicodeError):
                name = name.encode("cp437").decode("utf-8")
        name = unicodedata.normalize("NFC", name.replace("\\", "/"))
        path = tuple(part for part in name.split("/") if part not in ("", "."))
        kind = stat.S_IFMT(info.external_attr >> 16)
        fault = ""
        if name.startswith("/") or (path and path[0][1:2] == ":"):
            fault = "an absolute path"
        elif ".." in path:
            fault = "a path that leaves its folder"
        elif len(path) > MAX_PARTS:
            path, fault = path[:MAX_PARTS], TOO_DEEP
        elif kind == stat.S_IFLNK:
            fault = IS_A_LINK
        elif kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not name.endswith("/")):
            fault = IS_NO_FILE
        elif info.flag_bits & ENCRYPTED:
            fault = "encrypted"
        elif info.compress_type not in READ_METHODS:
            fault = "packed by a method that is not read here; deflate is the usual one"
        try:
            changed = datetime(*info.date_time).timestamp()
        except (ValueError, OverflowError):
            changed = 0.0
        yield Entry(path, info.file_size, changed, functools.partial(opened.open, info), fault), name.endswith("/")


def _in_folder(folder: Path, inside: tuple[str, ...] = ()) -> Iterator[tuple[Entry, bool]]:
    """The files and folders below `folder`, whose path in the source is `inside`. Raises OSError for the source's own folder."""
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        if not inside:
            raise
        yield Entry(inside, fault=f"cannot be read ({error.strerror})"), False
        return
    for one in found:
        name = unicodedata.normalize("NFC", one.name.encode(errors="replace").decode())
        path = (*inside, name)
        if one.is_symlink() or len(path) > MAX_PARTS:
            yield Entry(path, fault=IS_A_LINK if one.is_symlink() else TOO_DEEP), False
        elif one.is_dir(follow_symlinks=False):
            yield Entry(path), True
            if not _is_noise((name,)) and not (len(path) > 2 and name in IGNORED_FOLDERS):
                yield from _in_folder(Path(one.path), path)
        else:
            now = one.stat(follow_symlinks=False)
            fault = "" if stat.S_ISREG(now.st_mode) else IS_NO_FILE
            yield Entry(path, now.st_size, now.st_mtime, functools.partial(_opened, one.path), fault), False


def _opened(path: str) -> IO[bytes]:
    """Open a file that may have become something else since it was listed. Raises Unreadable, OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable(IS_NO_FILE)
    return os.fdopen(descriptor, "rb")
