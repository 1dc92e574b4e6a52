"""A CUDA assignment with a signature of its own, `tests/support/row_sum`, on a GPU: built by nvcc and called through ctypes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, Running

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

ROW_SUM = ROOT / "tests" / "support" / "row_sum"
SOURCE = (ROW_SUM / "reference" / "row_sum.cu").read_text()
TORCH_FORM = """
#include <torch/extension.h>
torch::Tensor row_sum(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    if (x.size(0) > 0) sum_kernel<<<(x.size(0) + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
"""
WRONG = {
    "one column short": (("i < cols;", "i < cols - 1;"), "y[0] is the first wrong element"),
    "another stream": ((", 0, stream>>>", ">>>"), "a launch on another stream than the given one"),
}


def grade(folder: Path, source: str) -> Running:
    course, submission = folder / "course", folder / "submission"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROW_SUM, course, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    submission.mkdir()
    (submission / "row_sum.cu").write_text(source)
    return Running(folder, [str(submission), "--course", str(course), "--assignment", "row_sum", "--device", "cuda"])


@pytest.mark.parametrize("form", ["c", "torch"])
def test_a_right_row_sum_earns_all_points(tmp_path: Path, form: str) -> None:
    kernel, declared, _ = SOURCE.partition('extern "C"')
    assert declared
    ran = grade(tmp_path, SOURCE if form == "c" else kernel + TORCH_FORM).finish(400)
    assert ran.code == 0, ran.errors
    assert ran.report is not None
    assert (ran.report.score.earned, ran.report.score.graded) == (4, 4), ran.output


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_row_sum_is_told_what_is_wrong(tmp_path: Path, name: str) -> None:
    (old, new), words = WRONG[name]
    assert old in SOURCE
    case = grade(tmp_path, SOURCE.replace(old, new)).finish(400).case("row_sum", "33x1025")
    assert case.outcome == "failed", case
    assert words in "\n".join([case.message, *case.diagnosis]), case
