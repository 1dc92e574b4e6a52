"""`grader doctor` on this machine: its looks and its gradings are real, but for Docker, which may be here or not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from grader import doctor
from grader.doctor import software
from grader.doctor.finding import Finding
from grader.pool.jail import strongest_jail
from grader.sandbox import engine
from tests.conftest import ROOT, broken_jails

pytestmark = pytest.mark.grading


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Finding]:
    """What is found here, by name; without what could confine workers where the parameter says so."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(engine, "is_there", lambda: False)
    monkeypatch.setattr(engine, "why_daemon_is_expected", lambda: "")
    monkeypatch.setattr(engine, "why_image_is_expected", lambda _: "")
    if request.param == "without a jail":
        monkeypatch.setenv("PATH", f"{broken_jails(tmp_path / 'broken')}:{os.environ['PATH']}")
    there = {one.pid for one in children()}
    found = doctor.examine(ROOT)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert {one.pid for one in children()} - there == set()
    return {one.name: one for one in found}


@pytest.mark.parametrize("findings", ["as it is"], indirect=True)
def test_this_machine_is_examined(findings: dict[str, Finding]) -> None:
    for name in ("Python", "PyTorch", "Triton", "C++ compiler", "shared memory", "right kernel", "wrong kernel"):
        assert findings[name].state == "fine", findings[name]
    confined = strongest_jail().name == "bubblewrap"
    assert findings["bubblewrap"].state == ("fine" if confined else "caution")
    assert findings["escape"].state == ("fine" if confined else "caution"), findings["escape"]
    assert findings["Docker"].state == "unneeded"


@pytest.mark.everything  # tests/doctor/test_doctor.py has the words of each escape
@pytest.mark.parametrize("findings", ["without a jail"], indirect=True)
def test_an_escape_that_nothing_blocks_is_told(findings: dict[str, Finding]) -> None:
    assert findings["bubblewrap"].state == "caution"
    assert "nothing confines" in findings["bubblewrap"].words
    assert findings["right kernel"].state == "fine", findings["right kernel"]
    assert findings["wrong kernel"].state == "fine"
    escape = findings["escape"]
    assert escape.state == "caution"
    told = "it read another user's file, saw other processes, reached the network"
    assert escape.words == f"not blocked (unisolated): {told}"


def test_pytorch_is_looked_at_in_another_process() -> None:
    seen = software.look()
    assert seen.torch
    assert seen.triton
    assert (seen.arch is None) == bool(seen.gpu_fault)


def test_memory_goes_to_a_worker_and_back() -> None:
    """What is tried by CUDA IPC on a GPU, here in a CPU's memory."""
    # In a process of its own: whatever is a child of the one that has workers is taken for something that they have left.
    program = "from grader.doctor import with_torch; print(repr(with_torch.share('cpu')))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "''\n", done.stdout + done.stderr
