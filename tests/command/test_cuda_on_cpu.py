"""`gelu.cu` graded without a GPU, through the real command line: the same words for the same mistakes, and nothing taken for one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import IMPORTS, ROOT, Ran, StartRun
from tests.support.corpus import cases
from tests.support.gelus import FAST, HALF, KERNEL, RIGHT
from tests.support.warm_judge import judge

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]

DEEP = "struct D { static float of(float v, int k) { volatile float w[9]; w[k % 9] = v; return w[0] + of(v, k + 1); } }; y[i] = D::of(v, i)"


def grade(start_run: StartRun, folder: Path, source: str) -> Ran:
    (folder / "gelu.cu").write_text(source)
    return start_run(folder, "--assignment", "cuda_gelu", "--device", "cpu").finish()


def test_fast_math_passes(tmp_path: Path) -> None:
    (tmp_path / "gelu.cu").write_text(KERNEL.replace("FORMULA", FAST))
    report = judge(tmp_path, ROOT, "cuda_gelu", "cpu")
    assert (report.correctness.earned, report.correctness.graded) == (10, 10)


@pytest.mark.parametrize(
    ("old", "new", "case", "outcome", "words"),
    [
        ("if (i < n)", "if (i <= n)", "n-1025", "failed", "reads x[1025], 1 past the last of its 1025 elements (line 8)"),
        ("if (n > 0) ", "", "n-0", "failed", "the launch failed: cudaErrorInvalidConfiguration"),
        ("(n + 255) / 256", "n / 256", "n-1025", "failed", "never written"),
        ("FORMULA", "0.5f * v * (1.0f + erff(v * 0.70710678f))", "n-1048579", "failed", "y["),
        ("FORMULA", RIGHT.replace("0.044715f", "0.044f"), "n-1048579", "failed", "y["),
        ("FORMULA", HALF, "n-1048579", "failed", "y["),
        ("FORMULA", "undefined_thing", "n-1", "build_failed", "undefined_thing"),
        ("float v = x[i];", "float v = x[i]; while (v == v) v = ((volatile float*)x)[0];", "n-1025", "timed_out", "no answer within"),
        ('extern "C" ', "", "n-1", "failed", 'is it declared extern "C"?'),
        ('"C" void gelu', '"C" void my_gelu', "n-1", "failed", "exports no function 'gelu', only my_gelu"),
        ('extern "C" void', "static void", "n-1", "failed", "exports no function 'gelu', and no other"),
        ("    if (n > 0)", "    *(int*)(4 * n) = 1; if (n > 0)", "n-1", "crashed", "host code follows a null pointer in line 13 (SIGSEGV)"),
        ("y[i] = FORMULA", "y[i] = 7 % int(blockIdx.x)", "n-1", "crashed", "device code divides an integer by 0 in line 9, called from"),
        ("y[i] = FORMULA", DEEP, "n-1", "crashed", "device code has filled a thread's stack in line 9"),
        ("    if (n > 0)", "    while (n > 0) n += 2; if (n > 0)", "n-1", "timed_out", 'File "gelu.cu", line 13, in gelu'),
        ("#include <cstdint>", "#include <mma.h>\nusing namespace nvcuda;", "n-1", "skipped", "line 5: nvcuda is not known to"),
        ("y[i] = FORMULA", "y[0] = FORMULA", "n-1025", "failed", "race"),
    ],
    ids=["past the end", "no blocks", "grid", "erf", "constant", "half", "compile", "endless", "C++ name",
         "name", "static", "null", "by zero", "recursion", "host loop", "header", "race"],
)  # fmt: skip
def test_wrong_kernels_are_told_what_is_wrong(
    tmp_path: Path, old: str, new: str, case: str, outcome: str, words: str
) -> None:
    assert old in KERNEL
    course = tmp_path / "course"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    toml = course / "assignments/cuda_gelu/problem.toml"
    toml.write_text(toml.read_text().replace("cpu = 20", "cpu = 4" if outcome == "timed_out" else "cpu = 20"))
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "gelu.cu").write_text(KERNEL.replace(old, new).replace("FORMULA", RIGHT))
    report = judge(folder, course, "cuda_gelu", "cpu", case=case)
    (result,) = [one for one in cases(report) if one.name == case]
    everything = "\n".join([result.message, *result.diagnosis, result.traceback])
    assert (result.outcome, words in everything) == (outcome, True), f"{result.outcome}: {everything}"


SLOW = RIGHT.replace("0.044715f", "0.044715")
NO_STREAM = "<<<(n + 255) / 256, 256>>>"


@pytest.mark.parametrize(("formula", "outcome"), [(SLOW, "passed"), (f"2 * {SLOW}", "failed")], ids=["right", "wrong"])
def test_hints_are_for_right_kernels(tmp_path: Path, formula: str, outcome: str) -> None:
    source = KERNEL.replace("FORMULA", formula).replace("<<<(n + 255) / 256, 256, 0, stream>>>", NO_STREAM)
    assert NO_STREAM in source
    (tmp_path / "gelu.cu").write_text(source)
    (graded,) = judge(tmp_path, ROOT, "cuda_gelu", "cpu", stop_early=True).assignments
    assert outcome in {case.outcome for part in graded.parts for case in part.cases}
    told = [
        "gelu.cu:13: the launch of kernel neither names `stream` nor waits for it, so on a GPU it may run before its inputs are there; "
        "this is graded on the GPU",
        "gelu.cu:9: computed in double precision, which is slower than float on every GPU: write 0.044715f, "
        "for without the f each is a double",
    ]
    assert list(graded.hints) == (told if outcome == "passed" else [])


@pytest.mark.parametrize(
    ("formula", "all_earned", "graded", "earned", "note"),
    [
        ("0.0f * (v > 1.0f)", 0, 0, 0, "its values show on a GPU only, and other cases went wrong"),
        (RIGHT, 10, 1.5, 1.5, ""),
    ],
    ids=["zeros", "right"],
)
def test_values_that_nobody_saw_earn_points_only_where_the_others_were_right(
    start_run: StartRun, tmp_path: Path, formula: str, all_earned: float, graded: float, earned: float, note: str
) -> None:
    ran = grade(start_run, tmp_path, KERNEL.replace("FORMULA", formula))
    assert ran.report is not None
    assert ran.report.correctness.earned == all_earned, ran.output
    assert ran.left == []
    (part,) = ran.report.assignments[0].parts
    (huge,) = [group for group in part.groups if group.name == "huge"]
    assert [case.outcome for case in huge.cases] == ["passed"]
    assert (huge.points.earned, huge.points.graded, huge.points.possible) == (earned, graded, 1.5)
    assert "beyond-2-31: only where it reads and writes was looked at: its values show on a GPU" in ran.output
    assert note in ran.output
    assert ("other cases went wrong" in ran.output) == bool(note)


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
