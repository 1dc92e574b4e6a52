"""Libraries that a compiler has built, kept for one run's other workers of the same submission: each would wait for the same again."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

LIBRARY, TOLD = "library.so", "told.txt"


def folder_of(source: Path, *how: str) -> Path:
    """Where the library made of `source` is, if somebody has built it; whole as soon as the folder is there.

    Args:
        source: its folder has whatever of the submission it may include.
        how: the compiler and what it is asked for.
    """
    name = hashlib.sha256(repr((source.name, how)).encode())
    for path in sorted(source.parent.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            name.update(repr((str(path.relative_to(source.parent)), path.read_bytes())).encode())
    return Path(os.environ["GRADER_BUILDS"], name.hexdigest())


def keep(folder: Path, library: Path, told: str = "") -> None:
    """Put a library there, and what its compiler told; where that cannot be, as where somebody else was faster, nothing is kept."""
    made = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        made.mkdir(parents=True)
        shutil.copyfile(library, made / LIBRARY)
        (made / TOLD).write_text(told, encoding="utf-8")
        made.rename(folder)
    shutil.rmtree(made, ignore_errors=True)
