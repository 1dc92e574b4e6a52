"""A student's folder → a checked, hashed, staged copy.

Only regular files of sane size and name are taken; links are not followed, for one could point at the reference. The
original is only read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from grader.report.model import SubmissionInfo

MAX_FILE_BYTES = 1 << 20
MAX_FILES = 200
MAX_DEPTH = 6
MAX_NOTES = 20
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,99}")
IGNORED_FOLDERS = {"__pycache__", "node_modules", "grader-report", "build", "venv", "handouts"}
SOURCE_SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".txt", ".md", ".toml", ".json"}


class SubmissionError(Exception):
    """The folder cannot be graded at all; the message names the path and what is expected."""


@dataclass(frozen=True)
class Submission:
    """A staged submission.

    folder: the copy that is graded.
    info: what goes into the report.
    refused: why a file was not taken, by its path inside the folder.
    """

    folder: Path
    info: SubmissionInfo
    refused: dict[str, str] = field(default_factory=dict)


def stage(source: Path, target: Path, wanted: tuple[str, ...]) -> Submission:
    """Copy the files of `source` that can belong to a submission into the new folder `target`.

    Args:
        source: the student's folder.
        target: created; receives the copy.
        wanted: the file names that the assignments ask for; they are copied first, whatever else is there.

    Raises:
        SubmissionError: no such folder, not a folder, empty, or one of the wanted files cannot be read.
    """
    expected = f"expected a folder with {', '.join(wanted)}"
    try:
        mode = source.stat().st_mode
        if not stat.S_ISDIR(mode):
            raise SubmissionError(f"{source}: is a file; {expected}")
        root = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SubmissionError(f"{_printable(str(source))}: no such folder; {expected}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SubmissionError(f"{_printable(str(source))}: cannot be read ({why}); {expected}") from None
    refused: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    try:
        with contextlib.closing(_walk(root, refused)) as found:
            for name, folder in found:
                if len(contents) >= MAX_FILES and name not in wanted:
                    refused[name] = f"more than {MAX_FILES} files"
                    continue
                try:
                    contents[name] = _read(PurePosixPath(name).name, folder)
                except _Refused as why:
                    refused[name] = str(why)
                except OSError as error:
                    if name in wanted:
                        raise SubmissionError(
                            f"{source / name}: cannot be read ({error.strerror}); {expected}"
                        ) from None
                    refused[name] = f"cannot be read ({error.strerror})"
    except _FolderUnreadable as unreadable:
        raise SubmissionError(f"{source / unreadable.name}: cannot be read ({unreadable.why}); {expected}") from None
    except OSError as error:
        raise SubmissionError(f"{source}: cannot be read ({error.strerror}); {expected}") from None
    finally:
        os.close(root)
    if not contents and not refused:
        raise SubmissionError(f"{source}: is empty; {expected}")
    target.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    unpack(contents, target)
    for name, content in sorted(contents.items()):
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode() + content)
    notes = [f"{_printable(name)}: ignored, {why}" for name, why in sorted(refused.items())]
    if len(notes) > MAX_NOTES:
        notes = [*notes[:MAX_NOTES], f"and {len(notes) - MAX_NOTES} more files were ignored"]
    info = SubmissionInfo(
        path=_printable(str(source)), sha256=digest.hexdigest(), files=tuple(sorted(contents)), notes=tuple(notes)
    )
    return Submission(target, info, refused)


def pack(folder: Path) -> dict[str, bytes]:
    """The files of a staged submission, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpack(files: Mapping[str, bytes], target: Path) -> None:
    """Write files, by their paths in the folder `target`, which nobody but their owner can change there."""
    for name, content in sorted(files.items()):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        copy.chmod(0o444)


class _Refused(Exception):
    """Why a file is not taken."""


class _FolderUnreadable(Exception):
    """A folder in the submission cannot be read, and why."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why


def _walk(folder: int, refused: dict[str, str], inside: str = "", depth: int = 0) -> Generator[tuple[str, int]]:
    """The files below an open folder in a fixed order, each with the open folder that it lies in; those directly in it come first.

    Every folder is opened from the one above it and never by its path, in which its owner could meanwhile put a link in its place.
    """
    folders = []
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = inside + entry.name
        if entry.is_symlink():
            refused[name] = "a symbolic link; links are not followed"
        elif entry.name.startswith(".") or entry.name in IGNORED_FOLDERS:
            continue
        elif NAME.fullmatch(entry.name) is None:
            refused[name] = "an odd name; letters, digits, _ . + - are allowed"
        elif entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            yield name, folder
    for last in folders:
        name = inside + last
        if depth + 1 >= MAX_DEPTH:
            refused[name] = "too deep a folder"
            continue
        try:
            below = os.open(last, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                yield from _walk(below, refused, f"{name}/", depth + 1)
            finally:
                os.close(below)
        except (FileNotFoundError, NotADirectoryError):  # it is gone, or a file or a link by now
            refused[name] = "changed while it was read"
        except OSError as error:
            raise _FolderUnreadable(name, str(error.strerror)) from None


def _read(name: str, folder: int) -> bytes:
    """The bytes of a file in an open folder. Raises _Refused or OSError; never waits on a pipe or follows a link."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _Refused("not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise _Refused(f"larger than {MAX_FILE_BYTES >> 20} MiB")
    if PurePosixPath(name).suffix not in TEXT_SUFFIXES:
        raise _Refused("not a kind of file that a submission needs (" + " ".join(sorted(TEXT_SUFFIXES)) + ")")
    if b"\0" in content and PurePosixPath(name).suffix not in SOURCE_SUFFIXES:  # of sources the judge says more
        raise _Refused("a binary file (if it is text, save it as UTF-8)")
    return content


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text.encode(errors="replace").decode())[:300]
