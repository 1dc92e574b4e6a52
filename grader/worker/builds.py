"""Built libraries, kept for other workers of the same submission in the same run, so that each file is built once."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

LIBRARY, TOLD = "library.so", "told.txt"


def folder_of(source: Path, *how: str) -> Path:
    """The folder of the library that is built of `source`. If the folder exists, the library in it is complete.

    Args:
        source: the student's file; its folder holds all files that it may include.
        how: the compiler and its options.
    """
    name = hashlib.sha256(repr((source.name, how)).encode())
    for path in sorted(source.parent.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name.update(repr((str(path.relative_to(source.parent)), path.read_bytes())).encode())
    return Path(os.environ["GRADER_BUILDS"], name.hexdigest())


def keep(folder: Path, library: Path, told: str = "") -> None:
    """Store a library and its compiler's messages in `folder`. Stores nothing if another worker was faster or the disk
    is full.
    """
    made = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        made.mkdir(parents=True)
        shutil.copyfile(library, made / LIBRARY)
        (made / TOLD).write_text(told, encoding="utf-8")
        made.rename(folder)
    shutil.rmtree(made, ignore_errors=True)
