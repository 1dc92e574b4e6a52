"""A run's folder is found abandoned only when its run is gone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import runfolder
from grader.pool.jail import NO_JAIL
from tests.conftest import ROOT

HOLDS_ONE = """
import time
from grader.runfolder import run_folder
with run_folder() as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_in_use_is_not_abandoned(temporary: Path) -> None:
    with runfolder.run_folder() as folder:
        assert folder.parent == temporary
        assert runfolder.abandoned() == []
    assert list(temporary.iterdir()) == []


def test_a_folder_of_a_killed_run_is_abandoned(temporary: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_ONE], stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"TMPDIR": str(temporary)}
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    assert runfolder.abandoned() == []
    holder.kill()
    holder.communicate()
    assert runfolder.abandoned() == [folder]
    runfolder.remove(folder)
    assert runfolder.abandoned() == []


def test_a_link_is_not_followed(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (temporary / f"{runfolder.PREFIX}link").symlink_to(elsewhere)
    assert runfolder.abandoned() == []


def test_a_judge_empties_a_workers_folder_by_programs_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that it does not know counts as left behind by some worker: another thread that ends one would kill it half-way."""
    folder = tmp_path / "scratch"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a").chmod(0)

    def unknown(*_: object, **__: object) -> None:
        raise AssertionError("a child that nobody knows")

    monkeypatch.setattr(subprocess, "run", unknown)
    NO_JAIL.empty(folder)
    assert not folder.exists()
