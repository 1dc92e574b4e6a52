"""Lists the files of a learning platform's export, a zip or an unpacked folder. Unpacks nothing.

An archive is not believed. A path that leaves its folder, a link or an encrypted file is listed with its fault, and
never read. A listed size is the archive's claim, so each reader of a file gives a limit.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from grader.classroom.folder import ClassError
from grader.submission import IGNORED_FOLDERS, IS_A_LINK, IS_NO_FILE, LITTER

MAX_ENTRIES = 500_000  # of an export
MAX_INNER_ENTRIES = 20_000  # of an archive that a student handed in
READ_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2}  # unpacking these takes little memory
MAX_PARTS = 20  # of a path
EXPECTED = "expected a learning platform's zip, or the folder that it was unpacked into"
HEADER = b"PK\x01\x02"  # of each file in a zip's directory
IN_UTF8 = 0x800  # of ZipInfo.flag_bits
ENCRYPTED = 0x1
# Exceptions that zipfile raises for archives that are broken or that zipfile cannot read.
BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OSError,
)
Read = Callable[[int], bytes]


class Unreadable(Exception):
    """A file or an archive cannot be read; the message says why."""


@dataclass(frozen=True)
class Entry:
    """A listed file.

    Attributes:
        path: in parts, which are safe to use as names if the entry has no fault.
        size: in bytes, as declared.
        changed: time of the last change, in seconds since the epoch; 0 if unknown.
        read: returns the first bytes, at most as many as given. Raises Unreadable.
        fault: why the file must not be read; empty if it may be.
    """

    path: tuple[str, ...]
    size: int
    changed: float
    read: Read
    fault: str = ""

    def below(self, depth: int) -> Entry:
        """The file with its path relative to the folder at this depth."""
        return replace(self, path=self.path[depth:])

    @property
    def name(self) -> str:
        return "/".join(self.path)


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
        beside = [entry.name for entry in self.entries if entry.path[0] != folder]
        return Source(
            folder,
            tuple(entry.below(1) for entry in self.entries if entry.path[0] == folder and len(entry.path) > 1),
            frozenset(path[1:] for path in self.folders if path[0] == folder and len(path) > 1),
            (*self.notes, *(f"{name}: lies beside {folder}, and is not used" for name in beside)),
        )


@dataclass
class _Listed:
    """Collects a `Source`. Raises Unreadable if there are more than `most` files."""

    most: int
    entries: list[Entry] = field(default_factory=list)
    folders: set[tuple[str, ...]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        if len(self.entries) >= self.most:
            raise Unreadable(f"more than {self.most} files in it")
        self.entries.append(entry)

    def add_folders(self, path: tuple[str, ...]) -> None:
        while path and path not in self.folders:
            self.folders.add(path)
            path = path[:-1]

    def source(self, name: str) -> Source:
        return Source(name, tuple(self.entries), frozenset(self.folders), tuple(self.notes))


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """A context with the files of an export, which can be read inside the context. Raises ClassError."""
    with contextlib.ExitStack() as opened:
        try:
            if path.is_dir():
                listed = _Listed(MAX_ENTRIES)
                _list_folder(path, (), listed)
                source = listed.source(path.resolve().name)
            else:
                zipped = opened.enter_context(zipfile.ZipFile(path))
                source = _list_zip(zipped, path.stem, MAX_ENTRIES)
        except Unreadable as why:
            raise ClassError(f"{path}: {why}") from None
        except OSError as error:
            raise ClassError(f"{path}: cannot be read ({error.strerror}); {EXPECTED}") from None
        except BROKEN as error:
            raise ClassError(f"{path}: is no zip that can be read ({_words(error)}); {EXPECTED}") from None
        yield source


def open_inner(content: bytes, name: str) -> Source:
    """List a zip that a student handed in. Raises Unreadable."""
    if content.count(HEADER) > MAX_INNER_ENTRIES:
        raise Unreadable(f"more than {MAX_INNER_ENTRIES} files in it")
    try:
        return _list_zip(zipfile.ZipFile(io.BytesIO(content)), name, MAX_INNER_ENTRIES)
    except BROKEN as error:
        raise Unreadable(f"no zip that can be read ({_words(error)})") from None


def _words(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


# A zip ----------------------------------------------------------------------------------------------------------------


def _list_zip(opened: zipfile.ZipFile, name: str, most: int) -> Source:
    listed = _Listed(most)
    for info in opened.infolist():
        full = _name_of(info)
        path, fault = _path_of(full)
        if not path or path[0] == "..":
            if full.strip("/."):
                listed.notes.append(f"{full}: ignored, {fault or 'a path without a name'}")
            continue
        folders = path if full.endswith("/") else path[:-1]
        hidden = next((number for number, part in enumerate(folders) if part.startswith(".")), len(folders))
        listed.add_folders(path[:1] * bool(folders) if fault else folders[: hidden + 1])
        if folders is path or (not fault and _is_noise(path)):
            continue
        listed.add(Entry(path, info.file_size, _time_of(info), _reader(opened, info), fault or _fault_of(info)))
    return listed.source(name)


def _name_of(info: zipfile.ZipInfo) -> str:
    """The name of a file in a zip. Many programs write UTF-8 without its flag."""
    name = info.orig_filename
    if not info.flag_bits & IN_UTF8:
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return unicodedata.normalize("NFC", name.replace("\\", "/"))


def _is_noise(path: tuple[str, ...]) -> bool:
    """Whether a path has a hidden or litter part. `handins.py` leaves out more, once the root of a hand-in is known."""
    return any(part.startswith(".") or part in LITTER for part in path)


def _path_of(name: str) -> tuple[tuple[str, ...], str]:
    """The parts of a path, and why nothing may be written to the path; "" if it is safe."""
    path = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or (path and path[0][1:2] == ":"):
        return path, "an absolute path"
    if ".." in path:
        return path, "a path that leaves its folder"
    if len(path) > MAX_PARTS:
        return path[:MAX_PARTS], "too deep a folder"
    return path, ""


def _fault_of(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return IS_A_LINK
    if kind not in (0, stat.S_IFREG):
        return IS_NO_FILE
    if info.flag_bits & ENCRYPTED:
        return "encrypted"
    if info.compress_type not in READ_METHODS:
        return "packed by a method that is not read here; deflate is the usual one"
    return ""


def _time_of(info: zipfile.ZipInfo) -> float:
    try:
        return datetime(*info.date_time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _reader(opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> Read:
    def read(most: int) -> bytes:
        try:
            with opened.open(info) as file:
                return file.read(most)
        except BROKEN as error:
            raise Unreadable(f"cannot be unpacked ({_words(error)})") from None

    return read


# A folder -------------------------------------------------------------------------------------------------------------


def _list_folder(folder: Path, path: tuple[str, ...], listed: _Listed) -> None:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        if not path:
            raise
        listed.add(Entry(path, 0, 0.0, _nothing, f"cannot be read ({error.strerror})"))
        return
    for entry in entries:
        inside = (*path, entry.name)
        if len(inside) > MAX_PARTS:
            listed.add(Entry(_shown(inside), 0, 0.0, _nothing, "too deep a folder"))
            continue
        if entry.is_symlink():
            listed.add(Entry(_shown(inside), 0, 0.0, _nothing, IS_A_LINK))
        elif entry.is_dir(follow_symlinks=False):
            listed.add_folders(_shown(inside))
            if not (_is_noise((entry.name,)) or (len(path) > 1 and entry.name in IGNORED_FOLDERS)):
                _list_folder(Path(entry.path), inside, listed)
        elif not _is_noise((entry.name,)):
            found_now = entry.stat(follow_symlinks=False)
            fault = "" if stat.S_ISREG(found_now.st_mode) else IS_NO_FILE
            read = _reader_of(Path(entry.path))
            listed.add(Entry(_shown(inside), found_now.st_size, found_now.st_mtime, read, fault))


def _shown(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(unicodedata.normalize("NFC", part.encode(errors="replace").decode()) for part in path)


def _nothing(_most: int) -> bytes:
    return b""


def _reader_of(path: Path) -> Read:
    def read(most: int) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise Unreadable(IS_NO_FILE)
                return file.read(most)
        except OSError as error:
            raise Unreadable(f"cannot be read ({error.strerror})") from None

    return read
