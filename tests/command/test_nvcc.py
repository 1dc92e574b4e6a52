"""nvcc without a GPU: what it tells is shown, what it refuses is a failed build, and where it is broken it is left out."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, Ran, StartRun

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]

MINE = "// handed in"  # which the staff's file does not say
TOLD = """\
ptxas info    : Compiling entry function '_Z11gelu_kernelPKfPfl' for 'sm_90'
ptxas info    : Function properties for _Z11gelu_kernelPKfPfl
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
"""


# Leaves the PTX of a line in double precision where nvcc's --keep-dir says.
KEEPS = """\
for option; do case $option in --keep-dir=*) kept=${option#--keep-dir=};; esac; done
cat > "$kept/gelu.ptx" <<END
	.loc	1 20 5
	cvt.f64.f32 	%fd1, %f1;
	mul.f64 	%fd2, %fd1, 0d3FB999999999999A;
	.file	1 "$PWD/gelu.cu"
END
"""


def grade(start_run: StartRun, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Ran:
    """The reference, graded on the CPU of a machine whose nvcc is the given shell script."""
    programs, mine = folder / "bin", folder / "mine"
    programs.mkdir()
    mine.mkdir()
    (programs / "nvcc").write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit\necho "$@" > \'{folder}/asked\'\n{script}\n'
    )
    (programs / "nvcc").chmod(0o755)
    source = (ROOT / "reference" / "gelu.cu").read_text(encoding="utf-8")
    (mine / "gelu.cu").write_text(f"{source}\n{MINE}\n", encoding="utf-8")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return start_run(mine, "--assignment", "cuda_gelu", "--device", "cpu", jailed=False).finish()


def test_registers_spills_and_shared_memory_are_shown(
    start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = grade(start_run, tmp_path, monkeypatch, f"{KEEPS}cat >&2 <<'END'\n{TOLD}END")
    assert ran.report is not None
    assert ran.report.correctness.earned == 10
    (kernel,) = ran.report.assignments[0].kernels
    assert (kernel.name, kernel.registers, kernel.shared_bytes) == ("gelu_kernel", 32, 1024)
    assert re.search(r"compiled for +sm_90\b", ran.output)
    assert re.search(r"gelu_kernel +32 regs, 1 KiB, 116 B spilled", ran.output)
    doubles, spills = ran.report.assignments[0].hints
    assert doubles.startswith("gelu.cu:20: computed in double precision")
    assert spills.startswith("gelu.cu: gelu_kernel has too few registers for its values and spills 116 bytes")
    assert "hint: gelu.cu:20: computed in double" in ran.output
    assert "-arch=sm_90" in (tmp_path / "asked").read_text()


def test_what_nvcc_refuses_would_fail_on_the_gpu_too(
    start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = grade(
        start_run,
        tmp_path,
        monkeypatch,
        f"grep -q '{MINE}' gelu.cu || exit 0; echo 'gelu.cu(7): error: a nonstandard use' >&2; exit 2",
    )
    case = ran.case("cuda_gelu", "n-1")
    assert (case.outcome, case.message) == ("build_failed", "gelu.cu(7): error: a nonstandard use")


def test_what_nvcc_refuses_of_the_staffs_file_too_is_the_machines_fault(
    start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = grade(start_run, tmp_path, monkeypatch, "echo 'gelu.cu(7): error: a nonstandard use' >&2; exit 2")
    assert ran.code == 3
    assert ran.case("cuda_gelu", "n-1").outcome == "infra_error"


@pytest.mark.parametrize(
    "words",
    ["/usr/include/math.h(3): error: not mine", "#error -- unsupported GNU version! gcc versions later than 14"],
    ids=["a header", "the host compiler"],
)
def test_an_nvcc_that_does_not_work_accuses_nobody(
    start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    ran = grade(start_run, tmp_path, monkeypatch, f"echo '{words}' >&2; exit 1")
    assert ran.report is not None
    assert ran.report.correctness.earned == 10
    assert ran.report.assignments[0].kernels == ()
    assert "nvcc does not work here" in ran.report.assignments[0].log.text
