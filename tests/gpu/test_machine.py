"""On a GPU: tools that do not work are the machine's fault, and what no GPU launches is the student's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from tests.command.test_canary import SAYS, broken
from tests.conftest import ROOT, Ran, StartRun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

HUGE_BLOCK = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, y_ptr, n, block: tl.constexpr):
    i, k = tl.arange(0, block), tl.arange(0, 2 * block)
    a = tl.load(x_ptr + i[:, None] + k[None, :])
    b = tl.load(x_ptr + k[:, None] + i[None, :])
    tl.store(y_ptr + i[:, None] * block + i[None, :], tl.dot(a, b))


def triton_gelu(x):
    y = torch.empty_like(x)
    product[(1,)](x, y, x.numel(), 128)
    return y
"""
BAD_LAUNCH = """
__global__ void k(const float* x, float* y, int64_t n) {}
extern "C" void gelu(const float* x, float* y, int64_t n, cudaStream_t s) { k<<<1, 4096, 0, s>>>(x, y, n); }
"""


def graded(start_run: StartRun, folder: Path, files: dict[str, str | None], *assignments: str) -> Ran:
    """A submission of these files, or of the staff's where None."""
    mine = folder / "mine"
    mine.mkdir()
    for name, source in files.items():
        text = (ROOT / "reference" / name).read_text(encoding="utf-8") if source is None else source
        (mine / name).write_text(text, encoding="utf-8")
    chosen = [word for name in assignments for word in ("--assignment", name)]
    return start_run(mine, *chosen, "--device", "cuda", "--no-speed", "--quick", jailed=False).finish()


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("ld", ("softmax.py", "gelu.cu")),
        ("gcc", ("softmax.py",)),
        ("nvcc", ("gelu.cu",)),
        ("ptxas", ("triton_gelu.py",)),
    ],
)
def test_a_tool_that_does_not_work_takes_points_from_nobody(
    start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: tuple[str, ...]
) -> None:
    tool = broken(tmp_path, name)
    if name == "ptxas":  # Triton brings one of its own
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(tool))
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    if name == "gcc":
        monkeypatch.setenv("CC", str(tool))  # which Triton asks first
    if name == "nvcc":
        monkeypatch.delenv("CUDA_HOME", raising=False)
        monkeypatch.delenv("CUDA_PATH", raising=False)
    assignments = {"softmax.py": "softmax", "gelu.cu": "cuda_gelu", "triton_gelu.py": "triton_gelu"}
    ran = graded(start_run, tmp_path, dict.fromkeys(files), *(assignments[file] for file in files))
    assert ran.report is not None, ran.errors
    assert ran.code == 3, ran.output
    assert ran.report.score.earned == ran.report.score.graded, ran.output
    outcomes = {case.outcome for one in ran.report.assignments for part in one.parts for case in part.cases}
    assert outcomes <= {"passed", "skipped", "infra_error"}
    assert "infra_error" in outcomes
    assert SAYS in ran.output or "returned non-zero exit status" in ran.output
    assert "grader doctor:" in ran.output


def test_what_a_student_asks_of_a_gpu_that_it_has_not_is_theirs(start_run: StartRun, tmp_path: Path) -> None:
    files = {"triton_gelu.py": HUGE_BLOCK, "gelu.cu": BAD_LAUNCH}
    ran = graded(start_run, tmp_path, files, "triton_gelu", "cuda_gelu")
    assert ran.report is not None, ran.errors
    assert ran.code == 0, ran.output
    assert ran.report.score.earned == 0
    assert ran.case("cuda_gelu", "n-1").outcome == "failed"
    outcomes = {case.outcome for part in ran.report.assignments[1].parts for case in part.cases}
    assert "infra_error" not in outcomes | {
        case.outcome for part in ran.report.assignments[0].parts for case in part.cases
    }


def test_a_submission_that_fills_its_scratch_condemns_nobody_but_itself(start_run: StartRun, tmp_path: Path) -> None:
    assert shutil.which("nvcc"), "these tests need the CUDA toolkit"
    hog = (
        (ROOT / "reference" / "softmax.py")
        .read_text(encoding="utf-8")
        .replace(
            "import torch\n",
            "import os\nimport torch\n\nfor _number in range(120_000):\n"
            "    open(os.path.join(os.environ['TMPDIR'], f'{_number}'), 'w').close()\n",
            1,
        )
    )
    ran = graded(start_run, tmp_path, {"softmax.py": hog}, "softmax")
    assert ran.report is not None, ran.errors
    assert ran.code == 0, ran.output
    assert ran.report.score.earned == 0
