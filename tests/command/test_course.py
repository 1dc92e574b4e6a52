"""The course as it is handed out: the staff's answers pass, the stubs score nothing, and the files go together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grader.assignment import load_course
from tests.conftest import ROOT, Ran, Running
from tests.support.corpus import cases
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Running(tmp_path_factory.mktemp("reference"), [str(ROOT / "reference"), "--device", "cpu"]).finish()


def test_the_reference_passes_every_case_that_a_cpu_can_grade(reference: Ran) -> None:
    assert reference.code == 0, reference.errors
    assert reference.report is not None
    for assignment in reference.report.assignments:
        for part in assignment.parts:
            for case in part.cases:
                assert case.outcome in ("passed", "skipped"), f"{assignment.name} {case.name}: {case.message}"
    assert reference.report.correctness.earned == reference.report.correctness.graded == 50
    assert reference.left == []
    assert "beyond-2-31: only where it reads and writes was looked at: its values show on a GPU" in reference.output


def test_what_is_skipped_on_a_cpu_has_its_reason(reference: Ran) -> None:
    assert reference.report is not None
    skipped = [
        (assignment.name, case.message)
        for assignment in reference.report.assignments
        for part in assignment.parts
        for case in part.cases
        if case.outcome == "skipped"
    ]
    # CUDA C++ runs whole without a GPU: every access is checked there in every case, so only the tool that does it on a GPU has to wait.
    assert {reason for name, reason in skipped if name == "cuda_gelu"} == {
        "needs a GPU: a small input under NVIDIA's compute-sanitizer"
    }
    assert all("needs a GPU" in reason for _, reason in skipped)
    too_much = "needs a GPU: it would take Triton's CPU interpreter too long"
    assert ("softmax", f"{too_much}; its kernels were compiled for sm_90, sm_80, sm_86") in skipped
    assert not [reason for _, reason in skipped if "bfloat16" in reason]  # it is computed as on a GPU


def test_points_that_cannot_be_graded_are_not_lost(reference: Ran) -> None:
    assert reference.report is not None
    report = reference.report
    assert report.score.possible == 100
    assert report.speed.possible == 50
    assert report.speed.graded == 0
    assert report.score.earned == report.score.graded
    assert "50 points of speed are not graded (needs a CUDA GPU); they are not lost" in reference.output


def test_the_environment_names_what_ran(reference: Ran) -> None:
    assert reference.report is not None
    environment = reference.report.environment
    assert environment.device == "cpu"
    assert environment.torch == torch.__version__
    assert environment.triton
    assert reference.report.submission.sha256


def test_a_starter_scores_nothing_whether_it_was_touched_or_not(tmp_path: Path) -> None:
    """A comment added to a stub makes it no answer: it is run, and says so itself."""
    for touched in (False, True):
        for name, comment in (
            ("gelu.cu", "//"),
            ("triton_gelu.py", "#"),
            ("softmax.py", "#"),
            ("flash_attention.py", "#"),
        ):
            text = (ROOT / "starter" / name).read_text(encoding="utf-8")
            (tmp_path / name).write_text(f"{text}\n{comment} tomorrow\n" if touched else text, encoding="utf-8")
        report = judge(tmp_path, ROOT, tuple(one.name for one in load_course(ROOT)), "cpu")
        assert report.score.earned == 0
        outcomes = {case.outcome for case in cases(report)}
        assert outcomes - ({"skipped"} if touched else set()) == {"not_implemented"}


def test_every_assignment_has_answer_stub_and_handout() -> None:
    assignments = load_course(ROOT)
    assert sum(one.points for one in assignments) == 100
    for assignment in assignments:
        assert (ROOT / "reference" / assignment.spec.file).is_file()
        assert (ROOT / "starter" / assignment.spec.file).is_file()
        assert (assignment.folder / "README.md").is_file()
