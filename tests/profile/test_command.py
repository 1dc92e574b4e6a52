"""`grader profile`: names of cases, and what it writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.console import EXIT_USAGE
from grader.messages import Request
from grader.profile.command import check_names, write
from grader.profile.model import CaseProfile, Profile
from tests.conftest import ROOT

CASE = CaseProfile(assignment="a", part="p", case="wide", size="64 × 64", dtype="float32", gpu="NVIDIA X")


@pytest.mark.parametrize("name", ["wide", "softmax/wide", "causal", "backward/causal"])
def test_a_speed_case_is_named_with_or_without_its_part(name: str) -> None:
    check_names(Request(submission=ROOT / "starter", course=ROOT, profiled=(name,)))


@pytest.mark.parametrize(("options", "name"), [((), "widest"), (("-a", "triton_gelu"), "wide"), ((), "forward/wide")])
def test_a_name_that_no_speed_case_has_ends_before_anything_runs(
    tmp_path: Path, options: tuple[str, ...], name: str
) -> None:
    words = ["profile", str(ROOT / "starter"), *options, "--case", name, "-o", str(tmp_path / "out")]
    found = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert (found.exit_code, found.stdout) == (EXIT_USAGE, "")
    assert re.search(f"--case {name}: there is no such speed case; there are .*gelu/float32", found.stderr)
    assert not (tmp_path / "out").exists()


def test_a_later_profile_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "profile"
    write(
        Profile(submission="s", grader_version="1", cases=(CASE,)),
        {"a-p-wide/k.ptx": "old", "a-p-wide/k.sass": "x"},
        folder,
    )
    (folder / "mine.txt").write_text("kept")
    page = write(Profile(submission="s", grader_version="1", cases=(CASE,)), {"a-p-wide/k.ptx": "new"}, folder)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {"profile.json", "profile.html", "kernels/a-p-wide/k.ptx", "mine.txt"}
    assert (folder / "kernels/a-p-wide/k.ptx").read_text() == "new"
    assert Profile.model_validate_json((folder / "profile.json").read_text()).cases == (CASE,)
    assert page == folder / "profile.html"


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/profile"])
def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "work").mkdir()
    words = ["profile", str(tmp_path / "work"), "-o", str(tmp_path / place)]
    found = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert found.exit_code == EXIT_USAGE
    assert f"{place}: the profile cannot be written there" in found.output


@pytest.mark.grading
def test_the_command_profiles_a_folder_and_writes_nothing_into_it(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "softmax.py").write_bytes((ROOT / "reference/softmax.py").read_bytes())
    options = ["-a", "softmax", "-a", "triton_gelu", "--case", "narrow", "--case", "float32"]
    command = [sys.executable, "-m", "grader", "profile", ".", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["softmax.py"]
    assert "there is no triton_gelu.py" in done.stdout
    found = Profile.model_validate_json((tmp_path / "grader-profile/profile.json").read_text())
    told = {one.case: one for one in found.cases}
    assert told["narrow"].launches[0].kernel == "softmax_kernel"
    assert told["narrow"].moved_bytes == pytest.approx(told["narrow"].needed_bytes, rel=0.05)
    assert not told["narrow"].remarks
    assert (tmp_path / "grader-profile/kernels/softmax-softmax-narrow/softmax_kernel.ptx").read_text().startswith("//")
