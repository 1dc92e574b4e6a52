"""Makes a checked and hashed copy of a student's folder, the staged submission.

Only regular files of sane size and name are copied; links are not followed, for a link could point at the reference. The student's
folder is only read.

Platforms change a handed-in folder: archives put a folder around the files, browsers and learning platforms number a file that comes
twice, editors add a suffix. A single folder around the files is entered. A file under another name is never taken for the wanted file:
a sentence names both (see `survey`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NoReturn

from grader.messages import Staged
from grader.report.model import SubmissionInfo

MAX_FILE_BYTES = 1 << 20
MAX_FILES = 200
MAX_DEPTH = 6
MAX_PATH = 4096  # characters; the path tells reports of different submissions apart
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ ()-]{0,99}")  # browsers add ` (1)` to a name
IGNORED_FOLDERS = {"__pycache__", "node_modules", "grader-report", "build", "venv", "handouts"}
LITTER = {"__MACOSX", "Thumbs.db", "desktop.ini"}  # of macOS and Windows, beside files that begin with a dot
COPY = r"copy([\W_]?of)?|kopie([\W_]?von)?|copi[ae]([\W_]?d[ei])?"  # added by systems to a copy's name
MAX_NAMED = 3  # files or folders in a sentence
MAX_IGNORED = 8  # ignored files in a sentence
# Likenesses of a file's name to a wanted name: equal; a platform's variant of it; containing it, or a notebook's.
SAME, RENAMED, SIMILAR = 3, 2, 1
NOTEBOOK = ".ipynb"
OTHER_SUFFIXES = {
    ".cu": {NOTEBOOK, ".cpp", ".cc", ".c", ".cuh"},
    ".py": {NOTEBOOK},
}  # of files that may be a misnamed wanted file
MISNAMED_SUFFIXES = set().union(*OTHER_SUFFIXES.values())
SOURCE_SUFFIXES = {".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".txt", ".md", ".toml", ".json"}
ARCHIVE_SUFFIXES = {".7z", ".bz2", ".gz", ".rar", ".tar", ".tgz", ".xz", ".zip"}
IS_A_LINK = "a symbolic link; links are not followed"
IS_NO_FILE = "not a regular file"
HAS_ODD_NAME = "an odd name; letters, digits, _ . + - ( ) are allowed"


class SubmissionError(Exception):
    """The folder cannot be graded; the message names its path and the expected files."""


@dataclass(frozen=True)
class Survey:
    """The places of the wanted files in a student's folder.

    inside: the entered folder around the files, as `handin/src`; "" if the files lie in the student's folder itself.
    misnamed: by the name of a missing wanted file, a sentence about the files found in its place, if there are any.
    notes: sentences for the report.
    spoken_of: paths, in the entered folder, of the files that `misnamed` and `notes` name.
    """

    inside: str = ""
    misnamed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    spoken_of: frozenset[str] = frozenset()


AS_IT_IS = Survey()


def survey(source: Path, wanted: Sequence[str], known: Collection[str] = ()) -> Survey:
    """Look for the wanted files in the folder `source`, by their names alone.

    Args:
        wanted: the file names of the assignments.
        known: the file names of the course's other assignments.

    Raises:
        SubmissionError: no such folder, or not a folder; or the folder holds several submissions, or none of the wanted files but
            files that may be misnamed.
    """
    asked = {*wanted, *known}
    paths = [path.parts for path, _, _ in _files(source, wanted)]
    inside: list[str] = []
    while folders := _folders_around(paths, asked):
        if len(folders) > 1:
            files = [name for names in folders.values() for name in names]
            if len(files) > len(set(files)):  # two have the same file, so each is a submission
                some = f"{len(folders)} folders with submissions ({_some(sorted(folders))})"
                raise SubmissionError(f"{_printable(str(source.joinpath(*inside)))}: holds {some}: grade one of them")
            break
        (around,) = folders
        inside.append(around)
        paths = [path[1:] for path in paths if path[0] == around and len(path) > 1]
    here = {path[0] for path in paths if len(path) == 1}
    found = {name: alike for name in wanted if name not in here and (alike := _alike(paths, name, asked))}
    if not found and not here & asked:  # a file of any name may be the wanted one then, or be in an archive
        for name in wanted:
            suffix = PurePosixPath(name).suffix
            if kind := ["/".join(path) for path in paths if PurePosixPath(path[-1]).suffix == suffix]:
                found[name] = kind
        if not found and (archives := [name for name in map("/".join, paths) if is_archive(name)]):
            found = dict.fromkeys(wanted, archives)
    if found and not here.intersection(wanted):
        meant: dict[tuple[str, ...], list[str]] = {}
        for name, candidates in found.items():
            meant.setdefault(tuple(candidates), []).append(name)
        words = "; ".join(_instead(names, candidates) for candidates, names in meant.items())
        raise SubmissionError(f"{_printable(str(source.joinpath(*inside)))}: {words}")
    where = _printable("/".join(inside))
    notes = [f"the files lie in {where}/: that folder is taken for the submission"] if inside else []
    # A module with a name such as `kernel (1)` cannot be imported, so the file is a second copy.
    twice = {name: _likeness(name, asked)[1] for name in here if _likeness(name, asked)[0] == RENAMED}
    twice = {name: one for name, one in sorted(twice.items()) if one in here and not name.split(".")[0].isidentifier()}
    notes += [f"{_printable(name)} lies beside {one}: {one} is what counts" for name, one in twice.items()]
    return Survey(
        "/".join(inside),
        {name: _instead([name], candidates) for name, candidates in found.items()},
        tuple(notes),
        frozenset(twice) | {path for candidates in found.values() for path in candidates},
    )


def kernel_elsewhere(stub: Path, entry: str, folder: Path) -> str:
    """A sentence about the files of `folder` that define the function `entry`, while the folder's own file of the stub's name is still
    `stub`, or missing; "" if none do, or there is no stub.

    Files of the stub's kind and notebooks are looked at, but no copies of the stub, and no files of other assignments.

    Raises SubmissionError.
    """
    if not stub.is_file():
        return ""
    name = re.escape(entry)
    defined = (
        rf"^(def {name}\s*\(|{name}\s*=)" if stub.suffix == ".py" else rf"^[^\n/(]*\s{name}\s*\([^;{{]{{0,500}}\{{"
    )
    stubs = {path.name: path.read_bytes() for path in stub.parent.iterdir() if path.is_file()}
    found = []
    for path, leaf, around in _files(folder, [stub.name]):
        like, whose = _likeness(leaf, stubs)
        if str(path) in stubs or (like >= RENAMED and whose != stub.name) or path.suffix not in (stub.suffix, NOTEBOOK):
            continue
        with contextlib.suppress(OSError, _Refused):
            source = read_file(leaf, around, {path.suffix})
            text = source.decode(errors="replace")
            if path.suffix == NOTEBOOK:  # whose lines of code are strings of JSON
                text = re.sub(r'\\n(",\s*")?|^[ \t]*"', "\n", text, flags=re.MULTILINE)
            if source != stubs[stub.name] and re.search(defined, text, re.MULTILINE):
                found.append(str(path))
    if not found:
        return ""
    words = f"{stub.name} is still the starter's stub" if (folder / stub.name).exists() else f"there is no {stub.name}"
    looks = "looks like your kernel" if len(found) == 1 else "look like your kernel"
    return f"{words}, but {_some(found)} {looks}: {_mend(found, stub.name)}"


def _alike(paths: Sequence[tuple[str, ...]], wanted: str, asked: Collection[str]) -> list[str]:
    """The files that may be the wanted file: with its name or a platform's variant of it, else with a similar name, else notebooks."""
    alike = [(path, like) for path in paths for like, name in [_likeness(path[-1], asked)] if name == wanted and like]
    surest = [path for path, like in alike if like >= RENAMED] or [path for path, _ in alike]
    notebooks = [path for path in paths if path[-1].casefold().endswith(NOTEBOOK) and not _likeness(path[-1], asked)[0]]
    return ["/".join(path) for path in surest or notebooks]


def is_archive(name: str) -> bool:
    """Whether a file has the name of an archive."""
    return PurePosixPath(name).suffix.casefold() in ARCHIVE_SUFFIXES


def _folders_around(paths: Collection[tuple[str, ...]], asked: Collection[str]) -> dict[str, set[str]]:
    """The folders that hold files of `asked`, with the files' names; none if such files lie beside the folders.

    A similar name counts only if no folder has a file with its own name or a platform's variant of it.
    """
    for least in (RENAMED, SIMILAR):
        folders: dict[str, set[str]] = {}
        for path in paths:
            like, name = _likeness(path[-1], asked)
            if like and len(path) == 1:
                return {}
            if like >= least:
                folders.setdefault(path[0], set()).add(name)
        if folders:
            return folders
    return {}


def _likeness(name: str, asked: Collection[str]) -> tuple[int, str]:
    """The likeness of a file's name to the most similar name of `asked`, and that name; 0 if no name is similar."""
    return max(((_like(name, one), one) for one in asked), key=lambda pair: (pair[0], len(pair[1])), default=(0, ""))


@functools.cache
def _like(name: str, wanted: str) -> int:
    if name == wanted:
        return SAME
    stem, suffix = PurePosixPath(wanted).stem, PurePosixPath(wanted).suffix
    core = re.sub(r"[\W_]", "", stem.casefold())
    suffixes = set(re.findall(r"\.[a-z]+", name.casefold()))
    if suffixes <= {suffix, ".txt"}:
        letters = re.sub(rf"{COPY}|[\W_]", "", name.casefold().split(".")[0])
        if re.fullmatch(rf"{re.escape(core)}\d*", letters):
            return RENAMED
    if suffixes <= {".txt"} or suffixes & {suffix, *OTHER_SUFFIXES.get(suffix, ())}:
        return SIMILAR if core and core in re.sub(r"[\W_]", "", name.casefold()) else 0
    return 0


def _instead(wanted: Sequence[str], found: Sequence[str]) -> str:
    """A sentence about missing wanted files: their names, the found files, and the next step."""
    names = " or ".join(filter(None, [", ".join(wanted[:-1]), wanted[-1]]))
    return f"there is no {names}, but {_some(found)}: {_mend(found, names)}"


def _mend(found: Sequence[str], names: str) -> str:
    if all(map(is_archive, found)):
        return "unpack it" if len(found) == 1 else "unpack the one that counts"
    if len(found) > 1:
        return f"keep the one that counts, as {names}"
    if found[0].casefold().endswith(NOTEBOOK):
        return f"a notebook cannot be graded, so save its code as {names}"
    return f"move it out of its folder, as {names}" if "/" in found[0] else f"rename it to {names}"


def _some(names: Sequence[str], most: int = MAX_NAMED) -> str:
    shown = [_printable(name) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


@contextlib.contextmanager
def _opened(source: Path, wanted: Sequence[str], inside: str = "") -> Iterator[int]:
    """A context with the descriptor of the folder `inside` of `source`; no part of `inside` may be a link. Raises SubmissionError."""
    expected = f"expected a folder with {', '.join(wanted)}"
    with contextlib.ExitStack() as stack:
        try:
            if not stat.S_ISDIR(source.stat().st_mode):
                raise SubmissionError(f"{source}: is a file; {expected}")
            folder = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            for part in PurePosixPath(inside).parts:
                folder = _open_below(folder, part)
                stack.callback(os.close, folder)
        except FileNotFoundError:
            raise SubmissionError(f"{_printable(str(source))}: no such folder; {expected}") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise SubmissionError(f"{_printable(str(source))}: cannot be read ({why}); {expected}") from None
        yield folder


def _open_below(folder: int, name: str) -> int:
    """The descriptor of a folder in an open folder; never of a link. Raises OSError."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def _walk(
    folder: int, refused: dict[str, str], unreadable: Callable[[str, OSError], None], inside: str = ""
) -> Iterator[tuple[str, os.DirEntry[str], int]]:
    """The path of everything below an open folder but what is passed over, with its entry and the descriptor of its own folder. All of a
    folder comes before what lies in folders below it.

    Every folder is opened relative to its parent and never by path, because the owner could replace a folder of the path by a link.

    Args:
        refused: why a path is left out. A folder is entered unless its path is there once all paths beside it were given.
        unreadable: called with a folder that cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:  # some file systems are asked for the kind, which may fail; an entry keeps it
            entry.is_symlink(), entry.is_dir(follow_symlinks=False)
    except OSError as error:
        return unreadable(inside, error)
    found = [entry for entry in found if entry.is_symlink() or not _passed_over(entry.name)]
    for entry in found:
        yield inside + entry.name, entry, folder
    for entry in found:
        name = inside + entry.name
        if name in refused or not entry.is_dir(follow_symlinks=False):
            continue
        try:
            below = _open_below(folder, entry.name)
        except (FileNotFoundError, NotADirectoryError):  # removed or replaced meanwhile
            refused[name] = "changed while it was read"
        except OSError as error:
            unreadable(name, error)
        else:
            try:
                yield from _walk(below, refused, unreadable, f"{name}/")
            finally:
                os.close(below)


def _files(source: Path, wanted: Sequence[str]) -> Iterator[tuple[PurePosixPath, str, int]]:
    """Every file and link below `source` but what is passed over: its path, its name, and the descriptor of its own folder.

    Folders that cannot be read are left to `stage`. Raises SubmissionError.
    """
    too_deep: dict[str, str] = {}
    with _opened(source, wanted) as root:
        for name, entry, folder in _walk(root, too_deep, lambda _name, _error: None):
            if entry.is_dir(follow_symlinks=False):
                if name.count("/") >= MAX_DEPTH:
                    too_deep[name] = ""
            elif not _passed_over(entry.name):
                yield PurePosixPath(name), entry.name, folder


def _passed_over(name: str) -> bool:
    """Whether a file or folder of this name is left out without a note."""
    return name.startswith(".") or name in IGNORED_FOLDERS | LITTER


def is_litter(path: Sequence[str]) -> bool:
    """Whether the file of this path, in parts, is left out without a note."""
    return any(map(_passed_over, path))


def left_out(names: Sequence[str]) -> str:
    """A sentence about a folder of which all files and folders, `names`, are left out."""
    return f"holds nothing but {_some(names)}, always left out"


def unfit(name: str, size: int, kinds: Collection[str] = frozenset(TEXT_SUFFIXES | MISNAMED_SUFFIXES)) -> str:
    """Why no file of this name and size belongs to a submission; "" if `stage`, or a `survey`, has to look at it.

    Args:
        kinds: the suffixes of files that do.
    """
    suffix = PurePosixPath(name).suffix
    if size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 20} MiB"
    if suffix in kinds:
        return ""
    if suffix == NOTEBOOK:
        return "a notebook, which cannot be graded: save its code as a script"
    if suffix.casefold() in SOURCE_SUFFIXES:
        return f"the suffix must be in small letters: rename it to end in {suffix.casefold()}"
    return "not a kind of file that a submission needs (" + " ".join(sorted(TEXT_SUFFIXES)) + ")"


def stage(
    source: Path, target: Path, wanted: Sequence[str], found: Survey = AS_IT_IS, *, misnamed: bool = False
) -> Staged:
    """Copy the files of `source` that can belong to a submission into the new folder `target`.

    Args:
        source: the student's folder.
        target: created; receives the copy.
        wanted: the file names of the assignments; MAX_FILES does not count for them.
        found: the survey of the folder; by default the files lie in the folder itself.
        misnamed: whether notebooks and other kinds of files that a later `survey` may speak of are copied too.

    Raises:
        SubmissionError: no such folder, not a folder, empty, or a wanted file cannot be read.
    """
    kinds = TEXT_SUFFIXES | (MISNAMED_SUFFIXES if misnamed else set())
    entered, expected = source / found.inside, f"expected a folder with {', '.join(wanted)}"
    refused: dict[str, str] = {}
    contents: dict[str, bytes] = {}

    def unreadable(name: str, error: OSError) -> NoReturn:
        raise SubmissionError(f"{entered / name}: cannot be read ({error.strerror}); {expected}") from None

    with _opened(source, wanted, found.inside) as root:
        for name, entry, folder in _walk(root, refused, unreadable):
            if entry.is_symlink():
                refused[name] = IS_A_LINK
            elif NAME.fullmatch(entry.name) is None:
                refused[name] = HAS_ODD_NAME
            elif entry.is_dir(follow_symlinks=False):
                if name.count("/") + 1 >= MAX_DEPTH:
                    refused[name] = "too deep a folder"
            elif len(contents) >= MAX_FILES and name not in wanted:
                refused[name] = f"more than {MAX_FILES} files"
            else:
                try:
                    contents[name] = read_file(entry.name, folder, kinds)
                except _Refused as why:
                    refused[name] = str(why)
                except OSError as error:
                    if name in wanted:
                        unreadable(name, error)
                    refused[name] = f"cannot be read ({error.strerror})"
        if not contents and not refused:
            with os.scandir(root) as entries:
                left = sorted(entry.name for entry in entries)
            raise SubmissionError(f"{entered}: {left_out(left) if left else 'is empty'}; {expected}")
    target.mkdir(parents=True, exist_ok=True)
    unpack(contents, target)
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{len(name)}:{name}:{len(content)}:".encode() + content)
    notes = ignored({name: why for name, why in refused.items() if name not in found.spoken_of}, wanted)
    info = SubmissionInfo(
        path=_printable(str(source.resolve()), MAX_PATH),
        sha256=digest.hexdigest(),
        files=tuple(sorted(contents)),
        notes=(*found.notes, *notes),
    )
    return Staged(folder=target, info=info, refused=refused, misnamed=found.misnamed)


def ignored(refused: Mapping[str, str], wanted: Collection[str]) -> list[str]:
    """A sentence for each reason with its files; files of the assignments come first."""
    by_reason: dict[str, list[str]] = {}
    for name in sorted(refused, key=lambda name: (PurePosixPath(name).name not in wanted, name)):
        by_reason.setdefault(refused[name], []).append(name)
    return [f"{_some(names, MAX_IGNORED)}: ignored, {why}" for why, names in by_reason.items()]


def pack(folder: Path) -> dict[str, bytes]:
    """The contents of a staged submission's files, by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read_staged(folder: Path, name: str) -> bytes:
    """The bytes of a file of a staged submission after its code has run. Raises OSError.

    Code that is not isolated may have put something else in the file's place: a link is not followed, and no more read than was staged.
    """
    try:
        with _opened(folder, [name], str(PurePosixPath(name).parent)) as inside:
            return read_file(PurePosixPath(name).name, inside)
    except (SubmissionError, _Refused) as why:
        raise OSError(str(why)) from None


def unpack(files: Mapping[str, bytes], target: Path) -> None:
    """Write files, by path, into the folder `target`, readable by all users and writable by none."""
    for name, content in sorted(files.items()):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        copy.chmod(0o444)


class _Refused(Exception):
    """Why a file is not copied."""


def read_file(name: str, folder: int, kinds: Collection[str] = frozenset(TEXT_SUFFIXES)) -> bytes:
    """The bytes of a file in an open folder. Raises _Refused or OSError; never waits on a pipe or follows a link."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _Refused(IS_NO_FILE)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if why := unfit(name, len(content), kinds):
        raise _Refused(why)
    if b"\0" in content and PurePosixPath(name).suffix not in SOURCE_SUFFIXES:  # of sources the judge says more
        raise _Refused("a binary file (if it is text, save it as UTF-8)")
    return content


def _printable(text: str, most: int = 300) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text.encode(errors="replace").decode())[:most]
