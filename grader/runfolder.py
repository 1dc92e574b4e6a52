"""The private folder of one run: locked while somebody works in it, and removed even when a stranger's code has been in it."""

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
    """A new private folder for one run, gone afterwards whatever was put there."""
    made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}")).resolve()
    with held(made):
        folder = made.rename(made.with_name(made.name.removeprefix(".")))  # only now is it looked for by `abandoned`
        try:
            yield folder
        finally:
            remove(folder)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Show that somebody works in the folder: until the end of the block or, whatever happens, of this process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in the folder, made where there is none, after whoever else does. A file system that locks no folders lets both in at once."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def abandoned() -> list[Path]:
    """Folders of this user's runs in which nobody works any more, as when a run was ended by SIGKILL."""
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
    """Delete a folder whose contents a stranger made: folders without permissions are opened first, links are not followed.

    Args:
        run: runs a command, and waits for it; a judge does so by `processes.output_of`.
    """
    if folder.is_symlink():
        folder.unlink()
        return
    # The system's tools, wherever PATH leads: no depth of folders is too much for them.
    for command in (["chmod", "-R", "u+rwX", "--", str(folder)], ["rm", "-rf", "--", str(folder)]):
        run(command)
