"""The private folder of one run, and how it is removed when a stranger's code has been in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "grader-run-"


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder for one run, gone afterwards whatever was put there."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder whose contents a stranger made: folders without permissions are opened first, links are not followed."""
    if folder.is_symlink():
        folder.unlink()
        return
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
