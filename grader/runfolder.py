"""The private folder of a run: locked while a process works in it, and removed in spite of anything that a submission put there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PREFIX = "grader-run-"


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder for one run, removed afterwards."""
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}")).resolve()
    with held(made):
        folder = made.rename(
            made.with_name(made.name.removeprefix("."))
        )  # from now on `abandoned` looks for the folder
        try:
            yield folder
        finally:
            remove(folder)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Mark the folder as in use until the end of the block, or of this process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in the folder, made if missing, after all others in `alone_in`. On a file system without folder locks both work at once."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def abandoned() -> list[Path]:
    """Folders of this user's runs in which no process works any more, as after SIGKILL."""
    found = []
    for folder in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(folder)
            finally:
                os.close(descriptor)
    return found


def _run(command: list[str]) -> None:
    subprocess.run(
        command,
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def remove(folder: Path, run: Callable[[list[str]], object] = _run) -> None:
    """Delete a folder with untrusted contents: folders without permissions are opened first, links are not followed.

    Args:
        run: runs a command to its end; a judge passes `processes.output_of`.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    # The system's tools, in the default PATH, cope with any depth of folders.
    for command in (["chmod", "-R", "u+rwX", "--", str(folder)], ["rm", "-rf", "--", str(folder)]):
        run(command)
