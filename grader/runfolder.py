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
        folder = made.rename(made.with_name(made.name.removeprefix(".")))  # the name that `abandoned` looks for
        try:
            yield folder
        finally:
            remove(folder)


@contextlib.contextmanager
def _opened(folder: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Mark the folder as in use until the end of the block, or of this process."""
    with _opened(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Work in the folder, made if missing, after all others in `alone_in`. On a file system without folder locks both work at once."""
    folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder) as descriptor:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def abandoned(where: Path | None = None, prefix: str = PREFIX) -> list[Path]:
    """Folders of this user's in which no process works any more, as after SIGKILL: those of runs, or those below `where`
    whose names begin with `prefix`.
    """
    found = []
    around = (where or Path(tempfile.gettempdir())).resolve()
    for folder in sorted(path for path in around.iterdir() if path.name.startswith(prefix)):
        with contextlib.suppress(OSError), _opened(folder, os.O_NOFOLLOW) as descriptor:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.append(folder)
    return found


def _run(command: list[str]) -> None:
    nothing = subprocess.DEVNULL
    subprocess.run(command, env={"PATH": os.defpath}, stdin=nothing, stdout=nothing, stderr=nothing)


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
