"""A case whose tensors leave no room for a second copy is graded in pieces, and nothing is missed at their edges."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.report.model import CaseResult
from tests.command.test_faults import PRELUDE
from tests.conftest import PROBLEM, Course, problem_toml
from tests.support.corpus import cases, words
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

PIECES = """

def pieces(params, count):
    step = -(-params.n // count)
    return [params.model_copy(update={"n": min(step, params.n - start)}) for start in range(0, params.n, step)]
"""


def graded(folder: Path, body: str, count: int = 4) -> CaseResult:
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    toml = problem_toml("task.py", ["plain"]).replace("n = 10", f"n = 10, pieces = {count}")
    course.add("task", toml=toml, problem=PROBLEM + PIECES)
    (submission / "task.py").write_text(f"{PRELUDE}\ndef double(x):\n    {body}\n")
    (case,) = cases(judge(submission, course.folder, "task", "cpu"))
    return case


@pytest.mark.parametrize("count", [2, 4, 10])
def test_a_right_answer_passes_and_its_worst_error_is_told(tmp_path: Path, count: int) -> None:
    case = graded(tmp_path, "y = x * 2; y[4] *= 1 + 2e-7; return y", count)
    assert case.outcome == "passed", words(case)
    (error,) = case.errors
    assert 1e-8 < error.worst < 1e-6


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("y = x * 2; y[9] = 0; return y", "y[9] is the first wrong element"),
        ("y = x * 2; y[3:] = 0; return y", "y[3] is the first wrong element"),
        ("y = x * 2; y[0] = 0; return y", "y[0] is the first wrong element"),
        ("y = x * 2; y[7:] = 0; return y", "everything before that is right"),
        ("y = x * 2; x[9] = 0; return y", "the input x was changed"),
        ("y = x * 2; x[0] = -0.0; return y", "the input x was changed"),
        ("y = x * 2; ctypes.memset(x.data_ptr() + 4 * x.numel(), 0, 8); return y", "past the end of x"),
        ("return (x * 2)[:9]", "y has shape (9,), expected (10,)"),
        ("return torch.cat([x[:3] * 2, x[:3] * 2, x[:3] * 2, x[:1] * 2])", "y[3] is the first wrong element"),
    ],
)
def test_a_wrong_one_is_found_in_whatever_piece_and_told_by_its_place_in_the_whole(
    tmp_path: Path, body: str, told: str
) -> None:
    case = graded(tmp_path, body)
    assert case.outcome == "failed"
    assert told in words(case)
