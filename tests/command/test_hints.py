"""Each slip of `tests/support/slips.py` is made, and what comes out has its hint below it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grader.nvidia import find_nvcc
from grader.pool.fault import Fault
from grader.pool.replies import build_fault, fault_of
from grader.protocol import WorkerError
from grader.verdict.hints import HINTS, hint_for
from grader.verdict.policy import about_import
from grader.worker import nvcc
from grader.worker.cuda_cpu import build
from tests.conftest import ROOT
from tests.support.corpus import cases
from tests.support.slips import CUDA, TRITON
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

# What g++ takes for right: only nvcc knows what is wrong with it, or the CPU's CUDA says so itself.
NVCC_ALONE = {
    "global-missing",
    "host-function",
    "kernel-returns",
    "launch-forgotten",
    "overload-of-a-half",
    "shared-size",
    "shared-too-large",
    "shared-initialised",
}


def hint_of(fault: Fault) -> str:
    return hint_for(about_import(fault.message, fault.traceback), fault.traceback)


@pytest.mark.parametrize("how", ["cpu", "compile"])
def test_slips_in_triton(how: str, tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.slips", how],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    slips = [one for one in TRITON if how in one.how.split()]
    wrong = []
    for slip, told in zip(slips, json.loads(ran.stdout), strict=True):
        fault = fault_of(WorkerError(**told)) if told else None
        hidden = (
            fault is not None and fault.outcome == "crashed" and slip.how == how == "compile"
        )  # taken for the machine's
        if fault is None or hidden or hint_of(fault) != slip.hint:
            wrong.append((slip.hint, fault and hint_of(fault), fault and fault.message, fault and fault.traceback))
    assert not wrong


def not_hinted(compile_it: Callable[[Path], str], slips: Sequence[tuple[str, str]], scratch: Path) -> list[object]:
    """Those of the slips in CUDA whose error has another hint.

    compile_it: gives the compiler's words about the file at a path.
    """

    def fault(number: int) -> Fault:
        file = scratch / str(number) / "gelu.cu"
        file.parent.mkdir()
        file.write_text(slips[number][1])
        return build_fault(compile_it(file))

    with ThreadPoolExecutor(2) as pool:
        faults = list(pool.map(fault, range(len(slips))))
    found = [(hint, hint_of(one), one.message) for (hint, _), one in zip(slips, faults, strict=True)]
    return [one for one in found if one[0] != one[1]]


def test_slips_in_cuda_by_nvcc(tmp_path: Path) -> None:
    compiler = find_nvcc()
    if compiler is None:
        pytest.skip("needs nvcc")

    def compile_it(file: Path) -> str:
        try:
            return nvcc.TrialBuild(file, compiler, "sm_90", file.parent, 120.0).finish()
        except nvcc.CompileError as error:
            return str(error)

    assert not not_hinted(compile_it, CUDA, tmp_path)


def test_slips_in_cuda_by_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    monkeypatch.setattr(build, "RUNTIME", Path(__file__))  # what the submission would be linked with: none gets so far

    def compile_it(file: Path) -> str:
        try:
            build.compile_library(file, file.parent, compiler, 120.0)
        except build.BuildFailed as error:
            return str(error)
        return ""

    slips = [one for one in CUDA if one[0] not in NVCC_ALONE and "__bfloat162float" not in one[1]]
    assert not not_hinted(compile_it, slips, tmp_path)


def test_every_hint_has_a_slip() -> None:
    assert set(HINTS) == {one.hint for one in TRITON} | {hint for hint, _ in CUDA}


def test_words_of_the_grader_get_no_hint() -> None:
    for words in (
        "the input x was changed: the function must leave its inputs as they are",
        "wrote 3 elements past the end of y, from 0 past it: consistent with a missing mask or bounds check",
        "ValueError: softmax wants two dimensions",
        "y has shape (3,), expected (4,)",
        "the process ended: an exception of C++ was thrown and not caught: std::runtime_error: empty",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'config.yaml'",
    ):
        assert hint_for(words, '  File "softmax.py", line 7, in softmax\n    y = helper(x)\n') == ""


def test_the_shape_of_a_tensor_is_no_pointers() -> None:
    place = '  File "softmax.py", line 7, in softmax\n    n = x.shape[0] * x.shape[1]\n'
    assert hint_for("IndexError: tuple index out of range", place) == ""


def test_a_failed_case_shows_its_hint_below_the_error(tmp_path: Path) -> None:
    (slip,) = (one for one in TRITON if "x ** 2" in one.source)
    (tmp_path / "softmax.py").write_text(slip.source.replace("def double", "def softmax"))
    case = next(
        one for one in cases(judge(tmp_path, ROOT, "softmax", "cpu", stop_early=True)) if one.outcome == "failed"
    )
    assert "** or pow()" in case.message
    assert HINTS[slip.hint].words in case.diagnosis
