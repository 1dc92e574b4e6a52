"""A broken machine is never a student's zero: the staff's file is asked where the submission's failed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.assignment import USUAL_IMPORTS, load_course
from grader.pool.cuda_cpu import provide_runtime
from grader.pool.pool import stage_runtime
from grader.report.model import AssignmentResult
from grader.worker import errors
from tests.command.test_compilation import RIGHT_IN_TRITON, compilable
from tests.conftest import IMPORTS, ROOT, TWICE, Course, StartRun, in_cuda, problem_toml
from tests.support.corpus import cases
from tests.support.warm_judge import judge

pytestmark = [pytest.mark.grading, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]
SAYS = "cannot work on this machine"


def broken(folder: Path, name: str) -> Path:
    """A program of this name that tells its version and does no work; Triton asks its ptxas for the release."""
    tells = "echo release 12.8, V12.8.93" if name == "ptxas" else f"{shutil.which(name) or 'true'} --version"
    path = folder / name
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then {tells}; exit; fi\necho "{name}: {SAYS}" >&2\nexit 1\n')
    path.chmod(0o755)
    return path


DOUBLE_IT = """
#include <cuda_runtime.h>
#include <cstdint>
__global__ void kernel(const float* x, float* y, int64_t n) { if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x]; }
extern "C" void double_it(const float* x, float* y, int64_t n, cudaStream_t stream) { kernel<<<1, 32, 0, stream>>>(x, y, n); }
"""


def submission(folder: Path, source: str, name: str = "task.py") -> Path:
    mine = folder / "mine"
    mine.mkdir(exist_ok=True)
    (mine / name).write_text(source)
    return mine


@pytest.fixture
def in_cpp(course: Course, tmp_path: Path) -> list[object]:
    """What names a right file to an assignment in CUDA C++ with one case, as arguments of `grader run`."""
    course.add("task", toml=in_cuda(problem_toml("task.cu", ["plain"])))
    (course.folder / "reference" / "task.cu").write_text(DOUBLE_IT)
    return [submission(tmp_path, DOUBLE_IT, "task.cu"), "--course", course.folder, "--device", "cpu"]


@pytest.mark.parametrize("name", ["g++", pytest.param("ld", marks=pytest.mark.everything)])
def test_a_tool_that_does_not_work_is_the_machines_fault(
    start_run: StartRun, in_cpp: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", f"{broken(tmp_path, name).parent}{os.pathsep}{os.environ['PATH']}")
    ran = start_run(*in_cpp, jailed=False).finish()
    assert ran.report is not None
    assert (ran.code, ran.report.score.graded) == (3, 0)
    assert ran.case("task", "plain").outcome == "infra_error"
    assert SAYS in ran.output
    assert "grader doctor: C++ compiler" in ran.output


def test_a_ptxas_that_does_not_work_is_the_machines_fault(
    course: Course, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(broken(tmp_path, "ptxas")))
    compilable(course, "task")
    (course.folder / "reference" / "task.py").write_text(RIGHT_IN_TRITON)
    mine = submission(tmp_path, RIGHT_IN_TRITON)
    ran = start_run(mine, "--course", course.folder, "--device", "cpu", "--quick", jailed=False).finish()
    assert ran.report is not None
    assert ran.code == 3
    assert [ran.case("task", name).outcome for name in ("run", "compiled")] == ["passed", "infra_error"]
    assert "fails here too" in ran.case("task", "compiled").message
    assert ran.report.assignments[0].kernels == ()


def mounted(options: str, then: str = "") -> Callable[..., list[str]]:
    """A command that has a file system of its own at the first argument."""

    def command(where: Path, *program: str) -> list[str]:
        script = f'mount -t tmpfs -o {options} tmpfs "$0" && {then or ":"} && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(where), *program]

    return command


NOEXEC = mounted("size=2g,mode=1777,noexec")
# Room for the run's own files, and next to none for what a compiler writes.
FULL = mounted("size=9m,mode=1777", 'head -c 7m /dev/zero > "$0/full"')


@pytest.mark.parametrize(
    ("place", "words"),
    [(FULL, "No space left"), pytest.param(NOEXEC, "failed to map segment", marks=pytest.mark.everything)],
)
def test_a_disk_that_is_full_or_runs_nothing_is_the_machines_fault(
    in_cpp: list[object], tmp_path: Path, place: Callable[..., list[str]], words: str
) -> None:
    where, out = tmp_path / "tmp", tmp_path / "out"
    where.mkdir()
    if subprocess.run(place(where, "true"), capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    program = [sys.executable, "-m", "grader", "run", *map(str, in_cpp), "-o", str(out)]
    environment = os.environ | {"TMPDIR": str(where), "PYTHONPATH": IMPORTS}
    done = subprocess.run(place(where, *program), env=environment, capture_output=True, text=True)
    assert done.returncode == 3, done.stdout + done.stderr
    told = " ".join(done.stdout.replace("│", " ").split()) + done.stderr  # wherever a line of the report ends
    assert words in told or "MiB left" in done.stderr
    assert "build failed" not in told


def test_a_cache_that_nobody_can_write_to_keeps_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a compiler that takes no time."""
    (tmp_path / "cache").write_text("a file where a folder is meant to be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler = tmp_path / "g++"
    compiler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit\nwhile [ $# -gt 1 ]; do shift; done\necho built > "$1"\n'
    )
    compiler.chmod(0o755)
    provide_runtime(stage_runtime(tmp_path / "runtime"), str(compiler))
    assert (tmp_path / "runtime/grader/worker/cuda_cpu/runtime.o").read_text() == "built\n"


def test_every_import_that_is_allowed_by_default_works_in_a_workers_jail(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    course.add("task")
    imports = "\n".join(f"import {name}" for name in USUAL_IMPORTS if name != "__future__")
    mine = submission(tmp_path, f"{imports}\n\ndef double(x):\n    return x * 2\n")
    ran = start_run(mine, "--course", course.folder, "--device", "cpu").finish()
    assert ran.case("task", "plain").outcome == "passed", ran.output


BROKEN_LIBRARY = "import statistics\n\ndef double(x):\n    return statistics.mean([])\n"


def test_what_is_not_there_and_what_fails_for_the_staff_too_is_the_machines_fault(
    course: Course, tmp_path: Path
) -> None:
    """An import that the policy allows and nobody installed; and a library that fails in every case, for the staff's file as well."""
    course.add("imports")
    toml = course.folder / "assignments" / "imports" / "problem.toml"
    toml.write_text(toml.read_text() + '[policy]\nimports = ["torch", "triton", "some_package_of_the_course"]\n')
    submission(tmp_path, "import some_package_of_the_course\n\ndef double(x):\n    return x * 2\n", "imports.py")
    course.add("library", ["one", "two", "three"])
    (course.folder / "reference" / "library.py").write_text(BROKEN_LIBRARY)
    mine = submission(tmp_path, BROKEN_LIBRARY.replace("double(x)", "double(x, more=1)"), "library.py")
    report = judge(mine, course.folder, ("imports", "library"), "cpu")
    assert report.infra_errors
    absent, *failed = cases(report)
    assert {case.outcome for case in (absent, *failed)} == {"infra_error"}
    assert "some_package_of_the_course is not installed here" in absent.message
    assert "the staff's own library.py fails here too" in failed[1].message


DOUBLING = """
        def double(x):
            {line}
            y = torch.empty_like(x)
            twice[(1,)](x, y, x.numel(), BLOCK=64)
            return y
"""
ANSWERED = (
    "assert x.is_cuda",
    "assert x.device.type == 'cuda', 'on the GPU, please'",
    "torch.cuda.synchronize()",
    "x = x.to('cuda')",
    "torch.empty(3, device='cuda')",
    "torch.cuda.current_stream()",
    "triton.runtime.driver.active.get_current_device()",
    "if x.device.type == 'cpu': raise ValueError('no kernel for this device')",
    "if not x.is_cuda: raise SystemExit(1)",
    "torch.cuda.nvtx.range_push('double')",
    "assert twice.warmup(x, x, 1, BLOCK=16, grid=(1,)).metadata.shared == 0",
)
LEFT_OPEN = ("torch.cuda.CUDAGraph()", "torch.Stream(device='cuda')", "twice.device_caches")
TOO_OLD = "if torch.cuda.get_device_capability()[0] < 10: raise RuntimeError('needs a Blackwell')"


# Faults of their own, by the name of their assignment: what stands in `double(x)`.
OWN = {
    "library": 'return triton.cdiv("a", x)',
    "harder": "if x.numel() > 10: torch.cuda.CUDAGraph()\n            return x * 2",
    "slip": "return torch.cuda.no_such_thing(x)",
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AssignmentResult]:
    """By line about a GPU, or by name: what is said of a file with it. All of them are assignments of one course."""
    folder = tmp_path_factory.mktemp("asked")
    course = Course(folder / "course")
    lines = {f"task_{number:02}": line for number, line in enumerate((*ANSWERED, *LEFT_OPEN, TOO_OLD))}
    for name, line in (lines | OWN).items():
        course.add(name, ["one", "two", "three"] if name == "library" else ["one", "two"])
        mine = submission(folder, TWICE + textwrap.dedent(DOUBLING.format(line=line)), f"{name}.py")
    report = judge(mine, course.folder, (*lines, *OWN), "cpu")
    assert report.infra_errors == ()
    return {lines.get(one.name, one.name): one for one in report.assignments}


def outcomes(asked: dict[str, AssignmentResult], what: str) -> list[str]:
    return [case.outcome for case in asked[what].parts[0].cases]


def test_a_library_that_fails_in_every_case_is_looked_into_once_and_the_students_fault_stands(
    asked: dict[str, AssignmentResult],
) -> None:
    assert outcomes(asked, "library") == ["failed"] * 3


def test_what_asks_for_a_gpu_in_the_harder_case_alone_earns_nothing_by_the_easy_one(
    asked: dict[str, AssignmentResult],
) -> None:
    assert asked["harder"].parts[0].points.graded == 0


def test_a_slip_in_a_line_about_a_gpu_is_a_slip(asked: dict[str, AssignmentResult]) -> None:
    assert outcomes(asked, "slip") == ["failed"] * 2


@pytest.mark.parametrize("line", ANSWERED)
def test_what_a_right_file_asks_of_a_gpu_is_answered(asked: dict[str, AssignmentResult], line: str) -> None:
    (part,) = asked[line].parts
    assert {case.outcome for case in part.cases} == {"passed"}
    assert part.points.earned == part.points.graded > 0


@pytest.mark.parametrize("line", LEFT_OPEN)
def test_what_only_a_gpu_can_answer_leaves_its_points_open(asked: dict[str, AssignmentResult], line: str) -> None:
    (part,) = asked[line].parts
    assert part.points.graded == 0
    for case in part.cases:
        assert case.outcome == "skipped"
        assert case.message.startswith(f"needs a GPU: {asked[line].name}.py, line 12: {line}")


def test_what_would_fail_on_the_grading_gpu_fails(asked: dict[str, AssignmentResult]) -> None:
    (part,) = asked[TOO_OLD].parts
    assert {(case.outcome, case.message) for case in part.cases} == {("failed", "RuntimeError: needs a Blackwell")}


@pytest.mark.parametrize(
    "beginning", ["\ufeff", "# -*- coding: latin-1 -*-\n# caf\xe9\n", "\f\n"], ids=["BOM", "cookie", "feed"]
)
def test_a_line_that_asks_for_a_gpu_is_found_in_whatever_way_the_file_is_written(
    tmp_path: Path, beginning: str
) -> None:
    source = f"{beginning}import torch\n\ntorch.cuda.CUDAGraph()\n"
    file = tmp_path / "softmax.py"
    file.write_bytes(source.encode("latin-1" if "latin-1" in beginning else "utf-8"))
    line = 3 + beginning.count("\n")
    errors.set_root(tmp_path)

    def told(words: str) -> str:
        code = "\n" * (line - 1) + f"raise RuntimeError({words!r})"
        with pytest.raises(RuntimeError) as caught:
            exec(compile(code, str(file), "exec"))
        return errors.describe(caught.value).message

    assert told("needs a GPU: a graph") == f"needs a GPU: softmax.py, line {line}: torch.cuda.CUDAGraph()"
    assert told("of another kind") == "of another kind"


def test_courses_let_submissions_import_nothing_that_is_not_installed() -> None:
    allowed = {name for one in load_course(ROOT) if one.spec.policy for name in one.spec.policy.imports}
    missing = {name for name in allowed if importlib.util.find_spec(name) is None}
    assert allowed >= {"einops", "jaxtyping"}
    assert not missing
