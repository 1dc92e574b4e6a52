"""What a judge starts before it knows its job: told by the command line, which knows course and submission."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.grading import Request, head_start_for
from grader.job import HeadStart
from tests.conftest import ROOT


def test_words_say_the_same_at_the_other_end() -> None:
    for one in (HeadStart(), HeadStart(0), HeadStart(12, ("memcheck", "racecheck", "memcheck"))):
        assert HeadStart.of([*one.words, "isolated"]) == one
    assert HeadStart.of([]) == HeadStart(0)
    assert HeadStart.of(["workers=3", "tools=memcheck,--launch,"]) == HeadStart(3, ("memcheck",))


def test_every_case_under_a_tool_has_its_worker() -> None:
    found = head_start_for(Request(ROOT / "reference", ROOT))
    assert found.workers > 1
    assert sorted(found.tools) == ["initcheck"] * 4 + ["memcheck"] * 6 + ["racecheck"]


def test_what_is_not_there_or_not_run_has_none(tmp_path: Path) -> None:
    reference = ROOT / "reference"
    assert head_start_for(Request(reference, ROOT, effort="quick")).tools == ()
    assert head_start_for(Request(reference, ROOT, stop_early=True)).tools == ()
    assert head_start_for(Request(reference, ROOT, ("softmax",))).tools == ("memcheck", "memcheck", "initcheck")
    assert head_start_for(Request(tmp_path, ROOT)).tools == ()
    shutil.copy(reference / "gelu.cu", tmp_path)
    assert head_start_for(Request(tmp_path, ROOT)).tools == ("memcheck", "initcheck", "racecheck")


def test_cuda_alone_needs_no_worker_with_torch_on_a_cpu(tmp_path: Path) -> None:
    assert head_start_for(Request(tmp_path, ROOT, ("cuda_gelu",))).workers == 0


@pytest.mark.parametrize("archive", ["submission.zip", "nothing", "long" * 100])
def test_an_archive_is_not_looked_into(tmp_path: Path, archive: str) -> None:
    (tmp_path / "submission.zip").write_bytes(b"PK")
    assert head_start_for(Request(tmp_path / archive, ROOT)).tools == ()
