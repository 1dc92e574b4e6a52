"""nvcc without a GPU: what it tells is shown, what it refuses is a failed build, and where it is broken it is left out."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from grader.report.model import AssignmentResult
from tests.command.test_canary import DOUBLE_IT
from tests.conftest import Course, Ran, Running, in_cuda, problem_toml

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"),
]

MINE = "// handed in"  # which the staff's file does not say
# For all but `told`: by the file that it is given, what nvcc does here.
DOES = {
    "refused": f"grep -q '{MINE}' refused.cu || exit 0; echo 'refused.cu(7): error: a nonstandard use' >&2; exit 2",
    "refused_alike": "echo 'refused_alike.cu(7): error: a nonstandard use' >&2; exit 2",
    "header": "echo '/usr/include/math.h(3): error: not mine' >&2; exit 1",
    "host_compiler": "echo '#error -- unsupported GNU version! gcc versions later than 14' >&2; exit 1",
}
# Leaves the PTX of a line in double precision where nvcc's --keep-dir says, and says what ptxas would.
TOLD = """\
for option; do case $option in --keep-dir=*) kept=${option#--keep-dir=};; esac; done
cat > "$kept/told.ptx" <<END
	.loc	1 20 5
	cvt.f64.f32 	%fd1, %f1;
	mul.f64 	%fd2, %fd1, 0d3FB999999999999A;
	.file	1 "$PWD/told.cu"
END
cat >&2 <<'END'
ptxas info    : Compiling entry function '_Z11gelu_kernelPKfPfl' for 'sm_90'
ptxas info    : Function properties for _Z11gelu_kernelPKfPfl
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
END
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nvcc")


@pytest.fixture(scope="module")
def ran(folder: Path) -> Ran:
    """Right kernels, graded on the CPU of a machine whose nvcc is a shell script."""
    course, mine, programs = Course(folder / "course"), folder / "mine", folder / "bin"
    mine.mkdir()
    programs.mkdir()
    cases = "".join(f"*{name}.cu*) {does} ;;\n" for name, does in DOES.items())
    asks = f"echo \"$@\" >> '{folder}/asked'"
    script = f'#!/bin/sh\n[ "$1" = --version ] && exit\ncase "$*" in\n{cases}*) {asks}\n{TOLD};;\nesac\n'
    (programs / "nvcc").write_text(script)
    (programs / "nvcc").chmod(0o755)
    source = "\n" * 16 + DOUBLE_IT  # whose line 20 is the kernel
    for name in ("told", *DOES):
        course.add(name, toml=in_cuda(problem_toml(f"{name}.cu", ["plain"])))
        (course.folder / "reference" / f"{name}.cu").write_text(source)
        (mine / f"{name}.cu").write_text(f"{source}\n{MINE}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        options = [str(mine), "--course", str(course.folder), "--device", "cpu"]
        return Running(folder / "run", options, jailed=False).finish()


def graded(ran: Ran, name: str) -> AssignmentResult:
    assert ran.report is not None, ran.errors
    return next(one for one in ran.report.assignments if one.name == name)


def test_registers_spills_and_shared_memory_are_shown(ran: Ran, folder: Path) -> None:
    told = graded(ran, "told")
    assert told.parts[0].points.earned == 4
    (kernel,) = told.kernels
    assert (kernel.name, kernel.registers, kernel.shared_bytes) == ("gelu_kernel", 32, 1024)
    assert re.search(r"compiled for +sm_90\b", ran.output)
    assert re.search(r"gelu_kernel +32 regs, 1 KiB, 116 B spilled", ran.output)
    doubles, spills = told.hints
    assert doubles.startswith("told.cu:20: computed in double precision")
    assert spills.startswith("told.cu: gelu_kernel has too few registers for its values and spills 116 bytes")
    assert "hint: told.cu:20: computed in double" in ran.output
    assert "-arch=sm_90" in (folder / "asked").read_text()


def test_what_nvcc_refuses_would_fail_on_the_gpu_too(ran: Ran) -> None:
    case = ran.case("refused", "plain")
    assert (case.outcome, case.message) == ("build_failed", "refused.cu(7): error: a nonstandard use")


def test_what_nvcc_refuses_of_the_staffs_file_too_is_the_machines_fault(ran: Ran) -> None:
    assert ran.code == 3
    assert ran.case("refused_alike", "plain").outcome == "infra_error"


@pytest.mark.parametrize("name", ["header", "host_compiler"])
def test_an_nvcc_that_does_not_work_accuses_nobody(ran: Ran, name: str) -> None:
    found = graded(ran, name)
    assert found.parts[0].points.earned == 4
    assert found.kernels == ()
    assert "nvcc does not work here" in found.log.text
