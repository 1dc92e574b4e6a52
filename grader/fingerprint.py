"""A hash of the grader's code and a course. The judge in an image compares its own hash with the command line's."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import grader
from grader.course import INSTALLED, ROOMS

CODE = {".py", ".ini", ".json", ".toml", ".cpp", ".h"}


def fingerprint(course: Path) -> str:
    """SHA-256, in hexadecimal, over names and contents of the package `grader` and of the three rooms of `course`.

    A checkout and an installed package have the same fingerprint: a course inside the package counts as a course, not
    as code.
    """
    digest = hashlib.sha256()
    package = Path(grader.__file__).parent
    code = (path for path in _files(package) if path.suffix in CODE and package / INSTALLED not in path.parents)
    files = [(path, package.parent) for path in code]
    files += [(path, course) for room in ROOMS for path in _files(course / room)]
    for path, root in files:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}:{len(content)}:".encode() + content)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, without those that the image leaves out (.dockerignore)."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part in ("__pycache__", "grader-report") for part in parts)
        if not hidden and path.is_file() and path.suffix != ".pyc":
            yield path
