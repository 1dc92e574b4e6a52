"""What only a GPU can show: CUDA IPC, real kernels that hang, crash or take too much, and the reference at full size."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from grader.nvidia import gpus
from tests.conftest import ROOT, Course, Ran, Running, StartRun

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)
# These tests ask no question of torch.cuda: a process that has done so counts as another program on the GPU until it ends.


# The course itself ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Running(tmp_path_factory.mktemp("reference"), [str(ROOT / "reference")]).finish(400)


def test_the_reference_passes_every_case(reference: Ran) -> None:
    assert reference.code == 0, reference.errors + reference.output
    assert reference.report is not None
    query = ["nvidia-smi", f"--id={gpus()[0].uuid}", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    free_gib = int(subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout) / 2**10
    for assignment in reference.report.assignments:
        for part in assignment.parts:
            for case in part.cases:
                small = case.outcome == "skipped" and "GiB of GPU memory" in case.message and free_gib < 24
                assert case.outcome == "passed" or small, f"{assignment.name} {part.name} {case.name}: {case.message}"
    assert reference.report.correctness.earned == 50
    assert reference.left == []


def test_the_reference_reaches_every_band_and_is_believed(reference: Ran) -> None:
    assert reference.report is not None
    cases = [case for one in reference.report.assignments for part in one.parts for case in part.speed.cases]
    assert len(cases) == 8
    for case in cases:
        assert case.outcome == "passed", f"{case.name}: {case.message}"
        assert case.measured is not None
        assert case.measured.corroborated, case.measured.flags
        assert case.points.earned == case.points.possible, (case.name, case.bands)


def test_the_report_names_the_gpu(reference: Ran) -> None:
    assert reference.report is not None
    environment = reference.report.environment
    assert environment.gpu == gpus()[0].name
    assert environment.driver
    assert environment.nvcc
    assert environment.cuda == torch.version.cuda


# Faults of Triton and PyTorch code -----------------------------------------------------------------------------------

CASES = {
    "right-first": "return x * 2",
    "illegal-access": "far[(1,)](x, 1 << 44); return x * 2",
    "right-1": "return x * 2",
    "endless-kernel": "endless[(1,)](x); return x * 2",
    "right-2": "return x * 2",
    "all-gpu-memory": "hoard = [torch.empty(1 << 30, device='cuda', dtype=torch.uint8) for _ in range(400)]; return x * 2",
    "right-3": "return x * 2",
    "on-the-cpu": "return (x * 2).cpu()",
    "unwritten": "return torch.empty_like(x)",
    "partly-unwritten": "y = torch.empty_like(x); y[:3] = x[:3] * 2; return y",
    "write-past-its-input": "far[(1,)](x, 4 * x.numel()); return x * 2",
    "side-stream": "y = torch.empty_like(x); s = torch.cuda.Stream(); s.wait_stream(torch.cuda.current_stream())\n"
    "    with torch.cuda.stream(s): torch.mul(x, 2, out=y)\n    torch.cuda.current_stream().wait_stream(s); return y",
    "compile-error": "broken[(1,)](x); return x * 2",
    "killed-mid-kernel": "endless[(1,)](x); os._exit(7)",
    "right-last": "return x * 2",
}
PRELUDE = """
import os
import torch, triton, triton.language as tl

@triton.jit
def far(x, offset):
    tl.store((x.to(tl.int64) + offset).to(tl.pointer_type(tl.float32)), 1.0)

@triton.jit
def endless(x):
    value = tl.atomic_add(x, 0.0)
    while value == value:
        value = tl.atomic_add(x, 0.0)

@triton.jit
def broken(x):
    tl.store(x, undefined_thing)

def double(x):
    return CASES[x.numel() - 10](x)

"""
EXPECTED = {
    "illegal-access": ("crashed", "illegal memory access"),
    "endless-kernel": ("timed_out", "no answer within"),
    "all-gpu-memory": ("out_of_memory", "out of memory"),
    "on-the-cpu": ("failed", "lies on cpu, expected cuda"),
    "unwritten": ("failed", "never written"),
    "partly-unwritten": ("failed", "y[3] is the first wrong element: expected"),
    "write-past-its-input": ("failed", "wrote 1 element past the end of x, from 0 past it"),
    "side-stream": ("passed", ""),
    "compile-error": ("failed", "undefined_thing is not defined"),
    "killed-mid-kernel": ("crashed", "exit code 7"),
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("faults")
    course = Course(folder / "course")
    course.add("faults", list(CASES), limit_s=6)
    submission = folder / "submission"
    submission.mkdir()
    functions = "".join(f"def f{index}(x):\n    {body}\n\n" for index, body in enumerate(CASES.values()))
    table = f"CASES = [{', '.join(f'f{index}' for index in range(len(CASES)))}]\n"
    (submission / "faults.py").write_text(PRELUDE + functions + table)
    arguments = [str(submission), "--course", str(course.folder), "--device", "cuda", "--no-speed"]
    return Running(folder, arguments).finish()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_on_the_gpu_has_its_outcome_and_its_words(faults: Ran, name: str) -> None:
    outcome, words = EXPECTED[name]
    case = faults.case("faults", name)
    everything = "\n".join([case.message, *case.diagnosis])
    assert (case.outcome, words in everything) == (outcome, True), f"{case.outcome}: {everything}"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("right")])
def test_cases_beside_a_fault_are_graded_as_usual(faults: Ran, name: str) -> None:
    assert faults.case("faults", name).outcome == "passed", faults.case("faults", name).message


def test_nothing_is_left_on_machine_and_gpu(faults: Ran) -> None:
    assert faults.left == []
    # Only on this GPU: on others somebody else may grade.
    query = ["nvidia-smi", f"--id={gpus()[0].uuid}", "--query-compute-apps=pid", "--format=csv,noheader"]
    used = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert not [
        pid for pid in used if Path(f"/proc/{pid}").exists() and "grader" in Path(f"/proc/{pid}/cmdline").read_text()
    ]


# FlashAttention ------------------------------------------------------------------------------------------------------


def test_a_matrix_of_all_scores_fails_the_memory_case(start_run: StartRun, tmp_path: Path) -> None:
    """Where PyTorch's own operators are nobody's business."""
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, tmp_path / "course" / room)
    toml = tmp_path / "course/assignments/flash_attention/problem.toml"
    toml.write_text(re.sub(r"(?ms)^\[policy\]$.*?(?=^\[)", "", toml.read_text()))
    submission = tmp_path / "submission"
    submission.mkdir()
    (submission / "flash_attention.py").write_text(
        "import math\nimport torch\n\n"
        "def flash_attention(q, k, v, is_causal=False):\n"
        "    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])\n"
        "    if is_causal:\n"
        "        scores = scores + torch.full(scores.shape[-2:], float('-inf'), device=q.device, dtype=q.dtype).triu(1)\n"
        "    return torch.softmax(scores, -1) @ v\n"
    )
    course = str(tmp_path / "course")
    ran = start_run(submission, "--course", course, "--assignment", "flash_attention", "--no-speed").finish()
    assert ran.report is not None
    for part in ran.report.assignments[0].parts:
        by_name = {case.name: case for case in part.cases}
        assert by_name["memory"].outcome == "failed"
        assert "matrix of all scores" in by_name["memory"].message
        assert by_name["n-1024"].outcome == "passed", by_name["n-1024"].message
        assert by_name["bfloat16"].outcome == "passed"
