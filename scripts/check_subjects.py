"""Fails where the subject of a commit is longer than 72 characters.

    python3 scripts/check_subjects.py           the commits since this file came into the repository
    python3 scripts/check_subjects.py FILE      the message in FILE, as a commit-msg hook gets it

Needs Python and git alone. Older commits are as they are.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_CHARACTERS = 72


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where a subject is too long."""
    if arguments:
        message = Path(arguments[0]).read_text(encoding="utf-8")
        return _told([("this commit", (message.splitlines() or [""])[0])])
    try:
        subjects = new_subjects(ROOT)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"commit subjects: not looked at, for git tells no history here ({error})", file=sys.stderr)
        return 0
    print(f"commit subjects: looked at {len(subjects)}, all since the limit of {MAX_CHARACTERS} characters")
    return _told(subjects)


def new_subjects(repository: Path) -> list[tuple[str, str]]:
    """Short hash and subject of each commit that follows the one which added this file; in a shallow clone, of those that it has.

    Branches that were begun before that commit do not follow it. Raises CalledProcessError, and OSError where there is no git.
    """
    here = Path(__file__).relative_to(ROOT).as_posix()
    added = _git(repository, "log", "--diff-filter=A", "--format=%H", "--", here).split()
    if not added:
        return []
    log = _git(repository, "log", "--ancestry-path", "--format=%h %s", f"{added[-1]}..HEAD")
    return [(name, subject) for name, _, subject in (line.partition(" ") for line in log.splitlines())]


def _told(subjects: Sequence[tuple[str, str]]) -> int:
    long = [(name, subject) for name, subject in subjects if len(subject) > MAX_CHARACTERS]
    for name, subject in long:
        print(
            f"{name}: the subject has {len(subject)} characters, {MAX_CHARACTERS} at most: {subject}", file=sys.stderr
        )
    return int(bool(long))


def _git(repository: Path, *arguments: str) -> str:
    # A clone may belong to another user than the one who runs CI.
    command = ["git", "-c", f"safe.directory={repository}", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
