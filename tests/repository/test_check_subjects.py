"""CI looks at the subjects of new commits, and only of those."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

LONG = "ü" * 73
SCRIPT = Path("scripts", "check_subjects.py")


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null")
    subprocess.run(["git", *who, "-C", str(repository), *arguments], check=True, capture_output=True)


def commit(repository: Path, subject: str) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--allow-empty", "--message", f"{subject}\n\n{LONG}")


def check(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(repository / SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", cwd="/")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A commit with a long subject, a branch that stays there, and then the commit that adds the check."""
    there = tmp_path / "repository"
    there.mkdir()
    git(there, "init", "--initial-branch", "main")
    commit(there, LONG)
    git(there, "branch", "older")
    (there / SCRIPT).parent.mkdir()
    (there / SCRIPT).write_bytes((ROOT / SCRIPT).read_bytes())
    commit(there, f"the check comes {LONG}")
    return there


def test_older_commits_are_as_they_are(repository: Path) -> None:
    git(repository, "checkout", "older")
    commit(repository, LONG)
    git(repository, "checkout", "main")
    git(repository, "merge", "older", "--no-ff", "--message", "Merge")
    found = check(repository)
    assert (found.returncode, found.stderr) == (0, "")
    assert "looked at 1," in found.stdout


def test_a_new_subject_that_is_too_long_fails(repository: Path) -> None:
    commit(repository, LONG[1:])
    assert check(repository).returncode == 0
    commit(repository, LONG)
    commit(repository, "short")
    found = check(repository)
    assert found.returncode == 1
    assert found.stderr.count("73 characters") == 1


def test_a_hook_looks_at_the_message_it_is_given(repository: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text(f"{LONG[1:]}\n\n{LONG}\n", encoding="utf-8")
    assert check(repository, str(message)).returncode == 0
    message.write_text(f"{LONG}\n", encoding="utf-8")
    assert check(repository, str(message)).returncode == 1
