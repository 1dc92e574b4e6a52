"""`gelu.cu` graded without a GPU: the same words for the same mistakes, and nothing taken for one.

tests/corpora/mutants/cuda_gelu has what a kernel computes wrongly and where it reads beyond its inputs; this file has what keeps one
from being called.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.report.model import AssignmentResult
from tests.conftest import IMPORTS, ROOT, Course, in_cuda, problem_toml
from tests.support.gelus import KERNEL
from tests.support.warm_judge import judge

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]

RIGHT = "2 * v"
DEEP = "struct D { static float of(float v, int k) { volatile float w[9]; w[k % 9] = v; return w[0] + of(v, k + 1); } }; y[i] = D::of(v, i)"
# Replacements in the kernel, and what is said of it.
WRONG = {
    "compile": ("FORMULA", "undefined_thing", "build_failed", "undefined_thing"),
    "name": ('"C" void gelu', '"C" void my_gelu', "failed", "exports no function 'gelu', only my_gelu"),
    "cpp_name": ('extern "C" ', "", "failed", 'is it declared extern "C"?'),
    "static": ('extern "C" void', "static void", "failed", "exports no function 'gelu', and no other"),
    "null": ("    if (n > 0)", "    *(int*)(4 * n - 40) = 1; if (n > 0)", "crashed", "host code follows a null pointer in line 13"),
    "by_zero": ("y[i] = FORMULA", "y[i] = 7 % int(blockIdx.x)", "crashed", "device code divides an integer by 0 in line 9, called from"),
    "recursion": ("y[i] = FORMULA", DEEP, "crashed", "device code has filled a thread's stack in line 9"),
    "host_loop": ("    if (n > 0)", "    while (n > 0) n += 2; if (n > 0)", "timed_out", 'File "host_loop.cu", line 13, in gelu'),
    "header": ("#include <cstdint>", "#include <mma.h>\nusing namespace nvcuda;", "skipped", "line 5: nvcuda is not known to"),
}  # fmt: skip
NO_STREAM = ("<<<(n + 255) / 256, 256, 0, stream>>>", "<<<(n + 255) / 256, 256>>>")
# Launched without the stream and computed in double precision: a right kernel and a wrong one.
HINTED = {"right": f"{RIGHT} + 0.044715 * (v - v)", "wrong": "3 * v + 0.044715 * (v - v)"}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AssignmentResult]:
    """What is said of each: all are assignments of one course."""
    folder = tmp_path_factory.mktemp("cuda")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    sources = {name: KERNEL.replace(old, new) for name, (old, new, _, _) in WRONG.items()}
    sources |= {name: KERNEL.replace(*NO_STREAM).replace("FORMULA", formula) for name, formula in HINTED.items()}
    for name, source in sources.items():
        assert source != KERNEL
        toml = in_cuda(problem_toml(f"{name}.cu", ["plain"], limit_s=3 if name == "host_loop" else 20))
        course.add(name, toml=toml.replace("double_it", "gelu"))
        (course.folder / "reference" / f"{name}.cu").write_text(KERNEL.replace("FORMULA", RIGHT))
        (submission / f"{name}.cu").write_text(source.replace("FORMULA", RIGHT))
    return {one.name: one for one in judge(submission, course.folder, tuple(sources), "cpu").assignments}


@pytest.mark.parametrize("name", WRONG)
def test_what_keeps_a_kernel_from_an_answer_is_told(graded: dict[str, AssignmentResult], name: str) -> None:
    _, _, outcome, words = WRONG[name]
    (result,) = graded[name].parts[0].cases
    everything = "\n".join([result.message, *result.diagnosis, result.traceback])
    assert (result.outcome, words in everything) == (outcome, True), f"{result.outcome}: {everything}"


def test_hints_are_for_right_kernels(graded: dict[str, AssignmentResult]) -> None:
    right, wrong = (graded[name] for name in HINTED)
    assert [case.outcome for one in (right, wrong) for case in one.parts[0].cases] == ["passed", "failed"]
    assert list(right.hints) == [
        "right.cu:13: the launch of kernel neither names `stream` nor waits for it, so on a GPU it may run before its inputs are there; "
        "this is graded on the GPU",
        "right.cu:9: computed in double precision, which is slower than float on every GPU: write 0.044715f, "
        "for without the f each is a double",
    ]
    assert list(wrong.hints) == []


def test_values_that_nobody_saw_earn_no_points_where_others_were_wrong(tmp_path: Path) -> None:
    """Of the reference they earn them: tests/command/test_course.py."""
    (tmp_path / "gelu.cu").write_text(KERNEL.replace("FORMULA", "0.0f * (v > 1.0f)"))
    report = judge(tmp_path, ROOT, "cuda_gelu", "cpu")
    assert report.correctness.earned == 0
    (part,) = report.assignments[0].parts
    (huge,) = [group for group in part.groups if group.name == "huge"]
    assert [case.outcome for case in huge.cases] == ["passed"]
    assert (huge.points.earned, huge.points.graded, huge.points.possible) == (0, 0, 1.5)
    assert huge.note == "not graded: its values show on a GPU only, and other cases went wrong"


def test_without_a_compiler_it_is_skipped_and_says_how_to_get_one(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CXX"}
    done = subprocess.run(
        [sys.executable, "-m", "grader", "run", str(ROOT / "reference"), "-a", "cuda_gelu", "--device", "cpu"],
        cwd=tmp_path,
        env=environment | {"PATH": str(tmp_path), "PYTHONPATH": IMPORTS},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "no C++ compiler was found: install g++" in done.stdout
    assert "0 of 0 points graded" in done.stdout
