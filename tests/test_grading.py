"""What a request asks for, and what goes to the judge."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.assignment import load_course
from grader.grading import survey_for
from grader.messages import Request, Staged
from grader.report.model import SubmissionInfo
from grader.submission import SubmissionError
from tests.conftest import ROOT


def test_a_request_says_the_same_at_the_other_end() -> None:
    info = SubmissionInfo(path="here", sha256="0", files=("softmax.py",))
    files = {"softmax.py": b"\xff\x00", "sub/own.cuh": b""}
    request = Request(
        submission=Path("here"),
        course=ROOT,
        assignments=("softmax",),
        staged=Staged(folder=Path("/there"), info=info, refused={"a.py": "is a link"}, files=files),
        seed=2**63 - 1,
    )
    line = request.model_dump_json()
    assert "\n" not in line
    assert Request.model_validate_json(line) == request


def test_the_graders_own_folder_and_a_file_are_no_submission(tmp_path: Path) -> None:
    assignments = load_course(ROOT, ())
    with pytest.raises(SubmissionError, match=r"is the grader's own folder: name the folder with your files"):
        survey_for(Request(submission=ROOT, course=ROOT), assignments)
    shutil.copy(ROOT / "reference" / "softmax.py", tmp_path)
    with pytest.raises(SubmissionError, match=rf"name its folder, as in `grader check {tmp_path} -a softmax`"):
        survey_for(Request(submission=tmp_path / "softmax.py", course=ROOT), assignments)
    assert survey_for(Request(submission=tmp_path, course=ROOT), assignments).inside == ""
